"""One form for every error: {code, message, hint}, with our stable codes, under a fitting HTTP status."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from trainshed.errors import TrainshedError, UsageError
from trainshed.server.accounts.limits import TooManyAttemptsError
from trainshed.server.uploads import MissingFilesError

_STATUS = {
    "unauthenticated": 401,
    "denied": 403,
    "not-found": 404,
    "no-environment": 400,
    "conflict": 409,
    "missing-files": 409,
    "busy": 409,
    "devices-busy": 409,
    "too-many-attempts": 429,
    "database": 503,
    "vault": 503,
    "unreadable-run": 409,
}
_log = logging.getLogger(__name__)


class ErrorBody(BaseModel):
    """What went wrong, for programs and for people."""

    code: str
    message: str
    hint: str = ""
    missing: list[str] | None = None
    """Of code `missing-files`: the digests to upload."""


RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody, "description": text}
    for status, text in {
        400: "The request is wrong, or this machine cannot serve it",
        401: "Log in first",
        403: "Not yours to do",
        404: "Foreign or missing",
        409: "It does not fit what is there",
        413: "Too large",
        422: "A field of the request is wrong",
        429: "Too many attempts",
        503: "A part of the server cannot be reached now",
    }.items()
}


def install(app: FastAPI) -> None:
    """Every error of the application leaves in this form."""

    @app.exception_handler(TrainshedError)
    def ours(_request: Request, error: TrainshedError) -> JSONResponse:
        status = _STATUS.get(error.code, 400 if isinstance(error, UsageError) else 500)
        if status >= 500:
            _log.error("%s: %s", error.code, error)
        headers = {}
        if isinstance(error, TooManyAttemptsError):
            headers["Retry-After"] = str(error.seconds)
        if status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        missing = error.digests if isinstance(error, MissingFilesError) else None
        return answer(status, error.code, error.message, error.hint, headers, missing)

    @app.exception_handler(RequestValidationError)
    def invalid(_request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return answer(422, "bad-request", f"{where}: {first['msg']}"[:500], "see /api/docs")

    @app.exception_handler(HTTPException)
    def http(_request: Request, error: HTTPException) -> JSONResponse:
        code = {404: "not-found", 405: "bad-method", 413: "too-large"}.get(error.status_code, "bad-request")
        return answer(error.status_code, code, str(error.detail), "see /api/docs", dict(error.headers or {}))

    @app.exception_handler(Exception)
    def internal(request: Request, error: Exception) -> JSONResponse:
        _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return answer(500, "internal", "the server made a mistake", "its log says which")


def answer(
    status: int,
    code: str,
    message: str,
    hint: str,
    headers: dict[str, str] | None = None,
    missing: list[str] | None = None,
) -> JSONResponse:
    body = ErrorBody(code=code, message=message, hint=hint, missing=missing)
    return JSONResponse(body.model_dump(exclude_none=True), status, headers)
