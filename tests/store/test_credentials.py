"""Where keys and endpoint come from, in which order, and that they stay secret."""

from pathlib import Path

import pytest

from trainshed.errors import UsageError
from trainshed.store import Credentials, resolve
from trainshed.store.credentials import make

pytestmark = [pytest.mark.store]

AWS = {"AWS_ACCESS_KEY_ID": "ak", "AWS_SECRET_ACCESS_KEY": "sk"}
OBS = {
    "OBS_ACCESS_KEY_ID": "oak",
    "OBS_SECRET_ACCESS_KEY": "osk",
    "OBS_ENDPOINT": "https://obs.cn-north-4.myhuaweicloud.com",
}


def test_each_scheme_prefers_its_own_variables(tmp_path: Path) -> None:
    both = {**AWS, **OBS, "AWS_ENDPOINT_URL": "http://s3.example:9000"}
    s3 = resolve("s3", environ=both, home=tmp_path)
    obs = resolve("obs", environ=both, home=tmp_path)
    assert (s3.access_key, s3.endpoint, s3.path_style) == ("ak", "http://s3.example:9000", True)
    assert (obs.access_key, obs.region, obs.path_style) == ("oak", "cn-north-4", False)


def test_modelarts_variables_name_the_endpoint(tmp_path: Path) -> None:
    found = resolve("s3", environ={**AWS, "S3_ENDPOINT": "10.0.0.1:8333", "S3_USE_HTTPS": "0"}, home=tmp_path)
    assert found.endpoint == "http://10.0.0.1:8333"


def test_a_job_that_gets_the_environment_resolves_to_the_same_credentials(tmp_path: Path) -> None:
    given = make("ak", "sk", "http://127.0.0.1:8333", token="t")
    for scheme in ("obs", "s3"):
        assert resolve(scheme, environ=given.environment(), home=tmp_path) == given


def test_keys_without_endpoint_and_endpoint_without_keys_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no endpoint"):
        resolve("obs", environ=AWS, home=tmp_path)
    with pytest.raises(UsageError, match="no keys"):
        resolve("s3", environ={"S3_ENDPOINT": "x"}, home=tmp_path)


def write_profile(home: Path, text: str, mode: int = 0o600) -> None:
    (home / "store.yaml").write_text(text)
    (home / "store.yaml").chmod(mode)


def test_a_profile_is_used_when_the_environment_is_silent(tmp_path: Path) -> None:
    write_profile(
        tmp_path,
        "profiles:\n  default: {endpoint: 'http://a:1', access_key: k, secret_key: s}\n"
        "  lab: {endpoint: 'http://b:2', access_key: k2, secret_key: s2, region: moon}\n",
    )
    assert resolve("s3", environ={}, home=tmp_path).endpoint == "http://a:1"
    assert resolve("s3", environ={"TRAINSHED_STORE_PROFILE": "lab", **AWS}, home=tmp_path).region == "moon"


def test_a_profile_others_may_read_is_refused(tmp_path: Path) -> None:
    write_profile(tmp_path, "profiles: {}", 0o640)
    with pytest.raises(UsageError, match="0640") as caught:
        resolve("s3", environ={}, home=tmp_path)
    assert "chmod 600" in caught.value.hint


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ("{endpoint: x, access_key: k}", "secret_key"),
        ("{endpoint: x, access_key: k, secret_key: s, regoin: r}", "regoin"),
        ("3", "mapping"),
    ],
)
def test_a_wrong_profile_is_told_field_by_field(tmp_path: Path, body: str, word: str) -> None:
    write_profile(tmp_path, f"profiles: {{default: {body}}}")
    with pytest.raises(UsageError, match=word):
        resolve("s3", environ={}, home=tmp_path)


def test_secrets_do_not_appear_in_repr() -> None:
    shown = repr(Credentials("ak", "very-secret", "http://x", token="also-secret"))
    assert "secret" not in shown


@pytest.mark.parametrize("endpoint", ["http://h:99999", "http://[::1", "ftp://h", "http://"])
def test_an_endpoint_that_is_none_is_named(endpoint: str) -> None:
    with pytest.raises(UsageError, match="is not http"):
        make("k", "s", endpoint)


def test_a_key_with_a_line_break_is_refused_and_not_shown() -> None:
    with pytest.raises(UsageError, match="line break") as caught:
        make("key\r\nx-evil: 1", "s", "http://h")
    assert "evil" not in str(caught.value)
