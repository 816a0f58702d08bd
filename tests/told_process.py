"""A process of Python that is told what to do by lines, and answers by lines."""

import subprocess
import sys


class ToldProcess:
    """A process that runs a program's source, and says "ready" when it has begun.

    Args:
        source: of the program.
        arguments: in its ``sys.argv``.
    """

    def __init__(self, source: str, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", source, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.hears() == "ready"

    def hears(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def say(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()

    def asks(self, text: str = "") -> str:
        self.say(text)
        return self.hears()

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
