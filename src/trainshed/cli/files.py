"""Commands on files and URLs: cp, sync, ls, cat, du, rm. They ask `trainshed.store` and show the answer."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from trainshed.cli import process
from trainshed.cli.groups import command_group
from trainshed.cli.output import printable, size
from trainshed.plural import counted

if TYPE_CHECKING:
    from trainshed.store import CopySummary, Entry, Progress

app = command_group("Copy, list and remove files and objects.")

Url = Annotated[
    str, typer.Argument(help="A path, file://, obs://BUCKET/KEY or s3://BUCKET/KEY.", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
FollowLinks = Annotated[
    bool, typer.Option("--follow-links", help="Follow links that point outside the source.")
]


@app.command()
def cp(
    source: Url,
    destination: Url,
    force: Annotated[bool, typer.Option("--force", help="Copy unchanged files too.")] = False,
    follow_links: FollowLinks = False,
    as_json: Json = False,
) -> None:
    """Copy a file, or the contents of a directory into a directory. Run again to resume."""
    _copy(source, destination, delete=False, force=force, follow_links=follow_links, as_json=as_json)


@app.command()
def sync(
    source: Url,
    destination: Url,
    delete: Annotated[
        bool,
        typer.Option("--delete", help="Remove files from the destination that the source does not have."),
    ] = False,
    follow_links: FollowLinks = False,
    as_json: Json = False,
) -> None:
    """Make a directory like another one, moving only what differs."""
    _copy(source, destination, delete=delete, force=False, follow_links=follow_links, as_json=as_json)


@app.command()
def ls(
    url: Url,
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="All levels.")] = False,
    as_json: Json = False,
) -> None:
    """List what is in a directory, bucket or prefix; `s3://` lists the buckets."""
    from trainshed.store import Entry, list_buckets, list_level, list_tree
    from trainshed.store.buckets import is_store

    access = process.store_access()
    if is_store(url):
        found = [
            Entry(bucket, is_directory=True)
            for bucket in list_buckets(url[:-3], credentials=access.credentials(url[:-3]))
        ]
    else:
        found = sorted((list_tree if recursive else list_level)(url, credentials=access.keys(url)))
    if as_json:
        print(json.dumps([_row(entry) for entry in found]))
        return
    for entry in found:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.mtime)) if entry.mtime else "-"
        length = "-" if entry.is_directory else size(entry.size)
        print(f"{length:>10}  {when:>16}  {printable(entry.name)}{'/' * entry.is_directory}")


def _row(entry: Entry) -> dict[str, object]:
    if entry.is_directory:
        return {"name": f"{entry.name}/", "size": None, "mtime": None}
    return {"name": entry.name, "size": entry.size, "mtime": entry.mtime}


@app.command()
def cat(url: Url) -> None:
    """Write a file's or object's bytes to standard output."""
    from trainshed.store import cat as pieces

    for piece in pieces(url, credentials=process.store_access().keys(url)):
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


@app.command()
def du(url: Url, as_json: Json = False) -> None:
    """Count files and bytes."""
    from trainshed.store import disk_usage

    files, total = disk_usage(url, credentials=process.store_access().keys(url))
    shown = f"{size(total)} in {counted(files, 'file')}"
    print(json.dumps({"files": files, "bytes": total}) if as_json else shown)


@app.command("rm")
def rm_url(
    url: Url,
    recursive: Annotated[
        bool, typer.Option("--recursive", "-r", help="A directory and everything in it.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Remove a file or object."""
    from trainshed.store import remove

    count = remove(url, recursive=recursive, credentials=process.store_access().keys(url))
    print(json.dumps({"removed": count}) if as_json else f"removed {count}")


def _copy(
    source: str, destination: str, *, delete: bool, force: bool, follow_links: bool, as_json: bool
) -> None:
    from trainshed.store import copy

    with _bar(enabled=not as_json) as progress:
        summary = copy(
            source,
            destination,
            delete=delete,
            force=force,
            follow_links=follow_links,
            progress=progress,
            resolve=process.store_access().credentials,
        )
    if as_json:
        print(json.dumps({**asdict(summary), "complete": summary.complete}))
    else:
        _tell(summary)
    if not summary.complete:
        raise typer.Exit(1)


def _tell(summary: CopySummary) -> None:
    rate = summary.bytes / summary.seconds if summary.seconds else 0
    parts = [
        f"{counted(summary.files, 'file')}, {size(summary.bytes)} in {summary.seconds:.1f} s ({size(rate)}/s)"
    ]
    parts += [f"{summary.skipped} unchanged"] if summary.skipped else []
    parts += [f"{summary.deleted} deleted"] if summary.deleted else []
    parts += [f"{summary.retries} retries"] if summary.retries else []
    print(", ".join(parts))
    for name in summary.unverified:
        print(f"not verified (the store gives no checksum): {printable(name)}", file=sys.stderr)
    for problem in (*summary.unrepresentable, *summary.unstable):
        print(f"not copied: {printable(problem.name)} {problem.reason}", file=sys.stderr)


@contextmanager
def _bar(*, enabled: bool) -> Iterator[Callable[[Progress], None] | None]:
    """A progress bar with rate and time left, on a terminal only."""
    if not (enabled and sys.stderr.isatty()):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("listing")

        def show(state: Progress) -> None:
            description = f"{state.files}/{state.files_total}{'+' if state.listing else ''} files"
            bar.update(task, description=description, completed=state.bytes, total=state.bytes_total or None)

        yield show
