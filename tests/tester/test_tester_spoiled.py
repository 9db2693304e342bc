"""Every way to spoil a result that `bench check` knows is caught by the Tester too, and named."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from served import CHECKER, WORKLOAD, Served
from test_check import SPOILS

from trainshed.bench import manifest
from trainshed.errors import RefusedError, TrainshedError
from trainshed.tester.client import TesterClient
from trainshed.tester.spool import Participant, Spool

pytestmark = [pytest.mark.benchmark]


def test_the_testers_check_names_each_way_to_spoil_a_result(good_result: Path, tmp_path: Path) -> None:
    assert len(SPOILS) >= 20
    assert CHECKER.check(good_result, "", WORKLOAD)["findings"] == []
    for number, (what, spoil, code, resealed) in enumerate(SPOILS):
        folder = Path(shutil.copytree(good_result, tmp_path / str(number)))
        spoil(folder)
        if resealed:
            manifest.write(folder)
        codes = {finding["code"] for finding in CHECKER.check(folder, "", WORKLOAD)["findings"]}
        # Rules that a result brings are not even read beyond what differs from the organiser's.
        assert {code, "rules-differ"} & codes, f"{what}: expected {code}, found {sorted(codes)}"


def test_what_was_changed_after_sealing_never_arrives(
    served: Served, home: Path, good_result: Path, tmp_path: Path
) -> None:
    for number, (what, spoil, _, resealed) in enumerate(SPOILS):
        if resealed:
            continue
        folder = Path(shutil.copytree(good_result, tmp_path / str(number)))
        spoil(folder)
        with pytest.raises(RefusedError):
            Spool(Participant.from_environment(os.environ)).keep(folder, served.url, "t1")
        if what == "a file was added":
            continue  # what is not in the manifest is not sent
        test = f"test-{number}"
        with (
            TesterClient(served.url, test, served.add(test)) as client,
            pytest.raises((TrainshedError, OSError)),
        ):
            client.send(folder)
        assert served.tester.ledger.results(test) == [], what
