"""From the evidence of one run to its numbers, or to the reasons why there are none.

Throughput is samples over wall time between stated marks: it starts where the
last warm-up step ended, ends where the last step ended, and leaves out
evaluation, nothing else. Durations come from the monotonic clock of the rank
that did the work; wall clocks only align ranks in pictures. A group of ranks
(node or whole run) is as fast as all its samples over its slowest rank's time.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from statistics import fmean

from trainshed.bench.judge import cross, faults
from trainshed.bench.judge.cross.agreement import parameters
from trainshed.bench.judge.rules import Rules
from trainshed.bench.measure import power
from trainshed.bench.measure.evidence import RankEvidence, RunEvidence, is_emulated
from trainshed.bench.measure.ingest import SERVER_FILES, Ingested, ingest
from trainshed.bench.measure.meter_file import MeterSession
from trainshed.bench.measure.statistics import percentile
from trainshed.bench.measure.window import RankWindow, find_stragglers, group_rate, rank_window, steady_state
from trainshed.bench.result import (
    Evaluation,
    FailedProcess,
    Measured,
    NodeResult,
    NotMeasured,
    Phase,
    Quantity,
    RankResult,
    Reason,
    RunResult,
    Window,
)
from trainshed.runs.events import RanksStarted

MOST_LINES, MOST_TEXT = 20, 500
"""Of a failing process's last lines."""


def measure_run(evidence: RunEvidence, rules: Rules, index: int = 1, folder: str = "") -> RunResult:
    """Measure one run by the rules. Never raises for bad evidence: it becomes a reason."""
    # How a run ended explains what else is missing.
    reasons = faults.state_faults(evidence)
    reasons += [Reason(code=d.code, message=d.message) for d in evidence.defects]
    warnings: list[Reason] = []
    other = ingest(evidence, rules)
    reasons += [Reason(code=d.code, message=d.message) for d in other.defects]
    metered = evidence.metered
    reasons += faults.meter_faults(metered, rules)
    windows: list[RankWindow] = []
    if metered:
        reasons += faults.presence_faults(evidence, metered, rules)
        for rank in metered.values():
            session = rank.session
            assert session is not None
            reasons += faults.session_faults(rank, session, rules)
            window = rank_window(session, rank, rules)
            if window is None:
                text = f"rank {rank.rank} has {session.step_count} steps, too few to measure after warm-up"
                reasons.append(Reason(code="too-few-steps", message=text))
            else:
                windows.append(window)
        reasons += faults.agreement_faults(metered)
    elif other.throughputs:
        reasons += faults.ingested_faults(other, rules)
    else:
        text = "no rank left a meter file, an ais-bench result file or a matching log line"
        reasons.append(Reason(code="nothing-measured", message=text))

    reasons += cross.examine(evidence, rules)
    ranks = [_rank_result(w, rules) for w in windows]
    lost = faults.lost_steps(metered)
    if lost:
        names = ", ".join(f"rank {r}: {n}" for r, n in sorted(lost.items()))
        reasons.append(
            Reason(code="steps-lost", message=f"ranks did not do the same number of steps ({names} fewer)")
        )
    stragglers = find_stragglers(windows, rules.straggler_tolerance)
    if stragglers:
        names = ", ".join(map(str, stragglers))
        warnings.append(Reason(code="straggler", message=f"rank {names} is more than "
                               f"{rules.straggler_tolerance:.0%} slower than the median rank"))  # fmt: skip
    steady = steady_state(windows, rules.steady_tolerance)
    if steady is not None and not steady.steady:
        text = (
            f"throughput was not steady: deviation {steady.largest_deviation:.1%}, trend {steady.trend:+.1%}"
        )
        warnings.append(Reason(code="not-steady", message=text))

    if is_emulated(evidence):
        text = "EMULATED: the devices were emulated on the CPU; this says nothing about real devices"
        warnings.insert(0, Reason(code="emulated", message=text))

    lead = metered[min(metered)].sessions if metered else []
    evaluations = _evaluations(lead)
    reasons += faults.not_finite_faults(metered)
    if rules.single_server:
        servers = {node: _evaluations(sessions) for node, sessions in _server_leads(metered).items()}
        quality, ttt, epochs, quality_reasons = _server_quality(servers, other, rules)
    else:
        quality, ttt, epochs, quality_reasons = _quality(evaluations, other, rules)
    reasons += quality_reasons
    started, ended = _span(evidence, metered)
    throughput, total = _throughput(windows, other, rules)
    step_times = sorted(chain.from_iterable(w.step_times for w in windows))
    device_use, cpu_use, watts = power.summarise(evidence, started, ended)
    return RunResult(
        index=index,
        run_id=evidence.run_id,
        folder=folder,
        status="failed" if reasons else "valid",
        failure=_failure(evidence),
        reasons=_unique(reasons),
        warnings=_unique(warnings),
        seed=_seed(metered, evidence, rules),
        settings=_settings(lead, other),
        dataset=_dataset(lead),
        started=started,
        ended=ended,
        throughput=throughput,
        throughput_sum_of_ranks=total,
        nodes=_node_results(windows, rules),
        ranks=ranks,
        window=_window(windows),
        steady_state=steady,
        step_time_median=_of_list(step_times, 50, "median of step times of all ranks"),
        step_time_p99=_of_list(step_times, 99, "99th percentile of step times of all ranks"),
        lost_steps=Measured(value=sum(lost.values()), unit="steps", source="meter")
        if metered
        else NotMeasured(not_measured="no meter in the script"),
        stragglers=stragglers,
        quality=quality,
        time_to_target=ttt,
        epochs_to_target=epochs,
        evaluations=evaluations,
        phases=_phases(lead),
        device_use=device_use,
        cpu_use=cpu_use,
        power=watts,
    )


def _failure(evidence: RunEvidence) -> FailedProcess | None:
    found = faults.first_failure(evidence)
    if found is None:
        return None
    return FailedProcess(
        reason=found.reason[:MOST_TEXT],
        process=(found.process or "")[:MOST_TEXT],
        log=(found.log or "")[:MOST_TEXT],
        last_lines=[line[:MOST_TEXT] for line in found.last_lines[-MOST_LINES:]],
    )


def _throughput(windows: list[RankWindow], other: Ingested, rules: Rules) -> tuple[Quantity, Quantity]:
    if windows:
        per_node = [
            group_rate([w for w in windows if w.node == n]) for n in sorted({w.node for w in windows})
        ]
        if rules.single_server:
            source = "meter; samples over time per server, mean over servers"
            value = sum(per_node) / len(per_node)
        else:
            source = "meter; samples of all ranks over the slowest rank's time"
            value = group_rate(windows)
        total = sum(w.rate for w in windows)
        return (
            Measured(value=value, unit=rules.unit, source=source),
            Measured(value=total, unit=rules.unit, source="meter; sum of the ranks' own rates"),
        )
    if other.throughputs:
        value = other.throughput(rules)
        if rules.scope == "job":
            source = f"{other.throughput_source}; the first rank's number, for all ranks"
            alone = NotMeasured(not_measured="the first rank speaks for all: no rank states its own rate")
            return Measured(value=value, unit=rules.unit, source=source), alone
        shown = Measured(value=value, unit=rules.unit, source=other.throughput_source)
        return shown, Measured(
            value=sum(other.throughputs.values()), unit=rules.unit, source=other.throughput_source
        )
    missing = NotMeasured(not_measured="no meter, no ais-bench result file and no matching log line")
    return missing, missing


def _node_results(windows: list[RankWindow], rules: Rules) -> list[NodeResult]:
    found = []
    for node in sorted({w.node for w in windows}):
        mine = [w for w in windows if w.node == node]
        rate = Measured(value=group_rate(mine), unit=rules.unit, source="meter")
        found.append(NodeResult(node=node, ranks=len(mine), throughput=rate))
    return found


def _rank_result(w: RankWindow, rules: Rules) -> RankResult:
    rate = Measured(value=w.rate, unit=rules.unit, source="meter")
    return RankResult(
        rank=w.rank, node=w.node, steps=w.steps, samples=w.samples, seconds=w.seconds, throughput=rate
    )


def _window(windows: list[RankWindow]) -> Window | None:
    if not windows:
        return None
    slowest = max(windows, key=lambda w: w.seconds)
    return Window(
        start=f"end of step {slowest.warmup}",
        end=f"end of step {slowest.warmup + slowest.steps}",
        warmup_steps=slowest.warmup,
        steps=slowest.steps,
        samples=sum(w.samples for w in windows),
        seconds=slowest.seconds,
        evaluation_seconds=slowest.evaluation_seconds,
    )


def _quality(
    evaluations: list[Evaluation], other: Ingested, rules: Rules
) -> tuple[Quantity, Quantity, Quantity, list[Reason]]:
    target = rules.target
    name = target.name if target else "accuracy"
    of_name = [e for e in evaluations if e.name == name]
    nothing = NotMeasured(not_measured=f"no evaluation of {name!r} was recorded")
    if not of_name:
        if other.quality is None:
            missing = [Reason(code="quality-missing", message=f"no rank recorded the target {name!r}")]
            return nothing, nothing, nothing, missing if target else []
        quality: Quantity = Measured(value=other.quality, unit="1", source=other.quality_source)
        untimed = NotMeasured(not_measured=f"{other.quality_source} has no timestamps")
        reached = target is None or target.reached(other.quality)
        return quality, untimed, untimed, [] if reached else [_not_reached(other.quality, rules)]
    values = [e.value for e in of_name]
    best = max(values) if target is None or target.better == "higher" else min(values)
    shown = Measured(value=best, unit="1", source=f"meter; best {name} of {len(of_name)} evaluations")
    if target is None:
        no_target = NotMeasured(not_measured="the rules name no target")
        return shown, no_target, no_target, []
    hit = next((e for e in of_name if target.reached(e.value)), None)
    if hit is None:
        missed = NotMeasured(not_measured="the target was not reached")
        return shown, missed, missed, [_not_reached(best, rules)]
    source = "meter; from the start mark to the first evaluation at the target, evaluation included"
    epochs = Measured(value=hit.epoch, unit="epochs", source="meter")
    return shown, Measured(value=hit.seconds, unit="s", source=source), epochs, []


def _server_leads(metered: dict[int, RankEvidence]) -> dict[int, list[MeterSession]]:
    """The sessions of each node's lowest rank."""
    leads: dict[int, RankEvidence] = {}
    for rank in sorted(metered):
        leads.setdefault(metered[rank].node, metered[rank])
    return {node: lead.sessions for node, lead in leads.items()}


def _server_quality(
    servers: dict[int, list[Evaluation]], other: Ingested, rules: Rules
) -> tuple[Quantity, Quantity, Quantity, list[Reason]]:
    """Every server trained alone: the mean quality, and the time of the slowest; one that misses fails the run."""
    parts = [_quality(servers.get(n, []), _of_server(other, n, rules), rules) for n in range(rules.nodes)]
    reasons = [
        Reason(code=reason.code, message=f"server {index}: {reason.message}")
        for index, part in enumerate(parts)
        for reason in part[3]
    ]
    found: list[Quantity] = []
    qualities, times, epochs = [p[0] for p in parts], [p[1] for p in parts], [p[2] for p in parts]
    for quantities, name, join in (
        (qualities, "mean", fmean),
        (times, "slowest", max),
        (epochs, "mean", fmean),
    ):
        measured = [q for q in quantities if isinstance(q, Measured)]
        if len(measured) < len(quantities):
            found.append(next(q for q in quantities if not isinstance(q, Measured)))
        else:
            read = "meter" if all(q.source.startswith("meter") for q in measured) else SERVER_FILES
            source = f"{read}; {name} of {len(measured)} servers"
            value = join(q.value for q in measured)
            found.append(Measured(value=value, unit=measured[0].unit, source=source))
    return found[0], found[1], found[2], reasons


def _of_server(other: Ingested, server: int, rules: Rules) -> Ingested:
    """What was found outside the meter, with the quality of this server instead of that of all."""
    if rules.nodes == 1:
        return other
    return replace(other, quality=other.accuracies.get(server), quality_source=SERVER_FILES)


def _not_reached(best: float, rules: Rules) -> Reason:
    target = rules.target
    assert target is not None
    sign = "≥" if target.better == "higher" else "≤"
    text = f"{target.name} {best:g} is not {sign} {target.value:g}: the target was not reached"
    return Reason(code="target-not-reached", message=text)


def _evaluations(sessions: list[MeterSession]) -> list[Evaluation]:
    if not sessions:
        return []
    first = sessions[0].first("start") or (sessions[0].marks[0] if sessions[0].marks else None)
    found = []
    for session in sessions:
        for mark in session.all("quality"):
            value = mark.fields.get("value")
            if faults.is_finite(value) and first is not None:
                same = session is sessions[0]
                seconds = mark.mono - first.mono if same else mark.wall - first.wall
                epoch = float(mark.fields.get("epoch") or 0)
                name = str(mark.fields.get("name", "accuracy"))
                found.append(Evaluation(seconds=seconds, epoch=epoch, name=name, value=float(value)))
    return found


def _phases(sessions: list[MeterSession]) -> list[Phase]:
    """Phases of the lowest rank: those it named, evaluation, and training between start and last step."""
    found: list[Phase] = []
    for session in sessions:
        open_at: dict[str, float] = {}
        for mark in session.marks:
            name = "evaluation" if mark.event.startswith("eval") else str(mark.fields.get("name", ""))
            if mark.event in {"phase_start", "eval_start"}:
                open_at[name] = mark.wall
            elif mark.event in {"phase_stop", "eval_stop"} and name in open_at:
                found.append(Phase(name=name, start=open_at.pop(name), end=mark.wall))
        start = session.first("start")
        if start is not None and session.at:
            end = max(session.wall_of(session.at[-1]), start.wall)
            found.append(Phase(name="training", start=start.wall, end=end))
    return sorted(found, key=lambda p: (p.start, p.name))


def _span(evidence: RunEvidence, metered: dict[int, RankEvidence]) -> tuple[float | None, float | None]:
    """From the meters' first line to their last; without a meter, from when the ranks ran to the run's end."""
    spans = [(min(s.wall), max(s.wall)) for r in metered.values() for s in r.sessions]
    if spans:
        return min(low for low, _ in spans), max(high for _, high in spans)
    running = [event.time for event, _ in evidence.bodies(RanksStarted)]
    times = [event.time for event in evidence.events]
    return (min(running or times), max(times)) if times else (None, None)


def _seed(metered: dict[int, RankEvidence], evidence: RunEvidence, rules: Rules) -> int | None:
    """The seed that a meter recorded; without such a mark the one on the command line of every planned rank."""
    marks = [mark for rank in metered.values() if rank.session and (mark := rank.session.first("seed"))]
    for mark in marks:
        if isinstance(mark.fields.get("value"), int):
            return int(mark.fields["value"])
    if marks:
        return None
    value = parameters(evidence.job).get(rules.seed_parameter) if rules.seed_parameter else None
    started = [p.argv for p in evidence.plan.processes if p.rank is not None] if evidence.plan else []
    argument = f"--{rules.seed_parameter}={value}"
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and started and all(argument in argv for argv in started) else None


def _settings(sessions: list[MeterSession], other: Ingested) -> dict[str, object]:
    """What the script said of itself; a number that JSON does not have, such as inf, is kept as text."""
    found: dict[str, object] = dict(other.settings)
    for session in sessions:
        for mark in session.all("setting"):
            value = mark.fields.get("value")
            if isinstance(value, str | int | float | bool) or value is None:
                found[str(mark.fields.get("key"))] = value
        for mark in session.all("dataset"):
            for key in ("train_samples", "eval_samples"):
                if isinstance(mark.fields.get(key), int):
                    found[key] = mark.fields[key]
    return {k: str(v) if isinstance(v, float) and not faults.is_finite(v) else v for k, v in found.items()}


def _dataset(sessions: list[MeterSession]) -> str:
    for session in sessions:
        mark = session.first("dataset")
        if mark is not None:
            return f"{mark.fields.get('name')} {mark.fields.get('checksum')}"
    return ""


def _of_list(values: list[float], percent: float, source: str) -> Quantity:
    if not values:
        return NotMeasured(not_measured="no meter in the script")
    return Measured(value=percentile(values, percent), unit="s", source=source)


def _unique(reasons: list[Reason]) -> list[Reason]:
    return list(dict.fromkeys(reasons))
