"""The batch script and the plan of a dry run: what Slurm is asked for, without a cluster."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from trainshed import Client
from trainshed.engines.base import Prepared
from trainshed.engines.slurm.profile import save as save_profile
from trainshed.errors import RefusedError, UsageError
from trainshed.home import trainshed_home
from trainshed.spec.load import load_job

pytestmark = [pytest.mark.slurm, pytest.mark.core]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRAINSHED_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TRAINSHED_PROFILE", raising=False)
    return tmp_path / "home"


def _job(**fields: Any) -> Any:
    return load_job({"name": "train", "command": "true"} | fields)


def _plan(job: Any, emulate: bool = False, **options: str) -> Prepared:
    client = Client()
    return client.plan(client.request(job, options=options, emulate=emulate), "slurm")


def _options(job: Any, emulate: bool = False, **options: str) -> list[str]:
    return re.findall(r"^#SBATCH (.*)$", _plan(job, emulate, **options).text, re.M)


def save(name: str, values: dict[str, Any]) -> None:
    save_profile(name, values, trainshed_home(os.environ))


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
        f"--output={home}/runs/train-preview/driver.log",
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
    text = _plan(_job(), array="3%1").text
    assert "#SBATCH --array=0-2%1\n" in text
    assert f"#SBATCH --output={home}/runs/train-preview.%a/driver.log\n" in text
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
    lines = _plan(_job()).text.splitlines()
    assert lines[lines.index("#SBATCH --reservation=friday") + 1 :] == [
        "",
        "trap '' TERM",
        "command -v module >/dev/null || . /etc/profile",
        "module load cuda/12.1 gcc || exit 1",
        "source /opt/site.sh",
        "export TRAINSHED_HOME=/shared/me",
        "export TRAINSHED_ENVS=/shared/envs",
        f"run={_run_line()}",
        'exec /shared/venv/bin/python -m trainshed.engines.slurm.driver "$run"',
    ]


def _run_line() -> str:
    return f"{trainshed_home(os.environ)}/runs/train-preview"


def test_a_folder_with_blanks_stays_one_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINSHED_HOME", str(tmp_path / "my home; rm"))
    text = _plan(_job()).text
    assert f"run='{tmp_path}/my home; rm/runs/train-preview'" in text
    assert f'#SBATCH --output="{tmp_path}/my home; rm/runs/train-preview/driver.log"\n' in text
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
        _plan(_job(), **options)
    assert caught.value.hint


def test_an_image_needs_to_know_how_the_cluster_runs_containers() -> None:
    with pytest.raises(RefusedError, match="container"):
        _plan(_job(image="lab/torch:2"))
    _plan(_job(image="lab/torch:2"), container="apptainer")


def test_a_thousand_nodes_are_planned_and_rendered(tmp_path: Path) -> None:
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
    preview = _plan(job)
    assert "#SBATCH --nodes=1024\n" in preview.text and "#SBATCH --gres=gpu:8\n" in preview.text
    assert subprocess.run(["bash", "-n"], input=preview.text, text=True, check=False).returncode == 0
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


@pytest.mark.hardening
def test_signs_of_slurms_own_pattern_in_a_path_stand_for_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINSHED_HOME", str(tmp_path / '50%j "x"'))
    (found,) = [text for text in _options(_job(), array="2") if text.startswith("--output")]
    assert found == f'--output="{tmp_path}/50%%j \\"x\\"/runs/train-preview.%a/driver.log"'


@pytest.mark.hardening
@pytest.mark.parametrize("name", ["back\\slash", "two\nlines"])
def test_a_home_that_slurm_cannot_be_told_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("TRAINSHED_HOME", str(tmp_path / name))
    with pytest.raises(RefusedError, match="no backslash and no control character"):
        _plan(_job())


LINE = "x\n#SBATCH --uid=0"


@pytest.mark.hardening
@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"gres": {"ascend": LINE}}, "gres"),
        ({"gres": {"ascend": "npu --uid=0"}}, "gres"),
        ({"partition": LINE}, "partition"),
        ({"preemptible_qos": LINE}, "preemptible_qos"),
        ({"constraint": LINE}, "constraint"),
        ({"sbatch": [LINE]}, "sbatch"),
        ({"srun": [LINE]}, "srun"),
        ({"modules": [LINE]}, "modules"),
        ({"setup": [LINE]}, "setup"),
        ({"setup": ["#SBATCH --uid=0"]}, "setup"),
        ({"python": LINE}, "python"),
        ({"python": "-c"}, "python"),
        ({"home": LINE}, "home"),
        ({"scratch": "/tmp\u2028x"}, "scratch"),
        ({"env": {"A\nB": "x"}}, "env"),
    ],
)
def test_no_value_of_a_profile_becomes_another_line_of_the_script(values: dict[str, Any], field: str) -> None:
    with pytest.raises(UsageError, match=field) as caught:
        save("lab", values)
    assert caught.value.hint and "\n" not in caught.value.message


@pytest.mark.hardening
@pytest.mark.parametrize("text", ["afterok:1\n#SBATCH --uid=0", "afterok:1 --uid=0", "afterok:$(id)", "a;b"])
def test_a_dependency_is_runs_or_jobs_and_nothing_else(text: str) -> None:
    with pytest.raises(UsageError, match="option dependency="):
        _options(_job(), dependency=text)
    assert "--dependency=afterany:12,afterok:13_2+5" in _options(
        _job(), dependency="afterany:12,afterok:13_2+5"
    )


def test_priority_and_preemptible_become_nice_qos_and_requeue() -> None:
    assert not any(option.startswith("--nice") for option in _options(_job()))
    assert "--nice=60" in _options(_job(priority=40))
    save("lab", {"qos": "normal", "preemptible_qos": "scavenger", "requeue": False})
    found = _options(_job(preemptible=True), profile="lab")
    assert "--qos=scavenger" in found and "--requeue" in found
    found = _options(_job(), profile="lab")
    assert "--qos=normal" in found and "--no-requeue" in found


def test_what_slurm_cannot_be_told_of_a_priority_is_said_in_a_note() -> None:
    notes = _plan(_job(priority=300)).plan.notes
    assert any("priority 300 has no effect" in note for note in notes)
    notes = _plan(_job(preemptible=True)).plan.notes
    assert any("preemptible" in note and "preemptible_qos" in note for note in notes)
    save("lab", {"preemptible_qos": "scavenger"})
    notes = _plan(_job(priority=40, preemptible=True), profile="lab").plan.notes
    assert not any("priority" in note or "preemptible" in note for note in notes)
