"""Faults between client and store: the copy ends complete and verified, or with one clear error, resumable."""

from pathlib import Path

import pytest
from storekit import MIB, QUICK, contents, fill, proxied

from trainshed.store import CopyError, Credentials, StoreError, copy, list_tree
from trainshed.store.credentials import make

pytestmark = [pytest.mark.store, pytest.mark.real]

FAULTS = ["refuse", "reset", "503", "slow", "truncate", "corrupt", "corrupt-up"]


def make_tree(root: Path) -> Path:
    for number in range(20):
        fill(root / f"f{number}", 1000 + number)
    fill(root / "large", 10 * MIB)
    return root


@pytest.mark.parametrize("fault", FAULTS)
def test_a_passing_fault_is_survived_in_both_directions(
    fault: str, tmp_path: Path, store: Credentials, bucket: str
) -> None:
    source = make_tree(tmp_path / "a")
    with proxied(store, lambda n: fault if n % 3 == 0 else "") as (through, proxy):
        up = copy(str(source), f"s3://{bucket}/t", credentials=through)
        down = copy(f"s3://{bucket}/t", str(tmp_path / "b"), credentials=through)
    assert proxy.injected, "the fault must really have happened"
    assert up.complete and down.complete and not down.unverified
    assert contents(tmp_path / "b") == contents(source)
    direct = copy(f"s3://{bucket}/t", str(tmp_path / "c"), credentials=store)
    assert direct.files == 21
    assert contents(tmp_path / "c") == contents(source)


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("refuse", "store-unavailable"),
        ("503", "store-unavailable"),
        ("reset", "store-unavailable"),
        ("corrupt", "store-checksum"),
    ],
)
def test_a_lasting_fault_is_one_clear_error_and_the_copy_resumes(
    fault: str, code: str, tmp_path: Path, store: Credentials, bucket: str
) -> None:
    fill(tmp_path / "a/f", 50_000)
    copy(str(tmp_path / "a"), f"s3://{bucket}/t", credentials=store)
    with proxied(store, lambda n: fault) as (through, _), pytest.raises(StoreError) as caught:
        copy(f"s3://{bucket}/t", str(tmp_path / "b"), credentials=through, patience=QUICK)
    assert caught.value.code == code
    assert caught.value.hint
    assert not (tmp_path / "b/f").exists()
    copy(f"s3://{bucket}/t", str(tmp_path / "b"), credentials=store)
    assert contents(tmp_path / "b") == contents(tmp_path / "a")


def test_a_wrong_key_is_refused_at_once_and_named(tmp_path: Path, store: Credentials, bucket: str) -> None:
    fill(tmp_path / "a/f", 10)
    wrong = make(store.access_key, "not-the-secret", store.endpoint)
    with pytest.raises(CopyError) as caught:
        copy(str(tmp_path / "a"), f"s3://{bucket}/t", credentials=wrong)
    assert caught.value.code == "store-denied"
    assert "not-the-secret" not in str(caught.value)
    assert list_tree(f"s3://{bucket}", credentials=store) == []


def test_a_full_disk_while_downloading_is_one_clear_error_and_resumes(
    tmp_path: Path, store: Credentials, bucket: str
) -> None:
    import resource
    import signal

    fill(tmp_path / "a/big", 3 * MIB)
    copy(str(tmp_path / "a"), f"s3://{bucket}/t", credentials=store)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, limits[1]))
    try:
        with pytest.raises(CopyError) as caught:
            copy(f"s3://{bucket}/t", str(tmp_path / "b"), credentials=store)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert caught.value.code == "disk-full"
    assert list((tmp_path / "b").iterdir()) == []
    copy(f"s3://{bucket}/t", str(tmp_path / "b"), credentials=store)
    assert contents(tmp_path / "b") == contents(tmp_path / "a")
