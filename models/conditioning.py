"""How well conditioned attention is: what is measured, the theory beside it, and their names.

Paper L ("Leaner Transformers: More Heads, Less Depth", arXiv 2505.20802, figure 2) follows the
condition number of each layer's attention output, averaged over layers, while a model trains. It
leaves open which matrix, which images and which mean. Here the matrix is the concatenation of the
heads' outputs [A_1 .. A_h], the one that its theorem 3.2 is about: tokens by ``heads * head_dim``,
before the output projection, one for each example. The figure of a layer is the median over
examples, that of a model the mean over layers.

Nothing here imports torch; ``models.attention_probe`` does the measuring.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from models.fields import settle


@dataclass(frozen=True, slots=True)
class Conditioning:
    """A wish to have the conditioning of attention measured while a model trains.

    It is measured on the first examples of an evaluation, by looking on: nothing that the model
    computes changes.

    Attributes:
        every: reports from one measurement to the next; the last report always has one.
        examples: how many examples are looked at.

    Raises:
        ValueError: not a whole number of at least 1.
    """

    every: int = 5
    examples: int = 32

    def __post_init__(self) -> None:
        settle(self)

    def due(self, units: Sequence[int]) -> frozenset[int]:
        """Return those of a trial's report units that have a measurement."""
        return frozenset([*units[self.every - 1 :: self.every], *units[-1:]])
