"""The contract every model configuration fulfils."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

# Its isinstance evaluates no property, before Python 3.12 too: metrics may need data.
from typing_extensions import Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import nn

PARAM_GROUPS: Final = ("embedding", "attention", "mlp", "norm", "head")


@dataclass(frozen=True, slots=True)
class Counts:
    """What a model costs, from its structure alone.

    Attributes:
        params: number of parameters by group; the groups are ``PARAM_GROUPS``.
        forward_flops: floating-point operations of a forward pass over one example, a
            multiply-add counted as two.
        activation_elements: numbers kept for the backward pass, for one example.
        float32_activation_elements: those of them that stay in float32 under autocast.
        output_elements: numbers the model returns for one example.
        passing_elements: gradients alive at once in the backward pass of the block that has most
            of them, for one example, beside what is kept.
    """

    params: Mapping[str, int]
    forward_flops: int
    activation_elements: int
    float32_activation_elements: int = 0
    output_elements: int = 0
    passing_elements: int = 0

    @property
    def num_params(self) -> int:
        """Parameters in all."""
        return sum(self.params.values())

    @property
    def train_flops(self) -> int:
        """Operations of a training step for one example: forward, and twice that backward
        (Kaplan et al. 2020, section 2.1)."""
        return 3 * self.forward_flops


@runtime_checkable
class ModelConfig(Protocol):
    """A frozen, picklable value that says everything about a model before it is built.

    Constructing an impossible one raises ValueError, naming the rule and the values.
    """

    def build(self) -> "nn.Module":
        """Return the model, freshly initialised from torch's global generator, on torch's default
        device (so it can be built on the meta device, without memory)."""
        ...

    def counts(self) -> Counts:
        """Return parameters, operations and activations, computed without building."""
        ...


@runtime_checkable
class TraceableConfig(Protocol):
    """A model configuration without counts of its own; they are traced instead."""

    def build(self) -> "nn.Module":
        """Return the model, on torch's default device."""
        ...

    def example_input(self) -> object:
        """Return the model's input for one example, a batch of one: a tensor, a tuple or list of
        positional arguments, or a dictionary of keyword arguments."""
        ...


AnyModelConfig = ModelConfig | TraceableConfig
