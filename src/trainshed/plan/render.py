"""A plan as text, for `--dry-run`: what each node will do, without repeating what all share."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from trainshed.plan.model import NodePlan, Plan, ProcessPlan
from trainshed.plural import counted

_SHOWN_NODES = 8


def render(plan: Plan) -> str:
    """The plan as text for people; the whole of it is in its JSON."""
    return "\n".join(_lines(plan)) + "\n"


def _lines(plan: Plan) -> Iterator[str]:
    count = counted(len(plan.nodes), "node")
    emulated = " (emulated)" if plan.emulated else ""
    yield f"run {plan.run}: launcher {plan.launcher}, contract {plan.contract}, {count}, {plan.size} × {plan.kind}{emulated}"
    for note in plan.notes:
        yield f"note: {note}"
    yield "all nodes"
    yield from (f"  {name}={shlex.quote(value)}" for name, value in sorted(plan.env.items()))
    yield from (f"  file {item.path} ({len(item.content)} bytes)" for item in plan.files)
    yield from (f"  secret {name}" for name in plan.secrets)
    if plan.ssh:
        yield f"  ssh between nodes, on ports {' '.join(map(str, plan.ssh[:_SHOWN_NODES]))}"
    for node in plan.nodes[:_SHOWN_NODES]:
        yield from _node(node)
    if len(plan.nodes) > _SHOWN_NODES:
        yield f"and {len(plan.nodes) - _SHOWN_NODES} more nodes; --json shows all"


def _node(node: NodePlan) -> Iterator[str]:
    yield f"node {node.index}  {node.name}  {node.address}  coordinator {node.coordinator[0]}:{node.coordinator[1]}"
    yield f"  private {' '.join(seen for seen, _ in node.private)}"
    if node.kept_home:
        yield f"  home {node.home} kept in {node.kept_home}"
    yield from (f"  link {path} → {target}" for path, target in node.links)
    for transfer in (*((node.code,) if node.code else ()), *node.inputs):
        yield f"  fetch {transfer.name}: {transfer.source} → {transfer.target}"
    yield from (f"  install {listing}, if it exists" for listing in node.requirements)
    yield from (f"  source {script}" for script in node.pre_start)
    yield from (f"  source {script}, if it exists, in {node.hook_dir}" for script in node.hooks)
    yield from (f"  {name}={shlex.quote(value)}" for name, value in sorted(node.env.items()))
    yield from (f"  file {item.path} ({len(item.content)} bytes)" for item in node.files)
    for process in node.processes:
        yield from _process(process)
    for transfer in node.outputs:
        yield f"  upload {transfer.name}: {transfer.source} → {transfer.target or 'the run directory'}"
    if node.log:
        yield f"  upload the log → {node.log.target}{node.log.name}"


def _process(process: ProcessPlan) -> Iterator[str]:
    yield f"  {process.name}: cd {shlex.quote(process.cwd)} && {shlex.join(process.argv)}"
    yield from (f"    {name}={shlex.quote(value)}" for name, value in sorted(process.env.items()))
