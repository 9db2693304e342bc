"""What a job left below its output URL, as a result of ours: fetched, completeness checked, judged by rules.

`work/` holds what belongs to the job in progress: job.json (which version),
output/ (the result files), evidence/ (the run as measuring wants to see it).
`result/<job>-V<n>/` is the finished result folder.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import ValidationError

from trainshed import yamlfile
from trainshed.access import StoreAccess
from trainshed.aisbench.config import Package, TestConfig, is_placeholder
from trainshed.aisbench.job import location
from trainshed.aisbench.registry import Registry, Version
from trainshed.bench import folder as folders
from trainshed.bench.judge.rules import Rules
from trainshed.bench.measure import system
from trainshed.bench.measure.ingest import Ingested, read_ais_bench
from trainshed.bench.result import Result
from trainshed.errors import NotFoundError, TrainshedError, UsageError
from trainshed.runs.directory import RunDirectory
from trainshed.spec.job import JobSpec
from trainshed.spec.kinds import Mode

_RESULT_FILE = re.compile(
    r"(^|/)(throughput_\d+\.json|accuracy(_\d+)?\.json|ranksize\.json|result_rank_\d+\.json)$"
)
_MOST_FILES = 100_000
_MOST_BYTES = 1 << 20


class Incomplete(TrainshedError):
    """The job ended well but its result does not hold."""

    code = "result-incomplete"


def fetch(package: Package, version: Version, run: RunDirectory, access: StoreAccess) -> list[str]:
    """Bring the result files of a job into work/; the lines that say what they hold."""
    from trainshed.store import list_tree, read_bytes

    shutil.rmtree(package.work, ignore_errors=True)
    output = package.work / "output"
    output.mkdir(parents=True)
    source = location(version.out, "out_base_url")
    keys = access.keys(source)
    try:
        found = list_tree(source, credentials=keys)
        wanted = [e for e in found if not e.is_directory and _RESULT_FILE.search(e.name)]
    except NotFoundError:
        wanted = []
    if len(wanted) > _MOST_FILES:
        raise UsageError(f"{source} holds {len(wanted)} result files", "choose a separate out_base_url")
    for entry in wanted:
        target = (output / entry.name).resolve()
        if entry.size > _MOST_BYTES or not target.is_relative_to(output.resolve()):
            raise UsageError(f"{source}{entry.name} is not an ais-bench result file", "remove it")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(read_bytes(f"{source}{entry.name}", credentials=keys))
    evidence = package.work / "evidence"
    folders.copy_evidence(run.path, evidence)
    shutil.copytree(output, evidence / "outputs" / "train_url", dirs_exist_ok=True)
    folders.write(package.work / "job.json", json.dumps({"version": version.id, "run": run.id}))
    return report_lines(found_in(package), single_server(package))


def found_in(package: Package) -> Ingested:
    found = Ingested()
    read_ais_bench(package.work / "output", found, shape(package)[1])
    return found


def report_lines(found: Ingested, single: bool) -> list[str]:
    """The lines of the original; of a job over all servers, the sum over its ranks."""
    if single:
        return found.report_lines()
    rates = [found.throughputs[rank] for rank in sorted(found.throughputs)]
    lines = [f"report >> throughput_list:{rates} sum:{sum(rates)}"] if rates else []
    if found.quality is not None:
        lines.append(f"report >> accuracy_list:{[found.quality]} average:{found.quality}")
    return lines


def check_accuracy(package: Package) -> float:
    """The accuracy of the job; its absence is an error."""
    found = found_in(package)
    nodes, _ = shape(package)
    if single_server(package):
        missing = [server for server in range(nodes) if server not in found.accuracies]
        if missing:
            names = ", ".join(f"accuracy_{server}.json" for server in missing)
            raise Incomplete(f"servers left no accuracy: {names}", "look at their logs in log/")
        return fmean(found.accuracies.values())
    if found.quality is None or not math.isfinite(found.quality):
        raise Incomplete("the job left no accuracy.json", "look at rank 0's log in log/")
    return found.quality


def check_throughput(package: Package) -> None:
    """Check that every rank left its throughput; names those that did not."""
    found, (nodes, devices) = found_in(package), shape(package)
    if found.defects:
        raise Incomplete(found.defects[0].message, "look at the logs in log/")
    if single_server(package):
        missing = [
            f"{server}/throughput_{rank}.json"
            for server in range(nodes)
            for rank in range(devices)
            if rank not in found.servers.get(server, {})
        ]
    else:
        missing = [f"throughput_{r}.json" for r in range(nodes * devices) if r not in found.throughputs]
    if missing:
        names = ", ".join(missing[:8]) + (" …" if len(missing) > 8 else "")
        raise Incomplete(f"{len(missing)} of {nodes * devices} ranks left no throughput: {names}", "see log/")


def build(package: Package, config: TestConfig, home: Path) -> tuple[Path, Result]:
    """The finished result folder of the job in work/; making it again gives the same."""
    check_accuracy(package)
    check_throughput(package)
    rules = rules_of(package, config)
    target = package.result / version_of(package, home).label
    shutil.rmtree(target, ignore_errors=True)
    described = system.describe(rules.nodes, rules.framework, _system_description(package))
    folders.begin(target, rules, described)
    folders.add_run(target, package.work / "evidence")
    result = folders.collect(target)
    declared = {
        "testid": config.testid,
        "mode": config.Mode,
        "model": config.Model,
        "division": config.Divsion,
        "scenario": config.Scenario,
        "object": config.test_object_type,
    }
    folders.write(target / "submission.json", json.dumps(declared, indent=1) + "\n")
    for path in sorted(package.log.glob("*.log")):
        if path.stat().st_size <= folders.MAX_EVIDENCE_BYTES:
            (target / "log").mkdir(exist_ok=True)
            shutil.copyfile(path, target / "log" / path.name)
    folders.finish(target)
    info = train_result_info(target)
    numbers = {key: info[key] for key in ("throughput_ratio", "accuracy")}
    folders.write(package.result / "result.log", json.dumps(numbers) + "\n")
    return target, result


def train_result_info(folder: Path) -> dict[str, Any]:
    text = (folder / "train_result_info.txt").read_text("utf-8")
    return dict(json.loads(text.removeprefix("train_result_info: ")))


def rules_of(package: Package, config: TestConfig) -> Rules:
    """The workload's rules for the shape that ran; a package without rules is held to the general ones."""
    nodes, devices = shape(package)
    path = package.code / "rules.json"
    changes = {"nodes": nodes, "ranks": nodes * devices, "runs": 1, "single_server": single_server(package)}
    if path.is_file():
        return Rules.model_validate(json.loads(path.read_text("utf-8")) | changes)
    name = re.sub(r"[^a-z0-9._-]+", "-", (config.Model or "workload").lower())
    return Rules.model_validate({"workload": name, "model": config.Model, "min_steps": 1} | changes)


def check_model(package: Package, config: TestConfig) -> None:
    """The test's model is the one this package trains."""
    from trainshed.tester.verify import same_model

    path = package.code / "rules.json"
    if not path.is_file() or not config.Model:
        return
    rules = Rules.model_validate_json(path.read_text("utf-8"))
    if not any(same_model(config.Model, name) for name in (rules.model, rules.workload)):
        text = (
            f"config.json: Model is {config.Model!r}, this package trains {rules.model or rules.workload!r}"
        )
        raise UsageError(text, "unpack the package of the model that the test asks for")


def version_of(package: Package, home: Path) -> Version:
    """The version of the job in work/, as it is known in this home."""
    try:
        identity = json.loads((package.work / "job.json").read_text())["version"]
    except (OSError, ValueError, KeyError) as error:
        raise NotFoundError(
            f"{package.work} contains no finished job", "run train_modelarts.py --action run"
        ) from error
    version = Registry(home).get(identity)
    if version is None:
        raise NotFoundError(f"unknown version {identity}", "use the TRAINSHED_HOME of the run")
    return version


def shape(package: Package) -> tuple[int, int]:
    """Nodes and devices per node, as the job had them."""
    resources = _job(package).resources
    return resources.nodes, resources.devices


def single_server(package: Package) -> bool:
    return _job(package).mode is Mode.SINGLE_SERVER


def _job(package: Package) -> JobSpec:
    path = package.work / "evidence" / "job.yaml"
    if not path.is_file():
        raise NotFoundError(f"{package.work} contains no finished job", "run train_modelarts.py --action run")
    try:
        return JobSpec.model_validate(yamlfile.parse(path.read_bytes(), str(path)))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "it"
        raise UsageError(f"{path}: {where}: {first['msg']}", "run the job again") from error


def _system_description(package: Package) -> dict[str, str]:
    try:
        described = json.loads((package.code / "system.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return (
        {str(k): str(v) for k, v in described.items() if not is_placeholder(str(v))}
        if isinstance(described, dict)
        else {}
    )
