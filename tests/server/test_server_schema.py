"""The API is as its description says: no request makes the server fail, no answer is undescribed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from server_api import PASSWORD, Api, Served

pytestmark = [pytest.mark.server]


@pytest.mark.parametrize("user", ["admin", "ann"])
@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_no_request_makes_the_server_fail(tmp_path: Path, database_url: str, user: str) -> None:
    served = Served(tmp_path / "home", ("--database", database_url)).start()
    try:
        admin = served.api()
        admin("POST", "/teams", {"name": "red"})
        admin("POST", "/users", {"name": "ann", "password": PASSWORD, "team": "red"})
        api = served.api(user, PASSWORD if user == "ann" else "")
        # A token outlives what the requests do to sessions.
        headers = ["-H", f"Authorization: Bearer {api('POST', '/tokens', {}).json['token']}"]
        command = [
            Path(sys.executable).parent / "schemathesis", "run", f"{served.info['http']}/api/openapi.json", *headers,
            "--checks", "not_a_server_error,status_code_conformance,response_schema_conformance",
            "--phases", "examples,coverage,fuzzing", "--max-examples", "3", "--generation-deterministic",
            "--no-shrink", "--no-color", "--request-timeout", "60",
            "--suppress-health-check", "all", "--continue-on-failure",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=280)
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-1000:]
        assert admin.root("/healthz").status == 200
    finally:
        served.stop()
    log = (tmp_path / "server.log").read_text()
    assert '"level": "error"' not in log, log[-3000:]


def test_nobody_gets_anything_without_a_credential(served: Served) -> None:
    anyone = Api(served.info["http"])
    paths = anyone.root("/api/openapi.json").json["paths"]
    operations = [(method, path) for path, methods in paths.items() for method in methods]
    assert len(operations) > 40
    public = {("get", "/healthz"), ("get", "/readyz"), ("get", "/metrics"), ("post", "/api/v1/session")}
    values = {"digest": "0" * 64, "node": "0", "kind": "cpu"}
    for method, path in operations:
        real = re.sub(r"\{(\w+)\}", lambda match: values.get(match[1], "some"), path)
        answer = anyone(method.upper(), f"!{real}", {})
        if (method, path) in public:
            assert answer.status in (200, 422), (method, path, answer)
        else:
            assert (answer.status, answer.json["code"]) == (401, "unauthenticated"), (method, path, answer)
