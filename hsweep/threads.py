"""Actions in threads of their own."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


def in_thread(name: str, action: Callable[[], Result], *, stays: bool = False) -> Future[Result]:
    """Run an action in a daemon thread, which may stay afterwards; return a future of its
    result."""
    result = Future[Result]()

    def run() -> None:
        try:
            result.set_result(action())
        except BaseException as error:
            result.set_exception(error)
        if stays:
            threading.Event().wait()

    threading.Thread(target=run, name=name, daemon=True).start()
    return result
