"""Batch norm over the examples of all processes, so that a batch has the statistics it has in one.

``torch.nn.SyncBatchNorm`` is for accelerators alone and replaces modules, those of libraries that
do more than normalise among them. Here the function that every batch norm calls is computed in
another way as long as a pass lasts, and the model stays as it is.

Shapes: B examples of all processes, C channels, any number of positions after them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.overrides import TorchFunctionMode


def has_batch_statistics(model: nn.Module) -> bool:
    """Whether the model normalises by the statistics of a batch, and keeps running ones."""
    return any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in model.modules())


class SharedStatistics(TorchFunctionMode):
    """While this is entered, batch norm in training takes mean and variance over what all
    processes give it: each of them calls it equally often."""

    def __torch_function__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = (_shared_batch_norm if func is functional.batch_norm else func)(
            *args, **(kwargs or {})
        )
        return result


def _shared_batch_norm(
    input: Tensor,  # noqa: A002  torch's name, by which it may be given
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if not training:
        return functional.batch_norm(
            input, running_mean, running_var, weight, bias, training, momentum, eps
        )
    normalised: Tensor
    normalised, mean, variance, count = _Normalised.apply(input, eps)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        if running_mean is not None:
            running_mean.lerp_(mean.to(running_mean.dtype), momentum)
        if running_var is not None:
            unbiased = variance * (count / (count - 1).clamp_min(1))
            running_var.lerp_(unbiased.to(running_var.dtype), momentum)
    shape = (1, -1, *(1 for _ in input.shape[2:]))
    if weight is not None:
        normalised = normalised * weight.view(shape)
    if bias is not None:
        normalised = normalised + bias.view(shape)
    return normalised.to(input.dtype)


class _Normalised(torch.autograd.Function):
    """(x - mean) / sqrt(variance + eps), both over all processes, with their gradients.

    Ioffe and Szegedy 2015 (arXiv 1502.03167), section 3, algorithm 1 and the equations after it.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        x_float = x.float() if x.dtype.itemsize < 4 else x
        others = [dim for dim in range(x.ndim) if dim != 1]
        shape = (1, -1, *(1 for _ in x.shape[2:]))
        rows = x.numel() // x.shape[1]
        sums = torch.cat((x_float.sum(others), x_float.new_tensor([rows])))
        distributed.all_reduce(sums)
        mean, count = sums[:-1] / sums[-1], sums[-1]
        centred = x_float - mean.view(shape)
        squares = centred.square().sum(others)
        distributed.all_reduce(squares)
        variance = squares / count
        inverse = (variance + eps).rsqrt()
        normalised = centred * inverse.view(shape)
        ctx.save_for_backward(normalised, inverse, count)
        ctx.dtype = x.dtype
        ctx.mark_non_differentiable(mean, variance, count)
        return normalised, mean, variance, count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Tensor, None]:
        normalised, inverse, count = ctx.saved_tensors
        others = [dim for dim in range(gradient.ndim) if dim != 1]
        shape = (1, -1, *(1 for _ in gradient.shape[2:]))
        means = torch.stack((gradient.sum(others), (gradient * normalised).sum(others)))
        distributed.all_reduce(means)
        mean, product = (means / count).unbind()
        centred = gradient - mean.view(shape) - normalised * product.view(shape)
        return (centred * inverse.view(shape)).to(ctx.dtype), None
