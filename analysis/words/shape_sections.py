"""What the page and the terminal say in tables of effects and of the surrogate."""

import dataclasses

from analysis.questions.effects.result import EffectsResult
from analysis.questions.effects.text import (
    effects_sentence,
    effects_table,
    equal_cost_table,
    interaction_table,
)
from analysis.questions.surrogate.result import SurrogateResult
from analysis.questions.surrogate.text import (
    left_out_table,
    predictions_table,
    surrogate_sentence,
)
from analysis.words.tables import Table


def shape_sections(
    effects: EffectsResult | None, surrogate: SurrogateResult | None, *, said: bool = False
) -> list[tuple[str, Table]]:
    """Return the tables with their titles; ``said`` is whether their sentences stand elsewhere."""
    found: list[tuple[str, Table]] = []
    if effects is not None:
        table = effects_table(effects)
        if not said:
            table = dataclasses.replace(table, note=f"{effects_sentence(effects)} {table.note}")
        found.append(("Effects of single axes", table))
        if effects.interactions:
            found.append(("Axes together", interaction_table(effects)))
        if effects.equal_cost:
            found.append(("Shapes of equal cost", equal_cost_table(effects)))
    if surrogate is not None:
        if surrogate.predictions:
            asked = predictions_table(surrogate, surrogate.predictions)
            found.append(("Predicted shapes", asked))
        if surrogate.suggestions:
            untried = predictions_table(surrogate, surrogate.suggestions)
            found.append(("Untried smaller shapes", untried))
        table = left_out_table(surrogate)
        if not said:
            table = dataclasses.replace(table, note=surrogate_sentence(surrogate))
        found.append(("What the surrogate predicts of each shape from the others", table))
    return found
