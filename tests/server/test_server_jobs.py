"""Jobs over HTTP: submitted, followed, stopped, cloned and removed by their owners, seen by no other team."""

from __future__ import annotations

import hashlib
import os
from typing import Any

import pytest

from server_api import PASSWORD, Api, Served
from support import Shed, until

pytestmark = [pytest.mark.server]
BIG = "1x600"
"""More than half of the slots that a machine has: two such jobs do not run at once."""


@pytest.fixture(scope="module")
def ann(served: Served) -> Api:
    return served.api("ann", PASSWORD)


@pytest.fixture(scope="module")
def ben(served: Served) -> Api:
    return served.api("ben", PASSWORD)


@pytest.fixture(scope="module")
def cem(served: Served) -> Api:
    return served.api("cem", PASSWORD)


@pytest.fixture(scope="module")
def ended(served: Served, ann: Api) -> str:
    """A run of ann that wrote lines and an output and has ended."""
    command = "for i in 1 2 3; do echo line $i; done; echo result > $OUT/kept.txt"
    fields = {"outputs": [{"name": "OUT", "access": "env"}]}
    run = ann.submit(command, "digits", fields=fields, labels={"sweep": "7"})
    ann.wait(run)
    # Where a node may write its outputs itself, it may lay such a link.
    (served.home / "runs" / run / "outputs/node-0/OUT/link").symlink_to("/etc/passwd")
    return run


def test_a_job_runs_and_is_shown_with_its_owner_and_team(ann: Api, ended: str) -> None:
    shown = ann.get(f"/jobs/{ended}")
    assert (shown["owner"], shown["team"], shown["state"], shown["exit_code"]) == (
        "ann",
        "red",
        "succeeded",
        0,
    )
    assert shown["labels"] == {"sweep": "7"}
    kinds = [event["kind"] for event in ann.get(f"/jobs/{ended}/events")["events"]]
    assert kinds[:3] == ["submitted", "queued", "launched"] and kinds[-1] == "finished"
    assert ann.get(f"/jobs/{ended}/plan")["nodes"]
    assert "samples" in ann.get(f"/jobs/{ended}/metrics")


def test_logs_are_read_by_range(ann: Api, ended: str) -> None:
    (log,) = ann.get(f"/jobs/{ended}/logs")["logs"]
    path = f"/jobs/{ended}/logs/{log['node']}/{log['process']}"
    whole = ann("GET", path)
    assert whole.body == b"line 1\nline 2\nline 3\n" and whole.headers["x-size"] == str(len(whole.body))
    assert ann("GET", f"{path}?offset=7&limit=6").body == b"line 2"
    assert ann("GET", f"{path}?offset=999").body == b""


def test_a_stream_goes_on_where_another_ended(ann: Api, ended: str) -> None:
    every = list(ann.events(f"/jobs/{ended}/logs/stream"))
    assert [data["text"] for _, name, data in every if name == "line"] == ["line 1", "line 2", "line 3"]
    assert every[-1][1:] == ("end", {"state": "succeeded"})
    (log,) = ann.get(f"/jobs/{ended}/logs")["logs"]
    key = f"{log['node']}/{log['process']}:0:7"
    rest = list(ann.events(f"/jobs/{ended}/logs/stream", Last_Event_ID=key))
    assert [data["text"] for _, name, data in rest if name == "line"] == ["line 2", "line 3"]


def test_a_stream_shows_lines_while_the_run_writes_them(ann: Api) -> None:
    run = ann.submit(
        "echo first; until [ -e $OUT/go ]; do sleep 0.1; done; echo last",
        "live",
        fields={"outputs": [{"name": "OUT", "access": "env"}], "timeout": "120s"},
    )
    lines = (data for _, name, data in ann.events(f"/jobs/{run}/logs/stream"))
    assert next(lines)["text"] == "first"
    assert ann("POST", f"/jobs/{run}/stop", {"reason": "seen"}).status == 202
    assert list(lines)[-1] == {"state": "stopped"}


def test_outputs_are_listed_and_read_by_range_without_following_links(ann: Api, ended: str) -> None:
    (only,) = ann.get(f"/jobs/{ended}/outputs")["files"]
    assert only["path"].endswith("kept.txt") and only["size"] == 7
    path = f"/jobs/{ended}/outputs/{only['path']}"
    whole, part = ann("GET", path), ann("GET", path, Range="bytes=3-5")
    assert (whole.status, whole.body) == (200, b"result\n")
    assert (part.status, part.body, part.headers["content-range"]) == (206, b"ult", "bytes 3-5/7")
    assert whole.headers["content-disposition"] == "attachment"
    for wrong in (
        only["path"].replace("kept.txt", "link"),
        "../job.yaml",
        "%2e%2e/job.yaml",
        "node-0",
        "gone",
    ):
        assert ann("GET", f"/jobs/{ended}/outputs/{wrong}").status == 404, wrong
    assert ann("GET", path, Range="bytes=9-").status == 400


def test_code_is_uploaded_once(ann: Api, ben: Api) -> None:
    text = f"import sys\nprint('ran', sys.argv[1:])\n# {os.urandom(8).hex()}\n".encode()
    digest = hashlib.sha256(text).hexdigest()
    body: dict[str, Any] = {
        "job": {"name": "script", "entry": "src/train.py", "parameters": {"lr": 0.1}},
        "files": {"src/train.py": {"sha256": digest}},
    }
    refused = ann("POST", "/jobs", body)
    assert (refused.status, refused.json["code"], refused.json["missing"]) == (409, "missing-files", [digest])
    assert ann("PUT", f"/files/{digest}", b"something else").status == 400
    assert ann("PUT", f"/files/{digest}", text).status == 204
    assert ann("POST", "/files/missing", [digest]).json == {"missing": []}
    run = ann("POST", "/jobs", body).json["id"]
    ann.wait(run)
    assert any(
        "--lr=0.1" in data["text"]
        for _, name, data in ann.events(f"/jobs/{run}/logs/stream")
        if name == "line"
    )
    assert ben("POST", "/files/missing", [digest]).json == {"missing": [digest]}, "a digest gives no file"
    again = ann("POST", f"/jobs/{run}/clone", {"changes": {"parameters": {"lr": 0.5}}})
    assert again.status == 202
    ann.wait(again.json["id"])
    lines = [d["text"] for _, n, d in ann.events(f"/jobs/{again.json['id']}/logs/stream") if n == "line"]
    assert any("--lr=0.5" in line for line in lines)


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", "a//b", ""])
def test_code_cannot_be_laid_outside_its_folder(ann: Api, path: str) -> None:
    empty = hashlib.sha256(b"").hexdigest()
    ann("PUT", f"/files/{empty}", b"")
    body = {"job": {"name": "job", "command": "true"}, "files": {path: {"sha256": empty}}}
    answer = ann("POST", "/jobs", body)
    assert answer.status == 400 and "invalid path" in answer.json["message"]


@pytest.mark.parametrize(
    "fields",
    [
        {"code": "/etc"},
        {"inputs": [{"name": "data", "source": "/etc"}]},
        {"inputs": [{"name": "data", "source": "file:///etc"}]},
        {"outputs": [{"name": "out", "target": "/etc"}]},
        {"log_url": "/etc"},
        {"environment": "/usr"},
        {"secrets": {"KEY": {"file": "/etc/shadow"}}},
        {"env": {"WHERE": "s3://bucket/"}},
        {"parameters": {"data_url": "obs://bucket/"}},
    ],
    ids=str,
)
def test_a_job_names_nothing_of_the_servers_machine(ann: Api, fields: dict[str, Any]) -> None:
    answer = ann("POST", "/jobs", {"job": {"name": "job", "command": "true"} | fields})
    assert (answer.status, answer.json["code"]) == (400, "refused"), answer


def test_secrets_come_from_their_owner_and_not_from_the_servers_environment(ann: Api, ben: Api) -> None:
    job = {"name": "job", "command": 'echo "length ${#KEY}"', "secrets": {"KEY": {"env": "HOME"}}}
    refused = ann("POST", "/jobs", {"job": job})
    assert refused.status == 404 and "HOME" in refused.json["message"]
    assert ann("PUT", "/secrets/HOME", {"value": "twelve-chars"}).status == 204
    run = ann("POST", "/jobs", {"job": job}).json["id"]
    ann.wait(run)
    (log,) = ann.get(f"/jobs/{run}/logs")["logs"]
    assert ann("GET", f"/jobs/{run}/logs/{log['node']}/{log['process']}").body == b"length 12\n"
    assert ben("POST", "/jobs", {"job": job}).status == 404


def test_the_same_idempotency_key_makes_one_run(ann: Api) -> None:
    body = {"job": {"name": "once", "command": "true"}}
    first, second = (ann("POST", "/jobs", body, Idempotency_Key="k1").json["id"] for _ in range(2))
    assert first == second
    other = ann("POST", "/jobs", {"job": {"name": "other", "command": "true"}}, Idempotency_Key="k1")
    assert (other.status, other.json["code"]) == (409, "conflict")
    ann.wait(first)
    assert ann("DELETE", f"/jobs/{first}").status == 204
    late = ann("POST", "/jobs", body, Idempotency_Key="k1")
    assert (late.status, late.json["code"]) == (409, "conflict"), "a removed run is not made again"


def test_a_dry_run_shows_the_plan_and_leaves_nothing(ann: Api) -> None:
    body = {"job": {"name": "planned", "command": "true"}, "dry_run": True, "shape": "2x1"}
    answer = ann("POST", "/jobs", body)
    assert answer.status == 202 and len(answer.json["plan"]["nodes"]) == 2
    assert ann.get("/jobs?name=planned")["jobs"] == []


def test_mistakes_of_a_job_are_all_told_at_once(ann: Api) -> None:
    answer = ann("POST", "/jobs", {"job": {"name": "bad name", "comand": "true"}})
    assert (answer.status, answer.json["code"]) == (400, "bad-job")
    assert "name" in answer.json["message"] and "comand" in answer.json["message"]
    never = ann("POST", "/jobs", {"job": {"name": "job", "command": "true", "resources": "9x1000"}})
    assert (never.status, never.json["code"]) == (400, "refused")


def test_jobs_wait_in_order_say_why_and_a_waiting_one_is_stopped_at_once(ann: Api) -> None:
    hold = {"resources": BIG, "timeout": "300s"}
    first = ann.submit("sleep 300", "holds", fields=hold)
    ann.wait(first, "running")
    second = ann.submit("true", "next", fields=hold)
    third = ann.submit("true", "behind", fields=hold)
    try:
        until(lambda: "needs 600 cpu devices" in ann.get(f"/jobs/{second}")["reason"], 60, "the reason")
        until(lambda: f"waits behind {second}" in ann.get(f"/jobs/{third}")["reason"], 60, "the other reason")
        assert ann.get(f"/jobs/{second}")["state"] == "pending"
        stopped = ann("POST", f"/jobs/{third}/stop").json
        assert (stopped["state"], stopped["is_queued"]) == ("stopped", False)
    finally:
        ann("POST", f"/jobs/{first}/stop")
    ann.wait(second)
    assert ann.get(f"/jobs/{first}")["state"] == "stopped"


def test_lists_are_filtered_searched_and_paged(ann: Api, ended: str) -> None:
    ids = [ann.submit("true", "paged", labels={"n": str(n)}) for n in range(3)]
    found = ann.get("/jobs?name=paged")["jobs"]
    assert [job["id"] for job in found] == ids[::-1]
    assert [job["id"] for job in ann.get("/jobs?name=paged&label=n=1")["jobs"]] == [ids[1]]
    first = ann.get("/jobs?name=paged&limit=2")
    rest = ann.get(f"/jobs?name=paged&limit=2&after={first['next']}")
    assert [job["id"] for job in (*first["jobs"], *rest["jobs"])] == ids[::-1] and rest["next"] == ""
    assert ended in [job["id"] for job in ann.get("/jobs?search=sweep=7")["jobs"]]
    assert ended in [job["id"] for job in ann.get("/jobs?state=succeeded&search=DIGITS")["jobs"]]
    assert ann("GET", "/jobs?after=nonsense").status == 400


def test_foreign_and_missing_runs_are_answered_alike_at_every_door(ben: Api, ended: str, ann: Api) -> None:
    doors = [
        ("GET", ""), ("DELETE", ""), ("POST", "/stop"), ("POST", "/clone"), ("GET", "/events"), ("GET", "/plan"),
        ("GET", "/metrics"), ("GET", "/logs"), ("GET", "/logs/0/node-0"), ("GET", "/logs/stream"),
        ("GET", "/outputs"), ("GET", "/outputs/node-0/OUT/kept.txt"),
    ]  # fmt: skip
    missing = ended[:-4] + "none"
    for method, door in doors:
        foreign, gone = (ben(method, f"/jobs/{run}{door}") for run in (ended, missing))
        assert foreign.status == gone.status == 404, (method, door, foreign)
        assert foreign.body.decode().replace(ended, "RUN") == gone.body.decode().replace(missing, "RUN")
    assert ended not in str(ben.get("/jobs?limit=200"))
    assert ben.get(f"/jobs?search={ended}")["jobs"] == [] and ben.get("/jobs?team=red")["jobs"] == []
    assert ann.get(f"/jobs/{ended}")["state"] == "succeeded"


def test_the_same_team_sees_but_only_owner_and_team_admin_change(served: Served, cem: Api) -> None:
    admin = served.api()
    assert admin("POST", "/users", {"name": "eve", "password": PASSWORD, "team": "red"}).status == 201
    eve, ann = served.api("eve", PASSWORD), served.api("ann", PASSWORD)
    run = ann.submit("sleep 300", "long", fields={"timeout": "300s"})
    assert eve.get(f"/jobs/{run}")["owner"] == "ann"
    assert eve("POST", f"/jobs/{run}/stop").status == eve("DELETE", f"/jobs/{run}").status == 403
    assert cem("POST", f"/jobs/{run}/stop").status == 202
    ann.wait(run, "stopped")
    assert ann("DELETE", f"/jobs/{run}").status == 204
    assert ann("GET", f"/jobs/{run}").status == 404
    assert not (served.home / "runs" / run).exists()
    done = {(entry["user"], entry["action"], entry["subject"]) for entry in admin.get("/audit")["entries"]}
    assert {("ann", "run.submit", run), ("cem", "run.stop", run), ("ann", "run.delete", run)} <= done


def test_a_run_started_without_the_server_is_found(served: Served) -> None:
    shed = Shed(served.home)
    run = shed.submit(shed.job("outside", command="true"))
    admin = served.api()
    until(lambda: admin("GET", f"/jobs/{run}").status == 200, 60, "the run in the index")
    assert admin.wait(run)["name"] == "outside"
    assert shed.cli("rm", run).returncode == 0
    until(lambda: admin("GET", f"/jobs/{run}").status == 404, 60, "the run gone from the index")
