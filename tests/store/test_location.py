"""URLs: what a person may write, and what they are told otherwise."""

import pytest

from trainshed.errors import UsageError
from trainshed.store import parse_url

pytestmark = [pytest.mark.store]


@pytest.mark.parametrize(
    ("text", "scheme", "bucket", "key", "path"),
    [
        ("a/b", "file", "", "", "a/b"),
        ("/a b/ü", "file", "", "", "/a b/ü"),
        ("file:///a%20b", "file", "", "", "/a b"),
        ("file://localhost/x", "file", "", "", "/x"),
        ("obs://bucket/a/b", "obs", "bucket", "a/b", ""),
        ("s3://bucket", "s3", "bucket", "", ""),
        ("s3://bucket/a%20b//c/", "s3", "bucket", "a%20b//c/", ""),
    ],
)
def test_paths_and_urls_are_read_exactly(text: str, scheme: str, bucket: str, key: str, path: str) -> None:
    place = parse_url(text)
    assert (place.scheme, place.bucket, place.key, place.path) == (scheme, bucket, key, path)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "empty"),
        ("gs://b/k", "'gs'"),
        ("s3:///key", "bucket"),
        ("obs://a b/k", "bucket"),
        ("s3://../k", "bucket"),
        ("file://host/x", "host"),
        ("a\0b", "NUL"),
        ("s3://bucket/" + "k" * 1025, "1024"),
    ],
)
def test_anything_else_is_refused_with_a_remedy(text: str, word: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_url(text)
    assert word in caught.value.message
    assert caught.value.hint
