"""Code that has changed since trials were trained: what differs, and what a user accepts of it.

The record keeps which files each digest of code stands for. A change that is accepted is recorded
with the study: from then on the new code counts as the old one in its keys, while what trained each
trial stays on record as it was.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from hsweep.design.labels import listed
from hsweep.design.own_training import TRAINING_PARTS
from hsweep.design.trial import Trial
from hsweep.planning.code import changed_files, files_of
from hsweep.planning.identity import CODE_PARTS, Accepted
from hsweep.record.journal_reader import JournalReader
from hsweep.record.rows import TrialRow

_CODE_META: Final = "code:"
_MOST_FILES: Final = 3
_DECIDED_BY: Final = {
    "model_code": "model",
    "task_code": "task",
    "training_code": None,
    **{code: part for part, code in TRAINING_PARTS.items()},
}
"""The part that must be the same where one kind of code is taken for another."""

Files = Callable[[str], Mapping[str, str] | None]
"""Returns the files behind a digest of code, None where that is not known."""


def code_metas(journal: JournalReader, trials: Iterable[Trial]) -> dict[str, str]:
    """Return what is to be recorded so that the files behind the code of trials are on record."""
    digests = {trial.parts.get(part, "") for trial in trials for part in CODE_PARTS}
    code = {each: files for each in digests if (files := files_of(each)) is not None}
    return files_metas(journal, code)


def files_metas(journal: JournalReader, code: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return what is to be recorded so that the files behind digests of code are on record."""
    known = journal.metas(_CODE_META).keys()
    new = {f"{_CODE_META}{each}": files for each, files in code.items() if each not in known}
    return {name: json.dumps(dict(files)) for name, files in new.items()}


def recorded_files(journal: JournalReader) -> dict[str, Mapping[str, str]]:
    """Return the files behind each digest of code that a study's record knows."""
    return {each: json.loads(text) for each, text in journal.metas(_CODE_META).items()}


def changed_code(
    before: Mapping[str, str],
    after: Mapping[str, str],
    files: Files,
    accepted: Accepted | None = None,
) -> dict[str, list[str]]:
    """Return which code differs, by its part, and the files that do, as far as they are known
    (``files``: behind the digests of ``before``)."""
    found: dict[str, list[str]] = {}
    for part in CODE_PARTS:
        old, new = before.get(part, ""), after.get(part, "")
        if old in (new, (accepted or {}).get(new, new)):
            continue
        was, now = files(old), files_of(new)
        found[part] = [] if was is None or now is None else changed_files(was, now)
    return found


def part_in_words(part: str, files: Sequence[str] = ()) -> str:
    """Return what a part of a key is called, up to three changed files behind it."""
    name = part.replace("_", " ")
    if not files:
        return name
    shown = [*files[:_MOST_FILES]]
    if len(files) > _MOST_FILES:
        shown.append(f"{len(files) - _MOST_FILES} more")
    return f"{name} ({', '.join(shown)})"


def code_in_words(changed: Mapping[str, Sequence[str]]) -> str:
    """Return changed code in words: ``model code (own.py) and task code (data.py)``."""
    return listed([part_in_words(part, files) for part, files in changed.items()])


def merged_changes(changes: Iterable[Mapping[str, Iterable[str]]]) -> dict[str, list[str]]:
    """Return all files that changed, by the part of the code."""
    found: dict[str, set[str]] = {}
    for each in changes:
        for part, files in each.items():
            found.setdefault(part, set()).update(files)
    return {part: sorted(files) for part, files in found.items()}


def accepted_change(
    rows: Sequence[TrialRow], trials: Sequence[Trial], accepted: Accepted, files: Files
) -> dict[str, Any] | None:
    """Return what is to be recorded so that planned trials that differ from those on record only in
    their code are the same; None if no code has changed.

    Args:
        rows: the study's record, without orphans.
        trials: as they are planned now.
        accepted: what the study has accepted before.
        files: behind digests of code on record.
    """
    code = _taken_for(rows, trials, accepted)
    if not code:
        return None
    changed = merged_changes(
        changed_code({part: code[new]}, {part: new}, files)
        for part in CODE_PARTS
        for new in {trial.parts.get(part, "") for trial in trials} & code.keys()
    )
    old = set(code.values())
    number = sum(
        any(accepted.get(digest, digest) in old for digest in row.parts.values()) for row in rows
    )
    return acceptance(code, number, changed, what="kept")


def _taken_for(
    rows: Iterable[TrialRow], trials: Iterable[Trial], accepted: Accepted
) -> dict[str, str]:
    """Return which code of planned trials is to be taken for which on record.

    Code of a model is compared where models are equal, that of a task where tasks are.
    """
    recorded: dict[tuple[str, str], Counter[str]] = {}
    for row in rows:
        for part, by in _DECIDED_BY.items():
            if part in row.parts:
                same = row.parts[by] if by is not None else ""
                root = accepted.get(row.parts[part], row.parts[part])
                recorded.setdefault((part, same), Counter())[root] += 1
    votes: dict[str, Counter[str]] = {}
    for trial in trials:
        for part, by in _DECIDED_BY.items():
            same = trial.parts.get(by, "") if by is not None else ""
            if part in trial.parts and (part, same) in recorded:
                votes.setdefault(trial.parts[part], Counter()).update(recorded[part, same])
    return {
        new: old
        for new, counted in votes.items()
        if (old := counted.most_common(1)[0][0]) != accepted.get(new, new)
    }


def acceptance(
    code: Accepted, number: int, files: Mapping[str, Sequence[str]], *, what: str
) -> dict[str, Any]:
    """Return what is recorded of code taken for other code, but for time and command; ``what`` is
    ``kept``, or the study that the trials are taken from."""
    return {
        "what": what,
        "trials": number,
        "files": {part: list(names) for part, names in files.items()},
        "code": dict(code),
    }


def acceptance_line(entry: Mapping[str, Any]) -> str:
    number = entry["trials"]
    trials = f"{number} trial{'' if number == 1 else 's'}"
    done = "kept" if entry["what"] == "kept" else f"taken from study {entry['what']}"
    return f"{trials} {done} although the {code_in_words(entry['files'])} had changed"
