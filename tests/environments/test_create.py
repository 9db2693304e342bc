"""Making environments with real pip and real virtual environments, from a tiny local wheel."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from wheelkit import write_lock

from trainshed import environments
from trainshed.environments import build, commands, recipes
from trainshed.environments.recipes import Recipe, SourceBuild
from trainshed.errors import NotFoundError, RefusedError, TrainshedError

pytestmark = [pytest.mark.foundation]


def test_a_made_environment_runs_its_framework_at_the_pinned_versions(tiny: Recipe, envs: Path) -> None:
    news: list[environments.BuildProgress] = []
    made = environments.create("tiny", news.append)

    assert made.versions == {"tinydep": "2.0", "tinyframe": "1.0"}
    assert made.framework == "tinyframe"
    ran = subprocess.run(
        [made.python, "-c", "import tinyframe; print(tinyframe.__file__)"],
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
    )
    assert ran.stdout.startswith(str(envs / "tiny"))
    assert not list(envs.glob("tiny/lib/*/site-packages/tinyframe/gpu"))
    assert [n.step for n in news if n.detail == "done" or n.step == "ready"] == ["download", "ready"]
    assert environments.resolve("tiny", os.environ) == made


def test_trainshed_is_not_visible_inside_an_environment(tiny: Recipe, envs: Path) -> None:
    made = environments.create("tiny")
    ran = subprocess.run(
        [made.python, "-c", "import trainshed"], capture_output=True, cwd="/", env={"PATH": os.defpath}
    )
    assert ran.returncode != 0


def test_making_again_does_nothing_and_after_removal_needs_no_registry(
    tiny: Recipe, envs: Path, tmp_path: Path
) -> None:
    environments.create("tiny")
    shutil.rmtree(tmp_path / "registry")
    marker = (envs / "tiny/.trainshed-env.json").read_text()

    environments.create("tiny")
    assert (envs / "tiny/.trainshed-env.json").read_text() == marker

    environments.remove("tiny")
    assert not (envs / "tiny").exists()
    assert environments.create("tiny").versions["tinyframe"] == "1.0"


def test_a_half_made_environment_is_told_and_made_anew(tiny: Recipe, envs: Path) -> None:
    (envs / "tiny/bin").mkdir(parents=True)
    (envs / "tiny/bin/python").write_text("left by a maker that was killed")
    with pytest.raises(NotFoundError, match=r"is incomplete.*trainshed env create tiny"):
        environments.resolve("tiny", os.environ)

    environments.create("tiny")
    assert environments.resolve("tiny", os.environ).versions["tinyframe"] == "1.0"


def test_a_changed_lock_makes_an_environment_outdated_and_create_renews_it(
    tiny: Recipe, envs: Path, tmp_path: Path
) -> None:
    environments.create("tiny")
    wheels = [tmp_path / f"registry/{name}-py3-none-any.whl" for name in ("tinyframe-1.0", "tinydep-3.0")]
    write_lock(tiny.lock, *wheels)
    assert {row.name: row.state for row in environments.listing()}["tiny"] == "outdated"

    assert environments.create("tiny").versions["tinydep"] == "3.0"
    assert {row.name: row.state for row in environments.listing()}["tiny"] == "ready"


def test_a_failing_step_says_why_and_leaves_nothing_that_counts_as_made(
    tiny: Recipe, envs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = dataclasses.replace(tiny, check="raise RuntimeError('error: the framework is broken')")
    monkeypatch.setitem(recipes._BY_NAME, "tiny", broken)
    with pytest.raises(TrainshedError, match=r"check failed.*the framework is broken.*tiny\.log"):
        environments.create("tiny")
    with pytest.raises(NotFoundError):
        environments.resolve("tiny", os.environ)


def test_a_package_no_registry_has_is_named(tiny: Recipe, envs: Path) -> None:
    tiny.lock.write_text(f"nosuchframe==9 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(TrainshedError, match=r"download failed.*nosuchframe==9"):
        environments.create("tiny")


def test_a_file_where_a_folder_must_be_is_one_clear_error(tiny: Recipe, envs: Path) -> None:
    envs.mkdir()
    (envs / ".wheels").write_text("in the way")
    with pytest.raises(TrainshedError, match=r"could not be created.*trainshed env create tiny"):
        environments.create("tiny")


def test_a_folder_of_environments_that_cannot_be_made_is_one_clear_error(
    tiny: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRAINSHED_ENVS", str(tmp_path / "file/envs"))
    with pytest.raises(TrainshedError, match=r"'tiny' could not be created: .*Not a directory"):
        environments.create("tiny")


def test_two_makers_at_once_make_it_once(tiny: Recipe, envs: Path) -> None:
    context = multiprocessing.get_context("fork")
    makers = [context.Process(target=environments.create, args=("tiny",)) for _ in range(2)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join(60)
    assert [maker.exitcode for maker in makers] == [0, 0]
    log = (envs / ".wheels/logs/tiny.log").read_text()
    assert log.count("Successfully installed") == 1


def test_a_killed_maker_blocks_nobody(tiny: Recipe, envs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = envs.parent / "go"
    wait = f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.05)"
    slow = dataclasses.replace(tiny, check=wait)
    monkeypatch.setitem(recipes._BY_NAME, "tiny", slow)
    maker = multiprocessing.get_context("fork").Process(target=environments.create, args=("tiny",))
    maker.start()
    _until(lambda: bool(list(envs.glob("tiny/lib/*/site-packages/tinyframe"))))
    assert maker.pid is not None
    os.kill(maker.pid, signal.SIGKILL)
    maker.join(10)
    assert {row.name: row.state for row in environments.listing()}["tiny"] == "broken"

    go.touch()
    environments.create("tiny")
    assert {row.name: row.state for row in environments.listing()}["tiny"] == "ready"


def test_a_missing_compiler_is_told_before_anything_is_downloaded(
    tiny: Recipe, envs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs = SourceBuild("horovod", "0.28.1", "x", variables=(), sha256="", tools=("sh", "no-such-compiler"))
    monkeypatch.setitem(recipes._BY_NAME, "tiny", dataclasses.replace(tiny, build=needs))
    with pytest.raises(RefusedError, match="lacks: no-such-compiler"):
        environments.create("tiny")
    assert not (envs / ".wheels").exists()


def test_too_little_room_is_refused(tiny: Recipe, envs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(recipes._BY_NAME, "tiny", dataclasses.replace(tiny, megabytes=10**12))
    with pytest.raises(RefusedError, match=r"MB are free.*TRAINSHED_ENVS"):
        environments.create("tiny")


def test_a_step_that_never_ends_is_ended_with_its_children(
    tiny: Recipe, envs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "LIMIT_SECONDS", 1.0)
    pid_file = tmp_path / "pid"
    command = ["sh", "-c", f"sleep 60 & echo $! > {pid_file}; wait"]
    with open(tmp_path / "lock", "w") as lock:
        maker = commands.Maker("tiny", lock.fileno(), tmp_path / "log", lambda _: None, time.monotonic())
        with pytest.raises(TrainshedError, match="took over 1 s"):
            maker.run("build", command)
    child = int(pid_file.read_text())
    _until(lambda: not Path(f"/proc/{child}").exists() or " Z " in Path(f"/proc/{child}/stat").read_text())


def test_the_check_cannot_import_from_the_folder_it_was_started_in(
    tiny: Recipe, envs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tinyframe.py").write_text("version = 'an impostor'\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert build.create("tiny").versions["tinyframe"] == "1.0"


def _until(condition, seconds: float = 20.0) -> None:  # type: ignore[no-untyped-def]
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "condition not met in time"
        time.sleep(0.02)
