"""The device of a trial and its memory, whoever made it: CUDA and ROCm (which torch calls
``cuda``), XPU, Apple's.

What is particular to CUDA stays so by name: graphs, and the limit of a share of a device.
"""

import contextlib
import ctypes
import functools
import gc
import os
import re
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

import torch

_CONTEXT_BYTES: Final = 2**30
"""What a process takes of a device beside its tensors: CUDA's context and kernels."""

_SIGNS: Final = re.compile(
    r"out of memory|can(?:'|no)t allocate memory|not enough memory|_STATUS_ALLOC_FAILED"
    # cuBLAS says the first where it has no memory left for its handle.
    r"|CUBLAS_STATUS_NOT_INITIALIZED|_DEVICE_ALLOCATION_FAILED",
    re.IGNORECASE,
)
_NUM_SENTENCES: Final = 3
"""How many sentences of an allocator's message are kept: on CUDA the first three give the bytes
requested and the bytes that the device has."""

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
"""Parameters of mallopt, by glibc's malloc.h."""
_LARGEST_PIECE: Final = 32 * 2**20
"""In bytes, the highest threshold that glibc accepts: larger pieces of memory are always given back
to the system."""
_NEVER: Final = 2**31 - 1
_CHOSEN_BY_USER: Final = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")

Result = TypeVar("Result")


def device_of(gpus: float) -> torch.device:
    """Return where a trial with so many devices trains. Without an accelerator in this torch, the
    error that CUDA is not there comes with the first use."""
    if not gpus:
        return torch.device("cpu")
    return torch.device((torch.accelerator.current_accelerator() or torch.device("cuda")).type)


def is_used(device: torch.device) -> bool:
    """Whether torch uses a device in this process. A script may have one that this torch lacks, and
    to ask a device that is not in use would take memory there."""
    if device.type == "cpu" or torch.accelerator.current_accelerator() is None:
        return False
    module = torch.get_device_module(device)
    return not hasattr(module, "is_initialized") or bool(module.is_initialized())


def seed_torch(seed: int, device: torch.device) -> None:
    """Seed torch's global random generators of the CPU and of all devices of this kind.

    ``torch.manual_seed`` would seed those of a trial on the CPU, too, which leaves them alone, and
    keep the call stack as text for each kind of device that is not there.
    """
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        module = torch.get_device_module(device)
        getattr(module, "manual_seed_all", module.manual_seed)(seed)


def wait_for(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


@contextlib.contextmanager
def within_share(gpus: float, device: torch.device) -> Iterator[None]:
    """Limit torch's memory on CUDA to a trial's share of a device, if it has less than one; the
    whole is there afterwards.

    Its neighbours then have theirs, however much it asks for. What a process takes beside its
    tensors counts, but never more than half the share.
    """
    if device.type != "cuda" or gpus >= 1:
        yield
        return
    context = _CONTEXT_BYTES / torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(max(gpus - context, gpus / 2))
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


class DoesNotFitError(Exception):
    """Memory does not suffice for ``subject`` ("a batch"), and no smaller step can be taken.

    Attributes:
        reason: the allocator's message.
    """

    def __init__(self, subject: str, reason: str) -> None:
        super().__init__(f"{subject} does not fit the device ({reason})")
        self.subject, self.reason = subject, reason


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory, of a device or of the host, did not suffice.

    torch raises a type of its own for the device's allocator alone; the host's allocator and the
    libraries beneath (cuBLAS, cuDNN) are known by their messages.
    """
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and _SIGNS.search(str(error)) is not None


@contextlib.contextmanager
def fitting(subject: str) -> Iterator[None]:
    """Turn an out-of-memory error into a DoesNotFitError about ``subject``."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        first_line = str(error).strip().partition("\n")[0] or type(error).__name__
        reason = ". ".join(first_line.split(". ")[:_NUM_SENTENCES]).rstrip(".")
        raise DoesNotFitError(subject, reason) from None


def with_room(
    subject: str, action: Callable[[], Result], make_room: Callable[[], None], device: torch.device
) -> Result:
    """Return the result of ``action``; if memory does not suffice, free some and call it once more.

    Raises:
        DoesNotFitError: memory did not suffice the second time either.
    """
    with contextlib.suppress(DoesNotFitError), fitting(subject):
        return action()
    # Here and not above, where the error's traceback still holds what was computed.
    make_room()
    release(device)
    with fitting(subject):
        return action()


def release(device: torch.device) -> None:
    """Return unused memory to the device, and measure the peak from here."""
    if is_used(device):
        gc.collect()
        torch.accelerator.empty_cache()
    measure_peak(device)


def measure_peak(device: torch.device) -> None:
    if is_used(device):
        torch.accelerator.reset_peak_memory_stats(device)


def held_at_most(device: torch.device) -> int | None:
    """Return the most bytes held on the device since the last ``measure_peak``; None on the CPU
    and of a device that torch does not use.

    Memory that the allocator keeps for later counts: no other process can use it.
    """
    return torch.accelerator.max_memory_reserved(device) if is_used(device) else None


def reuse_freed_memory() -> None:
    """Keep memory that this process frees on the CPU from now on, after giving back the memory
    freed so far.

    The C library gives large pieces back to the system as they are freed, and each update asks for
    them again: the system then clears every page anew, which can take as long as the computing.
    glibc can keep them (mallopt(3), as PyTorch's own advice for training on CPUs is); elsewhere
    nothing changes. Each trial calls this, so that a small trial does not hold the memory
    that a large trial before it needed.
    """
    library = _c_library()
    if library is not None:
        library.malloc_trim(0)


@functools.cache
def _c_library() -> ctypes.CDLL | None:
    """Return the C library, set up to keep memory; None where it cannot, or the user has chosen
    otherwise."""
    if any(name in os.environ for name in _CHOSEN_BY_USER):
        return None
    library = ctypes.CDLL(None)
    if not (hasattr(library, "mallopt") and hasattr(library, "malloc_trim")):
        return None
    library.mallopt(_MMAP_THRESHOLD, _LARGEST_PIECE)
    library.mallopt(_TRIM_THRESHOLD, _NEVER)
    return library
