"""Who is asking, and where the store is: as a caller says it, or the environment. Secrets never appear in `repr`."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from .errors import UsageError

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
    """Fill in what follows from the endpoint's name: protocol, region, and the way buckets are addressed."""
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


def required(scheme: str) -> Credentials:
    """The keys and the endpoint that this process's environment holds; raises if it holds none."""
    found = from_environment(scheme, os.environ)
    if found is None:
        raise UsageError(
            f"no keys for {scheme}:// in the environment of this process",
            "name the URL in the job (inputs, outputs, log_url), or set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY "
            "and AWS_ENDPOINT_URL",
        )
    return found


def from_environment(scheme: str, environ: Mapping[str, str]) -> Credentials | None:
    """What the variables say that S3's and OBS's own clients read; None without keys and endpoint."""
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
