"""Asks whether the servers of a table answer: a TCP connection to one port, no ping, no login.

The only part of this package that touches the network. Bounded: a server gets
`timeout` seconds and the whole check a deadline that follows from it, even
when the resolver of host names hangs (its threads are then left behind).
"""

from __future__ import annotations

import math
import queue
import socket
import threading
import time
from collections.abc import Sequence

from trainshed.ranktables.findings import Finding, Severity
from trainshed.ranktables.model import RankTable

SSH_PORT = 22
_AT_ONCE = 256
_NETWORK = "check the address, the network and the firewall"


def check_reach(table: RankTable, *, port: int = SSH_PORT, timeout: float = 2.0) -> list[Finding]:
    """One finding per server that cannot be reached; a refused connection is only a warning."""
    servers = table.server_ids
    deadline = time.monotonic() + timeout * (math.ceil(len(servers) / _AT_ONCE) + 1)
    outcomes = _try_all(servers, port, timeout, deadline)
    silent = f"did not answer on port {port} within {timeout:g} s"
    found = []
    for i, server in enumerate(servers):
        severity, what, remedy = outcomes.get(server, (Severity.ERROR, silent, _NETWORK)) or (None, "", "")
        if severity is not None:
            found.append(Finding(severity, f"servers[{i}] {server}", f"{server} {what}", remedy))
    return found


_Outcome = tuple[Severity, str, str] | None


def _try_all(servers: Sequence[str], port: int, timeout: float, deadline: float) -> dict[str, _Outcome]:
    todo: queue.SimpleQueue[str] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[str, _Outcome]] = queue.SimpleQueue()
    for server in servers:
        todo.put(server)

    def work() -> None:
        while time.monotonic() < deadline:
            try:
                server = todo.get_nowait()
            except queue.Empty:
                return
            done.put((server, _try(server, port, timeout)))

    for _ in range(min(_AT_ONCE, len(servers))):
        # Daemon threads: a resolver that never returns must not keep the process alive.
        threading.Thread(target=work, daemon=True).start()
    outcomes: dict[str, _Outcome] = {}
    while len(outcomes) < len(servers):
        try:
            server, outcome = done.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        outcomes[server] = outcome
    return outcomes


def _try(server: str, port: int, timeout: float) -> _Outcome:
    try:
        socket.create_connection((server, port), timeout=timeout).close()
    except ConnectionRefusedError:
        what = f"is there, but nothing listens on port {port}"
        return Severity.WARNING, what, "start the service or give another --port"
    except TimeoutError:
        return Severity.ERROR, f"did not answer on port {port} within {timeout:g} s", _NETWORK
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        return Severity.ERROR, f"cannot be reached on port {port}: {reason}", _NETWORK
    return None
