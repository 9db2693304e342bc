"""Contract `modelarts-v1`: the older ModelArts, whose engines pass object-store URLs to the script.

Home is /home/work, scratch is /cache. `data_url` and `train_url` are not
fetched to the node: the script copies them itself, with moxing. A command is
what a custom image runs, once per node; parameters reach it as variables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainshed.contracts._modelarts import OPTIONS, ModelArts, digest, folder_name, with_protocol
from trainshed.contracts.base import channel_arguments, choice, parameter_arguments
from trainshed.plan.model import Env, FilePlan
from trainshed.plan.topology import Node, Port, World
from trainshed.plan.view import Layout, View
from trainshed.spec.job import Channel
from trainshed.spec.kinds import Mode

_HOME = "/home/work"
_URLS = ("data_url", "train_url")
_OWN = tuple(f"{_HOME}/{name}" for name in ("user-job-dir", "workspace", "rank_table", "inputs", "outputs"))
"""What is the node's of a home that else is the image's."""


class ModelArtsV1(ModelArts):
    root = _HOME
    options: Mapping[str, str] = {
        "batch_hosts": "port (BATCH_CUSTOM0_HOSTS is host:port, the default) or bare (host alone)",
        "wrapper": "a script of the code folder that is also found in /home/work, as an image would hold it",
        **OPTIONS,
    }

    def layout(self, view: View) -> Layout:
        return Layout(
            home=_HOME,
            code=f"{_HOME}/user-job-dir/{folder_name(view)}",
            work=_HOME,
            inputs={c.name: f"{_HOME}/inputs/{c.name}" for c in view.job.inputs if not _url(c)},
            outputs={c.name: f"{_HOME}/outputs/{c.name}" for c in view.job.outputs if not _url(c)},
            private=("/user", *(_OWN if view.job.image else ())),
            image_home=True,
            folders=(f"{_HOME}/user-job-dir", f"{_HOME}/workspace"),
        )

    def job_id(self, view: View) -> str:
        return str(view.job.options.get("job_id") or f"job{digest(view)[:8]}")

    def group(self, view: View) -> str:
        return f"job-{view.job.name}"

    def pod(self, view: View, node: Node) -> str:
        return f"{self.job_id(view)}-{self.group(view)}-{node.index}"

    def names(self, view: View, node: Node) -> Sequence[str]:
        return (self.pod(view, node),)

    def common_env(self, view: View) -> Env:
        job = view.job
        env = {
            "DLS_JOB_ID": view.run,
            "DLS_DLKS_JOB_ID": view.run,
            "DLS_APP_URL": with_protocol(job.code or ""),
            "DLS_DATA_URL": _location(job.inputs, "data_url"),
            "DLS_TRAIN_URL": _location(job.outputs, "train_url"),
            "DLS_USE_DOWNLOADER": str(int("://" in (job.code or ""))),
            "DLS_USE_UPLOADER": str(int(bool(job.log_url))),
            "DLS_UPLOAD_LOG_OBS_DIR": job.log_url or "",
            "DLS_USE_DNS_TCP": "0",
            "TRAINSHED_CP": "python -m trainshed_cp",
            "BATCH_JOB_ID": self.job_id(view),
        }
        if job.mode is Mode.DISTRIBUTED:
            env |= _peers(view, view.world(view.topology.nodes[0]))
        return env

    def node_env(self, view: View, node: Node) -> Env:
        world = view.world(node)
        env = {
            "DLS_TASK_INDEX": str(node.index),
            "DLS_TASK_NUMBER": str(len(world.nodes)),
            "BATCH_TASK_INDEX": str(node.index),
            "VC_TASK_INDEX": str(node.index),
            "BATCH_TASK_CURRENT_HOST_IP": node.address,
            "BATCH_TASK_CURRENT_INSTANCE": self.pod(view, node),
            "BATCH_CURRENT_HOST": node.address,
            "BATCH_CURRENT_PORT": str(_port(view, world, node)),
        }
        if view.job.mode is Mode.SINGLE_SERVER:
            env |= _peers(view, world)
        if view.job.command is not None:
            env |= {name: _text(value) for name, value in view.job.parameters.items()}
        env |= {c.name: url for c, url in _urls(view) if c.access in ("env", "both")}
        return env | self.node_table_env(view, node)

    def arguments(self, view: View, node: Node) -> Sequence[str]:
        urls = [f"--{c.name}={url}" for c, url in _urls(view) if c.access in ("argument", "both")]
        return urls + channel_arguments(self.layout(view), view, node) + parameter_arguments(view)

    def command_arguments(self, view: View, node: Node) -> Sequence[str]:
        return ()

    def node_files(self, view: View, node: Node) -> Sequence[FilePlan]:
        code = view.site.path(node, self.layout(view).code)
        if view.job.image:
            # Its home holds what the image's maker put there, the helpers of its base among it.
            return super().node_files(view, node)
        # Sourced, so that `$0` is the path in /home/work and the script finds utils.sh beside itself.
        files = [FilePlan(f"{_HOME}/utils.sh", _source(f"{view.site.library}/dls/utils.sh"))]
        if wrapper := view.job.options.get("wrapper"):
            name = str(wrapper).rpartition("/")[2]
            files.append(FilePlan(f"{_HOME}/{name}", _source(f"{code}/{wrapper}"), 0o755))
        return (*files, *super().node_files(view, node))


def _url(channel: Channel) -> bool:
    """Whether the script gets the channel's URL and copies it itself."""
    return channel.name in _URLS and bool(channel.source or channel.target)


def _urls(view: View) -> list[tuple[Channel, str]]:
    return [
        (channel, _s3(channel.source or channel.target or ""))
        for channel in (*view.job.inputs, *view.job.outputs)
        if _url(channel)
    ]


def _s3(location: str) -> str:
    return f"s3://{location.removeprefix('obs://')}" if location.startswith("obs://") else location


def _location(channels: Sequence[Channel], name: str) -> str:
    """The place of the channel of that name, else of the first there is, with its protocol."""
    locations = {channel.name: channel.source or channel.target for channel in channels}
    location = locations.get(name) or next((location for location in locations.values() if location), None)
    return _s3(with_protocol(location)) if location else ""


def _peers(view: View, world: World) -> dict[str, str]:
    def peer(node: Node) -> str:
        return node.address if _bare(view) else f"{node.address}:{_port(view, world, node)}"

    peers = {f"BATCH_CUSTOM{i}_HOSTS": peer(node) for i, node in enumerate(world.nodes)}
    # The platform's documentation names a single node by its job; public scripts read either name.
    alone = {f"BATCH_{view.job.name}.0_HOSTS": peer(world.master)} if len(world.nodes) == 1 else {}
    return peers | alone


def _bare(view: View) -> bool:
    return choice(view, "batch_hosts", ("port", "bare")) == "bare"


def _port(view: View, world: World, node: Node) -> int:
    """The node's own port, so that servers that bind all interfaces of one machine do not collide.

    In the bare form it is one number for all nodes: such scripts count every node's ports from their own.
    """
    return (world.master if _bare(view) else node).port(Port.RANKS)


def _text(value: object) -> str:
    if isinstance(value, list):
        return ",".join(str(item) for item in value)
    return "" if value is None else str(value)


def _source(path: str) -> str:
    quoted = path.replace("'", "'\\''")
    return f"#!/bin/bash\nsource '{quoted}'\n"


CONTRACT = ModelArtsV1()
