"""Every rule has a lie that it names, and an honest result triggers none of them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import made
import pytest
from chain_lies import CHAIN_LIES
from lies import LIES, LONG_LIES
from more_lies import ELSEWHERE, MORE_LIES, MORE_LONG_LIES, UNSEALED
from test_check import SPOILS

from support import ROOT
from trainshed.bench import manifest
from trainshed.bench.judge import cross
from trainshed.bench.judge.check import check
from trainshed.bench.judge.cross.runs import ACROSS

pytestmark = [pytest.mark.benchmark, pytest.mark.hardening]

DOCS = ROOT / "docs" / "judging.md"
WARNINGS = {"emulated", "not-steady", "straggler", "unstable"}
"""What is said of a result beside its findings."""


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.made_result(tmp_path_factory.mktemp("good"))


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = [made.MadeRun(seed=i, steps=600, step=0.1 + i / 1000, watts=300.0) for i in (1, 2, 3)]
    return made.made_result(
        tmp_path_factory.mktemp("long"),
        made.made_rules(dataset=made.DatasetRule(name="made", checksum=made.CHECKSUM, eval_samples=400)),
        [_large(run) for run in runs],
    )


@pytest.fixture(scope="module")
def chained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `long` on processors: runs that take longer than any pause that is allowed."""
    runs = [made.MadeRun(seed=i, steps=2000, epochs=10, step=0.1 + i / 1000) for i in (1, 2, 3)]
    for run in runs:
        run.accuracies = tuple(0.6 + epoch / 40 for epoch in range(10))
    rules = made.made_rules(dataset=made.DatasetRule(name="made", checksum=made.CHECKSUM, eval_samples=400))
    return made.made_result(
        tmp_path_factory.mktemp("chained"), rules, [_large(r) for r in runs], chained=True
    )


def _large(run: made.MadeRun) -> made.MadeRun:
    run.train_samples = 40_000
    return run


def findings(good: Path, folder: Path, lie: Callable[[Path], None]) -> set[str]:
    shutil.copytree(good, folder)
    lie(folder)
    manifest.write(folder)
    return {finding.code for finding in check(folder).findings}


@pytest.mark.parametrize(("what", "lie", "code"), LIES + MORE_LIES, ids=[lie[0] for lie in LIES + MORE_LIES])
def test_a_resealed_lie_is_named(
    what: str, lie: Callable[[Path], None], code: str, good: Path, tmp_path: Path
) -> None:
    found = findings(good, tmp_path / "result", lie)
    assert code in found, f"{what}: expected {code}, found {sorted(found)}"


@pytest.mark.parametrize(
    ("what", "lie", "code"), LONG_LIES + MORE_LONG_LIES, ids=[lie[0] for lie in LONG_LIES + MORE_LONG_LIES]
)
def test_a_resealed_lie_about_devices_is_named(
    what: str, lie: Callable[[Path], None], code: str, long: Path, tmp_path: Path
) -> None:
    found = findings(long, tmp_path / "result", lie)
    assert code in found, f"{what}: expected {code}, found {sorted(found)}"


@pytest.mark.parametrize(("what", "lie", "code"), CHAIN_LIES, ids=[lie[0] for lie in CHAIN_LIES])
def test_a_resealed_lie_about_a_chained_result_is_named(
    what: str, lie: Callable[[Path], None], code: str, chained: Path, tmp_path: Path
) -> None:
    found = findings(chained, tmp_path / "result", lie)
    assert code in found, f"{what}: expected {code}, found {sorted(found)}"


def test_an_honest_result_triggers_nothing(good: Path, long: Path, chained: Path) -> None:
    assert check(chained).findings == []
    assert check(good).findings == []
    assert check(long).findings == []


@pytest.mark.parametrize(
    ("rules", "run"),
    [
        ({"nodes": 1, "ranks": 1}, {"nodes": 1, "per_node": 1}),
        ({"nodes": 4, "ranks": 4}, {"nodes": 4, "per_node": 1}),
        ({"single_server": True}, {"single_server": True}),
        ({}, {"emulated": True}),
        ({}, {"lines": 20}),
        ({"synchronous": False}, {"rank_speed": {1: 1.5}}),
        ({}, {"jitter": 0.02}),
    ],
)
def test_honest_results_of_other_shapes_trigger_nothing(
    tmp_path: Path, rules: dict[str, object], run: dict[str, object]
) -> None:
    runs = [made.MadeRun(seed=i, step=0.1 + i / 1000, **run) for i in (1, 2, 3)]  # type: ignore[arg-type]
    assert check(made.made_result(tmp_path, made.made_rules(**rules), runs)).findings == []


def test_every_rule_has_a_lie_and_stands_in_the_docs() -> None:
    assert len(LIES) + len(LONG_LIES) >= 65
    cross.examine(made_nothing(), made.made_rules())  # enters all rules
    rules = {rule.code for rule in cross.RULES} | set(ACROSS)
    lied = {lie[2] for lie in LIES + LONG_LIES + CHAIN_LIES + MORE_LIES + MORE_LONG_LIES + UNSEALED}
    lied |= {spoil[2] for spoil in SPOILS}
    documented = set(re.findall(r"^\| `([a-z-]+)` \|", DOCS.read_text(), re.M))
    assert rules <= lied
    assert lied | rules <= documented
    assert documented - lied == set(ELSEWHERE), "every finding has a lie, here or where ELSEWHERE says"
    for code, test in ELSEWHERE.items():
        assert f'"{code}"' in (ROOT / test).read_text(), f"{test} does not look for {code}"


def test_every_finding_that_the_judges_write_is_documented() -> None:
    """Read from the source: a finding that nobody thought of in a list is found here."""
    documented = set(re.findall(r"^\| `([a-z-]+)` \|", DOCS.read_text(), re.M))
    written = {
        code
        for path in (ROOT / "src/trainshed/bench").rglob("*.py")
        for code in re.findall(
            r'(?:\bcode=|\bDefect\(|\badd_defect\(|\breport\(|@rule\()\s*"([a-z-]+)"', path.read_text()
        )
    }
    assert len(written) > 80 and written - documented <= WARNINGS


def test_an_unsealed_change_is_named(good: Path, tmp_path: Path) -> None:
    for number, (what, lie, code) in enumerate(UNSEALED):
        folder = tmp_path / str(number)
        shutil.copytree(good, folder)
        lie(folder)
        assert code in {finding.code for finding in check(folder).findings}, what


def test_every_rule_says_what_must_hold() -> None:
    cross.examine(made_nothing(), made.made_rules())
    assert len({rule.code for rule in cross.RULES}) == len(cross.RULES)
    assert all(rule.text.endswith(".") for rule in cross.RULES)


def made_nothing() -> object:
    from trainshed.bench.measure.evidence import RunEvidence

    return RunEvidence(Path("nowhere"))
