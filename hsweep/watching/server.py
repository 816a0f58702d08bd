"""The server of ``hsweep watch``: pages, and for each a stream of what happens."""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from hsweep.errors import UserError

if TYPE_CHECKING:
    from hsweep.watching.pages import HomePages, StudyPages

_POLL_SECONDS: Final = 1.0
_SILENT_SECONDS: Final = 15.0
"""After which a stream says something, so that it is noticed when nobody listens any more."""
_CLOSING_SECONDS: Final = 2
_NICE: Final = 10
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
}


class WatchServer:
    """Serves the pages of a home's studies.

    Args:
        host: names this server besides those of the loopback interface.
    """

    def __init__(self, pages: "HomePages", host: str) -> None:
        self._pages = pages
        routes = [
            Route("/", self._list),
            Route("/studies/{name}", self._study),
            Route("/studies/{name}/events", self._events),
        ]
        # A page elsewhere whose name was made to lead here must not read what is served.
        # A bracket begins an address of IPv6, which is no name.
        names = ["127.0.0.1", "localhost", "[", host]
        own = Middleware(
            TrustedHostMiddleware, allowed_hosts=["*"] if _is_any(host) else names,
            www_redirect=False,
        )  # fmt: skip
        app = Starlette(routes=routes, middleware=[own], exception_handlers={UserError: _refused})
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=_CLOSING_SECONDS,
        )
        self._server = uvicorn.Server(config)

    def run(self, listening: socket.socket) -> None:
        """Serve until this process is asked to end."""
        os.nice(_NICE)
        self._server.run(sockets=[listening])

    async def _list(self, _request: Request) -> Response:
        return HTMLResponse(await run_in_threadpool(self._pages.list), headers=_HEADERS)

    async def _study(self, request: Request) -> Response:
        pages = await self._of(request)
        return HTMLResponse(await run_in_threadpool(pages.page), headers=_HEADERS)

    async def _events(self, request: Request) -> Response:
        pages = await self._of(request)
        return StreamingResponse(
            self._stream(pages), media_type="text/event-stream", headers=_HEADERS
        )

    async def _of(self, request: Request) -> "StudyPages":
        return await run_in_threadpool(self._pages.study, request.path_params["name"])

    async def _stream(self, pages: "StudyPages") -> AsyncIterator[str]:
        """Yield what a study's page has to be told, as it happens."""
        before, silent = "", 0.0
        renewing = asyncio.ensure_future(run_in_threadpool(pages.renew))
        while not self._server.should_exit:
            try:
                now = await run_in_threadpool(pages.now)
            except UserError:  # it is gone: the browser asks again, and is told so
                return
            told = json.dumps({"now": now.to_json(), "version": pages.version})
            if told != before or silent >= _SILENT_SECONDS:
                yield f"data: {told}\n\n" if told != before else ": still here\n\n"
                before, silent = told, 0.0
            if renewing.done():
                renewing = asyncio.ensure_future(run_in_threadpool(pages.renew))
            await asyncio.sleep(_POLL_SECONDS)
            silent += _POLL_SECONDS


async def _refused(_request: Request, error: Exception) -> Response:
    return PlainTextResponse(f"{error}\n", status_code=404, headers=_HEADERS)


def _is_any(host: str) -> bool:
    """Whether a host stands for every address of this machine."""
    return host in ("0.0.0.0", "::", "")
