"""Large trees are listed folder beside folder: every object once, whatever the tree looks like."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from trainshed.payload.modelarts.trainshed_store import listing as listings
from trainshed.payload.modelarts.trainshed_store.errors import StoreError
from trainshed.payload.modelarts.trainshed_store.s3.client import S3Client

pytestmark = [pytest.mark.store, pytest.mark.real]

TREES = {
    "well filled folders": [f"d{n % 9}/f{n}" for n in range(1200)],
    "objects between folders": [f"d{n % 9}/f{n}" for n in range(1100)]
    + [f"d{n}" for n in range(9)]
    + ["a", "z"],
    "folders with one name and objects": [f"d{n % 5}/e{n % 3}/f{n}" for n in range(1100)]
    + ["d1", "d1-", "d0/e0"],
    "thin folders": [f"d{n}/f" for n in range(1100)],
    "no folders": [f"f{n}" for n in range(1100)],
}


@pytest.mark.parametrize("tree", TREES)
def test_every_object_is_listed_once(client: S3Client, bucket: str, tree: str) -> None:
    keys = [f"top/{key}" for key in TREES[tree]]
    with ThreadPoolExecutor(8) as workers:
        list(workers.map(lambda key: client.put(bucket, key, b"x"), keys))
    found = [item.key for item in listings.listed(client, bucket, "top/")]
    assert sorted(found) == sorted(keys)


def test_a_failure_in_one_folder_ends_the_listing(
    client: S3Client, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [f"d{n % 9}/f{n}" for n in range(1200)]
    with ThreadPoolExecutor(8) as workers:
        list(workers.map(lambda key: client.put(bucket, key, b"x"), keys))
    pages = client.pages

    def failing(bucket: str, prefix: str, *more: object):
        if prefix == "d8/":
            raise StoreError("no luck")
        return pages(bucket, prefix, *more)

    monkeypatch.setattr(client, "pages", failing)
    with pytest.raises(StoreError, match="no luck"):
        list(listings.listed(client, bucket, ""))
