"""The Apulis contract: variables, host files and rank tables, right for each worker and its peers."""

from __future__ import annotations

from pathlib import Path

import pytest

from contracts.made import RUN, env_of, files_of, made, node_env, ranks, site
from trainshed.errors import UsageError
from trainshed.plan.topology import Device, Host
from trainshed.ranktables import Form, detect, parse, read

pytestmark = [pytest.mark.contracts]

SEED_004 = Path(__file__).parents[1] / "data" / "ranktables" / "seed004_hccl.json"


def test_each_worker_is_told_who_and_where_it_is() -> None:
    planned = made("apulis", "2x2:ascend", command="bash run.sh")
    for index in (0, 1):
        env = node_env(planned, index)
        assert (env["DLWS_JOB_ID"], env["DLWS_USER_NAME"], env["DLWS_VC_NAME"]) == (RUN, "ann", "vision")
        assert (env["DLWS_UID"], env["DLWS_GID"], env["DLWS_USER_EMAIL"]) == ("1000", "100", "ann@localhost")
        assert (env["DLWS_ROLE_NAME"], env["DLWS_ROLE_IDX"]) == ("worker", str(index))
        assert (env["DLWS_NUM_PS"], env["DLWS_NUM_WORKER"], env["DLWS_WORKER_NUM"]) == ("0", "2", "2")
        assert env["DLWS_NUM_GPU_PER_WORKER"] == "2"
        assert (env["DLWS_GPU_TYPE"], env["DLWS_IS_NPU_JOB"]) == ("huawei_npu_arm64", "true")
        assert env["DLWS_HOST_NETWORK"] == "enable"
        assert env["DLWS_LAUNCH_CMD"] == "bash run.sh"
        own = f"127.64.0.{index + 1}"
        assert env["DLWS_SD_SELF_IP"] == env["DLWS_SD_SELF_IB_IP"] == env["DLWS_SD_SELF_HOST_IP"] == own
        assert env["VISIBLE_IDS"] == "0,1"
        assert env["NPU_IPS"] == f"0:192.1.{index}.1,1:192.1.{index}.2"
        assert env["HOME"] == "/home/ann"


def test_peers_are_each_described_by_their_own_values() -> None:
    planned = made("apulis", "2x2:ascend")
    for index in (0, 1):
        env = node_env(planned, index)
        for peer in (0, 1):
            own = node_env(planned, peer)
            for name in ("IP", "SSH_PORT", "IB_IP", "HOST_IP"):
                assert env[f"DLWS_SD_worker{peer}_{name}"] == own[f"DLWS_SD_SELF_{name}"]
            assert env[f"DLWS_SD_worker{peer}_NPU_IP_LIST"] == own["NPU_IPS"]
    assert node_env(planned, 0)["DLWS_SD_SELF_SSH_PORT"] != node_env(planned, 1)["DLWS_SD_SELF_SSH_PORT"]


def test_host_files_name_workers_that_resolve() -> None:
    planned = made("apulis", "2x8:nvidia", launcher="horovod")
    files = files_of(planned, planned.nodes[1])
    assert files["/job/hostfile"].content == "worker-0 slots=8\nworker-1 slots=8\n"
    assert planned.nodes[1].links == (("/home/ann/ib_config", "/job/ib_config"),)
    assert files["/job/ib_config"].content == "ib-worker-0 slots=8\nib-worker-1 slots=8\n"
    for index in (0, 1):
        (line,) = [
            line for line in planned.hosts_file.splitlines() if line.startswith(f"127.64.0.{index + 1} ")
        ]
        assert line.split()[1:] == [f"worker-{index}", f"ib-worker-{index}"]
    assert node_env(planned, 0)["DLWS_IS_NPU_JOB"] == "false"
    assert not any("hccl" in path for path in files)


def test_folders_of_the_platform_exist_and_are_the_nodes_own() -> None:
    node = made("apulis", inputs=[{"name": "cifar10", "source": "/d"}]).nodes[0]
    assert {seen for seen, _ in node.private} >= {"/home/ann", "/work", "/data", "/job", "/tmp", "/cache"}
    assert node.folders == (f"/home/ann/tensorboard/{RUN}/logs",)
    assert [item.target for item in node.inputs] == ["/data/cifar10"]


@pytest.mark.field
def test_the_home_is_the_users_and_what_is_the_jobs_in_it_stays_apart() -> None:
    node = made("apulis").nodes[0]
    assert node.kept_home == "/shed/homes/ann"
    folders = dict(node.private)
    assert (
        folders["/home/ann/.ssh"] == "own/home/ann/.ssh" and folders["/home/ann/.npu"] == "own/home/ann/.npu"
    )
    private = made("apulis", options={"home": "private"})
    assert private.nodes[0].kept_home == "" and private.notes == ()
    plain = made("apulis", site=site(isolated=False))
    assert plain.nodes[0].kept_home == f"/shed/homes/ann/left/{RUN}-node-0"
    assert "separate on each node" in plain.notes[0]
    alone = made("apulis", site=site(homes=""))
    assert alone.nodes[0].kept_home == "" and "share no folder" in alone.notes[0]
    assert made("apulis", site=site(user="..")).nodes[0].kept_home == "/shed/homes/%2E%2E"
    assert made("apulis", site=site(user="a/../b")).nodes[0].kept_home == "/shed/homes/a%2F..%2Fb"
    with pytest.raises(UsageError, match=r"options\.home is 'mine'"):
        made("apulis", options={"home": "mine"})


def test_rank_tables_lie_below_the_jobs_own_name() -> None:
    planned = made("apulis", "2x2:ascend")
    files = files_of(planned, planned.nodes[0])
    by_device = files[f"/home/ann/.npu/{RUN}/hccl_ms.json"].content
    by_pod = files[f"/home/ann/.npu/{RUN}/hccl_tf.json"].content
    assert detect(parse(by_device)) is Form.DEVICES and detect(parse(by_pod)) is Form.PODS
    assert [(s.server_id, d.device_id, d.rank) for s, d in read(by_device).seats()] == [
        ("127.64.0.1", 0, 0),
        ("127.64.0.1", 1, 1),
        ("127.64.0.2", 0, 2),
        ("127.64.0.2", 1, 3),
    ]
    assert node_env(planned, 1)["MINDSPORE_HCCL_CONFIG_PATH"] in files


def test_the_hccl_json_of_the_platforms_guide_comes_out_to_the_byte() -> None:
    def addresses(first: int) -> list[str]:
        return [f"192.168.{net}.{first + half}" for half in (0, 1) for net in (10, 20, 30, 40)]

    servers = [("192.168.3.6", addresses(1)), ("192.168.3.2", addresses(3))]
    hosts = [
        Host(f"worker-{i}", server, tuple(Device(d, ip) for d, ip in enumerate(ips)), 11001 + 100 * i)
        for i, (server, ips) in enumerate(servers)
    ]
    planned = made("apulis", "2x8:ascend", hosts=hosts)
    written = files_of(planned, planned.nodes[0])[f"/home/ann/.npu/{RUN}/hccl_ms.json"].content
    assert written == SEED_004.read_text()


def test_in_single_server_mode_every_worker_has_its_own_ranks_and_table() -> None:
    planned = made("apulis", mode="single_server")
    for node in planned.nodes:
        env = node_env(planned, node.index)
        assert (env["DLWS_ROLE_IDX"], env["DLWS_NUM_WORKER"]) == (str(node.index), "1")
        assert env["DLWS_SD_worker0_IP"] == node.address and "DLWS_SD_worker1_IP" not in env
        table = read(files_of(planned, node)[env["MINDSPORE_HCCL_CONFIG_PATH"]].content)
        assert table.server_ids == (node.address,)
        own = [process for process in node.processes if process.rank is not None]
        assert [env_of(planned, process)["RANK_ID"] for process in own] == ["0", "1"]
        assert files_of(planned, node)["/job/ib_config"].content == f"ib-worker-{node.index} slots=2\n"


def test_every_rank_is_unique_across_the_servers() -> None:
    planned = made("apulis", "2x8:ascend")
    assert [process.env["RANK_ID"] for process in ranks(planned)] == [str(rank) for rank in range(16)]
    assert {process.env["RANK_SIZE"] for process in ranks(planned)} == {"16"}


def test_who_is_not_known_is_not_made_up() -> None:
    env = node_env(made("apulis", site=site(uid=None, gid=None)), 0)
    assert "DLWS_UID" not in env and "DLWS_GID" not in env
