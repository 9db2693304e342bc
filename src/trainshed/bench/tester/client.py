"""The participant's side of the protocol: one connection to a Tester, one result at a time.

It sends what the Tester does not have yet and knows nothing of keeping or
repeating: `spool` does that.
"""

from __future__ import annotations

import http.client
import json
import ssl
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlsplit

from trainshed.bench.tester.inbox import part_digest
from trainshed.bench.tester.model import PART_BYTES, read_manifest, sign, upload_of
from trainshed.errors import TrainshedError, UsageError

_TIMEOUT = 60.0
_ANSWER_BYTES = 64 << 20
_ROUNDS = 5


class UnreachableError(TrainshedError):
    """The Tester did not answer, or is not able to just now: worth another try."""

    code = "tester-unreachable"


class RefusedByTester(TrainshedError):
    """The Tester understood and said no: trying again changes nothing."""

    code = "tester-refused"


class Client:
    """A connection that is opened when needed and used again while it lasts."""

    def __init__(self, url: str, test: str, token: str, authority: str = "") -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"Tester {url!r} is not http(s)://HOST[:PORT]", "correct the address")
        self._url, self._test, self._token = url, test, token
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=authority or None)
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=_TIMEOUT, context=context
            )
        else:
            self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=_TIMEOUT)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._connection.close()

    def test(self) -> dict[str, Any]:
        """What the organiser registered."""
        return self._ask("GET", "")

    def send(self, folder: Path) -> dict[str, Any]:
        """Bring a result folder to the Tester; gives its receipt. It may be sent again at any time."""
        manifest = (folder / "manifest.json").read_bytes()
        upload = upload_of(manifest)
        place = f"/uploads/{upload}"
        listed = read_manifest(manifest, 1 << 62)
        headers = {"X-Trainshed-Signature": sign(self._token, manifest)}
        for _ in range(_ROUNDS):
            state = self._ask("PUT", place, manifest, headers)
            if "receipt" in state:
                return dict(state["receipt"])
            for item in listed:
                self._file(folder / item.name, f"{place}/files/{quote(item.name)}", state["files"][item.name],
                           item.bytes, int(state.get("part_bytes", PART_BYTES)))  # fmt: skip
            answer = self._ask("POST", f"{place}/commit", b"{}", {}, again=("incomplete",))
            if "receipt" in answer:
                return dict(answer["receipt"])
        raise UnreachableError(
            f"{self._url}: the result arrives damaged again and again", "check the network"
        )

    def state(self, upload: str) -> dict[str, Any]:
        return self._ask("GET", f"/uploads/{upload}")

    def _file(self, path: Path, place: str, start: int, total: int, most: int) -> None:
        best, stuck = start, 0
        with path.open("rb") as stream:
            while start < total:
                stream.seek(start)
                part = stream.read(most)
                if not part:
                    raise RefusedByTester(f"{path} is shorter than its manifest says", "collect it again")
                headers = {
                    "Content-Range": f"bytes {start}-{start + len(part) - 1}/{total}",
                    "X-Trainshed-SHA256": part_digest(part),
                }
                answer = self._ask("PATCH", place, part, headers, again=("offset", "part-damaged"))
                start = int(answer.get("offset", start))
                best, stuck = max(best, start), 0 if start > best else stuck + 1
                if stuck > _ROUNDS:
                    raise UnreachableError(f"{self._url}: {path.name} does not get through", "it is kept")

    def _ask(
        self,
        method: str,
        place: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        again: tuple[str, ...] = (),
    ) -> dict[str, Any]:
        """The Tester's answer; refusals named in `again` are answers too."""
        path = f"/api/v1/tests/{quote(self._test, safe='')}{place}"
        try:
            self._connection.request(
                method, path, body, {"Authorization": f"Bearer {self._token}", **(headers or {})}
            )
            response = self._connection.getresponse()
            answer = json.loads(response.read(_ANSWER_BYTES))
        except ssl.SSLCertVerificationError as error:
            raise RefusedByTester(
                f"{self._url}: {error.verify_message}", "give the Tester's CA file"
            ) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._connection.close()
            words = str(error) or type(error).__name__
            raise UnreachableError(f"{self._url} does not answer: {words}", "the result is kept") from None
        if response.status == 200 or answer.get("error") in again:
            return dict(answer)
        text = f"{self._url}: {answer.get('message', response.reason)} (HTTP {response.status})"
        if (
            response.status >= 500
            or response.status in (408, 429)
            or answer.get("error") in ("cut-short", "offset")
        ):
            raise UnreachableError(text, "the result is kept")
        raise RefusedByTester(text, "see docs/tester.md", code=f"tester-{answer.get('error', 'refused')}")
