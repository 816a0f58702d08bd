"""Which versions trained the trials of a study."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from hsweep.design.origin import Origin
from hsweep.record.journal_reader import ORIGIN_META, JournalReader


def mixed_versions_lines(journal: JournalReader, keys: Iterable[str]) -> list[str]:
    """Return which trials were trained with which versions; nothing where all had the same.

    Args:
        journal: the study's record.
        keys: of the trials.
    """
    if len(journal.metas(ORIGIN_META)) < 2:
        return []
    texts = journal.origins()
    versions = [
        [Origin.parse(text).versions for text in texts[key]] for key in keys if key in texts
    ]
    found: dict[str, set[str]] = {}
    for each in (one for of_trial in versions for one in of_trial):
        for name, version in each.items():
            found.setdefault(name, set()).add(version)
    names = [name for name, different in found.items() if len(different) > 1]
    said = Counter(filter(None, (_in_words(of_trial, names) for of_trial in versions)))
    if len(said) < 2:
        return []
    parts = [
        f"{number} trial{'' if number == 1 else 's'} with {words}" for words, number in said.items()
    ]
    return [f"trained with different versions: {'; '.join(parts)}"]


def _in_words(versions: Sequence[Mapping[str, str]], names: Sequence[str]) -> str:
    each = [", ".join(f"{name} {one[name]}" for name in names if name in one) for one in versions]
    return ", later ".join(dict.fromkeys(filter(None, each)))
