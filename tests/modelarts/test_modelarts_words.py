"""ModelArts' words and ours: every state both ways, flavors, engines, and signatures as the official client makes them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from trainshed import registry
from trainshed.modelarts import catalogue
from trainshed.modelarts.signature import (
    HttpRequest,
    SignatureError,
    canonical_request,
    sign,
    timestamp,
    verify,
)
from trainshed.modelarts.states import JobPhase, JobStatus, status_name
from trainshed.runs.states import RunState

pytestmark = [pytest.mark.core, pytest.mark.contracts]
RECORDED = json.loads(
    (Path(__file__).parents[1] / "data" / "modelarts" / "signatures.json").read_text("utf-8")
)
ACCESS, SECRET = RECORDED["access_key"], RECORDED["secret_key"]
NOW = datetime(2026, 1, 31, 23, 59, 59, tzinfo=UTC)


@pytest.mark.parametrize("state", RunState)
def test_every_state_of_ours_has_a_word_in_both_versions_that_means_it(state: RunState) -> None:
    assert JobStatus.of(state).run_state is state
    assert JobStatus.of(state) is not JobStatus.MOUNT_FAILED, "clients know the first 22 only"
    # Version 2 has one word for what is lost and what cannot be read.
    meant = RunState.LOST if state is RunState.UNREADABLE else state
    assert JobPhase.of(state).run_state is meant
    assert status_name("V1", state) == f"JOBSTAT_{JobStatus.of(state).name}" and status_name(
        "V2", state
    ) == JobPhase.of(state)


@pytest.mark.parametrize("status", JobStatus)
def test_every_status_of_version_1_is_a_state_of_ours(status: JobStatus) -> None:
    assert (
        status.run_state.is_final
        == (status.name.endswith("FAILED") or status.name in ("COMPLETED", "KILLED", "CANCELED", "LOST"))
        or status is JobStatus.DELETE_FAILED
    )
    assert JobStatus.of(status.run_state).run_state is status.run_state


@pytest.mark.parametrize("phase", JobPhase)
def test_every_phase_of_version_2_is_a_state_of_ours_and_back(phase: JobPhase) -> None:
    assert JobPhase.of(phase.run_state) is phase
    assert phase.can_be_terminated == (not phase.run_state.is_final and phase is not JobPhase.TERMINATING)


def test_version_1_numbers_its_states_from_0_to_22() -> None:
    assert [status.value for status in JobStatus] == list(range(23))
    assert JobStatus(8).status_name == "JOBSTAT_RUNNING" and JobStatus(14).status_name == "JOBSTAT_LOST"


@pytest.mark.parametrize(
    ("flavor", "devices"),
    [
        *catalogue.FLAVORS.items(),
        ("modelarts.p3.large.public", None),
        ("modelarts.kat1.0xlarge", None),
        ("modelarts.kat1.8xlarge\n", None),
        ("", None),
    ],
)
def test_a_flavors_name_tells_its_devices_or_nothing(flavor: str, devices: int | None) -> None:
    assert catalogue.devices_of(flavor) == devices


def test_every_engine_leads_back_to_its_launcher() -> None:
    for launcher, (name, version) in catalogue.ENGINES.items():
        assert launcher in registry.members("launcher")
        assert catalogue.launcher_of(version, name) == launcher
        assert catalogue.is_ascend(name) == ("Ascend" in name)
    assert catalogue.launcher_of("", "Custom") is None


def recorded(name: str) -> tuple[HttpRequest, str]:
    case: dict[str, Any] = next(item for item in RECORDED["requests"] if item["name"] == name)
    request = HttpRequest(case["method"], case["target"], case["headers"], case["body"].encode())
    return request, case["authorization"]


def signed(request: HttpRequest, authorization: str) -> HttpRequest:
    return replace(request, headers={**request.headers, "Authorization": authorization})


def secret_of(access: str) -> str | None:
    return SECRET if access == ACCESS else None


@pytest.mark.parametrize("name", [item["name"] for item in RECORDED["requests"]])
def test_signatures_are_those_of_the_official_client(name: str) -> None:
    request, authorization = recorded(name)
    assert sign(request, ACCESS, SECRET) == authorization, canonical_request(request, [])
    accepts = name == "unsigned upload"
    assert verify(signed(request, authorization), secret_of, NOW, accept_unsigned_body=accepts) == ACCESS


def test_a_body_outside_the_signature_is_refused_unless_it_is_wanted() -> None:
    request, authorization = recorded("unsigned upload")
    with pytest.raises(SignatureError, match="SHA-256 of the body"):
        verify(signed(request, authorization), secret_of, NOW)


@pytest.mark.parametrize(
    "change",
    [
        {"method": "PUT"},
        {"target": "/v2/0123456789abcdef/training-jobs"},
        {"target": "/v2/0123456789abcdef/training-job-searches?all=1"},
        {"body": b'{"offset":0,"limit":50}'},
        {"headers": {"Host": "elsewhere"}},
        {"headers": {"X-Project-Id": "another"}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_was_changed_after_it_was_signed_is_refused(change: dict[str, Any]) -> None:
    request, authorization = recorded("a list")
    if "headers" in change:
        change = {"headers": {**request.headers, **change["headers"]}}
    with pytest.raises(SignatureError, match="not its own"):
        verify(signed(replace(request, **change), authorization), secret_of, NOW)


def test_an_unknown_access_key_and_a_wrong_secret_get_the_same_answer() -> None:
    request, authorization = recorded("a list")
    stranger = signed(request, authorization.replace(ACCESS, "STRANGER"))
    wrong = signed(request, sign(request, ACCESS, "another secret"))
    told = []
    for attempt in (stranger, wrong):
        with pytest.raises(SignatureError) as refused:
            verify(attempt, secret_of, NOW)
        told.append(str(refused.value))
    assert told[0] == told[1] and SECRET not in told[0]


@pytest.mark.parametrize("apart", [timedelta(minutes=16), timedelta(minutes=-16)])
def test_a_request_of_another_time_is_refused(apart: timedelta) -> None:
    request, authorization = recorded("no body")
    with pytest.raises(SignatureError, match="clock"):
        verify(signed(request, authorization), secret_of, NOW + apart)
    dated = replace(request, headers={**request.headers, "X-Sdk-Date": timestamp(NOW + apart)})
    assert verify(signed(dated, sign(dated, ACCESS, SECRET)), secret_of, NOW + apart) == ACCESS


@pytest.mark.parametrize(
    "text", ["", "Basic abc", "SDK-HMAC-SHA256 Access=a, SignedHeaders=host, Signature=zz"]
)
def test_what_is_no_signature_is_said_to_be_none(text: str) -> None:
    request, _ = recorded("no body")
    with pytest.raises(SignatureError, match="no signature"):
        verify(signed(request, text), secret_of, NOW)


@pytest.mark.parametrize("name", ["host", "x-sdk-date"])
def test_host_and_date_must_be_signed(name: str) -> None:
    request, authorization = recorded("no body")
    names = authorization.partition("SignedHeaders=")[2].partition(",")[0]
    fewer = ";".join(item for item in names.split(";") if item != name)
    with pytest.raises(SignatureError, match=f"does not cover the header {name}"):
        verify(signed(request, authorization.replace(names, fewer)), secret_of, NOW)
    bare = replace(request, headers={k: v for k, v in request.headers.items() if k.lower() != name})
    with pytest.raises(SignatureError, match=name):
        sign(bare, ACCESS, SECRET)
