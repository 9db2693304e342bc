"""The command `ais-bench-stubs`: runs the unpacked package in the current folder.

    ais-bench-stubs test           local test
    ais-bench-stubs                network test: the result goes to the Tester of config.json
    ais-bench-stubs collect        take up the newest job after a crash and collect its result again
    ais-bench-stubs move-secrets   move plain keys out of modelarts_config.py
    ais-bench-stubs python SCRIPT  run a script of the package with what the stubs lay before it

Exit code: that of benchmark.sh (0, or 1 init, 2 run_train, 3 run_eval, 4 get_result), 5 when the result is
good but the Tester has not acknowledged it, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainshed.aisbench import moving, published, results, sdk, train, watched
from trainshed.aisbench.config import Package, TestConfig, read_test_config
from trainshed.aisbench.registry import Version
from trainshed.aisbench.stublog import StubLog, TransmitServer
from trainshed.aisbench.train import PackageCaller
from trainshed.api import Client
from trainshed.cli import process
from trainshed.errors import NotFoundError, TrainshedError, UsageError
from trainshed.tester.spool import TOKEN_VARIABLE, Participant

_DELIVER_SECONDS = 300.0
_INIT_FAILED, _TRAIN_FAILED, _RESULT_FAILED, _NOT_DELIVERED, _STOPPED = 1, 2, 4, 5, 130
# Keys of config.json, and what the Tester calls them.
_TEST_FIELDS = {
    "Mode": "mode",
    "Model": "model",
    "Divsion": "division",
    "Scenario": "scenario",
    "test_object_type": "object",
}


def main() -> None:
    """The console script."""
    sys.exit(_main(sys.argv[1:]))


def _main(argv: list[str]) -> int:
    try:
        match argv:
            case [] | ["test"]:
                return _run(_package(Path.cwd()), network=not argv)
            case ["collect", *rest]:
                return _collect(_package(Path.cwd()), network="test" not in rest)
            case ["move-secrets"]:
                package = _package(Path.cwd())
                ready = train.prepare(package, PackageCaller(os.environ))
                moved = moving.move(package, ready.access, ready.client.home)
                print(f"moved to {moved}; modelarts_config.py no longer holds them")
                return 0
            case ["python", _, *_]:
                return _python(_package(Path.cwd()), argv[1:])
            case ["sdk", verb]:
                return _sdk(verb)
            case ["modelarts", *rest]:
                return _modelarts(rest)
            case ["step", name, folder]:
                return _step(name, _package(Path(folder)))
        print((__doc__ or "").strip(), file=sys.stderr)
        return 0 if argv in (["-h"], ["--help"], ["help"]) else UsageError.exit_code
    except TrainshedError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"  hint: {error.hint}", file=sys.stderr)
        return error.exit_code


def _run(package: Package, network: bool) -> int:
    config = read_test_config(package, needed=network)
    log = StubLog(package.log / "stub.log", _show)
    caller, participant = PackageCaller(os.environ, _show), Participant.from_environment(os.environ)
    client = caller.client()
    log.info(config.line())
    log.info("ais bench stubs begin run")
    log.info(f"workpath:{package.root} go testcase.")
    log.info("Benchmanager::Init() enter")
    progress: dict[str, object] = {"testid": config.testid, "state": "running"}
    transmit = TransmitServer(_transmit_address(), lambda: progress)
    log.info(f"Transmit_server start listen {transmit.host} : {transmit.port}")
    try:
        published.check_python(package, os.environ)
        nonce = ""
        if network:
            results.check_model(package, config)
            _greet(config, participant)
            nonce = watched.ask_nonce(config, participant, log)
        published.clear_reported(package)
        before = train.newest(package, client)
        with watched.watched(nonce, config, client, participant, log):
            code = _benchmark(package, nonce)
        made = train.newest(package, client)
        progress["state"] = "collecting"
        if code == 0 and published.is_published(package):
            code = _collect_published(package, config, log, caller, made if made != before else None)
        if code == 0:
            code = _conclude(package, config, log, participant, network)
        else:
            _explain(package, log, code, client, made if made != before else None)
        return code
    except TrainshedError as error:
        log.error(str(error))
        return _INIT_FAILED
    finally:
        transmit.close()
        log.info("Transmit_server resource is released!")
        log.info("BenchManager stop done")


def _benchmark(package: Package, nonce: str) -> int:
    """Run benchmark.sh; its output goes to the screen and to log/benchmark.log. Ctrl-C reaches all of it."""
    script = package.code / "benchmark.sh"
    if not script.is_file():
        raise NotFoundError(f"{script} is missing", "unpack the package again")
    env = os.environ | published.environment(package, os.environ)
    env[watched.VARIABLE] = nonce
    env.pop(TOKEN_VARIABLE, None)  # scripts of a package must not see the Tester's token
    process = subprocess.Popen(
        ["/bin/bash", str(script)],
        cwd=package.code,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    signals: list[int] = []

    def stop(number: int, _frame: Any) -> None:
        signals.append(number)
        os.killpg(process.pid, signal.SIGTERM)

    with _handling(stop):
        assert process.stdout
        with (package.log / "benchmark.log").open("ab") as log:
            while chunk := os.read(process.stdout.fileno(), 1 << 16):
                log.write(chunk)
                log.flush()
                sys.stdout.buffer.write(chunk)
                sys.stdout.flush()
        code = process.wait()
    return _STOPPED if signals else code if code >= 0 else 128 - code


def _python(package: Package, arguments: list[str]) -> int:
    """A script of the package by hand, such as train_modelarts.py --action stop."""
    python = published.check_python(package, os.environ)
    env = os.environ | published.environment(package, os.environ)
    return subprocess.run([python, *arguments], env=env, check=False).returncode


def _collect_published(
    package: Package, config: TestConfig, log: StubLog, caller: PackageCaller, made: Version | None
) -> int:
    """The result of a job that a published package's own script has followed to its end."""
    if made is None:
        log.error("benchmark.sh started no training job; see log/benchmark.log")
        return _TRAIN_FAILED
    try:
        with _stoppable(caller.environ) as stoppable:
            train.again(package, stoppable)
        _, result = results.build(package, config, caller.client().home)
        for text in published.disagreements(
            package, results.found_in(package), results.single_server(package)
        ):
            log.warning(text)
        for reason in result.reasons + [r for run in result.runs for r in run.reasons]:
            log.error(f"invalid result: {reason.code}: {reason.message}")
        return 0 if result.status == "valid" else _RESULT_FAILED
    except results.Incomplete as error:
        log.error(str(error))
        return _RESULT_FAILED


def _explain(package: Package, log: StubLog, code: int, client: Client, made: Version | None) -> None:
    """Why there is no result; a job that nobody follows any more is not left behind after Ctrl-C."""
    if code == _STOPPED and made is not None:
        train.stop_version(client, made, "Ctrl-C")
    words = train.why_failed(made, client) if made is not None and published.is_published(package) else ""
    if words:
        log.error(words)
    log.error(f"benchmark.sh ended with {code}; see {package.log / 'benchmark.log'}")
    if train.still_runs(package, client):
        log.warning("the job still runs: `ais-bench-stubs collect` takes it up, --action stop ends it")


def _collect(package: Package, network: bool) -> int:
    """The rest of a run whose stubs were killed."""
    config = read_test_config(package, needed=network)
    log = StubLog(package.log / "stub.log", _show)
    participant = Participant.from_environment(os.environ)
    client = PackageCaller(os.environ).client()
    log.info("ais bench stubs collect again")
    nonce = watched.nonce_of(package, client) if network else ""
    with watched.watched(nonce, config, client, participant, log), _stoppable(os.environ) as caller:
        train.again(package, caller)
    results.build(package, config, client.home)
    return _conclude(package, config, log, participant, network)


def _conclude(
    package: Package, config: TestConfig, log: StubLog, participant: Participant, network: bool
) -> int:
    """Show the result block and, in a network test, hand the result in."""
    folder = package.result / results.version_of(package, participant.home).label
    log.info((folder / "train_result_info.txt").read_text("utf-8"))
    code = _deliver(folder, config, participant, log) if network else 0
    print(f"result: {folder}\nrun it again: ./ais-bench-stubs{'' if network else ' test'}", flush=True)
    return code


def _greet(config: TestConfig, participant: Participant) -> None:
    """Ask the Tester about the test before hours are spent on it; a Tester that cannot be reached is not waited for."""
    from trainshed.tester.client import TesterClient, UnreachableError
    from trainshed.tester.verify import same_value

    token = participant.find_token(config.testid, config.tester_token_file)
    try:
        with TesterClient(config.url, config.testid, token, config.tester_ca_file) as client:
            test = client.test()
    except UnreachableError:
        return  # reported when it is asked for a nonce
    for key, name in _TEST_FIELDS.items():
        stated = getattr(config, key)
        if stated and not same_value(name, test[name], stated):
            text = f"config.json: {key} is {stated!r}, the Tester has {test[name]!r} for this test"
            raise UsageError(text, "correct config.json or ask the organiser")


def _deliver(folder: Path, config: TestConfig, participant: Participant, log: StubLog) -> int:
    from trainshed.tester.deliver import verdict_of
    from trainshed.tester.spool import Spool

    spool = Spool(participant)
    entry = spool.keep(folder, config.url, config.testid, config.tester_token_file, config.tester_ca_file)
    try:
        spool.send(entry, _DELIVER_SECONDS, log.warning)
        log.info(f"result sent to tester {config.url}, acknowledged as {entry.upload}")
        state = verdict_of(entry, participant, 120.0)
        log.info(f"tester verdict: {state['state']}")
        for finding in state["receipt"]["findings"]:
            log.error(f"tester: {finding['code']}: {finding['message']}")
        return _RESULT_FAILED if state["state"] == "failed" else 0
    except TrainshedError as error:
        log.error(f"{error.message}; the result is kept, `trainshed tester resend` sends it again")
        return _NOT_DELIVERED


def _modelarts(argv: list[str]) -> int:
    """What code/common/train_modelarts.py does."""
    parser = argparse.ArgumentParser(prog="train_modelarts.py")
    parser.add_argument("--local_code_path", type=Path)
    parser.add_argument("--single_server_mode", default="")
    parser.add_argument("--action", choices=("run", "stop"), default="run")
    parser.add_argument("--modelarts_version", choices=("V1", "V2"))
    parser.add_argument("--job_id", default="")
    parser.add_argument("--root", type=Path, default=Path.cwd(), help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    package = _package(options.root)
    chosen = {"MODELARTS_VERSION": options.modelarts_version, "SINGLESERVER_MODE": options.single_server_mode}
    environ = os.environ | {name: value for name, value in chosen.items() if value}
    if options.action == "stop":
        return 0 if train.stop(package, PackageCaller(environ, _show), options.job_id) else 1
    with _stoppable(environ) as caller:
        train.run(package, caller, options.local_code_path)
    return 0


def _sdk(verb: str) -> int:
    """One call of the `modelarts` SDK: its fields on standard input, its answer on standard output."""
    root = os.environ.get("AIS_BENCH_ROOT")
    if not root:
        raise UsageError("AIS_BENCH_ROOT is not set", "start the package with ./ais-bench-stubs")
    answer = sdk.answer(verb, Package(Path(root)), json.load(sys.stdin), PackageCaller(os.environ))
    json.dump(answer, sys.stdout)
    return 0


def _step(name: str, package: Package) -> int:
    """One step of benchmark.sh that is not training."""
    if name == "init":
        ready = train.prepare(package, PackageCaller(os.environ))
        for text in moving.warnings(package, ready.access):
            print(f"warning: {text}", flush=True)
    elif name == "eval":
        print(f"accuracy:{results.check_accuracy(package)}", flush=True)
    elif name == "result":
        folder, result = results.build(package, read_test_config(package, needed=False), process.home())
        for reason in result.reasons + [r for run in result.runs for r in run.reasons]:
            print(f"invalid result: {reason.code}: {reason.message}", flush=True)
        print(f"result: {folder}", flush=True)
        return 0 if result.status == "valid" else 1
    return 0


@contextmanager
def _stoppable(environ: Mapping[str, str]) -> Iterator[PackageCaller]:
    """A caller whose signals ask for the job's end, instead of ending this process."""
    received: list[int] = []
    with _handling(lambda number, _frame: received.append(number)):
        yield PackageCaller(environ, _show, lambda: bool(received))


@contextmanager
def _handling(handler: Callable[[int, Any], object]) -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def _show(line: str) -> None:
    print(line, flush=True)


def _package(root: Path) -> Package:
    package = Package(root.resolve())
    if not (package.code / "config").is_dir():
        raise NotFoundError(
            f"{root} is not an unpacked ais-bench package: code/config/ is missing",
            "cd into the package first",
        )
    return package


def _transmit_address() -> tuple[str, int]:
    host, _, port = os.environ.get("AIS_BENCH_TRANSMIT", "127.0.0.1:9990").rpartition(":")
    return host or "127.0.0.1", int(port) if port.isdigit() else 9990


if __name__ == "__main__":
    main()
