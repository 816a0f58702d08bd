"""Compiled models train to the same numbers, up to rounding, and leave the same checkpoints."""

import shutil
import sysconfig
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from stepped_trial import train_stepwise
from tiny import tiny_sweep
from tiny_runs import assignment_of, content, planned, saved
from torch import nn

from hsweep import Recipe, UserError, epochs, grid
from hsweep.coordination.runner import InlineRunner
from hsweep.design.trial import Resources, Trial
from hsweep.planning.plan import make_plan
from hsweep.running.run import connect
from hsweep.training import compiled as compiler
from hsweep.training import loop
from hsweep.training.compiled import compiled, is_graphed
from models.retrieval import RetrievalTransformer
from tasks.synthetic.retrieval import Retrieval

CPU = torch.device("cpu")
RECIPE = Recipe(lr=0.01, batch_size=16, clip_norm=1.0)


def retrieval(compile: Any, **changes: Any) -> Trial:  # noqa: A002
    sweep = tiny_sweep(
        space=grid(width=[1]),
        task=Retrieval(seq_len=8, dim=2, num_train=64, num_validation=32),
        model=lambda _: RetrievalTransformer(heads=2, head_dim=8, seq_len=8, input_dim=2),
        recipe=replace(RECIPE, compile=compile, **changes),
        budget=epochs(4),
    )
    return planned(sweep)[0]


EAGER, COMPILED = retrieval("off"), retrieval("on")


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Traced and divided into forward and backward as ever, but for the kernels."""
    monkeypatch.setattr(loop, "compiled", partial(compiled, backend="aot_eager"))


def reports_of(trial: Trial, folder: Path, **more: Any) -> list[Any]:
    return [content(report) for report in train_stepwise(assignment_of(trial, folder, **more))]


def values(reports: list[Any]) -> list[float]:
    return [value for report in reports for value in report[2].values()]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[list[Any], dict[str, Any]]]:
    """Reports and the last checkpoint of a trial: as it is, and compiled, twice."""
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "compiled", partial(compiled, backend="aot_eager"))
        for name, trial in (("eager", EAGER), ("compiled", COMPILED), ("again", COMPILED)):
            folder = tmp_path_factory.mktemp(name)
            found[name] = (reports_of(trial, folder, checkpoint_seconds=0.0), saved(folder, trial))
    return found


def test_a_compiled_trial_is_the_same_up_to_rounding_and_repeats_to_the_bit(runs: Any) -> None:
    (eager, _), (found, _), (again, _) = runs.values()
    assert values(found) == pytest.approx(values(eager), rel=1e-4)
    assert again == found


def test_checkpoints_do_not_tell_whether_a_model_was_compiled(runs: Any) -> None:
    (_, eager), (_, other), _ = runs.values()
    for part in ("model", "optimizer"):
        assert shape_of(eager[part]) == shape_of(other[part])


def shape_of(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.shape, value.dtype
    if isinstance(value, dict):
        return {name: shape_of(part) for name, part in value.items()}
    return [shape_of(part) for part in value] if isinstance(value, (list, tuple)) else value


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("first", ["off", "on"])
def test_a_trial_can_go_on_compiled_or_not_from_either_kind_of_checkpoint(
    tmp_path: Path, runs: Any, first: str
) -> None:
    begun, other = (EAGER, COMPILED) if first == "off" else (COMPILED, EAGER)
    whole, _ = runs["eager" if first == "off" else "compiled"]
    generator = train_stepwise(assignment_of(begun, tmp_path))
    assert [content(next(generator)) for _ in range(2)] == whole[:2]  # type: ignore[arg-type]
    generator.close()
    goes_on = replace(other, key=begun.key)
    resumed = reports_of(goes_on, tmp_path, attempt=2, recorded_through=2)
    assert values(resumed) == pytest.approx(values(whole[2:]), rel=1e-4)


def test_the_tenth_compiled_model_of_a_process_is_compiled_like_the_first() -> None:
    # Beyond eight versions of one function torch goes on without compiling, and says nothing.
    seen: list[int] = []

    class Noting(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not torch.compiler.is_compiling():
                seen.append(len(x))
            return x * self.gain

        def __init__(self) -> None:
            super().__init__()
            self.gain = nn.Parameter(torch.ones(()))

    x = torch.ones(4)
    for _ in range(10):
        made = compiled(Noting(), replace(RECIPE, compile="on"), CPU, backend="aot_eager")
        made(x).sum().backward()
    assert seen == []


def test_without_being_asked_nothing_is_compiled() -> None:
    model = nn.Linear(2, 2)
    assert compiled(model, RECIPE, CPU) is model


def test_graphs_are_for_cuda() -> None:
    graphs = replace(RECIPE, compile="graphs")
    assert is_graphed(graphs, torch.device("cuda"))
    assert not is_graphed(graphs, CPU)
    assert not is_graphed(replace(RECIPE, compile="on"), torch.device("cuda"))


def test_it_is_part_of_what_makes_two_trials_the_same() -> None:
    keys = {retrieval(each).key for each in ("off", "on", "graphs")}
    assert len(keys) == 3
    with pytest.raises(UserError, match="compile must be 'off', 'on' or 'graphs', not True"):
        Recipe(compile=True)  # type: ignore[arg-type]


# Without a compiler.


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without a compiler."""
    for name in ("CC", "CXX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    return tmp_path


def test_a_plan_that_cannot_be_compiled_here_is_refused_before_anything_runs(bare: Path) -> None:
    sweep = tiny_sweep(recipe=Recipe(batch_size=8, compile="on"))
    plan = make_plan(sweep, preset="quick", study_seed=0)
    with pytest.raises(UserError, match=r"a C\+\+ compiler \(g\+\+.* is missing; install it, or"):
        connect(InlineRunner(), plan)
    plan = make_plan(tiny_sweep(), preset="quick", study_seed=0)
    connect(InlineRunner(), plan)


@pytest.mark.usefixtures("bare")
def test_a_worker_without_a_compiler_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a C\+\+ compiler"):
        reports_of(COMPILED, tmp_path)


def test_a_compiler_that_is_named_counts(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: name if name == "icpx" else None)
    assert "C++ compiler" in compiler.what_is_missing("cpu")
    monkeypatch.setenv("CXX", "icpx -O2")
    assert "C++ compiler" not in compiler.what_is_missing("cpu")


def test_headers_and_triton_are_needed_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: name)
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    assert "Python.h" in compiler.what_is_missing("cpu")
    (tmp_path / "Python.h").touch()
    assert compiler.what_is_missing("cpu") == ""
    monkeypatch.setattr(compiler, "find_spec", lambda name: None)
    assert compiler.what_is_missing("cuda") == "the package triton"
    sweep = tiny_sweep(
        recipe=Recipe(batch_size=8, compile="graphs"), resources=Resources(cpus=1, gpus=1)
    )
    assert "triton" in compiler.cannot_be_compiled(planned(sweep))


# With a compiler.


@pytest.mark.slow
# The compiler warns of its own parts when it is first loaded.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_kernels_are_made_once_for_all_trials_of_a_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = compiler.what_is_missing("cpu")
    if missing:
        pytest.skip(f"{missing} is missing")
    from torch._dynamo.utils import counters

    monkeypatch.setenv("HSWEEP_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    eager = reports_of(EAGER, tmp_path / "eager")
    found, hits = [], []
    for number in range(2):
        counters.clear()
        found.append(reports_of(COMPILED, tmp_path / str(number)))
        hits.append(
            sum(counters["inductor"][each] for each in ("fxgraph_cache_hit",))
            + sum(counters["aot_autograd"][each] for each in ("autograd_cache_hit",))
        )
    assert values(found[0]) == pytest.approx(values(eager), rel=1e-3)
    assert found[1] == found[0]
    assert hits[0] == 0
    assert hits[1] > 0
    assert any((tmp_path / "cache" / "compiled").rglob("*.so"))
