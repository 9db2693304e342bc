"""`trainshed bench` on result folders: exit codes, output for people and for programs."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import made
import pytest

from trainshed.bench import folder as folders
from trainshed.cli.main import _main

pytestmark = [pytest.mark.benchmark]


@pytest.fixture
def result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRAINSHED_HOME", str(tmp_path / "home"))
    return made.made_result(tmp_path)


def test_check_says_what_holds_and_exits_0(result: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _main(["bench", "check", str(result)]) == 0
    assert (
        "every number, rule and file was checked, report.html by its checksum only" in capsys.readouterr().out
    )


def test_check_names_what_does_not_hold_and_exits_1(result: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (result / "runs/1/node-0/meter-rank-0.jsonl").unlink()
    assert _main(["bench", "check", str(result), "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert not answer["ok"] and {"file-missing", "rank-missing"} <= {f["code"] for f in answer["findings"]}


def test_collect_again_after_a_crash_gives_the_same_numbers(
    result: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = json.loads((result / "result.json").read_text())
    # What a crash in the middle of collecting leaves: no result, no manifest, half of the evidence.
    for name in ("manifest.json", "result.json", "train_result_info.txt"):
        (result / name).unlink()
    shutil.rmtree(result / "runs/2")
    (result / "runs/3/node-0/meter-rank-0.jsonl").write_text("half")
    assert _main(["bench", "collect", str(result)]) == 0
    assert json.loads((result / "result.json").read_text()) == before
    assert _main(["bench", "check", str(result)]) == 0
    assert "report.html" in capsys.readouterr().out


def test_a_failed_result_exits_1_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRAINSHED_HOME", str(tmp_path / "home"))
    runs = [made.MadeRun(seed=i, state="failed" if i == 2 else "succeeded") for i in (1, 2, 3)]
    folder = made.made_result(tmp_path, runs=runs)
    assert _main(["bench", "collect", str(folder)]) == 1
    assert "run-failed: run 2: the run ended as 'failed'" in capsys.readouterr().out


def test_history_and_compare_by_folder_and_by_name(result: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _main(["bench", "collect", str(result)]) == 0
    capsys.readouterr()
    assert _main(["bench", "history", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert _main(["bench", "compare", entry["id"], str(result), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "no difference beyond noise"
    assert _main(["bench", "compare", entry["id"], "nothing"]) == 64
    assert "bench history" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["md", "csv"])
def test_reports_as_text_go_to_the_output(
    result: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _main(["bench", "report", str(result), "--format", form]) == 0
    out = capsys.readouterr().out
    if form == "csv":
        lines = out.splitlines()
        assert lines[0].startswith("result,run,rank,quantity") and all(x.count(",") >= 7 for x in lines)
    else:
        assert "# made (tiny): valid" in out and "not measured: no result of one device" in out


def test_a_report_made_later_leaves_the_result_as_it_is(result: Path) -> None:
    assert _main(["bench", "report", str(result)]) == 0
    assert (result.parent / "result.html").read_text().startswith("<!DOCTYPE html>")
    assert _main(["bench", "check", str(result)]) == 0


def test_a_folder_that_is_no_result_is_refused_with_a_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _main(["bench", "collect", str(tmp_path)]) == 64
    assert "is not a result folder" in capsys.readouterr().err


def test_new_makes_a_workload_that_can_be_planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "my-model"
    assert _main(["bench", "new", str(target), "-f", "command"]) == 0
    assert _main(["bench", "new", str(target), "-f", "command"]) == 64
    capsys.readouterr()
    assert _main(["bench", "run", str(target), "--dry-run", "--json", "-j", "2x2", "-n", "7"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["rules"]["ranks"] == 4 and answer["rules"]["runs"] == 7
    assert "seed: 1" in answer["job"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["-f", "jax"], "no framework 'jax'"), (["-s", "huge"], "no scale 'huge'"), (["-j", "2y2"], "2y2")],
)
def test_a_choice_that_does_not_exist_names_those_that_do(
    tmp_path: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "my-model"
    _main(["bench", "new", str(target), "-f", "command"])
    assert _main(["bench", "run", str(target), "--dry-run", *arguments]) == 64
    assert words in capsys.readouterr().err


def test_wrong_data_are_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "my-model"
    _main(["bench", "new", str(target), "-f", "command"])
    file = target / "workload.yaml"
    file.write_text(file.read_text().replace('checksum: ""', 'checksum: "sha256:0"'))
    assert _main(["bench", "run", str(target), "--dry-run"]) == 64
    assert "the workload asks for sha256:0" in capsys.readouterr().err


def test_a_result_folder_is_not_begun_twice(result: Path) -> None:
    with pytest.raises(Exception, match="already holds a result"):
        folders.begin(result, made.made_rules(), {})
    assert (result / "manifest.json").exists()


@pytest.mark.field
def test_every_command_takes_a_folder_or_an_id(result: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _main(["bench", "collect", str(result)]) == 0
    capsys.readouterr()
    name = json.loads((result / "result.json").read_text())["id"]
    for word in (str(result), name, name[:-3]):
        assert _main(["bench", "check", word]) == 0
        assert _main(["bench", "collect", word]) == 0
        assert _main(["bench", "compare", word, name]) == 0
        assert _main(["bench", "report", word, "--format", "md"]) == 0
    capsys.readouterr()
    assert _main(["bench", "check", "nothing"]) == 64
    assert "bench history" in capsys.readouterr().err


@pytest.mark.field
def test_results_that_cannot_be_compared_exit_1(result: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = shutil.copytree(result, result.with_name("other"))
    data = json.loads((other / "result.json").read_text())
    (other / "result.json").write_text(json.dumps(data | {"scale": "full"}))
    assert _main(["bench", "compare", str(result), str(other)]) == 1
    assert "not comparable: scale is 'tiny' and 'full'" in capsys.readouterr().out
    assert _main(["bench", "compare", str(result), str(other), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["verdict"] == "not comparable"


@pytest.mark.field
def test_scores_are_written_alike_everywhere(result: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _main(["bench", "collect", str(result)]) == 0
    shown = [capsys.readouterr().out]
    for words in (
        ["history"],
        ["compare", str(result), str(result)],
        ["report", str(result), "--format", "md"],
    ):
        assert _main(["bench", *words]) == 0
        shown.append(capsys.readouterr().out)
    (score,) = re.findall(r"throughput: (.+) images/s", shown[0])
    assert all(f"{score} images/s" in text for text in shown)


@pytest.mark.field
def test_the_first_column_of_history_is_the_whole_id(
    result: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _main(["bench", "collect", str(result)]) == 0
    capsys.readouterr()
    name = json.loads((result / "result.json").read_text())["id"]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    assert _main(["bench", "history"]) == 0
    assert name in capsys.readouterr().out
