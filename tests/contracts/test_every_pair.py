"""Every launcher with every contract: no pair is special, and what a script finds is complete in each."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from contracts.made import env_of, files_of, made, node_env, ranks, site
from trainshed import registry
from trainshed.plan.model import Plan, expanded
from trainshed.plan.render import render

pytestmark = [pytest.mark.contracts]

GOLDEN = Path(__file__).parent / "golden"
PAIRS = [
    (launcher, contract)
    for launcher in registry.members("launcher")
    for contract in registry.members("contract")
]
EVERY = pytest.mark.parametrize(("launcher", "contract"), PAIRS)
CHANNELS = {
    "inputs": [{"name": "data_url", "source": "obs://data/cifar-10/"}],
    "outputs": [{"name": "train_url", "target": "obs://out/V1/"}],
}
PROMISED = {
    "plain": (),
    "modelarts-v1": [
        "DLS_JOB_ID",
        "DLS_TASK_INDEX",
        "DLS_TASK_NUMBER",
        "BATCH_TASK_INDEX",
        "VC_TASK_INDEX",
        "DLS_APP_URL",
        "DLS_DATA_URL",
        "DLS_TRAIN_URL",
        "DLS_USE_DOWNLOADER",
        "DLS_USE_UPLOADER",
        "DLS_UPLOAD_LOG_OBS_DIR",
        "DLS_USE_DNS_TCP",
        "DLS_DLKS_JOB_ID",
        "BATCH_JOB_ID",
        "BATCH_TASK_CURRENT_HOST_IP",
        "BATCH_TASK_CURRENT_INSTANCE",
        "BATCH_CUSTOM0_HOSTS",
        "BATCH_CUSTOM1_HOSTS",
        "BATCH_CURRENT_HOST",
        "BATCH_CURRENT_PORT",
        "RANK_TABLE_FILE",
        "DEVICE_ID",
        "ASCEND_DEVICE_ID",
        "RANK_ID",
        "RANK_SIZE",
        "JOB_ID",
    ],
    "modelarts-v2": [
        "MA_JOB_DIR",
        "MA_MOUNT_PATH",
        "MA_LOG_DIR",
        "MA_HOME",
        "MA_NUM_HOSTS",
        "MA_NUM_GPUS",
        "MA_TASK_NAME",
        "MA_CURRENT_IP",
        "MA_CURRENT_HOST_IP",
        "MA_VJ_NAME",
        "MA_CURRENT_INSTANCE_NAME",
        "VC_TASK_INDEX",
        "VK_TASK_INDEX",
        "MA_TASK_INDEX",
        "VC_WORKER_NUM",
        "VC_WORKER_HOSTS",
        "MA_INPUTS",
        "MA_OUTPUTS",
        "RANK_TABLE_FILE",
        "DEVICE_ID",
        "ASCEND_DEVICE_ID",
        "RANK_ID",
        "RANK_SIZE",
        "JOB_ID",
    ],
    "apulis": [
        "DLWS_JOB_ID",
        "DLWS_USER_NAME",
        "DLWS_USER_EMAIL",
        "DLWS_UID",
        "DLWS_GID",
        "DLWS_VC_NAME",
        "DLWS_ROLE_NAME",
        "DLWS_ROLE_IDX",
        "DLWS_NUM_PS",
        "DLWS_NUM_WORKER",
        "DLWS_WORKER_NUM",
        "DLWS_NUM_GPU_PER_WORKER",
        "DLWS_GPU_TYPE",
        "DLWS_IS_NPU_JOB",
        "DLWS_HOST_NETWORK",
        "DLWS_LAUNCH_CMD",
        "DLWS_SD_SELF_IP",
        "DLWS_SD_SELF_SSH_PORT",
        "DLWS_SD_SELF_IB_IP",
        "DLWS_SD_SELF_HOST_IP",
        "DLWS_SD_worker0_IP",
        "DLWS_SD_worker1_SSH_PORT",
        "DLWS_SD_worker1_IB_IP",
        "DLWS_SD_worker1_HOST_IP",
        "DLWS_SD_worker1_NPU_IP_LIST",
        "VISIBLE_IDS",
        "NPU_IPS",
    ],
}
PROVED = {
    "mindspore": ("MS_ROLE", "MS_WORKER_NUM", "MS_SCHED_HOST"),
    "paddle": ("PADDLE_TRAINER_ID", "PADDLE_TRAINER_ENDPOINTS", "PADDLE_CURRENT_ENDPOINT"),
    "horovod": ("HOROVOD_RANK", "HOROVOD_SIZE"),
    "pytorch": ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    "tensorflow": ("TF_CONFIG",),
    "command": (),
}


def test_every_member_is_known_here() -> None:
    assert set(PROMISED) == set(registry.members("contract"))
    assert set(PROVED) == set(registry.members("launcher"))


@EVERY
def test_a_rank_finds_all_that_both_promise(launcher: str, contract: str) -> None:
    planned = made(contract, "2x2:ascend", launcher=launcher, **CHANNELS)
    for rank, process in enumerate(ranks(planned)):
        env = env_of(planned, process)
        missing = [name for name in (*PROMISED[contract], *PROVED[launcher]) if name not in env]
        assert not missing
        assert env["TRAINSHED_RANK"] == str(rank)


@EVERY
@pytest.mark.parametrize("kind", ["cpu", "nvidia", "ascend"])
@pytest.mark.parametrize("mode", ["distributed", "single_server"])
@pytest.mark.parametrize("program", ["entry", "command"])
def test_every_shape_of_job_has_a_plan(
    launcher: str, contract: str, kind: str, mode: str, program: str
) -> None:
    fields = {"command": "bash run.sh"} if program == "command" else {}
    planned = made(contract, f"2x2:{kind}", launcher=launcher, mode=mode, **CHANNELS, **fields)
    assert Plan.from_json(json.loads(json.dumps(planned.to_json()))) == planned
    for node in planned.nodes:
        private = [seen for seen, _ in node.private]
        written = [*files_of(planned, node), *node.folders, *(process.cwd for process in node.processes)]
        outside = [p for p in written if not any(p == own or p.startswith(f"{own}/") for own in private)]
        assert not outside, "a plan writes where the node has no folder of its own"


@EVERY
def test_single_server_worlds_know_nothing_of_one_another(launcher: str, contract: str) -> None:
    planned = made(contract, "2x2:ascend", launcher=launcher, mode="single_server")
    for node, other in zip(planned.nodes, reversed(planned.nodes), strict=True):
        mine = {p.env.get("RANK_ID") for p in node.processes if p.rank is not None}
        assert mine <= {"0", "1", None}
        for process in node.processes:
            # Trainshed's own, and SSH between all nodes, reach further than a world.
            every = expanded({**planned.env, **node.env, **process.env})
            told = {name: value for name, value in every.items() if not name.startswith("TRAINSHED_")}
            assert not [name for name, value in told.items() if other.address in value]


@pytest.mark.parametrize(("launcher", "contract"), [pair for pair in PAIRS if pair[0] != "tensorflow"])
def test_plans_grow_with_the_ranks_and_not_with_their_square(launcher: str, contract: str) -> None:
    # TensorFlow's own variable lists the whole cluster for every rank.
    small = len(json.dumps(made(contract, "16x1:ascend", launcher=launcher).to_json()))
    large = len(json.dumps(made(contract, "128x1:ascend", launcher=launcher).to_json()))
    assert large < 9 * small


GOLDENS = {
    "modelarts-v1-mindspore-2x2": made(
        "modelarts-v1", **CHANNELS, log_url="obs://out/log/", parameters={"epochs": 1}
    ),
    "modelarts-v1-paddle-command": made(
        "modelarts-v1",
        "2x8:nvidia",
        launcher="paddle",
        command="bash run.sh",
        options={"batch_hosts": "bare"},
    ),
    "modelarts-v2-pytorch-2x2": made(
        "modelarts-v2",
        launcher="pytorch",
        env={"MA_RUN_METHOD": "torchrun"},
        log_url="obs://out/log/",
        **CHANNELS,
    ),
    "modelarts-v2-single-server": made("modelarts-v2", mode="single_server"),
    "apulis-mindspore-2x2": made("apulis", inputs=[{"name": "cifar10", "source": "obs://data/cifar-10/"}]),
    "apulis-horovod-command": made(
        "apulis", "2x8:nvidia", launcher="horovod", command="horovodrun -np 16 python t.py"
    ),
    "modelarts-v1-emulated": made("modelarts-v1", "1x2:ascend", site=site(emulate=True)),
}


@pytest.mark.parametrize("name", GOLDENS)
def test_a_plan_is_as_its_golden_file_says(name: str) -> None:
    text = render(GOLDENS[name])
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text(), f"UPDATE_GOLDEN=1 rewrites {path.name} if the change is meant"


def test_a_jobs_own_python_path_comes_first_and_hides_nothing() -> None:
    told = node_env(made("modelarts-v1"), 0)["PYTHONPATH"].split(":")
    env = node_env(made("modelarts-v1", env={"PYTHONPATH": "/mine"}), 0)
    assert env["PYTHONPATH"].split(":") == ["/mine", *told]
