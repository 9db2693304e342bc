"""Contract `modelarts-v2`: today's ModelArts, which fetches inputs to the node and uploads outputs.

Home is /home/ma-user. The script is passed local folders; MA_INPUTS and
MA_OUTPUTS tell where they come from and go to.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence

from trainshed.contracts._modelarts import OPTIONS, ModelArts, folder_name, host
from trainshed.errors import UsageError
from trainshed.plan.model import Env
from trainshed.plan.topology import Node, World
from trainshed.plan.view import Layout, View
from trainshed.spec.kinds import Mode

_HOME = "/home/ma-user"
_ROOT = f"{_HOME}/modelarts"
_JOB_DIR = f"{_ROOT}/user-job-dir"
_RUN_METHODS = ("torchrun", "msrun")
_LONGEST = 100_000
"""The kernel takes no variable beyond 128 KiB: a longer list of names becomes one of addresses."""


class ModelArtsV2(ModelArts):
    root = _ROOT
    options = OPTIONS

    def check(self, view: View) -> None:
        super().check(view)
        taken = sorted(n for n in view.job.env if n.startswith("MA_") and n != "MA_RUN_METHOD")
        if taken:
            raise UsageError(
                f"env: {', '.join(taken)} is reserved for the platform",
                "choose a name that does not begin with MA_",
            )
        method = view.job.env.get("MA_RUN_METHOD")
        if method is not None and method not in _RUN_METHODS:
            remedy = f"use {' or '.join(_RUN_METHODS)}, or leave it out for rank tables"
            raise UsageError(f"env.MA_RUN_METHOD is {method!r}", remedy)

    def layout(self, view: View) -> Layout:
        job = view.job
        return Layout(
            home=_HOME,
            code=f"{_JOB_DIR}/{folder_name(view)}",
            work=_JOB_DIR,
            inputs={c.name: f"{_ROOT}/inputs/{c.name}_{i}" for i, c in enumerate(job.inputs)},
            outputs={c.name: f"{_ROOT}/outputs/{c.name}_{i}" for i, c in enumerate(job.outputs)},
            private=("/user", *((_ROOT,) if view.job.image else ())),
            image_home=True,
            folders=(_JOB_DIR, f"{_ROOT}/log", f"{_ROOT}/inputs", f"{_ROOT}/outputs"),
        )

    def job_id(self, view: View) -> str:
        known = view.job.options.get("job_id")
        return str(known) if known else str(uuid.uuid5(uuid.NAMESPACE_URL, f"trainshed:{view.run}"))

    def group(self, view: View) -> str:
        return "worker"

    def pod(self, view: View, node: Node) -> str:
        return f"modelarts-job-{self.job_id(view)}-worker-{node.index}"

    def names(self, view: View, node: Node) -> Sequence[str]:
        return (self._name(view, node), self.pod(view, node))

    def common_env(self, view: View) -> Env:
        env = {"MA_VJ_NAME": self._job(view), "MA_TASK_NAME": "worker"}
        if view.job.mode is Mode.DISTRIBUTED:
            env |= self._peers(view, view.world(view.topology.nodes[0]))
        return env

    def node_env(self, view: View, node: Node) -> Env:
        def path(path: str) -> str:
            return view.site.path(node, path)

        job, layout = view.job, self.layout(view)
        inputs = [_channel(c.name, path(layout.inputs[c.name]), c.source) for c in job.inputs]
        outputs = [_channel(c.name, path(layout.outputs[c.name]), c.target) for c in job.outputs]
        env = {
            "MA_HOME": path(_HOME),
            "MA_MOUNT_PATH": path(_ROOT),
            "MA_JOB_DIR": path(_JOB_DIR),
            "MA_LOG_DIR": path(f"{_ROOT}/log"),
            "MA_NUM_GPUS": str(len(node.devices)),
            "MA_CURRENT_IP": node.address,
            "MA_CURRENT_HOST_IP": node.address,
            "MA_CURRENT_INSTANCE_NAME": self.pod(view, node),
            "VC_TASK_INDEX": str(node.index),
            "VK_TASK_INDEX": str(node.index),
            "MA_TASK_INDEX": str(node.index),
            "MA_INPUTS": json.dumps({"inputs": inputs}, ensure_ascii=False),
            "MA_OUTPUTS": json.dumps({"outputs": outputs}, ensure_ascii=False),
        }
        if job.mode is Mode.SINGLE_SERVER:
            env |= self._peers(view, view.world(node))
        return env | ({} if _has_run_method(view) else self.node_table_env(view, node))

    def rank_env(self, view: View, node: Node, local: int) -> dict[str, str]:
        return {} if _has_run_method(view) else super().rank_env(view, node, local)

    def _peers(self, view: View, world: World) -> dict[str, str]:
        names = ",".join(host(view, node, lambda n: self._name(view, n)) for node in world.nodes)
        if len(names) > _LONGEST:
            names = ",".join(node.address for node in world.nodes)
        count = str(len(world.nodes))
        return {"MA_NUM_HOSTS": count, "VC_WORKER_NUM": count, "VC_WORKER_HOSTS": names}

    def _job(self, view: View) -> str:
        return f"ma-job-{self.job_id(view)}"

    def _name(self, view: View, node: Node) -> str:
        return f"{self._job(view)}-worker-{node.index}.{self._job(view)}"


def _has_run_method(view: View) -> bool:
    """Whether the framework's own launcher, not the rank table, brings the ranks together."""
    return "MA_RUN_METHOD" in view.job.env


def _channel(name: str, folder: str, url: str | None) -> dict[str, object]:
    return {"name": name, "local_dir": folder, "remote": {"obs": {"obs_url": url or ""}}}


CONTRACT = ModelArtsV2()
