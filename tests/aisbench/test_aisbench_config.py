"""Reading a package's configuration, old files with plain secrets among them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from packages import Unpacked, unpacked

from trainshed.aisbench import job, moving, train
from trainshed.aisbench.config import (
    Package,
    SessionConfig,
    Settings,
    read_modelarts,
    read_settings,
    read_test_config,
)
from trainshed.aisbench.registry import Registry
from trainshed.errors import TrainshedError, UsageError
from trainshed.payload.aisbench.easydict import EasyDict

pytestmark = [pytest.mark.benchmark]

SECRET = "SK-very-secret-0123456789"


def session(**changes: object) -> SessionConfig:
    values = {"inputs": "/b/data/", "code_dir": "/b/code/", "boot_file": "/b/code/train.py", "job_name": "aisbench-debug",
              "framework_version": "MindSpore-1.3-cann_5.0.2-python3.7-euleros2.8-aarch64", "out_base_url": "/b/out/"}  # fmt: skip
    return SessionConfig.model_validate(values | changes)


@pytest.fixture
def made(tmp_path: Path) -> Unpacked:
    return unpacked(tmp_path)


def with_secrets(made: Unpacked) -> None:
    made.edit(
        "modelarts_config.py",
        access_key="'AK123'",
        secret_access_key=f"'{SECRET}'",
        server="'http://127.0.0.1:9'",
    )


def test_easydict_is_a_dict_with_attributes_all_the_way_down() -> None:
    value = EasyDict({"a": {"b": [{"c": 1}]}}, d=2)
    assert value.a.b[0].c == 1 and value["d"] == value.d == 2
    value.a = {"x": 5}
    assert value.a.x == 5 and json.dumps(value) == '{"a": {"x": 5}, "d": 2}'
    with pytest.raises(AttributeError):
        _ = value.missing


def test_a_configuration_with_easydict_is_read_without_the_package(made: Unpacked) -> None:
    sys.modules.pop("easydict", None)
    _, found = read_modelarts(Package(made.root), "V1")
    assert found.job_name == "aisbench-debug" and found.named_parameters()["epochs"] == "2"
    _, second = read_modelarts(Package(made.root), "V2")
    assert second.named_parameters() == found.named_parameters()


def test_config_sh_is_what_the_shell_makes_of_it(made: Unpacked) -> None:
    path = made.root / "code" / "config" / "config.sh"
    path.write_text(
        "N=2\nexport TRAINSHED_DEVICES=$((N * 4))\nSINGLESERVER_MODE=True\nMODELARTS_VERSION=V2\n"
    )
    found = read_settings(Package(made.root), os.environ)
    assert (found.TRAINSHED_DEVICES, found.single_server, found.MODELARTS_VERSION) == (8, True, "V2")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("export MODELARTS_VERSION=V3\n", "MODELARTS_VERSION"),
        ("false\n", "cannot be sourced"),
        ("if\n", "config.sh"),
    ],
)
def test_a_mistake_in_config_sh_is_named(made: Unpacked, text: str, words: str) -> None:
    (made.root / "code" / "config" / "config.sh").write_text(text)
    with pytest.raises(UsageError, match=words):
        read_settings(Package(made.root), os.environ)


def test_config_json_takes_both_spellings_and_is_needed_only_for_a_network_test(made: Unpacked) -> None:
    path = made.root / "code" / "config.json"
    path.write_text(json.dumps({"testid": "t", "Model": "m", "Division": "open", "tester_server_port": "99"}))
    config = read_test_config(Package(made.root), needed=True)
    assert (config.Divsion, config.url) == ("open", "http://127.0.0.1:99")
    path.unlink()
    assert read_test_config(Package(made.root), needed=False).testid == ""
    with pytest.raises(TrainshedError, match=r"config\.json is missing"):
        read_test_config(Package(made.root), needed=True)


def test_the_line_of_the_log_is_the_originals() -> None:
    from trainshed.aisbench.config import TestConfig

    config = TestConfig(testid="20210126-ljp0IY", Model="resnet50_v1.5")
    assert config.line() == (
        "get ConfigInfo testid:20210126-ljp0IY, Mode:training, Model:resnet50_v1.5, Divsion:close, Scenario:generic, "
        "test_object_type:single, tester_server_ip:127.0.0.1, tester_server_port:9527"
    )


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("obs://b/x/", "obs://b/x/"),
        ("s3://b/x/", "s3://b/x/"),
        ("/b/x/", "obs://b/x/"),
        ("file:///b/x/", "/b/x/"),
    ],
)
def test_places_mean_what_the_original_means(text: str, meaning: str) -> None:
    assert job.location(text, "inputs") == meaning


def test_the_boot_file_must_lie_in_the_code_folder() -> None:
    assert job.entry_of(session()) == "train.py"
    assert job.entry_of(session(boot_file="obs://b/code/sub/t.py")) == "sub/t.py"
    for wrong in ("/b/other/train.py", "../x.py", "/b/code/"):
        with pytest.raises(UsageError):
            job.entry_of(session(boot_file=wrong))


def test_the_launcher_follows_the_framework() -> None:
    assert job.launcher_of(session()) == "mindspore"
    assert job.launcher_of(session(framework_version="TF-1.15-python3.7")) == "tensorflow"
    with pytest.raises(UsageError):
        job.launcher_of(session(framework_version="Caffe-1.0"))


@pytest.mark.parametrize(
    ("flavor", "settings", "cards"),
    [("modelarts.kat1.xlarge", {}, 1), ("modelarts.kat1.2xlarge", {}, 2), ("modelarts.kat1.4xlarge", {}, 4),
     ("modelarts.kat1.8xlarge", {}, 8), (None, {}, 8), (None, {"DEVICE_NUM": 4}, 4),
     ("modelarts.kat1.8xlarge", {"TRAINSHED_DEVICES": 3}, 3)],
)  # fmt: skip
def test_cards_come_from_the_flavour_or_the_settings(flavor: str | None, settings: dict, cards: int) -> None:
    assert job.devices_of(session(train_instance_type=flavor), Settings(**settings)) == cards


def test_the_job_has_the_platforms_contract_and_names(made: Unpacked, home: Path) -> None:
    made.edit("config.sh", SINGLESERVER_MODE="True")
    ready = train.prepare(Package(made.root), train.PackageCaller(os.environ))
    version = Registry(home).begin("aisbench-debug", 1, "V2", "obs://b/out/x/", made.root)
    spec = job.build_job(
        ready.session, ready.settings, version, os.environ, code=str(made.root / "code" / "code")
    )
    assert (spec.contract, spec.mode.value, spec.resources.shape) == ("modelarts-v2", "single_server", "1x2")
    assert spec.options["job_id"] == version.resource and spec.outputs[0].target == "obs://b/out/x/"
    assert spec.timeout == 86400


def test_a_misspelt_engine_lists_all(made: Unpacked) -> None:
    made.edit("config.sh", TRAINSHED_ENGINE="lokal")
    with pytest.raises(UsageError, match="local"):
        train.prepare(Package(made.root), train.PackageCaller(os.environ))


def test_a_broken_configuration_never_shows_a_key(made: Unpacked) -> None:
    path = made.root / "code" / "config" / "modelarts_config.py"
    path.write_text(f"access_config = {{'secret_access_key': '{SECRET}' oops}}\n")
    with pytest.raises(UsageError) as error:
        read_modelarts(Package(made.root), "V1")
    assert SECRET not in str(error.value) and "line 1" in str(error.value)


def test_plain_secrets_are_warned_of_without_being_shown(made: Unpacked) -> None:
    with_secrets(made)
    made.edit("config.sh", BMC_PASSWORD="hunter22")
    access, _ = read_modelarts(Package(made.root), "V1")
    texts = moving.warnings(Package(made.root), access)
    assert len(texts) == 2 and "move-secrets" in texts[0] and "BMC_PASSWORD" in texts[1]
    assert not any(word in text for text in texts for word in (SECRET, "hunter22"))
    assert SECRET not in repr(access)


def test_moved_secrets_leave_the_file_and_are_found_again(made: Unpacked, home: Path) -> None:
    with_secrets(made)
    path = made.root / "code" / "config" / "modelarts_config.py"
    before = path.read_text()
    done = made.stubs("move-secrets")
    assert done.returncode == 0, done.stdout
    assert SECRET not in done.stdout
    assert path.read_text() == before.replace("'AK123'", "''").replace(f"'{SECRET}'", "''")
    profile = home / "store.yaml"
    assert SECRET in profile.read_text() and oct(profile.stat().st_mode)[-3:] == "600"

    from trainshed.store.credentials import resolve

    found = resolve("obs", environ={"TRAINSHED_STORE_PROFILE": "aisbench"}, home=home)
    assert (found.access_key, found.secret_key, found.endpoint) == ("AK123", SECRET, "http://127.0.0.1:9")
    access, _ = read_modelarts(Package(made.root), "V1")
    assert moving.warnings(Package(made.root), access) == []


def test_a_run_is_found_by_its_label_if_the_stubs_died_while_submitting(made: Unpacked, home: Path) -> None:
    from trainshed.aisbench.registry import LABEL
    from trainshed.api import Client
    from trainshed.runs.directory import Runs
    from trainshed.runs.events import Submitted

    client = Client(home)
    for number in (1, 2):
        version = Registry(home).begin("aisbench-debug", number, "V1", "obs://b/out/x/", made.root)
        (run,) = Runs.of(home).create("aisbench-debug")
        labels = {LABEL: str(version.id)}
        run.writer("submit").append(Submitted("aisbench-debug", "local", "1x2", labels=labels))
        found = version.find_run(client)
        assert found is not None and found.id == run.id


def test_the_newest_version_of_exactly_this_name_is_found(tmp_path: Path, home: Path) -> None:
    registry = Registry(home)
    registry.begin("aisbench-debug", 1, "V1", "obs://b/V1/", tmp_path)
    second = registry.begin("aisbench-debug", 2, "V1", "obs://b/V2/", tmp_path)
    registry.begin("aisbench-debug-2", 1, "V1", "obs://b/V1/", tmp_path)
    registry.begin("aisbench-debu", 1, "V1", "obs://b/V1/", tmp_path)
    assert registry.newest("aisbench-debug") == second
    assert registry.newest("aisbench") is None
    assert registry.by_id(second.resource) == second
    assert registry.next_number("aisbench-debug") == 3
