"""`log/stub.log`, in the rendering of ais-bench: `[2022-7-13 11:27:19][INFO]text`."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path


class StubLog:
    """Every line goes to the file and to whoever shows it, at once."""

    def __init__(self, path: Path, show: Callable[[str], None]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._show = path, show

    def info(self, text: str) -> None:
        self._line("INFO", text)

    def warning(self, text: str) -> None:
        self._line("WARNING", text)

    def error(self, text: str) -> None:
        self._line("ERROR", text)

    def _line(self, level: str, text: str) -> None:
        line = f"{stamp(time.time())}[{level}]{text}"
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(line + "\n")
        self._show(line)


def stamp(moment: float) -> str:
    """`[2022-7-13 11:27:19]`: month and day without a leading zero."""
    now = time.localtime(moment)
    return f"[{now.tm_year}-{now.tm_mon}-{now.tm_mday} {time.strftime('%H:%M:%S', now)}]"


class TransmitServer:
    """Answers every connection with one line of JSON: what the stubs are doing. It takes nothing in."""

    def __init__(self, address: tuple[str, int], state: Callable[[], dict[str, object]]) -> None:
        self._state = state
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind(address)
        except OSError:
            self._socket.bind((address[0], 0))
        self._socket.listen(8)
        self.host, self.port = self._socket.getsockname()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._socket.close()
        self._thread.join(5.0)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            try:
                connection.settimeout(2.0)
                connection.sendall(json.dumps(self._state()).encode() + b"\n")
            except OSError:
                pass
            finally:
                connection.close()
