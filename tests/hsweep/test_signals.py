"""An interrupt that arrives where Python ignores exceptions still interrupts."""

import signal
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest

from hsweep.signals import (
    Termination,
    ends_as_interrupts,
    holding_sigterm,
    redeliver_interrupts,
)


class Thing:
    """Something that can be referred to weakly."""


def interrupted_in_a_callback(error: BaseException) -> None:
    def raising(_reference: Any) -> None:
        raise error

    thing = Thing()
    reference = weakref.ref(thing, raising)
    del thing
    assert reference() is None


@pytest.mark.parametrize("kind", [KeyboardInterrupt, Termination])
def test_an_interrupt_in_the_callback_of_a_weak_reference_comes_again(
    capfd: pytest.CaptureFixture[str], kind: type[KeyboardInterrupt]
) -> None:
    def interrupted() -> None:
        with ends_as_interrupts(), redeliver_interrupts():
            interrupted_in_a_callback(kind())
            threading.Event().wait(30)

    # A shell's background jobs begin with interrupts ignored, and a Ray here has SIGTERM.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    of_ray = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with pytest.raises(kind) as raised:
            interrupted()
    finally:
        signal.signal(signal.SIGINT, before)
        signal.signal(signal.SIGTERM, of_ray)
    assert raised.type is kind
    assert capfd.readouterr().err == ""


def test_what_else_cannot_be_raised_is_left_to_whoever_looked_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: seen.append(found.exc_type))
    with redeliver_interrupts():
        interrupted_in_a_callback(ValueError())
    assert seen == [ValueError]
    interrupted_in_a_callback(OSError())
    assert seen == [ValueError, OSError]


def test_an_interrupted_process_ends_without_a_further_word() -> None:
    program = (
        "import atexit, os, signal, sys\n"
        "from hsweep.signals import ignore_interrupts\n"
        "def half_imported(): raise AttributeError('module ray has no attribute actor')\n"
        "atexit.register(half_imported)\n"
        "ignore_interrupts()\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.exit(130)\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "")


def test_sigterm_waits_while_a_library_has_it_and_is_not_lost() -> None:
    heard = []
    before = signal.signal(signal.SIGTERM, lambda *_: heard.append("ours"))
    try:
        with holding_sigterm():
            signal.signal(signal.SIGTERM, lambda *_: heard.append("the library's"))
            signal.raise_signal(signal.SIGTERM)
            assert heard == []
        assert heard == ["ours"]
    finally:
        signal.signal(signal.SIGTERM, before)


INTERRUPTED_AS_IT_STARTS = """
import os, runpy, signal, sys

class Interrupting:
    def find_spec(self, name, *_):
        if name == "hsweep.commands.join":
            os.kill(os.getpid(), getattr(signal, sys.argv[1]))

sys.meta_path.insert(0, Interrupting())
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("hsweep", run_name="__main__")
"""


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 75)])
def test_a_signal_while_the_commands_are_imported_ends_the_program_in_words(
    name: str, code: int
) -> None:
    command = [sys.executable, "-c", INTERRUPTED_AS_IT_STARTS, name]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == code
    assert ended.stderr == "\nhsweep: interrupted before anything began\n"


TOLD_IN_A_LIBRARY = """
import os, signal, sys
from hsweep.cli import main
from hsweep.errors import UserError

@main.command()
def told():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    except KeyboardInterrupt:
        raise eval(sys.argv[1]) from None

main(["told"])
"""


@pytest.mark.parametrize("error", ["KeyboardInterrupt()", "UserError('interrupted')"])
def test_sigterm_of_which_a_library_makes_something_else_ends_the_command_as_unfinished(
    error: str,
) -> None:
    command = [sys.executable, "-c", TOLD_IN_A_LIBRARY, error]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 75, ended.stderr


TOLD_BESIDE_RAY = """
import os, signal
from hsweep.ray_tune.environment import prepare_ray

prepare_ray()
from hsweep.cli import main

@main.command()
def told():
    from hsweep.ray_tune.local import StartingRay
    StartingRay({}).wait()
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()

main(["told"])
"""


def test_sigterm_after_ray_has_started_in_a_thread_ends_the_command_as_unfinished() -> None:
    command = [sys.executable, "-c", TOLD_BESIDE_RAY]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 75, ended.stderr
    assert ended.stderr == "\nhsweep: interrupted\n"
