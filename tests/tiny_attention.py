"""A model with attention for the tiny task, and a sweep of it: training takes milliseconds."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tiny import tiny_sweep

from hsweep import Sweep, epochs, grid

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class TinyAttention:
    """Three inputs become five tokens, attention layers mix them, and three outputs are read.

    Attributes:
        heads: in each layer, two wide each.
        depth: attention layers.
        dropout: of what a layer adds.
        overflows: whether the first layer also sees infinite tokens, whose output nobody reads.
    """

    heads: int = 2
    depth: int = 2
    dropout: float = 0.2
    overflows: bool = False

    def example_input(self) -> "Tensor":
        import torch

        return torch.zeros(1, 3)

    def build(self) -> "nn.Module":
        import torch
        from torch import Tensor, nn

        from models.attention import MultiHeadAttention

        config, width = self, 8

        class Network(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.embed = nn.Linear(3, 5 * width)
                self.layers = nn.ModuleList(
                    MultiHeadAttention(width, config.heads, 2) for _ in range(config.depth)
                )
                self.dropout = nn.Dropout(config.dropout)
                self.read = nn.Linear(5 * width, 3)

            def forward(self, x: Tensor) -> Tensor:
                tokens = self.embed(x).unflatten(1, (5, width))
                for layer in self.layers:
                    tokens = tokens + self.dropout(layer(tokens))
                if config.overflows and not self.training:
                    self.layers[0](torch.full_like(tokens, torch.inf))
                output: Tensor = self.read(tokens.flatten(1))
                return output

        return Network()


def attentive_sweep(**changes: Any) -> Sweep:
    """Return a sweep over heads for five epochs, some of its fields replaced."""
    settings: dict[str, Any] = {
        "space": grid(heads=[1, 3]),
        "model": lambda point: TinyAttention(
            **{name: point[name] for name in ("heads", "depth", "overflows") if name in point}
        ),
        "budget": epochs(5),
    }
    return tiny_sweep(**{**settings, **changes})
