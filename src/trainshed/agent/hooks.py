"""The pre-start hook: sourced, so that what it exports reaches the ranks."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from trainshed.agent import processes
from trainshed.agent.masking import Log
from trainshed.agent.node_access import NodeAccess
from trainshed.errors import TrainshedError

_LIMIT = 3600.0


class HookError(TrainshedError):
    """The hook did not end with 0."""

    code = "hook"


_PYTHON = """
import os, runpy, sys
script, left = sys.argv[1:]
sys.argv[:] = [script]
try:
    runpy.run_path(script, run_name="__main__")
finally:
    with open(left, "wb") as stream:
        stream.write(b"\\0".join(name + b"=" + value for name, value in os.environb.items()))
"""


def source(script: str, env: dict[str, str], log: Log, access: NodeAccess, folder: str = "") -> None:
    """Run the hook in `folder` (its own by default) and take over the environment it leaves behind."""
    path = Path(script)
    left = f"{env['TMPDIR']}/.pre-start.env"
    if path.suffix == ".py":
        argv = ["python", "-c", _PYTHON, str(path), left]
    else:
        # `source` by its full path: $0 stays bash, as on the platforms that define this hook.
        argv = [
            "/bin/bash",
            "-c",
            'source "$1"; code=$?; env -0 > "$2"; exit $code',
            "bash",
            str(path),
            left,
        ]
    cwd = folder or str(path.parent)
    with _private(Path(access.real(left))) as wanted:
        run(path.name, access.enter(argv, cwd, env), access.real(cwd), env, log)
        for entry in wanted.read_bytes().split(b"\0"):
            name, sep, value = entry.decode("utf-8", "surrogateescape").partition("=")
            if sep and name not in ("_", "SHLVL", "PWD", "OLDPWD"):
                env[name] = value


@contextlib.contextmanager
def _private(path: Path) -> Iterator[Path]:
    """An empty file for its owner alone, gone at the end: what a hook leaves behind may hold secrets."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def run(name: str, argv: Sequence[str], cwd: str, env: Mapping[str, str], log: Log) -> None:
    """Run one program, within an hour, with its output in the log; HookError if it did not exit with 0."""
    with log.stream as out:
        process = subprocess.Popen(
            argv,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            preexec_fn=processes.restore_files,
        )
    try:
        code = process.wait(_LIMIT)
    except subprocess.TimeoutExpired as error:
        os.killpg(process.pid, signal.SIGKILL)
        raise HookError(f"{name} did not finish within {_LIMIT:.0f} s") from error
    finally:
        log.settle()
    if code != 0:
        raise HookError(f"{name} exited with {code}")
