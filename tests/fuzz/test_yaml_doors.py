"""Hostile YAML at every door that takes YAML: one clear error, at once."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from targets import TARGETS

from trainshed import yamlfile
from trainshed.cli.profile import _set
from trainshed.errors import TrainshedError, UsageError

pytestmark = pytest.mark.hardening

BOMB = b"a: &a [x, x]\n" + b"".join(
    b"%c: &%c [%s]\n" % (ord("a") + i, ord("a") + i, b", ".join([b"*%c" % (ord("a") + i - 1)] * 9))
    for i in range(1, 24)
)
BOMB += b"name: *x\n"
HOSTILE = {
    "aliases": BOMB,
    "itself": b"name: &a [*a]\n",
    "tag": b"name: !!python/object/apply:os.system ['touch /tmp/never']\n",
    "nul": b"name: a\0b\n",
    "nested": b"name: " + b"[" * 20_000,
    "number": b"name: " + b"9" * 5000 + b"\n",
    "latin": b"name: \xff\n",
    "large": b"# " + b"x" * (2 << 20),
}


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("door", ["jobs", "workloads", "profiles", "credentials"])
def test_hostile_yaml_is_one_error_at_once(door: str, hostile: str, tmp_path: Path) -> None:
    began = time.process_time()
    with pytest.raises(TrainshedError) as found:
        TARGETS[door].read(HOSTILE[hostile], tmp_path)
    assert time.process_time() - began < 10
    assert len(str(found.value)) < 3000, "the document is not repeated"
    assert isinstance(found.value.hint, str) and found.value.hint


@pytest.mark.parametrize("hostile", ["aliases", "itself", "tag", "nul", "nested"])
def test_a_setting_on_the_command_line_is_refused_too(hostile: str) -> None:
    text = HOSTILE[hostile].decode()
    with pytest.raises(UsageError, match="--set"):
        yamlfile.parse(text, "--set name")
    with pytest.raises(UsageError):
        _set({}, f"modules=[{text}")


def test_aliases_of_a_reasonable_size_are_fine() -> None:
    text = "base: &base {a: 1, b: [1, 2]}\nother: {<<: *base, c: *base}\n"
    assert yamlfile.parse(text, "file")["other"] == {"a": 1, "b": [1, 2], "c": {"a": 1, "b": [1, 2]}}
    assert yamlfile.parse("", "file") is None
