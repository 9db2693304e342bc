"""Who is asking, and where the store is: from caller, environment, profile file, or the embedded store.

It decides once, in a fixed order, and says where the answer came from. Secrets never appear in `repr`.
"""

from __future__ import annotations

import ipaddress
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from trainshed.errors import UsageError

PROFILE_FILE = "store.yaml"
EMBEDDED = "embedded"
VIRTUAL_HOSTED = (".amazonaws.com", ".amazonaws.com.cn", ".myhuaweicloud.com", ".myhuaweicloud.eu")


@dataclass(frozen=True)
class Credentials:
    """Keys and endpoint of one S3-compatible store."""

    access_key: str
    secret_key: str = field(repr=False)
    endpoint: str
    region: str = "us-east-1"
    token: str = field(default="", repr=False)
    path_style: bool = True
    verify_tls: bool = True
    source: str = field(default="caller", compare=False)

    def environment(self) -> dict[str, str]:
        """Variables that make official clients and `moxing` of a job reach this store."""
        parts = urlsplit(self.endpoint)
        secure = parts.scheme == "https"
        result = {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ENDPOINT_URL": self.endpoint,
            "OBS_ACCESS_KEY_ID": self.access_key,
            "OBS_SECRET_ACCESS_KEY": self.secret_key,
            "S3_ENDPOINT": parts.netloc,
            "S3_USE_HTTPS": "1" if secure else "0",
            "S3_VERIFY_SSL": "1" if self.verify_tls else "0",
        }
        if self.token:
            result["AWS_SESSION_TOKEN"] = result["OBS_SECURITY_TOKEN"] = self.token
        return result


def trainshed_home(environ: Mapping[str, str] | None = None) -> Path:
    environ = os.environ if environ is None else environ
    return Path(environ.get("TRAINSHED_HOME") or Path.home() / ".trainshed")


def resolve(
    scheme: str = "s3", *, environ: Mapping[str, str] | None = None, home: Path | None = None
) -> Credentials:
    """Environment, then profile file, then the embedded store (started if it is not running)."""
    environ = os.environ if environ is None else environ
    home = home or trainshed_home(environ)
    wanted = environ.get("TRAINSHED_STORE_PROFILE", "")
    if wanted != EMBEDDED:
        found = (None if wanted else _from_environment(scheme, environ)) or _from_profile(
            home, wanted, scheme
        )
        if found:
            return found
    from trainshed.store import embedded

    return embedded.ensure_running(home).credentials


def make(
    access_key: str,
    secret_key: str,
    endpoint: str,
    *,
    region: str = "",
    token: str = "",
    path_style: bool | None = None,
    verify_tls: bool = True,
    source: str = "caller",
) -> Credentials:
    """Fill in what the endpoint's name tells: protocol, region, and the way buckets are addressed."""
    if "://" not in endpoint:
        endpoint = "https://" + endpoint
    try:
        parts = urlsplit(endpoint)
        host, _ = parts.hostname or "", parts.port
    except ValueError:  # a port or an address that is none
        host = ""
    if not host or parts.scheme not in ("http", "https"):
        raise UsageError(f"endpoint {endpoint!r} from {source} is not http(s)://HOST[:PORT]", "correct it")
    if not (access_key + token).isprintable():
        raise UsageError(f"the access key or token from {source} has a line break in it", "correct it")
    if not region:
        labels = host.split(".")
        named = len(labels) > 3 and labels[0] in ("obs", "s3") and host.endswith(VIRTUAL_HOSTED)
        region = labels[1] if named else "us-east-1"
    if path_style is None:
        path_style = _is_address(host) or not host.endswith(VIRTUAL_HOSTED)
    return Credentials(
        access_key,
        secret_key,
        f"{parts.scheme}://{parts.netloc}",
        region,
        token,
        path_style,
        verify_tls,
        source,
    )


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _first(environ: Mapping[str, str], *names: str) -> str:
    return next((environ[name] for name in names if environ.get(name)), "")


def _from_environment(scheme: str, environ: Mapping[str, str]) -> Credentials | None:
    order = ("OBS", "AWS") if scheme == "obs" else ("AWS", "OBS")
    key = secret = token = ""
    for family in order:
        key = _first(environ, f"{family}_ACCESS_KEY_ID")
        secret = _first(environ, f"{family}_SECRET_ACCESS_KEY")
        token = _first(environ, "AWS_SESSION_TOKEN" if family == "AWS" else "OBS_SECURITY_TOKEN")
        if key and secret:
            break
    endpoints = {
        "OBS": ("OBS_ENDPOINT", "OBS_SERVER"),
        "AWS": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    }
    endpoint = _first(
        environ, "TRAINSHED_STORE_ENDPOINT", *endpoints[order[0]], "S3_ENDPOINT", *endpoints[order[1]]
    )
    if not (key and secret):
        if endpoint:
            raise UsageError(
                f"the environment names the store {endpoint} but no keys",
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or OBS_…), or unset the endpoint",
            )
        return None
    region = _first(environ, "AWS_REGION", "AWS_DEFAULT_REGION")
    if not endpoint:
        if scheme == "obs":
            raise UsageError(
                "the environment has keys but no endpoint for obs://",
                "set OBS_ENDPOINT=https://obs.REGION.myhuaweicloud.com, "
                "or TRAINSHED_STORE_PROFILE=embedded for the embedded store",
            )
        endpoint = f"https://s3.{region or 'us-east-1'}.amazonaws.com"
    if "://" not in endpoint:
        endpoint = (
            "http://" if environ.get("S3_USE_HTTPS") in ("0", "false", "False") else "https://"
        ) + endpoint
    verify = environ.get("S3_VERIFY_SSL", "1") not in ("0", "false", "False")
    return make(key, secret, endpoint, region=region, token=token, verify_tls=verify, source="environment")


def _from_profile(home: Path, wanted: str, scheme: str) -> Credentials | None:
    """`store.yaml`: profiles by name; the one asked for, else the scheme's own, else `default`."""
    path = home / PROFILE_FILE
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if wanted:
            raise UsageError(
                f"store profile {wanted!r} asked for, but {path} does not exist", "create it"
            ) from None
        return None
    if stat.S_IMODE(mode) & 0o077:
        raise UsageError(
            f"{path} holds secrets but has mode {stat.S_IMODE(mode):04o}", f"run: chmod 600 {path}"
        )
    try:
        import yaml
    except ImportError:
        raise UsageError(
            f"cannot read {path}: this Python has no yaml module", "give the keys in the environment"
        ) from None
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except yaml.YAMLError as error:
        raise UsageError(f"{path} is not YAML: {str(error).splitlines()[0]}", "correct it") from error
    profiles = document.get("profiles") if isinstance(document, dict) else None
    if not isinstance(profiles, dict):
        raise UsageError(f"{path} has no mapping 'profiles'", "see docs/store.md")
    name = wanted or (scheme if scheme in profiles else "default")
    if name not in profiles:
        if not wanted:
            return None
        raise UsageError(
            f"{path} has no profile {name!r}", f"it has: {', '.join(map(str, profiles)) or 'none'}"
        )
    return _read_profile(path, name, profiles[name])


def _read_profile(path: Path, name: str, body: object) -> Credentials:
    allowed = {"access_key", "secret_key", "endpoint", "region", "token", "path_style", "verify_tls"}
    if not isinstance(body, dict):
        raise UsageError(
            f"profile {name!r} in {path} is not a mapping", f"allowed: {', '.join(sorted(allowed))}"
        )
    unknown = sorted(map(str, set(body) - allowed))
    missing = [key for key in ("access_key", "secret_key", "endpoint") if not body.get(key)]
    if unknown or missing:
        what = f"unknown field {unknown[0]!r}" if unknown else f"no field {missing[0]!r}"
        raise UsageError(f"profile {name!r} in {path}: {what}", f"allowed: {', '.join(sorted(allowed))}")
    return make(
        str(body["access_key"]),
        str(body["secret_key"]),
        str(body["endpoint"]),
        region=str(body.get("region", "")),
        token=str(body.get("token", "")),
        path_style=None if body.get("path_style") is None else bool(body["path_style"]),
        verify_tls=bool(body.get("verify_tls", True)),
        source=f"profile {name!r} of {path}",
    )
