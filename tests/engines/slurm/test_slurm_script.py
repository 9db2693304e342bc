"""The batch script and the plan of a dry run: what Slurm is asked for, without a cluster."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from trainshed.engines.base import Request
from trainshed.engines.slurm.engine import SlurmEngine
from trainshed.engines.slurm.profile import save
from trainshed.errors import RefusedError, UsageError
from trainshed.spec.load import load_job

pytestmark = [pytest.mark.slurm]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRAINSHED_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TRAINSHED_PROFILE", raising=False)
    return tmp_path / "home"


def _job(**fields: Any) -> Any:
    return load_job({"name": "train", "command": "true"} | fields)


def _options(job: Any, emulate: bool = False, **options: str) -> list[str]:
    text = SlurmEngine().preview(Request(job, options=options, emulate=emulate)).request
    return re.findall(r"^#SBATCH (.*)$", text, re.M)


def test_the_script_asks_for_what_the_job_needs_and_nothing_else(home: Path) -> None:
    assert _options(_job(resources="2x4"), partition="gpu", account="lab", qos="high", time="90m") == [
        "--job-name=train",
        "--comment=trainshed:train-preview",
        "--nodes=2",
        "--ntasks-per-node=1",
        "--cpus-per-task=4",
        "--partition=gpu",
        "--account=lab",
        "--qos=high",
        "--time=90",
        "--signal=B:TERM@35",
        "--requeue",
        "--open-mode=append",
        f"--output={home}/runs/train-preview/slurm.log",
    ]


def test_devices_are_asked_for_by_the_name_the_site_gave_them() -> None:
    assert "--gres=gpu:8" in _options(_job(resources="1x8:nvidia"))
    assert "--gres=npu:8" in _options(_job(resources="1x8:ascend"))
    assert not any("gres" in option for option in _options(_job(resources="1x8:ascend"), emulate=True))
    save("lab", {"gres": {"ascend": "ascend910"}})
    assert "--gres=ascend910:2" in _options(_job(resources="1x2:ascend"), profile="lab")
    assert "--gres=gpu:2" in _options(_job(resources="1x2:nvidia"), profile="lab")


def test_memory_exclusive_requeue_and_a_jobs_own_timeout_become_options() -> None:
    job = _job(resources={"nodes": 1, "devices": 1, "memory": "4GiB"}, timeout="10m", grace=10)
    found = _options(job, exclusive="yes", requeue="no", nodelist="a[1-2]", constraint="fast&big")
    assert {"--mem=4096M", "--exclusive", "--no-requeue", "--nodelist=a[1-2]"} <= set(found)
    assert "--constraint=fast&big" in found and "--signal=B:TERM@40" in found
    assert "--time=21" in found, "the timeout, the time to stop, and room for staging"


@pytest.mark.parametrize(
    ("text", "minutes"), [("90m", 90), ("2h", 120), ("1-12:00:00", 2160), ("1:30", 2), ("61", 2)]
)
def test_time_limits_are_read_in_our_form_and_in_slurms(text: str, minutes: int) -> None:
    assert f"--time={minutes}" in _options(_job(), time=text)


def test_an_array_has_one_run_directory_for_each_task(home: Path) -> None:
    text = SlurmEngine().preview(Request(_job(), options={"array": "3%1"})).request
    assert "#SBATCH --array=0-2%1\n" in text
    assert f"#SBATCH --output={home}/runs/train-preview.%a/slurm.log\n" in text
    assert f'run={home}/runs/train-preview."$SLURM_ARRAY_TASK_ID"\n' in text


def test_modules_setup_and_paths_of_a_profile_come_before_the_driver() -> None:
    save(
        "slurm",
        {
            "modules": ["cuda/12.1", "gcc"],
            "setup": ["source /opt/site.sh"],
            "python": "/shared/venv/bin/python",
            "home": "/shared/me",
            "environments": "/shared/envs",
            "sbatch": ["--reservation=friday"],
        },
    )
    lines = SlurmEngine().preview(Request(_job())).request.splitlines()
    assert lines[lines.index("#SBATCH --reservation=friday") + 1 :] == [
        "",
        "command -v module >/dev/null || . /etc/profile",
        "module load cuda/12.1 gcc || exit 1",
        "source /opt/site.sh",
        "export TRAINSHED_HOME=/shared/me",
        "export TRAINSHED_ENVS=/shared/envs",
        f"run={_run_line()}",
        'exec /shared/venv/bin/python -m trainshed.engines.slurm.driver "$run"',
    ]


def _run_line() -> str:
    from trainshed.runs.directory import home

    return f"{home()}/runs/train-preview"


def test_a_folder_with_blanks_stays_one_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINSHED_HOME", str(tmp_path / "my home; rm"))
    text = SlurmEngine().preview(Request(_job())).request
    assert f"run='{tmp_path}/my home; rm/runs/train-preview'" in text
    assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"partitoin": "x"}, "partitoin"),
        ({"partition": "a b"}, "partition"),
        ({"partition": "x\n#SBATCH --uid=0"}, "partition"),
        ({"array": "none"}, "array"),
        ({"time": "soon"}, "time"),
        ({"isolation": "none"}, "isolation"),
        ({"profile": "nowhere"}, "nowhere"),
        ({"profile": "../../etc/passwd"}, "passwd"),
    ],
)
def test_a_wrong_option_is_named_with_what_is_allowed(options: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)) as caught:
        SlurmEngine().preview(Request(_job(), options=options))
    assert caught.value.hint


def test_an_image_needs_to_know_how_the_cluster_runs_containers() -> None:
    with pytest.raises(RefusedError, match="container"):
        SlurmEngine().preview(Request(_job(image="lab/torch:2")))
    SlurmEngine().preview(Request(_job(image="lab/torch:2"), options={"container": "apptainer"}))


def test_a_thousand_nodes_are_planned_and_rendered_in_seconds(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").write_text("")
    job = load_job(
        {
            "name": "large",
            "launcher": "pytorch",
            "code": str(tmp_path / "code"),
            "entry": "train.py",
            "resources": "1024x8:nvidia",
        }
    )
    began = time.monotonic()
    preview = SlurmEngine().preview(Request(job))
    assert time.monotonic() - began < 20
    assert "#SBATCH --nodes=1024\n" in preview.request and "#SBATCH --gres=gpu:8\n" in preview.request
    assert subprocess.run(["bash", "-n"], input=preview.request, text=True, check=False).returncode == 0
    nodes = preview.plan.nodes
    assert preview.plan.size == 8192 and len(nodes) == 1024
    assert len({node.address for node in nodes}) == len({node.name for node in nodes}) == 1024
    ranks = [process.rank for node in nodes for process in node.processes]
    assert ranks == list(range(8192))
    last = nodes[-1].processes[-1]
    assert last.env["RANK"] == "8191" and last.env["LOCAL_RANK"] == "7" and last.env["WORLD_SIZE"] == "8192"
    assert {node.env["MASTER_ADDR"] for node in nodes} == {nodes[0].address}
    assert any("placeholders" in note for note in preview.plan.notes)


def test_a_secret_among_a_profiles_variables_is_refused_and_not_repeated() -> None:
    for env in ({"API_TOKEN": "hunter2hunter2"}, {"PROXY": "http://me:hunter2hunter2@host/"}):
        with pytest.raises(UsageError, match="looks like a secret") as caught:
            save("lab", {"env": env})
        assert "hunter2" not in str(caught.value)
    save("lab", {"env": {"HTTP_PROXY": "http://host/"}})


@pytest.mark.parametrize("text", ["time: 2024-13-45", "env: " + "[" * 5000, "time: " + "9" * 5000])
def test_a_profile_that_no_yaml_reader_takes_is_one_clear_error(home: Path, text: str) -> None:
    (home / "profiles").mkdir(parents=True)
    (home / "profiles/lab.yaml").write_text(text)
    with pytest.raises(UsageError, match=r"lab\.yaml"):
        _options(_job(), profile="lab")
