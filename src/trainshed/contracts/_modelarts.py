"""What both ModelArts contracts share: rank tables, per-card variables, hooks, names made from the run's."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from urllib.parse import quote

from trainshed.contracts import _tables
from trainshed.contracts.base import Contract, choice
from trainshed.errors import UsageError
from trainshed.plan.model import FilePlan
from trainshed.plan.topology import Node, World
from trainshed.plan.view import View
from trainshed.ranktables import Form, write
from trainshed.ranktables.pods import FILE_NAME
from trainshed.spec.kinds import DeviceKind, Mode

CONFIG = "/user/config"
"""Where the platform leaves the rank table by pods; a command finds this folder in RANK_TABLE_FILE."""
OPTIONS = {
    "rank_table": "file (version 1.0, the default) or folder (by pods): what RANK_TABLE_FILE of a rank is",
    "job_id": "the platform's own id of the job, if it has one already",
}
_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class ModelArts(Contract):
    """The part of the contract that depends on neither version of the platform."""

    site = ("modelarts",)
    root = ""
    """The folder that holds user-job-dir and workspace."""

    def check(self, view: View) -> None:
        known = str(view.job.options.get("job_id") or "")
        if known and not _JOB_ID.fullmatch(known):
            raise UsageError(
                f"options.job_id is {known!r}", "it becomes part of names: use letters, digits, dot, _ and -"
            )

    def pod(self, view: View, node: Node) -> str:
        raise NotImplementedError

    def group(self, view: View) -> str:
        """The name of the rank table's group."""
        raise NotImplementedError

    def job_id(self, view: View) -> str:
        raise NotImplementedError

    def hooks(self, view: View) -> Sequence[str]:
        return ("ma-pre-start.sh", "ma-pre-start.py")

    def hook_dir(self, view: View) -> str:
        return f"{self.root}/user-job-dir"

    def requirements(self, view: View) -> Sequence[str]:
        return ("pip-requirements.txt",)

    def rank_dir(self, view: View, node: Node, local: int) -> str:
        return f"{self.root}/workspace/device{local}"

    def log_name(self, view: View, node: Node) -> str:
        return f"{self.pod(view, node)}.log"

    def notes(self, view: View) -> Sequence[str]:
        return (_tables.NOTE,) if view.site.emulate and has_table(view) else ()

    def common_files(self, view: View) -> Sequence[FilePlan]:
        if not has_table(view) or view.job.mode is Mode.SINGLE_SERVER:
            return ()
        return self._tables(view, view.world(view.topology.nodes[0]))

    def node_files(self, view: View, node: Node) -> Sequence[FilePlan]:
        if not has_table(view) or view.job.mode is not Mode.SINGLE_SERVER:
            return ()
        return self._tables(view, view.world(node))

    def node_table_env(self, view: View, node: Node) -> dict[str, str]:
        """What a command finds: the folder, in which it reads (and waits for) the table by pods."""
        if not has_table(view):
            return {}
        return {"RANK_TABLE_FILE": view.site.path(node, CONFIG), "RANK_SIZE": str(view.world(node).size)}

    def rank_env(self, view: View, node: Node, local: int) -> dict[str, str]:
        """What each card's process finds. A run method of the framework's own needs no rank table."""
        if not has_table(view):
            return {}
        device = str(node.devices[local].index)
        world = view.world(node)
        env = {
            "DEVICE_ID": device,
            "ASCEND_DEVICE_ID": device,
            "RANK_ID": str(world.rank(node, local)),
            "RANK_SIZE": str(world.size),
            "JOB_ID": self.job_id(view),
        }
        folder = choice(view, "rank_table", ("file", "folder")) == "folder"
        table = CONFIG if folder else self._file()
        return env | {"RANK_TABLE_FILE": view.site.path(node, table)}

    def _tables(self, view: View, world: World) -> tuple[FilePlan, FilePlan]:
        def pod(node: Node) -> str:
            return self.pod(view, node)

        table = _tables.table(view, world, pod)
        return (
            FilePlan(f"{CONFIG}/{FILE_NAME}", write(table, Form.PODS, group_name=self.group(view))),
            FilePlan(self._file(), write(table, Form.V1)),
        )

    def _file(self) -> str:
        return f"{self.root}/rank_table/{FILE_NAME}"


def has_table(view: View) -> bool:
    return view.topology.kind is DeviceKind.ASCEND


def folder_name(view: View) -> str:
    """The last part of the code's folder or URL."""
    return (view.job.code or "code").rstrip("/").rpartition("/")[2] or "code"


def digest(view: View) -> str:
    """Letters and digits that stand for the run: the same for the same run."""
    return hashlib.sha256(view.run.encode()).hexdigest()


def with_protocol(location: str) -> str:
    return location if "://" in location else f"file://{quote(location)}"


def host(view: View, node: Node, name: Callable[[Node], str]) -> str:
    """A node's name on the platform, or its address where names of ours do not resolve."""
    return name(node) if view.site.isolated else node.address
