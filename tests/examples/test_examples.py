"""The examples, run by the tool: stopped early, and killed and resumed to the numbers of an
undisturbed study."""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from hsweep.cli import main
from hsweep.design.trial import TrialStatus
from hsweep.paths import trial_folder
from hsweep.record.journal import JournalReader

pytestmark = [
    # Of Lightning 2.6 on torch 2.13.
    pytest.mark.filterwarnings("ignore:`isinstance\\(treespec, LeafSpec\\)`"),
    pytest.mark.filterwarnings("ignore:The '.*dataloader' does not have many workers"),
]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NEEDED = {"function_digits": "torch", "lightning_digits": "lightning", "trainer_gpt2": "accelerate"}
INSTALLED = [name for name, library in NEEDED.items() if importlib.util.find_spec(library)]
BUDGET = 3
SMALL = {"epochs": BUDGET, "width": 16, "replicates": 1}

KILLED_FUNCTIONS = f'''
"""The functions of the examples in one study. Each worker that reaches a second epoch is killed."""

import importlib
import os
import signal

from hsweep import Asha, Sweep, epochs, grid


class KilledOnce:
    """The run of a trial whose process dies before it can report its second epoch, once."""

    def __init__(self, run, sweep):
        self._run, self._sweep = run, sweep

    def __getattr__(self, name):
        return getattr(self._run, name)

    def report(self, unit, **values):
        mark = self._run.folder / "killed"
        if unit == 2 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        score = values[self._sweep.metric]
        self._run.report(unit, **values, score=score if self._sweep.goal == "max" else -score)


def train(point, run):
    example = importlib.import_module(point.example)
    example.train(point, KilledOnce(run, example.SWEEP))


SWEEP = Sweep(
    name="killed",
    space=grid(example={INSTALLED}, heads=[1, 2], depth=[1], width=[16], lr=[3e-3]),
    train=train,
    metric="score",
    goal="max",
    budget=epochs({BUDGET}),
    early_stopping=Asha(grace=1, reduction_factor=2, min_survivors=1, strata=("example",)),
)
'''

KILLED_SCRIPT = '''
"""The plain script, whose process dies in its second epoch, once."""

from dataclasses import replace

from hsweep import Asha
from plain_sweep import SWEEP as PLAIN

line = PLAIN.train.template.replace("plain_script.py", "killed_once.py")
SWEEP = replace(
    PLAIN,
    train=replace(PLAIN.train, template=line),
    early_stopping=Asha(grace=1, reduction_factor=2, min_survivors=1),
)
'''

KILLED_ONCE = '''
import os
import runpy
import signal
import sys
from pathlib import Path

mark = Path(sys.argv[sys.argv.index("--out") + 1], "killed")
replace = Path.replace


def replace_or_die(path, target):
    """Die where the second epoch's line is written and its checkpoint is not."""
    if target.exists() and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return replace(path, target)


Path.replace = replace_or_die
runpy.run_path("plain_script.py", run_name="__main__")
'''


@dataclass(frozen=True)
class Ended:
    """What became of a trial.

    Attributes:
        reports: unit and metrics of each.
        was_killed: whether its process was.
    """

    status: TrialStatus
    attempts: int
    reports: list[tuple[int | None, Mapping[str, float]]]
    was_killed: bool


def trials(home: Path, study: str, **point: object) -> dict[int, Ended]:
    """The trials of a study that are at this point, by their heads."""
    folder = home / "studies" / study
    with JournalReader(folder / "journal") as journal:
        reports = list(journal.reports())
        return {
            row.point["heads"]: Ended(
                row.status,
                row.attempt,
                [(each.unit, each.payload["metrics"]) for each in reports if each.key == row.key],
                (trial_folder(str(folder / "checkpoints"), row.key) / "killed").exists(),
            )
            for row in journal.trials()
            if point.items() <= row.point.items()
        }


def run_inline(sweep: Path, home: Path, study: str, heads: str) -> None:
    command = ["run", str(sweep), "--study", study, "--runner", "inline", "--home", str(home)]
    settings = {**SMALL, "heads": heads}
    command += [text for name, value in settings.items() for text in ("--set", f"{name}={value}")]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output


@pytest.fixture(scope="module", autouse=True)
def one_thread_and_a_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HSWEEP_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(sys, "path", list(sys.path))
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of all studies that run in this process: they share an MLflow store, which takes seconds to
    make."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a study on Ray of all functions whose libraries are installed."""
    folder = tmp_path_factory.mktemp("disturbed") / "examples"
    shutil.copytree(EXAMPLES, folder)
    (folder / "killed.py").write_text(KILLED_FUNCTIONS)
    command = ["run", "killed.py", "--study", "killed", "--no-dashboard", "--home", "home"]
    ended = subprocess.run(
        [sys.executable, "-m", "hsweep", *command],
        cwd=folder,
        env={name: each for name, each in os.environ.items() if not name.startswith("RAY_")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    return folder / "home"


def stopped_and_resumed(found: Mapping[int, Ended]) -> tuple[int, int]:
    """Check that one trial was stopped early, and that the other was killed in its second epoch and
    went on; return their heads."""
    by_status = {trial.status: heads for heads, trial in found.items()}
    stopped, resumed = by_status[TrialStatus.STOPPED_EARLY], by_status[TrialStatus.FINISHED]
    assert len(found[stopped].reports) == 1
    assert found[resumed].was_killed
    assert found[resumed].attempts > 1
    return stopped, resumed


@pytest.fixture(scope="module", params=list(NEEDED))
def undisturbed(request: pytest.FixtureRequest, home: Path) -> tuple[str, Mapping[int, Ended]]:
    """An example whose library is installed, and the trials of its study in this process."""
    name: str = request.param
    if name not in INSTALLED:
        pytest.skip(f"{NEEDED[name]} is not installed")
    run_inline(EXAMPLES / f"{name}.py", home, name, heads="1,2")
    return name, trials(home, name, depth=1)


def test_a_function_trains_each_trial_to_its_end(
    undisturbed: tuple[str, Mapping[int, Ended]],
) -> None:
    _, found = undisturbed
    assert {heads: trial.status for heads, trial in found.items()} == {
        1: TrialStatus.FINISHED,
        2: TrialStatus.FINISHED,
    }
    assert all(
        [unit for unit, _ in trial.reports] == list(range(1, BUDGET + 1))
        for trial in found.values()
    )


# The study on Ray starts five processes that import these libraries.
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_function_killed_on_ray_goes_on_to_the_numbers_of_an_undisturbed_study(
    undisturbed: tuple[str, Mapping[int, Ended]], disturbed: Path
) -> None:
    name, calm = undisturbed
    found = trials(disturbed, "killed", example=name)
    stopped, resumed = stopped_and_resumed(found)
    for trial in found.values():
        for _, metrics in trial.reports:
            del metrics["score"]

    assert found[resumed].reports == calm[resumed].reports
    assert found[stopped].reports == calm[stopped].reports[:1]


def test_a_script_killed_goes_on_to_the_numbers_of_an_undisturbed_study(
    home: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "examples"
    shutil.copytree(EXAMPLES, folder)
    (folder / "killed.py").write_text(KILLED_SCRIPT)
    (folder / "killed_once.py").write_text(KILLED_ONCE)
    run_inline(folder / "killed.py", home, "killed", heads="1,2")
    found = trials(home, "killed")
    _, resumed = stopped_and_resumed(found)

    run_inline(folder / "plain_sweep.py", home, "undisturbed", heads=str(resumed))
    undisturbed = trials(home, "undisturbed")
    assert len(undisturbed[resumed].reports) == BUDGET
    assert found[resumed].reports == undisturbed[resumed].reports
