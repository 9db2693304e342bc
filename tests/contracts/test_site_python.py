"""What is laid before a job runs in the job's own Python, from 3.7 on."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import trainshed

pytestmark = [pytest.mark.contracts]

SITE = Path(trainshed.__file__).parent / "payload"
PACKAGE = SITE.parent
SITE_FILES = sorted(SITE.rglob("*.py"))
GENERIC = {"list", "dict", "set", "tuple", "type", "Callable", "Iterable", "Iterator", "Mapping", "Sequence"}
LATER = {"removeprefix", "removesuffix"}


def evaluated(node: ast.AST, postponed: bool, local: bool = False) -> Iterator[ast.AST]:
    """Every node but annotations that Python never looks at: postponed ones, and those of local variables."""
    yield node
    local = local or isinstance(node, ast.FunctionDef)
    for field, value in ast.iter_fields(node):
        hint = field in ("annotation", "returns")
        if hint and (postponed or (local and isinstance(node, ast.AnnAssign))):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from evaluated(child, postponed, local)


@pytest.mark.parametrize("path", SITE_FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_it_is_written_in_python_3_7(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 7))
    postponed = any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body)
    for node in evaluated(tree, postponed):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            assert node.value.id not in GENERIC, f"line {node.lineno}: {ast.unparse(node)}"
        if isinstance(node, ast.Attribute):
            assert node.attr not in LATER, f"line {node.lineno}: {ast.unparse(node)}"
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            assert "None" not in ast.unparse(node), f"line {node.lineno}: {ast.unparse(node)}"


def works(python: str) -> bool:
    found = shutil.which(python)
    return bool(found) and subprocess.run([found, "-c", ""], capture_output=True).returncode == 0


@pytest.mark.parametrize("python", ["python3.7", "python3.8", "python3.9"])
def test_an_old_python_can_import_it(python: str) -> None:
    if not works(python):
        pytest.skip(f"there is no {python} on this machine")
    modules = sorted({path.stem for path in SITE_FILES if path.parent.parent == SITE} - {"sitecustomize"})
    modules.remove("trainshed_rendezvous")  # needs Horovod
    folders = ":".join(str(folder) for folder in SITE.iterdir() if folder.is_dir())
    program = "; ".join(f"import {module}" for module in [*modules, "moxing", "moxing.framework.file.bridge"])
    done = subprocess.run(
        [python, "-c", program],
        env={**os.environ, "PYTHONPATH": folders, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, ""), python
