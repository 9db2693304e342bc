"""Writes the lock files of the framework environments: python scripts/lock.py [NAME...].

A lock lists every package of an environment with its version and the sha256 of
each wheel of that version for Linux. Versions come from the recipe's
requirements, held to what the present lock says; to move a version, change the
requirement or delete the package's lines. Hashes come from the package index.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
import subprocess
import sys
import urllib.parse
import urllib.request
from functools import cache
from pathlib import Path

from trainshed.environments.lockfile import LOCKS, locked_versions, normal_name
from trainshed.environments.recipes import FULL, framework_names, recipe_for

_LINK = re.compile(r'<a [^>]*href="([^"]+)"')
_PLATFORM = re.compile(r"(x86_64|aarch64|none-any|py2\.py3-none-any)\.whl$")
_PYTHON = re.compile(r"-(cp31[123]-cp31[123]|cp3\d+-abi3|(py2\.)?py3(\d*)-none|cp3\d+\.[^-]*-abi3)-")


def main() -> int:
    names = sys.argv[1:] or [*framework_names(), "full"]
    for name in names:
        path = LOCKS / f"{name}.txt"
        requirements, alone = (FULL, ()) if name == "full" else _wanted(name)
        found = resolve(list(requirements), path)
        if alone:
            found |= resolve(["--no-deps", *alone], path)
        path.write_text("".join(_entry(package, *found[package]) for package in sorted(found)))
        print(f"{path}: {len(found)} packages")
    return 0


def _wanted(name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    recipe = recipe_for(name)
    return recipe.requirements, recipe.alone


def resolve(requirements: list[str], held: Path) -> dict[str, tuple[str, str]]:
    """Package → version and sha256, as pip resolves it for this Python and machine."""
    constraints = Path(sys.prefix) / "lock-constraints.txt"
    pins = locked_versions(held) if held.exists() else {}
    constraints.write_text("".join(f"{name}=={version}\n" for name, version in pins.items()))
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
    command += ["--only-binary=:all:", "--report=-", f"--constraint={constraints}", *requirements]
    report = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    found = {}
    for item in report["install"]:
        info = item["download_info"]
        digest = info.get("archive_info", {}).get("hashes", {}).get("sha256") or _digest(info["url"])
        found[normal_name(item["metadata"]["name"])] = (item["metadata"]["version"], digest)
    return found


def _entry(package: str, version: str, known: str) -> str:
    hashes = sorted({known, *(() if "+" in version else _offered(package, version))})
    return f"{package}=={version}" + "".join(f" \\\n    --hash=sha256:{item}" for item in hashes) + "\n"


@cache
def _offered(package: str, version: str) -> tuple[str, ...]:
    """What the index offers of this version as wheels for Linux."""
    page = urllib.request.urlopen(f"{_index()}/{package}/", timeout=60).read().decode()  # noqa: S310
    found = []
    for link in map(html.unescape, _LINK.findall(page)):
        address, _, fragment = link.partition("#")
        file = urllib.parse.unquote(address.rsplit("/", 1)[-1])
        parts = file.split("-")
        if len(parts) < 5 or normal_name(parts[0]) != package or parts[1] != version:
            continue
        if _PLATFORM.search(file) and _PYTHON.search(file) and fragment.startswith("sha256="):
            found.append(fragment.removeprefix("sha256="))
    return tuple(found)


def _index() -> str:
    asked = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True
    )
    return (asked.stdout.strip() or "https://pypi.org/simple").rstrip("/")


def _digest(url: str) -> str:
    with urllib.request.urlopen(url, timeout=600) as stream:  # noqa: S310
        return hashlib.file_digest(stream, "sha256").hexdigest()


if __name__ == "__main__":
    sys.exit(main())
