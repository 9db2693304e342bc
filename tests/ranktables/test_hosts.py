"""Host files and node info files."""

from __future__ import annotations

import json

import pytest

from trainshed.ranktables import RankTable, RankTableError, TableDevice, TableServer
from trainshed.ranktables.hosts import (
    HostSlots,
    SshServer,
    hosts_of,
    read_hostfile,
    read_hosts_argument,
    read_node_info,
    write_hostfile,
    write_node_info_1,
    write_node_info_2,
)

pytestmark = [pytest.mark.contracts]

TWO = (HostSlots("worker-0", 8), HostSlots("ib-worker-1", 4))


def test_a_hostfile_is_a_line_a_node() -> None:
    assert write_hostfile(TWO) == "worker-0 slots=8\nib-worker-1 slots=4\n"
    assert read_hostfile(write_hostfile(TWO)) == TWO


def test_a_hostfile_may_have_comments_bare_hosts_limits_and_repeated_hosts() -> None:
    text = "# nodes\n\nworker-0 slots=6 max_slots=8\nib-worker-1 slots = 4 # fast\nworker-0\nworker-0\n"
    assert read_hostfile(text) == TWO


@pytest.mark.parametrize("line", ["a slots=", "a slots=x", "a 8", "a slots=8 slots=9", "a slots=-1"])
def test_a_wrong_line_is_named(line: str) -> None:
    with pytest.raises(RankTableError, match="line 2 of the host file"):
        read_hostfile(f"ok slots=1\n{line}\n")


def test_the_hosts_argument_of_horovodrun() -> None:
    assert read_hosts_argument("worker-0:8, ib-worker-1:4") == TWO
    assert read_hosts_argument("alone") == (HostSlots("alone", 1),)
    for wrong in ("", "a:", "a:x", ":3", "a:1,,b:1"):
        with pytest.raises(RankTableError):
            read_hosts_argument(wrong)


def test_a_table_gives_its_host_file() -> None:
    table = RankTable.build(
        [
            TableServer("a", [TableDevice(0, None, 0), TableDevice(1, None, 1)]),
            TableServer("b", [TableDevice(0, None, 2)]),
        ]
    )
    assert hosts_of(table) == (HostSlots("a", 2), HostSlots("b", 1))


def test_node_info_1_is_read_and_written() -> None:
    text = '{"cluster": {"90.90.66.64": {"user": "root", "pd": "secret", "port": 23}}}'
    (node,) = read_node_info(text)
    assert node == SshServer("90.90.66.64", "root", 23, password="secret")
    assert "secret" not in repr(node)
    assert json.loads(write_node_info_1([node])) == json.loads(text)


def test_node_info_2_is_read_in_the_order_of_its_numbers_and_written() -> None:
    text = json.dumps(
        {
            "10": {"ip": "10.0.0.3", "user": "u", "port": "22", "work_path": "/w"},
            "2": {"ip": "10.0.0.2", "user": "u", "port": 22, "work_path": "/w"},
        }
    )
    nodes = read_node_info(text)
    assert [node.address for node in nodes] == ["10.0.0.2", "10.0.0.3"]
    assert json.loads(write_node_info_2(nodes)) == {
        "0": {"ip": "10.0.0.2", "user": "u", "port": 22, "work_path": "/w"},
        "1": {"ip": "10.0.0.3", "user": "u", "port": 22, "work_path": "/w"},
    }


@pytest.mark.parametrize(
    "text", ["", "[]", '{"x": {}}', '{"0": {"user": "u"}}', '{"cluster": {"a": {"port": 1}}}']
)
def test_wrong_node_info_is_refused(text: str) -> None:
    with pytest.raises(RankTableError):
        read_node_info(text)
