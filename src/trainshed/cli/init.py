"""`trainshed init`: a commented job file for a script."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainshed.errors import UsageError

_TEXT = """\
# A job for `trainshed run`; with --dry-run it shows what each rank will see.
name: {name}
{launcher}
{environment}
code: .                       # this folder goes to every node, but for what .trainshedignore lists
entry: {entry}
resources: 1x2                # nodes x devices per node; 2x8:ascend or 2x8:nvidia on such machines
# args: [train, 10]           # positional arguments
# parameters: {{epochs: 3}}     # --epochs=3
# requirements: requirements.txt   # packages installed for this job alone
# inputs: [{{name: data, source: ./data}}]   # --data=FOLDER, on every node; also obs:// and s3:// URLs
# outputs: [{{name: out}}]      # --out=FOLDER, saved at the end whatever happens
# env: {{OMP_NUM_THREADS: "1"}}
# contract: modelarts-v2      # for a script written for a platform: modelarts-v1, modelarts-v2, apulis
# timeout: 2h
"""


def init(
    script: Annotated[Path, typer.Argument(help="Python script to start once per device")] = Path("train.py"),
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="job.yaml beside the script by default")
    ] = None,
) -> None:
    """Write a commented job file for a script; launcher and environment are guessed from its imports."""
    from trainshed.files import write_atomic
    from trainshed.spec.guess import guess, job_of

    fields, found = job_of(script), guess(script)
    target = out or script.parent / "job.yaml"
    if target.exists():
        raise UsageError(f"{target} exists", "choose another name with --out")
    if target.resolve().parent != script.resolve().parent:
        raise UsageError(
            f"{target} is not beside {script}", "the job file names the script's folder as `code: .`"
        )
    environment = "# environment: pytorch        # trainshed env list; without one: Trainshed's own Python"
    if name := fields.get("environment"):
        environment = f"environment: {name:<16} # trainshed env create {name}"
    launcher = f"launcher: {fields['launcher']}"
    if found.module:
        launcher = f"{launcher:<29} # {script.name} imports {found.module}"
    write_atomic(
        target,
        _TEXT.format(
            name=fields["name"],
            launcher=launcher,
            environment=environment,
            entry=script.name,
        ),
    )
    print(f"{target}\nrun it: trainshed run {target}")
