"""The scalars of TensorBoard's event files, as rows."""

import contextlib
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from hsweep.design.sources import MetricSource
from hsweep.errors import UserError, format_error
from hsweep.training.own.growing import BLOCK_BYTES, GrowingFile, Row

STEP: Final = "step"
"""The key of the step that TensorBoard's scalars have."""

_RECORD_HEADER: Final = struct.Struct("<QI")
"""Of a record in an event file: the bytes of its content, and a checksum of that number; another
checksum, of the content, follows the content (the TFRecord format)."""
_CHECKSUM_BYTES: Final = 4


class EventRows:
    """The scalars of one of TensorBoard's event files: a row for each, or, where a tag counts the
    budget, for those of one step that come before it."""

    def __init__(self, path: Path, source: MetricSource) -> None:
        self._file = GrowingFile(path)
        self._unit = source.unit
        self._step: int | None = None
        self._count: float | None = None
        self._waiting: dict[str, object] = {}

    def new(self, *, whole: bool = False) -> Iterator[Row]:  # noqa: ARG002
        while records := self._some_records():
            for position, content in records:
                place = f"{self._file.path.name}, byte {position}"
                for step, tag, value in _scalars(content, place):
                    if values := self._take(step, tag, value):
                        yield Row(place, values)

    def _take(self, step: int, tag: str, value: float) -> Mapping[str, object]:
        if self._unit is None:
            return {STEP: step, tag: value}
        if step != self._step:
            self._step, self._count, self._waiting = step, None, {}
        if tag == self._unit:
            self._count = value
        else:
            self._waiting[tag] = value
        if self._count is None:
            return {}
        values, self._waiting = {self._unit: self._count, **self._waiting}, {}
        return values

    def _some_records(self) -> list[tuple[int, bytes]]:
        records: list[tuple[int, bytes]] = []
        with contextlib.suppress(FileNotFoundError):
            if not self._file.has_news():
                return []
            position = self._file.position
            with self._file.path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                start = position
                while position < start + BLOCK_BYTES and position + _RECORD_HEADER.size <= size:
                    file.seek(position)
                    length, _ = _RECORD_HEADER.unpack(file.read(_RECORD_HEADER.size))
                    end = position + _RECORD_HEADER.size + length + _CHECKSUM_BYTES
                    if end > size:  # the rest is still to be written
                        break
                    records.append((position, file.read(length)))
                    position = end
            self._file.read_to(position)
        return records


def _scalars(content: bytes, place: str) -> Iterator[tuple[int, str, float]]:
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
            yield event.step, value.tag, float(str(np.float32(value.simple_value)))
        elif kind == "tensor" and (number := _tensor_scalar(value.tensor)) is not None:
            yield event.step, value.tag, number


def _tensor_scalar(tensor: Any) -> float | None:
    import numpy as np
    from tensorboardX.proto import types_pb2

    single = tensor.dtype == types_pb2.DT_FLOAT
    if tensor.tensor_shape.dim or not (single or tensor.dtype == types_pb2.DT_DOUBLE):
        return None
    kind = np.dtype("<f4" if single else "<f8")
    listed = tensor.float_val if single else tensor.double_val
    if len(tensor.tensor_content) == kind.itemsize:
        return float(str(np.frombuffer(tensor.tensor_content, kind)[0]))
    return float(str(kind.type(listed[0]))) if len(listed) == 1 else None
