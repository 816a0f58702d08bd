"""A question put to any table, as `hsweep analyze --table` does."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pandas as pd

from analysis import lean, pareto, transition
from analysis.answer import Answer
from analysis.findings.chosen_settings import with_settings
from analysis.findings.results import LeanSettings, ParetoSettings, TransitionSettings
from analysis.questions.conditioning import fit as conditioning
from analysis.questions.conditioning.result import ConditioningSettings
from analysis.questions.conditioning.text import conditioning_sentence
from analysis.questions.effects import fit as effects
from analysis.questions.effects.result import EffectsSettings
from analysis.questions.effects.text import effects_sentence
from analysis.questions.surrogate import fit as surrogate
from analysis.questions.surrogate.result import SurrogateSettings
from analysis.questions.surrogate.text import surrogate_sentence
from analysis.runs.columns import numbers_if_all_are
from analysis.runs.load import read_table
from analysis.runs.shape_runs import read_shapes
from analysis.runs.statuses import read_statuses
from analysis.shape_answers import read_shapes_to_predict
from analysis.words.wording import answer_sentence
from hsweep.design.question import Goal, Scale
from hsweep.design.space import parse_values
from hsweep.errors import UserError, unknown_name
from hsweep.record.tables import is_probed, trials_columns

_BOOKKEEPING: Final = frozenset(trials_columns())
"""Columns of a study's own table that are neither axis nor metric."""
_USUAL_REPLICATE: Final = "seed"


def ask_table(
    path: Path,
    *,
    kind: str | None,
    metric: str | None,
    goal: Goal | None,
    x: str | None,
    by: str | None,
    scale: Scale | None,
    eval_size: int | None,
    replicate: str,
    config: Sequence[str],
    costs: Sequence[str],
    baseline: str | None,
    margin: float | None,
    status_column: str | None,
    complete: str,
    budget_column: str | None,
    target_budget: float | None,
    condition: str | None = None,
    prediction: str | None = None,
    pruned: Sequence[str] = (),
    failed: Sequence[str] = (),
    history: Path | None = None,
    settings: Sequence[str] = (),
    nuisance: Sequence[str] = (),
    predict: Sequence[str] = (),
) -> Answer:
    """Answer a question from the table at ``path``; the arguments are the command's options.

    ``pruned`` and ``failed`` are further status words, ``history`` holds the reports of the runs,
    ``settings`` are texts such as ``delta_T=0.2``, ``nuisance`` names axes whose values compete,
    ``predict`` holds shapes such as ``heads=8,depth=3``.

    Raises:
        UserError: an option that is missing or does not fit the table.
    """
    if kind is None:
        raise UserError(
            "a table needs --kind transition, pareto, lean, conditioning, effects or surrogate"
        )
    if metric is None:
        raise UserError("a table needs --metric, the column of the result")
    frame = read_table(path).apply(numbers_if_all_are)
    if metric not in frame:
        raise unknown_name("column", metric, map(str, frame.columns))
    if replicate not in frame and replicate != _USUAL_REPLICATE:
        raise unknown_name("column", replicate, map(str, frame.columns))
    if pruned or failed:
        frame, status_column = _with_words(frame, status_column, complete, pruned, failed)
        complete = "finished"
    if history is not None and kind != "transition":
        raise UserError("--history belongs to --kind transition")
    if predict and kind != "surrogate":
        raise UserError("--predict belongs to --kind surrogate")
    common: dict[str, Any] = {
        "metric": metric,
        "replicate": replicate if replicate in frame else None,
        "status_column": status_column,
        "complete": complete,
        "budget_column": budget_column,
        "target_budget": target_budget,
    }
    if kind == "transition":
        if x is None and "heads" not in frame:
            raise UserError(f"name the searched axis with --x COLUMN; {_columns(frame)}")
        if by is None and "seq_len" not in frame:
            raise UserError(
                f"name the modulating axis with --by COLUMN, or --by '' for none; {_columns(frame)}"
            )
        by = "seq_len" if by is None else by or None
        found = transition.fit(
            frame,
            x=x or "heads",
            by=by,
            goal=goal or ("max" if scale == "accuracy" else "min"),
            scale=scale or ("accuracy" if goal == "max" else "error"),
            eval_size=eval_size,
            nuisance=nuisance,
            history=None if history is None else read_table(history),
            settings=with_settings(TransitionSettings(), settings),
            **common,
        )
        return Answer(answer_sentence(found), transition=found)
    for name in nuisance:
        if name not in frame:
            raise unknown_name("column in --nuisance", name, map(str, frame.columns))
        if name in config:
            raise UserError(
                f"{name!r} is given with --config and with --nuisance; a nuisance axis is none of "
                "the shape"
            )
    measured = [*costs, *(name for name in (condition, prediction) if name is not None)]
    measured += nuisance
    shape = list(config) or _shape_columns(frame, metric, replicate, measured, common)
    if kind == "conditioning":
        if not config and _has_coupled_heads(frame) and "head_dim" not in shape:
            shape.append("head_dim")
        scale = scale or ("error" if goal == "min" else "accuracy")
        correlated = conditioning.fit(
            frame,
            config=shape,
            x=x or "heads",
            goal=goal or ("max" if scale == "accuracy" else "min"),
            scale=scale,
            condition=condition or conditioning.CONDITION,
            prediction=prediction,
            size=costs[0] if costs else None,
            settings=with_settings(ConditioningSettings(), settings),
            **common,
        )
        return Answer(conditioning_sentence(correlated), conditioning=correlated)
    if kind in ("effects", "surrogate"):
        common |= {
            "config": shape if x is None else list(dict.fromkeys([*x.split(","), *shape])),
            "goal": goal or ("min" if scale in ("error", "loss") else "max"),
            "scale": scale,
            "eval_size": eval_size,
            "costs": tuple(costs) or ("num_params",),
        }
        if kind == "effects":
            settled = with_settings(EffectsSettings(), settings)
            shapes = read_shapes(frame, **common, crash_sd=settled.crash_sd)
            told = effects.fit(shapes, settings=settled)
            return Answer(effects_sentence(told), effects=told)
        chosen = SurrogateSettings() if margin is None else SurrogateSettings(margin=margin)
        chosen = with_settings(chosen, settings)
        learned = surrogate.fit(
            read_shapes(frame, **common, crash_sd=chosen.crash_sd),
            baseline=None if baseline is None else _baseline(baseline, shape, frame),
            shapes=read_shapes_to_predict(predict),
            settings=chosen,
        )
        return Answer(surrogate_sentence(learned), surrogate=learned)
    if not costs and "num_params" not in frame:
        raise UserError(f"name what to keep small with --cost COLUMN; {_columns(frame)}")
    if metric in costs:
        raise UserError(f"{metric!r} cannot be both the metric and a cost")
    common |= {
        "config": shape,
        "goal": goal or ("min" if scale in ("error", "loss") else "max"),
        "costs": tuple(costs) or ("num_params",),
        "nuisance": tuple(nuisance),
    }
    if kind == "pareto":
        front = pareto.fit(frame, settings=with_settings(ParetoSettings(), settings), **common)
        return Answer(answer_sentence(front), pareto=front)
    if baseline is None or margin is None:
        raise UserError(
            "a lean question needs --baseline (heads=12,depth=12, or a name) and --margin: how "
            "much worse still counts as equal has no default"
        )
    equivalents = lean.fit(
        frame,
        baseline=_baseline(baseline, shape, frame),
        margin=margin,
        settings=with_settings(LeanSettings(), settings),
        **common,
    )
    return Answer(answer_sentence(equivalents), lean=equivalents)


def _columns(frame: pd.DataFrame) -> str:
    return f"the table has: {', '.join(map(str, frame.columns))}"


def _with_words(
    frame: pd.DataFrame,
    status_column: str | None,
    complete: str,
    pruned: Sequence[str],
    failed: Sequence[str],
) -> tuple[pd.DataFrame, str]:
    """Return the table with the user's words for stopped and failed runs replaced by ours."""
    column = status_column or "status"
    if column not in frame:
        raise UserError(f"--pruned and --failed need the column of the words; there is no {column}")
    words = read_statuses(frame[column], column, complete=complete, pruned=pruned, failed=failed)
    return frame.assign(**{column: words}), column


def _has_coupled_heads(frame: pd.DataFrame) -> bool:
    """Return whether ``head_dim`` tells shapes apart, by its empty entries too."""
    return "head_dim" in frame and frame["head_dim"].nunique(dropna=False) > 1


def _shape_columns(
    frame: pd.DataFrame, metric: str, replicate: str, costs: Sequence[str], common: dict[str, Any]
) -> list[str]:
    """Return the columns that name a shape.

    A column ``config``; else one of names that fixes all others; else all that hold names or whole
    numbers, serve for nothing else and do not vary between the seeds of a shape.
    """
    if "config" in frame:
        return ["config"]
    other = {metric, replicate, *costs, *_BOOKKEEPING}
    other |= {common["status_column"], common["budget_column"]}
    shape = [
        str(name)
        for name in frame.columns
        if name not in other
        and not is_probed(str(name))
        and frame[name].nunique() > 1
        and not _is_measured(frame[name])
    ]
    if replicate in frame:
        for name in list(shape):
            rest = [column for column in shape if column != name]
            if rest and not frame.duplicated([*rest, replicate]).any():
                groups = frame.groupby(rest, dropna=False)[name]
                if (groups.nunique(dropna=False) > 1).any():
                    shape = rest
    if not shape:
        raise UserError("no column names the shape; give one with --config COLUMN")
    for name in shape:
        rest = [column for column in shape if column != name]
        is_text = not pd.api.types.is_numeric_dtype(frame[name])
        if is_text and (frame.groupby(name)[rest].nunique(dropna=False) <= 1).all(axis=None):
            return [name]
    return shape


def _is_measured(column: "pd.Series[Any]") -> bool:
    if not pd.api.types.is_float_dtype(column):
        return False
    return bool(column.isna().any()) or column.nunique() > len(column) // 2


def _baseline(text: str, shape: Sequence[str], frame: pd.DataFrame) -> dict[str, Any]:
    """Read a baseline: column=value pairs with commas between, or a value of one column."""
    if "=" not in text or (len(shape) == 1 and text in set(frame[shape[0]])):
        if len(shape) == 1:
            values = frame[shape[0]]
            return {shape[0]: _single(text) if pd.api.types.is_numeric_dtype(values) else text}
        holding = [name for name in shape if text in set(frame[name].astype(str))]
        if len(holding) == 1 and not pd.api.types.is_numeric_dtype(frame[holding[0]]):
            return {holding[0]: text}
        raise UserError(
            f"--baseline {text!r} names no column; write {shape[0]}=VALUE,... for the shape's "
            f"columns {', '.join(shape)}"
        )
    pairs = [part.partition("=") for part in text.split(",")]
    for column, equals, value in pairs:
        if not equals or not value:
            raise UserError(f"--baseline is COLUMN=VALUE,COLUMN=VALUE; got {text!r}")
        if column.strip() not in shape:
            raise unknown_name("column in --baseline", column.strip(), shape)
    return {column.strip(): _single(value) for column, _, value in pairs}


def _single(text: str) -> Any:
    return parse_values(text)[0]
