"""Plan: for every node its environment, files, names and processes. Data only, printable.

What all nodes share is held once, so a plan's size grows with the number of
ranks and not with its square. Agents read it back on the nodes, so this
imports nothing heavy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainshed.errors import TrainshedError

VERSION = 2
"""Grows with every change of the fields below; `tests/data/formats.json` has them."""
Env = Mapping[str, str]
_QUOTED = re.compile(r"\$\((TRAINSHED_[A-Z_]+)\)")


def expanded(env: Env) -> dict[str, str]:
    """The variables as a process gets them.

    A value may quote one of Trainshed's own as $(TRAINSHED_NAME), so that what
    is long and common to many processes is written once. Nothing else is expanded.
    """
    return {
        name: _QUOTED.sub(lambda found: env.get(found[1], found[0]), value) for name, value in env.items()
    }


@dataclass(frozen=True, slots=True)
class ProcessPlan:
    """One process of a node. `name` is also its log's: `rank-3` writes `rank-3.log`."""

    name: str
    argv: tuple[str, ...]
    cwd: str
    env: Env = field(default_factory=dict)
    rank: int | None = None
    helper: bool = False
    """Serves the others: does not keep the run alive, and is stopped when they are done."""
    serves: bool = False
    """The same of a rank or a command of the user's."""


@dataclass(frozen=True, slots=True)
class FilePlan:
    """A file that exists on the node before its processes start."""

    path: str
    content: str
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class Transfer:
    """A tree to fetch to the node (`source` is remote) or to upload from it.

    `every` is the pause in seconds between uploads while the job runs; 0 means only at the end.
    """

    name: str
    source: str
    target: str
    every: float = 0.0
    predownload: bool = False
    left_out: tuple[str, ...] = ()
    """Folders of the code that are inputs, and reach the node as such."""


@dataclass(frozen=True, slots=True)
class NodePlan:
    """What happens on one node."""

    index: int
    name: str
    address: str
    coordinator: tuple[str, int]
    work_dir: str
    private: tuple[tuple[str, str], ...]
    """Directories of the node's own: (path seen by processes, folder below the node's scratch)."""
    env: Env
    files: tuple[FilePlan, ...]
    code: Transfer | None
    inputs: tuple[Transfer, ...]
    outputs: tuple[Transfer, ...]
    pre_start: tuple[str, ...]
    processes: tuple[ProcessPlan, ...]
    home: str = ""
    folders: tuple[str, ...] = ()
    """Directories that exist before the processes start."""
    hooks: tuple[str, ...] = ()
    """Scripts sourced before the processes start, those of them that exist; `hook_dir` is where they run."""
    hook_dir: str = ""
    requirements: tuple[str, ...] = ()
    """Lists of Python packages installed for this node alone, those of them that exist."""
    log: Transfer | None = None
    """The logs of the node's processes joined in one file of this name, left in the folder `target`."""
    kept_home: str = ""
    """Where what is left in home stays after the run: mounted as home on isolated nodes, else moved there."""
    links: tuple[tuple[str, str], ...] = ()
    """Links that exist before the processes start: (path, target)."""

    def placed(self, path: str) -> str:
        """Where an absolute path of the contract's is found on this node."""
        for seen, folder in sorted(self.private, key=lambda pair: len(pair[1]), reverse=True):
            if path == f"/{folder}" or path.startswith(f"/{folder}/"):
                return seen + path[len(folder) + 1 :]
        return path


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole run: what is common, then each node."""

    run: str
    launcher: str
    contract: str
    kind: str
    emulated: bool
    isolated: bool
    size: int
    image: str | None
    env: Env
    files: tuple[FilePlan, ...]
    hosts: tuple[tuple[str, tuple[str, ...]], ...]
    secrets: tuple[str, ...]
    grace: float
    timeout: float | None
    memory: int | None
    notes: tuple[str, ...]
    nodes: tuple[NodePlan, ...]
    ssh: tuple[int, ...] = ()
    """The port on which each node answers SSH from its peers; empty when the job has no SSH."""

    @property
    def hosts_file(self) -> str:
        lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost"]
        lines += [f"{address} {' '.join(names)}" for address, names in self.hosts]
        return "\n".join(lines) + "\n"

    def to_json(self) -> dict[str, Any]:
        return {"version": VERSION, **_plain(self)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Plan:
        """The plan again; a TrainshedError says so when it was made by another release."""
        check_version(data)
        rest = {
            k: v
            for k, v in data.items()
            if k not in ("nodes", "files", "hosts", "secrets", "notes", "ssh", "version")
        }
        try:
            return cls(
                **rest,
                files=_files(data["files"]),
                hosts=tuple((address, tuple(names)) for address, names in data["hosts"]),
                secrets=tuple(data["secrets"]),
                notes=tuple(data["notes"]),
                nodes=tuple(node_from_json(node) for node in data["nodes"]),
                ssh=tuple(data["ssh"]),
            )
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise _other_release(repr(error)) from error


def check_version(data: Mapping[str, Any]) -> None:
    """Refuse the plan of another release in one sentence."""
    if data.get("version") != VERSION:
        raise _other_release(f"format {data.get('version')!s:.40}, this release reads {VERSION}")


def _other_release(how: str) -> TrainshedError:
    return TrainshedError(
        f"the plan was made by another release of Trainshed: {how}",
        "the submitting machine and the nodes must have the same release",
        code="other-release",
    )


def node_from_json(data: dict[str, Any]) -> NodePlan:
    """One node's part of a plan."""
    return NodePlan(
        index=data["index"],
        name=data["name"],
        address=data["address"],
        coordinator=(data["coordinator"][0], data["coordinator"][1]),
        work_dir=data["work_dir"],
        private=tuple((seen, folder) for seen, folder in data["private"]),
        env=data["env"],
        files=_files(data["files"]),
        code=_transfer(data["code"]) if data["code"] else None,
        inputs=tuple(_transfer(item) for item in data["inputs"]),
        outputs=tuple(_transfer(item) for item in data["outputs"]),
        pre_start=tuple(data["pre_start"]),
        home=data["home"],
        processes=tuple(ProcessPlan(**(item | {"argv": tuple(item["argv"])})) for item in data["processes"]),
        folders=tuple(data["folders"]),
        hooks=tuple(data["hooks"]),
        hook_dir=data["hook_dir"],
        requirements=tuple(data["requirements"]),
        log=_transfer(data["log"]) if data["log"] else None,
        kept_home=data["kept_home"],
        links=tuple((path, target) for path, target in data["links"]),
    )


def _transfer(data: dict[str, Any]) -> Transfer:
    return Transfer(**data | {"left_out": tuple(data["left_out"])})


def _files(items: list[dict[str, Any]]) -> tuple[FilePlan, ...]:
    return tuple(FilePlan(**item) for item in items)


def _plain(value: Any) -> Any:
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
