"""`trainshed ranktable` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from trainshed.cli.ranktable import app
from trainshed.errors import TrainshedError

pytestmark = [pytest.mark.contracts]

DATA = Path(__file__).parents[1] / "data"
SEED = DATA / "ranktables" / "seed004_hccl.json"


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def refusal(*words: object) -> TrainshedError:
    error = run(*words).exception
    assert isinstance(error, TrainshedError), error
    return error


def test_a_sound_table_passes() -> None:
    done = run("check", SEED)
    assert (done.exit_code, done.stdout) == (0, f"{SEED}: no fault found\n")


def test_a_faulty_table_fails_and_the_remedy_is_shown(tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text(SEED.read_text().replace('"device_num": "16"', '"device_num": 8'))
    done = run("check", SEED, bad)
    assert done.exit_code == 1
    assert "2 errors, 0 warnings" in done.stdout
    assert '-> write "16"' in done.stdout
    as_json = json.loads(run("check", SEED, bad, "--json").stdout)
    assert [entry["ok"] for entry in as_json] == [True, False]
    assert as_json[1]["findings"][0]["where"] == "$.group_list[0].device_num"


def test_what_a_script_starts_is_checked(tmp_path: Path) -> None:
    script = tmp_path / "started"
    script.write_text("".join(f"{s} {i} {i}\n" for s in ("192.168.3.6", "192.168.3.2") for i in range(8)))
    done = run("check", SEED, "--assignments", script, "--rank-size", 16)
    assert done.exit_code == 1
    assert "rank 0 is claimed by 192.168.3.6/device 0 and 192.168.3.2/device 0" in done.stdout
    assert "use RANK_ID=SERVER_INDEX*8+i" in done.stdout


def test_long_lists_are_cut_and_counted(tmp_path: Path) -> None:
    script = tmp_path / "started"
    script.write_text("elsewhere 0 0\n" * 200)
    done = run("check", SEED, "--assignments", script)
    assert "more (--json shows all)" in done.stdout


def test_reach_uses_the_given_port(tmp_path: Path) -> None:
    table = tmp_path / "t.json"
    assert run("make", "--hosts", "127.0.0.1:1", "-o", table).exit_code == 0
    done = run("check", table, "--reach", "--port", 1)
    assert done.exit_code == 0
    assert "nothing listens on port 1" in done.stdout


def test_convert_there_and_back_gives_the_same_bytes(tmp_path: Path) -> None:
    v1, pods = tmp_path / "v1.json", tmp_path / "pods.json"
    assert run("convert", SEED, "--to", "v1", "-o", v1).exit_code == 0
    assert run("convert", v1, "--to", "pods", "-o", pods).exit_code == 0
    assert run("convert", pods, "--to", "devices").stdout == SEED.read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pods.json", "v1.json"]


def test_convert_to_a_host_file() -> None:
    assert run("convert", SEED, "--to", "hostfile").stdout == "192.168.3.6 slots=8\n192.168.3.2 slots=8\n"


def test_convert_json_carries_the_table() -> None:
    got = json.loads(run("convert", SEED, "--to", "v1", "--json").stdout)
    assert (got["form"], got["servers"], got["devices"]) == ("v1", 2, 16)
    assert got["table"]["server_count"] == "2"


def test_make_takes_device_addresses_from_hccn_conf(tmp_path: Path) -> None:
    hostfile = tmp_path / "hosts"
    hostfile.write_text("10.0.0.1 slots=8\n10.0.0.2 slots=2\n")
    conf = DATA / "ascend" / "hccn.conf"
    done = run("make", "--hostfile", hostfile, "--hccn", f"10.0.0.1={conf}")
    servers = json.loads(done.stdout)["server_list"]
    assert servers[0]["device"][4] == {"device_id": "4", "device_ip": "192.168.10.12", "rank_id": "4"}
    assert servers[1]["device"] == [{"device_id": "0", "rank_id": "8"}, {"device_id": "1", "rank_id": "9"}]


def test_refusals_name_the_field_and_the_remedy(tmp_path: Path) -> None:
    conf = DATA / "ascend" / "hccn.conf"
    waiting = tmp_path / "jobstart_hccl.json"
    run("convert", SEED, "--to", "pods", "-o", waiting)
    waiting.write_text(waiting.read_text().replace("completed", "initializing"))
    assert "does not exist" in refusal("check", tmp_path / "none").message
    assert "--hosts or --hostfile" in refusal("make").hint
    assert "9 devices" in refusal("make", "--hosts", "a:9", "--hccn", f"a={conf}").message
    assert "not among the servers" in refusal("make", "--hosts", "a:1", "--hccn", f"b={conf}").message
    assert "v1, pods, devices" in refusal("convert", SEED, "--to", "v2").hint
    assert "initializing" in refusal("convert", waiting, "--to", "v1").message
    assert "cannot write" in refusal("convert", SEED, "--to", "v1", "-o", tmp_path / "no" / "x").message
