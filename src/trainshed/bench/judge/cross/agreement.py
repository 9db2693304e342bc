"""Rules about promises: submission, plan, job file, settings and identities agree with one another and the rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from trainshed.bench.judge.cross import Case, rule
from trainshed.bench.measure.evidence import node_of
from trainshed.bench.measure.reading import reading
from trainshed.runs.events import ProcessStarted, Submitted
from trainshed.spec.job import Resources

BATCH = "global_batch_size"
LOCAL = "local"
SANDBOX = "sandbox"


@rule("submission-differs")
def submission(case: Case) -> Iterator[str]:
    """The run was submitted once, with the shape of the rules and the name, launcher, contract and isolation of job and plan."""
    found = case.evidence.bodies(Submitted)
    if len(found) > 1:
        yield f"the run was submitted {len(found)} times"
    if case.evidence.events and not found:
        yield "there is no record of how the run was submitted"
    for _, body in found[:1]:
        shape = f"{case.rules.nodes}x{case.rules.ranks_per_node}"
        if body.shape != shape:
            yield f"a shape of {body.shape:.20} was submitted, the rules ask for {shape}"
        job, plan = case.evidence.job, case.evidence.plan
        if job is not None and str(job.get("name", "")) != body.name:
            yield f"{body.name:.60} was submitted, job.yaml is {str(job.get('name', ''))[:60]}"
        if plan is not None:
            for name in ("launcher", "contract"):
                if getattr(plan, name) != getattr(body, name):
                    yield f"{name} {getattr(body, name)!r} was submitted, the plan has {getattr(plan, name)!r}"
            if body.engine == LOCAL and body.isolation and plan.isolated != (body.isolation != "plain"):
                yield f"isolation {body.isolation:.20} was submitted, the plan is of nodes {'with' if plan.isolated else 'without'} one"


@rule("emulation-hidden")
def emulation(case: Case) -> Iterator[str]:
    """Plan and submission agree whether devices were emulated."""
    plan = case.evidence.plan
    for _, body in case.evidence.bodies(Submitted)[:1]:
        if plan is not None and plan.emulated != body.emulated:
            labels = {True: "emulated", False: "not emulated"}
            yield f"devices were {labels[body.emulated]} by the submission, {labels[plan.emulated]} by the plan"


@rule("plan-differs")
def plan_shape(case: Case) -> Iterator[str]:
    """The plan has the nodes and ranks of the rules, each rank once, and names one run."""
    plan, rules = case.evidence.plan, case.rules
    if plan is None:
        return
    if plan.nodes != rules.nodes:
        yield f"the plan has {plan.nodes} nodes, the rules ask for {rules.nodes}"
    ranks = [p.rank for p in plan.processes if p.rank is not None]
    if ranks and (len(ranks) != plan.size or sorted(ranks) != list(range(len(ranks)))):
        yield f"the plan's processes are not those of {plan.size} ranks"
    if plan.run_variable and plan.run_variable != plan.run:
        yield f"the plan is of run {plan.run:.60} and tells its ranks that they are of {plan.run_variable:.60}"
    for process in plan.processes:
        if process.rank is not None and process.rank in case.evidence.ranks:
            node = case.evidence.ranks[process.rank].node
            if node != process.node:
                yield f"rank {process.rank} was planned on node {process.node} and left its files on node {node}"


@rule("job-differs")
def job_file(case: Case) -> Iterator[str]:
    """job.yaml has the shape and the target of the rules; the plan has its launcher and contract, and starts its script with its parameters."""
    job = case.evidence.job
    if job is None:
        return
    try:
        resources = Resources.model_validate(job.get("resources", "1x1"))
    except (ValidationError, ValueError, TypeError):
        yield "job.yaml has resources that cannot be read"
        return
    if (resources.nodes, resources.nodes * resources.devices) != (case.rules.nodes, case.rules.ranks):
        yield f"job.yaml asks for {resources.shape}, the rules for {case.rules.nodes} nodes and {case.rules.ranks} ranks"
    if case.evidence.plan is not None and case.evidence.plan.kind not in ("", resources.kind.value):
        yield f"job.yaml asks for devices {resources.kind.value}, the plan has {case.evidence.plan.kind:.20}"
    known = parameters(job)
    target = reading(known.get(case.rules.target_parameter))
    if case.rules.target is not None and target is not None and target != case.rules.target.value:
        yield f"job.yaml gives the target {target:g}, the rules {case.rules.target.value:g}"
    yield from _started_otherwise(case, job)
    passed: dict[str, str] = {}
    for process in case.evidence.plan.processes if case.evidence.plan else ():
        options = dict(a[2:].split("=", 1) for a in process.argv if a.startswith("--") and "=" in a)
        for name, value in known.items():
            if name in options and options[name] != str(value):
                yield f"{process.name} was started with {name}={options[name][:40]}, job.yaml has {str(value)[:40]}"
            if name in options:
                passed.setdefault(name, process.name)
    for process in case.evidence.plan.processes if case.evidence.plan else ():
        for name, other in passed.items():
            if process.rank is not None and not any(a.startswith(f"--{name}=") for a in process.argv):
                yield f"{process.name} was started without {name}, which {other} was given"


def _started_otherwise(case: Case, job: dict[str, Any]) -> Iterator[str]:
    """Where the plan starts something else than the job."""
    plan = case.evidence.plan
    if plan is None:
        return
    for name in ("launcher", "contract"):
        if name in job and str(job[name]) != getattr(plan, name):
            yield f"job.yaml has {name} {str(job[name])[:40]!r}, the plan {getattr(plan, name)[:40]!r}"
    entry, command = job.get("entry"), job.get("command")
    for process in plan.processes:
        is_rank = process.rank is not None and isinstance(entry, str)
        if is_rank and not any(f"/{a}".endswith(f"/{entry}") for a in process.argv):
            yield f"{process.name} does not start {entry:.80}, the entry of job.yaml"
        if isinstance(command, str) and not any(a.startswith(command) for a in process.argv):
            yield f"{process.name} does not start the command of job.yaml"


@rule("seed-differs")
def seed(case: Case) -> Iterator[str]:
    """The seed that the lowest rank recorded is the one its job was given."""
    known = parameters(case.evidence.job).get(case.rules.seed_parameter)
    for rank, session in list(case.sessions)[:1]:
        mark = session.first("seed")
        if mark is not None and isinstance(known, int) and mark.fields.get("value") != known:
            yield f"rank {rank.rank} recorded seed {str(mark.fields.get('value'))[:40]}, the job was given {known}"


@rule("batch-differs")
def batch_size(case: Case) -> Iterator[str]:
    """All ranks recorded the same global batch size, once."""
    found: dict[str, int] = {}
    for rank, session in case.sessions:
        said = [
            str(m.fields.get("value"))[:40] for m in session.all("setting") if m.fields.get("key") == BATCH
        ]
        for value in said or ["none"]:
            found.setdefault(value, rank.rank)
    if len(found) > 1:
        yield "ranks recorded different global batch sizes: " + ", ".join(
            f"{v} (rank {r})" for v, r in found.items()
        )


@rule("pid-twice")
def process_ids(case: Case) -> Iterator[str]:
    """No two ranks of a node are one process, and a rank's process is not older than the one that was started for it."""
    seen: dict[tuple[int, int], int] = {}
    begun: dict[tuple[int | None, int], str] = {}
    for event, body in case.evidence.bodies(ProcessStarted):
        other = begun.setdefault((node_of(event), body.pid), body.process)
        if other != body.process:
            yield f"{other:.40} and {body.process:.40} of node {node_of(event)} were both started as process {body.pid}"
    started = {(node_of(e), body.process): body.pid for e, body in case.evidence.bodies(ProcessStarted)}
    isolated = case.evidence.plan is not None and case.evidence.plan.isolated
    for rank, session in case.sessions:
        key = (rank.node, session.pid)
        if session.pid and key in seen:
            yield f"rank {seen[key]} and rank {rank.rank} of node {rank.node} were both process {session.pid}"
        seen.setdefault(key, rank.rank)
        pid = started.get((rank.node, f"rank-{rank.rank}"))
        # In a node with its own processes, numbers only grow.
        if isolated and pid is not None and 0 < session.pid < pid:
            yield f"rank {rank.rank} was started as process {pid} and measured as process {session.pid}"


@rule("host-differs")
def hosts(case: Case) -> Iterator[str]:
    """The ranks of one node name one host; in a sandbox it is the one that the plan gave to the node."""
    seen: dict[int, str] = {}
    plan, submitted = case.evidence.plan, case.evidence.bodies(Submitted)
    enclosed = plan is not None and any(body.isolation == SANDBOX for _, body in submitted)
    names = plan.names if plan is not None and enclosed and plan.isolated else {}
    for rank, session in case.sessions:
        if session.host and seen.setdefault(rank.node, session.host) != session.host:
            yield f"ranks of node {rank.node} were on {seen[rank.node]:.60} and on {session.host:.60}"
        planned = names.get(rank.node, "")[:64]
        if session.host and planned and session.host != planned:
            yield f"rank {rank.rank} was on {session.host:.60}, its node was {planned}"


def parameters(job: dict[str, Any] | None) -> dict[str, Any]:
    """The parameters of a job that are plain values."""
    found = (job or {}).get("parameters")
    if not isinstance(found, dict):
        return {}
    return {str(k): v for k, v in list(found.items())[:1000] if isinstance(v, str | int | float | bool)}
