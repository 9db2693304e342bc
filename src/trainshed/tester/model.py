"""What the Tester speaks of: tests, stored results, and the limits of what it takes.

Data and their checks only; nothing here touches a file, a database or a network.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from dataclasses import asdict, dataclass, field
from typing import Any

from trainshed.errors import TrainshedError, UsageError

PROTOCOL = 1
PART_BYTES = 4 << 20
"""The largest part of a file in one request."""
MANIFEST_BYTES = 4 << 20
HEAD_BYTES = 1 << 10
MAX_FILES = 10_000
NAMES = {"manifest.json", "manifest.json.part"}

_TEST_ID = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_UPLOAD = re.compile(r"^[0-9a-f]{64}\Z")
_SHA256 = _UPLOAD
_TOKEN = re.compile(r"[!-~]{1,200}")
_DIVISIONS = {"close": "closed", "closed": "closed", "open": "open"}


class Refusal(TrainshedError):
    """A request the Tester does not serve, with the HTTP status that says so."""

    def __init__(self, status: int, code: str, message: str, **details: Any) -> None:
        super().__init__(message, code=code)
        self.status, self.details = status, details


@dataclass(frozen=True)
class Test:
    """One test that an organiser has registered for one participant."""

    id: str
    mode: str = "training"
    model: str = ""
    division: str = "closed"
    scenario: str = "generic"
    object: str = "single"
    participant: str = ""
    rules: str = ""
    """rules.json of the organiser, which a result must match exactly; or nothing."""
    max_results: int = 20
    created: float = 0.0
    closed: bool = False
    workload: str = ""
    """The organiser's copy of the workload, as JSON: its rules for a result's framework, scale and shape count."""
    attested: bool = False
    """Whether results must have been made under the Tester's eyes: with its nonces, sending heads meanwhile."""

    __test__ = False

    def public(self) -> dict[str, Any]:
        copy = json.loads(self.workload) if self.workload else {}
        named = {name: copy.get(name, "") for name in ("name", "version")} if copy else None
        return asdict(self) | {"rules": json.loads(self.rules) if self.rules else None, "workload": named}


@dataclass(frozen=True)
class Stored:
    """A result that has arrived whole, and what the Tester found out about it."""

    test: str
    upload: str
    received: float
    files: int
    bytes: int
    signature: str
    state: str = "received"
    """received (not yet checked) | valid | unstable (nothing is wrong, but the runs differ too much) | failed"""
    findings: tuple[dict[str, str], ...] = ()
    summary: dict[str, Any] = field(default_factory=dict)

    def public(self) -> dict[str, Any]:
        return asdict(self) | {"findings": list(self.findings)}


@dataclass(frozen=True)
class ManifestFile:
    """One file that a manifest promises."""

    name: str
    sha256: str
    bytes: int


def checked_test(test: Test) -> Test:
    """The test with normalised values, or a UsageError that names the field."""
    if not _TEST_ID.match(test.id):
        raise UsageError(f"test id {test.id!r} is not usable", "use letters, digits, '-', '_' and '.'")
    for name, allowed in (("mode", ("training", "inference")), ("object", ("single", "cluster"))):
        if getattr(test, name) not in allowed:
            raise UsageError(f"{name} {getattr(test, name)!r} is not known", f"use {' or '.join(allowed)}")
    if test.division.lower() not in _DIVISIONS:
        raise UsageError(f"division {test.division!r} is not known", "use closed or open")
    for name in ("model", "scenario", "participant"):
        text = getattr(test, name)
        if len(text) > 100 or not text.isprintable():
            raise UsageError(f"{name} is longer than 100 characters or not printable", "shorten it")
    if not test.model:
        raise UsageError("model is empty", "name the model, such as resnet50_v1.5")
    if not 1 <= test.max_results <= 1000:
        raise UsageError(f"max_results {test.max_results} is not between 1 and 1000", "change it")
    return Test(**(asdict(test) | {"division": normal_division(test.division)}))


def normal_division(text: str) -> str:
    """closed or open, whatever the spelling (ais-bench writes `close`)."""
    return _DIVISIONS.get(text.lower(), text)


def read_manifest(raw: bytes, max_bytes: int) -> tuple[ManifestFile, ...]:
    """The files a manifest promises; a Refusal when it asks for what must not be."""
    try:
        files = json.loads(raw)["files"]
        listed = tuple(
            ManifestFile(str(name), str(item["sha256"]), int(item["bytes"]))
            for name, item in sorted(files.items())
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise Refusal(400, "manifest", f"the manifest cannot be read: {type(error).__name__}") from error
    if not 1 <= len(listed) <= MAX_FILES:
        raise Refusal(413, "too-many-files", f"a result has 1 to {MAX_FILES} files, this one {len(listed)}")
    for item in listed:
        if not _safe(item.name) or not _SHA256.match(item.sha256) or item.bytes < 0:
            raise Refusal(400, "manifest", f"the manifest's entry {item.name[:100]!r} is not usable")
    names = {item.name for item in listed}
    for name in names:
        parts = name.split("/")
        if any("/".join(parts[:i]) in names for i in range(1, len(parts))):
            raise Refusal(400, "manifest", f"{name[:100]!r} is below a file")
    total = sum(item.bytes for item in listed)
    if total > max_bytes:
        raise Refusal(413, "too-large", f"the result has {total} bytes, the Tester takes {max_bytes}")
    return listed


def is_test_id(text: str) -> bool:
    return bool(_TEST_ID.match(text))


def is_upload(text: str) -> bool:
    return bool(_UPLOAD.match(text))


def is_token(text: str) -> bool:
    """Whether a text can travel as a token: one word of printable ASCII."""
    return bool(_TOKEN.fullmatch(text))


def same(left: str, right: str) -> bool:
    """Whether two texts are equal, found in a time that does not tell where they differ."""
    return hmac.compare_digest(left.encode(), right.encode())


def plain(text: str, most: int) -> str:
    """A participant's text as pages and exports can show it: one line, nothing invisible, bounded."""
    return "".join(
        " " if letter.isspace() else letter if letter.isprintable() else "\ufffd" for letter in text[:most]
    )


def upload_of(manifest: bytes) -> str:
    """The name of a result: the SHA-256 of its manifest. The same result has the same name, always."""
    return hashlib.sha256(manifest).hexdigest()


def sign(token: str, manifest: bytes) -> str:
    return hmac.new(token.encode(), manifest, hashlib.sha256).hexdigest()


def token_hash(token: str) -> str:
    # A token is 32 random bytes, so one round is enough: there is nothing to guess.
    return hashlib.sha256(b"trainshed-tester-token\0" + token.encode()).hexdigest()


def _safe(name: str) -> bool:
    if (
        not name
        or len(name.encode("utf-8", "surrogatepass")) > 1000
        or "\\" in name
        or not name.isprintable()
    ):
        return False
    parts = name.split("/")
    return parts[-1] not in NAMES and all(
        part not in ("", ".", "..") and len(part.encode()) <= 200 for part in parts
    )
