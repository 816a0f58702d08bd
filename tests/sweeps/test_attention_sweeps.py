"""The studies of ranks on the nearest neighbour task, and of the Long Range Arena."""

from typing import Any

import pytest
import torch
from published_models import ROWS, model_of
from shipped_plans import planned


class TestNearestNeighborRank:
    def test_the_paper_preset_is_the_grid_of_figure_1(self) -> None:
        plan = planned("nearest_neighbor_rank", "paper")
        assert len(plan.trials) == 7 * 3 * 3 * 5
        for trial in plan.trials:
            point, model = trial.point, trial.model
            assert model.heads * point.rank == point.widening * 64  # type: ignore[union-attr]
            assert model.stage.mlp_dim == 2048  # type: ignore[union-attr]
            assert trial.task.seq_len == 16  # type: ignore[attr-defined]
        recipe, budget = plan.trials[0].recipe, plan.sweep.budget
        assert (recipe.lr, recipe.betas, recipe.batch_size) == (0.01, (0.9, 0.95), 256)
        assert budget.amount * plan.trials[0].task.steps_per_epoch == 100_000  # type: ignore[attr-defined]

    def test_at_equal_width_rank_leaves_the_parameters_as_they_are(self) -> None:
        cells: dict[tuple[int, int], set[int]] = {}
        for trial in planned("nearest_neighbor_rank", "paper").trials:
            key = (trial.point.depth, trial.point.widening)
            cells.setdefault(key, set()).add(trial.counts.num_params)
        assert all(len(counts) == 1 for counts in cells.values())

    def test_replay_meets_the_published_number_of_batches(self) -> None:
        tasks = {trial.task for trial in planned("nearest_neighbor_rank", "replay").trials}
        assert {task.replay_batches for task in tasks} == {100}  # type: ignore[attr-defined]
        quick = planned("nearest_neighbor_rank").trials
        assert {trial.task.replay_batches for trial in quick} == {None}  # type: ignore[attr-defined]

    def test_a_rank_that_does_not_divide_the_width_is_skipped(self) -> None:
        plan = planned("nearest_neighbor_rank", None, (("rank", (3, 4)),))
        assert {point.rank for point in plan.skipped} == {3}
        assert all("rank must divide" in why for why in plan.skipped.values())


class TestLongRangeArena:
    def test_the_paper_preset_holds_the_models_of_table_3(self) -> None:
        rows = [row for row in ROWS if row["table"] == "T3"]
        models: set[Any] = {trial.model for trial in planned("lra_nystromformer", "paper").trials}
        assert rows
        assert {model_of(row) for row in rows} <= models

    @pytest.mark.parametrize(
        ("task", "batch_size", "num_steps", "num_warmup"),
        [
            ("listops", 32, 5_000, 1_000),
            ("text", 32, 20_000, 8_000),
            ("retrieval", 32, 30_000, 800),
            ("image", 256, 35_000, 175),
            ("pathfinder", 256, 62_400, 312),
        ],
    )
    def test_every_task_trains_as_long_as_published(
        self, task: str, batch_size: int, num_steps: int, num_warmup: int
    ) -> None:
        plan = planned("lra_nystromformer", "paper")
        trial = next(each for each in plan.trials if each.point.task == task)
        steps = plan.sweep.budget.amount * trial.task.steps_per_epoch  # type: ignore[attr-defined]
        recipe = trial.recipe
        assert (recipe.batch_size, steps) == (batch_size, num_steps)
        rates = [recipe.lr_at(step, steps) for step in range(steps)]
        assert rates.index(max(rates)) == num_warmup - 1
        assert max(rates) == 1e-4
        assert rates[0] == pytest.approx(4e-6, abs=1e-4 / num_warmup)
        assert rates[-1] < 1e-7

    def test_models_take_what_their_tasks_give(self) -> None:
        for preset in (None, "paper"):
            for trial in planned("lra_nystromformer", preset).trials:
                spec = trial.task.spec()  # type: ignore[attr-defined]
                model: Any = trial.model
                length = (2, spec.seq_len) if spec.num_texts == 2 else (spec.seq_len,)
                assert model.input_shape == length
                assert model.vocab_size >= spec.vocab_size
                assert model.num_classes == spec.num_classes

    def test_missing_data_are_named_and_the_plan_is_made_all_the_same(self) -> None:
        plan = planned("lra_nystromformer", "paper")
        assert len(plan.trials) == 5 * 8 * 3
        problems = "; ".join(plan.data_problems)
        assert len(plan.data_problems) == 3
        assert all(name in problems for name in ("stanfordnlp/imdb", "'aan'", "uoft-cs/cifar10"))
        assert planned("lra_nystromformer", "paper", (("task", ("listops",)),)).data_problems == ()


@pytest.mark.parametrize("name", ["nearest_neighbor_rank", "lra_nystromformer"])
def test_every_model_of_the_quick_preset_takes_a_training_step(name: str) -> None:
    seen = set()
    for trial in planned(name).trials:
        if trial.model in seen:
            continue
        seen.add(trial.model)
        data = trial.task.open(
            data_seed=0, sampling_seed=0, batch_size=4, device=torch.device("cpu")
        )
        loss = data.loss(trial.model.build(), next(iter(data.batches(0))))
        loss.backward()
        assert loss.isfinite()
