"""`trainshed serve`: one process that answers http and https and turns the loop, until it is told to stop.

Stopping it ends no run: drivers are processes of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from trainshed.errors import TrainshedError
from trainshed.server import tls
from trainshed.server.api.app import make_app
from trainshed.server.platform import Platform

_CLOSING = 5
"""Seconds for requests that are under way; streams end then."""


@dataclass(frozen=True)
class ServeOptions:
    """How the server is started."""

    home: Path
    host: str = "127.0.0.1"
    port: int = 8470
    https_port: int = 8471
    database: str | None = None
    environments: Path | None = None
    rebuild: bool = False


@dataclass(frozen=True)
class Started:
    """What whoever started the server is told, once."""

    http: str
    https: str
    certificate: Path
    fingerprint: str
    first_password: str | None


def serve(options: ServeOptions, announce: Callable[[Started], None]) -> None:
    """Until SIGTERM or SIGINT."""
    _log_structured()
    platform = Platform.open(options.home, options.database, options.environments)
    lock = platform.lock()
    try:
        if options.rebuild:
            logging.getLogger(__name__).info("index rebuilt: %d runs", platform.rebuild())
        certificate, key = tls.ensure(platform.folder, options.host)
        plain, secure = _bind(options.host, options.port), _bind(options.host, options.https_port)
        password = platform.people.make_first_admin()
        platform.loop.start()
        name = _shown(options.host)
        started = Started(
            f"http://{name}:{plain.getsockname()[1]}",
            f"https://{name}:{secure.getsockname()[1]}",
            certificate,
            tls.fingerprint(certificate),
            password,
        )
        asyncio.run(_serve(platform, plain, secure, certificate, key, lambda: announce(started)))
    finally:
        platform.close()
        os.close(lock)


class _QuietServer(uvicorn.Server):
    """Leaves signals to us: two of them share the process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _serve(
    platform: Platform,
    plain: socket.socket,
    secure: socket.socket,
    certificate: Path,
    key: Path,
    announce: Callable[[], None],
) -> None:
    app = make_app(platform)
    common = {
        "lifespan": "off",
        "log_config": None,
        "access_log": False,
        "timeout_graceful_shutdown": _CLOSING,
    }
    servers = [
        _QuietServer(uvicorn.Config(app, **common)),  # type: ignore[arg-type]
        _QuietServer(
            uvicorn.Config(app, ssl_certfile=certificate, ssl_keyfile=str(key), **common)  # type: ignore[arg-type]
        ),
    ]

    def stop() -> None:
        for server in servers:
            server.should_exit = True

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    tasks = [
        asyncio.create_task(server.serve(sockets=[item]))
        for server, item in zip(servers, (plain, secure), strict=True)
    ]
    while not all(server.started for server in servers) and not any(task.done() for task in tasks):
        await asyncio.sleep(0.01)
    if all(server.started for server in servers):
        announce()
    await asyncio.gather(*tasks)


def _bind(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        item = socket.socket(family, socket.SOCK_STREAM)
        item.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        item.bind((host, port))
    except OSError as error:
        raise TrainshedError(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            "choose another --host or --port",
            code="address",
        ) from error
    item.listen(512)
    return item


def _shown(host: str) -> str:
    if host in ("0.0.0.0", "::", ""):  # noqa: S104
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host


def _log_structured() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("alembic").setLevel(logging.WARNING)


class _JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        data = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        } | getattr(record, "fields", {})
        if record.exc_info:
            data["trace"] = self.formatException(record.exc_info)
        return json.dumps(data, ensure_ascii=False)
