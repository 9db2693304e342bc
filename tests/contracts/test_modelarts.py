"""The ModelArts contracts: every promised variable, file, path and name, right for each node and its peers."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

import trainshed
from contracts.made import RUN, env_of, files_of, hosts, made, node_env, ranks, site
from trainshed.errors import UsageError
from trainshed.ranktables import Form, detect, parse, read

pytestmark = [pytest.mark.contracts]

SITE = Path(trainshed.__file__).parent / "payload"

CHANNELS = {
    "inputs": [{"name": "data_url", "source": "obs://ms-dataset/cifar-10/"}],
    "outputs": [{"name": "train_url", "target": "obs://resnet50-train/output/"}],
}
BOTH = pytest.mark.parametrize("contract", ["modelarts-v1", "modelarts-v2"])


def test_v1_tells_each_container_its_place_and_its_peers() -> None:
    planned = made("modelarts-v1", log_url="obs://resnet50-train/log/", **CHANNELS)
    assert [node_env(planned, i)["DLS_TASK_INDEX"] for i in (0, 1)] == ["0", "1"]
    for index, env in enumerate((node_env(planned, 0), node_env(planned, 1))):
        own = f"127.64.0.{index + 1}"
        assert env["BATCH_TASK_CURRENT_HOST_IP"] == env["BATCH_CURRENT_HOST"] == own
        assert env["BATCH_TASK_CURRENT_INSTANCE"] == f"{env['BATCH_JOB_ID']}-job-job-{index}"
        assert env["DLS_TASK_NUMBER"] == "2"
        assert env["DLS_JOB_ID"] == env["DLS_DLKS_JOB_ID"] == RUN
        assert env["DLS_APP_URL"] == "file:///home/ann/resnet"
        assert env["DLS_DATA_URL"] == "s3://ms-dataset/cifar-10/"
        assert env["DLS_TRAIN_URL"] == "s3://resnet50-train/output/"
        assert env["DLS_USE_UPLOADER"] == "1"
        assert env["DLS_UPLOAD_LOG_OBS_DIR"] == "obs://resnet50-train/log/"
        assert (env["DLS_USE_DOWNLOADER"], env["DLS_USE_DNS_TCP"]) == ("0", "0")
        assert env["HOME"] == "/home/work"
        assert env[f"BATCH_CUSTOM{index}_HOSTS"] == f"{own}:{env['BATCH_CURRENT_PORT']}"


@pytest.mark.field
def test_v1_gives_every_node_a_port_of_its_own() -> None:
    env, other = (node_env(made("modelarts-v1"), i) for i in (0, 1))
    ports = [env[f"BATCH_CUSTOM{i}_HOSTS"].rpartition(":")[2] for i in (0, 1)]
    assert ports == [env["BATCH_CURRENT_PORT"], other["BATCH_CURRENT_PORT"]]
    assert len(set(ports)) == 2


@pytest.mark.field
@BOTH
@pytest.mark.parametrize("mode", ["distributed", "single_server"])
def test_a_node_finds_its_index_under_every_name_that_public_scripts_read(contract: str, mode: str) -> None:
    names = {
        "modelarts-v1": ("DLS_TASK_INDEX", "BATCH_TASK_INDEX", "VC_TASK_INDEX"),
        "modelarts-v2": ("VC_TASK_INDEX", "VK_TASK_INDEX", "MA_TASK_INDEX"),
    }
    planned = made(contract, mode=mode)
    for index in (0, 1):
        env = node_env(planned, index)
        assert [env[name] for name in names[contract]] == [str(index)] * 3


@pytest.mark.field
def test_v1_names_a_single_node_after_its_job_as_well() -> None:
    (one,) = [node_env(made("modelarts-v1", "1x2:ascend", name="lenet"), 0)]
    assert (
        one["BATCH_lenet.0_HOSTS"] == one["BATCH_CUSTOM0_HOSTS"] == f"127.64.0.1:{one['BATCH_CURRENT_PORT']}"
    )
    assert not [name for name in node_env(made("modelarts-v1"), 0) if name.endswith(".0_HOSTS")]
    alone = made("modelarts-v1", mode="single_server")
    for node in alone.nodes:
        assert node_env(alone, node.index)["BATCH_job.0_HOSTS"].startswith(f"{node.address}:")


def test_v1_downloads_code_that_lies_in_the_store() -> None:
    env = node_env(made("modelarts-v1", code="obs://bucket/code/resnet/"), 0)
    assert (env["DLS_APP_URL"], env["DLS_USE_DOWNLOADER"]) == ("obs://bucket/code/resnet/", "1")


def test_v1_hosts_are_bare_by_a_switch() -> None:
    env = node_env(made("modelarts-v1", options={"batch_hosts": "bare"}), 1)
    assert (env["BATCH_CUSTOM0_HOSTS"], env["BATCH_CUSTOM1_HOSTS"]) == ("127.64.0.1", "127.64.0.2")
    first = node_env(made("modelarts-v1", options={"batch_hosts": "bare"}), 0)
    assert env["BATCH_CURRENT_PORT"] == first["BATCH_CURRENT_PORT"], "counted from by every node's script"


def test_a_switch_set_wrongly_says_what_it_may_be() -> None:
    with pytest.raises(UsageError, match=r"options\.batch_hosts is 'nude'") as caught:
        made("modelarts-v1", options={"batch_hosts": "nude"})
    assert "port, bare" in caught.value.hint
    with pytest.raises(UsageError, match=r"options\.batch_host:") as caught:
        made("modelarts-v1", options={"batch_host": "bare"})
    assert "batch_hosts" in caught.value.hint


def test_v1_passes_urls_and_brings_nothing_to_the_node() -> None:
    planned = made("modelarts-v1", parameters={"epoch_size": 90}, **CHANNELS)
    assert ranks(planned)[0].argv == (
        "/env/bin/python",
        "/home/work/user-job-dir/resnet/train.py",
        "--data_url=s3://ms-dataset/cifar-10/",
        "--train_url=s3://resnet50-train/output/",
        "--epoch_size=90",
    )
    assert not planned.nodes[0].inputs and not planned.nodes[0].outputs


def test_v1_without_a_target_gives_a_folder_that_is_saved() -> None:
    planned = made("modelarts-v1", outputs=[{"name": "train_url"}])
    assert "--train_url=/home/work/outputs/train_url" in ranks(planned)[0].argv
    assert [item.source for item in planned.nodes[0].outputs] == ["/home/work/outputs/train_url"]


def test_v1_gives_parameters_to_a_custom_image_as_variables() -> None:
    planned = made(
        "modelarts-v1", command="bash run.sh", parameters={"epochs": 3, "on": None, "l": [1, 2]}, **CHANNELS
    )
    env = node_env(planned, 0)
    assert (env["epochs"], env["on"], env["l"]) == ("3", "", "1,2")
    (process,) = planned.nodes[0].processes
    assert process.argv == ("/bin/bash", "-c", "bash run.sh")


def test_v1_finds_helpers_beside_the_wrapper() -> None:
    planned = made(
        "modelarts-v1", command="bash /home/work/run_train.sh x", options={"wrapper": "run_train.sh"}
    )
    files = files_of(planned, planned.nodes[1])
    assert "source '/site/dls/utils.sh'" in files["/home/work/utils.sh"].content
    wrapper = files["/home/work/run_train.sh"]
    assert "source '/home/work/user-job-dir/resnet/run_train.sh'" in wrapper.content and wrapper.mode == 0o755


def test_v2_tells_each_container_its_place_and_its_peers() -> None:
    planned = made("modelarts-v2", "2x4:ascend", **CHANNELS)
    job = str(uuid.uuid5(uuid.NAMESPACE_URL, f"trainshed:{RUN}"))
    names = [f"ma-job-{job}-worker-{i}.ma-job-{job}" for i in (0, 1)]
    for index in (0, 1):
        env = node_env(planned, index)
        assert env["MA_JOB_DIR"] == "/home/ma-user/modelarts/user-job-dir"
        assert env["MA_MOUNT_PATH"] == "/home/ma-user/modelarts"
        assert env["MA_LOG_DIR"] == "/home/ma-user/modelarts/log"
        assert env["MA_HOME"] == env["HOME"] == "/home/ma-user"
        assert (env["MA_NUM_HOSTS"], env["MA_NUM_GPUS"], env["MA_TASK_NAME"]) == ("2", "4", "worker")
        assert env["MA_CURRENT_IP"] == env["MA_CURRENT_HOST_IP"] == f"127.64.0.{index + 1}"
        assert env["MA_VJ_NAME"] == f"ma-job-{job}"
        assert env["MA_CURRENT_INSTANCE_NAME"] == f"modelarts-job-{job}-worker-{index}"
        assert (env["VC_TASK_INDEX"], env["VC_WORKER_NUM"]) == (str(index), "2")
        assert env["VC_WORKER_HOSTS"] == ",".join(names)
        assert "MA_RUN_METHOD" not in env
    hosts_file = planned.hosts_file.splitlines()
    for index, name in enumerate(names):
        (line,) = [line for line in hosts_file if name in line.split()]
        assert line.split()[0] == f"127.64.0.{index + 1}"
    assert "/home/ma-user/modelarts/log" in planned.nodes[0].folders


def test_v2_brings_channels_to_folders_and_tells_of_them() -> None:
    planned = made("modelarts-v2", parameters={"epochs": 1}, **CHANNELS)
    assert ranks(planned)[0].argv[1:] == (
        "/home/ma-user/modelarts/user-job-dir/resnet/train.py",
        "--data_url=/home/ma-user/modelarts/inputs/data_url_0",
        "--train_url=/home/ma-user/modelarts/outputs/train_url_0",
        "--epochs=1",
    )
    (fetched,), (saved,) = planned.nodes[1].inputs, planned.nodes[1].outputs
    assert (fetched.source, fetched.target) == (
        "obs://ms-dataset/cifar-10/",
        "/home/ma-user/modelarts/inputs/data_url_0",
    )
    assert (saved.target, saved.every) == ("obs://resnet50-train/output/", 30.0)
    env = node_env(planned, 1)
    assert json.loads(env["MA_INPUTS"]) == {
        "inputs": [
            {
                "name": "data_url",
                "local_dir": "/home/ma-user/modelarts/inputs/data_url_0",
                "remote": {"obs": {"obs_url": "obs://ms-dataset/cifar-10/"}},
            }
        ]
    }
    assert json.loads(env["MA_OUTPUTS"])["outputs"][0]["local_dir"].endswith("/outputs/train_url_0")


def test_v2_gives_a_channel_as_a_variable_when_asked() -> None:
    planned = made("modelarts-v2", inputs=[{"name": "data-set", "source": "/d", "access": "env"}])
    assert node_env(planned, 0)["data_set"] == "/home/ma-user/modelarts/inputs/data-set_0"
    assert not any("data-set" in word for word in ranks(planned)[0].argv)


def test_v2_run_method_takes_the_place_of_rank_tables() -> None:
    planned = made("modelarts-v2", launcher="pytorch", env={"MA_RUN_METHOD": "torchrun"})
    env = env_of(planned, ranks(planned)[0])
    assert env["MA_RUN_METHOD"] == "torchrun"
    assert "RANK_TABLE_FILE" not in env
    with pytest.raises(UsageError, match="MA_RUN_METHOD"):
        made("modelarts-v2", env={"MA_RUN_METHOD": "mpirun"})


def test_v2_refuses_names_of_the_platform() -> None:
    with pytest.raises(UsageError, match="MA_JOB_DIR"):
        made("modelarts-v2", env={"MA_JOB_DIR": "/x"})


def test_a_list_of_hosts_stays_within_what_the_kernel_takes() -> None:
    env = made("modelarts-v2", "3000x1:ascend").env
    assert len(env["VC_WORKER_HOSTS"]) < 128 * 1024
    assert env["VC_WORKER_HOSTS"].startswith("127.64.0.1,127.64.0.2,")


@BOTH
def test_each_card_has_its_rank_and_folder(contract: str) -> None:
    planned = made(contract, "2x2:ascend")
    for rank, process in enumerate(ranks(planned)):
        env = env_of(planned, process)
        assert env["DEVICE_ID"] == env["ASCEND_DEVICE_ID"] == str(rank % 2)
        assert (env["RANK_ID"], env["RANK_SIZE"]) == (str(rank), "4")
        assert env["JOB_ID"]
        assert process.cwd.endswith(f"/workspace/device{rank % 2}")


@BOTH
def test_a_rank_reads_a_table_file_and_a_command_a_folder(contract: str) -> None:
    planned = made(contract)
    files = files_of(planned, planned.nodes[1])
    table = files[env_of(planned, ranks(planned)[3])["RANK_TABLE_FILE"]].content
    assert detect(parse(table)) is Form.V1
    assert [(s.server_id, d.device_id, d.device_ip, d.rank) for s, d in read(table).seats()] == [
        ("127.64.0.1", 0, "192.1.0.1", 0),
        ("127.64.0.1", 1, "192.1.0.2", 1),
        ("127.64.0.2", 0, "192.1.1.1", 2),
        ("127.64.0.2", 1, "192.1.1.2", 3),
    ]
    started = made(contract, command="bash train.sh")
    env = node_env(started, 1)
    files = files_of(started, started.nodes[1])
    by_pod = files[f"{env['RANK_TABLE_FILE']}/jobstart_hccl.json"].content
    assert detect(parse(by_pod)) is Form.PODS
    own = env.get("BATCH_TASK_CURRENT_INSTANCE") or env["MA_CURRENT_INSTANCE_NAME"]
    assert [s.pod_name for s in read(by_pod).servers][1] == own
    folder = made(contract, options={"rank_table": "folder"})
    assert env_of(folder, ranks(folder)[0])["RANK_TABLE_FILE"] == env["RANK_TABLE_FILE"]


@BOTH
def test_without_ascend_there_is_no_rank_table(contract: str) -> None:
    planned = made(contract, "2x2")
    assert "RANK_TABLE_FILE" not in env_of(planned, ranks(planned)[0])
    assert not any("hccl" in item.path for item in planned.files)


@BOTH
def test_in_single_server_mode_every_node_has_its_own_ranks_and_table(contract: str) -> None:
    planned = made(contract, mode="single_server")
    for node in planned.nodes:
        own = [process for process in node.processes if process.rank is not None]
        assert [process.env["RANK_ID"] for process in own] == ["0", "1"]
        assert all(process.env["RANK_SIZE"] == "2" for process in own)
        table = files_of(planned, node)[own[0].env["RANK_TABLE_FILE"]].content
        assert [server.server_id for server in read(table).servers] == [node.address]
        env = node_env(planned, node.index)
        if contract == "modelarts-v1":
            assert (env["DLS_TASK_INDEX"], env["DLS_TASK_NUMBER"]) == (str(node.index), "1")
            assert env["BATCH_CUSTOM0_HOSTS"].startswith(node.address)
            assert "BATCH_CUSTOM1_HOSTS" not in env
        else:
            assert (env["VC_TASK_INDEX"], env["VC_WORKER_NUM"], env["MA_NUM_HOSTS"]) == (
                str(node.index),
                "1",
                "1",
            )
            assert "," not in env["VC_WORKER_HOSTS"]


@BOTH
def test_hooks_lie_beside_the_boot_file_and_run_in_the_job_folder(contract: str) -> None:
    node = made(contract, entry="train/boot.py").nodes[0]
    code = node.code.target if node.code else ""
    assert node.hooks == (f"{code}/train/ma-pre-start.sh", f"{code}/train/ma-pre-start.py")
    assert node.hook_dir == code.rpartition("/")[0]
    assert node.requirements == (f"{code}/pip-requirements.txt",)


def test_logs_have_the_names_that_clients_look_for() -> None:
    v1 = made("modelarts-v1", log_url="obs://b/log", name="aisbench-debug", options={"job_id": "job3be1f0e5"})
    assert [(n.log.target, n.log.name) for n in v1.nodes if n.log] == [
        ("obs://b/log/", "job3be1f0e5-job-aisbench-debug-0.log"),
        ("obs://b/log/", "job3be1f0e5-job-aisbench-debug-1.log"),
    ]
    v2 = made("modelarts-v2", log_url="obs://b/log/", options={"job_id": "0a-1b"})
    assert [n.log.name for n in v2.nodes if n.log] == [
        "modelarts-job-0a-1b-worker-0.log",
        "modelarts-job-0a-1b-worker-1.log",
    ]
    assert made("modelarts-v2").nodes[0].log is None


@BOTH
def test_on_nodes_without_a_root_of_their_own_everything_is_moved_below_their_folder(contract: str) -> None:
    planned = made(contract, site=site(isolated=False), **CHANNELS)
    for node in planned.nodes:
        below = f"/scratch/node-{node.index}/"
        process = next(p for p in node.processes if p.rank is not None)
        env = env_of(planned, process)
        assert env["RANK_TABLE_FILE"].startswith(below)
        assert env["RANK_TABLE_FILE"] in files_of(planned, node)
        assert process.cwd.startswith(below) and env["HOME"].startswith(below)
        assert "ma-job" not in env.get("VC_WORKER_HOSTS", "")


@BOTH
def test_moxing_is_given(contract: str) -> None:
    places = node_env(made(contract, site=site(library=str(SITE))), 0)["PYTHONPATH"].split(":")
    assert [place for place in places if (Path(place) / "moxing" / "__init__.py").is_file()]


def test_moxing_is_given_by_no_other_contract() -> None:
    for contract in ("plain", "apulis"):
        places = node_env(made(contract, site=site(library=str(SITE))), 0)["PYTHONPATH"].split(":")
        assert not [place for place in places if (Path(place) / "moxing").exists()]
        assert [place for place in places if (Path(place) / "trainshed_meter.py").is_file()]


@BOTH
def test_emulated_devices_have_addresses_that_exist_nowhere_and_say_so(contract: str) -> None:
    bare = [
        type(host)(host.name, host.address, tuple(type(d)(d.index) for d in host.devices), host.first_port)
        for host in hosts(2, 2)
    ]
    planned = made(contract, hosts=bare, site=site(emulate=True))
    table = read(planned.files[1].content)
    assert [d.device_ip for _, d in table.seats()] == ["240.0.0.1", "240.0.0.2", "240.0.0.3", "240.0.0.4"]
    assert planned.emulated and planned.env["TRAINSHED_EMULATED"] == "1"
    assert any("made up" in note for note in planned.notes)
    assert any(note.startswith("EMULATED") for note in planned.notes)
    assert node_env(planned, 0)["PYTHONPATH"].startswith("/site/start:/site/emulation:")


@BOTH
def test_the_mindspore_cluster_is_a_switch_and_emulation_always_dynamic(contract: str) -> None:
    dynamic = made(contract)
    assert env_of(dynamic, ranks(dynamic)[1])["MS_NODE_ID"] == "1"
    tables = made(contract, options={"cluster": "ranktable"})
    env = env_of(tables, ranks(tables)[1])
    assert not any(name.startswith("MS_") for name in env) and env["RANK_TABLE_FILE"]
    assert [p.name for p in tables.nodes[0].processes] == ["rank-0", "rank-1"]
    emulated = made(contract, options={"cluster": "ranktable"}, site=site(emulate=True))
    assert env_of(emulated, ranks(emulated)[1])["MS_NODE_ID"] == "1"


@pytest.mark.field
@BOTH
@pytest.mark.parametrize("shape", ["1x1:ascend", "2x2:ascend"])
def test_the_scheduler_runs_nothing_of_the_users_in_a_folder_of_its_own(contract: str, shape: str) -> None:
    planned = made(contract, shape)
    scheduler, *own = planned.nodes[0].processes
    assert scheduler.name == "scheduler" and scheduler.helper and scheduler.rank is None
    assert env_of(planned, scheduler)["MS_ROLE"] == "MS_SCHED"
    assert scheduler.argv == ("/env/bin/python", "-m", "trainshed_scheduler")
    assert scheduler.cwd not in {rank.cwd for rank in own} | {planned.nodes[0].work_dir}
    assert not {"RANK_ID", "DEVICE_ID"} & set(env_of(planned, scheduler)), "it is not a rank"


@BOTH
@pytest.mark.parametrize("wrong", ["a/b", "a\nb", "-x", "x" * 65])
def test_a_job_id_that_can_be_no_name_is_refused_by_its_field(contract: str, wrong: str) -> None:
    with pytest.raises(UsageError, match=r"options\.job_id is "):
        made(contract, options={"job_id": wrong})
