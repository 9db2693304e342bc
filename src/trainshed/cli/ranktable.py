"""`trainshed ranktable check|convert|make`: rank tables on the command line."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainshed.cli.groups import command_group
from trainshed.errors import NotFoundError, UsageError
from trainshed.plural import counted

if TYPE_CHECKING:
    from trainshed.ranktables import Finding, RankTable

app = command_group("Check, convert and make rank tables.")

_MAX_BYTES = 256 * 1024 * 1024
_SHOWN = 50
_FORMS = "v1, pods, devices or hostfile"

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ToOption = Annotated[str, typer.Option("--to", help=f"The form to write: {_FORMS}.")]
OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write here instead of standard output.")
]
GroupOption = Annotated[str, typer.Option("--group-name", help="Group name in the pods form.")]
JobOption = Annotated[str, typer.Option("--job-id", help="First part of pod names in the pods form.")]


@app.command()
def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Rank tables of any form.")],
    reach: Annotated[bool, typer.Option(help="Also try a TCP connection to every server.")] = False,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port for --reach.")] = 22,
    assignments: Annotated[
        Path | None,
        typer.Option(help="What a script starts, lines `SERVER DEVICE_ID RANK_ID`: checked too."),
    ] = None,
    rank_size: Annotated[
        int | None, typer.Option(min=1, help="RANK_SIZE of the script; the table's size by default.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Find what is wrong with rank tables and say how to fix it; exit 1 when there is an error."""
    from trainshed import ranktables
    from trainshed.ranktables.reach import check_reach

    started = _read_assignments(assignments) if assignments else None
    results: list[tuple[Path, list[Finding]]] = []
    for file in files:
        text = _read(file)
        findings = ranktables.check_text(text)
        try:
            table = ranktables.read(text) if reach or started is not None else None
        except ranktables.RankTableError:
            table = None  # the findings say why
        if table is not None and started is not None:
            findings += ranktables.check_assignment(table, started, rank_size or table.rank_size)
        if table is not None and reach:
            findings += check_reach(table, port=port)
        results.append((file, findings))
    if as_json:
        _print_json(
            [
                {"file": str(f), "ok": _ok(found), "findings": [asdict(x) for x in found]}
                for f, found in results
            ]
        )
    else:
        for file, found in results:
            _print_findings(file, found)
    if not all(_ok(found) for _, found in results):
        raise typer.Exit(1)


@app.command()
def convert(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A rank table of any form.")],
    to: ToOption,
    output: OutputOption = None,
    group_name: GroupOption = "job-trainjob",
    job_id: JobOption = "job0",
    as_json: JsonOption = False,
) -> None:
    """Write a rank table in another form; ranks stay what they are."""
    from trainshed import ranktables

    table = ranktables.read(_read(file))
    if table.status != ranktables.COMPLETED:
        raise ranktables.RankTableNotReadyError(
            f'{file} has status "{table.status}"', "convert it once the platform has completed it"
        )
    _emit(table, to, output, group_name, job_id, as_json)


@app.command()
def make(
    hosts: Annotated[str | None, typer.Option(help="Servers and devices: 10.0.0.1:8,10.0.0.2:8.")] = None,
    hostfile: Annotated[Path | None, typer.Option(help="The same as a file of `host slots=n`.")] = None,
    hccn: Annotated[
        list[str] | None,
        typer.Option(metavar="SERVER=FILE", help="A copy of that server's /etc/hccn.conf: device addresses."),
    ] = None,
    to: ToOption = "v1",
    output: OutputOption = None,
    group_name: GroupOption = "job-trainjob",
    job_id: JobOption = "job0",
    as_json: JsonOption = False,
) -> None:
    """Make a rank table from a list of servers: ranks count server by server, device by device."""
    from trainshed.ranktables import RankTable, TableDevice, TableServer
    from trainshed.ranktables.hosts import read_hostfile, read_hosts_argument

    if (hosts is None) == (hostfile is None):
        raise UsageError("the servers are missing or given twice", "give either --hosts or --hostfile")
    entries = read_hosts_argument(hosts) if hosts is not None else read_hostfile(_read(Path(str(hostfile))))
    addresses = _addresses(hccn or [], [entry.host for entry in entries])
    servers = []
    rank = 0
    for entry in entries:
        known = addresses.get(entry.host)
        if known is not None and len(known) < entry.slots:
            raise UsageError(
                f"{entry.host} has {counted(entry.slots, 'device')}, but its hccn.conf has {len(known)} addresses",
                "lower the number of devices or complete the file",
            )
        ids = sorted(known)[: entry.slots] if known else range(entry.slots)
        devices = [TableDevice(i, known[i] if known else None, rank + n) for n, i in enumerate(ids)]
        rank += len(devices)
        servers.append(TableServer(entry.host, devices))
    _emit(RankTable.build(servers), to, output, group_name, job_id, as_json)


def _addresses(options: list[str], hosts: list[str]) -> dict[str, dict[int, str]]:
    from trainshed.devices.hccn import parse_hccn_conf

    found = {}
    for option in options:
        server, equals, file = option.partition("=")
        if not equals or not file:
            raise UsageError(f"--hccn {option}", "write SERVER=FILE, for example 10.0.0.1=hccn-1.conf")
        if server not in hosts:
            raise UsageError(
                f"--hccn names {server}, which is not among the servers", f"use one of: {', '.join(hosts)}"
            )
        found[server] = {a.device_id: a.ip for a in parse_hccn_conf(_read(Path(file)))}
    return found


def _emit(table: RankTable, to: str, output: Path | None, group: str, job: str, as_json: bool) -> None:
    from trainshed.ranktables import Form, write
    from trainshed.ranktables.hosts import hosts_of, write_hostfile

    if to == "hostfile":
        text = write_hostfile(hosts_of(table))
    elif to in tuple(Form):
        text = write(table, Form(to), group_name=group, job_id=job)
    else:
        raise UsageError(f"--to {to}", f"use {_FORMS}")
    if output is not None:
        _write(output, text)
    if as_json:
        content: Any = text if to == "hostfile" else json.loads(text)
        summary = {"form": to, "servers": len(table.server_ids), "devices": table.rank_size}
        _print_json({**summary, "output": str(output)} if output else {**summary, "table": content})
    elif output is None:
        sys.stdout.write(text)
    else:
        typer.echo(
            f"{output}: {to}, {counted(len(table.server_ids), 'server')}, {counted(table.rank_size, 'device')}"
        )


def _read(file: Path) -> str:
    try:
        if file.stat().st_size > _MAX_BYTES:
            raise UsageError(f"{file} is larger than {_MAX_BYTES // 2**20} MiB", "name a rank table")
        return file.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise NotFoundError(f"{file} does not exist", "check the path") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {file}: {error}", "name a readable text file") from error


def _write(file: Path, text: str) -> None:
    """Atomic: a job that polls the file must never see half a table."""
    draft = file.with_name(f".{file.name}.{os.urandom(8).hex()}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(file)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise UsageError(
            f"cannot write {file}: {error.strerror}", "check the folder and its permissions"
        ) from error


def _read_assignments(file: Path) -> list[tuple[str, int, int]]:
    found = []
    for number, line in enumerate(_read(file).splitlines(), 1):
        parts = line.split("#", 1)[0].split()
        if not parts:
            continue
        if len(parts) != 3 or not (parts[1].isdecimal() and parts[2].isdecimal()):
            raise UsageError(f"line {number} of {file} is {line.strip()!r}", "write SERVER DEVICE_ID RANK_ID")
        found.append((parts[0], int(parts[1]), int(parts[2])))
    return found


def _ok(findings: list[Finding]) -> bool:
    return not any(finding.severity == "error" for finding in findings)


def _print_findings(file: Path, findings: list[Finding]) -> None:
    if not findings:
        typer.echo(f"{file}: no fault found")
        return
    errors = sum(finding.severity == "error" for finding in findings)
    typer.echo(f"{file}: {counted(errors, 'error')}, {counted(len(findings) - errors, 'warning')}")
    for finding in findings[:_SHOWN]:
        typer.echo(f"  {finding.severity} {finding.where}: {finding.what}\n    -> {finding.remedy}")
    if len(findings) > _SHOWN:
        typer.echo(f"  and {len(findings) - _SHOWN} more (--json shows all)")


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))
