"""Published formats: the JSON schema, `train_result_info`, MLLOG and system descriptions."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import jsonschema
import made
import pytest

from trainshed.bench.judge.rules import MllogRule
from trainshed.bench.measure import system
from trainshed.bench.report import mllog
from trainshed.bench.result import Measured, NotMeasured, json_schema

pytestmark = [pytest.mark.benchmark]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.made_result(tmp_path_factory.mktemp("formats"))


def test_result_json_obeys_the_published_schema(result: Path) -> None:
    schema = json.loads((ROOT / "docs/result.schema.json").read_text())
    assert schema == json_schema(), "regenerate docs/result.schema.json with `trainshed bench schema`"
    value = json.loads((result / "result.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(value, schema)
    value["score"]["value"] = {"value": 1.0}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(value, schema)


def test_a_quantity_is_a_number_with_unit_and_source_or_a_reason() -> None:
    with pytest.raises(ValueError, match="finite"):
        Measured(value=float("nan"), unit="s", source="x")
    with pytest.raises(ValueError, match="at least 1 character"):
        NotMeasured(not_measured="")


def test_train_result_info_is_rendered_as_the_original() -> None:
    values: dict[str, str | int | float] = {
        "throughput_ratio": "450.58182754928634",
        "accuracy": "0.7138610482215881",
        "average_power": 0,
        "total_end_time": "2022-07-13 13:24:43",
    }
    assert mllog.train_result_info(values) == (
        "train_result_info: {\n"
        '   "accuracy" : "0.7138610482215881",\n'
        '   "average_power" : 0,\n'
        '   "throughput_ratio" : "450.58182754928634",\n'
        '   "total_end_time" : "2022-07-13 13:24:43"\n'
        "}\n"
    )


def test_train_result_info_has_the_fifteen_keys_and_no_placeholder(result: Path) -> None:
    text = (result / "train_result_info.txt").read_text()
    value = json.loads(re.sub(r"^train_result_info: ", "", text))
    assert sorted(value) == [
        "accuracy", "average_power", "dataload_end_time", "dataload_start_time", "efficientcy",
        "energy_consumption", "max_power", "prepare_end_time", "prepare_start_time", "proc_end_time",
        "proc_start_time", "resource_util_ratio", "throughput_ratio", "total_end_time", "total_start_time",
    ]  # fmt: skip
    assert value["average_power"] == "not measured" and value["dataload_start_time"] == "not measured"
    assert value["proc_start_time"] == "2025-06-15 15:07:46"


@pytest.mark.parametrize(
    ("benchmark", "ruleset"),
    [("resnet", "1.0.0"), ("resnet", "3.1.0"), ("resnet", "4.0.0"), ("bert", "4.1.0"), ("bert", "5.0.0")],
)
def test_mllog_files_pass_the_compliance_checker_of_mlperf_logging(
    tmp_path: Path, benchmark: str, ruleset: str
) -> None:
    compliance = pytest.importorskip("mlperf_logging.compliance_checker.mlp_compliance")
    logging.getLogger().setLevel(logging.ERROR)
    folder = made.made_result(tmp_path, made.made_rules(mllog=MllogRule(benchmark=benchmark)))
    files = sorted((folder / "mllog").glob("result_*.txt"))
    assert len(files) == 3
    for path in files:
        checker = compliance.make_checker("training", ruleset, False, True)
        valid, *_ = compliance.main(str(path), f"training_{ruleset}/common.yaml", checker)
        assert valid, (checker.overwritable, checker.not_overwritable)


def test_the_compliance_checker_refuses_a_file_without_its_evaluation(result: Path, tmp_path: Path) -> None:
    compliance = pytest.importorskip("mlperf_logging.compliance_checker.mlp_compliance")
    lines = (result / "mllog/result_0.txt").read_text().splitlines(keepends=True)
    (tmp_path / "x.txt").write_text("".join(x for x in lines if "eval_accuracy" not in x))
    checker = compliance.make_checker("training", "4.0.0", False, True)
    assert not compliance.main(str(tmp_path / "x.txt"), "training_4.0.0/common.yaml", checker)[0]


def test_the_system_description_has_33_fields_and_passes_the_checker(result: Path) -> None:
    assert len(system.FIELDS) == len(set(system.FIELDS)) == 33
    described = json.loads((result / "system.json").read_text())
    assert set(system.FIELDS) <= set(described)
    assert described["number_of_nodes"] == "2" and described["framework"] == "made 1.0"
    assert re.match(r"[\d.]+ GiB$", described["host_memory_capacity"])
    checker = pytest.importorskip("mlperf_logging.system_desc_checker.system_desc_checker")
    assert checker.check_system_desc(str(result / "system.json"), "training", "4.0.0")[0]


def test_fields_given_by_the_user_win() -> None:
    described = system.describe(overrides={"submitter": "Example Lab", "nonsense": "x"})
    assert described["submitter"] == "Example Lab" and "nonsense" not in described
