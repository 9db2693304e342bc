"""`trainshed tester`: the organiser's server and its tests; for participants, sending results to it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainshed.cli import process
from trainshed.cli.groups import command_group
from trainshed.cli.output import clock, print_json, print_table
from trainshed.errors import TrainshedError, UsageError

if TYPE_CHECKING:
    from trainshed.tester.ledger import Ledger

app = command_group("The organiser's server: register tests, receive and rank results; send results to it.")

Json = Annotated[bool, typer.Option("--json", help="machine-readable output")]
Folder = Annotated[Path | None, typer.Option("--folder", help="the Tester's folder [$TRAINSHED_HOME/tester]")]
TestId = Annotated[str, typer.Argument(help="id of the test")]


@app.command()
def serve(
    folder: Folder = None,
    host: Annotated[str, typer.Option(help="address to listen on; 0.0.0.0 for all")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free port")] = 9527,
    certificate: Annotated[Path | None, typer.Option(help="PEM file, for https")] = None,
    key: Annotated[Path | None, typer.Option(help="PEM file of the certificate's key")] = None,
    max_result: Annotated[str, typer.Option(help="largest result accepted")] = "1GiB",
    quiet: Annotated[bool, typer.Option("--quiet", help="do not log requests")] = False,
    as_json: Json = False,
) -> None:
    """Serve until stopped: the protocol for participants and the web pages."""
    from trainshed.spec.values import parse_size
    from trainshed.tester.server import HttpServer
    from trainshed.tester.service import TesterService

    if (certificate is None) != (key is None):
        raise UsageError("--certificate and --key belong together", "give both or neither")
    tls = (certificate, key) if certificate and key else None
    try:
        tester = TesterService(_folder(folder), parse_size(max_result))
    except ValueError as error:
        raise UsageError(f"--max-result {max_result!r}: {error}", "write for example 512MiB") from error
    tell = None if quiet else lambda line: print(line, file=sys.stderr, flush=True)
    server = HttpServer(tester, (host, port), tell, tls)
    tester.start()
    address = f"{'https' if tls else 'http'}://{host}:{server.server_address[1]}"
    if as_json:
        print_json({"url": address, "folder": str(_folder(folder))})
    else:
        print(f"Tester on {address}, data in {_folder(folder)}")
    if tls is None and host not in ("127.0.0.1", "localhost", "::1"):
        print("warning: tokens travel unencrypted; use --certificate and --key", file=sys.stderr)
    sys.stdout.flush()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: threading.Thread(target=server.shutdown).start())
    server.serve_forever()
    server.server_close()
    tester.stop()


@app.command()
def add(
    test: TestId,
    model: Annotated[str, typer.Option(help="such as resnet50_v1.5")],
    mode: Annotated[str, typer.Option(help="training or inference")] = "training",
    division: Annotated[str, typer.Option(help="closed or open")] = "closed",
    scenario: Annotated[str, typer.Option()] = "generic",
    test_object: Annotated[str, typer.Option("--object", help="single or cluster")] = "single",
    participant: Annotated[str, typer.Option(help="shown on the pages")] = "",
    workload: Annotated[
        Path | None,
        typer.Option(help="folder of the workload: your copy of it counts, whatever a result brings"),
    ] = None,
    runs: Annotated[
        int, typer.Option(min=0, help="minimum number of runs of a result; 0: as in the workload")
    ] = 0,
    rules: Annotated[Path | None, typer.Option(help="rules.json that results must match exactly")] = None,
    max_results: Annotated[int, typer.Option(help="how many results the test takes")] = 20,
    offline: Annotated[
        bool, typer.Option("--offline", help="also accept results made without this Tester as witness")
    ] = False,
    token_file: Annotated[
        Path | None, typer.Option(help="write the token here instead of showing it")
    ] = None,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Register a test and print its token, which is shown only now."""
    from trainshed.tester.model import Test

    if (rules is None) == (workload is None):
        raise UsageError("a test has a workload or rules", "give --workload FOLDER or --rules FILE")
    test_ = Test(
        test,
        mode,
        model,
        division,
        scenario,
        test_object,
        participant,
        _rules(rules),
        max_results,
        workload=_workload(workload, runs),
        attested=not offline,
    )
    _give_token(test, lambda: _ledger(folder).add_test(test_), token_file, as_json)


@app.command("new-token")
def new_token(
    test: TestId,
    token_file: Annotated[
        Path | None, typer.Option(help="write the token here instead of showing it")
    ] = None,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Replace a test's token; the old one no longer works."""
    _give_token(test, lambda: _ledger(folder).new_token(test), token_file, as_json)


@app.command()
def tests(folder: Folder = None, as_json: Json = False) -> None:
    """List the registered tests."""
    found = _ledger(folder).tests()
    if as_json:
        print_json([test.public() for test in found])
        return
    names = ("id", "participant", "model", "mode", "division", "scenario", "object")
    rows = [[str(getattr(t, n)) for n in names] + ["closed" if t.closed else "open"] for t in found]
    print_table([*names, "state"], rows)


@app.command()
def results(test: Annotated[str, typer.Argument(help="only this test")] = "", folder: Folder = None,
            as_json: Json = False) -> None:  # fmt: skip
    """List what has arrived, newest first."""
    found = _ledger(folder).results(test)
    if as_json:
        print_json([item.public() for item in found])
        return
    rows = [
        [item.test, item.upload[:12], clock(item.received), item.state, _score(item.summary),
         " ".join(sorted({f["code"] for f in item.findings}))]
        for item in found
    ]  # fmt: skip
    print_table(["test", "upload", "received", "state", "score", "findings"], rows)


@app.command()
def close(test: TestId, reopen: Annotated[bool, typer.Option("--reopen")] = False, folder: Folder = None,
          as_json: Json = False) -> None:  # fmt: skip
    """Take no more results for a test (or, with --reopen, take them again)."""
    _ledger(folder).close_test(test, not reopen)
    if as_json:
        print_json({"test": test, "closed": not reopen})


@app.command()
def export(
    what: Annotated[str, typer.Argument(help="results.csv, results.json, ranking.csv or ranking.json")],
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Print results or the ranking as CSV or JSON."""
    from trainshed.tester import export as maker

    makers = {"results.csv": maker.results_csv, "results.json": maker.results_json,
              "ranking.csv": maker.ranking_csv, "ranking.json": maker.ranking_json}  # fmt: skip
    name = what.partition(".")[0] + ".json" if as_json else what
    if name not in makers:
        raise UsageError(f"there is no export {what!r}", f"choose {', '.join(makers)}")
    ledger = _ledger(folder)
    print(makers[name](ledger.tests(), ledger.results()), end="")


@app.command()
def token(test: TestId, as_json: Json = False) -> None:
    """Keep a test's token on this machine: it is read from standard input."""
    from getpass import getpass

    from trainshed.tester.spool import Participant

    text = getpass(f"token of {test}: ") if sys.stdin.isatty() else sys.stdin.readline(300)
    path = Participant.from_environment(os.environ).save_token(test, text.strip())
    if as_json:
        print_json({"test": test, "path": str(path)})
    else:
        print(f"kept in {path}")


@app.command()
def send(
    result: Annotated[str, typer.Argument(help="a finished result: its folder, or its id in bench history")],
    to: Annotated[str, typer.Option(help="http(s)://HOST:PORT of the Tester")],
    test: Annotated[str, typer.Option(help="id of the test")],
    token_file: Annotated[Path | None, typer.Option(help="file with the token")] = None,
    authority: Annotated[Path | None, typer.Option(help="CA file of the Tester's certificate")] = None,
    wait: Annotated[str, typer.Option(help="how long to retry before it stays in the spool")] = "5m",
    verdict: Annotated[bool, typer.Option(help="wait for the Tester's check")] = True,
    as_json: Json = False,
) -> None:
    """Send a result; it is kept and can be sent again until the Tester has acknowledged it."""
    from trainshed.api import Client
    from trainshed.bench.run import runner
    from trainshed.tester.deliver import verdict_of
    from trainshed.tester.spool import Participant, Spool

    participant = Participant.from_environment(os.environ)
    spool = Spool(participant)
    entry = spool.keep(
        runner.find_folder(Client(), result), to, test, str(token_file or ""), str(authority or "")
    )
    receipt = spool.send(entry, _seconds(wait), None if as_json else _say)
    state = verdict_of(entry, participant, 120.0) if verdict else {"state": "received", "receipt": receipt}
    _show_verdict(state, entry.upload, as_json)


@app.command()
def resend(
    wait: Annotated[str, typer.Option(help="how long to try for each")] = "1m", as_json: Json = False
) -> None:
    """Send everything that waits in the spool."""
    from trainshed.tester.spool import Participant, Spool

    spool = Spool(Participant.from_environment(os.environ))
    outcome: list[dict[str, Any]] = []
    for entry in spool.waiting():
        try:
            spool.send(entry, _seconds(wait), None if as_json else _say)
            outcome.append({"test": entry.test, "upload": entry.upload, "state": "sent"})
        except TrainshedError as error:
            outcome.append(
                {"test": entry.test, "upload": entry.upload, "state": "waits", "why": error.message}
            )
    if as_json:
        print_json(outcome)
    else:
        rows = [[o["test"], o["upload"][:12], o["state"], o.get("why", "")] for o in outcome]
        print_table(["test", "upload", "state", "why"], rows)
    if any(item["state"] != "sent" for item in outcome):
        raise typer.Exit(1)


@app.command()
def spool(as_json: Json = False) -> None:
    """List results that wait to be sent."""
    from trainshed.tester.spool import Participant, Spool

    found = Spool(Participant.from_environment(os.environ))
    rows = [
        (e.test, e.upload, e.url, clock(e.kept), found.problem(e), str(found.root / e.name))
        for e in found.waiting()
    ]
    names = ("test", "upload", "to", "kept", "problem", "folder")
    if as_json:
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        print_table(names, [[test, upload[:12], *rest] for test, upload, *rest in rows])


def _folder(folder: Path | None) -> Path:
    return (folder or process.home() / "tester").resolve()


def _ledger(folder: Path | None) -> Ledger:
    from trainshed.tester.ledger import Ledger

    return Ledger(_folder(folder) / "tester.sqlite")


def _rules(path: Path | None) -> str:
    if path is None:
        return ""
    from pydantic import ValidationError

    from trainshed.bench.judge.rules import Rules
    from trainshed.spec.mistakes import summary_of

    try:
        return Rules.model_validate_json(path.read_text("utf-8")).model_dump_json()
    except (OSError, ValidationError) as error:
        text = summary_of(error, Rules) if isinstance(error, ValidationError) else error.strerror
        raise UsageError(f"--rules {path}: {text}", "give the rules.json of a result folder") from error


def _workload(path: Path | None, runs: int) -> str:
    """The organiser's copy of a workload, with its own number of runs."""
    if path is None:
        return ""
    from trainshed.bench.run.workload import load

    copy = load(path)
    if runs:
        scales = {name: scale.model_copy(update={"runs": runs}) for name, scale in copy.scales.items()}
        copy = copy.model_copy(update={"scales": scales})
    return copy.model_dump_json()


def _give_token(test: str, make: Callable[[], str], path: Path | None, as_json: bool) -> None:
    """Make a token and write it where it belongs, or show it."""
    with _private(path) as handle:
        token = make()
        if handle is not None:
            os.write(handle, token.encode() + b"\n")
    if as_json:
        print_json({"test": test} | ({"token_file": str(path)} if path else {"token": token}))
    elif path:
        print(f"token of {test} written to {path}")
    else:
        print(f"token of {test} (shown only now): {token}")


@contextmanager
def _private(path: Path | None) -> Iterator[int | None]:
    """A file that only its owner can read, open before there is a token that could be lost."""
    if path is None:
        yield None
        return
    old = path.exists()
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        if path.is_file():
            os.fchmod(handle, 0o600)
    except OSError as error:
        raise UsageError(f"--token-file {path}: {error.strerror}", "choose a file you can write") from error
    try:
        yield handle
        if path.is_file():
            os.ftruncate(handle, os.lseek(handle, 0, os.SEEK_CUR))
    except BaseException:
        if not old:
            path.unlink()
        raise
    finally:
        os.close(handle)


def _seconds(text: str) -> float:
    from trainshed.spec.values import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"--wait {text!r}: {error}") from error


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _score(summary: dict[str, Any]) -> str:
    from trainshed.bench.report.text import figure

    return "" if summary.get("score") is None else f"{figure(summary['score'])} {summary.get('unit', '')}"


def _show_verdict(state: dict[str, Any], upload: str, as_json: bool) -> None:
    findings = state["receipt"]["findings"]
    if as_json:
        print_json({"state": state["state"], "receipt": state["receipt"]})
    else:
        print(f"{state['state']}: result {upload[:12]} is at the Tester")
        for item in findings:
            print(f"  {item['code']}: {item['message']}")
    if state["state"] in ("failed", "unstable"):
        raise typer.Exit(1)
