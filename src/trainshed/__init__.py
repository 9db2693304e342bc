"""Trainshed: run a distributed training job anywhere, and trust its numbers.

    import trainshed

    run = trainshed.submit("job.yaml", shape="2x2")
    for line in run.logs(follow=True):
        print(line.text)
    run.result()

`submit`, `run`, `runs` and `plan` work on the home of this process
($TRAINSHED_HOME); a `Client` works on any, for any user.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from trainshed.version import VERSION

if TYPE_CHECKING:
    from trainshed.access import StoreAccess
    from trainshed.api import Client, Run, RunFailed
    from trainshed.api.client import Job
    from trainshed.engines.base import Prepared
    from trainshed.errors import TrainshedError
    from trainshed.spec.job import JobSpec
    from trainshed.store import Credentials

__version__ = VERSION
__all__ = [
    "Client",
    "Credentials",
    "JobSpec",
    "Run",
    "RunFailed",
    "StoreAccess",
    "TrainshedError",
    "__version__",
    "plan",
    "run",
    "runs",
    "submit",
]


def submit(
    job: Job,
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    engine: str = "local",
    shape: str | None = None,
    options: Mapping[str, Any] | None = None,
    labels: Mapping[str, str] | None = None,
    emulate: bool = False,
    attached: bool = False,
    **fields: Any,
) -> Run:
    """Start a job in the background and return its run.

    `job` is the path of a job file, a mapping with its fields, a JobSpec, or a function, which is started
    once per rank with `args` and `kwargs`. `shape` is nodes x devices (`2x2`), `options` are the engine's own,
    `fields` those of the job (`environment="pytorch"`). `emulate`: devices that are not there are emulated.
    `attached`: the run ends with this process.
    """
    from trainshed.api import Client

    return Client().submit(
        job,
        *args,
        kwargs=kwargs,
        engine=engine,
        shape=shape,
        options=options,
        labels=labels,
        emulate=emulate,
        attached=attached,
        **fields,
    )


def run(job: Job, *args: Any, timeout: float | None = None, **options: Any) -> Any:
    """Start a job as `submit` does and wait for it: its outcome, or a function's value; raises RunFailed.

    `timeout` is how long is waited, in seconds; the run goes on after it.
    """
    from trainshed.api import Client

    return Client().run(job, *args, timeout=timeout, **options)


def runs(labels: Mapping[str, str] | None = None) -> list[Run]:
    """All runs of this home, newest first; only those that have all of `labels`, if given."""
    from trainshed.api import Client

    return Client().runs(labels)


def plan(job: Job, *args: Any, engine: str = "local", **options: Any) -> Prepared:
    """What `submit` would do with the same arguments: the plan, and the engine's own request."""
    from trainshed.api import Client, functions

    client = Client()
    request = client.request(job, *args, **options)
    try:
        return client.plan(request, engine)
    finally:
        functions.discard(request.job.code, client.home)


class _CallablePackage(ModuleType):
    """A package that has the name of a public function: called, it is that function."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        return _FUNCTIONS[self.__name__](*args, **options)


class _PublicNames(ModuleType):
    """This package: `runs` and `plan` stay callable when the packages of these names are imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, ModuleType) and value.__name__ in _FUNCTIONS:
            value.__class__ = _CallablePackage
        super().__setattr__(name, value)


_FUNCTIONS: dict[str, Callable[..., Any]] = {"trainshed.runs": runs, "trainshed.plan": plan}
sys.modules[__name__].__class__ = _PublicNames


def __getattr__(name: str) -> Any:
    # Loaded when used: the command line and nodes import this package for its version only.
    if name in ("Client", "Run", "RunFailed"):
        from trainshed import api

        return getattr(api, name)
    if name == "StoreAccess":
        from trainshed.access import StoreAccess

        return StoreAccess
    if name == "Credentials":
        from trainshed.store import Credentials

        return Credentials
    if name == "TrainshedError":
        from trainshed.errors import TrainshedError

        return TrainshedError
    if name == "JobSpec":
        from trainshed.spec.job import JobSpec

        return JobSpec
    raise AttributeError(f"module 'trainshed' has no attribute {name!r}")
