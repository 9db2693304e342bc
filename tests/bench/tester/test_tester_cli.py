"""`trainshed tester` on the command line: an organiser's and a participant's whole way, over https."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from served import until
from typer.testing import CliRunner

from trainshed.cli.tester import app

pytestmark = [pytest.mark.benchmark]


def run(*words: str | Path, code: int = 0, given: str = "") -> str:
    done = CliRunner().invoke(app, [str(word) for word in words], input=given)
    assert done.exit_code == code, (done.output, done.exception)
    return done.stdout


def test_tests_are_registered_listed_and_closed(home: Path, tmp_path: Path) -> None:
    made = json.loads(run("add", "t1", "--model", "resnet50_v1.5", "--division", "close", "--json"))
    assert len(made["token"]) > 40
    run("add", "t2", "--model", "bert", "--object", "cluster", "--token-file", tmp_path / "token")
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
def test_a_mistake_names_its_field(home: Path, words: list[str], field: str) -> None:
    done = CliRunner().invoke(app, ["add", *words])
    assert done.exit_code != 0 and field in str(done.exception)


def test_a_result_is_sent_over_https_and_judged(home: Path, tmp_path: Path, result: Path) -> None:
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
            "--model",
            "made",
            "--object",
            "cluster",
            "--division",
            "open",
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
