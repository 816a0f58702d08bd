"""Tensors that say they are on CUDA while tensors on the CPU hold their numbers.

Each operation on them follows CUDA's rules, or raises; where the host would wait for the device it
is noted.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import torch
from shadow import streams, waits
from torch import Tensor, nn
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

CPU: Final = torch.device("cpu")
CUDA: Final = torch.device("cuda", 0)

_WAITING: Final = (
    frozenset(
        (
            "_local_scalar_dense",
            "is_nonzero",
            "nonzero",
            "masked_select",
            "equal",
            "bincount",
            "histc",
        )
    )
    | frozenset(("_unique2", "unique_dim", "unique_consecutive"))
    | frozenset(
        ("_linalg_check_errors", "_linalg_eigh", "_linalg_svd", "linalg_eig", "linalg_lstsq")
    )
)
"""Operations of which the host reads the result, its size or whether it could be computed."""
_COPIES: Final = frozenset({"_to_copy", "copy_", "_foreach_copy_"})
_INDEXED: Final = frozenset({"index", "index_put", "index_put_", "_index_put_impl_"})
_SOFTMAX: Final = frozenset({"_softmax", "_log_softmax"})
_SOFTMAX_BACKWARD: Final = frozenset({"_softmax_backward_data", "_log_softmax_backward_data"})


class ShadowTensor(Tensor):
    """A tensor on the device that is not there.

    Attributes:
        numbers: on the CPU.
    """

    numbers: Tensor

    @staticmethod
    def __new__(cls: Any, numbers: Tensor) -> "ShadowTensor":
        made: ShadowTensor = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            numbers.size(),
            strides=numbers.stride(),
            storage_offset=numbers.storage_offset(),
            dtype=numbers.dtype,
            device=CUDA,
        )
        made.numbers = numbers
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def data_ptr(self) -> int:
        return self.numbers.data_ptr()

    def untyped_storage(self) -> torch.UntypedStorage:
        return self.numbers.untyped_storage()

    def record_stream(self, stream: Any) -> None:
        streams.record_use(self.numbers, stream)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            copy = self.detach().clone()
            is_parameter = isinstance(self, nn.Parameter)
            memo[id(self)] = nn.Parameter(copy, self.requires_grad) if is_parameter else copy
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.detach().cpu().__reduce_ex__(protocol)


class ShadowMode(TorchDispatchMode):
    """Has tensors that are asked for on CUDA made on the shadow device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})


def pinned(tensor: Tensor, device: Any = None) -> Tensor:
    """Stand in for ``Tensor.pin_memory``."""
    copy: Any = tensor.clone()
    copy.is_in_pinned_memory = True
    return copy


def computed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the result of an operation, on the device if one of its tensors is, or is to be.

    Raises:
        RuntimeError: CUDA would refuse it.
    """
    values, form = tree_flatten((args, kwargs))
    shadows = [value for value in values if isinstance(value, ShadowTensor)]
    device = kwargs.get("device")
    is_shadow = bool(shadows) if device is None else torch.device(device).type == "cuda"
    if not (shadows or is_shadow):
        return func(*args, **kwargs)
    name = func._schema.name.partition("::")[2]
    _check(name, values, args, is_shadow)
    for reason in _reasons_to_wait(name, args, kwargs, is_shadow):
        waits.note(reason)
    numbers = [value.numbers if isinstance(value, ShadowTensor) else value for value in values]
    plain_args, plain_kwargs = tree_unflatten(numbers, form)
    if device is not None:
        plain_kwargs["device"] = CPU
    result = _on_cpu(name, func, plain_args, plain_kwargs)
    owners = {id(shadow.numbers): shadow for shadow in shadows}
    if torch.Tag.inplace_view in func.tags:
        with no_dispatch():
            func(*args, **kwargs)  # the shadow has a shape of its own to be changed
    _record(func, args, kwargs, shadows, result)

    def shadowed(value: Any) -> Any:
        if isinstance(value, Tensor) and id(value) in owners:
            return owners[id(value)]
        return ShadowTensor(value) if isinstance(value, Tensor) and is_shadow else value

    return tree_map(shadowed, result)


def _check(name: str, values: Sequence[Any], args: Sequence[Any], is_shadow: bool) -> None:
    """Refuse what CUDA refuses: a generator of the CPU, tensors of two devices."""
    if is_shadow and any(isinstance(value, torch.Generator) for value in values):
        raise RuntimeError(f"{name} on CUDA draws from a generator of the CPU: {waits.place()}")
    tensors = [value for value in values if isinstance(value, Tensor) and value.ndim]
    if name in _INDEXED and isinstance(args[0], ShadowTensor):
        tensors = [args[0], *(value for value in args[2:3] if value.ndim)]  # not the indices
    if name not in _COPIES and len({isinstance(each, ShadowTensor) for each in tensors}) > 1:
        shapes = [tuple(each.shape) for each in tensors if not isinstance(each, ShadowTensor)]
        raise RuntimeError(f"{name} of CUDA and of the CPU {shapes}: {waits.place()}")


def _reasons_to_wait(name: str, args: Any, kwargs: Any, is_shadow: bool) -> Iterator[str]:
    if name in _WAITING or (name == "repeat_interleave" and kwargs.get("output_size") is None):
        yield name
    if name in _INDEXED:
        for index in filter(None.__ne__, args[1]):
            if index.dtype in (torch.bool, torch.uint8):
                yield "index by a mask"
            if not isinstance(index, ShadowTensor):
                yield "index on the CPU"
    if name == "_to_copy":
        is_fast = kwargs.get("non_blocking") and (not is_shadow or _is_pinned(args[0]))
        if isinstance(args[0], ShadowTensor) is not is_shadow and not is_fast:
            yield "blocking copy"
    elif name in _COPIES:
        ends = [args[:2]] if name == "copy_" else zip(*args[:2], strict=True)
        is_blocking = not (args[2] if len(args) > 2 else kwargs.get("non_blocking"))
        for to, source in ends:
            is_between = isinstance(to, ShadowTensor) is not isinstance(source, ShadowTensor)
            if is_between and (is_blocking or not (_is_pinned(to) or _is_pinned(source))):
                yield "blocking copy"


def _is_pinned(tensor: Tensor) -> bool:
    return getattr(tensor, "is_in_pinned_memory", False)


def _on_cpu(name: str, func: Any, args: Any, kwargs: Any) -> Any:
    """Return what CUDA computes, where the CPU's kernel is another."""
    kwargs.pop("pin_memory", None)
    if name == "_to_copy":
        kwargs.pop("non_blocking", None)
    if name == "_fused_sdp_choice":
        return 0  # the attention that is made of other operations
    if name in _SOFTMAX and args[2]:
        return func(args[0].float(), args[1], False)
    if name in _SOFTMAX_BACKWARD and args[3] != args[0].dtype:
        return func(*args[:3], args[0].dtype).to(args[3])
    return func(*args, **kwargs)


def _record(
    func: Any, args: Any, kwargs: Any, shadows: Sequence[ShadowTensor], result: Any
) -> None:
    """Have the streams told what was read, written and made; a mere view does none of it."""
    names = [argument.name for argument in func._schema.arguments]
    by_name = dict(zip(names, args, strict=False)) | kwargs
    written: list[Any] = [
        by_name.get(argument.name)
        for argument in func._schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    writes = [each.numbers for each in tree_flatten(written)[0] if isinstance(each, ShadowTensor)]
    before = {shadow.numbers.untyped_storage().data_ptr() for shadow in shadows}
    makes = [
        each
        for each in tree_flatten(result)[0]
        if isinstance(each, Tensor) and each.untyped_storage().data_ptr() not in before
    ]
    if writes or makes:
        streams.record([shadow.numbers for shadow in shadows], writes, makes)
