"""The command line's entry point: finds the command, loads only its module, and prints errors.

The list below is also the help text, so that `trainshed --help` imports nothing.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module

from trainshed.errors import TrainshedError, UsageError

# name → (module, attribute, one line). An attribute `app` is a group of commands, any other a command.
COMMANDS = {
    "run": ("run", "run", "Run a job in the foreground: live log, Ctrl-C stops it, exit code mirrors it."),
    "example": ("example", "app", "Example jobs: list, copy."),
    "init": ("init", "init", "Write a commented job file for a script."),
    "submit": ("run", "submit", "Start a job in the background and print its run id."),
    "ps": ("inspect", "ps", "List active runs (-a: all)."),
    "show": ("inspect", "show", "Everything known about a run: state, reason, phases, ranks."),
    "logs": ("inspect", "logs", "Print the logs of a run's ranks (-f: as they grow)."),
    "wait": ("inspect", "wait", "Wait for a run to end; the exit code mirrors it."),
    "stop": ("control", "stop", "Stop a run: SIGTERM, its grace, SIGKILL."),
    "rm": ("control", "rm", "Remove ended runs, or objects by URL."),
    "completion": ("completion", "completion", "Print the completion script of bash, zsh or fish."),
    "doctor": ("doctor", "doctor", "Check this machine; say what is missing and how to get it."),
    "profile": ("profile", "app", "Site profiles of clusters: add, list, show, keys, rm."),
    "env": ("env", "app", "Python environments of the frameworks: create, add, list, show, rm."),
    "store": ("store", "app", "The embedded object store: up, down, status, user, bucket."),
    "cp": ("files", "cp", "Copy files or trees between folders and object stores."),
    "sync": ("files", "sync", "Make a destination equal to a source, copying only what differs."),
    "ls": ("files", "ls", "List a folder or a URL."),
    "cat": ("files", "cat", "Print an object."),
    "du": ("files", "du", "Count the objects and bytes below a URL."),
    "serve": ("serve", "serve", "The platform server for a team: accounts, queue, API."),
    "admin": ("admin", "app", "Users, teams and quotas of the server."),
    "ranktable": ("ranktable", "app", "Check, convert and make rank tables and host files."),
    "bench": ("bench", "app", "Run benchmarks: run, check, compare, history, report."),
    "tester": (
        "tester",
        "app",
        "The organiser's server: receive, check and rank results; send results to it.",
    ),
}
_PASS_ON = ("run", "submit")
"""Commands for which what follows `--` belongs to the job's script."""


def main() -> None:
    """Run one command line and leave with its exit code."""
    sys.exit(_main(sys.argv[1:]))


def _main(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(_help())
        return 0
    if argv[0] == "--version":
        from trainshed.version import VERSION

        print(VERSION)
        return 0
    try:
        return _dispatch(argv)
    except TrainshedError as error:
        _tell(error, as_json=_wants_json(argv))
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 141
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        text = f"{argv[0]}: {where}{error.strerror or error}"
        _tell(
            TrainshedError(text, "check the path, its permissions and the free space"),
            as_json=_wants_json(argv),
        )
        return 1


def _wants_json(argv: list[str]) -> bool:
    return "--json" in (argv[: argv.index("--")] if "--" in argv else argv)


def _dispatch(argv: list[str]) -> int:
    name = argv[0]
    if name not in COMMANDS:
        from difflib import get_close_matches

        near = get_close_matches(name, COMMANDS, n=1)
        raise UsageError(
            f"no such command: {name!r}",
            f"did you mean {near[0]}?" if near else "`trainshed --help` lists them",
        )
    module, attribute, _ = COMMANDS[name]
    target = getattr(import_module(f"trainshed.cli.{module}"), attribute)
    import typer
    from typer.exceptions import TyperException

    app = target
    if attribute != "app":
        app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        app.command()(target)
    arguments, passed_on = argv[1:], None
    if name in _PASS_ON and "--" in arguments:
        end = arguments.index("--")
        arguments, passed_on = arguments[:end], arguments[end + 1 :]
    try:
        code = app(arguments, prog_name=f"trainshed {name}", standalone_mode=False, obj=passed_on)
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else int(leave.code is not None)
    except TyperException as error:
        from trainshed.cli.usage import requested_help, to_usage_error

        if text := requested_help(error):
            print(text)
            return 0
        raise to_usage_error(error, f"trainshed {name}") from error
    return code if isinstance(code, int) else 0


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = "\n".join(f"  {name:<{width}}  {text}" for name, (_, _, text) in COMMANDS.items())
    return (
        "usage: trainshed COMMAND [OPTIONS]\n\n"
        "Runs a distributed training job anywhere, with the environment its script was\n"
        f"written for, and turns the run into a result that can be trusted.\n\n{lines}\n\n"
        "`trainshed COMMAND --help` tells more. Runs are kept in $TRAINSHED_HOME (~/.trainshed)."
    )


def _tell(error: TrainshedError, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"error": {"code": error.code, "message": error.message, "hint": error.hint}}))
        return
    from trainshed.cli.output import printable_lines

    print(f"error: {printable_lines(error.message)}", file=sys.stderr)
    if error.hint:
        print(f"  hint: {printable_lines(error.hint)}", file=sys.stderr)


if __name__ == "__main__":
    main()
