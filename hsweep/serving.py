"""Addresses of this machine that commands serve pages at."""

import errno
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import TYPE_CHECKING, Final

from hsweep.errors import UserError
from hsweep.signals import handling, leave_terminal

if TYPE_CHECKING:
    import uvicorn

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_CLOSING_SECONDS: Final = 2


def announce(pages: str, host: str, port: int, page: str = "") -> None:
    """Print where pages are served, and open them where there is a desktop to open them on."""
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}/{page}"
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


def server_of(app: Callable[..., Awaitable[None]]) -> "uvicorn.Server":
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
