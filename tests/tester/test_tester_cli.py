"""`trainshed tester` on the command line: an organiser's and a participant's whole way, over https."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from served import Served, until
from typer.testing import CliRunner

from trainshed.cli.tester import app
from trainshed.errors import UsageError
from trainshed.tester.spool import Participant, Spool

pytestmark = [pytest.mark.benchmark]


def run(*words: str | Path, code: int = 0, given: str = "") -> str:
    done = CliRunner().invoke(app, [str(word) for word in words], input=given)
    assert done.exit_code == code, (done.output, done.exception)
    return done.stdout


def test_tests_are_registered_listed_and_closed(home: Path, workload: Path, tmp_path: Path) -> None:
    made = json.loads(
        run("add", "t1", "--workload", workload, "--model", "resnet50_v1.5", "--division", "close", "--json")
    )
    assert len(made["token"]) > 40
    run(
        "add",
        "t2",
        "--workload",
        workload,
        "--model",
        "bert",
        "--object",
        "cluster",
        "--token-file",
        tmp_path / "token",
    )
    assert oct((tmp_path / "token").stat().st_mode)[-3:] == "600"
    run("close", "t1")
    listed = json.loads(run("tests", "--json"))
    assert [(t["id"], t["division"], t["closed"]) for t in listed] == [
        ("t1", "closed", True),
        ("t2", "closed", False),
    ]
    assert "t2" in run("tests") and run("results") and run("export", "results.csv").startswith("test,")


@pytest.mark.parametrize(
    ("words", "field"),
    [(["bad/id", "--model", "x"], "test id"), (["t", "--model", "x", "--mode", "play"], "mode"),
     (["t", "--model", "x", "--division", "half"], "division"), (["t", "--model", ""], "model")],
)  # fmt: skip
def test_a_mistake_names_its_field(home: Path, workload: Path, words: list[str], field: str) -> None:
    done = CliRunner().invoke(app, ["add", *words, "--workload", str(workload)])
    assert done.exit_code != 0 and field in str(done.exception)


def refused(*words: str | Path) -> UsageError:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert isinstance(done.exception, UsageError), (done.output, done.exception)
    return done.exception


def test_no_test_is_registered_when_its_token_cannot_be_written(
    home: Path, workload: Path, tmp_path: Path
) -> None:
    for place in (tmp_path / "no" / "token", tmp_path):
        assert "--token-file" in str(
            refused("add", "t1", "--workload", workload, "--model", "made", "--token-file", place)
        )
    assert json.loads(run("tests", "--json")) == []
    run("add", "t1", "--workload", workload, "--model", "made")
    assert "already registered" in str(
        refused("add", "t1", "--workload", workload, "--model", "made", "--token-file", tmp_path / "new")
    )
    assert not (tmp_path / "new").exists()


def test_a_token_file_that_others_could_read_becomes_private(
    home: Path, workload: Path, tmp_path: Path
) -> None:
    place = tmp_path / "token"
    place.write_text("something long that was here before " * 10)
    place.chmod(0o644)
    run("add", "t1", "--workload", workload, "--model", "made", "--token-file", place)
    assert oct(place.stat().st_mode)[-3:] == "600" and len(place.read_text().split()) == 1
    first = place.read_text()
    run("new-token", "t1", "--token-file", place)
    assert len(place.read_text().split()) == 1 and place.read_text() != first


def test_a_certificate_that_cannot_be_used_is_named(home: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.pem").touch()
    for name in ("nosuch.pem", "empty.pem"):
        words = ("--certificate", tmp_path / name, "--key", tmp_path / name, "--port", "0")
        assert name in str(refused("serve", "--folder", tmp_path / name.partition(".")[0], *words))


def test_a_result_sent_twice_without_waiting_for_the_verdict(
    home: Path, served: Served, result: Path
) -> None:
    run("token", "t1", given=served.add("t1") + "\n")
    words = ("send", result, "--to", served.url, "--test", "t1", "--no-verdict", "--json")
    first, again = json.loads(run(*words)), json.loads(run(*words))
    assert first == again and first["state"] == "received"


def test_a_result_is_not_kept_for_an_address_that_cannot_be(home: Path, result: Path) -> None:
    assert "99999" in str(refused("send", result, "--to", "https://h:99999", "--test", "t1"))
    words = ("send", result, "--to", "https://h", "--test", "t1", "--authority", "nosuch")
    assert "nosuch" in str(refused(*words))
    assert json.loads(run("spool", "--json")) == []


def test_one_entry_that_cannot_be_sent_does_not_keep_the_others_back(
    home: Path, served: Served, result: Path
) -> None:
    run("token", "t1", given=served.add("t1") + "\n")
    spool = Spool(Participant.from_environment(os.environ))
    spool.keep(result, served.url, "t1")
    place = spool.root / spool.keep(result, "https://127.0.0.1:9", "t1").name / "entry.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | {"authority": "/removed/ca.pem"}))
    outcome = json.loads(run("resend", "--wait", "1s", "--json", code=1))
    assert sorted(item["state"] for item in outcome) == ["sent", "waits"]


def test_a_result_is_sent_over_https_and_judged(
    home: Path, tmp_path: Path, result: Path, workload: Path
) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
         "2", "-subj", "/CN=tester", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    folder = tmp_path / "tester"
    made = json.loads(
        run(
            "add",
            "t1",
            "--workload",
            workload,
            "--model",
            "made",
            "--object",
            "cluster",
            "--division",
            "open",
            "--offline",
            "--folder",
            folder,
            "--json",
        )
    )
    with subprocess.Popen(
        [sys.executable, "-m", "trainshed.cli.main", "tester", "serve", "--folder", folder, "--port", "0", "--quiet",
         "--certificate", certificate, "--key", key],
        stdout=subprocess.PIPE, text=True,
    ) as server:  # fmt: skip
        try:
            assert server.stdout
            line = server.stdout.readline()
            url = line.split()[2].rstrip(",")
            assert url.startswith("https://127.0.0.1:")
            assert "kept in" in run("token", "t1", given=made["token"] + "\n")
            refused = CliRunner().invoke(app, ["send", str(result), "--to", url, "--test", "t1"])
            assert "certificate" in str(refused.exception), refused.output
            shutil.rmtree(home / "spool")
            sent = run("send", result, "--to", url, "--test", "t1", "--authority", certificate, "--json")
            assert json.loads(sent)["state"] == "valid"
            assert json.loads(run("spool", "--json")) == []
            (found,) = json.loads(run("results", "--folder", folder, "--json"))
            assert found["state"] == "valid"
        finally:
            server.terminate()
            until(lambda: server.poll() is not None, 20)
        assert server.returncode == 0
