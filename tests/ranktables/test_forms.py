"""Reading, writing and converting the three forms."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from trainshed.ranktables import (
    INITIALIZING,
    Form,
    RankTable,
    RankTableError,
    RankTableNotReadyError,
    TableDevice,
    TableServer,
    detect,
    parse,
    read,
    write,
)

pytestmark = [pytest.mark.contracts]

DATA = Path(__file__).parents[1] / "data" / "ranktables"
SEED = (DATA / "seed004_hccl.json").read_text()


def table(nodes: int, width: int, *, pods: bool = False) -> RankTable:
    return RankTable.build(
        [
            TableServer(
                f"10.0.{node // 250}.{node % 250 + 1}",
                [
                    TableDevice(i, f"192.{i}.{node // 250}.{node % 250 + 1}", node * width + i)
                    for i in range(width)
                ],
                f"jobx-job-trainjob-{node}" if pods else None,
            )
            for node in range(nodes)
        ]
    )


def facts(t: RankTable) -> list[tuple[str, int, str | None, int]]:
    return sorted(
        ((s.server_id, d.device_id, d.device_ip, d.rank) for s, d in t.seats()), key=lambda fact: fact[3]
    )


def test_the_table_of_the_apulis_guide_is_written_back_to_the_byte() -> None:
    assert write(read(SEED), Form.DEVICES) == SEED


def test_the_table_of_the_apulis_guide_can_be_built_from_plain_values() -> None:
    def address(server: int, i: int) -> str:
        return f"192.168.{10 * (i % 4 + 1)}.{2 * server + i // 4 + 1}"

    built = RankTable.build(
        [
            TableServer(name, [TableDevice(i, address(k, i), 8 * k + i) for i in range(8)])
            for k, name in enumerate(["192.168.3.6", "192.168.3.2"])
        ]
    )
    assert write(built, Form.DEVICES) == SEED


def test_v1_is_written_as_documented() -> None:
    one = RankTable.build([TableServer("10.0.0.1", [TableDevice(0, "192.1.0.6", 0)])])
    assert json.loads(write(one, Form.V1)) == {
        "version": "1.0",
        "server_count": "1",
        "server_list": [
            {
                "server_id": "10.0.0.1",
                "device": [{"device_id": "0", "device_ip": "192.1.0.6", "rank_id": "0"}],
                "host_nic_ip": "reserve",
            }
        ],
        "status": "completed",
    }


def test_pods_are_written_as_documented() -> None:
    one = RankTable.build(
        [TableServer("192.168.0.25", [TableDevice(0, "192.1.10.254", 0)], "jobx-job-trainjob-0")],
        status=INITIALIZING,
    )
    assert json.loads(write(one, Form.PODS)) == {
        "status": "initializing",
        "group_count": "1",
        "group_list": [
            {
                "group_name": "job-trainjob",
                "device_count": "1",
                "instance_count": "1",
                "instance_list": [
                    {
                        "pod_name": "jobx-job-trainjob-0",
                        "server_id": "192.168.0.25",
                        "devices": [{"device_id": "0", "device_ip": "192.1.10.254"}],
                    }
                ],
            }
        ],
    }


@pytest.mark.parametrize(("first", "second"), list(itertools.product(Form, Form)))
def test_every_conversion_keeps_every_device_address_and_rank(first: Form, second: Form) -> None:
    original = table(3, 4, pods=True)
    text = write(read(write(original, first)), second)
    assert detect(parse(text)) is second
    assert facts(read(text)) == facts(original)


def test_pods_are_ranked_by_the_index_in_their_name_not_by_their_place() -> None:
    names = ["job-10", "job-2", "job-0"]
    group = {
        "group_name": "g",
        "device_count": "6",
        "instance_count": "3",
        "instance_list": [
            {
                "pod_name": name,
                "server_id": f"10.0.0.{i}",
                "devices": [{"device_id": "0"}, {"device_id": "1"}],
            }
            for i, name in enumerate(names, 1)
        ],
    }
    got = read(json.dumps({"status": "completed", "group_count": "1", "group_list": [group]}))
    assert [(s.pod_name, [d.rank for d in s.devices]) for s in got.servers] == [
        ("job-0", [0, 1]),
        ("job-2", [2, 3]),
        ("job-10", [4, 5]),
    ]


def test_two_pods_of_one_server_stay_two_pods_and_become_one_server_in_v1() -> None:
    two = RankTable.build(
        [
            TableServer("10.0.0.1", [TableDevice(0, "1.1.1.1", 0), TableDevice(1, "1.1.1.2", 1)], "j-0"),
            TableServer("10.0.0.2", [TableDevice(0, "1.1.2.1", 2)], "j-1"),
            TableServer("10.0.0.1", [TableDevice(2, "1.1.1.3", 3)], "j-2"),
        ]
    )
    again = read(write(two, Form.PODS))
    assert [s.pod_name for s in again.servers] == ["j-0", "j-1", "j-2"]
    v1 = json.loads(write(again, Form.V1))
    assert v1["server_count"] == "2"
    assert [[d["rank_id"] for d in s["device"]] for s in v1["server_list"]] == [["0", "1", "3"], ["2"]]


def test_ranks_follow_the_groups_in_order() -> None:
    group = {"group_name": "", "device_count": "1", "instance_count": "1"}
    groups = [
        {**group, "instance_list": [{"pod_name": "b-0", "server_id": "h1", "devices": [{"device_id": "0"}]}]},
        {**group, "instance_list": [{"pod_name": "a-0", "server_id": "h2", "devices": [{"device_id": "0"}]}]},
    ]
    got = read(json.dumps({"status": "completed", "group_count": "2", "group_list": groups}))
    assert [(s.server_id, s.devices[0].rank) for s in got.servers] == [("h1", 0), ("h2", 1)]


def test_a_table_whose_ranks_the_pods_form_would_change_is_refused() -> None:
    crossed = RankTable.build([TableServer("a", [TableDevice(0, None, 1), TableDevice(1, None, 0)])])
    with pytest.raises(RankTableError, match="would turn rank 1 into 0"):
        write(crossed, Form.PODS)


def test_a_table_still_initializing_says_so() -> None:
    for text in ('{"status": "initializing"}', '{"status": "initializing", "group_list": []}'):
        with pytest.raises(RankTableNotReadyError, match="initializing"):
            read(text)


def test_a_device_without_address_has_no_address_key() -> None:
    bare = RankTable.build([TableServer("a", [TableDevice(0, None, 0)])])
    for form in Form:
        text = write(bare, form)
        assert "device_ip" not in text
        assert facts(read(text)) == [("a", 0, None, 0)]


@pytest.mark.parametrize(
    ("servers", "message"),
    [
        ([], "at least one device"),
        (
            [TableServer("a", [TableDevice(0, None, 0)]), TableServer("b", [TableDevice(0, None, 0)])],
            "rank 0 is given to a/device 0",
        ),
        (
            [TableServer("a", [TableDevice(0, None, 0), TableDevice(0, None, 1)])],
            "a/device 0 is listed twice",
        ),
        ([TableServer("a", [TableDevice(0, None, 0), TableDevice(1, None, 2)])], "rank 1 is missing"),
        ([TableServer("a", [TableDevice(0, None, -1), TableDevice(1, None, 0)])], "rank 1 is missing"),
    ],
)
def test_an_impossible_table_is_not_built(servers: list[TableServer], message: str) -> None:
    with pytest.raises(RankTableError, match=message):
        RankTable.build(servers)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "a list, not a JSON object"),
        ("{}", "not a rank table"),
        ('{"server_list": {}}', r"\$.server_list is an object, not a list"),
        ('{"server_list": [3]}', r"\$.server_list\[0\] is 3, not an object"),
        (
            '{"server_list": [{"server_id": "a", "device": [{"rank_id": "0"}]}]}',
            r"device\[0\].device_id is missing",
        ),
        (
            '{"server_list": [{"server_id": "a", "device": [{"device_id": "-1", "rank_id": "0"}]}]}',
            "'-1', not a whole number",
        ),
    ],
)
def test_what_cannot_be_read_is_named_with_its_path(text: str, message: str) -> None:
    with pytest.raises(RankTableError, match=message):
        read(text)
