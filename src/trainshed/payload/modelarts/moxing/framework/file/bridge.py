"""Connects `moxing` to the copy engine beside it, `trainshed_store`.

Nothing of an installed Trainshed is loaded: the job's Python may be older than Trainshed, or have another one.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, type-arg, import-not-found"

import contextlib
import os
import threading

from trainshed_store import credentials as _credentials
from trainshed_store.copy import copy as _copy
from trainshed_store.errors import AccessDeniedError, ChecksumError, CopyError, ObjectNotFoundError
from trainshed_store.errors import StoreError as _StoreError
from trainshed_store.location import parse_url
from trainshed_store.s3.calls import Patience
from trainshed_store.s3.client import S3Client

from moxing.framework.file.errors import (
    MoxFileNotExistsException,
    MoxFileReadException,
    MoxFileRespException,
    Response,
)

__all__ = ["ObjectNotFoundError", "client", "copy_tree", "parse_url", "set_auth", "translated"]

_lock = threading.Lock()
_clients: dict = {}
_settings: dict = {}
_patience: list = [None]


def set_auth(ak, sk, token, server, port, is_secure, ssl_verify, path_style, retry):
    """Remember what was given; the rest still comes from the environment."""
    with _lock:
        for name, value in (
            ("ak", ak),
            ("sk", sk),
            ("token", token),
            ("server", server),
            ("port", port),
            ("is_secure", is_secure),
            ("ssl_verify", ssl_verify),
            ("path_style", path_style),
        ):
            if value is not None:
                _settings[name] = value
        if retry is not None:
            _patience[0] = Patience(attempts=max(1, int(retry)))
        _clients.clear()


def _resolved(scheme):
    if not _settings:
        return _credentials.required(scheme)
    complete = {"ak", "sk", "server"} <= set(_settings)
    base = _credentials.Credentials("", "", "", "") if complete else _credentials.required(scheme)
    server = str(_settings.get("server", base.endpoint))
    endpoint = server if "://" in server else "https://" + server
    protocol, _, host = endpoint.partition("://")
    # Scripts say is_secure=False to speed OBS up; True on a plain store would only break it.
    if _settings.get("is_secure") is False:
        protocol = "http"
    elif "server" in _settings and _settings.get("is_secure"):
        protocol = "https"
    if "port" in _settings:
        host = "{}:{}".format(host.rsplit(":", 1)[0] if ":" in host else host, int(_settings["port"]))
    return _credentials.make(
        _settings.get("ak") or base.access_key,
        _settings.get("sk") or base.secret_key,
        protocol + "://" + host,
        region=base.region,
        token=_settings.get("token") or ("" if "ak" in _settings else base.token),
        path_style=_settings.get("path_style", None if complete else base.path_style),
        verify_tls=bool(_settings.get("ssl_verify", base.verify_tls)),
        source="moxing.file.set_auth",
    )


def client(scheme):
    """One client per process and protocol; a forked child makes its own."""
    key = (os.getpid(), scheme)
    with _lock:
        if key not in _clients:
            _clients[key] = S3Client(_resolved(scheme), _patience[0])
        return _clients[key]


def copy_tree(src, dst, **options):
    remotes = [p for p in (parse_url(src), parse_url(dst)) if p.is_remote]
    who = client(remotes[0].scheme).credentials if remotes else None
    with translated():
        return _copy(src, dst, credentials=who, follow_links=True, patience=_patience[0], **options)


@contextlib.contextmanager
def translated():
    """Trainshed's errors as the exceptions that scripts know."""
    try:
        yield
    except ObjectNotFoundError as error:
        raise MoxFileNotExistsException(error.message) from error
    except _StoreError as error:
        cause = error.__cause__ if isinstance(error, CopyError) and error.__cause__ else error
        kind = MoxFileReadException if isinstance(cause, ChecksumError) else MoxFileRespException
        status = 403 if isinstance(cause, AccessDeniedError) else 500
        raise kind(
            Response(status, type(cause).__name__, getattr(cause, "store_code", "") or error.code, str(error))
        ) from error
