"""A real server for tests: `trainshed serve` in a process of its own, and a small client of its API."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from support import Shed, until

PASSWORD = "correct horse battery"


@dataclass(frozen=True)
class Answer:
    """What the server answered."""

    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Api:
    """One caller of a server."""

    url: str
    token: str = ""

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=120)
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        try:
            connection.request(
                method, f"/api/v1{path}" if path.startswith("/") else path[1:], data, self._headers(headers)
            )
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, response.read(), found)
        finally:
            connection.close()

    def root(self, path: str) -> Answer:
        """A path that is not below /api/v1."""
        return self("GET", f"!{path}")

    def get(self, path: str) -> Any:
        answer = self("GET", path)
        assert answer.status == 200, (path, answer)
        return answer.json

    def submit(self, command: str = "true", name: str = "job", **more: Any) -> str:
        body = {"job": {"name": name, "command": command} | more.pop("fields", {})} | more
        answer = self("POST", "/jobs", body)
        assert answer.status == 202, answer
        return str(answer.json["id"])

    def wait(self, run: str, state: str = "succeeded", seconds: float = 150) -> dict[str, Any]:
        shown: dict[str, Any] = {}

        def reached() -> bool:
            shown.update(self.get(f"/jobs/{run}"))
            ended = shown["exit_code"] is not None
            assert shown["state"] == state or not ended, shown
            return bool(shown["state"] == state)

        until(reached, seconds, lambda: f"{run} {state}: {shown}")
        return shown

    def events(self, path: str, **headers: str) -> Iterator[tuple[str, str, Any]]:
        """Server-sent events: id, name, data."""
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=150)
        connection.request("GET", f"/api/v1{path}", headers=self._headers(headers))
        response = connection.getresponse()
        assert response.status == 200, response.read()
        fields: dict[str, str] = {}
        try:
            for raw in response:
                line = raw.decode().rstrip("\n")
                if not line and fields:
                    yield fields.get("id", ""), fields.get("event", ""), json.loads(fields["data"])
                    fields = {}
                elif line and not line.startswith(":"):
                    name, _, value = line.partition(": ")
                    fields[name] = value
        finally:
            connection.close()

    def _headers(self, more: dict[str, str]) -> dict[str, str]:
        found = {"Content-Type": "application/json"} | {k.replace("_", "-"): v for k, v in more.items()}
        return found | ({"Authorization": f"Bearer {self.token}"} if self.token else {})


@dataclass
class Served:
    """A server that a test starts, kills and starts again."""

    home: Path
    arguments: tuple[str, ...] = ()
    process: subprocess.Popen[str] | None = None
    info: dict[str, Any] = field(default_factory=dict)
    password: str = ""

    def start(self, *more: str) -> Served:
        self.home.mkdir(exist_ok=True)
        log = (self.home.parent / "server.log").open("a")
        words = ("serve", "--port", "0", "--https-port", "0", "--json", *self.arguments, *more)
        self.process = _start(self.home, words, log)
        assert self.process.stdout
        text = ""
        while not text.rstrip().endswith("}"):
            line = self.process.stdout.readline()
            assert line, f"the server did not start: {(self.home.parent / 'server.log').read_text()[-3000:]}"
            text += line
        self.info = json.loads(text)
        self.password = self.info["admin_password"] or self.password
        return self

    def api(self, user: str = "admin", password: str = "") -> Api:
        anyone = Api(self.info["http"])
        answer = anyone("POST", "/session", {"user": user, "password": password or self.password})
        assert answer.status == 200, answer
        return Api(anyone.url, answer.json["session"])

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        return self._end(signal.SIGTERM)

    def _end(self, number: int) -> int:
        assert self.process
        self.process.send_signal(number)
        code = self.process.wait(60)
        assert self.process.stdout
        self.process.stdout.close()
        return code


def _start(home: Path, words: tuple[str, ...], log: Any) -> subprocess.Popen[str]:
    with log:
        return subprocess.Popen(
            [sys.executable, "-m", "trainshed.cli.main", *words],
            env=Shed(home).env,
            stdout=subprocess.PIPE,
            stderr=log,
            stdin=subprocess.DEVNULL,
            text=True,
        )


def add_people_by_api(admin: Api) -> None:
    """Ann and cem of team red (cem its admin), ben of team blue."""
    for team in ("red", "blue"):
        assert admin("POST", "/teams", {"name": team}).status == 201
    for name, team in (("ann", "red"), ("ben", "blue"), ("cem", "red")):
        body = {"name": name, "password": PASSWORD, "team": team}
        assert admin("POST", "/users", body).status == 201
    assert admin("PUT", "/teams/red/members/cem", {"role": "admin"}).status == 204
