"""Pathfinder: do two markers lie on one dashed contour? Read pixel by pixel."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tasks.lra.spec import PIXEL_VOCABULARY, USES, TokenSpec, TokenTask, token_metrics
from tasks.metrics import even_shares
from tasks.settings import at_least
from tasks.sources.digest import definition_digest

if TYPE_CHECKING:
    from tasks.lra.texts import Examples, Texts

_VERSION = "1"


@dataclass(frozen=True, slots=True)
class Pathfinder(TokenTask):
    """Tell whether two markers lie on the same of two dashed contours, among shorter ones.

    Pathfinder32 of the Long Range Arena (arXiv 2011.04006), with the published settings of its
    hard set: contours of 14 dashes in images of 32x32, five short ones of 4 dashes tried. Most of
    these find no room; an image has one of them on average (see ``tasks.lra.pathfinder_images``).
    The benchmark's own images are not read: these are drawn again, the data seed decides which.
    Drawing the published number takes a core about twenty minutes; they are kept under
    HSWEEP_CACHE, and an interrupted run goes on where it was.

    Batches are pairs (x, y): x of shape (batch, 1024), int64, the pixels 0 to 255 row by row, and
    labels y of shape (batch,), int64. A model maps x to logits (batch, 2). Black is token 0, which
    published models take for padding.

    Attributes:
        contour_length: dashes of the two long contours.
        distractor_length: dashes of a short contour; None for a third of a long one.
        num_distractors: short contours tried; None for as many as have 20 dashes together.
        continuity: how straight contours are, at least 1.
        contrast: brightness of a dash as a share of a marker's, in (0, 1].
        num_train: training images.
        num_validation: validation images.
        num_test: test images.

    Raises:
        ValueError: a setting out of its range.
    """

    contour_length: int = 14
    distractor_length: int | None = None
    num_distractors: int | None = None
    continuity: float = 1.0
    contrast: float = 0.9
    num_train: int = 160_000
    num_validation: int = 20_000
    num_test: int = 20_000

    name = "pathfinder"
    metrics = token_metrics(even_shares(2))
    first_id = 0
    image_size = 32

    def __post_init__(self) -> None:
        counts = ("distractor_length", "num_train", "num_validation", "num_test")
        self.settle(
            {
                "contour_length": at_least(2),
                **dict.fromkeys(counts, at_least(1)),
                "num_distractors": at_least(0),
            }
        )
        if self.distractor_length is None:
            object.__setattr__(self, "distractor_length", max(1, self.contour_length // 3))
        if self.num_distractors is None:
            object.__setattr__(self, "num_distractors", 20 // self.short_length)
        for field, rule, low, high in (
            ("continuity", "of at least 1", 1.0, math.inf),
            ("contrast", "in (0, 1]", math.ulp(0.0), 1.0),
        ):
            value = getattr(self, field)
            if isinstance(value, bool | str) or not (low <= value <= high and value < math.inf):
                raise ValueError(f"{field} must be a number {rule}, not {value!r}")
            object.__setattr__(self, field, float(value))

    @property
    def short_length(self) -> int:
        """Dashes of a short contour."""
        assert self.distractor_length is not None
        return self.distractor_length

    @property
    def num_short(self) -> int:
        """Short contours tried."""
        assert self.num_distractors is not None
        return self.num_distractors

    @property
    def seq_len(self) -> int:
        """Tokens of a sequence, the pixels of an image."""
        return self.image_size**2

    def spec(self) -> TokenSpec:
        """Return what a model has to know, from the settings alone."""
        return TokenSpec(self.seq_len, PIXEL_VOCABULARY, num_classes=2)

    def fingerprint(self) -> str:
        """Return a hash of the definition; the data follow from it and the data seed."""
        return definition_digest(self, _VERSION)

    def set_digest(self) -> str:
        """Return a hash of what decides the images, leaving out how they are used."""
        return definition_digest(self, _VERSION, leave_out=USES)

    def examples(self, data_seed: int) -> "tuple[Texts, dict[str, Examples]]":
        """See ``tasks.lra.pathfinder_data.examples``."""
        from tasks.lra.pathfinder_data import examples

        return examples(self, data_seed)
