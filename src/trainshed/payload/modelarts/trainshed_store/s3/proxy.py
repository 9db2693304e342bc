"""Which HTTP proxy is used for a host, by the variables that other programs respect too. Pure.

`http_proxy` serves stores spoken to in plain HTTP, `https_proxy` those behind TLS, `all_proxy` both; `no_proxy` lists
hosts, domains, addresses and networks that are reached directly. This machine never needs one.
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from ..errors import UsageError


@dataclass(frozen=True)
class HttpProxy:
    """A proxy's address, and the header that lets us through it."""

    host: str
    port: int
    authorization: str = field(default="", repr=False)

    @property
    def header(self) -> str:
        """The header line to send with a request, or nothing."""
        return f"proxy-authorization: {self.authorization}\r\n" if self.authorization else ""


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine's own."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    address = _address(host)
    return address is not None and address.is_loopback


def proxy_for(host: str, port: int, secure: bool, environ: Mapping[str, str]) -> HttpProxy | None:
    """The proxy to this host, or None where there is none or it is not to be used."""
    if is_loopback(host):
        return None
    kind = "https_proxy" if secure else "http_proxy"
    # In a CGI program HTTP_PROXY is a header of the client.
    names = [kind, kind.upper()] if secure or "REQUEST_METHOD" not in environ else [kind]
    name = next((n for n in (*names, "all_proxy", "ALL_PROXY") if environ.get(n)), "")
    if not name or _is_excluded(host, port, environ.get("no_proxy") or environ.get("NO_PROXY") or ""):
        return None
    return _parse(name, environ[name])


def _parse(name: str, text: str) -> HttpProxy:
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or 80
    except ValueError:
        host, port = "", 0
    if not host or parts.scheme != "http":
        # Not the value itself: it may hold a password.
        raise UsageError(
            f"the variable {name} is not the address of an HTTP proxy",
            "write http://[USER:PASSWORD@]HOST:PORT",
        )
    authorization = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + base64.b64encode(pair.encode()).decode()
    return HttpProxy(host, port, authorization)


def _is_excluded(host: str, port: int, listed: str) -> bool:
    address = _address(host)
    for item in (part.strip().lower() for part in listed.split(",")):
        if item == "*":
            return True
        name, colon, number = item.rpartition(":")
        if colon and number.isdigit() and ":" not in name:
            if int(number) != port:
                continue
            item = name
        if address is not None:
            if _contains(item, address):
                return True
        elif item.strip("*.") and (
            host.lower() == item.strip("*.") or host.lower().endswith("." + item.strip("*."))
        ):
            return True
    return False


def _contains(item: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    try:
        return address in ipaddress.ip_network(item.strip("[]"), strict=False)
    except ValueError:
        return False


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
