"""The program ``hsweep``, also as ``python -m hsweep``."""

import signal

from hsweep.signals import end_unfinished


def main() -> None:
    """Run a command and end the process."""
    # First of all: nothing is on record while the commands are imported, and the same goes on.
    usual = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    for number, handler in usual.items():
        if signal.getsignal(number) is handler:
            signal.signal(number, end_unfinished)
    from hsweep.cli import main as commands

    if signal.getsignal(signal.SIGINT) is end_unfinished:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        commands()
    finally:
        # The exit code is known: what ends a job a moment before its program ends it shall not
        # make it one that failed.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


if __name__ == "__main__":
    main()
