"""A Python function as a job: sent by source and cloudpickle, started once per rank.

The function's own code goes by value, and so does what its module defines, so that
what a notebook or a script beside it holds arrives; modules that it imports must be
installed in the job's environment.
A job whose Python has another version gets the source instead, which works for
functions that need nothing around them. Rank 0's return value comes back as a
file of the run; only the submitter the function reads it.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import pickle
import re
import secrets
import shutil
import sys
import sysconfig
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from trainshed.errors import TrainshedError, UsageError
from trainshed.runs.directory import RunDirectory
from trainshed.spec.job import JobSpec
from trainshed.spec.load import load_fields, load_job

_CHANNEL = "returned"
_CALL = "trainshed_call.json"
_ENTRY = "trainshed_call.py"
_NAME = re.compile(r"[^A-Za-z0-9._-]+")

_SCRIPT = '''\
"""Starts the function of this job on one rank and keeps what rank 0 returns."""
import json, os, pickle, sys

here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "trainshed_call.json")) as stream:
    call = json.load(stream)
sys.path.insert(0, here)
if list(sys.version_info[:2]) == call["python"]:
    with open(os.path.join(here, "call.pickle"), "rb") as stream:
        function, args, kwargs = pickle.load(stream)
elif call["source"]:
    space = {"__name__": "__main__"}
    exec(compile(call["source"], call["name"] + ".py", "exec"), space)
    function, (args, kwargs) = space[call["name"]], call["arguments"]
else:
    sys.exit("the function was sent from Python %d.%d, this is %s, and its source alone is not enough: "
             "choose an environment with the same Python" % (*call["python"], sys.version.split()[0]))
value = function(*args, **kwargs)
if os.environ.get("TRAINSHED_RANK", "0") == "0":
    for word in sys.argv[1:]:
        if word.startswith("--returned="):
            folder = word.partition("=")[2]
            os.makedirs(folder, exist_ok=True)
            target = os.path.join(folder, "value.pickle")
            with open(target + ".part", "wb") as stream:
                pickle.dump(value, stream)
            os.replace(target + ".part", target)
'''


def job_of(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    overrides: Mapping[str, Any],
    home: Path,
) -> JobSpec:
    """A job that calls the function on every rank; its code is in its own folder."""
    if not callable(function):
        raise UsageError(
            f"invalid job: {type(function).__name__}", "give a path, a mapping, a JobSpec or a function"
        )
    if "entry" in overrides or "command" in overrides or "code" in overrides:
        raise UsageError("entry, command and code cannot be combined with a function", "leave them out")
    try:
        import cloudpickle
    except ImportError as error:
        raise UsageError("functions need cloudpickle", "pip install cloudpickle") from error
    name = getattr(function, "__name__", type(function).__name__)
    try:
        with _by_value(function, cloudpickle):
            data = cloudpickle.dumps((function, args, kwargs))
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise UsageError(f"function {name} cannot be sent: {error}", "pass it plain values") from error
    folder = home / "functions" / secrets.token_hex(8)
    folder.mkdir(parents=True, mode=0o700)
    (folder / "call.pickle").write_bytes(data)
    source, arguments = _source(function), _plain(args, kwargs)
    call = {
        "name": name,
        "python": list(sys.version_info[:2]),
        "source": source if arguments is not None else "",
        "arguments": arguments,
    }
    (folder / _CALL).write_text(json.dumps(call))
    (folder / _ENTRY).write_text(_SCRIPT)
    _bring_cloudpickle(Path(str(cloudpickle.__file__)).parent, folder)
    fields: dict[str, Any] = {
        "name": _NAME.sub("-", name).strip("-.")[:60] or "function",
        "code": str(folder),
        "entry": _ENTRY,
    }
    outputs = [*overrides.get("outputs", ()), {"name": _CHANNEL}]
    try:
        return load_job(fields, {**overrides, "outputs": outputs})
    except BaseException:
        discard(str(folder), home)
        raise


def is_function(run: RunDirectory) -> bool:
    return load_fields(run.path / "job.yaml").get("entry") == _ENTRY


def returned(run: RunDirectory) -> Any:
    """Rank 0's return value."""
    found = sorted((run.path / "outputs").glob(f"node-*/{_CHANNEL}/**/value.pickle"))
    if not found:
        raise TrainshedError(
            f"run {run.id} left no return value", f"look at {run.path / 'outputs'}", code="no-value"
        )
    with found[0].open("rb") as stream:
        # Written by the function that this very user submitted.
        return pickle.load(stream)  # noqa: S301


def forget(run: RunDirectory) -> None:
    """Remove the code that was made for a function's run."""
    with contextlib.suppress(OSError, TrainshedError):
        discard(load_fields(run.path / "job.yaml").get("code"), run.home)


def discard(code: object, home: Path) -> None:
    """Remove a folder of code if it is one that was made here for a function."""
    if isinstance(code, str) and Path(code).parent == home / "functions":
        shutil.rmtree(code, ignore_errors=True)


@contextlib.contextmanager
def _by_value(function: Callable[..., Any], cloudpickle: Any) -> Iterator[None]:
    """A module of the submitter's own is not there on the nodes: what it defines goes along."""
    module = inspect.getmodule(function)
    if (
        module is None
        or not _is_user_module(module)
        or module.__name__ in cloudpickle.list_registry_pickle_by_value()
    ):
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def _is_user_module(module: ModuleType) -> bool:
    """Whether a module is neither the standard library's nor installed; what is __main__ goes by value anyway."""
    path = Path(getattr(module, "__file__", None) or "")
    installed = any(part in ("site-packages", "dist-packages") for part in path.parts)
    library = path.is_relative_to(sysconfig.get_path("stdlib"))
    return path.is_absolute() and not installed and not library and module.__name__ != "__main__"


def _source(function: Callable[..., Any]) -> str:
    """The function's source, if it stands for itself: no closure, no decorator."""
    try:
        text = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return ""
    alone = text.startswith("def ") and not getattr(function, "__closure__", None)
    return text if alone else ""


def _plain(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any] | None:
    try:
        return list(json.loads(json.dumps([list(args), kwargs])))
    except (TypeError, ValueError):
        return None


def _bring_cloudpickle(package: Path, folder: Path) -> None:
    """The job's own Python may not have it, and unpickling needs it."""
    target = folder / "cloudpickle"
    target.mkdir()
    for path in package.glob("*.py"):
        (target / path.name).write_bytes(path.read_bytes())
