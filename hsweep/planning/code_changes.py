"""Code that has changed since trials were trained: the differences, and which a user accepts.

The record keeps which files each digest of code stands for. A change that is accepted is recorded
with the study: from then on the new code counts as the old one in its keys, while what trained each
trial stays on record as it was.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from hsweep.design.labels import counted, first_of, listed
from hsweep.design.trial import Trial
from hsweep.design.user_training import TRAINING_PARTS
from hsweep.planning.code import changed_files, files_of
from hsweep.planning.identity import CODE_PARTS, Accepted
from hsweep.record.journal_reader import JournalReader
from hsweep.record.rows import TrialRow

_CODE_META: Final = "code:"
_MOST_FILES: Final = 3
_CONTENT_OF: Final = {
    "model_code": "model",
    "task_code": "task",
    "training_code": "",
    **{code: part for part, code in TRAINING_PARTS.items()},
}
"""The part that must be the same where one kind of code is taken for another; empty for none."""

Files = Callable[[str], Mapping[str, str] | None]
"""Returns the files behind a digest of code, None where that is not known."""


def code_metas(trials: Iterable[Trial]) -> dict[str, str]:
    """Return the entries that put the files behind the code of trials on record."""
    digests = {trial.parts.get(part, "") for trial in trials for part in CODE_PARTS}
    code = {digest: files for digest in digests if (files := files_of(digest)) is not None}
    return files_metas(code)


def files_metas(code: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return the entries that put the files behind digests of code on record."""
    return {f"{_CODE_META}{digest}": json.dumps(dict(files)) for digest, files in code.items()}


def recorded_files(journal: JournalReader) -> dict[str, Mapping[str, str]]:
    """Return the files behind each digest of code that a study's record knows."""
    return {digest: json.loads(text) for digest, text in journal.metas(_CODE_META).items()}


def changed_code(
    before: Mapping[str, str],
    after: Mapping[str, str],
    files: Files,
    accepted: Accepted | None = None,
) -> dict[str, list[str]]:
    """Return the changed files by the part of the code that differs, as far as files are known
    (``files``: behind the digests of ``before``)."""
    changed: dict[str, list[str]] = {}
    for part in CODE_PARTS:
        old, new = before.get(part, ""), after.get(part, "")
        if old in (new, (accepted or {}).get(new, new)):
            continue
        was, now = files(old), files_of(new)
        changed[part] = [] if was is None or now is None else changed_files(was, now)
    return changed


def part_in_words(part: str, files: Sequence[str] = ()) -> str:
    """Return the name of a part of a key, with up to three changed files."""
    name = part.replace("_", " ")
    return f"{name} ({first_of(files, _MOST_FILES)})" if files else name


def code_in_words(changed: Mapping[str, Sequence[str]]) -> str:
    """Return changed code in words: ``model code (own.py) and task code (data.py)``."""
    return listed([part_in_words(part, files) for part, files in changed.items()])


def merged_changes(changes: Iterable[Mapping[str, Iterable[str]]]) -> dict[str, list[str]]:
    """Return all files that changed, by the part of the code."""
    merged: dict[str, set[str]] = defaultdict(set)
    for change in changes:
        for part, files in change.items():
            merged[part].update(files)
    return {part: sorted(files) for part, files in merged.items()}


def accepted_change(
    rows: Sequence[TrialRow], trials: Sequence[Trial], accepted: Accepted, files: Files
) -> dict[str, Any] | None:
    """Return the entry that lets planned trials count as recorded ones that differ in code alone;
    None if no code has changed.

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
    """Return the digests of planned code, each with the recorded digest that it counts as.

    Code of a model is compared where models are equal, that of a task where tasks are.
    """
    recorded: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for row in rows:
        for part, content in _CONTENT_OF.items():
            if part in row.parts:
                digest = row.parts[part]
                recorded[part, row.parts.get(content, "")][accepted.get(digest, digest)] += 1
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for trial in trials:
        for part, content in _CONTENT_OF.items():
            if part in trial.parts:
                votes[trial.parts[part]] += recorded[part, trial.parts.get(content, "")]
    return {
        new: old
        for new, counts in votes.items()
        if counts and (old := counts.most_common(1)[0][0]) != accepted.get(new, new)
    }


def acceptance(
    code: Accepted, number: int, files: Mapping[str, Sequence[str]], *, what: str
) -> dict[str, Any]:
    """Return the record of code that counts as other code, without time and command; ``what`` is
    ``kept``, or the study that the trials are taken from."""
    return {
        "what": what,
        "trials": number,
        "files": {part: list(names) for part, names in files.items()},
        "code": dict(code),
    }


def acceptance_line(entry: Mapping[str, Any]) -> str:
    """Return an acceptance on record in words."""
    trials = counted(entry["trials"], "trial")
    done = "kept" if entry["what"] == "kept" else f"taken from study {entry['what']}"
    return f"{trials} {done} although the {code_in_words(entry['files'])} had changed"
