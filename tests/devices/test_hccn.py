"""The Ascend tools' output, recorded, as values."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainshed.devices.hccn import (
    AscendOutputError,
    DeviceAddress,
    NpuChip,
    NpuPower,
    NpuProcess,
    NpuUsage,
    parse_hccn_conf,
    parse_hccn_tool_ip,
    parse_npu_smi_info,
    parse_npu_smi_power,
    parse_npu_smi_usages,
)

pytestmark = [pytest.mark.contracts]


def recorded(name: str) -> str:
    return (Path(__file__).parents[1] / "data" / "ascend" / name).read_text()


def test_hccn_conf_gives_eight_addresses() -> None:
    got = parse_hccn_conf(recorded("hccn.conf"))
    assert [a.device_id for a in got] == list(range(8))
    assert got[5] == DeviceAddress(5, "192.168.20.12", "255.255.255.0")


def test_hccn_tool_gives_one_address() -> None:
    assert parse_hccn_tool_ip(recorded("hccn_tool_ip.txt"), 3) == DeviceAddress(
        3, "10.20.0.10", "255.255.255.0"
    )


def test_a_910b_server_has_eight_chips_and_one_process() -> None:
    info = parse_npu_smi_info(recorded("npu_smi_info_910b1.txt"))
    assert info.version == "24.1.0"
    assert [chip.npu_id for chip in info.chips] == list(range(8))
    assert info.chips[7] == NpuChip(
        7, 0, None, "910B1", "OK", "0000:42:00.0", 91.1, 32.0, 0.0, 0, 0, 3380, 65536
    )
    assert info.processes == (NpuProcess(0, 0, 641248, "", 113),)


def test_an_older_driver_has_narrower_columns() -> None:
    info = parse_npu_smi_info(recorded("npu_smi_info_910.txt"))
    assert info.chips == (
        NpuChip(0, 0, None, "910ProB", "OK", "0000:C1:00.0", 78.4, 33.0, 0.0, 1198, 15137, 30711, 32768),
    )
    assert info.processes == (NpuProcess(0, 0, 55115, "python", 30784),)


def test_the_second_chip_of_a_board_has_no_power_of_its_own() -> None:
    first, second = parse_npu_smi_info(recorded("npu_smi_info_two_chips.txt")).chips
    assert (first.phy_id, first.power_w) == (8, 170.7)
    assert (second.chip_id, second.phy_id, second.power_w, second.temperature_c) == (1, 9, None, 51.0)


def test_usages() -> None:
    assert parse_npu_smi_usages(recorded("npu_smi_usages.txt")) == (
        NpuUsage(0, 0, 57.0, 0.0, 2.0, 0, 0.0, 65536, 3.0, 31.0),
    )


def test_power_of_two_chips_one_not_available() -> None:
    assert parse_npu_smi_power(recorded("npu_smi_power.txt")) == (NpuPower(2, 0, 163.1), NpuPower(2, 1, None))


def test_a_rated_power_is_not_a_measured_one() -> None:
    text = "\tNPU ID : 1\n\tChip Count : 1\n\n\tRated Power Dissipation(W) : 8.0\n\tChip ID : 0\n"
    assert parse_npu_smi_power(text) == (NpuPower(1, 0, None),)


def test_a_chip_id_may_open_its_block() -> None:
    text = (
        "\tNPU ID : 0\n\tChip Count : 2\n\n\tChip ID : 0\n\tAicore Usage Rate(%) : 6\n"
        "\n\tChip ID : 1\n\tAicore Usage Rate(%) : 7\n"
    )
    assert [(u.chip_id, u.aicore_percent) for u in parse_npu_smi_usages(text)] == [(0, 6.0), (1, 7.0)]


def test_a_tool_that_failed_is_quoted() -> None:
    with pytest.raises(AscendOutputError, match="hccn tool is busy"):
        parse_hccn_tool_ip("hccn tool is busy, please try again\n", 0)
    with pytest.raises(AscendOutputError, match="dcmi module initialize failed"):
        parse_npu_smi_info("dcmi module initialize failed. ret is -8005\n")
    with pytest.raises(AscendOutputError, match="-t power lists no chip"):
        parse_npu_smi_power("Error parameter of -i\n")
    with pytest.raises(AscendOutputError, match="no address_N"):
        parse_hccn_conf("")
    with pytest.raises(AscendOutputError, match="address_0 is 'x'"):
        parse_hccn_conf("address_0=x\n")
    with pytest.raises(AscendOutputError, match="unknown form"):
        parse_npu_smi_info("| 0 910 | OK | 1 2 |\n| 0 | bus | nothing |\n")
