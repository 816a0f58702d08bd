"""The planner's findings as a sentence and a table, for the terminal and for pages."""

from analysis.questions.power.result import Design, LeanPowerResult, PowerResult, PowerRow
from analysis.text.numbers import NONE, number_text, percent_text
from analysis.text.tables import Table


def power_sentence(result: PowerResult) -> str:
    sentences = []
    target = percent_text(result.settings.target)
    for jump, index in result.recommended.items():
        size = f"For a jump of {number_text(jump)} {result.unit}"
        if index < 0:
            rows = (row for row in result.table if row.jump == jump)
            best = max(rows, key=lambda row: row.power.estimate)
            share = percent_text(best.power.estimate)
            sentences.append(
                f"{size} none of these designs reaches {target} (best: {_design(result, best)}, "
                f"{share})."
            )
        else:
            row = result.table[index]
            note = ", the sweep's own design" if row.design.is_own else ""
            sentences.append(
                f"{size} the smallest design with power of at least {target} is "
                f"{_design(result, row)}: {row.trials} trials{note}."
            )
    return " ".join(sentences)


def power_table(result: PowerResult) -> Table:
    jumps = [f"jump {number_text(jump)} {result.unit}" for jump in result.recommended]
    rows: dict[Design, list[str]] = {}
    for row in result.table:
        mark = " (this sweep)" if row.design.is_own else ""
        cells = rows.setdefault(row.design, [_design(result, row) + mark, str(row.trials)])
        low, high = (percent_text(round(end, 2)) for end in row.power[1:])
        cells.append(f"{percent_text(row.power.estimate)} ({low} to {high})")
    noise, truth, settings = result.noise, result.collapse, result.settings
    note = (
        f"Share of {settings.sweeps} simulated sweeps with the verdict collapse, 95% interval "
        f"beside it. Noise {noise.source}: {number_text(noise.seed_sd)} {result.unit} between "
        f"seeds, {number_text(noise.cell_sd)} between cells, {number_text(noise.head_sd)} between "
        f"values of {result.x}. The jump is at {result.x} = {number_text(truth.h_star)} and comes "
        f"on top of a decline of {number_text(truth.decline)} a step before it. Each fit takes "
        f"{settings.n_mc} draws of the null (an analysis takes 999).{result.choice.words}"
    )
    return Table(("design", "trials", *jumps), tuple(map(tuple, rows.values())), note)


def lean_power_sentence(result: LeanPowerResult) -> str:
    if result.sd is None:
        return (
            f"How many seeds the margin of {number_text(result.margin)} needs depends on the seed "
            "standard deviation, which nothing has shown yet: see the table, and ask again with "
            "--study once a few seeds have run."
        )
    ((ratio, enough),) = result.enough.items()
    power = result.power[ratio].get(result.own_seeds)
    chance = "" if power is None else f" (with {result.own_seeds} it is {percent_text(power)})"
    margin = f"The margin of {number_text(result.margin)} is {number_text(ratio)} seed sd; "
    target = percent_text(result.target)
    if enough is None:
        return f"{margin}even 200 seeds do not reach a power of {target}{chance}; widen it."
    return (
        f"{margin}{enough} seeds find an exactly equal shape among {result.candidates} candidates "
        f"with a power of at least {target}{chance}."
    )


def lean_power_table(result: LeanPowerResult) -> Table:
    seeds = list(next(iter(result.power.values())))
    header = (
        "margin / seed sd",
        *(f"{n} seeds{' (this sweep)' * (n == result.own_seeds)}" for n in seeds),
        f"seeds for {percent_text(result.target)}",
    )
    rows = tuple(
        (
            number_text(ratio),
            *(percent_text(powers[n]) for n in seeds),
            "over 200" if result.enough[ratio] is None else str(result.enough[ratio]),
        )
        for ratio, powers in result.power.items()
    )
    note = (
        f"Chance to establish one exactly equal shape among {result.candidates} cheaper ones at a "
        f"family-wise error of {number_text(result.alpha)}, the others taken to be hopeless. Seed "
        f"sd: {result.source}.{result.choice.words}"
    )
    return Table(header, rows, note)


def _design(result: PowerResult, row: PowerRow) -> str:
    design = row.design
    seeds = f"{design.seeds} seed{'' if design.seeds == 1 else 's'}"
    if result.by is None:
        return seeds
    listed = ", ".join(NONE if length is None else f"{length:g}" for length in design.lengths)
    return f"{len(design.lengths)} {result.by} ({listed}) x {seeds}"
