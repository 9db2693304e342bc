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

from trainshed.errors import TrainshedError, UsageError
from trainshed.runs.chain import VERSION as CHAIN_VERSION
from trainshed.runs.chain import is_nonce
from trainshed.tester.inbox import part_digest
from trainshed.tester.model import PART_BYTES, read_manifest, sign, upload_of

_TIMEOUT = 60.0
_ANSWER_BYTES = 64 << 20
_ROUNDS = 5


class UnreachableError(TrainshedError):
    """The Tester did not answer, or is not able to just now: worth another try."""

    code = "tester-unreachable"


class RefusedByTester(TrainshedError):
    """The Tester refused it: trying again changes nothing."""

    code = "tester-refused"


class TesterClient:
    """A connection that is opened when needed and used again while it lasts."""

    def __init__(
        self, url: str, test: str, token: str, authority: str = "", timeout: float = _TIMEOUT
    ) -> None:
        self._url, self._test, self._token = url, test, token
        self._connection = connection_to(url, authority, timeout)

    def __enter__(self) -> TesterClient:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._connection.close()

    def test(self) -> dict[str, Any]:
        """What the organiser registered."""
        return self._ask("GET", "")

    def send(self, folder: Path) -> dict[str, Any]:
        """Send a result folder to the Tester; returns its receipt. It may be sent again at any time."""
        manifest = (folder / "manifest.json").read_bytes()
        for _ in range(_ROUNDS):
            try:
                answer = self._offer(folder, manifest)
            except RefusedByTester as error:
                if error.code != "tester-no-such-upload":  # dropped while it was idle
                    raise
                continue
            if "receipt" in answer:
                return dict(answer["receipt"])
        raise UnreachableError(f"{self._url}: the result keeps arriving damaged", "check the network")

    def state(self, upload: str) -> dict[str, Any]:
        return self._ask("GET", f"/uploads/{upload}")

    def nonce(self) -> str:
        """What a run begins with that the Tester is to see; refused by a Tester of another release."""
        theirs = self._request("GET", "/api/v1/health").get("chain")
        if theirs != CHAIN_VERSION:
            text = f"{self._url} is a Tester of another release: it notes "
            text += f"chains of format {theirs!s:.20}" if theirs else "no heads of chains"
            hint = (
                f"this release makes format {CHAIN_VERSION}; use the organiser's, or make the result offline"
            )
            raise RefusedByTester(text, hint, code="tester-other-release")
        nonce = str(self._ask("POST", "/nonces", _json({"chain": CHAIN_VERSION})).get("nonce"))
        if not is_nonce(nonce):
            raise RefusedByTester(f"{self._url} gave out an invalid nonce", "ask the organiser")
        return nonce

    def head(self, nonce: str, seq: int, digest: str, closed: bool) -> float:
        """Show the Tester a head of a run's chain; gives when it came."""
        body = {"chain": CHAIN_VERSION, "seq": seq, "digest": digest, "closed": closed}
        return float(self._ask("POST", f"/nonces/{nonce}/heads", _json(body))["received"])

    def _offer(self, folder: Path, manifest: bytes) -> dict[str, Any]:
        """Begin, send what is not there, commit; the answer has a receipt, or what is still missing."""
        resource = f"/uploads/{upload_of(manifest)}"
        state = self._ask("PUT", resource, manifest, {"X-Trainshed-Signature": sign(self._token, manifest)})
        if "receipt" in state:
            return state
        for item in read_manifest(manifest, 1 << 62):
            self._file(folder / item.name, f"{resource}/files/{quote(item.name)}", state["files"][item.name],
                       item.bytes, int(state.get("part_bytes", PART_BYTES)))  # fmt: skip
        return self._ask("POST", f"{resource}/commit", b"{}", {}, again=("incomplete",))

    def _file(self, path: Path, resource: str, start: int, total: int, most: int) -> None:
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
                answer = self._ask("PATCH", resource, part, headers, again=("offset", "part-damaged"))
                start = int(answer.get("offset", start))
                best, stuck = max(best, start), 0 if start > best else stuck + 1
                if stuck > _ROUNDS:
                    raise UnreachableError(f"{self._url}: {path.name} cannot be uploaded", "it is kept")

    def _ask(
        self,
        method: str,
        resource: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        again: tuple[str, ...] = (),
    ) -> dict[str, Any]:
        """The Tester's answer about the test; refusals named in `again` are answers too."""
        path = f"/api/v1/tests/{quote(self._test, safe='')}{resource}"
        return self._request(method, path, body, headers, again)

    def _request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        again: tuple[str, ...] = (),
    ) -> dict[str, Any]:
        try:
            self._connection.request(
                method, path, body, {"Authorization": f"Bearer {self._token}", **(headers or {})}
            )
            response = self._connection.getresponse()
            text = response.read(_ANSWER_BYTES)
        except ssl.SSLCertVerificationError as error:
            raise RefusedByTester(
                f"{self._url}: {error.verify_message}", "give the Tester's CA file"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            reason = str(error) or type(error).__name__
            raise UnreachableError(f"{self._url} does not answer: {reason}", "the result is kept") from error
        except ValueError as error:
            # Its text may hold the token.
            self._connection.close()
            raise UsageError(f"{self._url}: its address or the token cannot be sent", "check both") from error
        answer = self._object(text)
        if response.status == 200 or answer.get("error") in again:
            return answer
        reason = f"{self._url}: {answer.get('message', response.reason)} (HTTP {response.status})"
        if (
            response.status >= 500
            or response.status in (408, 429)
            or answer.get("error") in ("cut-short", "offset")
        ):
            raise UnreachableError(reason, "the result is kept")
        raise RefusedByTester(
            reason,
            "ask the organiser, or change what it names",
            code=f"tester-{answer.get('error', 'refused')}",
        )

    def _object(self, text: bytes) -> dict[str, Any]:
        try:
            return dict(json.loads(text))
        except (ValueError, TypeError) as error:
            self._connection.close()
            hint = "check the address; the result is kept"
            raise UnreachableError(f"{self._url} does not answer as a Tester does", hint) from error


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode()


def connection_to(url: str, authority: str = "", timeout: float = _TIMEOUT) -> http.client.HTTPConnection:
    """A connection that is not open yet; a UsageError when address or CA file cannot be used."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        if parts.scheme not in ("http", "https") or not host:
            raise ValueError(url)
        if parts.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=timeout)
        context = ssl.create_default_context(cafile=str(Path(authority).expanduser()) if authority else None)
        return http.client.HTTPSConnection(host, port, timeout=timeout, context=context)
    except OSError as error:
        raise UsageError(
            f"CA file {authority} cannot be used: {error.strerror}", "give a PEM file"
        ) from error
    except (ValueError, http.client.InvalidURL) as error:
        raise UsageError(f"Tester {url!r} is not http(s)://HOST[:PORT]", "correct the address") from error
