"""What a store refuses has a code of ours, whatever the store calls it; its own word is in the message."""

import pytest

from trainshed.errors import TrainshedError
from trainshed.payload.modelarts.trainshed_store.s3.calls import Caller
from trainshed.payload.modelarts.trainshed_store.s3.wire import Answer
from trainshed.store import StoreError, read_bytes
from trainshed.store.credentials import make

pytestmark = [pytest.mark.store, pytest.mark.core]


def refusal(status: int, code: str, key: str = "x") -> TrainshedError:
    body = f"<Error><Code>{code}</Code><Message>said</Message></Error>".encode() if code else b""
    return Caller(make("k", "s", "https://store.example")).refusal(Answer(status, {}, body), "team", key)


@pytest.mark.parametrize(
    ("status", "word", "code"),
    [
        (404, "NoSuchKey", "not-found"),
        (404, "NoSuchUpload", "not-found"),
        (403, "SignatureDoesNotMatch", "store-denied"),
        (400, "RequestTimeTooSkewed", "store-denied"),
        (412, "PreconditionFailed", "store-changed"),
        (507, "InsufficientStorage", "disk-full"),
        (400, "InvalidBucketName", "store"),
        (409, "BucketNotEmpty", "store"),
        (503, "SlowDown", "store"),
    ],
)
def test_codes_are_ours(status: int, word: str, code: str) -> None:
    error = refusal(status, word)
    assert error.code == code
    assert error.store_code == word  # type: ignore[attr-defined]
    if code in ("store", "store-denied", "not-found"):
        assert word in error.message


def test_a_missing_bucket_says_how_to_make_it() -> None:
    for error in (refusal(404, "NoSuchBucket"), refusal(404, "", key="")):
        assert error.code == "no-bucket"
        assert "trainshed store bucket add team" in error.hint


@pytest.mark.field
def test_a_bucket_name_that_cannot_be_says_how_names_are_written() -> None:
    assert "3 to 63" in refusal(400, "InvalidBucketName", key="").hint


def test_the_cause_of_an_error_is_kept() -> None:
    with pytest.raises(TrainshedError) as caught:
        read_bytes("/nowhere/at/all")
    assert isinstance(caught.value.__cause__, FileNotFoundError)
    assert not isinstance(caught.value, StoreError)
