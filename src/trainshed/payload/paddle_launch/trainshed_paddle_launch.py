"""What is done for Paddle before a program starts.

`python -m paddle.distributed.launch`: old arguments become today's, and a line in the log says so. Where
ranks meet by gloo, a patch waits for Paddle's import. Every other program only pays for a comparison.
"""

import os
import sys

_MODULE = "paddle.distributed.launch"


def _is_launcher() -> bool:
    """The argument before the program's own names the module: `-m NAME` or `-mNAME`."""
    if not sys.argv or sys.argv[0] != "-m":
        return False
    arguments: list[str] = getattr(sys, "orig_argv", [])
    if not arguments:  # Python before 3.10
        with open("/proc/self/cmdline", encoding="utf-8", errors="surrogateescape") as stream:
            arguments = stream.read().split("\0")[:-1]
    if len(arguments) <= len(sys.argv):
        return False
    argument = arguments[-len(sys.argv)]
    return argument == _MODULE or (argument.startswith("-") and argument.endswith("m" + _MODULE))


def _on_gpu() -> bool:
    kind = os.environ.get("TRAINSHED_DEVICE_KIND")
    if os.environ.get("TRAINSHED_EMULATED") or kind == "cpu":
        return False
    return os.path.exists("/dev/nvidiactl")  # noqa: PTH110 - pathlib costs every start of Python


def _translate() -> None:
    from trainshed_paddle_arguments import (  # type: ignore[import-not-found,unused-ignore]
        ArgumentsError,
        translate,
    )

    size = os.environ.get("TRAINSHED_LOCAL_SIZE", "")
    try:
        found = translate(sys.argv[1:], int(size) if size.isdigit() and int(size) else None, _on_gpu())
    except ArgumentsError as error:
        # An exception here would end in a traceback of the interpreter's start, so: one line, and out.
        os.write(2, f"trainshed: cannot start {_MODULE}: {error}\n".encode("utf-8", "replace"))
        os._exit(2)
    if found is None:
        return
    sys.argv[1:] = found.arguments
    for line in [found.message, *(f"warning: {text}" for text in found.warnings)]:
        os.write(2, f"trainshed: {line}\n".encode("utf-8", "replace"))


def install() -> None:
    if _is_launcher():
        _translate()
    elif os.environ.get("PADDLE_DISTRI_BACKEND") == "gloo":
        import trainshed_paddle_groups  # type: ignore[import-not-found,unused-ignore]

        trainshed_paddle_groups.install()
