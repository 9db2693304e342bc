"""A real Slurm of four virtual nodes for these tests, and a Trainshed home that its nodes share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from slurm_cluster import INSTALL, Cluster, missing
from slurm_site import Site

from support import ENVIRONMENTS


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if missing():
        pytest.skip(f"Slurm is not installed ({', '.join(missing())}): {INSTALL}")
    yield from _started(tmp_path_factory)


@pytest.fixture
def own_cluster(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Another one, for a test after which no other should have to use it."""
    yield from _started(tmp_path_factory)


@pytest.fixture
def site(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    yield _site(cluster, tmp_path, monkeypatch)
    cluster.look("scancel", "--user=" + str(os.getuid()))
    cluster.heal()


@pytest.fixture
def own_site(own_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return _site(own_cluster, tmp_path, monkeypatch)


def _started(factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(factory.mktemp("slurm"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


def _site(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("TRAINSHED_HOME", str(home))
    monkeypatch.setenv("TRAINSHED_ENVS", str(ENVIRONMENTS))
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    monkeypatch.delenv("TRAINSHED_PROFILE", raising=False)
    from trainshed.engines.slurm.engine import ENGINE

    return Site(cluster, tmp_path, ENGINE)
