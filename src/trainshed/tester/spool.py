"""The participant's spool: results wait here until the Tester has acknowledged them.

    <home>/spool/<test>-<upload>-<address>/entry.json, result/…, error.txt     waiting
    <home>/spool/sent/<test>-<upload>-<address>.json                           acknowledged, with the receipt

An entry appears whole, by one rename. A kill between the Tester's answer and our
note only means that the same result is offered once more, which the Tester
answers with the same receipt. A result acknowledged by one Tester is still sent to
another: its address is part of the name. Tokens are never kept here.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from trainshed.bench import manifest
from trainshed.errors import RefusedError, TrainshedError, UsageError
from trainshed.files import hold, write_atomic
from trainshed.home import trainshed_home
from trainshed.tester.client import RefusedByTester, TesterClient, UnreachableError, connection_to
from trainshed.tester.model import is_test_id, is_token, upload_of

TOKEN_VARIABLE = "TRAINSHED_TESTER_TOKEN"  # noqa: S105 (a variable's name)
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 30.0


@dataclass(frozen=True)
class SpooledResult:
    """A result that waits: where it goes, and the file of its token if it is not the usual one."""

    url: str
    test: str
    upload: str
    token_file: str = ""
    authority: str = ""
    kept: float = 0.0

    @property
    def name(self) -> str:
        address = hashlib.sha256(self.url.encode()).hexdigest()
        return f"{self.test}-{self.upload[:16]}-{address[:8]}"


@dataclass(frozen=True)
class Participant:
    """Who hands results in: a home that holds spool and tokens, and perhaps a token for this command alone."""

    home: Path
    token: str = field(default="", repr=False)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Participant:
        return cls(trainshed_home(environ), environ.get(TOKEN_VARIABLE, ""))

    def token_place(self, test: str) -> Path:
        return self.home / "tokens" / test

    def save_token(self, test: str, token: str) -> Path:
        """Keep a test's token in a file that only its owner can read."""
        if not is_test_id(test) or not is_token(token):
            raise UsageError("this is no test id with a token", "copy both from the organiser's message")
        path = self.token_place(test)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w") as stream:
            stream.write(token + "\n")
        path.chmod(0o600)
        return path

    def find_token(self, test: str, token_file: str = "") -> str:
        """The token of a test: from the file named, as given to this command, or where `save_token` keeps it."""
        if not token_file and self.token:
            return _one_token(self.token, TOKEN_VARIABLE)
        path = Path(token_file).expanduser() if token_file else self.token_place(test)
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
            if mode & 0o077:
                raise UsageError(f"{path} holds a token but has mode {mode:04o}", f"run: chmod 600 {path}")
            return _one_token(path.read_text("ascii", errors="replace"), str(path))
        except OSError as error:
            hint = f"set {TOKEN_VARIABLE}, or run `trainshed tester token {test}` and paste it"
            raise UsageError(f"there is no token for test {test} ({path} cannot be read)", hint) from error


class Spool:
    def __init__(self, participant: Participant) -> None:
        self._participant = participant
        self.root = participant.home / "spool"

    def keep(
        self, folder: Path, url: str, test: str, token_file: str = "", authority: str = ""
    ) -> SpooledResult:
        """Take a copy of a finished result; the same result again is the same entry."""
        if not is_test_id(test):
            raise UsageError(f"test id {test!r} is not usable", "copy it from the organiser's message")
        token_file, authority = _absolute(token_file), _absolute(authority)
        connection_to(url, authority)
        wrong = manifest.verify(folder)
        if wrong:
            raise RefusedError(f"{folder} is incomplete: {wrong[0].message}", "collect the result again")
        upload = upload_of((folder / manifest.NAME).read_bytes())
        entry = SpooledResult(url.rstrip("/"), test, upload, token_file, authority, time.time())
        kept = self.root / entry.name
        if (kept / "entry.json").exists() or self.receipt(entry) is not None:
            return entry
        part = self.root / f".{entry.name}.{secrets.token_hex(4)}"
        shutil.copytree(folder, part / "result")
        (part / "entry.json").write_text(json.dumps(asdict(entry)))
        try:
            part.rename(kept)
        except OSError:
            shutil.rmtree(part, ignore_errors=True)  # another process was first with the same result
        return entry

    def waiting(self) -> list[SpooledResult]:
        found = []
        for path in sorted(self.root.glob("*/entry.json")):
            if not path.parent.name.startswith("."):
                found.append(SpooledResult(**json.loads(path.read_text())))
        return found

    def receipt(self, entry: SpooledResult) -> dict[str, Any] | None:
        path = self.root / "sent" / f"{entry.name}.json"
        return dict(json.loads(path.read_text())) if path.exists() else None

    def problem(self, entry: SpooledResult) -> str:
        """Why the last attempt failed."""
        path = self.root / entry.name / "error.txt"
        return path.read_text() if path.exists() else ""

    def send(
        self, entry: SpooledResult, seconds: float = 300.0, tell: Callable[[str], None] | None = None
    ) -> dict[str, Any]:
        """Offer an entry until it is acknowledged, refused, or `seconds` are over."""
        deadline, pause = time.monotonic() + seconds, _FIRST_PAUSE
        with self._alone(entry):
            done = self.receipt(entry)
            if done is not None:
                return dict(done["receipt"])
            token = self._participant.find_token(entry.test, entry.token_file)
            while True:
                try:
                    with TesterClient(entry.url, entry.test, token, entry.authority) as client:
                        receipt = client.send(self.root / entry.name / "result")
                    self._acknowledged(entry, receipt)
                    return receipt
                except RefusedByTester as error:
                    self._note(entry, error)
                    raise
                except UnreachableError as error:
                    self._note(entry, error)
                    if time.monotonic() + pause > deadline:
                        hint = "it is kept; `trainshed tester resend` sends it again"
                        raise UnreachableError(error.message, hint) from error
                    if tell:
                        tell(f"{error.message}; next try in {pause:.1f} s")
                    time.sleep(pause * (0.5 + random.random() / 2))
                    pause = min(pause * 2, _LONGEST_PAUSE)

    def _acknowledged(self, entry: SpooledResult, receipt: dict[str, Any]) -> None:
        path = self.root / "sent" / f"{entry.name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps(asdict(entry) | {"receipt": receipt}, indent=1))
        folder = self.root / entry.name
        (folder / "entry.json").unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)

    def _note(self, entry: SpooledResult, error: TrainshedError) -> None:
        (self.root / entry.name / "error.txt").write_text(error.message)

    @contextmanager
    def _alone(self, entry: SpooledResult) -> Iterator[None]:
        self.root.mkdir(parents=True, exist_ok=True)
        path = self.root / f".{entry.name}.lock"
        lock = hold(path)
        if lock is None:
            raise RefusedError(f"{entry.name} is being sent by another process", "wait for it")
        try:
            yield
            path.unlink(missing_ok=True)
        finally:
            os.close(lock)


def _one_token(text: str, source: str) -> str:
    """The token that a text holds; a text that holds anything else is refused without showing it."""
    if not is_token(text.strip()):
        raise UsageError(f"{source} must contain exactly one token", "copy the token into it again")
    return text.strip()


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().resolve()) if path else ""
