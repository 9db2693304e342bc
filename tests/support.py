"""What tests of whole runs share: their own Trainshed home, commands, and looking for leftovers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainshed.runs.directory import RunDirectory, Runs
from trainshed.runs.events import Submitted

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENTS = Path(os.environ.get("TRAINSHED_ENVS") or ROOT / ".envs")


def until(
    condition: Callable[[], Any], seconds: float = 20.0, what: str | Callable[[], str] = "condition"
) -> Any:
    """Wait for a condition, with an end; its value is returned."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    words = what if isinstance(what, str) else what()
    raise AssertionError(f"{words} did not come true within {seconds} s")


def public_python() -> str:
    """A Python that every user may run; the one of the tests may be in a private home."""
    found = shutil.which("python3", path="/usr/bin")
    assert found, "apt-get install python3"
    return found


@dataclass(frozen=True)
class Shed:
    """A Trainshed of one test's own."""

    home: Path

    @property
    def env(self) -> dict[str, str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("TRAINSHED_")}
        return clean | {"TRAINSHED_HOME": str(self.home), "TRAINSHED_ENVS": str(ENVIRONMENTS)}

    def start(self, *args: str | Path, **more: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "trainshed.cli.main", *map(str, args)],
            env=self.env | more.pop("env", {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            **more,
        )

    def cli(self, *args: str | Path, timeout: float = 240, **more: Any) -> subprocess.CompletedProcess[str]:
        process = self.start(*args, **more)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.terminate()
            raise AssertionError(f"{args} did not end: {process.communicate(timeout=60)}") from None
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def job(self, name: str = "job", files: dict[str, str] | None = None, **fields: Any) -> Path:
        """A job folder with its code, and the path of its job file."""
        folder = self.home.parent / f"code-{name}"
        folder.mkdir(exist_ok=True)
        for file, text in (files or {}).items():
            (folder / file).write_text(text)
        spec = {"name": name, "code": "."} | fields
        path = folder / "job.yaml"
        path.write_text(json.dumps(spec))
        return path

    def submit(self, *args: str | Path) -> str:
        done = self.cli("submit", *args)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def show(self, run: str) -> dict[str, Any]:
        done = self.cli("show", run, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def path(self, run: str) -> Path:
        return self.home / "runs" / run

    def log(self, run: str, rank: int) -> str:
        (path,) = self.path(run).glob(f"node-*/rank-{rank}.log")
        return path.read_text()


def busybox_image() -> str:
    """A tiny image made of Debian's static busybox."""
    name = "localhost/trainshed-busybox:1"
    if subprocess.run(["podman", "image", "exists", name]).returncode != 0:
        script = (
            "d=$(mktemp -d) && mkdir -p $d/bin $d/etc $d/tmp && cp /bin/busybox $d/bin/ && "
            "printf '#!/bin/busybox sh\\nexec /bin/busybox sh \"$@\"\\n' > $d/bin/bash && chmod +x $d/bin/bash && "
            "for n in sh cat hostname sleep env ls echo; do ln -s busybox $d/bin/$n; done && "
            f"tar -C $d -c . | podman import - {name} && rm -r $d"
        )
        subprocess.run(["bash", "-c", script], check=True, capture_output=True)
    return name


def made_run(home: Path, name: str = "job", **fields: Any) -> RunDirectory:
    """The directory of a run that was submitted and did nothing yet."""
    (run,) = Runs.of(home).create(name)
    run.writer("submit").append(Submitted(**({"name": name, "engine": "local", "shape": "1x1"} | fields)))
    return run


def tree(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """All that is below a folder: mode, time of change and content, for comparing."""
    found = {}
    for path in sorted(folder.rglob("*")):
        info = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path.relative_to(folder))] = (info.st_mode, info.st_mtime_ns, content)
    return found


def processes_of(run: str) -> dict[int, str]:
    """Living processes that belong to a run, by its id in their environment or command line."""
    mark, found = run.encode(), {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            line = (entry / "cmdline").read_bytes()
            if mark in line or b"TRAINSHED_RUN_ID=" + mark in (entry / "environ").read_bytes():
                state = (entry / "stat").read_text().rpartition(") ")[2][0]
                if state != "Z":
                    found[int(entry.name)] = line.replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
    return found
