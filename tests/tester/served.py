"""A Tester in a thread of the test, a result to send, and plain HTTP requests to it."""

from __future__ import annotations

import atexit
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import made

from trainshed.tester.client import TesterClient
from trainshed.tester.model import Test
from trainshed.tester.server import HttpServer
from trainshed.tester.service import TesterService
from trainshed.tester.verify import Checker


class KeptChecker(Checker):
    """One helper process for all tests of a session: starting it is most of its time."""

    def close(self) -> None:
        return


CHECKER = KeptChecker()
WORKLOAD = made.made_workload().model_dump_json()
atexit.register(Checker.close, CHECKER)


class Served:
    """A running Tester and the tokens of its tests."""

    def __init__(self, root: Path, max_bytes: int = 1 << 30, port: int = 0) -> None:
        self.tester = TesterService(root, max_bytes)
        self.tester.checkers = [CHECKER] * len(self.tester.checkers)
        self.log: list[str] = []
        self.server = HttpServer(self.tester, ("127.0.0.1", port), self.log.append)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.tokens: dict[str, str] = {}

    def add(self, name: str, **fields: Any) -> str:
        values = {"model": "made", "object": "cluster", "division": "open", "workload": WORKLOAD} | fields
        self.tokens[name] = self.tester.ledger.add_test(Test(name, **values))
        return self.tokens[name]

    def ask(
        self, method: str, path: str, body: bytes | None = None, token: str = "", **headers: str
    ) -> tuple[int, dict[str, Any], str]:
        """Status, JSON (if it is), text."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            sent["Authorization"] = f"Bearer {token}"
        connection.request(method, path, body, sent)
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        try:
            return response.status, json.loads(text), text
        except ValueError:
            return response.status, {}, text

    def findings(self, test: str, folder: Path) -> dict[str, str]:
        """Send a result for a test and give what was found wrong with it: code → message."""
        with TesterClient(self.url, test, self.tokens.get(test) or self.add(test)) as client:
            upload = client.send(folder)["upload"]
        until(lambda: self.tester.state(test, upload)["state"] != "received")
        return {f["code"]: f["message"] for f in self.tester.state(test, upload)["receipt"]["findings"]}

    def judged(self, test: str, count: int = 1) -> None:
        until(lambda: sum(r.state != "received" for r in self.tester.ledger.results(test)) >= count)


@contextmanager
def serving(root: Path, max_bytes: int = 1 << 30, port: int = 0) -> Iterator[Served]:
    served = Served(root, max_bytes, port)
    served.tester.start()
    thread = threading.Thread(target=served.server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield served
    finally:
        served.server.shutdown()
        served.server.server_close()
        served.tester.stop()
        thread.join(10)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
