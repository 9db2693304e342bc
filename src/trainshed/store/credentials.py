"""Where keys and endpoint come from in Trainshed: variables, profile file, or the embedded store.

It decides once, in a fixed order, and says where the answer came from.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path

from trainshed import yamlfile
from trainshed.errors import UsageError
from trainshed.files import read_regular
from trainshed.payload.modelarts.trainshed_store.credentials import Credentials, from_environment, make

__all__ = ["EMBEDDED", "PROFILE_FILE", "Credentials", "make", "resolve"]

PROFILE_FILE = "store.yaml"
EMBEDDED = "embedded"


def resolve(scheme: str, *, environ: Mapping[str, str], home: Path) -> Credentials:
    """Variables, then profile file, then the embedded store (started if it is not running)."""
    wanted = environ.get("TRAINSHED_STORE_PROFILE", "")
    if wanted != EMBEDDED:
        found = (None if wanted else from_environment(scheme, environ)) or _from_profile(home, wanted, scheme)
        if found:
            return found
    from trainshed.store.seaweed import embedded

    return embedded.ensure_running(home).credentials


def _from_profile(home: Path, wanted: str, scheme: str) -> Credentials | None:
    """`store.yaml`: profiles by name; the one asked for, else the scheme's own, else `default`."""
    path = home / PROFILE_FILE
    try:
        mode = path.stat().st_mode
    except FileNotFoundError as error:
        if wanted:
            raise UsageError(
                f"store profile {wanted!r} selected, but {path} does not exist", "create it"
            ) from error
        return None
    if stat.S_IMODE(mode) & 0o077:
        raise UsageError(
            f"{path} holds secrets but has mode {stat.S_IMODE(mode):04o}", f"run: chmod 600 {path}"
        )
    try:
        document = yamlfile.parse(read_regular(path, yamlfile.LONGEST), str(path)) or {}
    except ImportError as error:
        raise UsageError(
            f"cannot read {path}: this Python has no yaml module", "give the keys in the environment"
        ) from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error}", "give a readable file") from error
    profiles = document.get("profiles") if isinstance(document, dict) else None
    if not isinstance(profiles, dict):
        raise UsageError(
            f"{path} has no mapping 'profiles'",
            "write profiles: {default: {endpoint: URL, access_key: …, secret_key: …}}",
        )
    name = wanted or (scheme if scheme in profiles else "default")
    if name not in profiles:
        if not wanted:
            return None
        raise UsageError(
            f"{path} has no profile {name!r}", f"it has: {', '.join(map(str, profiles)) or 'none'}"
        )
    return _read_profile(path, name, profiles[name])


def _read_profile(path: Path, name: str, body: object) -> Credentials:
    allowed = {"access_key", "secret_key", "endpoint", "region", "token", "path_style", "verify_tls"}
    if not isinstance(body, dict):
        raise UsageError(
            f"profile {name!r} in {path} is not a mapping", f"allowed: {', '.join(sorted(allowed))}"
        )
    unknown = sorted(map(str, set(body) - allowed))
    missing = [key for key in ("access_key", "secret_key", "endpoint") if not body.get(key)]
    if unknown or missing:
        what = f"unknown field {unknown[0]!r}" if unknown else f"no field {missing[0]!r}"
        raise UsageError(f"profile {name!r} in {path}: {what}", f"allowed: {', '.join(sorted(allowed))}")
    return make(
        str(body["access_key"]),
        str(body["secret_key"]),
        str(body["endpoint"]),
        region=str(body.get("region", "")),
        token=str(body.get("token", "")),
        path_style=None if body.get("path_style") is None else bool(body["path_style"]),
        verify_tls=bool(body.get("verify_tls", True)),
        source=f"profile {name!r} of {path}",
    )
