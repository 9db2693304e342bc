"""Devices and slots are leased one by one: no two runs get the same, and who holds what is named."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support import until
from trainshed.api import Client
from trainshed.engines.base import Prepared
from trainshed.engines.cluster import leases
from trainshed.engines.cluster.leases import DevicePool, Lease, choose, holders, take_devices, take_ports
from trainshed.engines.local.engine import ENGINE
from trainshed.errors import RefusedError, UsageError
from trainshed.plan.topology import Device
from trainshed.runs.directory import RunDirectory

pytestmark = [pytest.mark.foundation, pytest.mark.core]


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of leases for this test alone: the machine's own belong to whatever else runs on it."""
    monkeypatch.setattr(leases, "_NAME", f"test-{uuid.uuid4().hex[:8]}")


class Stage:
    """Prepares runs of one home, and keeps what they hold."""

    def __init__(self, home: Path, stack: ExitStack, **environ: str) -> None:
        self._client, self._stack = Client.from_environment(environ, home), stack
        self._home = home

    def prepare(self, name: str, shape: str, emulate: bool = True) -> Prepared:
        request = self._client.request(
            {"name": name, "command": "true"}, shape=shape, emulate=emulate, options={"isolation": "plain"}
        )
        prepared = ENGINE.prepare(request, [RunDirectory(self._home / "runs" / name)])
        self._stack.callback(prepared.close)
        return prepared


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def indexes(prepared: Prepared) -> list[str]:
    return [node.env["ASCEND_VISIBLE_DEVICES"] for node in prepared.plan.nodes]


def test_two_jobs_on_an_eight_device_machine_get_different_devices(tmp_path: Path, stack: ExitStack) -> None:
    stage = Stage(tmp_path, stack, TRAINSHED_EMULATED_DEVICES="8")
    first, second = stage.prepare("first", "1x1:ascend"), stage.prepare("second", "1x1:ascend")
    assert (indexes(first), indexes(second)) == (["0"], ["1"])
    with pytest.raises(RefusedError) as caught:
        stage.prepare("third", "1x8:ascend")
    assert caught.value.code == "devices-busy"
    assert caught.value.message == (
        "8 emulated-ascend devices requested, 6 of 8 are free: first holds 0; second holds 1"
    )
    assert indexes(stage.prepare("fourth", "2x3:ascend")) == ["2,3,4", "5,6,7"]
    first.close()
    assert indexes(stage.prepare("fifth", "1x1:ascend")) == ["0"]


def test_what_can_never_run_is_refused_with_the_number(tmp_path: Path, stack: ExitStack) -> None:
    stage = Stage(tmp_path, stack, TRAINSHED_EMULATED_DEVICES="8")
    with pytest.raises(RefusedError, match="3x4 asks for 12 ascend devices, and this machine has 8"):
        stage.prepare("large", "3x4:ascend")


def test_nodes_of_a_run_get_servers_of_their_own_while_there_are_any(
    tmp_path: Path, stack: ExitStack
) -> None:
    stage = Stage(tmp_path, stack, TRAINSHED_EMULATED_DEVICES="16")
    both = stage.prepare("both", "2x4:ascend")
    assert indexes(both) == ["0,1,2,3", "0,1,2,3"], "each server counts its devices from 0"
    assert holders("emulated-ascend") == dict.fromkeys([*range(4), *range(8, 12)], "both")


def test_cpu_slots_are_leased_too(tmp_path: Path, stack: ExitStack) -> None:
    stage = Stage(tmp_path, stack, TRAINSHED_CPU_SLOTS="4")
    first = stage.prepare("first", "1x3", emulate=False)
    with pytest.raises(RefusedError, match="2 cpu devices requested, 1 of 4 are free: first holds 0-2"):
        stage.prepare("second", "2x1", emulate=False)
    with pytest.raises(RefusedError, match="1x5 asks for 5 cpu devices, and this machine has 4"):
        stage.prepare("large", "1x5", emulate=False)
    first.close()
    stage.prepare("third", "2x2", emulate=False)


@pytest.mark.parametrize("text", ["many", "-1", "1.5", "²", "9" * 40])
def test_a_count_that_is_none_is_refused(tmp_path: Path, stack: ExitStack, text: str) -> None:
    with pytest.raises(UsageError, match="TRAINSHED_CPU_SLOTS is"):
        Stage(tmp_path, stack, TRAINSHED_CPU_SLOTS=text).prepare("job", "1x1", emulate=False)


def test_a_refused_job_holds_nothing(tmp_path: Path, stack: ExitStack) -> None:
    stage = Stage(tmp_path, stack, TRAINSHED_EMULATED_DEVICES="8")
    stage.prepare("first", "1x5:ascend")
    with pytest.raises(RefusedError):
        stage.prepare("second", "1x4:ascend")
    assert set(holders("emulated-ascend").values()) == {"first"}


def test_a_dry_run_holds_nothing_afterwards(tmp_path: Path) -> None:
    client = Client.from_environment({"TRAINSHED_EMULATED_DEVICES": "8"}, tmp_path)
    request = client.request({"name": "job", "command": "true"}, shape="1x8:ascend", emulate=True)
    assert indexes(client.plan(request)) == ["0,1,2,3,4,5,6,7"] == indexes(client.plan(request))
    assert holders("emulated-ascend") == {} and not list(tmp_path.iterdir())


HOLDER = """
import sys
from trainshed.engines.cluster import leases
leases._NAME = sys.argv[1]
lease = leases.Lease()
leases.take_devices(leases.DevicePool("card", 8, 8), 1, 6, "a-run", lease)
print("held", flush=True)
sys.stdin.read()
"""


def test_what_a_process_holds_is_free_when_it_dies(stack: ExitStack) -> None:
    pool = DevicePool("card", 8, 8)
    command = [sys.executable, "-c", HOLDER, leases._NAME]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout and process.stdout.readline() == "held\n"
        lease = Lease()
        stack.callback(lease.close)
        with pytest.raises(
            RefusedError, match=r"4 card devices requested, 2 of 8 are free: a-run holds 0-5 \("
        ):
            take_devices(pool, 1, 4, "another", lease)
        assert take_devices(pool, 1, 2, "another", lease) == ((6, 7),)
    finally:
        process.kill()
        process.communicate()
    until(lambda: set(holders("card")) == {6, 7}, 10, "the end of the lease")
    assert take_devices(pool, 1, 6, "later", lease) == ((0, 1, 2, 3, 4, 5),)


def test_a_lease_goes_on_with_whoever_inherits_it() -> None:
    lease = Lease()
    take_devices(DevicePool("card", 2, 2), 1, 1, "a-run", lease)
    code = "import sys; sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, pass_fds=lease.filenos())
    lease.close()
    assert holders("card") == {0: "a-run"}
    child.communicate()
    until(lambda: holders("card") == {}, 10, "the end of the lease")


def test_many_at_once_never_get_the_same_device(stack: ExitStack) -> None:
    from concurrent.futures import ThreadPoolExecutor

    pool = DevicePool("card", 32, 8)
    taken = [Lease() for _ in range(40)]
    for lease in taken:
        stack.callback(lease.close)

    def take(number: int) -> int | None:
        try:
            ((device,),) = take_devices(pool, 1, 1, f"run-{number}", taken[number])
        except RefusedError:
            return None
        return device

    with ThreadPoolExecutor(8) as threads:
        devices = [device for device in threads.map(take, range(40)) if device is not None]
    assert sorted(devices) == list(range(32)), "each is taken, and by one"


def test_devices_of_a_larger_pool_do_not_count(stack: ExitStack) -> None:
    lease = Lease()
    stack.callback(lease.close)
    take_devices(DevicePool("card", 16, 16), 1, 10, "large", lease)
    with pytest.raises(RefusedError, match=r"1 card device requested, 0 of 8 are free: large holds 0-7 \("):
        take_devices(DevicePool("card", 8, 8), 1, 1, "small", Lease())


@pytest.mark.parametrize(
    ("pool", "nodes", "each", "busy", "chosen"),
    [
        (DevicePool("x", 8, 8), 1, 1, set(), ((0,),)),
        (DevicePool("x", 8, 8), 1, 2, {0, 2}, ((1, 3),)),
        (DevicePool("x", 8, 8), 2, 4, set(), ((0, 1, 2, 3), (4, 5, 6, 7))),
        (DevicePool("x", 8, 8), 1, 8, {5}, None),
        (DevicePool("x", 16, 8), 2, 2, set(), ((0, 1), (8, 9))),
        (DevicePool("x", 16, 8), 1, 8, {0}, ((8, 9, 10, 11, 12, 13, 14, 15),)),
        (DevicePool("x", 16, 8), 1, 10, set(), None),
        (DevicePool("x", 12, 8), 1, 4, set(range(8)), ((8, 9, 10, 11),)),
        (DevicePool("x", 0, 1), 1, 1, set(), None),
    ],
)
def test_free_devices_are_chosen(
    pool: DevicePool, nodes: int, each: int, busy: set[int], chosen: tuple[tuple[int, ...], ...] | None
) -> None:
    assert choose(pool, nodes, each, busy) == chosen


def test_nodes_of_two_runs_share_no_port(stack: ExitStack) -> None:
    devices = [(Device(0), Device(1))] * 2
    seen: set[int] = set()
    addresses: set[str] = set()
    for _ in range(3):
        lease = Lease()
        stack.callback(lease.close)
        hosts = take_ports(devices, lease)
        seen |= {host.first_port for host in hosts}
        addresses |= {host.address for host in hosts}
    assert len(seen) == 6 and len(addresses) == 6


def test_an_empty_server_comes_before_one_that_others_use() -> None:
    pool = DevicePool("emulated", 24, 8)
    assert choose(pool, 1, 2, {0, 1}) == ((8, 9),)
    assert choose(pool, 2, 2, {0, 1}) == ((8, 9), (16, 17))
    assert choose(pool, 1, 2, {0, 1, 8, 16}) == ((2, 3),)
