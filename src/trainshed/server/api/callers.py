"""Who is there: every route but health and log-in asks."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from trainshed.server.accounts.identity import Identity, UnknownCallerError
from trainshed.server.platform import Platform

_bearer = HTTPBearer(auto_error=False, description="A personal token, or the session of a log-in.")
Bearer = Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)]


def platform_of(request: Request) -> Platform:
    found: Platform = request.app.state.platform
    return found


def address_of(request: Request) -> str:
    return request.client.host if request.client else ""


def caller(request: Request, bearer: Bearer) -> Identity:
    if bearer is None:
        raise UnknownCallerError
    return platform_of(request).keyring.identify(bearer.credentials, address_of(request))


Caller = Annotated[Identity, Depends(caller)]
ThePlatform = Annotated[Platform, Depends(platform_of)]
