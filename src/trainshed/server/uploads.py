"""Code that users upload: files by their content, and trees made of them. A file is sent once.

Below the server's folder: `uploads/<user>/files/<sha256>` and `uploads/<user>/trees/<digest>`. No user
reaches another's: knowing a digest does not give the file.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainshed.errors import UsageError
from trainshed.files import write_atomic

LARGEST_FILE = 64 << 20
MOST_FILES = 10_000
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")


class MissingFilesError(UsageError):
    """A tree names files whose content was not sent yet."""

    code = "missing-files"

    def __init__(self, digests: list[str]) -> None:
        self.digests = digests
        super().__init__(
            f"{len(digests)} files were not uploaded yet", "PUT /api/v1/files/{sha256} each of them"
        )


@dataclass(frozen=True)
class CodeUploads:
    """Uploads of all users."""

    folder: Path

    def missing(self, user: str, digests: Iterable[str]) -> list[str]:
        """Which contents the server does not have of this user."""
        return sorted({d for d in digests if not self._file(user, d).is_file()})

    def put(self, user: str, digest: str, data: bytes) -> None:
        target = self._file(user, digest)
        if len(data) > LARGEST_FILE:
            raise UsageError(
                f"a file has {len(data)} bytes, and {LARGEST_FILE} at most", "leave it out of the code"
            )
        if hashlib.sha256(data).hexdigest() != digest:
            raise UsageError(f"the content is not that of {digest}", "send the file again")
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(target, data)

    def tree(self, user: str, files: Mapping[str, tuple[str, bool]]) -> Path:
        """A folder with these files: path → (sha256, whether it is executable). The same tree is made once."""
        if len(files) > MOST_FILES:
            raise UsageError(
                f"code: {len(files)} files, and {MOST_FILES} at most", "leave data out of the code"
            )
        for name in files:
            _check_path(name)
        if absent := self.missing(user, (digest for digest, _ in files.values())):
            raise MissingFilesError(absent)
        listing = json.dumps(sorted((name, *entry) for name, entry in files.items()))
        folder = self.folder / user / "trees" / hashlib.sha256(listing.encode()).hexdigest()
        if folder.is_dir():
            return folder
        part = folder.with_name(f".{secrets.token_hex(8)}.part")
        part.mkdir(parents=True)
        try:
            for name, (digest, executable) in files.items():
                target = part / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self._file(user, digest), target)
                target.chmod(0o755 if executable else 0o644)
            try:
                part.rename(folder)
            except OSError:
                if not folder.is_dir():
                    raise
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            raise UsageError(
                f"code: a file and a folder have one name: {error.filename}", "rename one"
            ) from error
        finally:
            shutil.rmtree(part, ignore_errors=True)
        return folder

    def _file(self, user: str, digest: str) -> Path:
        if not _DIGEST.match(digest):
            raise UsageError(f"invalid SHA-256: {digest!r:.80}", "write 64 hexadecimal digits")
        return self.folder / user / "files" / digest


def _check_path(name: str) -> None:
    parts = name.split("/")
    bad = (
        not name
        or len(name) > 1000
        or any(part in ("", ".", "..") or len(os.fsencode(part)) > 255 for part in parts)
    )
    if bad or "\0" in name:
        raise UsageError(f"code: invalid path: {name!r:.120}", "write paths relative to the code folder")
