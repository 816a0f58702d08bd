"""Files with tables of runs: parquet, JSON, and text of any usual separator and encoding."""

import csv
import gzip
import io
import json
import math
import re
from collections.abc import Hashable, Iterable
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pandas as pd

from hsweep.errors import UserError

_MISSING: Final = frozenset(
    {"NA", "N/A", "n/a", "#N/A", "<NA>", "NULL", "null", "None", "none", "-", ""}
)
"""Words for a missing entry in a column of numbers; in a column of names they are names."""
_BEYOND: Final = 2**63
_JSON: Final = (".json", ".jsonl", ".ndjson")
_ENDINGS: Final = (".parquet", ".csv", ".tsv", ".txt", *_JSON)
_NOT_FINITE: Final = r"[+-]?(?:nan|NaN|NAN|inf|Inf|-?Infinity|infinity)"


def _written(decimal: str) -> "re.Pattern[str]":
    """Return the pattern of numbers with this decimal sign, with or without groups of three."""
    groups = {".": ",", ",": "."}[decimal] + "_' \u2019\u00a0\u202f"
    whole = rf"(?:[1-9]\d{{0,2}}(?:([{groups}])\d{{3}})(?:\1\d{{3}})*|\d+)"
    point = re.escape(decimal)
    number = rf"(?:{whole}(?:{point}\d*)?|{point}\d+)(?:[eE][+-]?\d+)?"
    return re.compile(rf"(?:[+-]?{number}|{_NOT_FINITE})(\s*%)?")


_WRITTEN: Final = {decimal: _written(decimal) for decimal in ".,"}


def read_table(path: Path | str) -> tuple[pd.DataFrame, list[str]]:
    """Return the table at ``path``, and notes on how it was read: a file (`_ENDINGS`, also .gz), or
    a folder of such files, each with a part of the runs.

    Separator (comma, semicolon, tab, bar, blanks), decimal sign and encoding (UTF-8, UTF-16,
    Latin-1) of a text are detected. None, NA and null mean a missing entry in a column of numbers,
    and are names in a column of names; percentages become fractions. Of nested JSON ``{"a": {"b":
    1}}`` is a column ``a.b``.

    Raises:
        UserError: a missing, unreadable or empty file, or one with another ending, or with a column
            for each run.
    """
    file = Path(path)
    if not file.exists():
        raise UserError(f"no table at {file}: the file does not exist")
    if file.is_dir() and (parts := [part for part in sorted(file.iterdir()) if _ending(part)]):
        frames, notes_of_parts = zip(*map(read_table, parts), strict=True)
        return pd.concat(frames, ignore_index=True), [*dict.fromkeys(chain(*notes_of_parts))]
    if not (ending := _ending(file)):
        raise UserError(
            f"cannot read {file}: the name must end in {', '.join(_ENDINGS)} (also .gz), or be of a"
            " folder of such files"
        )
    try:
        if ending == ".parquet":
            frame, notes = _with_numbers(pd.read_parquet(file), ".")
        elif ending in _JSON:
            frame, notes = _with_numbers(pd.json_normalize(_objects(file)), ".")
        else:
            frame, notes = _text_table(_text(file))
    except pd.errors.EmptyDataError:
        raise UserError(f"the table at {file} is empty") from None
    # pyarrow's and pandas' parsing errors derive from ValueError
    except (ValueError, OSError, EOFError, csv.Error) as error:
        raise UserError(f"cannot read {file} as {ending[1:]}: {error}") from error
    if frame.empty:
        raise UserError(f"the table at {file} is empty: it has no rows")
    _refuse_chart(frame, file)
    return frame.apply(_texts_if_nested), notes


def _ending(file: Path) -> str:
    """Return the ending of the name of a table; empty for any other name."""
    ending = Path(file.name.lower().removesuffix(".gz")).suffix
    return ending if ending in _ENDINGS and not file.is_dir() else ""


def _objects(file: Path) -> list[dict[str, Any]]:
    """Return the objects of a JSON file, or of one with an object a line."""
    text = _text(file)
    try:
        content = json.loads(text)
    except json.JSONDecodeError:
        content = [json.loads(line) for line in text.splitlines() if line.strip()]
    objects = content if isinstance(content, list) else [content]
    if not all(isinstance(each, dict) for each in objects):
        raise ValueError("it holds other things than objects, one a run")
    return objects


def _refuse_chart(frame: pd.DataFrame, file: Path) -> None:
    """Refuse the data of a chart, which has a column for each run: ``run-7 - loss``."""
    _, *others = map(str, frame.columns)
    shown = {re.sub("__(MIN|MAX)$", "", name).rpartition(" - ")[2] for name in others}
    if len(others) > 1 and len(shown) == 1 and all(" - " in name for name in others):
        raise UserError(
            f"{file} holds the data of a chart, with a column for each run: nothing says what was"
            " chosen for them. Export the table of runs instead, one row a run with its settings"
        )


def _text(file: Path) -> str:
    content = file.read_bytes()
    if file.suffix.lower() == ".gz":
        content = gzip.decompress(content)
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16")
    if b"\0" in content:
        raise ValueError("it holds zero bytes, which no text does; save it as CSV UTF-8")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("cp1252")


def _text_table(text: str) -> tuple[pd.DataFrame, list[str]]:
    excel = re.match(r'"?sep=(.)"?\r?\n', text)  # Excel's own first line
    if excel:
        text = text[excel.end() :]
    separator = excel[1] if excel else _separator(text)
    if separator == " ":
        text, separator = re.sub(r"[ \t]+", " ", re.sub(r"(?m)^[ \t]+|[ \t]+$", "", text)), " "
    # Below a table spreadsheets write lines of nothing but separators.
    text = re.sub(rf"(?m)^[{re.escape(separator)} \t\r]+$\n?", "", text)

    def read(**options: Any) -> pd.DataFrame:
        frame: pd.DataFrame = pd.read_csv(
            io.StringIO(text), sep=separator, keep_default_na=False, na_values=[""],
            skipinitialspace=True, low_memory=False, **options,
        )  # fmt: skip
        return frame

    frame = read()
    if not isinstance(frame.index, pd.RangeIndex) and not frame.index.is_unique:
        raise ValueError("its rows have more entries than its first line has names")
    decimal = "."
    texts = [_words(frame[name]) for name in frame if _is_text(frame[name])]
    if separator != "," and any(_are_numbers(w, ",") and not _are_numbers(w, ".") for w in texts):
        decimal, written = ",", read(dtype=str)
        # As written: 1.234 is no fraction here.
        numbers = [name for name in frame.select_dtypes("number") if frame[name].notna().any()]
        frame = frame.assign(**{str(name): written[name] for name in numbers})
    unnamed = [name for name in frame if str(name).startswith("Unnamed: ")]
    # Row numbers, or what stands behind a separator at the end of each line.
    frame = frame.drop(
        columns=[name for name in unnamed if frame[name].isna().all() or frame[name].is_unique]
    )
    return _with_numbers(frame, decimal)


def _separator(text: str) -> str:
    """Return the character that separates the names in the first line; a blank for any number of
    them."""
    first = (text[: text.find("\n")] if "\n" in text else text).strip()
    signs = {sign: len(next(csv.reader([first], delimiter=sign), [])) for sign in ",;\t|"}
    found = max(signs, key=lambda sign: signs[sign])
    return found if signs[found] > 1 or " " not in first else " "


def _is_text(column: "pd.Series[Any]") -> bool:
    return pd.api.types.is_string_dtype(column.dtype) and all(
        isinstance(value, str) for value in column.dropna()
    )


def _words(column: "pd.Series[Any]") -> list[str]:
    return [word.strip() for word in column.dropna().unique()]


def _are_numbers(words: Iterable[str], decimal: str) -> bool:
    known = [word for word in words if word not in _MISSING]
    return bool(known) and all(_WRITTEN[decimal].fullmatch(word) for word in known)


def _with_numbers(frame: pd.DataFrame, decimal: str) -> tuple[pd.DataFrame, list[str]]:
    """Return the table with its columns of numbers as text converted, and notes on unusual ones."""
    numbers: dict[str, pd.Series[Any]] = {}
    examples: list[str] = []
    for name, column in frame.items():
        words = _words(column) if _is_text(column) else []
        sign = next((option for option in (decimal, *".,") if _are_numbers(words, option)), None)
        if sign is None or len({word.endswith("%") for word in words if word not in _MISSING}) > 1:
            continue  # whether 93 beside 94% is 93 % is not known
        values = {word: None if word in _MISSING else _value(word, sign) for word in words}
        if any(abs(value) >= _BEYOND for value in values.values() if isinstance(value, int)):
            if len({float(value) for value in values.values() if value is not None}) < len(values):
                continue  # seeds, say: numbers of 64 bits would be the same
            values = {word: None if v is None else float(v) for word, v in values.items()}
        numbers[str(name)] = pd.to_numeric(column.str.strip().map(values))
        for word in words:
            if _is_unusual(word, values[word], decimal):
                examples.append(f"{name} ({word!r} as {values[word]!r})")
                break
    notes = [f"read as numbers: {', '.join(examples)}"] if examples else []
    return frame.assign(**numbers), notes


def _value(word: str, decimal: str) -> float | int:
    """Return the number that a text means (see `_written`)."""
    matched = _WRITTEN[decimal].fullmatch(word)
    assert matched is not None
    number = word.removesuffix("%").strip()
    number = number.replace(matched[1], "") if matched[1] else number
    number = number.replace(decimal, ".")
    if matched[2] is not None:
        return float(Decimal(number).scaleb(-2))
    return int(number) if re.fullmatch(r"[+-]?\d+", number) else float(number)


def _is_unusual(word: str, value: float | None, decimal: str) -> bool:
    """Whether a number is written as more than digits and the table's decimal sign."""
    if value is None or math.isnan(value):
        return False
    try:
        return float(word.replace(decimal, ".")) != value
    except ValueError:
        return True


def _texts_if_nested(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Return a column of lists or mappings as texts, which can be compared and grouped."""
    if column.dtype != object or all(isinstance(value, Hashable) for value in column):
        return column
    return column.map(lambda value: value if isinstance(value, Hashable) else str(value))
