"""Whole runs on a real Slurm: results, failures, stops, secrets, arrays, dependencies, devices."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from slurm_site import Site

from support import ENVIRONMENTS, ROOT, processes_of, until
from trainshed import registry
from trainshed.engines.cluster import guard
from trainshed.engines.slurm.profile import save
from trainshed.runs.events import Kind
from trainshed.runs.states import RunState
from trainshed.spec.load import load_job

pytestmark = [pytest.mark.slurm, pytest.mark.real]

HELLO = """
import os, socket
print("rank", os.environ["TRAINSHED_RANK"], "on", socket.gethostname(), sorted(os.listdir("/tmp")))
for name in ("node1", "node2", "node3", "node4"):
    try:
        print(name, socket.gethostbyname(name))
    except OSError:
        pass
"""
ENDLESS = """
import signal, sys, time, os
out = os.environ.get("TRAINSHED_OUTPUT_DIR")
def leave(*_):
    if out:
        open(f"{out}/last-words", "w").write("saved")
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print("working", flush=True)
while True:
    time.sleep(0.05)
"""


def _log(run_path: Path, rank: int) -> str:
    (path,) = run_path.glob(f"node-*/rank-{rank}.log")
    return path.read_text()


JOBS = {
    "mindspore": ("mindspore-digits", {"parameters": {"epochs": 1, "target": 0.5}}),
    "pytorch": ("pytorch-digits", {"parameters": {"epochs": 1, "target": 0.5}}),
    "paddle": ("modelarts-paddle-fleet/job.yaml", {}),
    "horovod": ("apulis-horovod/job.yaml", {}),
}


@pytest.mark.parametrize("environment", JOBS)
def test_the_job_files_that_run_locally_run_unchanged(site: Site, environment: str) -> None:
    if not (ENVIRONMENTS / environment).exists():
        pytest.skip(f"trainshed env create {environment}")
    if not (ROOT / "examples/data/digits").exists():
        subprocess.run([sys.executable, ROOT / "examples/data/make_digits.py"], check=True)
    path, changes = JOBS[environment]
    run = site.submit(load_job(ROOT / "examples" / path, changes))
    ended = site.wait(run, 200)
    assert ended.state is RunState.SUCCEEDED, (ended.reason, site.driver_log(run))
    plan = run.plan_json()
    assert len(plan["nodes"]) == 2 and plan["isolated"]
    logs = "".join(path.read_text() for path in run.path.glob("node-*/*.log"))
    assert re.search(r"rank [23] of 4: (sum of ranks (6(\.0)?), expected \2|.*weights agree)", logs), logs[
        -3000:
    ]


@pytest.mark.parametrize("contract", registry.members("contract"))
def test_every_contract_finds_its_paths_on_the_nodes(site: Site, contract: str) -> None:
    (site.folder / "data").mkdir()
    (site.folder / "data/x").write_text("content")
    job = site.job(
        "import os, sys; at = [a.partition('=')[2] for a in sys.argv if a.startswith('--data_url=')]\n"
        "print('read', open(at[0] + '/x').read(), 'in', os.getcwd())",
        contract=contract,
        inputs=[{"name": "data_url", "source": str(site.folder / "data")}],
        outputs=[{"name": "train_url"}],
        resources="2x2",
    )
    run = site.submit(job)
    ended = site.wait(run)
    assert ended.state is RunState.SUCCEEDED, (ended.reason, site.driver_log(run))
    plan = run.plan_json()
    assert plan["contract"] == contract
    folders = [process["cwd"] for node in plan["nodes"] for process in node["processes"]]
    assert [_log(run.path, rank) for rank in range(4)] == [f"read content in {f}\n" for f in folders]
    assert {node["name"] for node in plan["nodes"]} <= set(site.cluster.names)


def test_nodes_have_names_addresses_ports_and_folders_of_their_own(site: Site) -> None:
    run = site.submit(site.job(HELLO))
    assert site.wait(run).state is RunState.SUCCEEDED
    nodes = run.plan_json()["nodes"]
    assert len({node["address"] for node in nodes}) == 2
    first, second = _log(run.path, 0), _log(run.path, 1)
    # Of the machine's own /tmp a node sees no more than what is there and it needs: the checkout, the test's
    # home, and where inputs are kept for later runs.
    needed = {path.parts[2] for path in (ROOT, site.folder) if path.parts[1] == "tmp"}
    needed.add(f"trainshed-{os.getuid()}")
    for rank, text in enumerate((first, second)):
        name, _, seen = text.splitlines()[0].partition(" on ")[2].partition(" ")
        assert name == nodes[rank]["name"] and set(json.loads(seen.replace("'", '"'))) <= needed
    assert f"{nodes[1]['name']} {nodes[1]['address']}" in first
    assert not list(Path(f"/tmp/trainshed-{os.getuid()}").glob(f"{run.id}*")), "scratch is cleared"


def test_without_isolation_paths_move_below_a_scratch_folder(site: Site) -> None:
    run = site.submit(site.job("import os; print('home', os.environ['HOME'])"), isolation="plain")
    assert site.wait(run).state is RunState.SUCCEEDED
    assert f"/{run.id}/node-1/home/trainshed" in _log(run.path, 1)


def test_devices_are_those_slurm_gave_the_job(site: Site) -> None:
    script = "import os; print('devices', os.environ['ASCEND_VISIBLE_DEVICES'])"
    busy = site.submit(site.job(ENDLESS, "busy", resources="2x2:ascend"), nodelist="node[1-2]")
    site.wait_log(busy, "working")
    run = site.submit(site.job(script, resources="2x2:ascend"), nodelist="node[1-2]")
    assert site.wait(run).state is RunState.SUCCEEDED, site.driver_log(run)
    site.stop(busy, "enough")
    site.wait(busy)
    taken = [node["env"]["ASCEND_VISIBLE_DEVICES"] for node in busy.plan_json()["nodes"]]
    assert taken == ["0,1", "0,1"]
    assert "devices 2,3" in _log(run.path, 0) and "devices 2,3" in _log(run.path, 2)


def test_a_failing_rank_gives_its_exit_code_and_last_words(site: Site) -> None:
    run = site.submit(
        site.job("import os, sys; print('I give up'); sys.exit(int(os.environ['TRAINSHED_RANK']) * 7)")
    )
    ended = site.wait(run)
    assert (ended.state, ended.exit_code) == (RunState.FAILED, 7)
    assert ended.outcome and ended.outcome.failure and "I give up" in ended.outcome.failure.last_lines
    asking = ("squeue", "-h", "-t", "all", "-o", "%T", "-j", site.number(run))
    until(
        lambda: site.cluster.look(*asking) == "FAILED",
        20,
        "the same end in Slurm, on which dependencies rest",
    )


def test_a_failed_attempt_is_tried_again_with_fresh_ports_and_its_log_kept(site: Site) -> None:
    script = (
        "import os, sys; f = os.environ['MARK']; seen = os.path.exists(f); open(f, 'a');"
        "print('port', os.environ['MASTER_PORT']); sys.exit(not seen)"
    )
    mark = site.folder / "home" / "mark"
    run = site.submit(
        site.job(script, retries=1, resources="1x1", env={"MARK": str(mark)}, launcher="pytorch"),
        isolation="plain",
    )
    ended = site.wait(run)
    assert (ended.state, ended.attempt) == (RunState.SUCCEEDED, 2), site.driver_log(run)
    earlier, later = ((run.node(0) / f"rank-0{mark}.log").read_text() for mark in (".attempt-1", ""))
    # Leased again by each attempt, which may well give the same ones: the first has let go of them.
    assert earlier.startswith("port ") and later.startswith("port ") and earlier != later


def test_stop_lets_ranks_save_and_frees_the_nodes(site: Site) -> None:
    run = site.submit(site.job(ENDLESS, outputs=[{"name": "out"}]))
    site.wait_log(run, "working")
    site.stop(run, "no longer needed")
    ended = site.wait(run, 30)
    assert (ended.state, ended.reason) == (RunState.STOPPED, "no longer needed")
    assert (run.path / "outputs/node-1/out/last-words").read_text() == "saved"


def test_scancel_by_hand_is_told_as_what_it_is(site: Site) -> None:
    run = site.submit(site.job(ENDLESS, outputs=[{"name": "out"}]))
    site.wait_log(run, "working")
    site.cluster.ask("scancel", site.number(run))
    ended = site.wait(run, 40)
    assert ended.state is RunState.STOPPED and "scancel" in ended.reason
    assert (run.path / "outputs/node-0/out/last-words").read_text() == "saved"


def test_a_waiting_run_tells_why_and_can_be_stopped(site: Site) -> None:
    full = site.submit(site.job(ENDLESS, "full", resources="4x1"), exclusive="yes", time="1h")
    site.wait_log(full, "working")
    run = site.submit(site.job(HELLO, resources="1x1"), time="5m")
    until(lambda: "busy" in site.state(run).reason, 30, "a reason in plain words")
    assert site.state(run).state is RunState.PENDING
    until(lambda: "expected to start 20" in site.state(run).reason, 30, "an estimated start")
    site.stop(run, "changed my mind")
    ended = site.wait(run, 20)
    assert (ended.state, ended.reason) == (RunState.STOPPED, "changed my mind")
    by_hand = site.submit(site.job(HELLO, resources="1x1"))
    site.cluster.ask("scancel", site.number(by_hand))
    assert "scancel" in site.wait(by_hand, 20).reason
    site.stop(full, "enough")
    assert site.wait(full, 30).state is RunState.STOPPED


def test_a_killed_driver_ends_in_a_true_state(site: Site) -> None:
    run = site.submit(site.job(ENDLESS))
    site.wait_log(run, "working")
    drivers = [pid for pid, line in processes_of(run.id).items() if "slurm.driver" in line]
    (driver,) = [pid for pid in drivers if Path(f"/proc/{pid}/comm").read_text().strip() != guard.NAME]
    os.kill(driver, signal.SIGKILL)
    ended = site.wait(run, 60)
    assert ended.state is RunState.FAILED and "driver" in ended.reason


def test_secrets_reach_ranks_and_are_left_nowhere(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "hush-hush-7781")
    script = "import os, time\nprint(len(os.environ['KEY']), flush=True)\n"
    script += "while not os.path.exists(os.environ['TRAINSHED_METRICS_DIR'] + '/go'): time.sleep(0.05)\n"
    run = site.submit(site.job(script, secrets={"KEY": {"env": "MY_KEY"}}))
    handed = site.folder / "home/submissions" / f"{run.id}.json"
    assert handed.stat().st_mode & 0o777 == 0o600
    assert "hush" not in site.cluster.ask("scontrol", "write", "batch_script", site.number(run), "-")
    site.wait_log(run, "14")
    living = processes_of(run.id).values()
    assert living and not any("hush-hush" in line for line in living)
    for node in (0, 1):
        (run.node(node) / "reports" / "go").touch()
    assert site.wait(run).state is RunState.SUCCEEDED
    assert not handed.exists()
    written = [path for path in (site.folder / "home").rglob("*") if path.is_file()]
    assert not any(b"hush-hush" in path.read_bytes() for path in written)
    state = [path for path in site.cluster.folder.rglob("*") if path.is_file()]
    assert not any(b"hush-hush" in _bytes(path) for path in state), "Slurm keeps no copy either"


def _bytes(path: Path) -> bytes:
    """What the file holds; nothing if Slurm has removed it since it was listed."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def test_three_benchmark_runs_are_one_array_with_a_directory_each(site: Site) -> None:
    job = site.job("import os; print('run', os.environ['TRAINSHED_RUN_ID'])", "bench", resources="1x1")
    first = site.client.submit(job, engine="slurm", options={"array": "3%2"})
    runs = [site.client.get(name).directory for name in first.array]
    assert len(runs) == 3 and len({site.number(run).split("_")[0] for run in runs}) == 1
    for run in runs:
        assert site.wait(run).state is RunState.SUCCEEDED
        assert f"run {run.id}" in _log(run.path, 0)
    many = site.client.start(site.client.request(job, count=2), "slurm")
    assert [site.wait(run.directory).state for run in many] == [RunState.SUCCEEDED] * 2


def test_a_run_waits_for_another_and_never_starts_when_that_fails(site: Site) -> None:
    bad = site.submit(site.job("raise SystemExit(3)", "bad", resources="1x1"))
    after = site.submit(site.job(HELLO, "after", resources="1x1"), dependency=bad.id)
    assert site.wait(bad).exit_code == 3
    ended = site.wait(after, 40)
    assert ended.state is RunState.STOPPED and not any(e.kind is Kind.ATTEMPT for e in after.events())
    assert "did not succeed" in ended.reason


def test_a_profile_changes_the_job_and_not_the_job_file(site: Site) -> None:
    values = {"partition": "high", "env": {"SITE": "lab"}, "setup": ["export PATH=/lab/bin:$PATH"]}
    save("lab", values, site.client.home)
    script = "import os; print(os.environ['SITE'], os.environ['PATH'], os.environ['SLURM_JOB_PARTITION'])"
    run = site.submit(site.job(script, resources="1x1"), profile="lab")
    assert site.wait(run).state is RunState.SUCCEEDED, site.driver_log(run)
    found = _log(run.path, 0)
    assert found.startswith("lab ") and "/lab/bin:" in found and found.strip().endswith(" high")


def test_what_slurm_refuses_leaves_nothing_behind(site: Site) -> None:
    from trainshed.errors import RefusedError

    with pytest.raises(RefusedError, match=r"(?i)partition"):
        site.submit(site.job(HELLO), partition="nowhere")
    assert not list((site.folder / "home/runs").iterdir())


def test_of_several_jobs_those_before_a_refused_one_run_and_it_is_named(site: Site) -> None:
    from trainshed.errors import RefusedError

    asked = [site.request(site.job(HELLO, f"good-{i}", resources="1x1")) for i in range(2)]
    asked.append(site.request(site.job(HELLO, "bad", resources="1x1"), partition="nowhere"))
    asked += [site.request(site.job(HELLO, f"late-{i}", resources="1x1")) for i in range(20)]
    started = []
    with pytest.raises(RefusedError, match=r"^job bad: .*(?i:partition)"):
        started.extend(run.directory for runs in site.client.start_each(asked, "slurm") for run in runs)
    assert {run.path for run in started} == set((site.folder / "home/runs").iterdir())
    assert len(started) < len(asked) - 1, "none is begun after the refusal"
    assert [site.wait(run).state for run in started] == [RunState.SUCCEEDED] * len(started)


def test_an_interface_that_a_node_lacks_is_named(site: Site) -> None:
    run = site.submit(site.job(HELLO), interface="ib7")
    ended = site.wait(run)
    assert ended.state is RunState.FAILED and "ib7" in ended.reason and "cannot be used" in ended.reason
    run = site.submit(site.job(HELLO), interface="lo")
    assert site.wait(run).state is RunState.SUCCEEDED


def test_doctor_finds_the_cluster_and_what_is_missing(site: Site) -> None:
    found = {check.name: check for check in site.client.describe("slurm")}
    assert found["controller"].good and "22.05" in found["controller"].found
    assert found["GRES npu"].good and not found["GRES gpu"].good and "gres.nvidia" in found["GRES gpu"].remedy
    assert "off" in found["accounting"].found


def test_two_hundred_jobs_submitted_at_once_all_have_a_true_state(site: Site) -> None:
    job = site.job("print('small')", "small", resources="1x1", code=None, entry=None, command="true")
    started = site.client.start_each([site.request(job)] * 200, "slurm")
    runs = [run.directory for runs in started for run in runs]
    assert len({site.number(run) for run in runs}) == 200
    until(
        lambda: sum(site.state(run).state is RunState.SUCCEEDED for run in runs) >= 3, 60, "three successes"
    )
    known = {site.state(run).state for run in runs}
    assert known <= {RunState.PENDING, RunState.PREPARING, RunState.RUNNING, RunState.SUCCEEDED}
    # Two cores would take minutes for all of them: the rest is taken back, as a user may do.
    site.cluster.ask("scancel", "--state=PENDING", f"--user={os.getuid()}")
    until(lambda: all(site.state(run).state.is_final for run in runs), 90, "an end of each")
    ends = {site.state(run).state for run in runs}
    assert ends == {RunState.SUCCEEDED, RunState.STOPPED}


def test_a_job_with_an_image_runs_in_it_on_every_node(site: Site, image: str) -> None:
    script = "hostname; ls /usr 2>&1; echo $MARK $TRAINSHED_RANK; echo made > $TRAINSHED_OUTPUT_DIR/file"
    fields = {"entry": None, "command": script, "image": image, "env": {"MARK": "marked"}}
    run = site.submit(site.job("", outputs=[{"name": "out"}], **fields), container="podman")
    ended = site.wait(run)
    assert ended.state is RunState.SUCCEEDED, (ended.reason, site.driver_log(run))
    for index in (0, 1):
        text = (run.node(index) / f"node-{index}.log").read_text()
        assert "marked" in text and "No such file" in text
        assert (run.path / f"outputs/node-{index}/out/file").read_text() == "made\n"


def test_nothing_of_an_image_job_is_left_when_it_is_stopped(site: Site, image: str) -> None:
    job = site.job("", entry=None, command="echo working; sleep 300", image=image, grace=1)
    run = site.submit(job, container="podman")
    until(lambda: any("working" in p.read_text() for p in run.path.glob("node-*/node-*.log")), 60)
    site.stop(run, "enough")
    assert site.wait(run).state is RunState.STOPPED
    listed = subprocess.run(
        ["podman", "ps", "-a", "--format", "{{.Labels}}"], capture_output=True, text=True, check=True
    )
    assert run.id not in listed.stdout
