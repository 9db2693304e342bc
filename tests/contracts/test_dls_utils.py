"""The wrapper `run_train.sh` of the Paddle guide runs as it stands on our `utils.sh`."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

import trainshed

pytestmark = [pytest.mark.contracts]

UTILS = Path(trainshed.__file__).parent / "payload" / "dls" / "utils.sh"
RUN_TRAIN = Path(__file__).parents[2] / "examples" / "modelarts-paddle-fleet" / "code" / "run_train.sh"

# Stands for the platform's copying command: s3://X is the folder $BUCKETS/X.
COPY = """#!/bin/bash
src="${1/#s3:\\/\\//$BUCKETS/}" dst="${2/#s3:\\/\\//$BUCKETS/}"
echo "copying $1"
if [[ "$src" == */ ]]; then cp -R "$src." "$dst"; else mkdir -p "$(dirname "$dst")" && cp "$src" "$dst"; fi
"""


def shell(script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", f"set -u; source {UTILS}\n{script}"],
        env={"PATH": os.environ["PATH"], **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )


@dataclass(frozen=True)
class Scenario:
    code: str
    command: tuple[str, ...] = ("bash", "run.sh")
    environment: tuple[tuple[str, str], ...] = ()


SCRIPT = """
echo "rank output"; echo "to stderr" >&2
ls -d run.sh app/run.sh
python3 -c 'import helper; print("helper from", helper.__name__)'
echo "token has ${#TOKEN} letters; others: ${ZZZZZZ_12345678_HOST:-gone} ${KUBERNETES_PORT:-gone}"
echo "own: ${ABC123_00000001_HOST:-gone}"
exit 7
"""
SCENARIOS = {
    "remote": Scenario(
        "s3://bucket/app/",
        environment=(
            ("DLS_USE_DOWNLOADER", "1"),
            ("DLS_USE_UPLOADER", "1"),
            ("DLS_UPLOAD_LOG_OBS_DIR", "s3://bucket/logs/"),
            ("DLS_DLKS_JOB_ID", "dlks42"),
        ),
    ),
    "local": Scenario("{buckets}/bucket/app", ("bash", "app/run.sh")),
    "success": Scenario("s3://bucket/app/", ("true",)),
    "missing": Scenario("s3://bucket/none/"),
    "missing local": Scenario("/nowhere/app"),
    "no url": Scenario(""),
    "no copier": Scenario("s3://bucket/app/", environment=(("TRAINSHED_CP", ""),)),
    "upload fails": Scenario("s3://bucket/app/", environment=(("DLS_USE_UPLOADER", "1"),)),
    "killed": Scenario("s3://bucket/app/", ("bash", "-c", "kill -9 $$")),
}


@dataclass(frozen=True)
class Outcome:
    code: int
    output: str
    buckets: Path


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """Every scenario, side by side: the wrapper ends with `sleep 3` and has fixed names in /tmp."""
    with ThreadPoolExecutor(len(SCENARIOS)) as pool:
        runs = {
            name: pool.submit(run_train, tmp_path_factory.mktemp(name.replace(" ", "-")), scenario)
            for name, scenario in SCENARIOS.items()
        }
        return {name: run.result() for name, run in runs.items()}


def run_train(folder: Path, scenario: Scenario) -> Outcome:
    home, buckets = folder / "home", folder / "buckets"
    app = buckets / "bucket" / "app"
    app.mkdir(parents=True)
    (app / "run.sh").write_text(SCRIPT)
    (app / "helper.py").write_text("")
    home.mkdir()
    for source in (RUN_TRAIN, UTILS):
        (home / source.name).write_text(source.read_text())
    copier = folder / "copy"
    copier.write_text(COPY)
    copier.chmod(0o755)
    key = folder / "key"
    key.write_text("pass phrase\n")
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": "",
        "BUCKETS": str(buckets),
        "TRAINSHED_CP": f"bash {copier}",
        "DLS_JOB_ID": "abc123-00000001",
        "DLS_TASK_INDEX": "0",
        "DLS_APP_URL": scenario.code.format(buckets=buckets),
        "DLS_DECRYPTOR_KEY_FILE": str(key),
        "DLS_AES__TOKEN": encrypt("hunter2!", key),
        "ABC123_00000001_HOST": "mine",
        "ZZZZZZ_12345678_HOST": "foreign",
        "KUBERNETES_PORT": "443",
        **dict(scenario.environment),
    }
    private_tmp = ["bwrap", "--dev-bind", "/", "/", "--tmpfs", "/tmp", "--bind", str(folder), str(folder)]
    done = subprocess.run(
        [*private_tmp, "--die-with-parent", "--", "bash", str(home / "run_train.sh"), *scenario.command],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    return Outcome(done.returncode, done.stdout, buckets)


def encrypt(value: str, key: Path) -> str:
    command = ["openssl", "enc", "-aes-256-cbc", "-pbkdf2", "-a", "-A", "-pass", f"file:{key}"]
    return subprocess.run(command, input=value, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("remote", 7),
        ("local", 7),
        ("success", 0),
        ("missing", 127),
        ("missing local", 127),
        ("no url", 127),
        ("no copier", 127),
        ("upload fails", 7),
        ("killed", 137),
    ],
)
def test_the_wrapper_exits_with_the_commands_status_or_127(
    outcomes: dict[str, Outcome], name: str, code: int
) -> None:
    assert outcomes[name].code == code, outcomes[name].output


@pytest.mark.parametrize("name", ["remote", "local"])
def test_code_is_in_the_job_folder_and_below_its_own_name(outcomes: dict[str, Outcome], name: str) -> None:
    output = outcomes[name].output
    for line in ("rank output", "to stderr", "app/run.sh", "helper from helper"):
        assert line in output.splitlines()


def test_the_environment_is_cleaned_and_decrypted_and_no_secret_is_shown(
    outcomes: dict[str, Outcome],
) -> None:
    output = outcomes["remote"].output
    assert "token has 8 letters; others: gone gone" in output
    assert "own: mine" in output
    assert "hunter2!" not in output


def test_the_log_is_uploaded_below_the_jobs_id(outcomes: dict[str, Outcome]) -> None:
    log = outcomes["remote"].buckets / "bucket" / "logs" / "dls-log-dlks42" / "dls-task-0.log"
    assert log.read_text().startswith("rank output\n")
    assert "own: mine" in log.read_text()


def test_a_failed_fetch_says_why(outcomes: dict[str, Outcome]) -> None:
    assert "App download error:" in outcomes["missing"].output
    assert "cannot fetch the code from s3://bucket/none" in outcomes["missing"].output
    assert "TRAINSHED_CP is not set" in outcomes["no copier"].output
    assert "/nowhere/app is not a folder" in outcomes["missing local"].output


def test_a_failed_upload_is_logged_and_changes_nothing(outcomes: dict[str, Outcome]) -> None:
    assert "Log upload error:" in outcomes["upload fails"].output


def test_a_value_that_cannot_be_decrypted_is_named_not_shown(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("right\n")
    secret = encrypt("s", key)
    script = 'decrypt_dls_aes_env; echo "status $? value ${TOKEN-unset}"'
    missing = shell(script, DLS_AES__TOKEN=secret, DLS_DECRYPTOR_KEY_FILE=str(tmp_path / "none"))
    damaged = shell(script, DLS_AES__TOKEN="AAAA", DLS_DECRYPTOR_KEY_FILE=str(key))
    unnamed = shell(script, DLS_AES__9=secret, DLS_DECRYPTOR_KEY_FILE=str(key))
    for done in (missing, damaged, unnamed):
        assert done.stdout == "status 1 value unset\n"
        assert "DLS_AES__" in done.stderr
        assert secret not in done.stderr


def test_a_decrypted_value_keeps_its_lines(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("k\n")
    done = shell(
        'decrypt_dls_aes_env; printf %s "$CERT" | od -An -c; echo "${DLS_AES__CERT-forgotten}"',
        DLS_AES__CERT=encrypt("a\nb\n\n", key),
        DLS_DECRYPTOR_KEY_FILE=str(key),
    )
    assert done.stdout.split() == ["a", "\\n", "b", "\\n", "\\n", "forgotten"]


def test_the_dns_fixer_runs_only_when_asked_for(tmp_path: Path) -> None:
    fixer = tmp_path / "dls-dns-fixer"
    fixer.write_text("#!/bin/sh\necho fixed\n")
    fixer.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    assert shell("dls_fix_dns", PATH=path, DLS_USE_DNS_TCP="1").stdout == "fixed\n"
    for off in ({}, {"DLS_USE_DNS_TCP": "0"}, {"DLS_USE_DNS_TCP": ""}):
        assert shell("dls_fix_dns", **{"PATH": path, **off}).stdout == ""
    absent = shell("dls_fix_dns", DLS_USE_DNS_TCP="1")
    assert absent.returncode == 0
    assert "dls-dns-fixer is not installed" in absent.stderr


def test_the_logger_writes_lines_as_they_come_and_appends_when_asked(tmp_path: Path) -> None:
    log = tmp_path / "deep" / "log"
    assert shell(f"dls_create_log {log} && dls_create_log ''").returncode == 0
    assert log.read_text() == ""
    logger = subprocess.Popen(
        ["bash", "-c", f"source {UTILS}; dls_logger {log}"], stdin=subprocess.PIPE, text=True, bufsize=1
    )
    assert logger.stdin is not None
    logger.stdin.write("first\n")
    watcher = f"until grep -q first {log}; do sleep 0.05; done"
    subprocess.run(["timeout", "20", "bash", "-c", watcher], check=True)  # written while the pipe is open
    logger.stdin.close()
    assert logger.wait(20) == 0
    shell(f"echo second | dls_logger {log} append")
    assert log.read_text() == "first\nsecond\n"
    shell(f"echo third | dls_logger {log}")
    assert log.read_text() == "third\n"


def test_a_log_that_cannot_be_written_does_not_stop_the_job() -> None:
    done = shell("seq 1 50000 | dls_logger /dev/full; echo ${PIPESTATUS[@]}")
    assert done.stdout.splitlines()[-2:] == ["50000", "0 0"]
    assert "cannot write /dev/full" in done.stderr
