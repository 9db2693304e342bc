"""What keeps the source tree easy to search: members of an axis do not know other axes, a class name exists once."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from trainshed import registry

pytestmark = [pytest.mark.foundation, pytest.mark.core]
AXES: tuple[registry.Axis, ...] = ("engine", "launcher", "contract")
SOURCE = Path(registry.__file__).parent


def strings_of(path: Path) -> set[str]:
    """Every string in the code that is compared, matched or looked up; docstrings and messages are no such thing."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        parts: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            parts = [node.value]
        for part in parts:
            for item in ast.walk(part):
                if isinstance(item, ast.Constant) and isinstance(item.value, str):
                    found.add(item.value)
    return found


@pytest.mark.parametrize("axis", AXES)
def test_no_axis_decides_by_the_name_of_another(axis: registry.Axis) -> None:
    others = [other for other in AXES if other != axis]
    # Two member names are also everyday words of other axes: a job's command, a plain process.
    foreign = {name for other in others for name in registry.members(other)} - {"command", "plain"}
    for path in (SOURCE / f"{axis}s").rglob("*.py"):
        if "payload" in path.parts:
            continue
        assert not strings_of(path) & foreign, (
            f"{path.relative_to(SOURCE)} decides by the name of another axis' member"
        )


@pytest.mark.parametrize("axis", AXES)
def test_every_member_loads_by_its_name(axis: registry.Axis) -> None:
    assert registry.members(axis)
    for name in registry.members(axis):
        assert registry.load(axis, name) is not None


def test_no_class_name_exists_twice() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    assert len(places) > 200, "the search found hardly any class"
    assert not {name: where for name, where in places.items() if len(where) > 1}


def test_no_test_file_name_exists_twice() -> None:
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert not {name for name in names if names.count(name) > 1}, "pytest cannot collect both"


def test_there_is_one_kind_of_lock() -> None:
    """Two kinds on one file do not see each other: whoever took the other kind was not kept out."""
    for path in SOURCE.rglob("*.py"):
        if path.name != "files.py" and "payload" not in path.parts:
            assert not re.search(r"fcntl\.(flock|lockf|fcntl)\(", path.read_text()), path.relative_to(SOURCE)


def test_one_function_reads_where_the_home_is() -> None:
    reads = re.compile(r"""(get\(|getenv\(|environ\[)["']TRAINSHED_HOME["'](?!\] =)""")
    readers = {str(p.relative_to(SOURCE)) for p in SOURCE.rglob("*.py") if reads.search(p.read_text())}
    assert readers == {"home.py"}


def test_there_is_one_atomic_write_of_a_file() -> None:
    others = {
        "api/functions.py": "in the script that a job's own Python runs",
        "api/makers.py": "a folder that a data maker fills",
        "bench/folder.py": "a copy of a large file",
        "bench/manifest.py": "under a fixed name: what a kill leaves must not become part of a result",
        "server/uploads.py": "a folder of uploaded files",
        "tester/model.py": "the name of that part",
    }
    found = {name for name, tree in library() if re.search(r"\.part\b", ast.unparse(tree))}
    assert found == {"files.py", *others}, "use files.write_atomic"


def test_causes_of_errors_are_kept() -> None:
    # An attribute that is missing is told as Python tells it; payloads do as the packages they stand for.
    for path in SOURCE.rglob("*.py"):
        if path.name != "easydict.py" and "payload" not in path.parts:
            assert not re.search(r"^ +.* from None$", path.read_text(), re.M), path.relative_to(SOURCE)


PROGRAMS = {
    "agent/": "runs only as a program of its own, on a node; its driver made its variables from the submission",
    "api/site.py": "the program that SSH starts for the user who logged in",
    "engines/cluster/child.py": "part of the starter's program",
    "engines/cluster/driver.py": "part of a driver's program",
    "engines/cluster/enter.py": "the program that enters a container",
    "engines/cluster/guard.py": "the program above or beside a driver",
    "engines/cluster/starter.py": "the program that a cluster starts on each node",
    "engines/local/driver.py": "a driver's program",
    "engines/slurm/object_store_run.py": "a driver's program",
    "engines/slurm/driver.py": "a driver's program: Slurm tells it its job by variables",
    "store/seaweed/watch.py": "the program that watches the embedded store",
    "tester/examine.py": "the program that examines a result",
}
"""Files that run as a process of their own: the process is theirs."""
PROCESS_READERS = PROGRAMS | {
    "api/client.py": "Client(): the one place that takes a context from the process",
    "engines/slurm/client.py": "where Slurm's commands and configuration are is the machine's, not a user's",
    "environments/build.py": "environments are made by a command, for whoever runs it",
    "environments/catalog.py": "likewise; runs look theirs up in the Client's variables",
    "environments/commands.py": "likewise: pip and compilers get the caller's variables",
    "environments/source.py": "likewise",
    "runs/site.py": "the folder for SSH's sockets is this machine's",
    "store/seaweed/embedded.py": "the store belongs to a home: PATH, LANG and TMPDIR of whoever starts it",
}
HOME_READERS = {
    "api/client.py": "Client(home): as a shell would read it",
    "engines/base.py": "secrets: {file: ~/key} of a job is read by whoever submits it",
    "environments/catalog.py": "TRAINSHED_ENVS, and a path given for an environment",
    "home.py": "where the variables given have no HOME",
    "spec/load.py": "paths of a job file are those of whoever wrote it",
    "tester/client.py": "a participant's own file",
    "tester/spool.py": "likewise",
}
SIGNAL_HANDLERS = PROGRAMS | {
    "bench/judge/limits.py": "bounded(): holds a whole program (`bench check`, tester/examine) to its limits",
}
READS = ("os.environ", "os.environb", "os.getenv", "os.getlogin", "getpass.getuser", "Path.home")


def library() -> Iterator[tuple[str, ast.AST]]:
    """What is imported by others: not the command line, not what is laid before a job's own Python."""
    for path in SOURCE.rglob("*.py"):
        name = str(path.relative_to(SOURCE))
        if not name.startswith(("cli/", "payload/")):
            yield name, ast.parse(path.read_text())


def uses(wanted: Callable[[ast.AST], bool]) -> set[str]:
    return {name for name, tree in library() if any(wanted(node) for node in ast.walk(tree))}


def allowed(name: str, among: Mapping[str, str]) -> bool:
    return name in among or f"{name.partition('/')[0]}/" in among


def check(found: set[str], among: Mapping[str, str], remedy: str) -> None:
    assert not {name for name in found if not allowed(name, among)}, remedy
    unused = {key for key in among if key not in PROGRAMS and key not in found}
    assert not unused, "these need no exception any more"


def test_the_library_takes_its_context_from_the_client_and_not_from_the_process() -> None:
    found = uses(lambda node: isinstance(node, ast.Attribute) and ast.unparse(node) in READS)
    check(found, PROCESS_READERS, "take it from the Client's context")
    found = uses(lambda node: isinstance(node, ast.Attribute) and node.attr == "expanduser")
    check(found, HOME_READERS, "`~` is the process's home: take a whole path")


def test_the_library_never_changes_the_process_variables() -> None:
    def changes(node: ast.AST) -> bool:
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            return called in {"os.putenv", "os.unsetenv"} | {
                f"os.environ.{name}" for name in ("update", "setdefault", "pop", "clear", "popitem")
            }
        if isinstance(node, ast.Assign | ast.AugAssign | ast.Delete):
            targets = [node.target] if isinstance(node, ast.AugAssign) else node.targets
            return any(ast.unparse(target).startswith("os.environ") for target in targets)
        return False

    assert uses(changes) == {"engines/slurm/object_store_run.py"}, (
        "only that program: it takes away the variable in which Slurm brought the secrets"
    )


def test_the_library_prints_nothing_and_handles_no_signals() -> None:
    def prints(node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and ast.unparse(node.func) == "print"

    assert uses(prints) == set(), "use logging, or tell the caller"
    found = uses(lambda node: isinstance(node, ast.Attribute) and ast.unparse(node) == "signal.signal")
    check(found, SIGNAL_HANDLERS, "signals belong to programs: ask the caller whether to stop")
