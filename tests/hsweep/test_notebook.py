"""Sweeps of scripts and notebooks, and studies as Python has them."""

import importlib
import math
import subprocess
import sys
import textwrap
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
from click.testing import CliRunner
from kernels import Kernel, kernel_in
from tiny_studies import new_study

import hsweep
from hsweep import UserError
from hsweep.cli import main
from hsweep.paths import Home
from hsweep.planning.prepare import loaded_sweep
from hsweep.python import Study

CURVES = """
from helper import height

class Curve:
    def __init__(self, width):
        self.width = width

    def at(self, step):
        return height(self.width) / step


def train(point, run):
    for step in range(1, run.budget + 1):
        loss = Curve(point.width).at(step) + 0.001 * run.seeds.init % 0.001
        run.report(step, loss=math.nan if point.width == 3 else loss)
"""
SWEEP = """
SWEEP = Sweep(
    name="curves",
    space=grid(width={widths}, kind=["a"]),
    train=train,
    describe=lambda point: 10 * point.width,
    metric="loss",
    goal="min",
    budget=epochs(4),
    replicates=2,
    early_stopping=Asha(grace=1, reduction_factor=4, min_survivors=1),
    question=lean({{"width": 8}}, 0.5, scale="loss"),
)
"""
IMPORTS = "import math\nimport hsweep\nfrom hsweep import Asha, Sweep, epochs, grid, lean"
RUN = "study = hsweep.run(SWEEP, runner='inline')"


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    folder = tmp_path_factory.mktemp("notebook")
    (folder / "helper.py").write_text("def height(width):\n    return 1 / width\n")
    with kernel_in(folder) as kernel:
        for cell in (IMPORTS, CURVES, SWEEP.format(widths=[1, 2, 3, 8]), RUN):
            kernel.run(cell)
        yield kernel


@pytest.fixture(scope="module")
def study(notebook: Kernel) -> Study:
    found = notebook["study"]
    assert isinstance(found, Study)
    return found


def test_a_study_of_a_notebook_is_one_like_any_other(notebook: Kernel, study: Study) -> None:
    file = Path("hsweep-home/studies/curves-quick/sweep.py")
    assert "class Curve" in file.read_text()
    assert "hsweep.run" not in file.read_text()
    assert study.status["state"] == "complete"
    assert loaded_sweep(file).folder == Path.cwd()
    reports = len(study.reports)
    command = ["resume", "curves-quick", "--runner", "inline", "--home", "hsweep-home"]
    resumed = CliRunner().invoke(main, command)
    assert resumed.exit_code == 0, resumed.output
    assert len(study.reports) == reports
    assert f"hsweep run {file.absolute()}" in study._record.manifest.command


def test_trials_and_reports_are_tables_with_the_axes(study: Study) -> None:
    trials, reports = study.trials, study.reports
    assert len(trials) == 8
    assert set(trials["status"]) == {"finished", "stopped_early", "diverged"}
    assert list(reports.columns[:6]) == ["key", "width", "kind", "seed", "budget", "unit"]
    assert reports["width"].dtype == trials["width"].dtype == "int64"
    first = reports.loc[reports["unit"] == 1].set_index("key")["loss"]
    assert first[trials.loc[trials["width"] == 8, "key"]].between(1 / 8, 1 / 8 + 0.001).all()
    assert len(reports) == trials["reached"].sum()


def test_the_best_are_finished_trials_by_the_metric(study: Study) -> None:
    best = study.best(2)
    assert list(best["width"]) == [8, 8]
    assert best["loss"].is_monotonic_increasing
    assert set(study.best(100)["status"]) == {"finished"}
    trial = study.trial(best["key"][0])
    assert (trial.value, dict(trial.point)) == (best["loss"][0], {"width": 8, "kind": "a"})


def test_every_figure_of_the_report_can_be_had(study: Study) -> None:
    assert "learning-curves" in study.figures
    for kind in study.figures:
        figure = study.figure(kind)
        assert figure.data
        assert figure.layout.title.text
    curves = study.figure("learning-curves")
    texts = [text for trace in curves.data if trace.meta == "picks" for text in trace.text]
    assert any("width=8" in text for text in texts)
    assert study.figure() == study.figure(study.figures[0])
    with pytest.raises(UserError, match=r"unknown figure of the study.*learning-curves"):
        study.figure("lerning-curves")


def test_the_answer_is_that_of_the_report(study: Study) -> None:
    answer = study.answer()
    assert str(answer) == answer.text
    assert answer.text in repr(answer)
    assert answer.text.split("<")[0][:20] in answer._repr_html_()
    assert "complete, 8 of 8 runs" in repr(study)


def test_optuna_has_the_trials_with_their_ends(study: Study, tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path / 'optuna.db'}"
    found, rows = study.to_optuna(storage), study.trials
    states = [trial.state.name for trial in found.trials]
    ends = {"finished": "COMPLETE", "stopped_early": "PRUNED", "diverged": "FAIL"}
    assert states == [ends[status] for status in rows["status"]]
    best, known = found.best_trial, study.best(1).iloc[0]
    assert (best.user_attrs["key"], best.value) == (known["key"], known["loss"])
    assert best.params == {"width": 8, "kind": "a"}
    assert list(best.intermediate_values) == [1, 2, 3, 4]
    assert best.user_attrs["num_params"] == 80
    assert best.duration is not None
    times = study.reports.loc[study.reports["key"] == known["key"], "time"]
    assert best.datetime_complete is not None
    assert best.datetime_complete.timestamp() == pytest.approx(times.max())
    assert isinstance(best.distributions["width"], optuna.distributions.IntDistribution)
    assert optuna.visualization.plot_slice(found).data
    assert optuna.visualization.plot_intermediate_values(found).data
    with pytest.raises(UserError, match=r"has a study called 'curves-quick'.*delete_study"):
        study.to_optuna(storage)
    assert len(study.to_optuna().trials) == len(rows)


def test_trials_that_wait_are_enqueued_in_optuna(home: Home) -> None:
    new_study(home)
    waiting = hsweep.load("mine", home.root).to_optuna().trials
    assert {trial.state.name for trial in waiting} == {"WAITING"}
    assert [trial.system_attrs["fixed_params"] for trial in waiting] == [
        {"width": 1}, {"width": 2}, {"width": 3},
    ]  # fmt: skip


def test_an_edited_notebook_goes_on(
    notebook: Kernel, study: Study, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook.run(RUN)
    assert "there is nothing to train" in capsys.readouterr().out
    before = study.best(8).set_index("key")["wall_seconds"]
    notebook.run(SWEEP.format(widths=[1, 2, 3, 8, 16]))
    notebook.run("plan = hsweep.plan(SWEEP)")
    assert "width=16" in repr(notebook["plan"])
    assert "10 runs of" in notebook["plan"]._repr_html_()
    assert list(notebook["plan"].trials["width"].unique()) == [1, 2, 3, 8, 16]
    assert list(notebook["plan"].trials["num_params"].unique()) == [10, 20, 30, 80, 160]
    notebook.run(RUN)
    after = notebook["study"].trials.set_index("key")
    assert after.loc[before.index, "wall_seconds"].equals(before)
    assert len(after) == 10
    assert notebook["study"].best(1)["width"][0] == 16
    # Asked again, the study read before knows of it.
    assert study.best(1)["width"][0] == 16

    notebook.run("import helper")
    imported = sys.modules["helper"]
    Path("helper.py").write_text("def height(width):\n    return 100 / width\n")
    notebook.run(RUN)
    assert 25 / 16 <= notebook["study"].best(1)["loss"][0] < 25 / 16 + 0.001
    assert sys.modules["helper"] is imported
    assert imported.height(1) == 1
    assert importlib.reload(imported).height(1) == 100
    notebook.run("loads = hsweep.load('curves-quick').trials")
    assert len(notebook["loads"]) == 10


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("hsweep.run(SWEEP, sed=1)", "unknown option 'sed'.*Did you mean 'seed'"),
        ("hsweep.run(SWEEP, seed=1.5)", "seed: '1.5' is not a valid integer range"),
        ("hsweep.run(SWEEP, reuse='no')", "reuse is True or False, not 'no'"),
        ("hsweep.run(SWEEP, time_budget='soon')", "time_budget: 'soon' is no time"),
        ("hsweep.run(SWEEP, settings=['width=1'])", "settings is a dictionary such as"),
        ("hsweep.run(SWEEP, points={'width': 1})", "points is a list"),
        ("hsweep.run(SWEEP, runner='inline', seed=1)", "was started with seed=0, not 1"),
        ("hsweep.run(SWEEP, runner='inline', storage='here')", "storage is chosen when"),
        ("hsweep.plan(SWEEP, runner='inline')", "unknown option 'runner'"),
        ("hsweep.plan(SWEEP, settings={'wdth': [1]})", "unknown setting 'wdth'"),
        ("hsweep.plan('nowhere.py')", "nowhere.py does not exist"),
        ("hsweep.plan(3)", "give a Sweep, or the path of a sweep file; got 3"),
        ("hsweep.plan(replace(SWEEP, replicates=5))", "has to be loaded again"),
        ("hsweep.load('curves')", "studies there: curves-quick"),
    ],
)
def test_what_cannot_be_done_is_refused_before_a_trial_starts(
    notebook: Kernel, call: str, message: str
) -> None:
    notebook.run("from dataclasses import replace")
    with pytest.raises(UserError, match=message):
        notebook.run(call)


def test_a_sweep_that_its_cells_would_not_make_again_is_refused(notebook: Kernel) -> None:
    length = Path("length")
    length.write_text("5")
    notebook.run("from pathlib import Path\nread = None")
    notebook.run("read = replace(SWEEP, budget=epochs(int(Path('length').read_text())))")
    length.write_text("6")
    with pytest.raises(UserError, match=r"not the one that the cells.*its budget differs.*restart"):
        notebook.run("hsweep.plan(read)")


def test_a_study_is_asked_further_questions(notebook: Kernel, study: Study) -> None:
    front = study.analyze("pareto", cost="num_params")
    assert front.to_json()["kind"] == "pareto"
    lean = study.analyze("lean", margin=0.2, baseline={"width": 8}, settings={"alpha": 0.1})
    assert lean.to_json()["settings"]["alpha"] == 0.1
    for given, message in (
        (("paretto", {}), "Did you mean 'pareto'"),
        (("pareto", {"costs": "num_params"}), "Did you mean 'cost'"),
        (("pareto", {"cost": "nothing"}), "nothing"),
    ):
        with pytest.raises(UserError, match=message):
            study.analyze(given[0], **given[1])
    points = study.points.set_index("width")
    assert [*points.index][:4] == [1, 2, 3, 8]
    of_8 = study.trials.query("width == 8 and status == 'finished'")["loss"]
    assert points.loc[8, ["seeds", "lowest"]].to_list() == [len(of_8), of_8.min()]
    assert points.loc[3, "seeds"] == 0
    assert "curves-quick" in hsweep.studies().index
    assert "width" in study.report.read_text()


def test_a_notebook_shows_a_refusal_alone(notebook: Kernel, study: Study) -> None:
    with pytest.raises(UserError) as refusal:
        hsweep.run("nosuch", runner="nline")
    # What a script shows: its own line, and one of this package.
    assert len(traceback.extract_tb(refusal.value.__traceback__)) == 2
    assert refusal.value.__suppress_context__
    shown = refusal.value._render_traceback_()  # what IPython asks for
    assert shown == [f"UserError: {refusal.value}"]


def test_settings_and_points_are_given_as_pythons_own(notebook: Kernel) -> None:
    notebook.run(
        "few = hsweep.plan(SWEEP, settings={'width': [1, 2], 'replicates': 1, 'epochs': 3},"
        " points=[{'width': 2}, 'width=1'], max_params='1k')"
    )
    rows = notebook["few"].trials
    assert [list(rows["width"]), list(rows["budget"])] == [[1, 2], [3, 3]]
    notebook.run("none = hsweep.plan(SWEEP, settings={'width': 2}, min_params=15)")
    assert len(notebook["none"].trials) == 2
    notebook.run("some = hsweep.plan(SWEEP, min_params=15)")
    assert list(notebook["some"].skipped["width"]) == [1]
    assert "below" in notebook["some"].skipped["reason"][0]


INTERRUPTED = """
import signal
from dataclasses import dataclass
from pathlib import Path
from tiny import TinyTask, tiny_sweep
import hsweep

@dataclass(frozen=True)
class Interrupted(TinyTask):
    def before_update(self, number):
        for mark in sorted(Path("marks").iterdir())[: 2 if number == 6 else 0]:
            mark.unlink()
            signal.raise_signal(signal.SIGINT)

SWEEP = tiny_sweep(task=Interrupted())
"""


def test_an_interrupt_ends_the_study_and_not_the_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = "study = hsweep.run(SWEEP, runner='inline', check=False)"
    marks = tmp_path / "marks"
    marks.mkdir()
    with kernel_in(tmp_path) as kernel:
        kernel.run(INTERRUPTED)
        (marks / "0").touch()
        with pytest.raises(KeyboardInterrupt, match="study tiny-quick has been interrupted"):
            kernel.run(run)
        assert "go on by: hsweep resume tiny-quick" in capsys.readouterr().out
        stopped = hsweep.load("tiny-quick")
        assert stopped.status["state"] == "interrupted"
        assert "interrupted, 0 of 3" in repr(stopped)

        for number in range(2):
            (marks / str(number)).touch()
        with pytest.raises(KeyboardInterrupt, match="go on by: hsweep resume tiny-quick"):
            kernel.run(run)
        kernel.run(run)
        assert set(kernel["study"].trials["status"]) == {"finished"}


SCRIPT = """
\"\"\"How wide?\"\"\"

import hsweep
from hsweep import Sweep, grid, steps


class Curve:
    def __init__(self, width):
        self.width = width


def train(point, run):
    for step in range(1, run.budget + 1):
        run.report(step, loss=1 / (Curve(point.width).width * step))


SWEEP = Sweep(
    name="script",
    space=grid(width=[1, 2]),
    train=train,
    metric="loss",
    goal="min",
    budget=steps(2),
)

if __name__ == "__main__":
    study = hsweep.run(SWEEP, runner="inline", settings={"steps": 3})
    assert study.best(1)["width"][0] == 2
    assert study.best(1)["reached"][0] == 3
"""


@pytest.mark.parametrize("runner", ["inline", pytest.param("ray", marks=pytest.mark.slow)])
def test_a_script_runs_its_own_classes_and_modules(tmp_path: Path, runner: str) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "lent_height.py").write_text("HEIGHT = 1\n")
    script = tmp_path / "my script.py"
    lent = "import sys\n\nsys.path.append('lib')\nfrom lent_height import HEIGHT"
    source = SCRIPT.replace("import hsweep", f"{lent}\nimport hsweep", 1)
    source = source.replace("1 / (Curve", "HEIGHT / (Curve").replace("inline", runner)
    script.write_text(source)
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    study = hsweep.load("script-quick", tmp_path / "hsweep-home")
    manifest = study._record.manifest
    assert manifest.command == f"hsweep run '{script}' --set steps=3"
    assert manifest.description == "How wide?"
    assert study._record.sweep_text() == script.read_text()


def test_a_file_that_runs_a_sweep_at_its_top_level_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text(textwrap.dedent(SCRIPT).replace('if __name__ == "__main__":', "if True:"))
    with pytest.raises(UserError, match=r"line 28: .*under `if __name__ == \"__main__\":`"):
        hsweep.plan(script)
    script.write_text(SCRIPT)
    assert math.isclose(hsweep.plan(script, home=tmp_path).trials["width"].sum(), 3)


def test_a_module_edited_since_it_was_imported_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "sweep_of_a_module.py"
    file.write_text(SCRIPT)
    monkeypatch.syspath_prepend(str(tmp_path))
    module: Any = importlib.import_module("sweep_of_a_module")
    assert list(hsweep.plan(module.SWEEP, home=tmp_path).trials["width"]) == [1, 2]
    file.write_text(SCRIPT.replace("[1, 2]", "[1, 2, 4]"))
    with pytest.raises(UserError, match=r"sweep_of_a_module.py would make: its space differs"):
        hsweep.plan(module.SWEEP, home=tmp_path)
    del sys.modules["sweep_of_a_module"]
