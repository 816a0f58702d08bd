"""What the analysis says about one simulated sweep, beside what is true of it."""

import time
from dataclasses import dataclass
from functools import partial

from analysis.questions.lean.answer import answer as answer_lean
from analysis.questions.lean.result import LeanResult, LeanSettings
from analysis.questions.transition.result import TransitionResult, TransitionSettings
from analysis.questions.transition.training import with_training
from analysis.runs.ladder import furthest, ladder_of
from analysis.runs.table import Runs
from analysis.statistics.dominance import dominated
from benchmarks.ladders import ladder_sweep, lean_ladder
from benchmarks.shapes import (
    CHANCE,
    LEAN_DESIGNS,
    LEAN_SCALES,
    MARGIN,
    SHAPE_OPTIONS,
    lean_sweep,
    shapes_sweep,
)
from benchmarks.sweeps import Sweep, transition_sweep
from benchmarks.table_fits import fit_lean, fit_pareto, fit_transition
from hsweep.design.scales import ALPHA


@dataclass(frozen=True)
class TransitionOutcome:
    """The answer to one simulated sweep.

    Attributes:
        family: of the sweep.
        verdict: of the leading reading.
        suggested: an open answer that would be a collapse by the noise that stands in.
        ends_at_second: open since one value lies below the drop, which ends there.
        outside: the retrieval dimension leaves out the true one.
        steps_off: grid steps between h* and the truth; None without either.
        covered: the confidence set holds the truth, where there is one.
        set_size: head counts in the confidence set.
        slopes_inside: true slopes within their intervals.
        slopes: intervals given.
        seconds: of CPU time, taken by the analysis.
    """

    family: str
    verdict: str
    suggested: bool
    ends_at_second: bool
    outside: bool
    steps_off: int | None
    covered: bool
    set_size: int
    slopes_inside: int
    slopes: int
    seconds: float

    @property
    def positive(self) -> bool:
        """Whether anything was declared."""
        return self.verdict == "collapse"

    @property
    def exact(self) -> bool:
        """Whether h* is the true one."""
        return self.steps_off == 0


def transition_outcome(
    family: str, seed: int, settings: TransitionSettings, varied: bool = False
) -> TransitionOutcome:
    """Analyse sweep ``seed`` of ``family``."""
    sweep = transition_sweep(family, seed, varied=varied)
    start_time = time.process_time()
    result = fit_transition(sweep.frame, settings=settings, **sweep.options)
    seconds = time.process_time() - start_time
    inside = [
        interval.low <= sweep.slopes[int(heads)] <= interval.high
        for heads, interval in result.gamma.items()
    ]
    return TransitionOutcome(
        family=family,
        verdict=result.verdict,
        suggested=result.suggested,
        ends_at_second=result.verdict == "open" and "cannot be told from" in result.reason,
        outside=result.d_eff is not None
        and sweep.h_star is not None
        and not result.d_eff.lo <= sweep.h_star <= result.d_eff.hi,
        steps_off=_steps_off(sweep, result.h_star),
        covered=sweep.h_star is None or sweep.h_star in result.h_set,
        set_size=len(result.h_set),
        slopes_inside=sum(inside),
        slopes=len(inside),
        seconds=seconds,
    )


def _steps_off(sweep: Sweep, h_star: float | None) -> int | None:
    if sweep.h_star is None or h_star is None:
        return None
    heads = sorted(sweep.slopes)
    return abs(heads.index(int(h_star)) - heads.index(sweep.h_star))


@dataclass(frozen=True)
class BudgetOutcome:
    """Whether the answer to one simulated sweep at several budgets is called settled.

    Attributes:
        family: of the sweep.
        decides: the largest budget has an answer, which may be called settled.
        verdict: settled, moving or unknown; empty where training was not judged.
        right: the answer of the largest budget is that of endless training.
    """

    family: str
    decides: bool
    verdict: str
    right: bool


def budget_outcome(
    family: str, seed: int, settings: TransitionSettings, varied: bool
) -> BudgetOutcome:
    """Analyse sweep ``seed`` of ``family`` at each of its budgets."""
    sweep = ladder_sweep(family, seed, varied=varied)
    answer = partial(fit_transition, settings=settings)
    runs = Runs(sweep.frame, "nmse", {"budget_column": "budget"})
    result = with_training(answer(runs), ladder_of(runs, ["heads", "seq_len"]), answer)
    right = result.verdict == "none"
    if sweep.h_star is not None:
        wrong_growth = "gone" if sweep.grows else "stays"
        right = result.is_claimed and result.h_star == sweep.h_star
        # Growth that is said to be open, or that it may change, is not said wrongly.
        is_said = result.sensitivity is None or ", but growth" not in result.sensitivity.reason
        right &= result.growth != wrong_growth or not is_said
    return BudgetOutcome(family, result.sensitivity is not None, _training_verdict(result), right)


def _training_verdict(result: TransitionResult | LeanResult) -> str:
    return result.sensitivity.verdict if result.sensitivity else ""


def lean_budget_outcomes(family: str, seed: int, varied: bool) -> list[BudgetOutcome]:
    """Analyse study ``seed`` of ``family`` at each of its budgets: one a comparison."""
    study = lean_ladder(family, seed, varied=varied)
    base, groups = max(study.frame["shape"]), study.frame["group"].unique()
    question = {"baseline": {"shape": base}, "margin": MARGIN, "config": ["shape"]}
    settings = LeanSettings(alpha=ALPHA / len(groups))
    outcomes = []
    for group in groups:
        rows = study.frame.loc[study.frame["group"] == group]
        ladder = ladder_of(Runs(rows, "top1", {"budget_column": "budget"}), ["shape"])
        last = Runs(furthest(rows, ["shape", "seed"]), "top1")
        result = answer_lean(last, ladder, {**question, "settings": settings})
        limit = study.limit[group]
        worst = limit[base] - MARGIN
        worse = [row for row in result.table if row.outcome == "excluded"]
        right = all(limit[str(row.config["shape"])] < worst for row in worse)
        if result.chosen is not None:
            right &= limit[str(result.chosen.config["shape"])] >= worst
        name = f"lean_{family}_{group}" if group else f"lean_{family}"
        verdict = _training_verdict(result)
        outcomes.append(BudgetOutcome(name, result.decides, verdict, right))
    return outcomes


@dataclass(frozen=True)
class FrontOutcome:
    """P_front of every shape of one simulated sweep, and whether it truly lies on the front."""

    family: str
    probability: tuple[float, ...]
    on_front: tuple[bool, ...]


def front_outcome(family: str, seed: int, seeds: int = 4) -> FrontOutcome:
    """Analyse shapes ``seed`` of ``family``."""
    frame = shapes_sweep(family, seed, seeds=seeds)
    result = fit_pareto(frame, **SHAPE_OPTIONS)
    truth = frame.groupby("shape")[["true", "num_params"]].first()
    off = dominated(truth["true"].to_numpy()[None], truth["num_params"].to_numpy()[None, :, None])[
        0
    ]
    real = dict(zip(truth.index, off == 0, strict=True))
    return FrontOutcome(
        family,
        tuple(row.p_front for row in result.table),
        tuple(bool(real[row.config["shape"]]) for row in result.table),
    )


@dataclass(frozen=True)
class LeanOutcome:
    """The answer about the shapes of one simulated sweep.

    Attributes:
        family: of the sweep.
        verdict: of the comparison.
        wrong: some accepted shape is worse than the baseline by the margin or more.
        is_chosen: a shape was chosen.
        choice_right: the chosen shape is truly no worse by the margin.
        wrongly_excluded: some excluded shape is worse than the baseline by no more than the margin.
    """

    family: str
    verdict: str
    wrong: bool
    is_chosen: bool
    choice_right: bool
    wrongly_excluded: bool


def lean_outcome(family: str, seed: int) -> LeanOutcome:
    """Analyse candidates ``seed`` of ``family``."""
    seeds, candidates = 5, 8
    if family in LEAN_SCALES:
        candidates, seeds = LEAN_DESIGNS[seed % len(LEAN_DESIGNS)]
    frame = lean_sweep(family, seed, candidates=candidates, seeds=seeds)
    true = frame.groupby("shape")["true"].first()
    limit = float(true.iloc[-1]) - MARGIN
    result = fit_lean(
        frame,
        baseline={"shape": str(true.index[-1])},
        margin=MARGIN,
        nuisance=["lr"] if "lr" in frame else [],
        settings=LeanSettings(chance=CHANCE),
        **SHAPE_OPTIONS,
    )
    by_outcome: dict[str, list[float]] = {"established": [], "excluded": [], "undecided": []}
    for row in result.table:
        by_outcome[row.outcome].append(float(true[str(row.config["shape"])]))
    chosen = result.chosen
    # The simulated truth is a sum, which may miss the margin by a last digit.
    return LeanOutcome(
        family=family,
        verdict=result.verdict,
        wrong=any(value <= limit + 1e-9 for value in by_outcome["established"]),
        is_chosen=chosen is not None,
        choice_right=chosen is not None and float(true[str(chosen.config["shape"])]) > limit + 1e-9,
        wrongly_excluded=any(value >= limit - 1e-9 for value in by_outcome["excluded"]),
    )
