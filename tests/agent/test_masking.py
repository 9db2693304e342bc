"""A secret never reaches a log, however its bytes arrive."""

from __future__ import annotations

import base64
import html
import json
import shlex
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest

from trainshed.agent.masking import open_log
from trainshed.api import Client
from trainshed.engines.base import resolve_secrets
from trainshed.errors import UsageError

pytestmark = [pytest.mark.foundation, pytest.mark.hardening]


def written(path: Path, secrets: list[str], text: bytes, size: int) -> bytes:
    """What is in the log of a process that writes `size` bytes at a time."""
    log = open_log(path, secrets)
    with log.stream as stream:
        for at in range(0, len(text), size):
            stream.write(text[at : at + size])
            stream.flush()
            time.sleep(0.001)
    log.settle()
    return path.read_bytes()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_a_secret_is_masked_across_writes_of_any_size(tmp_path: Path, size: int) -> None:
    text = b"a swordfish b swordswordfish c swordfis d swordfish"
    found = written(tmp_path / "log", ["swordfish"], text, size)
    assert found == b"a *** b sword*** c swordfis d ***"


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 100])
def test_of_secrets_that_begin_alike_the_longer_is_hidden_whole(tmp_path: Path, size: int) -> None:
    text = b"a swordfish b sword c swordfi d xsword e swordfisword"
    secrets = ["sword", "swordfish", "xsword-and-more"]
    assert written(tmp_path / "log", secrets, text, size) == b"a *** b *** c ***fi d x*** e ***fi***"


def test_a_secret_that_ends_as_it_begins_is_masked_whole(tmp_path: Path) -> None:
    assert written(tmp_path / "log", ["abca"], b"1 abca 2 abcabca", 1) == b"1 *** 2 ***bca"


def test_a_job_without_secrets_writes_to_the_file_itself(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log", ["abc"])
    assert log.copier is None, "three letters are not a secret"
    log.stream.close()


@pytest.mark.parametrize("size", [1, 64, 4096])
@pytest.mark.parametrize(
    "written_as",
    [
        lambda value: value,
        json.dumps,
        lambda value: json.dumps(value, ensure_ascii=False),
        repr,
        html.escape,
        lambda value: quote(value, safe=""),
        quote_plus,
        lambda value: quote(value, safe="").lower(),
        lambda value: base64.b64encode(value.encode()).decode(),
        lambda value: base64.urlsafe_b64encode(value.encode()).decode(),
        lambda value: json.dumps({"body": json.dumps({"password": value})}),
        lambda value: repr(json.dumps(value)),
        lambda value: json.dumps(value).replace("/", "\\/"),
        lambda value: (
            json.dumps(value).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
        ),
        lambda value: html.escape(value).replace("&#x27;", "&#39;"),
        shlex.quote,
        lambda value: subprocess.check_output(["bash", "-c", 'printf %q "$1"', "-", value], text=True),
        lambda value: subprocess.run(
            ["bash", "-xc", ': "$1"', "-", value], stderr=subprocess.PIPE, text=True
        ).stderr.strip(),
        lambda value: '"' + value.replace('"', '""') + '"',
        lambda value: value.encode().hex(),
        lambda value: value.encode().hex().upper(),
    ],
)
def test_a_secret_is_masked_however_it_is_usually_written(
    tmp_path: Path, size: int, written_as: Callable[[str], str]
) -> None:
    secret = 'pä ss/wörd+"quoted"&<tag>\\end'
    text = f"before {written_as(secret)} after".encode()
    found = written(tmp_path / "log", [secret], text, size)
    assert b"***" in found and found.startswith(b"before ") and found.rstrip(b"=\"'").endswith(b" after")
    for part in (b"quoted", b"tag", b"ss/w", b"ss%2"):
        assert part not in found


@pytest.mark.parametrize("before", ["", "u", "us", "user:", '{"password": "'])
@pytest.mark.parametrize("after", ["", ":", '"}'])
def test_a_secret_within_a_longer_text_in_base64_is_masked(tmp_path: Path, before: str, after: str) -> None:
    """As HTTP sends a user and a password."""
    secret = "wJalrXUtnFEMI/K7MDENG"
    text = base64.b64encode(f"{before}{secret}{after}".encode())
    found = written(tmp_path / "log", [secret], b"Authorization: Basic " + text + b"\n", 7)
    assert b"***" in found and len(found) < len(text), found


def test_every_line_of_a_secret_of_several_is_masked(tmp_path: Path) -> None:
    key = "-----BEGIN KEY-----\nMIIabcdef\nghijklmn\n-----END KEY-----\n"
    text = "".join(f"[rank 0] {line}\n" for line in key.splitlines()) + repr(key) + json.dumps(key)
    found = written(tmp_path / "log", [key], text.encode(), 100)
    assert b"MIIabcdef" not in found and b"ghijklmn" not in found


def test_what_cannot_be_masked_is_refused_as_a_secret(tmp_path: Path) -> None:
    request = Client.from_environment({"SHORT": "abc"}, tmp_path).request(
        {"name": "job", "command": "true", "secrets": {"PIN": {"env": "SHORT"}}}
    )
    with pytest.raises(UsageError, match=r"secrets\.PIN has 3 characters"):
        resolve_secrets(request)
