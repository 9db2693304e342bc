"""Lets the ranks of a job leave together, and keeps a framework's crash on its way out from being the job's.

A rank that has done its work and leaves closes the connections of others that still work, or are just
closing their own: gloo ends such a process with SIGABRT, MindSpore with SIGSEGV. So, for processes that
have joined a framework's ranks:

- at its end a rank waits for all others, in a meeting at the world's first rank;
- Python then goes through its own end: threads, atexit handlers, files, destructors of objects; only the
  handler in which MindSpore takes its cluster down is left out, since that is where it crashes;
- then the process leaves with the exit code it has, without the destructors of the frameworks' libraries.

An exit code is never changed, and one that failed does not wait. Standard library only: the job's own
Python imports it.
"""

from __future__ import annotations

import _thread
import atexit
import importlib.abc
import os
import sys
from typing import Any

import trainshed_overlay  # type: ignore[import-not-found,unused-ignore]

_LONGEST = 3600.0
"""Seconds a rank waits for others that still work. One that dies ends the waiting at once."""
_UNSURE = 60.0
"""The same where Python does not show whether the program has failed (`python -m`, `python -c`)."""


class _Rank:
    """What this process knows of its own end."""

    meeting: Any = None
    by_file = False
    """Whether the program is a file: then its end can be distinguished from a SystemExit."""
    exit_code: Any = None
    exited = False


def install() -> None:
    # The first to be registered is the last to be called: after it there are only destructors.
    atexit.register(_seal)
    _watch_exits()
    sys.meta_path[:0] = [_MindSporeComes(), trainshed_overlay.Finder(_PATCHES)]


def join(rank: int, size: int) -> None:
    """This process is one of a framework's ranks from now on."""
    if _Rank.meeting is not None:
        return
    from trainshed_meeting import Meeting  # type: ignore[import-not-found,unused-ignore]

    program = sys.modules.get("__main__")
    _Rank.by_file = hasattr(program, "__file__") and getattr(program, "__spec__", None) is None
    _Rank.meeting = Meeting(os.environ["TRAINSHED_LEAVE"], rank, size)
    # Called before what the framework registered when it was imported: no connections are closed yet.
    atexit.register(_wait)


def _wait() -> None:
    if not _Rank.meeting.is_mine or not _has_ended_well():
        return
    _Rank.meeting.wait(_LONGEST if _Rank.by_file or _Rank.exited else _UNSURE)
    if "mindspore" in sys.modules:
        import signal

        # MindSpore sends this signal to its own process when the scheduler is gone, which now may be.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _has_ended_well() -> bool:
    """As far as Python shows before its end. A wrong guess costs time and never changes an exit code."""
    if hasattr(sys, "last_type"):
        return False
    if _Rank.by_file and not hasattr(sys.modules.get("__main__"), "__file__"):
        # Python takes the name away when the program's last line is done, not when it was left by SystemExit.
        return True
    if _Rank.exited:
        return _Rank.exit_code in (None, 0)
    return not _Rank.by_file


def _watch_exits() -> None:
    """Remember the status of the last exit(), of sys and of the built-in names."""
    import builtins

    system: Any = sys
    original, owner = sys.exit, _thread.get_ident()

    def leave(status: Any = None) -> None:
        """Exit the interpreter by raising SystemExit(status)."""
        if _thread.get_ident() == owner:
            _Rank.exited, _Rank.exit_code = True, status
        original(status)

    system.exit = leave
    quitter: Any = type(getattr(builtins, "exit", None))
    if quitter.__name__ == "Quitter":
        quitter.__call__ = lambda self, code=None: leave(code)


def _seal() -> None:
    """Let the process end right after Python has, with the exit code it then has and its output complete."""
    if _Rank.meeting is None or not _Rank.meeting.is_mine:
        return
    import ctypes

    libc = ctypes.CDLL(None)
    try:
        leave, registered = libc.on_exit, libc.__cxa_atexit
    except AttributeError:
        return  # not glibc: the frameworks' own way remains
    # Called in reverse order: first all C streams are flushed, then _exit(status) is called.
    leave(ctypes.cast(libc._exit, ctypes.c_void_p), None)
    registered(ctypes.cast(libc.fflush, ctypes.c_void_p), None, None)


class _MindSporeComes(importlib.abc.MetaPathFinder):
    """Finds nothing itself: from the moment MindSpore's library is loaded, its exit handler is caught."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name != "mindspore._c_expression":
            return
        exits: Any = atexit
        register = exits.register

        def catching(function: Any, *arguments: Any, **named: Any) -> Any:
            if name in sys.modules:
                exits.register = register
            elif getattr(function, "__module__", None) is None:
                return register(_take_down, function)
            return register(function, *arguments, **named)

        exits.register = catching


def _take_down(function: Any) -> None:
    """MindSpore's own handler, unless the scheduler that it takes leave of is stopped by us."""
    if _Rank.meeting is None or "TRAINSHED_SCHEDULER" not in os.environ:
        function()


def _mindspore(module: Any) -> None:
    original = module.init

    def init(*arguments: Any, **named: Any) -> None:
        original(*arguments, **named)
        if os.environ.get("MS_ROLE") == "MS_WORKER":
            join(int(os.environ["MS_NODE_ID"]), int(os.environ["MS_WORKER_NUM"]))

    init.__doc__, init.__wrapped__ = original.__doc__, original  # type: ignore[attr-defined]
    module.init = init


def _torch(module: Any) -> None:
    import functools

    original = module.init_process_group

    @functools.wraps(original)
    def init_process_group(*arguments: Any, **named: Any) -> Any:
        result = original(*arguments, **named)
        join(module.get_rank(), module.get_world_size())
        return result

    module.init_process_group = init_process_group


def _paddle(module: Any) -> None:
    import functools

    original = module.init_parallel_env

    @functools.wraps(original)
    def init_parallel_env(*arguments: Any, **named: Any) -> Any:
        result = original(*arguments, **named)
        size = os.environ.get("PADDLE_TRAINERS_NUM", "1")
        if size.isdigit() and int(size) > 1:
            join(int(os.environ["PADDLE_TRAINER_ID"]), int(size))
        return result

    module.init_parallel_env = init_parallel_env


_PATCHES = {
    "mindspore.communication.management": _mindspore,
    "torch.distributed.distributed_c10d": _torch,
    "paddle.distributed.parallel": _paddle,
}
