"""The application: routes, one form of errors, limits and headers for all of them."""

from __future__ import annotations

import logging
import time

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trainshed.server.api import accounts, errors, jobs, reading, system
from trainshed.server.platform import Platform
from trainshed.server.uploads import LARGEST_FILE
from trainshed.version import VERSION

_LARGEST_BODY = 4 << 20
_log = logging.getLogger("trainshed.server.access")


def make_app(platform: Platform) -> FastAPI:
    app = FastAPI(
        title="Trainshed",
        version=VERSION,
        description="Jobs, logs, outputs and accounts of a Trainshed server. Errors are {code, message, hint}.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
    )
    app.state.platform = platform
    errors.install(app)
    for router in (system.router, accounts.router, reading.router, jobs.router):
        app.include_router(router)
    app.add_middleware(_Limits)
    return app


class _Limits:
    """Bodies have a largest size, answers carry careful headers, requests are logged without their secrets."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        most = LARGEST_FILE if scope["path"].startswith("/api/v1/files/") else _LARGEST_BODY
        announced = next((v for k, v in scope["headers"] if k == b"content-length"), b"0")
        began, status, received = time.monotonic(), 500, 0
        if announced.isdigit() and int(announced) > most:
            response = errors.answer(413, "too-large", f"the body has more than {most} bytes", "send less")
            await response(scope, receive, send)
            return

        async def limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > most:  # without a length announced
                return {"type": "http.disconnect"}
            return message

        async def careful(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [
                    *message["headers"],
                    (b"x-content-type-options", b"nosniff"),
                    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
                    (b"referrer-policy", b"no-referrer"),
                ]
            await send(message)

        try:
            await self.app(scope, limited, careful)
        finally:
            spent = round((time.monotonic() - began) * 1000, 1)
            _log.info(
                "request",
                extra={
                    "fields": {
                        "method": scope["method"],
                        "path": scope["path"],
                        "status": status,
                        "ms": spent,
                    }
                },
            )
