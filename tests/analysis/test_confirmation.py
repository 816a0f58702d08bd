"""The suggested confirmation is a command that runs, with the two shapes alone and fresh seeds."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from hsweep.paths import Home
from hsweep.record.study import StudyFolder

SHAPES = '''"""Is a narrower map as good?"""
from hsweep import epochs, grid, lean
from tiny import TinyTask, tiny_sweep

SWEEP = tiny_sweep(
    name="shapes",
    space=grid(width=[4, 6, 8], heads=[1, 2]),
    task=TinyTask(dim=3),
    budget=epochs(12),
    replicates=3,
    question=lean({"width": 8, "heads": 2}, margin=0.5, scale="error"),
)
'''

Invoke = Callable[..., Result]


def test_the_command_runs_the_choice_and_the_baseline_on_seeds_never_seen(
    hsweep: Invoke, home: Home, tmp_path: Path
) -> None:
    path = tmp_path / "shapes.py"
    path.write_text(SHAPES)
    first = hsweep("run", path, "--study", "s", "--runner", "inline", "--seed", 3, "--json")
    assert first.exit_code == 0, first.output
    answer = json.loads(first.stdout)
    assert answer["verdict"] == "found"
    (chosen,) = (row["config"] for row in answer["table"] if row["label"] == answer["choice"])

    command = shlex.split(answer["confirm_command"])
    assert command[:2] == ["hsweep", "run"]
    assert command[command.index("--seed") :][:2] == ["--seed", "4"]
    second = hsweep(*command[1:], "--runner", "inline", "--json")
    assert second.exit_code == 0, second.output
    confirmed = json.loads(second.stdout)
    assert confirmed["study"] == "s-confirm"
    assert [row["config"] for row in confirmed["table"]] == [chosen]
    assert confirmed["baseline"] == {"width": 8, "heads": 2}
    # One candidate is no choice, so there is nothing left to confirm.
    assert "confirm_command" not in confirmed

    studies = [StudyFolder.open(home, name) for name in ("s", "s-confirm")]
    keys = [set(study.tables()[0]["key"].to_pylist()) for study in studies]
    assert keys[0] & keys[1] == set()
    assert len(keys[1]) == 2 * confirmed["baseline_n"]
    assert studies[1].manifest.points == [{"width": 8, "heads": 2}, chosen]
    # A study that was kept to points resumes with these alone.
    resumed = hsweep("resume", "s-confirm", "--runner", "inline", "--json")
    assert json.loads(resumed.stdout)["trials"] == len(keys[1])


class TestPoints:
    def plan(self, hsweep: Invoke, tmp_path: Path, *arguments: object) -> Result:
        path = tmp_path / "shapes.py"
        path.write_text(SHAPES)
        return hsweep("plan", path, *arguments, "--json")

    def test_only_the_named_points_are_planned(self, hsweep: Invoke, tmp_path: Path) -> None:
        result = self.plan(
            hsweep, tmp_path, "--point", "width=4,heads=1", "--point", "width=8, heads=2"
        )
        content = json.loads(result.stdout)
        assert {tuple(trial["point"].values()) for trial in content["trials"]} == {(4, 1), (8, 2)}

    def test_some_axes_are_enough(self, hsweep: Invoke, tmp_path: Path) -> None:
        content = json.loads(self.plan(hsweep, tmp_path, "--point", "heads=2").stdout)
        assert {trial["point"]["heads"] for trial in content["trials"]} == {2}
        assert content["totals"]["points"] == 3

    @pytest.mark.parametrize(
        ("point", "message"),
        [
            ("width=5", "no point of the space has width=5"),
            ("depth=2", "unknown axis in --point 'depth'"),
            ("width", "is not of the form NAME=VALUE"),
            ("width=4,6", "is not of the form NAME=VALUE"),
        ],
    )
    def test_points_that_are_none_are_named(
        self, hsweep: Invoke, tmp_path: Path, point: str, message: str
    ) -> None:
        result = self.plan(hsweep, tmp_path, "--point", point)
        assert result.exit_code == 2
        assert message in result.stderr

    def test_tuples_are_values(self, hsweep: Invoke, tmp_path: Path) -> None:
        path = tmp_path / "stages.py"
        path.write_text(
            "from hsweep import grid\nfrom tiny import TinyModel, tiny_sweep\n"
            "SWEEP = tiny_sweep(space=grid(stages=[(1, 2), (2, 2)], width=[2, 4]),"
            " model=lambda p: TinyModel(p.width))\n"
        )
        result = hsweep("plan", path, "--point", "stages=(2, 2),width=4", "--json")
        (trial,) = json.loads(result.stdout)["trials"]
        assert trial["point"] == {"stages": [2, 2], "width": 4}
