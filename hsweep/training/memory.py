"""Out of memory: told from other errors, with what was needed."""

import contextlib
import gc
import re
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

import torch

_SIGNS: Final = re.compile(
    r"out of memory|can't allocate memory|not enough memory|_STATUS_ALLOC_FAILED"
    # cuBLAS says the first where it has no memory left for its handle.
    r"|CUBLAS_STATUS_NOT_INITIALIZED|_DEVICE_ALLOCATION_FAILED",
    re.IGNORECASE,
)
_ASKED: Final = re.compile(
    r"(?:tried|unable) to allocate ([\d.]+) ?(bytes|KiB|MiB|GiB|TiB)", re.IGNORECASE
)
_UNITS: Final = ("bytes", "kib", "mib", "gib", "tib")

Result = TypeVar("Result")


class DoesNotFitError(Exception):
    """Memory does not suffice for ``what``, and no smaller step can be taken.

    Attributes:
        asked_bytes: what could not be had in the end, as far as the allocator said.
    """

    def __init__(self, what: str, asked_bytes: int | None) -> None:
        super().__init__(f"{what} does not fit the device")
        self.what = what
        self.asked_bytes = asked_bytes


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory, of a device or of the host, did not suffice.

    torch raises a type of its own for the device's allocator alone; the host's allocator and the
    libraries beneath (cuBLAS, cuDNN) are known by their messages.
    """
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and _SIGNS.search(str(error)) is not None


def asked_bytes(message: str) -> int | None:
    """Return how much an allocator says it was asked for in vain, None if it does not say."""
    found = _ASKED.search(message)
    if found is None:
        return None
    return int(float(found[1]) * 1024 ** _UNITS.index(found[2].lower()))


@contextlib.contextmanager
def fitting(what: str) -> Iterator[None]:
    """Turn an out-of-memory error into a DoesNotFitError that says what did not fit."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise DoesNotFitError(what, asked_bytes(str(error))) from None


def with_room(
    what: str, action: Callable[[], Result], make_room: Callable[[], None], device: torch.device
) -> Result:
    """Return what ``action`` returns; called once more, with room made, if memory did not suffice.

    Raises:
        DoesNotFitError: it did not the second time either.
    """
    with contextlib.suppress(DoesNotFitError), fitting(what):
        return action()
    # Here and not above, where the error's traceback still holds what was computed.
    make_room()
    release(device)
    with fitting(what):
        return action()


def release(device: torch.device) -> None:
    """Return unused memory to the device, and measure the peak from here."""
    if device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()
    measure_peak(device)


def measure_peak(device: torch.device) -> None:
    """Forget the most that was held so far."""
    if device.type == "cuda" and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.reset_peak_memory_stats(device)


def held_at_most(device: torch.device) -> int | None:
    """Return the most bytes held since the last ``measure_peak``; None on the CPU.

    What the allocator keeps for later counts: no other process can have it.
    """
    return torch.cuda.max_memory_reserved(device) if device.type == "cuda" else None


def shown(num_bytes: int) -> str:
    amount, unit = float(num_bytes), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
