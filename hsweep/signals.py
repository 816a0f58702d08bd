"""An interrupt (Ctrl-C): never lost, with a message, and undisturbed at the end of the process."""

import atexit
import contextlib
import functools
import os
import queue
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, ClassVar, Final

Handler = Callable[[int, FrameType | None], None]

EXIT_INTERRUPTED: Final = 130
"""As shells have it: 128 and the number of the signal."""

EXIT_UNFINISHED: Final = 75
"""SIGTERM ended the command before it was done, and the same command goes on (``EX_TEMPFAIL`` of
sysexits.h)."""

_DELAY_SECONDS: Final = 0.05


class Termination(KeyboardInterrupt):
    """The interrupt of a command by SIGTERM.

    Attributes:
        was_raised: whether SIGTERM has interrupted this command, also where a library has made a
            bare KeyboardInterrupt of it, as Ray does of what a handler raises while it waits.
    """

    was_raised: ClassVar = False

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        Termination.was_raised = True


def end_unfinished(number: int, _frame: FrameType | None) -> None:
    """Handle a signal while the commands are imported: end this process."""
    os.write(2, b"\nhsweep: interrupted before anything began\n")
    os._exit(EXIT_INTERRUPTED if number == signal.SIGINT else EXIT_UNFINISHED)


@contextlib.contextmanager
def redeliver_interrupts() -> Iterator[None]:
    """Deliver an interrupt again that came where Python can only ignore it.

    It arrives between any two steps of the interpreter, possibly inside a finalizer or the callback
    of a weak reference. What these raise is printed with its traceback and forgotten, so the user's
    Ctrl-C would have no effect. Here it comes again a moment later, when that call is over.
    """
    before = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            number = signal.SIGTERM if Termination.was_raised else signal.SIGINT
            again = threading.Timer(_DELAY_SECONDS, os.kill, (os.getpid(), number))
            again.daemon = True
            again.start()
        else:
            before(unraisable)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before


def not_in_forks(handle: Handler) -> Handler:
    """Decorate a handler of signals that processes forked from this one do not share: SIGTERM ends
    them, and what the terminal sends to all processes waits for this one to end them."""
    process = os.getpid()

    @functools.wraps(handle)
    def handler(number: int, frame: FrameType | None) -> None:
        if os.getpid() == process:
            handle(number, frame)
        elif number == signal.SIGTERM:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    return handler


@contextlib.contextmanager
def handling(handle: Handler, *numbers: signal.Signals) -> Iterator[None]:
    """Let signals be handled so in the block; a hangup that is ignored (``nohup``) stays ignored.

    Outside the main thread nothing changes: the program that runs us there has the signals.
    """
    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in numbers:
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def ending_late(end: Callable[[], object]) -> Iterator[Callable[[float], None]]:
    """Yield a function for handlers of signals: some seconds after its first call ``end`` is called
    in a thread, unless the block has ended before.

    The thread is there from the start: a handler may have interrupted the start of another one, and
    would wait for itself if it started a thread.
    """
    seconds = queue.SimpleQueue[float]()  # in which a handler may always put
    is_over = threading.Event()

    def watch() -> None:
        if not is_over.wait(seconds.get()):
            end()

    threading.Thread(target=watch, name="deadline", daemon=True).start()
    try:
        yield seconds.put
    finally:
        is_over.set()
        seconds.put(0.0)


@contextlib.contextmanager
def holding_sigterm() -> Iterator[None]:
    """Let SIGTERM wait for the end of the block, and its handler be the same afterwards: a library
    that takes it over would end this process on the spot."""
    handler = signal.getsignal(signal.SIGTERM)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread() and handler is not None:
            signal.signal(signal.SIGTERM, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


@contextlib.contextmanager
def ends_as_interrupts() -> Iterator[None]:
    """Let SIGTERM and SIGHUP interrupt the block, where they would end this process on the spot."""

    @not_in_forks
    def handle(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            leave_terminal("the terminal has gone")
        raise Termination if number == signal.SIGTERM else KeyboardInterrupt

    Termination.was_raised = False
    numbers, before = (signal.SIGTERM, signal.SIGHUP), (signal.SIG_DFL, end_unfinished)
    ending = [number for number in numbers if signal.getsignal(number) in before]
    with handling(handle, *ending):
        yield


@contextlib.contextmanager
def explain_interrupt(text: str) -> Iterator[None]:
    """Give an interrupt of the block, or of the function decorated, a text that says what is on
    record; where several are nested the innermost counts."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        if not interrupt.args:
            interrupt.args = (text,)
        raise


def leave_terminal(last_line: str) -> None:
    """Print a last line on the terminal, if there is one, and nothing after it: from a terminal
    that has gone each further line would come back as an error. A file or pipe is kept."""
    with contextlib.suppress(OSError):
        os.write(2, f"\n{last_line}\n".encode())
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        if stat.S_ISCHR(os.fstat(number).st_mode):
            os.dup2(nowhere, number)
    os.close(nowhere)


def ignore_interrupts() -> None:
    """Let nothing disturb the end of a process that was interrupted.

    Another interrupt has no effect from here on, and what libraries that are half imported raise
    in their exit handlers is not shown.
    """
    with contextlib.suppress(ValueError):  # not in the main thread, which alone has signals
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The handler that is registered last is the first to run.
    atexit.register(setattr, sys, "unraisablehook", lambda _unraisable: None)
