"""The command line: one clear message for every mistake, JSON alone where asked, quick help."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from click.testing import CliRunner, Result
from tiny_runs import take_one
from tiny_studies import SWEEP_FILE, finish, new_study, put_on_record, recording

from hsweep.cli import main
from hsweep.command_line import command
from hsweep.coordination.coordinator import Coordinator
from hsweep.coordination.runner import InlineRunner
from hsweep.design.trial import TrialStatus
from hsweep.errors import UserError
from hsweep.paths import Home
from hsweep.record.log import segment_file
from hsweep.running import run
from hsweep.running.options import RunOptions
from hsweep.tracking.tracker import Tracker

TESTS = Path(__file__).resolve().parents[1]

Invoke = Callable[..., Result]


def refusal(result: Result) -> str:
    """Check that a command was refused as it should be, and return the message."""
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    return result.stderr


def write(folder: Path, source: str, name: str = "question.py") -> Path:
    path = folder / name
    path.write_text(source)
    return path


class TestSweepFiles:
    @pytest.mark.parametrize("name", ["plan", "run"])
    @pytest.mark.parametrize(
        ("source", "message"),
        [
            ("\n\n1 / 0\n", "question.py, line 3 fails: ZeroDivisionError"),
            ("raise SystemExit(0)\n", "line 1 fails: SystemExit"),
            (
                "from hsweep import grid\n\nspace = grid(heads=[])\n",
                "question.py, line 3: an axis needs at least one value",
            ),
            (
                "from tiny import tiny_sweep\nSWEEP = tiny_sweep(goal='least')\n",
                "question.py, line 2: goal must be 'min' or 'max', not 'least'",
            ),
            (
                "from hsweep import Sweep\nSWEEP = Sweep(name='x')\n",
                "line 2 fails: TypeError: Sweep.__init__() missing",
            ),
            (
                "from tiny import *\nSWEEP = tiny_sweep(model=lambda p: TinyModel(0))\n",
                "no trial: 3 points were skipped; for example {'width': 1}: width must be",
            ),
        ],
    )
    def test_what_is_wrong_with_a_file_is_said_with_its_line(
        self, hsweep: Invoke, tmp_path: Path, name: str, source: str, message: str
    ) -> None:
        path = write(tmp_path, source)
        assert message in refusal(hsweep(name, path))

    def test_a_missing_file_a_folder_and_another_ending(
        self, hsweep: Invoke, tmp_path: Path
    ) -> None:
        assert "nothing.py does not exist" in refusal(hsweep("plan", tmp_path / "nothing.py"))
        assert "is a folder" in refusal(hsweep("plan", tmp_path))
        text = write(tmp_path, SWEEP_FILE, "question.txt")
        assert "with the ending .py" in refusal(hsweep("plan", text))

    @pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"x = '\xe9'\n", b"\x00"])
    def test_a_file_that_is_no_text(self, hsweep: Invoke, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "question.py").write_bytes(content)
        assert "question.py" in refusal(hsweep("plan", tmp_path / "question.py"))


class TestPlan:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--preset", "papr"], "unknown preset 'papr'; known: quick."),
            (["--set", "widht=1"], "Did you mean 'width'?"),
            (["--set", "width"], "is not of the form NAME=VALUE"),
            (["--set", "width=two"], "model function failed at {'width': 'two'}"),
            (["--set", "width=1,1"], "axis value 1 is listed twice"),
            (["--set", "epochs=ten"], "epochs takes whole numbers, not ['ten']"),
            (["--max-params", "many"], "'many' is no amount; write 60M"),
            (["--seed", "-1"], "-1 is not in the range 0<=x<"),
            (["--nonsense"], "No such option"),
        ],
    )
    def test_what_cannot_be_planned_says_why(
        self, hsweep: Invoke, tmp_path: Path, arguments: list[str], message: str
    ) -> None:
        path = write(tmp_path, SWEEP_FILE)
        assert message in refusal(hsweep("plan", path, *arguments))

    def test_json_is_alone_and_complete(self, hsweep: Invoke, tmp_path: Path) -> None:
        result = hsweep("plan", write(tmp_path, SWEEP_FILE), "--json", "--set", "width=1,2")
        assert result.exit_code == 0
        content = json.loads(result.stdout)
        assert {"sweep", "preset", "trials", "skipped", "merged", "totals"} <= set(content)
        assert {
            "key",
            "point",
            "seed",
            "num_params",
            "flops_per_example",
            "train_memory_bytes",
        } <= (set(content["trials"][0]))
        assert content["estimated_seconds"] is None

    def test_people_see_shapes_costs_and_totals(self, hsweep: Invoke, tmp_path: Path) -> None:
        result = hsweep("plan", write(tmp_path, SWEEP_FILE), "--max-params", "12")
        assert result.exit_code == 0
        assert "2 points: 2 runs of 3 epochs" in result.stdout
        assert "num_params 18 is above --max-params 12" in result.stdout

    def test_planning_writes_nothing(self, hsweep: Invoke, tmp_path: Path, home: Home) -> None:
        hsweep("plan", write(tmp_path, SWEEP_FILE))
        assert not home.root.exists()

    def test_unreadable_data_is_shown_by_plan_and_refused_by_run(
        self, hsweep: Invoke, tmp_path: Path, home: Home
    ) -> None:
        path = write(
            tmp_path, "from tiny import *\nSWEEP = tiny_sweep(task=TinyTask(unreadable=True))\n"
        )
        problem = "the tiny data set at /nowhere cannot be read"
        planned = hsweep("plan", path)
        assert planned.exit_code == 0
        assert problem in planned.stdout
        assert json.loads(hsweep("plan", path, "--json").stdout)["data_problems"] == [problem]
        assert problem in refusal(hsweep("run", path, "--runner", "inline"))
        assert not home.root.exists()


class TestRunAndResume:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--time-budget", "soon"], "'soon' is no time; write 90s, 30m, 2h or 1h30m"),
            (["--runner", "inline", "--address", "auto"], "--address auto is for the ray runner"),
            (["--runner", "inline", "--max-concurrent", "2"], "one trial at a time"),
            (["--runner", "inline", "--report-timeout", "9m"], "--report-timeout 540.0 is for"),
            (["--runner", "slurm"], "'slurm' is not one of 'ray', 'inline'"),
            (["--max-concurrent", "0"], "0 is not in the range x>=1"),
            (["--runner", "inline", "--study", "../x"], "starts with a letter or digit"),
        ],
    )
    def test_options_that_cannot_be(
        self, hsweep: Invoke, tmp_path: Path, home: Home, arguments: list[str], message: str
    ) -> None:
        path = write(tmp_path, SWEEP_FILE)
        assert message in refusal(hsweep("run", path, *arguments))
        assert not any(home.studies.glob("*"))

    def test_the_cluster_that_ray_address_names_is_joined(
        self, hsweep: Invoke, tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        joined: list[str | None] = []

        def noting(options: RunOptions, *_: Any) -> InlineRunner:
            joined.append(options.cluster)
            raise UserError("seen")

        monkeypatch.setattr(run, "make_runner", noting)
        monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
        new_study(home, "begun")
        path = write(tmp_path, SWEEP_FILE)
        for arguments in (
            ["run", path],
            ["resume", "begun"],
            ["run", path, "--address", "10.0.0.2:6379"],
            ["run", path, "--address", "local", "--no-dashboard"],
            ["run", path, "--runner", "inline"],
        ):
            assert "seen" in refusal(hsweep(*arguments, "--no-check"))
        assert joined == ["10.0.0.1:6379", "10.0.0.1:6379", "10.0.0.2:6379", None, None]

    @pytest.mark.parametrize(("given", "used"), [((), 7.0), (("--report-timeout", "10m"), 600.0)])
    def test_a_report_timeout_given_for_a_run_outranks_the_sweeps(
        self,
        hsweep: Invoke,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        given: tuple[str, ...],
        used: float,
    ) -> None:
        seen: list[float | None] = []

        class Looking(InlineRunner):
            def run(self, coordinator: Coordinator) -> None:
                assignment = take_one(coordinator)
                assert assignment is not None
                seen.append(assignment.report_timeout)
                coordinator.request_stop("seen")

        monkeypatch.setattr(run, "make_runner", lambda *_: Looking())
        source = SWEEP_FILE.replace("tiny_sweep()", "tiny_sweep(report_timeout=7.0)")
        hsweep("run", write(tmp_path, source), *given)
        assert seen == [used]

    def test_a_home_that_is_a_file(self, hsweep: Invoke, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        sweep = write(tmp_path, SWEEP_FILE)
        commands = (["run", sweep], ["list"], ["list", "--json"], ["show", "mine"], ["doctor"])
        for home in (tmp_path / "file", tmp_path / "file" / "below"):
            for words in commands:
                said = " ".join(refusal(hsweep(*words, "--home", home)).split())
                assert f"the home is a folder, but {tmp_path / 'file'} is none" in said

    def test_what_a_task_prints_is_no_part_of_json(self, hsweep: Invoke, tmp_path: Path) -> None:
        ran = hsweep("run", write(tmp_path, CHATTY), "--runner", "inline", "--no-check", "--json")
        assert json.loads(ran.stdout)["finished"] == 3
        assert "an update" in ran.stderr

    def test_a_study_whose_code_has_changed_is_not_resumed(
        self, hsweep: Invoke, home: Home
    ) -> None:
        put_on_record(new_study(home), OTHER_TASK)
        message = refusal(hsweep("resume", "mine", "--runner", "inline"))
        assert "3 of 3 trials of 'mine' are no longer the same" in message


OTHER_TASK = SWEEP_FILE.replace("tiny_sweep()", "tiny_sweep(task=TinyTask(dim=4))").replace(
    "import tiny_sweep", "import TinyTask, tiny_sweep"
)

CHATTY = """
from dataclasses import dataclass

from tiny import TinyTask, tiny_sweep


@dataclass(frozen=True)
class ChattyTask(TinyTask):
    def before_update(self, number):
        print("an update")


SWEEP = tiny_sweep(task=ChattyTask(), replicates=1)
"""

FAILING = """
from dataclasses import dataclass

from tiny import TinyModel, tiny_sweep


@dataclass(frozen=True)
class OddModel(TinyModel):
    def build(self):
        import torch
        if torch.empty(0).device.type != "meta":
            return {}["there is no such key"]
        return super().build()


def model(point):
    return (OddModel if point.width == 2 else TinyModel)(point.width)


SWEEP = tiny_sweep(model=model, max_failures=1)
"""


class TestFailures:
    def test_a_failure_names_the_line_of_the_users_code_and_its_traceback_is_a_command_away(
        self, hsweep: Invoke, tmp_path: Path, home: Home
    ) -> None:
        path = write(tmp_path, FAILING)
        line = 1 + FAILING.splitlines().index('            return {}["there is no such key"]')
        said = f"KeyError: 'there is no such key' at {path}:{line}"
        ran = hsweep("run", path, "--runner", "inline", "--study", "mine", "--no-check")
        assert ran.exit_code == 0, ran.output
        assert f"failed  ({said})" in ran.stdout
        assert f"1 failed: 1 of 1 at width=2; {said}" in ran.stdout
        assert f"such key&#39; at {path}:{line}" in home.study("mine").report.read_text()
        assert said in hsweep("show", "mine").stdout
        assert f"hsweep show mine --errors --home {home.root}" in ran.stdout
        shown = hsweep("show", "mine", "--errors").stdout
        assert shown.startswith("width=2 #0 (attempt 1)")
        assert "width=2 #0 (attempt 2)" in shown
        assert shown.count("Traceback (most recent call last):") == 1
        assert shown.rstrip().endswith("KeyError: 'there is no such key'")
        found = json.loads(hsweep("show", "mine", "--errors", "--json").stdout)
        assert [(each["trial"], each["attempt"]) for each in found] == [
            ("width=2 #0", 1), ("width=2 #0", 2),
        ]  # fmt: skip
        assert all(each["reason"].startswith(said) for each in found)

    def test_without_a_failure_it_says_so(self, hsweep: Invoke, home: Home) -> None:
        new_study(home)
        assert hsweep("show", "mine", "--errors").stdout == "no attempt of mine has failed\n"


class TestInterrupts:
    """An interrupt in the middle of a file that is read, or of a call."""

    SOURCE = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"

    @pytest.fixture(autouse=True)
    def interruptible(self) -> Iterator[None]:
        # A shell's background jobs begin with interrupts ignored, and a Ray here has SIGTERM.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        of_ray = signal.signal(signal.SIGTERM, signal.SIG_DFL)
        yield
        signal.signal(signal.SIGINT, before)
        signal.signal(signal.SIGTERM, of_ray)

    @pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP"])
    @pytest.mark.parametrize("name", ["run", "resume", "plan"])
    def test_before_anything_is_recorded(
        self,
        hsweep: Invoke,
        tmp_path: Path,
        home: Home,
        name: str,
        number: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(self, "SOURCE", self.SOURCE.replace("SIGINT", number), raising=False)
        study = new_study(home)
        put_on_record(study, self.SOURCE)
        before = study.status()
        ended = hsweep(name, "mine" if name == "resume" else write(tmp_path, self.SOURCE))
        assert ended.exit_code == (75 if number == "SIGTERM" else 130)
        assert ended.stdout == ""
        said = "before the first trial, so nothing new is on record" if name != "plan" else ""
        assert ended.stderr.splitlines()[-1].startswith(f"hsweep: interrupted {said}".rstrip())
        assert [paths.name for paths in home.studies.iterdir()] == ["mine"]
        assert study.status() == before

    def test_sigterm_after_a_command_has_ended_changes_nothing(self, tmp_path: Path) -> None:
        late = "import atexit, os, signal\natexit.register(os.kill, os.getpid(), signal.SIGTERM)\n"
        (tmp_path / "click.py").write_text(
            f"{late}import sys\nsys.path.pop(0)\ndel sys.modules['click']\nfrom click import *\n"
        )
        environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{TESTS.parent}"}
        command = [sys.executable, "-P", "-m", "hsweep", "--version"]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert (ended.returncode, ended.stderr) == (0, "")

    def test_sigterm_before_a_command_is_imported_is_no_failure(self, tmp_path: Path) -> None:
        (tmp_path / "click.py").write_text("import signal\nsignal.raise_signal(signal.SIGTERM)\n")
        environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{TESTS.parent}"}
        command = [sys.executable, "-m", "hsweep", "run", "any.py"]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert (ended.returncode, ended.stderr) == (
            75, "\nhsweep: interrupted before anything began\n",
        )  # fmt: skip

    def test_once_the_study_is_recorded(
        self, hsweep: Invoke, tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupted(_tracker: Tracker) -> None:
            os.kill(os.getpid(), signal.SIGINT)

        monkeypatch.setattr(Tracker, "start", interrupted)
        ended = hsweep("run", write(tmp_path, SWEEP_FILE), "--runner", "inline")
        assert ended.exit_code == 130
        assert ended.stderr.splitlines()[-1] == (
            "hsweep: interrupted with all reports on record; go on by: "
            f"hsweep resume tiny-quick --home {home.root}"
        )
        assert json.loads(hsweep("show", "tiny-quick", "--json").stdout)["planned"] == 3

    @pytest.mark.parametrize(("number", "code"), [("SIGINT", 130), ("SIGTERM", 75)])
    def test_while_it_trains(
        self, hsweep: Invoke, tmp_path: Path, home: Home, number: str, code: int
    ) -> None:
        source = (
            "import os, signal\nfrom dataclasses import dataclass\nfrom tiny import *\n"
            "@dataclass(frozen=True)\nclass Task(TinyTask):\n"
            "    def before_update(self, number):\n"
            f"        if number == 6: os.kill(os.getpid(), signal.{number})\n"
            "SWEEP = tiny_sweep(task=lambda p: Task() if p.width == 2 else TinyTask())\n"
        )
        ended = hsweep("run", write(tmp_path, source), "--runner", "inline")
        assert ended.exit_code == code
        assert "ending cleanly" in ended.stderr
        assert "1 of 3 runs in " in ended.stdout
        assert "s: 2 planned (1 interrupted), 1 finished" in ended.stdout
        assert "so far, with 1 of 3 runs ended:\nThe sweep asks no question" in ended.stdout
        shown = hsweep("show", "tiny-quick").stdout
        assert "2 planned (1 interrupted), 1 finished; folder" in shown
        words = [line.split()[2] for line in shown.splitlines() if line.startswith("width=")]
        assert words == ["planned", "interrupted", "finished"]

    def test_sigterm_twice_is_sigterm_once_and_nothing_is_unfinished_where_all_trials_have_ended(
        self, hsweep: Invoke, tmp_path: Path
    ) -> None:
        source = (
            "import os, signal\nfrom hsweep import Sweep, grid, steps\n"
            "def train(point, run):\n"
            "    if point.heads == 2:\n"
            "        for _ in range(2): os.kill(os.getpid(), signal.SIGTERM)\n"
            "    run.report(1, top1=0.5)\n"
            "SWEEP = Sweep(name='t', space=grid(heads=HEADS), train=train, metric='top1', "
            "goal='max', budget=steps(1), max_failures=0)\n"
        )
        how = "--runner", "inline", "--no-check", "--no-reuse"
        for number, heads, code in ((1, [2, 3], 75), (2, [2], 0)):
            file = write(tmp_path, source.replace("HEADS", str(heads)))
            ended = hsweep("run", file, *how, "--study", f"t-{number}")
            assert ended.exit_code == code, ended.output
            shown = json.loads(hsweep("show", f"t-{number}", "--json").stdout)
            assert (shown["finished"], shown["planned"]) == (1, len(heads) - 1)

    def test_what_is_not_over_in_time_after_sigterm_is_left_behind(
        self, hsweep: Invoke, tmp_path: Path, home: Home
    ) -> None:
        file = write(
            tmp_path,
            "import signal, threading\nfrom hsweep import Sweep, grid, steps\n"
            "def train(point, run):\n"
            "    run.report(1, top1=0.5)\n"
            "    signal.raise_signal(signal.SIGTERM)\n"
            "    threading.Event().wait()\n"
            "SWEEP = Sweep(name='t', space=grid(heads=[2]), train=train, metric='top1', "
            "goal='max', budget=steps(2))\n",
        )
        how = "--runner", "inline", "--no-check", "--grace", "1s", "--home", str(home.root)
        command = [sys.executable, "-m", "hsweep", "run", str(file), *how]
        environment = os.environ | {"PYTHONPATH": str(TESTS.parent)}
        ended = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 75, ended
        assert "the time to end (--grace) is over; go on by: hsweep resume t-quick" in ended.stderr
        shown = json.loads(hsweep("show", "t-quick", "--json").stdout)
        assert (shown["state"], shown["units_done"]) == ("interrupted", 1)

    @pytest.mark.parametrize("is_ignored", [False, True])
    def test_a_hangup_ends_a_study_in_order_unless_it_is_ignored_as_under_nohup(
        self, hsweep: Invoke, tmp_path: Path, is_ignored: bool
    ) -> None:
        source = (
            "import os, signal\nfrom hsweep import Sweep, grid, steps\n"
            "def train(point, run):\n"
            "    os.kill(os.getpid(), signal.SIGHUP)\n"
            "    for step in (1, 2): run.report(step, top1=0.5)\n"
            "SWEEP = Sweep(name='h', space=grid(heads=[1, 2]), train=train, metric='top1', "
            "goal='max', budget=steps(2))\n"
        )
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN if is_ignored else signal.SIG_DFL)
        try:
            ended = hsweep("run", write(tmp_path, source), "--runner", "inline", "--no-check")
        finally:
            signal.signal(signal.SIGHUP, before)
        assert ended.exit_code == (0 if is_ignored else 130), ended.output
        assert ("go on by: hsweep resume" in ended.stdout) is not is_ignored

    def test_a_process_that_a_trial_forks_can_be_ended(
        self, hsweep: Invoke, tmp_path: Path
    ) -> None:
        source = (
            "import multiprocessing, signal, warnings\n"
            "from hsweep import Sweep, grid, steps\n"
            "def waits(started):\n"
            "    started.set()\n"
            "    signal.pause()\n"
            "def train(point, run):\n"
            "    warnings.simplefilter('ignore')\n"
            "    context = multiprocessing.get_context('fork')\n"
            "    started = context.Event()\n"
            "    forked = context.Process(target=waits, args=(started,))\n"
            "    forked.start()\n"
            "    started.wait()  # until then Python forgets the signals that come\n"
            "    forked.terminate()\n"
            "    forked.join(60)\n"
            "    run.report(1, code=float(forked.exitcode))\n"
            "SWEEP = Sweep(name='f', space=grid(heads=[1]), train=train, metric='code', "
            "goal='max', budget=steps(1))\n"
        )
        ran = hsweep("run", write(tmp_path, source), "--runner", "inline", "--no-check", "--json")
        assert json.loads(ran.stdout)["finished"] == 1, ran.output
        (trial,) = json.loads(hsweep("show", "f-quick", "--json").stdout)["trials_list"]
        assert trial["code"] == -signal.SIGTERM


class TestCommands:
    NAMES = ("plain", "with space", "it's", 'say "$HOME"; ls', "-x")

    def test_a_printed_command_can_be_pasted(self) -> None:
        for name in self.NAMES:
            printed = command("run", f"/s/{name}", "--study", name, home=Path("/h") / name)
            words = ["hsweep", "run", f"/s/{name}", "--study", name, "--home", f"/h/{name}"]
            assert shlex.split(printed) == words

    def test_a_study_in_a_folder_with_a_space_prints_commands_that_work(
        self, hsweep: Invoke, tmp_path: Path
    ) -> None:
        folder = tmp_path / "with space"
        folder.mkdir()
        home = folder / "it's a home"
        put_on_record(new_study(Home(home)), OTHER_TASK)
        said = refusal(hsweep("resume", "mine", "--runner", "inline", "--home", home))
        (edit,) = re.findall("`(.*?)`", said)
        done = hsweep(*shlex.split(edit)[1:], "--dry-run")
        assert done.exit_code == 0, done.output

    def test_every_command_is_printed_by_its_owner(self) -> None:
        """Nowhere else is a value put into the text of a command."""
        written = re.compile(r"hsweep [a-z]+ [^`'\"]*\{")
        assert [
            f"{path.name}: {line}"
            for package in ("hsweep", "analysis")
            for path in sorted((TESTS.parent / package).rglob("*.py"))
            for line in path.read_text().splitlines()
            if written.search(line)
        ] == []


class TestStudies:
    @pytest.mark.parametrize(
        "arguments",
        [
            ["show", "mine"],
            ["resume", "mine"],
            ["analyze", "mine"],
            ["report", "mine"],
            ["export", "mine", "x.csv"],
        ],
    )
    def test_an_unknown_study_lists_the_known_ones(
        self, hsweep: Invoke, home: Home, arguments: list[str]
    ) -> None:
        new_study(home, "other")
        message = refusal(hsweep(*arguments))
        assert "no study called 'mine'" in message
        assert "studies there: other" in message

    def test_a_name_cannot_leave_the_home(self, hsweep: Invoke) -> None:
        assert "starts with a letter or digit" in refusal(hsweep("show", "../../etc"))

    def test_show_says_how_every_trial_stands(self, hsweep: Invoke, home: Home) -> None:
        study = new_study(home)
        with recording(study) as (journal, trials):
            finish(journal, trials[0], 0.25)
            journal.begin_attempt(trials[1].key)
        shown = hsweep("show", "mine").stdout
        assert "mine (tiny, preset quick): interrupted" in shown
        assert [word in shown for word in ("finished", "interrupted", "planned")] == [True] * 3
        content = json.loads(hsweep("show", "mine", "--json").stdout)
        assert content["finished"] == 1
        assert [trial["nmse"] for trial in content["trials_list"]] == [0.25, None, None]

    def test_of_very_many_trials_the_best_are_shown_and_how_all_stand(
        self, hsweep: Invoke, home: Home, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        study = new_study(home)
        with recording(study) as (journal, trials):
            finish(journal, trials[0], 0.25)
            attempt = journal.begin_attempt(trials[1].key)
            journal.set_status(
                trials[1].key,
                attempt,
                TrialStatus.FAILED,
                "OSError: no space\nTraceback",
                failures=1,
            )
        whole = hsweep("show", "mine").stdout
        before = json.loads(hsweep("show", "mine", "--json").stdout)
        monkeypatch.setattr("hsweep.record.study.CLOSELY", 2)
        shown = hsweep("show", "mine").stdout
        assert "the best by nmse:" in shown
        assert shown.count("finished") == 2
        assert "... and 2 more trials (--all lists all, --json too)" in shown
        assert "1 planned, 1 finished, 1 failed; folder" in shown
        assert "1 failed: OSError: no space" in shown
        assert hsweep("show", "mine", "--all").stdout == whole
        assert json.loads(hsweep("show", "mine", "--json").stdout) == before

    def test_an_empty_home_says_how_to_begin(self, hsweep: Invoke) -> None:
        result = hsweep("list")
        assert result.exit_code == 0
        assert "begin one with: hsweep run SWEEP" in result.stdout
        assert json.loads(hsweep("list", "--json").stdout) == []

    def test_list_survives_broken_studies(self, hsweep: Invoke, home: Home) -> None:
        new_study(home, "whole")
        new_study(home, "no_manifest").paths.manifest.write_text("{")
        shutil.rmtree(new_study(home, "no_journal").paths.journal)
        segment_file(new_study(home, "garbage").paths.journal, 1).write_bytes(b"garbage" * 99)
        new_study(home, "strange").paths.root.rename(home.studies / "strange name")
        result = hsweep("list")
        assert result.exit_code == 0, result.output
        assert result.stdout.count("unreadable") == 3
        states = {row["study"]: row["state"] for row in json.loads(hsweep("list", "--json").stdout)}
        assert (states.pop("whole"), states.pop("no_manifest")) == ("interrupted", "interrupted")
        assert set(states.values()) == {"unreadable"}

    @pytest.mark.parametrize("name", ["show", "analyze", "report"])
    def test_a_damaged_study_is_said(self, hsweep: Invoke, home: Home, name: str) -> None:
        segment_file(new_study(home).paths.journal, 1).write_bytes(b"garbage" * 99)
        assert "journal cannot be read (it holds no whole line" in refusal(hsweep(name, "mine"))


class TestExport:
    def test_trials_and_reports_by_ending(self, hsweep: Invoke, home: Home, tmp_path: Path) -> None:
        study = new_study(home)
        with recording(study) as (journal, trials):
            finish(journal, trials[0], 0.25)
        result = hsweep("export", "mine", tmp_path / "t.parquet")
        assert result.stdout == f"3 trials in {tmp_path / 't.parquet'}\n"
        assert pyarrow.parquet.read_table(tmp_path / "t.parquet").num_rows == 3
        hsweep("export", "mine", tmp_path / "r.json", "--what", "reports")
        [report] = json.loads((tmp_path / "r.json").read_text())
        assert (report["unit"], report["nmse"]) == (3, 0.25)

    def test_an_unknown_ending_and_an_impossible_place(
        self, hsweep: Invoke, home: Home, tmp_path: Path
    ) -> None:
        new_study(home)
        message = refusal(hsweep("export", "mine", tmp_path / "t.xlsx"))
        assert "written as .parquet, .csv, .json" in message
        (tmp_path / "file").touch()
        message = refusal(hsweep("export", "mine", tmp_path / "file" / "t.csv"))
        assert "cannot be written" in message


class TestAnalyze:
    def test_one_reading_gives_answer_and_report(self, hsweep: Invoke, home: Home) -> None:
        study = new_study(home)
        with recording(study) as (journal, trials):
            finish(journal, trials[0], 0.25)
        assert hsweep("analyze", "mine", "--report").exit_code == 0
        page = study.paths.report.read_text()
        assert "asks no question" in json.loads(study.paths.analysis.read_text())["answer"]
        assert "asks no question. Its best trial has nmse 0.25" in page
        assert hsweep("report", "mine").exit_code == 0
        assert study.paths.report.read_text() == page

    def test_what_cannot_be_analysed_says_why(
        self, hsweep: Invoke, home: Home, tmp_path: Path
    ) -> None:
        new_study(home)
        table = write(tmp_path, "heads,nmse\n1,0.5\n", "table.csv")
        absent = tmp_path / "absent.csv"
        for arguments, message in (
            (["mine", "--kind", "effects", "--report"], "--report is of a STUDY and its own"),
            ([], "give the name of a study, or a table"),
            (["mine", "--table", table], "give the name of a study, or a table"),
            (["--kind", "transition", "--metric", "nmse", "--table", absent], "absent.csv"),
            (["--table", table], "--kind"),
        ):
            assert message in refusal(hsweep("analyze", *arguments))

    def test_a_study_without_a_finished_trial_says_so_and_is_no_error(
        self, hsweep: Invoke, home: Home
    ) -> None:
        new_study(home)
        result = hsweep("analyze", "mine", "--json")
        assert result.exit_code == 0, result.output
        json.loads(result.stdout)


def run_process(*command: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.run(
        [sys.executable, *command],
        env={**inherited, "PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("width", [80, 120])
def test_the_help_has_whole_summaries_and_few_options_under_each_heading(width: int) -> None:
    def sections(*words: str) -> dict[str, str]:
        """The text below each heading of the help, as one line."""
        text = CliRunner().invoke(main, [*words, "-h"], terminal_width=width).stdout
        assert max(map(len, text.splitlines())) in range(width - 15, width + 1)
        parts = re.split(r"^(\w[\w ]*):\n", text, flags=re.M)
        return {name: " ".join(parts[2 * at + 2].split()) for at, name in enumerate(parts[1::2])}

    groups = sections()
    assert [*groups] == ["Options", "Begin", "Run", "Read", "Keep", "Elsewhere"]
    for name, each in main.commands.items():
        summary = " ".join(str(each.help).split("\n\n")[0].split()).partition(". ")[0]
        assert f"{name} {summary.removesuffix('.')}" in " ".join(groups.values())
    groups = {name: text for name, text in sections("run").items() if "--" in text}
    assert max(text.count(" --") for text in groups.values()) <= 10
    assert len(groups) == 7
    assert "--set NAME=VALUE Replace an axis" in groups["Sweep"]
    assert "until the study is done." in sections("submit")["Commands"]


LIGHT = """
import sys
from hsweep.cli import main

heavy = {"torch", "ray", "mlflow", "optuna", "numpy", "scipy", "pandas", "pyarrow", "matplotlib",
         "plotly", "timm", "transformers", "datasets", "sqlalchemy"}
for words in (["--help"], ["run", "--help"], ["--version"], ["show", "mine"], ["list"]):
    try:
        main(words)
    except SystemExit as end:
        assert not end.code
    assert not heavy & set(sys.modules), (words, heavy & set(sys.modules))
"""


class TestProcesses:
    def test_help_and_the_record_need_no_library_of_training_or_analysis(self, home: Home) -> None:
        new_study(home)
        ended = run_process("-c", LIGHT, HSWEEP_HOME=str(home.root))
        assert ended.returncode == 0, ended.stderr
        assert "mine (tiny, preset quick): interrupted" in ended.stdout

    def test_a_plan_needs_no_ray_and_its_json_is_alone(self, tmp_path: Path) -> None:
        noisy = SWEEP_FILE + "import sys\nassert 'ray' not in sys.modules\nprint('noise')\n"
        path = write(tmp_path, noisy)
        program = (
            "import sys\nfrom hsweep.cli import main\n"
            f"try:\n    main(['plan', {str(path)!r}, '--json'])\n"
            "except SystemExit as end:\n    assert not end.code\n"
            "assert not {'ray', 'mlflow'} & set(sys.modules)"
        )
        ended = run_process("-c", program, HSWEEP_HOME=str(tmp_path / "home"))
        assert ended.returncode == 0, ended.stderr
        content: dict[str, Any] = json.loads(ended.stdout)
        assert len(content["trials"]) == 3
        assert "noise" in ended.stderr
