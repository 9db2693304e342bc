"""The pre-start hook: sourced, so that what it exports reaches the ranks."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from trainshed.agent.place import Place
from trainshed.errors import TrainshedError

_LIMIT = 3600.0


class HookError(TrainshedError):
    """The hook did not end with 0."""

    code = "hook"


def source(script: str, env: dict[str, str], folder: Path, place: Place) -> None:
    """Run the hook in its folder and take over the environment it leaves behind.

    A Python hook cannot change its parent's environment; it is run and its exit code counts.
    """
    path = Path(script)
    if path.suffix == ".py":
        argv, wanted = ["python", str(path)], None
    else:
        seen = f"{env['TMPDIR']}/.pre-start.env"
        wanted = Path(place.real(seen))
        # `source` by its full path: $0 stays bash, as on the platforms that define this hook.
        argv = [
            "/bin/bash",
            "-c",
            'source "$1"; code=$?; env -0 > "$2"; exit $code',
            "bash",
            str(path),
            str(wanted),
        ]
    with (folder / "pre-start.log").open("ab") as log:
        process = subprocess.Popen(
            argv,
            cwd=path.parent,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            code = process.wait(_LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            raise HookError(f"{path.name} did not end within {_LIMIT:.0f} s") from None
    if code != 0:
        raise HookError(f"{path.name} exited with {code}")
    if wanted is not None and wanted.exists():
        for entry in wanted.read_bytes().split(b"\0"):
            name, sep, value = entry.decode("utf-8", "surrogateescape").partition("=")
            if sep and name not in ("_", "SHLVL", "PWD", "OLDPWD"):
                env[name] = value
        wanted.unlink()
