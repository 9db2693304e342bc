"""The checker: every fault it knows is planted once and found where it is."""

from __future__ import annotations

import copy
import json
import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainshed.ranktables import (
    Finding,
    Form,
    RankTable,
    Severity,
    TableDevice,
    TableServer,
    check,
    check_assignment,
    check_text,
    read,
    write,
)
from trainshed.ranktables.reach import check_reach

pytestmark = [pytest.mark.contracts]

SEED = (Path(__file__).parents[1] / "data" / "ranktables" / "seed004_hccl.json").read_text()


def sound(form: Form) -> Any:
    return json.loads(write(read(SEED), form))


def put(path: str, value: object) -> Callable[[Any], None]:
    """A fault: set (or, for Ellipsis, delete) what stands at a path like `server_list.0.server_id`."""

    def plant(document: Any) -> None:
        *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
        for step in steps:
            document = document[step]
        if value is ...:
            del document[last]
        else:
            document[last] = value

    return plant


I0 = "group_list.0.instance_list.0"
FAULTS: list[tuple[Form, Callable[[Any], None], str, str]] = [
    (Form.V1, put("server_count", "3"), "$.server_count", "says 3, but there are 2 servers"),
    (Form.V1, put("server_count", 2), "$.server_count", "is the number 2, not a string"),
    (Form.V1, put("server_count", "two"), "$.server_count", "'two', not a whole number"),
    (Form.V1, put("version", ...), "$.version", "is missing"),
    (Form.V1, put("version", "0.1"), "$.version", "is '0.1'"),
    (Form.V1, put("sever_list", []), "$.sever_list", "is not a key of this form"),
    (Form.V1, put("status", "initializing"), "$.status", 'is "initializing"'),
    (Form.V1, put("status", 1), "$.status", "is 1"),
    (Form.V1, put("server_list.1.server_id", "192.168.3.6"), "$.server_list[1].server_id", "is also"),
    (
        Form.V1,
        put("server_list.1.server_id", "192.168.3.600"),
        "$.server_list[1].device[0]",
        "is not an address",
    ),
    (Form.V1, put("server_list.1.server_id", 7), "$.server_list[1].server_id", "is 7, not a string"),
    (Form.V1, put("server_list.1.device", {}), "$.server_list[1].device", "an object, not a list"),
    (Form.V1, put("server_list.1", "x"), "$.server_list[1]", "'x', not an object"),
    (Form.V1, put("server_list.1.device", []), "$.server_list[1].device", "has no device"),
    (
        Form.V1,
        put("server_list.1.device.3.rank_id", "2"),
        "$.server_list[1].device[3].rank_id",
        "rank 2 is given to 192.168.3.6/device 2 and to 192.168.3.2/device 3",
    ),
    (Form.V1, put("server_list.1.device.3.rank_id", "99"), "$", "11 missing; ranks 99 are too high"),
    (
        Form.V1,
        put("server_list.1.device.3.rank_id", 11),
        "$.server_list[1].device[3].rank_id",
        "the number 11",
    ),
    (
        Form.V1,
        put("server_list.0.device.1.device_id", "0"),
        "$.server_list[0].device[1].device_id",
        "used twice",
    ),
    (
        Form.V1,
        put("server_list.0.device.1.device_ip", "192.168.40.4"),
        "$.server_list[1].device[7].device_ip",
        "192.168.40.4 belongs to 192.168.3.6/device 1 and to 192.168.3.2/device 7",
    ),
    (
        Form.V1,
        put("server_list.0.device.1.device_ip", "1.2.3"),
        "$.server_list[0].device[1].device_ip",
        "not an IP",
    ),
    (
        Form.V1,
        put("server_list.0.device.1.device_ip", ...),
        "$.server_list[0].device[1].device_ip",
        "1 of 16 devices have no device_ip",
    ),
    (Form.PODS, put("group_count", "2"), "$.group_count", "says 2, but there are 1 groups"),
    (
        Form.PODS,
        put("group_list.0.device_count", "8"),
        "$.group_list[0].device_count",
        "there are 16 devices",
    ),
    (
        Form.PODS,
        put("group_list.0.instance_count", "1"),
        "$.group_list[0].instance_count",
        "there are 2 pods",
    ),
    (
        Form.PODS,
        put(f"{I0}.pod_name", "job0-job-trainjob-1"),
        "$.group_list[0].instance_list[1].pod_name",
        "also",
    ),
    (Form.PODS, put("status", "initializing"), "$.status", "initializing"),
    (Form.PODS, put(f"{I0}.devices.0", 0), "$.group_list[0].instance_list[0].devices[0]", "0, not an object"),
    (Form.DEVICES, put("group_list.0.device_num", "8"), "$.group_list[0].device_num", "there are 16 devices"),
    (Form.DEVICES, put("group_list.0.server_num", "1"), "$.group_list[0].server_num", "there are 2 servers"),
    (Form.DEVICES, put("group_list.0.instance_count", "9"), "$.group_list[0].instance_count", "16 instances"),
    (Form.DEVICES, put("para_plane_nic_num", "4"), "$.para_plane_nic_num", "there are 8 names"),
    (
        Form.DEVICES,
        put(f"{I0}.rank_id", "1"),
        "$.group_list[0].instance_list[1].rank_id",
        "rank 1 is given to",
    ),
    (Form.DEVICES, put(f"{I0}.devices", []), "$.group_list[0].instance_list[0].devices", "0 devices for one"),
    (Form.DEVICES, put(f"{I0}.server_id", ...), "$.group_list[0].instance_list[0].server_id", "is missing"),
]


@pytest.mark.parametrize("form", list(Form))
def test_a_sound_table_has_no_findings(form: Form) -> None:
    assert check(sound(form)) == []


@pytest.mark.parametrize(("form", "plant", "where", "what"), FAULTS)
def test_a_planted_fault_is_found_where_it_is(
    form: Form, plant: Callable[[Any], None], where: str, what: str
) -> None:
    document = copy.deepcopy(sound(form))
    plant(document)
    found = check(document)
    hits = [f for f in found if f.where == where and what in f.what]
    assert hits, found
    assert all(f.remedy for f in found)


def test_text_that_is_no_rank_table_is_one_finding() -> None:
    for text in ("", "{}", "[1]", '{"group_list": 3}'):
        (only,) = check_text(text)
        assert only.severity is Severity.ERROR


def test_the_script_of_the_apulis_guide_claims_ranks_0_to_7_on_both_servers() -> None:
    table = read(SEED)
    script = [(server, i, i) for server in ("192.168.3.6", "192.168.3.2") for i in range(8)]
    found = check_assignment(table, script, rank_size=16)
    assert found[0] == Finding(
        Severity.ERROR,
        "assignments[8]",
        "rank 0 is claimed by 192.168.3.6/device 0 and 192.168.3.2/device 0",
        "use RANK_ID=SERVER_INDEX*8+i",
    )
    assert len(found) == 9
    assert "no process has rank 8-15 of 16" in found[-1].what


def test_the_corrected_script_has_no_findings() -> None:
    script = [
        (server, i, k * 8 + i) for k, server in enumerate(("192.168.3.6", "192.168.3.2")) for i in range(8)
    ]
    assert check_assignment(read(SEED), script, rank_size=16) == []


@pytest.mark.parametrize(
    ("script", "size", "what"),
    [
        ([("a", 0, 0), ("a", 1, 1)], 4, "RANK_SIZE is 4, but the table has 2 devices"),
        ([("a", 0, 1), ("a", 1, 0)], 2, "a/device 0 runs as rank 1, but the table gives it rank 0"),
        ([("a", 0, 0), ("a", 0, 1)], 2, "a/device 0 runs two processes"),
        ([("a", 0, 0), ("b", 1, 1)], 2, "b/device 1 is not in the table"),
        ([("a", 0, 0), ("a", 1, 7)], 2, "rank 7 is not in 0 to 1"),
    ],
)
def test_other_mistakes_of_a_script_are_told(
    script: list[tuple[str, int, int]], size: int, what: str
) -> None:
    table = RankTable.build([TableServer("a", [TableDevice(0, None, 0), TableDevice(1, None, 1)])])
    assert any(what in finding.what for finding in check_assignment(table, script, size))


def test_servers_that_answer_refuse_or_do_not_exist_are_told_apart() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        names = ["127.0.0.1", "127.0.0.9", "no-such-host.invalid"]
        table = RankTable.build(
            [TableServer(name, [TableDevice(0, None, i)]) for i, name in enumerate(names)]
        )
        found = check_reach(table, port=port)
    by_server = {finding.where.split()[-1]: finding for finding in found}
    assert "127.0.0.1" not in by_server
    assert by_server["127.0.0.9"].severity is Severity.WARNING
    assert by_server["no-such-host.invalid"].severity is Severity.ERROR


def test_4096_servers_of_8_devices_are_checked_and_converted() -> None:
    big = RankTable.build(
        [
            TableServer(
                f"10.{n >> 8}.{n & 255}.1",
                [TableDevice(i, f"192.{i}.{n >> 8}.{n & 255}", n * 8 + i) for i in range(8)],
                f"job-{n}",
            )
            for n in range(4096)
        ]
    )
    for form in Form:
        text = write(big, form)
        assert check_text(text) == []
        assert read(text).rank_size == 32768
    claims = [(s.server_id, d.device_id, d.device_id) for s, d in big.seats()]
    assert len(check_assignment(big, claims, 32768)) == 9


@pytest.mark.parametrize("form", list(Form))
def test_a_table_without_errors_can_be_read_whatever_was_changed(form: Form) -> None:
    """Random damage, always the same: the checker never breaks, and the reader refuses no table it passes."""
    chance = random.Random(4)
    junk = [None, True, -1, 0, 1.5, "", "0", "7", "99", "x", "1.2.3.4", [], {}, [[]], [{}], {"a": 1}]
    small = json.loads(
        write(RankTable.build([TableServer("a", [TableDevice(0, "1.1.1.1", 0)], "j-0")]), form)
    )
    passed = 0
    for _ in range(1500):
        document = copy.deepcopy(small)
        for _ in range(chance.randint(1, 2)):
            place: Any = document
            while True:
                keys = list(place) if isinstance(place, dict) else list(range(len(place)))
                if not keys:
                    break
                key = chance.choice(keys)
                if isinstance(place[key], dict | list) and chance.random() < 0.8:
                    place = place[key]
                    continue
                if chance.random() < 0.2:
                    del place[key]
                else:
                    place[key] = copy.deepcopy(chance.choice(junk))
                break
        text = json.dumps(document)
        if not any(finding.severity is Severity.ERROR for finding in check_text(text)):
            passed += 1
            assert read(text).rank_size >= 1
    assert passed > 5
