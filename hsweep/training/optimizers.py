"""AdamW without torch's compiler.

Making one of torch's optimizers imports ``torch._dynamo``: methods of it are told at their first
call not to be compiled. That import takes nearly as long as torch's own, in every process, and
here no optimizer is ever compiled. So the same methods are called without what surrounds them.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch


def _bare(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of torch's as it is written, without its decorators."""
    bare: Callable[..., Any] = inspect.unwrap(method)
    return bare


class AdamW(torch.optim.AdamW):
    """``torch.optim.AdamW``, the same to the bit; it takes no closure, and hooks of steps are not
    called."""

    add_param_group = _bare(torch.optim.Optimizer.add_param_group)
    state_dict = _bare(torch.optim.Optimizer.state_dict)
    load_state_dict = _bare(torch.optim.Optimizer.load_state_dict)
    zero_grad = _bare(torch.optim.Optimizer.zero_grad)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update the weights."""
        _adam_step(self, closure)


_adam_step = _bare(torch.optim.Adam.step)
