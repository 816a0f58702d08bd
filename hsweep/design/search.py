"""The ways to choose points from a space."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from hsweep.design.domain import AxisValue
from hsweep.design.scales import Goal
from hsweep.errors import (
    UserError,
    check_choice,
    check_whole,
    format_error,
    is_number,
    shown,
)

if TYPE_CHECKING:
    import optuna
    from optuna.samplers import BaseSampler

    from hsweep.design.space import Space

NOT_ASKED: Final = "the search did not ask for it"
"""Why a trial that a search could have asked for was not needed."""
Constraint = tuple[str, Literal["<=", ">="], float]
"""A cost that is known before training, and its bound."""
_SAMPLERS: Final = {"tpe": "TPE", "gp": "GP", "nsga2": "NSGAII", "cmaes": "CmaEs"}
_COSTS: Final = ("num_params", "flops_per_example", "train_memory_bytes")


@dataclass(frozen=True, slots=True)
class Search:
    """The order and choice of points.

    Attributes:
        method: ``grid`` runs every point of a finite space; ``random`` draws; ``optuna`` lets a
            sampler of Optuna propose, learning from the trials that ended;
            ``adaptive`` trains, round by round, what of a finite space the question asks for.
        num_points: points to draw or propose; None for a grid.
        also: further objectives, as (column, goal), for a multi-objective search; the columns are
            metrics or ``num_params``, ``flops_per_example``, ``train_memory_bytes``.
        sampler: of Optuna, by name or as an object with a seed of its own.
        start_from: name of a study whose finished trials the sampler knows from the start.
        constraint: a bound on one of these costs; what lies beyond it is not trained.

    Raises:
        UserError: a search without a number of points, or objectives or a constraint that it
            cannot use.
    """

    method: Literal["grid", "random", "optuna", "adaptive"] = "grid"
    num_points: int | None = None
    also: tuple[tuple[str, Goal], ...] = ()
    sampler: "str | BaseSampler" = "tpe"
    start_from: str = ""
    constraint: Constraint | None = None

    def __post_init__(self) -> None:
        check_choice("search method", self.method, ("grid", "random", "optuna", "adaptive"))
        if self.lists_points and self.num_points is not None:
            raise UserError(f"a {self.method} search takes no num_points")
        if not self.lists_points:
            check_whole(f"num_points of a {self.method} search", self.num_points, 1)
        if self.also and self.method != "optuna":
            raise UserError("further objectives need an optuna search")
        objectives: object = self.also
        if not isinstance(objectives, tuple) or not all(
            isinstance(pair, tuple)
            and len(pair) == 2
            and isinstance(pair[0], str)
            and pair[1] in ("min", "max")
            for pair in objectives
        ):
            raise UserError(
                "also must be pairs of a column and 'min' or 'max', as (('num_params', 'min'),), "
                f"not {shown(objectives)}"
            )
        match self.constraint:
            case None:
                return
            case (name, "<=" | ">=", bound) if name in _COSTS and is_number(bound):
                return
        raise UserError(
            f"constraint must be one of {', '.join(_COSTS)}, '<=' or '>=', and a number, as "
            f"('num_params', '<=', 60e6), not {shown(self.constraint)}"
        )

    def excess(self, costs: Mapping[str, int]) -> float:
        """Return by how much the costs of a point exceed the constraint, at most 0 within it;
        UserError if the cost is not known."""
        name, sign, bound = self.constraint or ("", "<=", 0)
        if name and name not in costs:
            raise UserError(f"the search bounds {name}, which describe= has to return")
        return (costs.get(name, 0) - bound) * (1 if sign == "<=" else -1)

    def new_study(self, seed: int, goals: Sequence[Goal]) -> "optuna.Study":
        """Return a study of Optuna in memory; a sampler that is an object has its own seed.

        Raises:
            UserError: no sampler, or one whose package is missing.
        """
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        sampler = copy.deepcopy(self.sampler)
        if isinstance(sampler, str) and sampler in _SAMPLERS:
            try:
                kind = getattr(optuna.samplers, f"{_SAMPLERS[sampler]}Sampler")
                sampler = kind(seed=seed % 2**32)
            except ImportError as error:
                raise UserError(
                    f"the sampler {sampler!r} needs a package: pip install {sampler} ({error})"
                ) from error
        if not isinstance(sampler, optuna.samplers.BaseSampler):
            names = ", ".join(map(repr, _SAMPLERS))
            raise UserError(f"sampler must be {names} or one of Optuna's, not {shown(sampler)}")
        directions: Any = [f"{goal}imize" for goal in goals]
        return optuna.create_study(sampler=sampler, directions=directions)

    def check_sampler(self, space: "Space") -> None:
        """Refuse a sampler that cannot search a space, or that begins in another way each time: a
        search that goes on asks again for what it proposed."""
        goals: list[Goal] = ["min" for _ in range(1 + len(self.also))]
        studies = [self.new_study(0, goals), self.new_study(0, goals)]
        try:
            ranges = space.to_optuna()
            one, other = ([study.ask(ranges).params for _ in range(5)] for study in studies)
        except Exception as error:
            raise UserError(f"Optuna cannot search this space: {format_error(error)}") from error
        if one != other:
            raise UserError(
                f"the sampler {type(self.sampler).__name__} proposes other points each time, so a "
                "study could not go on as it was; give it a seed"
            )

    @property
    def lists_points(self) -> bool:
        """Whether all points of the space are planned."""
        return self.method in ("grid", "adaptive")

    @property
    def is_sequential(self) -> bool:
        """Whether the question asks for trials round by round, by the values of those before."""
        return self.method == "adaptive"


def grid_search() -> Search:
    """Return the search that runs every point of a finite space."""
    return Search()


def adaptive_search() -> Search:
    """Return the search that trains, round by round, what the sweep's question needs: the head
    counts at which the error may collapse, a race of cheaper shapes against the baseline, the
    shapes of which it is undecided whether they lie on the front. It has seeds of its own, in place
    of ``replicates``."""
    return Search("adaptive")


def random_search(num_points: int) -> Search:
    """Return the search that draws ``num_points`` different points."""
    return Search("random", num_points)


def optuna_search(
    num_points: int,
    *,
    also: tuple[tuple[str, Goal], ...] = (),
    sampler: "str | BaseSampler" = "tpe",
    start_from: str = "",
    constraint: Constraint | None = None,
) -> Search:
    """Return the search that lets Optuna propose ``num_points`` points, one after another (see
    ``Search``)."""
    return Search("optuna", num_points, also, sampler, start_from, constraint)


def search_named(name: AxisValue) -> Search:
    """Return the search that ``--search`` names: ``adaptive`` or ``grid``; UserError for another
    name."""
    check_choice("search", name, ("adaptive", "grid"))
    return adaptive_search() if name == "adaptive" else grid_search()
