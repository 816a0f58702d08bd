"""The commands that studies print, read from what they print and run as they stand there."""

import html
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from hsweep.cli import main
from hsweep.paths import Home
from hsweep.record.study import StudyFolder

WHOLE = re.compile(r"(?:[\w./-]*/)?\bhsweep [a-z]+ [^`\n]*?--home (?:'[^']*'|[^\s'`)<;,]+)")
"""A command to be pasted: it names the home, wherever it is given."""
PROMISED = re.compile(r"--only-missing trains (\d+)")
INLINE = {"run": {"runner": "inline"}, "resume": {"runner": "inline"}}
SERVES = {"ui", "watch"}
MOST = 5
"""How often an answer may ask for more: longer budgets, each twice the last, tell ever more."""


def commands_in(text: str) -> list[list[str]]:
    """Return each command in a text of a terminal, split as a shell does."""
    return [shlex.split(found) for found in dict.fromkeys(WHOLE.findall(text))]


def commands_on(page: Path) -> list[list[str]]:
    """Return each command that a page shows as code."""
    codes = re.findall(r"<code>(.*?)</code>", page.read_text("utf-8"), re.DOTALL)
    return [words for code in codes for words in commands_in(html.unescape(code))]


def entries_of(content: Any) -> Iterator[tuple[str, Any]]:
    """Yield every key of a JSON answer, also of its groups, with its value."""
    for name, value in content.items() if isinstance(content, Mapping) else ():
        yield name, value
        yield from entries_of(value)


def commands_of(content: Any) -> list[list[str]]:
    """Return each command of a JSON answer: the keys that end in ``command``."""
    return [
        shlex.split(value)
        for name, value in entries_of(content)
        if name.endswith("command") and value is not None
    ]


def missing_of(content: Any) -> list[dict[str, Any]]:
    """Return the runs that a JSON answer lacks, or that those of its groups do."""
    return [runs for name, value in entries_of(content) if name == "missing" for runs in value]


def call(*words: object, **settings: Any) -> Result:
    arguments = [str(word) for word in words]
    return CliRunner().invoke(main, arguments, default_map=INLINE, **settings)


class Walk:
    """A study whose printed commands are run one after another, as its reader would.

    Attributes:
        asked: the missing runs of every answer so far, and how many trials they came to.
    """

    def __init__(self, home: Home, name: str, call: Callable[..., Result] = call) -> None:
        self.home, self.name, self._call = home, name, call
        self.asked: list[tuple[list[str], int]] = []

    def answer(self) -> dict[str, Any]:
        study = StudyFolder.open(self.home, self.name)
        found: dict[str, Any] = json.loads(study.paths.analysis.read_text())
        return found

    def statuses(self, name: str = "") -> dict[str, str]:
        with StudyFolder.open(self.home, name or self.name).journal() as journal:
            return {row.key: str(row.status) for row in journal.trials()}

    def settle(self, words: list[str]) -> None:
        """Run what an answer lacks: as many trials as it says, and never the same ones again."""
        answer = self.answer()
        missing = missing_of(answer)
        lacking = [json.dumps(runs, sort_keys=True) for runs in missing]
        promised = sum(runs["trials"] or 0 for runs in missing)
        assert promised
        assert (lacking, promised) not in self.asked, self.asked
        text = " ".join([answer["answer"], *answer["qualifications"]])
        assert {int(number) for number in PROMISED.findall(text)} <= {promised}, text
        self.asked.append((lacking, promised))
        ran = self._call(*words[1:], "--json")
        assert ran.exit_code == 0, ran.output
        content = json.loads(ran.stdout)
        assert f"{promised} run" in ran.stderr
        added = {trial["key"] for trial in content["added"]["trials"]}
        assert len(added) == promised
        after = self.statuses()
        ended = {key for key in added if after[key] not in ("planned", "running", "not_needed")}
        assert ended == added

    def confirm(self, words: list[str]) -> None:
        """Run a choice again: every named point with as many fresh seeds as the command says."""
        ran = self._call(*words[1:])
        assert ran.exit_code == 0, ran.output
        (seeds,) = (int(word[11:]) for word in words if word.startswith("replicates="))
        name = words[words.index("--study") + 1]
        manifest = StudyFolder.open(self.home, name).manifest
        budgets = len(set(manifest.budget["ladder"]) | {manifest.budget["amount"]})
        statuses = self.statuses(name)
        assert len(statuses) == seeds * words.count("--point") * budgets
        assert set(statuses.values()) == {"finished"}
        assert set(statuses).isdisjoint(self.statuses())

    def follow(self, printed: str) -> None:
        """Run every command of a terminal's text, the answer and the page until none is left that
        trains."""
        for _ in range(MOST):
            study = StudyFolder.open(self.home, self.name)
            answer = self.answer()
            shown = [*commands_in(printed), *commands_on(study.paths.report)]
            settle = [words for words in shown if "--only-missing" in words[2:]]
            asked = shlex.split(answer.get("settle_command", ""))
            mine = [words for words in settle if words == asked]
            assert all(words in shown for words in commands_of(answer))
            for words in shown:
                if words in settle or words[1] in SERVES or "TRIAL" in words:
                    continue
                if "-confirm" in " ".join(words):
                    self.confirm(words)
                    continue
                ran = self._call(*words[1:])
                assert ran.exit_code == 0, f"{words}\n{ran.output}"
            if not mine:
                return
            self.settle(mine[0])
            printed = ""
