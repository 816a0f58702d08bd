"""The output of a script in its trial's folder, as rows: the place of each, and its values by key.

Files may be missing still, end in the middle of a record, be truncated or be written again from the
start. Then they are read from the start again, and the caller has to expect rows twice.
"""

import contextlib
import csv
import functools
import json
import os
import re
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

from hsweep.design.sources import STEP, TRAINER_STATE_FILE, MetricSource
from hsweep.errors import UserError, format_error, shown

Row = tuple[str, Mapping[str, object]]
"""Values that a script wrote at once, by key, behind the place where they stand."""

Rows = Callable[[bool], Iterator[Row]]
"""Yields the rows that are new since the last call. The argument says that the script has ended by
itself, so that its last line counts even without a line end."""

ReadRecord = Callable[[BinaryIO, bool], bytes | None]
"""Reads the next record of an open file, None where it is not whole yet. The second argument is as
in ``Rows``."""

Parse = Callable[[str, int, bytes], Iterator[Mapping[str, object]]]
"""Yields the values of a record; the arguments are where it is, its number in the file and its
content, which is empty at the end of a file that a script has left."""

_HEADER: Final = struct.Struct("<QI")
"""The header of a record in an event file (the TFRecord format): the number of bytes of its
content, and a checksum of that number. The content follows, and then a checksum of the content."""
_CHECKSUM_BYTES: Final = 4

_LONGEST_LINE: Final = 1 << 20
"""The most bytes of a line: progress bars write lines that never end."""

_CHUNK: Final = 1 << 13
"""The bytes that are read at once in search of the end of a line."""

_END_OF_VIEW: Final = re.compile(rb"\n|\r(?=[^\n])")
"""The end of what a terminal shows in one line at a time: of the line, or a return to its start."""

_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z^_])")
"""What a terminal obeys and does not show: colours, movements, titles and links (ECMA-48)."""

_EDGE_BYTES: Final = 256
"""How many of the first and of the last bytes read so far are compared, to notice that a program
has written the file anew."""


def rows_of(
    source: MetricSource, folder: Path, counters: Sequence[str], needed: Collection[str]
) -> Rows:
    """Return the rows that a source has, or will have, in a trial's folder; ``counters`` are the
    keys that may count the budget, ``needed`` those of the metrics that decide."""
    if source.kind == "trainer_state":
        return _trainer_rows(folder / source.where)
    if source.kind == "tensorboard":
        pattern = f"{source.where}/**/*.tfevents.*"
        spans = {tag: dict[Path, list[float]]() for tag in needed}
        parser_of = functools.partial(_event_parser, source.unit, spans)
        return _file_rows(folder, pattern, "event", _read_event, parser_of)
    read = _read_view if source.kind == "stdout" else _read_line
    parsers = {
        "csv_file": lambda _: _csv_parser(counters),
        "stdout": lambda _: _pattern_parser(source.where, counters),
    }
    parser = parsers.get(source.kind, lambda _: _parse_json)
    return _file_rows(folder, source.files, "line", read, parser)


def cut_torn_lines(source: MetricSource, folder: Path) -> None:
    """Cut the unfinished last line off every text file of a source.

    A script that was killed has left it, and its next attempt would write on in the middle of it.

    Raises:
        OSError: a file cannot be read or written.
    """
    if source.kind in ("trainer_state", "tensorboard"):
        return
    for path in folder.glob(source.files):
        with path.open("rb+") as file:
            size = file.seek(0, os.SEEK_END)
            start = file.seek(max(0, size - _LONGEST_LINE))
            whole = start + file.read().rfind(b"\n") + 1
            if whole < size and (whole > start or start == 0):
                file.truncate(whole)


class GrowingFile:
    """A file of records that is read while it grows."""

    def __init__(self, path: Path, read: ReadRecord) -> None:
        self._path, self._read = path, read
        self._position = self._number = 0
        self._edges = b""

    def new(self, has_ended: bool) -> Iterator[tuple[int, bytes]]:
        """Yield the records that are new since the last call, with their numbers, from 1.

        Raises:
            OSError: the file cannot be read.
        """
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            return
        with file:
            if self._edges_in(file) != self._edges:
                self._position = self._number = 0
            size = file.seek(0, os.SEEK_END)
            file.seek(self._position)
            while self._position < size and (record := self._read(file, has_ended)) is not None:
                self._position, self._number = file.tell(), self._number + 1
                yield self._number, record
            self._edges = self._edges_in(file)

    def _edges_in(self, file: BinaryIO) -> bytes:
        size = min(_EDGE_BYTES, self._position)
        file.seek(0)
        start = file.read(size)
        file.seek(self._position - size)
        return start + file.read(size)


def _file_rows(
    folder: Path, pattern: str, kind: str, read: ReadRecord, parser: Callable[[Path], Parse]
) -> Rows:
    """Return the rows of all files of a pattern, one file after another."""
    files: dict[Path, tuple[GrowingFile, Parse]] = {}

    def new(has_ended: bool) -> Iterator[Row]:
        for path in sorted(folder.glob(pattern), key=_natural):
            if path not in files:
                files[path] = GrowingFile(path, read), parser(path.parent.relative_to(folder))
            file, parse = files[path]
            for number, record in file.new(has_ended):
                place = f"{path.name}, {kind} {number}"
                for values in parse(place, number, record):
                    yield place, values
            if has_ended and kind == "line":
                for values in parse(path.name, 0, b""):
                    yield path.name, values

    return new


def _read_line(file: BinaryIO, has_ended: bool) -> bytes | None:
    line = file.readline(_LONGEST_LINE)
    is_whole = line.endswith(b"\n") or len(line) == _LONGEST_LINE or (has_ended and line)
    return line if is_whole else None


def _read_view(file: BinaryIO, has_ended: bool) -> bytes | None:
    """Read up to the end of a line or a return to its start."""
    start, view = file.tell(), b""
    while len(view) < _LONGEST_LINE and (chunk := file.read(_CHUNK)):
        # The last byte of the chunk before may be a return that is known to be one only now.
        new_from = max(0, len(view) - 1)
        view += chunk
        if end := _END_OF_VIEW.search(view, new_from):
            file.seek(start + end.end())
            return view[: end.end()]
    return view if len(view) >= _LONGEST_LINE or (has_ended and view) else None


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip("\r\n")


def _pattern_parser(where: str, counters: Sequence[str]) -> Parse:
    """Return a parser that yields every match; in a line that is written over, the last of a unit.

    A progress bar writes the values of a unit many times, and only the last are final: they are
    held back until the line shows another unit, or ends.
    """
    pattern = re.compile(where)
    counters = [name for name in counters if name in pattern.groupindex]
    held: dict[str, Any] = {}

    def parse(_place: str, _number: int, view: bytes) -> Iterator[Mapping[str, object]]:
        nonlocal held
        for match in pattern.finditer(_ESCAPES.sub("", _text(view))):
            values = match.groupdict()
            if held and any(held[name] != values[name] for name in counters):
                yield held
            held = values
        if held and not view.endswith(b"\r"):
            yield held
            held = {}

    return parse


def _parse_json(place: str, _number: int, line: bytes) -> Iterator[Mapping[str, object]]:
    text = _text(line)
    if not text.strip():
        return
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise UserError(f"{place}: must be a JSON object, not {shown(text)}")
    yield values


def _csv_parser(counters: Sequence[str]) -> Parse:
    names: list[str] = []
    delimiter = ","

    def parse(place: str, number: int, line: bytes) -> Iterator[Mapping[str, object]]:
        nonlocal names, delimiter
        if not line:
            return
        text = _text(line)
        if number == 1:
            text = text.removeprefix("\ufeff")
            delimiter = max(",;\t", key=text.count)
        cells = [cell.strip() for cell in next(csv.reader([text], delimiter=delimiter), [])]
        # A script that was started again may write the names again, or others.
        if number == 1 or not set(counters).isdisjoint(cells):
            names = cells
        elif len(cells) > len(names) and any(cells[len(names) :]):
            raise UserError(
                f"{place}: a row has as many cells as the file has names, {len(names)}, and this "
                f"one has {len(cells)}: {shown(text)}; let the script write the names again where "
                "its columns change"
            )
        elif cells != names:
            yield {name: cell for name, cell in zip(names, cells, strict=False) if cell}

    return parse


def _read_event(file: BinaryIO, _has_ended: bool) -> bytes | None:
    """Read the next event of an open file; None if the event is still incomplete."""
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    length = _HEADER.unpack(header)[0]
    content = file.read(length + _CHECKSUM_BYTES)
    return content[:length] if len(content) == length + _CHECKSUM_BYTES else None


def _event_parser(
    unit: str | None, spans: Mapping[str, dict[Path, list[float]]], folder: Path
) -> Parse:
    """Return a function that yields the scalars of an event, each with its step; where the tag
    ``unit`` counts the budget, with the value of that tag at the step instead.

    ``spans`` holds when each folder's first and last value of a tag was written: two folders that
    are written at once are two metrics, as of training and validation.
    """
    current: int | None = None
    count: float | None = None
    waiting: dict[str, object] = {}

    def parse(place: str, _number: int, content: bytes) -> Iterator[Mapping[str, object]]:
        nonlocal current, count, waiting
        for step, tag, value, at in _scalars(content, place):
            if (of_tag := spans.get(tag)) is not None:
                own = of_tag.setdefault(folder, [at, at])
                own[1] = at
                for other, (first, last) in of_tag.items():
                    if other != folder and max(first, own[0]) < min(last, at):
                        both = f"{shown(str(other))} and {shown(str(folder))}"
                        raise UserError(
                            f"{place}: {tag} is written in two folders at once, {both}; name "
                            f"one of them, as tensorboard({shown(str(folder))})"
                        )
            if unit is None:
                yield {STEP: step, tag: value}
                continue
            if step != current:
                current, count, waiting = step, None, {}
            if tag == unit:
                count = value
            else:
                waiting[tag] = value
            if count is not None:
                yield {unit: count, **waiting}
                waiting = {}

    return parse


def _scalars(content: bytes, place: str) -> Iterator[tuple[int, str, float, float]]:
    """Yield the step, tag, value and time of each scalar of an event."""
    # Imported late: the package imports torch.
    import numpy as np
    from tensorboardX.proto.event_pb2 import Event

    try:
        event = Event.FromString(content)
    except Exception as error:  # protobuf's own, which no other library of ours needs
        raise UserError(
            f"{place}: must be an event of TensorBoard's, and cannot be read: {format_error(error)}"
        ) from None
    for value in event.summary.value:
        kind = value.WhichOneof("value")
        if kind == "simple_value":
            # The shortest number that rounds to it: 0.81, not 0.810000002384.
            number: float | None = float(str(np.float32(value.simple_value)))
        else:
            number = _tensor_scalar(value.tensor) if kind == "tensor" else None
        if number is not None:
            yield event.step, value.tag, number, event.wall_time


def _tensor_scalar(tensor: Any) -> float | None:
    import numpy as np
    from tensorboardX.proto import types_pb2

    kinds = {types_pb2.DT_FLOAT: "f4", types_pb2.DT_DOUBLE: "f8"}
    if tensor.tensor_shape.dim or tensor.dtype not in kinds:
        return None
    kind = np.dtype(f"<{kinds[tensor.dtype]}")
    values = tensor.float_val or tensor.double_val
    if len(tensor.tensor_content) == kind.itemsize:
        return float(str(np.frombuffer(tensor.tensor_content, kind)[0]))
    return float(str(kind.type(values[0]))) if len(values) == 1 else None


def _trainer_rows(folder: Path) -> Rows:
    """Return the rows of ``trainer_state.json``, in the output folder or its checkpoints."""
    seen: dict[Path, tuple[int, int, int]] = {}

    def new(_has_ended: bool) -> Iterator[Row]:
        places = (TRAINER_STATE_FILE, f"checkpoint-*/{TRAINER_STATE_FILE}")
        paths = [path for place in places for path in folder.glob(place)]
        for path in sorted(paths, key=_natural):
            # A checkpoint may be removed meanwhile, or be half written: then it changes once more.
            with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
                state = path.stat()
                now = (state.st_ino, state.st_size, state.st_mtime_ns)
                if seen.get(path) != now:
                    content = json.loads(path.read_text("utf-8"))
                    seen[path] = now
                    yield from _log_history(content, path)

    return new


def _log_history(content: Any, path: Path) -> Iterator[Row]:
    history = content.get("log_history") if isinstance(content, dict) else None
    if not isinstance(history, list):
        raise UserError(
            f"{path.name}: must have a log_history, as Hugging Face's Trainer writes it"
        )
    for number, values in enumerate(history, 1):
        # Before training, the Trainer evaluates at step 0 if it is asked to.
        if isinstance(values, dict) and values.get("step") != 0:
            yield f"{path.parent.name}/{path.name}, entry {number}", values


def _natural(path: Path) -> list[tuple[int, str]]:
    """Sort ``version_10`` after ``version_9``."""
    parts = re.split(r"(\d+)", str(path))
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
