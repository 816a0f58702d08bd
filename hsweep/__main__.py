"""The program ``hsweep``, also as ``python -m hsweep``."""

import signal

from hsweep.signals import end_unfinished


def main() -> None:
    """Run a command and end the process."""
    # First of all: nothing is on record while the commands are imported, and the same goes on.
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, end_unfinished)
    from hsweep.cli import main as commands

    try:
        commands()
    finally:
        # The exit code is known: what ends a job a moment before its program ends it shall not
        # make it one that failed.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


if __name__ == "__main__":
    main()
