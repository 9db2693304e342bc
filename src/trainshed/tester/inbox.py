"""Results on their way in: parts on disk, whole results moved to their place in one step.

    staging/<test>/<upload>/    manifest.json, signature, files/…   (may be incomplete)
    results/<test>/<upload>/    a whole result folder, as it was sent

How much of a file has arrived is its size on disk, so that nothing has to be
kept in step. It knows no HTTP and does not judge a result.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from trainshed.bench.manifest import digest
from trainshed.files import read_regular, write_atomic
from trainshed.tester.model import ManifestFile, Refusal, is_test_id, is_upload, read_manifest

ABANDONED = 600.0
"""Seconds after which an idle upload may be dropped for another: no request lasts as long."""
_STALE = 30 * 86400.0


@dataclass(frozen=True)
class Arrived:
    """A complete result, at its final path."""

    test: str
    upload: str
    folder: Path
    files: int
    bytes: int
    signature: str


def report_path(folder: Path) -> Path:
    """Where the Tester's own report of a result lies: beside the result, which stays as it was sent."""
    return folder.with_name(f"{folder.name}.report.html")


class Inbox:
    """Files of uploads below the Tester's folder; the caller lets one thread at a time at an upload."""

    def __init__(self, root: Path, max_bytes: int) -> None:
        self.root, self.max_bytes = root, max_bytes
        for name in ("staging", "results"):
            (root / name).mkdir(parents=True, exist_ok=True)

    def folder(self, test: str, upload: str) -> Path:
        """Where a whole result lies."""
        return self.root / "results" / test / upload

    def has_report(self, test: str, upload: str) -> bool:
        return report_path(self.folder(test, upload)).is_file()

    def report(self, test: str, upload: str) -> bytes | None:
        """The report that the check made of a result, if it made one."""
        try:
            return read_regular(report_path(self.folder(test, upload)))
        except OSError:
            return None

    def begin(self, test: str, upload: str, manifest: bytes, signature: str) -> None:
        """Open an upload, or open it again."""
        read_manifest(manifest, self.max_bytes)
        staging = self._staging(test, upload)
        if self.folder(test, upload).exists():
            return
        if (staging / "manifest.json").exists():
            os.utime(staging)
            return
        (staging / "files").mkdir(parents=True, exist_ok=True)
        _write(staging / "signature", signature.encode())
        _write(staging / "manifest.json", manifest)

    def open_beside(self, test: str, upload: str) -> list[str]:
        """The other uploads of the test that are not finished."""
        found = (self.root / "staging" / test).glob("*")
        return [path.name for path in found if path.name != upload and _manifests(path)]

    def drop_abandoned(self, test: str, uploads: list[str]) -> bool:
        """Drop the one of these uploads that was not touched for the longest, if that is long enough."""
        touched, oldest = min((_touched(self._staging(test, name)), name) for name in uploads)
        if time.time() - touched < ABANDONED:
            return False
        self._drop(self._staging(test, oldest))
        return True

    def offsets(self, test: str, upload: str) -> dict[str, int]:
        """How many bytes of each file are here."""
        return {item.name: _size(self._file(test, upload, item.name)) for item in self._listed(test, upload)}

    def take(self, test: str, upload: str, name: str, start: int, total: int, part: bytes) -> int:
        """Write a part; returns how much of the file has arrived. A part may come twice."""
        item = next((item for item in self._listed(test, upload) if item.name == name), None)
        if item is None:
            raise Refusal(404, "no-such-file", f"{name[:100]!r} is not in the manifest")
        if total != item.bytes or start + len(part) > item.bytes:
            raise Refusal(400, "range", f"{name}: the manifest says {item.bytes} bytes", offset=0)
        path = self._file(test, upload, name)
        received = _size(path)
        if start > received:
            raise Refusal(
                409,
                "offset",
                f"{name}: {received} bytes have arrived, the part begins at {start}",
                offset=received,
            )
        if start + len(part) <= received:
            return received
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("r+b" if path.exists() else "w+b") as stream:
            stream.seek(start)
            stream.write(part)
        return start + len(part)

    def complete(self, test: str, upload: str) -> None:
        """Refuse unless every file is here as the manifest says."""
        if not self.folder(test, upload).exists():
            self._complete(test, upload)

    def move(self, test: str, upload: str) -> Arrived:
        """Move a complete result to its place; the second time nothing happens."""
        target = self.folder(test, upload)
        if not target.exists():
            staging = self._staging(test, upload)
            (staging / "manifest.json").replace(staging / "files" / "manifest.json")
            target.parent.mkdir(parents=True, exist_ok=True)
            # The signature moves first: a result always has one beside it.
            _write(target.with_suffix(".signature"), (staging / "signature").read_bytes())
            (staging / "files").replace(target)
            _sync(target.parent)
            shutil.rmtree(staging, ignore_errors=True)
        return self.arrived(test, upload)

    def arrived(self, test: str, upload: str) -> Arrived:
        folder = self.folder(test, upload)
        listed = read_manifest((folder / "manifest.json").read_bytes(), self.max_bytes)
        signature = folder.with_suffix(".signature").read_text()
        return Arrived(test, upload, folder, len(listed), sum(item.bytes for item in listed), signature)

    def whole(self) -> list[tuple[str, str]]:
        """Every complete result: (test, upload)."""
        return [
            (path.parent.name, path.name)
            for path in sorted((self.root / "results").glob("*/*"))
            if path.is_dir() and is_test_id(path.parent.name) and is_upload(path.name)
        ]

    def sweep(self) -> None:
        """Delete uploads that were idle for a month."""
        for staging in (self.root / "staging").glob("*/*"):
            if time.time() - _touched(staging) > _STALE:
                self._drop(staging)

    def _drop(self, staging: Path) -> None:
        """Take an upload away in one step, so that a request that comes now finds all of it or nothing."""
        gone = self.root / "staging" / ".dropped" / secrets.token_hex(8)
        gone.parent.mkdir(exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            staging.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def _complete(self, test: str, upload: str) -> None:
        listed = self._listed(test, upload)
        short = {
            item.name: size for item in listed if (size := self._grown(test, upload, item)) != item.bytes
        }
        if short:
            raise Refusal(409, "incomplete", f"{len(short)} files are incomplete", files=short)
        damaged = [item.name for item in listed if digest(self._file(test, upload, item.name)) != item.sha256]
        for name in damaged:
            self._file(test, upload, name).unlink()
        if not damaged:
            for item in listed:
                # Only now: until the commit nothing is promised, and what a power cut spoils is sent again.
                _sync(self._file(test, upload, item.name))
            return
        text = f"{damaged[0]} arrived damaged; send it again"
        raise Refusal(409, "incomplete", text, files=dict.fromkeys(damaged, 0))

    def _grown(self, test: str, upload: str, item: ManifestFile) -> int:
        path = self._file(test, upload, item.name)
        if item.bytes == 0 and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        return _size(path)

    def _listed(self, test: str, upload: str) -> tuple[ManifestFile, ...]:
        staging = self._staging(test, upload)
        for path in _manifests(staging):
            raw = path.read_bytes()
            if path.parent != staging:
                path.replace(staging / "manifest.json")
            return read_manifest(raw, self.max_bytes)
        raise Refusal(404, "no-such-upload", "this upload was not begun")

    def _staging(self, test: str, upload: str) -> Path:
        return self.root / "staging" / test / upload

    def _file(self, test: str, upload: str, name: str) -> Path:
        return self._staging(test, upload) / "files" / name


def part_digest(part: bytes) -> str:
    return hashlib.sha256(part).hexdigest()


def _manifests(staging: Path) -> list[Path]:
    """Where an upload's manifest lies: the second is where a kill in the middle of `move` leaves it."""
    return [p for p in (staging / "manifest.json", staging / "files" / "manifest.json") if p.exists()]


def _touched(staging: Path) -> float:
    """When something last changed in an upload."""
    newest = 0.0
    with contextlib.suppress(FileNotFoundError):  # it is being moved to its place
        for path in (staging, *staging.rglob("*")):
            newest = max(newest, path.stat().st_mtime)
    return newest


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, data, durable=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
