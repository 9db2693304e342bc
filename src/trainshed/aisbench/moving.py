"""Plain secrets in old configuration files: found, warned of, and moved to where only their owner reads."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path

from trainshed import yamlfile
from trainshed.aisbench.config import AccessConfig, Package, is_placeholder
from trainshed.errors import UsageError
from trainshed.files import write_atomic
from trainshed.home import trainshed_home
from trainshed.store.credentials import PROFILE_FILE, Credentials, make

_KEYS = ("access_key", "secret_access_key")
_SHELL = re.compile(r"^(\s*(?:export\s+)?(BMC_PASSWORD|TESTER_TOKEN)=)(.*)$", re.M)
PROFILE = "aisbench"


def warnings(package: Package, access: AccessConfig) -> list[str]:
    """What should not stand in these files, without showing it."""
    found = []
    if access.has_secrets:
        found.append(
            "modelarts_config.py holds access_key and secret_access_key in plain text; "
            "`ais-bench-stubs move-secrets` moves them to a file only you can read"
        )
    shell = package.code / "config" / "config.sh"
    if shell.is_file():
        for match in _SHELL.finditer(shell.read_text("utf-8", errors="replace")):
            if not is_placeholder(match[3].strip("'\" ")) and "$" not in match[3]:
                found.append(f"config.sh holds {match[2]} in plain text; export it in your shell instead")
    return found


def credentials(access: AccessConfig) -> Credentials | None:
    """The store's keys as the configuration gives them; None when it leaves them to Trainshed."""
    if not access.has_secrets or not access.store:
        return None
    return make(
        str(access.access_key),
        str(access.secret_access_key),
        access.store,
        region=access.region_name or "",
        source="modelarts_config.py",
    )


def with_store(access: AccessConfig, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables, and those that lead to the store of the configuration."""
    given = credentials(access)
    if given is not None:
        return {**environ, **given.environment(), "OBS_ENDPOINT": given.endpoint}
    if "TRAINSHED_STORE_PROFILE" not in environ and _has_profile(trainshed_home(environ)):
        return {**environ, "TRAINSHED_STORE_PROFILE": PROFILE}
    return dict(environ)


def move(package: Package, access: AccessConfig, home: Path) -> str:
    """Write the keys into the home's profile file (mode 0600) and empty them in modelarts_config.py."""
    found = credentials(access)
    if found is None:
        raise UsageError("modelarts_config.py has no keys with a server", "there is nothing to move")
    import yaml

    path = home / PROFILE_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    document = (yamlfile.parse(path.read_bytes(), str(path)) if path.exists() else None) or {}
    profile = {"access_key": found.access_key, "secret_key": found.secret_key, "endpoint": found.endpoint,
               "region": found.region}  # fmt: skip
    if not isinstance(document, dict) or not isinstance(document.setdefault("profiles", {}), dict):
        raise UsageError(
            f"{path} has no mapping 'profiles'",
            "write profiles: {default: {endpoint: URL, access_key: …, secret_key: …}}",
        )
    document["profiles"][PROFILE] = profile
    write_atomic(path, yaml.safe_dump(document), 0o600, durable=True)
    config = package.code / "config" / "modelarts_config.py"
    emptied, mode = _emptied(config.read_text("utf-8")), config.stat().st_mode & 0o777
    write_atomic(config, emptied, mode, durable=True)
    return str(path)


def _emptied(source: str) -> str:
    """The file with the two values emptied; every other character stays."""
    spots = []
    for node in ast.walk(ast.parse(source)):
        pairs: list[tuple[ast.expr | None, ast.expr]] = []
        if isinstance(node, ast.Dict):
            pairs = list(zip(node.keys, node.values, strict=True))
        elif isinstance(node, ast.Call):
            pairs = [(ast.Constant(keyword.arg), keyword.value) for keyword in node.keywords]
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            pairs = [(ast.Constant(node.targets[0].attr), node.value)]
        for key, value in pairs:
            if isinstance(key, ast.Constant) and key.value in _KEYS and isinstance(value, ast.Constant):
                spots.append((value.lineno, value.col_offset, value.end_lineno, value.end_col_offset))
    lines = source.encode().splitlines(keepends=True)
    for first, start, last, end in sorted(spots, reverse=True):
        assert last is not None and end is not None
        lines[first - 1 : last] = [lines[first - 1][:start] + b"''" + lines[last - 1][end:]]
    return b"".join(lines).decode()


def _has_profile(home: Path) -> bool:
    path = home / PROFILE_FILE
    return path.is_file() and re.search(rf"^\s+{PROFILE}:", path.read_text("utf-8"), re.M) is not None
