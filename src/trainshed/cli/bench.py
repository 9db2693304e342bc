"""`trainshed bench`: run workloads, check, compare and show results."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from trainshed.cli.aisbench import package, stubs
from trainshed.cli.groups import command_group
from trainshed.errors import UsageError

app = command_group("Run workloads; check, compare and show results.")

app.command()(package)
app.command()(stubs)

Json = Annotated[bool, typer.Option("--json", help="machine-readable output")]
ResultName = Annotated[
    str, typer.Argument(help="result folder, its name below bench/ of the home, or the beginning of its id")
]


@app.command()
def run(
    folder: Annotated[Path, typer.Argument(help="a shipped workload's name, or a folder with workload.yaml")],
    framework: Annotated[
        str, typer.Option("-f", "--framework", help="implementation; the first by default")
    ] = "",
    scale: Annotated[str, typer.Option("-s", "--scale", help="tiny, full, or your own scale")] = "tiny",
    shape: Annotated[str, typer.Option("-j", "--shape", help="nodes x devices per node, e.g. 2x2")] = "",
    runs: Annotated[
        int, typer.Option("-n", "--runs", min=0, help="number of runs; 0: as in the workload")
    ] = 0,
    seed: Annotated[int | None, typer.Option(help="first seed; random by default")] = None,
    data: Annotated[str, typer.Option(help="folder or URL of the data, instead of the workload's")] = "",
    engine: Annotated[
        str, typer.Option("--engine", envvar="TRAINSHED_ENGINE", help="where nodes come from")
    ] = "local",
    option: Annotated[
        list[str] | None, typer.Option("-o", "--option", help="NAME=VALUE for the engine")
    ] = None,
    system: Annotated[
        Path | None, typer.Option(help="JSON file with fields of system.json to override")
    ] = None,
    power: Annotated[
        list[str] | None, typer.Option(help="NODE=rapl, or NODE=COMMAND that prints watts")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="result folder to make")] = None,
    emulate: Annotated[bool, typer.Option("--emulate", help="run an Ascend workload on the CPU")] = False,
    single_server: Annotated[
        bool, typer.Option("--single-server", help="every node trains alone; mean of all")
    ] = False,
    tester: Annotated[
        str,
        typer.Option(help="http(s)://HOST:PORT of the Tester that is to see the runs while they are made"),
    ] = "",
    test: Annotated[str, typer.Option(help="id of the test, with --tester")] = "",
    token_file: Annotated[Path | None, typer.Option(help="file with the test's token")] = None,
    authority: Annotated[Path | None, typer.Option(help="CA file of the Tester's certificate")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print rules and job, and exit")] = False,
    as_json: Json = False,
) -> None:
    """Run a workload N times, score it, write result and report."""
    from trainshed.api import Client
    from trainshed.bench.measure.watts import parse_sources
    from trainshed.bench.run import runner, workload
    from trainshed.spec.load import dump_job

    client = Client()
    chosen = workload.choose(folder, framework, scale, shape, runs, single_server, data, home=client.home)
    if dry_run:
        rules = workload.rules_of(chosen)
        workload.prepare_data(chosen, client.context.process_variables())
        job = workload.job_of(chosen, seed or 1)
        _print({"rules": rules.model_dump(), "job": dump_job(job)}) if as_json else print(
            rules.model_dump_json(indent=2), dump_job(job), sep="\n"
        )
        return
    target = out or runner.default_folder(client, chosen)
    sources = parse_sources(power or [])
    witness = _witness(tester, test, str(token_file or ""), str(authority or ""))
    # Set here as well for SIGINT: a process started in the background has Ctrl-C ignored from the start.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        description, options = _system_description(system), _pairs(option or [])
        result = runner.run(
            client, chosen, target, _say, engine, seed, emulate, description, options, sources, witness
        )
    except KeyboardInterrupt:
        _say(f"stopped; what there is can be measured with: trainshed bench collect {target}")
        raise
    _ending(result, target, as_json)


@app.command()
def collect(result: ResultName, as_json: Json = False) -> None:
    """Measure a result folder again, for example after a crash."""
    from trainshed.api import Client
    from trainshed.bench.run import runner

    folder = runner.find_folder(Client(), result)
    _ending(runner.collect(Client(), folder), folder, as_json)


@app.command()
def check(result: ResultName, as_json: Json = False) -> None:
    """Check everything: manifest, schema, numbers from raw marks, all rules. Exits 1 if any is wrong."""
    from trainshed.api import Client
    from trainshed.bench.judge.check import check as check_folder
    from trainshed.bench.judge.limits import bounded
    from trainshed.bench.run import runner

    folder = runner.find_folder(Client(), result)
    with bounded():
        checked = check_folder(folder)
    if as_json:
        found = [f.model_dump() for f in checked.findings]
        stated = {name: getattr(checked.result, name, None) for name in ("status", "attestation")}
        _print({"ok": checked.ok, **stated, "findings": found})
    else:
        for finding in checked.findings:
            print(f"{finding.code}: {finding.message}")
        if checked.ok:
            print(
                f"{folder} is valid: every number, rule and file was checked, report.html by its checksum only"
            )
        if checked.result:
            print(checked.result.attestation)
    if not checked.ok:
        raise typer.Exit(1)


@app.command()
def compare(
    a: ResultName,
    b: Annotated[str, typer.Argument(help="the result to compare with it")],
    as_json: Json = False,
) -> None:
    """Is B faster than A, beyond noise? Exits 1 if the two cannot be compared."""
    from dataclasses import asdict

    from trainshed.bench.history import NOT_COMPARABLE
    from trainshed.bench.history import compare as compare_entries
    from trainshed.bench.report.text import describe_shape, figure

    comparison = compare_entries(_entry(a), _entry(b))
    if as_json:
        _print(asdict(comparison))
    else:
        for name, entry in (("A", comparison.a), ("B", comparison.b)):
            value = "no score" if entry.score is None else f"{figure(entry.score)} {entry.unit}"
            shape = describe_shape(entry.nodes, entry.ranks)
            print(f"{name}  {value}  {entry.framework} {shape}  {entry.id}")
        print(comparison.sentence)
    if comparison.verdict == NOT_COMPARABLE:
        raise typer.Exit(1)


@app.command()
def history(
    workload: Annotated[str, typer.Option(help="only this workload")] = "",
    limit: Annotated[int, typer.Option(min=1, max=10_000)] = 50,
    as_json: Json = False,
) -> None:
    """Results of this home, newest first."""
    from dataclasses import asdict
    from datetime import datetime

    from trainshed.api import Client
    from trainshed.bench.report.text import describe_shape, figure
    from trainshed.bench.run import runner
    from trainshed.cli.output import clock, print_table

    entries = runner.history(Client()).list(workload, limit)
    if as_json:
        _print([asdict(e) for e in entries])
        return
    rows = []
    for e in entries:
        score = "" if e.score is None else f"{figure(e.score)} {e.unit}"
        quality = "" if e.quality is None else figure(e.quality)
        shape = describe_shape(e.nodes, e.ranks)
        created = clock(datetime.fromisoformat(e.created).timestamp())
        rows.append([e.id, created, e.workload, e.scale, e.framework, shape, e.status, score, quality])
    print_table(
        ["ID", "CREATED", "WORKLOAD", "SCALE", "FRAMEWORK", "SHAPE", "STATUS", "SCORE", "QUALITY"], rows
    )


@app.command()
def report(
    result_name: ResultName,
    form: Annotated[str, typer.Option("--format", help="html, md or csv")] = "html",
    out: Annotated[
        Path | None, typer.Option(help="file to write; without one html goes to FOLDER.html")
    ] = None,
    as_json: Json = False,
) -> None:
    """Render a report beside a result, which stays as it is."""
    from trainshed.api import Client
    from trainshed.bench.folder import load_result, load_rules, write
    from trainshed.bench.report.page import html
    from trainshed.bench.report.text import csv_text, markdown
    from trainshed.bench.run import runner

    folder = runner.find_folder(Client(), result_name)
    result, rules = load_result(folder), load_rules(folder)
    if form == "html":
        others = runner.sizes(runner.history(Client()).list(result.workload, limit=500), result)
        out = out or folder.resolve().parent / f"{folder.resolve().name}.html"
        base = f"{Path(os.path.relpath(folder.resolve(), out.resolve().parent)).as_posix()}/"
        text = html(folder, result, rules, others, base)
    elif form in {"md", "csv"}:
        text = markdown(result) if form == "md" else csv_text(result)
    else:
        raise UsageError(f"--format {form}", "choose html, md or csv")
    if out is None:
        print(text, end="")
        return
    write(out, text)
    _print({"report": str(out)}) if as_json else print(out)


@app.command()
def new(
    folder: Annotated[Path, typer.Argument(help="folder to make")],
    framework: Annotated[str, typer.Option("-f", "--framework", help="pytorch or command")] = "command",
    as_json: Json = False,
) -> None:
    """Make a workload folder to start from."""
    from trainshed.bench.run.template import make

    files = make(folder, framework)
    if as_json:
        _print({"files": [str(f) for f in files]})
        return
    for file in files:
        print(file)
    print(f"run it with: trainshed bench run {folder}")


@app.command()
def schema(as_json: Json = True) -> None:
    """Print the JSON schema of result.json."""
    from trainshed.bench.result import json_schema

    _print(json_schema())


def _ending(result: Any, folder: Path, as_json: bool) -> None:
    """The summary: verdict, number, path of the report, and the next command. A failed result exits 1."""
    from trainshed.bench.report.text import interval, show

    if as_json:
        _print({"folder": str(folder), **result.model_dump(by_alias=True)})
    else:
        print(f"{result.workload} {result.scale}, {result.framework}: {result.status}")
        for reason in result.reasons:
            print(f"  {reason.code}: {reason.message}")
        for run in result.runs:
            if run.index in result.score.runs_not_converged:
                print(f"  note: run {run.index} counts as the slowest: {run.reasons[0].message}")
        for warning in result.warnings:
            print(f"  {'unstable' if warning.code == 'unstable' else 'note'}: {warning.message}")
        print(f"  {result.score.metric.replace('_', ' ')}: {show(result.score.value)}")
        if result.score.runs_counted[1:]:
            print(f"  95% interval: {interval(result)}")
        print(f"  quality: {show(result.score.quality)}")
        print(f"  {result.attestation}")
        print(f"  report: {folder / 'report.html'}")
        print(f"  check it with: trainshed bench check {folder}")
    if result.status != "valid":
        raise typer.Exit(1)


def _witness(url: str, test: str, token_file: str, authority: str) -> Any:
    if not url and not test:
        return None
    if not url or not test:
        raise UsageError("--tester and --test belong together", "give both or none")
    from trainshed.tester.spool import Participant
    from trainshed.tester.witness import TesterWitness

    token = Participant.from_environment(os.environ).find_token(test, token_file)
    return TesterWitness(url, test, token, authority)


def _entry(name: str) -> Any:
    """What is compared of a result; one in history can be compared without its folder."""
    from trainshed.api import Client
    from trainshed.bench.folder import load_result
    from trainshed.bench.history import entry_of
    from trainshed.bench.run import runner

    path = runner.folder_named(Client(), name)
    return entry_of(load_result(path), path) if path else runner.history(Client()).get(name)


def _system_description(path: Path | None) -> dict[str, str]:
    import json

    if path is None:
        return {}
    try:
        value = json.loads(path.read_text("utf-8"))
        if not isinstance(value, dict):
            raise ValueError("is not a JSON object")
    except (OSError, ValueError) as error:
        raise UsageError(
            f"--system {path}: {error}", "give a JSON file with fields of system.json"
        ) from error
    return {str(k): str(v) for k, v in value.items() if not isinstance(v, dict)}


def _pairs(options: list[str]) -> dict[str, str]:
    bad = [o for o in options if "=" not in o]
    if bad:
        raise UsageError(f"--option {bad[0]}", "write NAME=VALUE")
    return dict(o.split("=", 1) for o in options)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _print(value: Any) -> None:
    from trainshed.cli.output import print_json

    print_json(value)


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt
