"""The server of ``hsweep watch``: pages, and for each a stream of what happens."""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from hsweep.errors import UserError
from hsweep.serving import guarded, run_server, server_of

if TYPE_CHECKING:
    import uvicorn

    from hsweep.watching.pages import StudyPages

_POLL_SECONDS: Final = 1.0
_SILENT_SECONDS: Final = 15.0
"""After which a stream says something, so that it is noticed when nobody listens any more."""
_NICE: Final = 10
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
}


def serve(
    home_page: Callable[[], str],
    study_pages: Callable[[str], "StudyPages"],
    token: str,
    listening: socket.socket,
) -> None:
    """Serve the pages of a home's studies until this process is asked to end.

    Args:
        home_page: returns the page that lists the studies.
        study_pages: returns the pages of a study by its name; raises UserError where there is none.
        token: see ``guarded``; empty where the pages are served on the loopback interface.
    """

    async def list_page(_request: Request) -> Response:
        return HTMLResponse(await run_in_threadpool(home_page), headers=_HEADERS)

    async def study_page(request: Request) -> Response:
        study = await run_in_threadpool(study_pages, request.path_params["name"])
        return HTMLResponse(await run_in_threadpool(study.page), headers=_HEADERS)

    async def study_events(request: Request) -> Response:
        study = await run_in_threadpool(study_pages, request.path_params["name"])
        stream = _events(study, server)
        return StreamingResponse(stream, media_type="text/event-stream", headers=_HEADERS)

    # A page elsewhere whose name was made to lead here must not read what is served: it has not
    # got the token, or the name is none of ours. A bracket begins an address of IPv6.
    names = ["*"] if token else ["127.0.0.1", "localhost", "["]
    app = Starlette(
        routes=[
            Route("/", list_page),
            Route("/studies/{name}", study_page),
            Route("/studies/{name}/events", study_events),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=names, www_redirect=False)],
        exception_handlers={UserError: _refuse},
    )
    server = server_of(guarded(app, token))
    os.nice(_NICE)
    run_server(server, listening)


async def _events(study: "StudyPages", server: "uvicorn.Server") -> AsyncIterator[str]:
    """Yield the state of a study whenever it changes, as events for its page."""
    before, silent = "", 0.0
    renewing = asyncio.ensure_future(run_in_threadpool(study.renew))
    while not server.should_exit:
        try:
            now = await run_in_threadpool(study.now)
        except UserError:  # it is gone: the browser asks again, and gets the reason
            return
        event = json.dumps({"now": now, "version": study.version})
        if event != before or silent >= _SILENT_SECONDS:
            yield f"data: {event}\n\n" if event != before else ": still here\n\n"
            before, silent = event, 0.0
        if renewing.done():
            renewing = asyncio.ensure_future(run_in_threadpool(study.renew))
        await asyncio.sleep(_POLL_SECONDS)
        silent += _POLL_SECONDS


async def _refuse(_request: Request, error: Exception) -> Response:
    return PlainTextResponse(f"{error}\n", status_code=404, headers=_HEADERS)
