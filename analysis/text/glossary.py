"""The terms of the analysis and what they mean, for readers from outside."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple


class Term(NamedTuple):
    """A term of art: its name, what it means, and a pattern that finds it in a text."""

    name: str
    meaning: str
    pattern: str

    @property
    def place(self) -> str:
        """Its identifier on a page."""
        return "word-" + re.sub(r"\W+", "-", self.name.lower()).strip("-")


TERMS: Final = tuple(
    Term(name, **fields)
    for name, fields in tomllib.loads(
        Path(__file__).with_name("glossary.toml").read_text("utf-8")
    ).items()
)
"""Every term that pages explain."""

_ANY_TERM: Final = re.compile(
    "|".join(
        f"(?P<t{at}>(?<![\\w-])(?:{term.pattern})(?![\\w-]))" for at, term in enumerate(TERMS)
    ),
    re.IGNORECASE,
)


def terms_in(text: str) -> Iterator[tuple[str, Term | None]]:
    """Split a text into parts, in order: each term where it first occurs, and, with None, the text
    between terms."""
    end, past_terms = 0, set()
    for match in _ANY_TERM.finditer(text):
        term = TERMS[int(str(match.lastgroup)[1:])]
        if term in past_terms:
            continue
        past_terms.add(term)
        yield text[end : match.start()], None
        yield match[0], term
        end = match.end()
    yield text[end:], None
