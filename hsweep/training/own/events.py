"""The scalars of TensorBoard's event files."""

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, Final

from hsweep.errors import UserError, format_error

STEP: Final = "step"
"""The key of the step that TensorBoard's scalars have."""

_HEADER: Final = struct.Struct("<QI")
"""The header of a record in an event file (the TFRecord format): the number of bytes of its
content, and a checksum of that number. The content follows, and then a checksum of the content."""
_CHECKSUM_BYTES: Final = 4


def read_event(file: BinaryIO, _has_ended: bool) -> bytes | None:
    """Read the next event of an open file; None if the event is still incomplete."""
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    length = _HEADER.unpack(header)[0]
    content = file.read(length + _CHECKSUM_BYTES)
    return content[:length] if len(content) == length + _CHECKSUM_BYTES else None


def event_parser(unit: str | None) -> Callable[[str, int, bytes], Iterator[Mapping[str, object]]]:
    """Return a function that yields the scalars of an event, each with its step; where the tag
    ``unit`` counts the budget, with the value of that tag at the step instead."""
    current: int | None = None
    count: float | None = None
    waiting: dict[str, object] = {}

    def parse(place: str, _number: int, content: bytes) -> Iterator[Mapping[str, object]]:
        nonlocal current, count, waiting
        for step, tag, value in _scalars(content, place):
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
    values = tensor.float_val if single else tensor.double_val
    if len(tensor.tensor_content) == kind.itemsize:
        return float(str(np.frombuffer(tensor.tensor_content, kind)[0]))
    return float(str(kind.type(values[0]))) if len(values) == 1 else None
