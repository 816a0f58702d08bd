"""Addresses of this machine that commands serve pages at."""

import errno
import os
import secrets
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import parse_qs

from hsweep.errors import UserError
from hsweep.signals import handling, leave_terminal

if TYPE_CHECKING:
    import uvicorn

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_ANY_HOST: Final = ("0.0.0.0", "::", "")
_CLOSING_SECONDS: Final = 2

App: TypeAlias = Callable[..., Awaitable[None]]
"""What answers requests, by the protocol ASGI."""


def token_for(host: str) -> str:
    """Return a new secret for pages that other machines can reach; an empty one for others."""
    return "" if host in LOOPBACK else secrets.token_urlsafe(24)


def guarded(app: App, token: str) -> App:
    """Return an app that answers who shows the token: as ``token`` in an address, whose answer puts
    it into a cookie and out of sight, or as a bearer's. Without a token everybody is answered."""
    if not token:
        return app
    # Servers on other ports of this host get the cookie, too: each has a name of its own.
    cookie = f"hsweep-{token[:8]}={token}".encode()

    async def answer(scope: dict[str, Any], receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers", ()))
        given = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [""])[-1]
        shown = [*headers.get(b"cookie", b"").split(b"; "), headers.get(b"authorization", b"")]
        known = (cookie, f"Bearer {token}".encode())
        is_known = any(secrets.compare_digest(one, other) for one in shown for other in known)
        if scope["type"] == "lifespan" or is_known:
            await app(scope, receive, send)
            return
        status, added, body = 403, [], b"open the address that was printed with its token\n"
        if secrets.compare_digest(given.encode(), token.encode()):
            status, body = 303, b""
            place = scope["raw_path"].partition(b"?")[0]
            added = [(b"location", b"/" + place.lstrip(b"/"))]
            added += [(b"set-cookie", cookie + b"; Path=/; HttpOnly; SameSite=Lax")]
        headed = [(b"content-type", b"text/plain"), (b"cache-control", b"no-store"), *added]
        await send({"type": "http.response.start", "status": status, "headers": headed})
        await send({"type": "http.response.body", "body": body})

    return answer


def announce(pages: str, host: str, port: int, page: str = "", token: str = "") -> None:
    """Print where pages are served, and open them where there is a desktop to open them on."""
    # An address that means all of this machine's is none that a browser elsewhere could open.
    name = socket.gethostname() if host in _ANY_HOST else f"[{host}]" if ":" in host else host
    address = f"http://{name}:{port}/{page}{f'?token={token}' if token else ''}"
    sys.stdout.write(f"{pages} at {address}; end it with Ctrl-C\n")
    sys.stdout.flush()
    desktops = {"DISPLAY", "WAYLAND_DISPLAY", "BROWSER"}
    if sys.stdout.isatty() and (sys.platform == "darwin" or desktops & os.environ.keys()):
        import webbrowser

        webbrowser.open(address)


def listen(host: str, port: int, *, if_taken: str = "") -> socket.socket:
    """Return a socket that is bound to an address, and takes connections from now on: a browser
    that comes early waits for the first page.

    Args:
        if_taken: what else can be done where something listens there already.

    Raises:
        UserError: the address is taken, or cannot be listened on.
    """
    try:
        family, kind, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind)
        try:
            # A port that was left a moment ago is free.
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            bound.listen()
        except BaseException:
            bound.close()
            raise
        return bound
    except OSError as error:
        is_taken = error.errno == errno.EADDRINUSE
        remedy = (
            f"choose another with --port, or end what listens there{if_taken}"
            if is_taken
            else "choose an address of this machine with --host, and a port above 1023 with --port"
        )
        raise UserError(
            f"the pages cannot be served at {host}:{port} ({error.strerror}); {remedy}"
        ) from error


def server_of(app: App) -> "uvicorn.Server":
    """Return a server of pages, which leaves open connections when it is asked to end."""
    import uvicorn

    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=_CLOSING_SECONDS
    )
    return uvicorn.Server(config)


def run_server(server: "uvicorn.Server", listening: socket.socket) -> None:
    """Run a server, which ends at SIGINT and SIGTERM.

    A hangup, unless it is ignored, ends it as SIGTERM does: raised among its tasks, an interrupt
    can be taken for an error of one of them and be lost.
    """

    def hang_up(_number: int, _frame: FrameType | None) -> None:
        leave_terminal("the terminal has gone")
        signal.raise_signal(signal.SIGTERM)

    with handling(hang_up, signal.SIGHUP):
        server.run(sockets=[listening])
