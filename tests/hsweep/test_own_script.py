"""A trial of a script, in this process: planned, read, ended, resumed and shown."""

import json
import os
import shutil
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_process import running_in
from click.testing import Result
from stepped_trial import to_the_end, train_stepwise
from tiny_runs import assignment_of, coordinating, histories, planned
from tiny_studies import new_study

from hsweep import (
    Asha,
    Resources,
    Space,
    Sweep,
    UserError,
    command,
    csv_file,
    epochs,
    grid,
    json_lines,
    reports,
    stdout,
    tensorboard,
    trainer_state,
    zipped,
)
from hsweep.commands.output import quantity
from hsweep.coordination.coordinator import Coordinator
from hsweep.coordination.runner import InlineRunner
from hsweep.design.sources import MetricSource
from hsweep.design.trial import Event, Report, TrialStatus
from hsweep.design.user_training import Command, UserTraining
from hsweep.paths import Home, trial_folder
from hsweep.planning.answerable import analysable
from hsweep.planning.plan import make_plan
from hsweep.record.rows import TrialRow
from hsweep.reporting import REPORTS_FILE
from hsweep.training.own.process import arguments_of, can_resume

ROOT = str(Path(__file__).parents[2])


@pytest.fixture(autouse=True)
def scripts_find_hsweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", ROOT)


def sweep_of(folder: Path, template: str, space: Space | None = None, **changes: Any) -> Sweep:
    """A sweep whose command runs in a folder."""
    options = {
        name: changes.pop(name) for name in ("metrics", "resume", "varies") if name in changes
    }
    return Sweep(
        **{
            "name": "scripts",
            "space": space or grid(heads=[1]),
            "train": command(template, grace_seconds=0.2, **options),
            "metric": "top1",
            "goal": "max",
            "budget": epochs(3),
            "max_failures": 0,
            "folder": str(folder),
            **changes,
        }
    )


def run(sweep: Sweep, folder: Path, **parts: Any) -> dict[str, TrialRow]:
    """Train a sweep, and return its trials by the value of their first axis."""
    with coordinating(sweep, folder, **parts) as coordinator:
        InlineRunner().run(coordinator)
        coordinator.settle()
        return {str(next(iter(row.point.values()))): row for row in coordinator.journal.trials()}


LAUNCHERS = {
    "crlf.sh": "#!/usr/bin/env bash\r\necho 1\r\n",
    "plain.sh": "echo 1\n",
    "bom.sh": "\ufeff#!/bin/sh\necho 1\n",
    "absent.sh": "#!/no/such/python -u\nprint(1)\n",
    "amp.py": "parser.add_argument('--amp', '-a', default=True, type=bool)\n",
}


class TestBeforeTheStart:
    @pytest.mark.parametrize(
        ("template", "options", "rule"),
        [
            ("python train.py --heads {head}", {}, r"unknown field in the command 'head'.*'heads'"),
            ("python train.py {heads:%q}", {}, "cannot be filled with heads=1"),
            ("python nowhere.py {heads}", {}, r"script 'nowhere.py' is not in .*folder="),
            ("no-such-thing {heads}", {}, "'no-such-thing' is not found: not on PATH, and no file"),
            ("train.py {heads}", {}, 'cannot be run as such; write "python train.py ..."'),
            ("./train.sh {heads}", {}, "cannot be run as such; make it executable"),
            ("./crlf.sh {heads}", {}, r"run .*/crlf.sh, which has the line ends of Windows"),
            ("bash crlf.sh {heads}", {}, r"run .*/crlf.sh, .*convert them: sed -i 's/\\r"),
            ("./plain.sh {heads}", {}, "run .*/plain.sh, which does not begin with the name of"),
            ("./bom.sh {heads}", {}, r"run .*/bom.sh, which does not begin with the name of a"),
            ("./absent.sh {heads}", {}, "run .*/absent.sh, which does not begin with .* is here"),
            ("python train.py", {}, r"does not use \{heads\}, so heads=1 and heads=2 would be"),
            *(
                (
                    f"python amp.py {words}",
                    {"space": grid(amp=[True, False])},
                    r"--amp is given False, .*BooleanOptionalAction.* \{axis:--amp\|--no-amp\}",
                )
                for words in ("--amp {amp}", "--amp={amp}")
            ),
            (
                "python train.py {heads}",
                {"metrics": json_lines("log.jsonl")},
                r"the metrics come from log.jsonl .* does not name \{folder\}",
            ),
            (
                "python train.py {heads} {depth}",
                {"space": grid(heads=[1]) + grid(heads=[2], depth=[3])},
                r"field \{depth\} has no value at heads=1; .* None where",
            ),
            (
                "python train.py {folder}",
                {"space": grid(folder=[1, 2])},
                "call the axis 'folder' otherwise",
            ),
        ],
    )
    def test_a_command_that_cannot_train_a_point_is_refused(
        self, template: str, options: dict[str, Any], rule: str, tmp_path: Path
    ) -> None:
        (tmp_path / "train.py").touch()
        (tmp_path / "train.sh").touch()
        for name, content in LAUNCHERS.items():
            (tmp_path / name).write_text(content, encoding="utf-8", newline="")
            (tmp_path / name).chmod(0o755)
        sweep = sweep_of(tmp_path, template, **{"space": grid(heads=[1, 2]), **options})
        with pytest.raises(UserError, match=rule):
            planned(sweep)

    @pytest.mark.parametrize(
        ("make", "rule"),
        [
            (lambda: command("  "), "template is text"),
            (lambda: command("python 'train.py"), "quoted as in a shell"),
            (lambda: command("python train.py {heads"), "has fields as in"),
            (lambda: command("python train.py {resume}"), "both or neither"),
            (lambda: command("python train.py", resume="--resume"), "both or neither"),
            (lambda: command("python train.py {resume}", resume="{resume}"), "itself"),
            (lambda: command("python train.py", grace_seconds=-1), "at least 0, not -1"),
        ],
    )
    def test_a_command_that_is_none_is_refused(self, make: Callable[[], Any], rule: str) -> None:
        with pytest.raises(UserError, match=rule):
            make()

    def test_an_axis_may_name_what_others_say(self, tmp_path: Path) -> None:
        (tmp_path / "train.py").touch()
        space = zipped(size=["S", "M"], heads=[1, 2])
        assert len(planned(sweep_of(tmp_path, "python train.py {heads}", space))) == 2

    @pytest.mark.parametrize(
        ("template", "script", "options", "is_refused"),
        [
            ("python train.py", "", {}, True),
            ("python train.py", "# HSWEEP_SEED is not read\n", {}, True),
            ("python train.py {seed}", "", {}, False),
            ("python train.py", "import os\nseed = int(os.environ['HSWEEP_SEED'])\n", {}, False),
            ("bash train.sh", "python main.py --seed $HSWEEP_SEED\n", {}, False),
            ("python train.py", "", {"varies": True}, False),
        ],
    )
    def test_seeds_that_are_one_training_are_refused(
        self, template: str, script: str, options: dict[str, Any], is_refused: bool, tmp_path: Path
    ) -> None:
        (tmp_path / template.split()[1]).write_text(script)
        template, space = f"{template} {{heads}}", grid(heads=(1, 2))
        sweep = sweep_of(tmp_path, template, space, replicates=3, **options)
        plan = make_plan(sweep, preset="quick", study_seed=0)
        found = [concern for concern in analysable(plan) if "its 3 seeds" in concern.text]
        assert [concern.kind for concern in found] == ["impossible"] * is_refused
        one = make_plan(replace(sweep, replicates=1), preset="quick", study_seed=0)
        assert not [concern for concern in analysable(one) if concern.kind == "impossible"]

    def test_an_axis_may_be_left_out_at_a_point(self, tmp_path: Path) -> None:
        (tmp_path / "train.py").touch()
        space = grid(dropout=[None, 0.1])
        assert len(planned(sweep_of(tmp_path, "python train.py --drop {dropout}", space))) == 2


@pytest.mark.parametrize(
    ("template", "resume", "left", "arguments"),
    [
        ("{resume}", "--resume {folder}/a", "", ""),
        ("{resume}", "--resume {folder}/a", "b", ""),
        ("{resume}", "--resume {folder}/a", "a", "--resume {folder}/a"),
        ("--resume={resume}", "{folder}/a", "", ""),
        ("--resume={resume}", "{folder}/a", "a", "--resume={folder}/a"),
        ("--from {resume} 1", "{folder}/runs", "", "1"),
        ("--from {resume} 1", "{folder}/runs", "runs/", "1"),
        ("--from {resume} 1", "{folder}/runs", "runs/a", "--from {folder}/runs 1"),
        ("--exact {resume}", "--go-on", "output.txt", "--exact"),
        ("--exact {resume}", "--go-on", "anything", "--exact --go-on"),
    ],
)
def test_resume_is_given_where_there_is_something(
    template: str, resume: str, left: str, arguments: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").touch()
    (trial,) = planned(sweep_of(tmp_path, f"python train.py {template}", resume=resume))
    assert isinstance(trial.task, UserTraining)
    train, folder = trial.task.train, tmp_path / "trial"
    assert isinstance(train, Command)
    (folder / left).parent.mkdir(parents=True, exist_ok=True)
    if left.endswith("/"):
        (folder / left).mkdir()
    elif left:
        (folder / left).touch()
    found = arguments_of(train, trial, folder, resumes=can_resume(train, trial, folder))
    expected = arguments.format(folder=folder).split()
    assert found == [sys.executable, "train.py", *expected]


def event(step: int, value: float) -> bytes:
    """A scalar in an event file of TensorBoard's."""
    from tensorboardX.proto.event_pb2 import Event

    content = Event(step=step)
    content.summary.value.add(tag="top1", simple_value=value)
    data: bytes = content.SerializeToString()
    return struct.pack("<QI", len(data), 0) + data + b"\0" * 4


def appended(name: str, content: bytes) -> str:
    return f"append({name!r}, {content!r})"


def csv_rows(epoch: int, value: float) -> bytes:
    return (b"" if epoch > 1 else b"epoch,top1\n") + f"{epoch - 1},{value}\n".encode()


def state(epoch: int) -> bytes:
    logged = [{"epoch": n, "step": n, "eval_top1": n / 4} for n in range(1, epoch + 1)]
    return json.dumps({"log_history": logged}).encode()


SOURCES: dict[str, tuple[MetricSource, Callable[[int, float], str]]] = {
    "stdout": (
        stdout(r"epoch (?P<epoch>\d+): (?P<top1>\S+)"),
        lambda epoch, value: f"print('epoch {epoch}: {value}')",
    ),
    "json": (
        json_lines("log.jsonl"),
        lambda epoch, value: appended(
            "log.jsonl", json.dumps({"epoch": epoch, "top1": value}).encode() + b"\n"
        ),
    ),
    "csv": (
        csv_file("*/log.csv", offset=1),
        lambda epoch, value: appended("0/log.csv", csv_rows(epoch, value)),
    ),
    "tensorboard": (
        tensorboard("runs"),
        lambda epoch, value: appended("runs/x.tfevents.1", event(epoch, value)),
    ),
    "trainer": (
        trainer_state(metrics={"eval_top1": "top1"}),
        lambda epoch, _: appended(f"checkpoint-{epoch}/trainer_state.json", state(epoch)),
    ),
    "report": (reports(), lambda epoch, value: f"hsweep.report(epoch={epoch}, top1={value})"),
}
WRITER = """
import pathlib, sys
import hsweep

def append(name, content):
    file = pathlib.Path(sys.argv[1], name)
    file.parent.mkdir(exist_ok=True)
    with file.open("ab") as opened:
        opened.write(content)

"""


@pytest.mark.parametrize("name", SOURCES)
def test_metrics_come_from_what_a_script_writes(name: str, tmp_path: Path) -> None:
    source, line = SOURCES[name]
    lines = [line(epoch, epoch / 4) for epoch in (1, 2, 3)]
    (tmp_path / "train.py").write_text(WRITER + "\n".join(lines))
    sweep = sweep_of(tmp_path, "python train.py {folder} {heads}", metrics=source)
    (row,) = run(sweep, tmp_path / "study").values()
    assert (row.reason, row.status) == ("", TrialStatus.FINISHED)
    (history,) = histories(tmp_path / "study").values()
    assert [(unit, metrics) for unit, _, metrics in history] == [
        (epoch, {"top1": epoch / 4}) for epoch in (1, 2, 3)
    ]


MANY = """
import os, signal, sys, time
import hsweep

how = sys.argv[1]

def report(*units):
    for epoch in units:
        hsweep.report(epoch=epoch, top1=epoch / 4)

print("hello from", how)
if how == "good":
    assert os.environ["OMP_NUM_THREADS"] == "2", os.environ["OMP_NUM_THREADS"]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "", os.environ["CUDA_VISIBLE_DEVICES"]
    report(1, 2, 3)
elif how == "silent":
    pass
elif how == "else":
    hsweep.report(epoch=1, accuracy=0.5)
elif how == "fails":
    report(1)
    raise ValueError("out of luck")
elif how == "early":
    report(1, 2)
elif how == "late":
    report(1, 2, 3)
    sys.exit(3)
elif how == "signal":
    report(1)
    os.kill(os.getpid(), signal.SIGSEGV)
elif how == "nan":
    hsweep.report(epoch=1, top1=float("nan"))
    signal.pause()
elif how == "again":
    report(1, 2)
    report(1, 2, 3)
elif how == "beyond":
    report(1, 2, 3)
    report(4)
    signal.pause()
elif how == "skips":
    report(1, 5)
    signal.pause()
"""
HOW = (
    *("good", "silent", "else", "fails", "early", "late"),
    *("signal", "nan", "again", "beyond", "skips"),
)


def test_how_a_script_ends_is_on_record(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(MANY)
    sweep = sweep_of(tmp_path, "python train.py {how}", grid(how=HOW), resources=Resources(cpus=2))
    study = tmp_path / "study"
    rows = run(sweep, study)
    told = {how: row.reason for how, row in rows.items()}
    assert {how for how, row in rows.items() if row.status is TrialStatus.FINISHED} == {
        *("good", "late", "again", "beyond", "early")
    }
    assert rows["nan"].status is TrialStatus.DIVERGED
    assert told["silent"].startswith("the script ended without a report: it needs epoch and top1")
    assert "epoch, accuracy; say unit=" in told["else"]
    assert told["fails"].splitlines()[0] == (
        "the script ended with exit code 1 after unit 1 of 3 epochs: ValueError: out of luck"
    )
    assert told["early"] == "ended by itself at 2 of 3 epochs"
    assert told["signal"].startswith("the script was ended by signal 11 (SIGSEGV) after unit 1")
    assert told["skips"].startswith("the script went on beyond its budget after unit 1 of 3")
    for how in ("silent", "else", "fails", "signal", "skips"):
        output = trial_folder(str(study / "checkpoints"), rows[how].key) / "output.txt"
        assert f"The output, {output}, ends like this:\nhello from {how}" in told[how]
    assert "Traceback" not in told["silent"]
    assert notes(study) == {
        rows["late"].key: [(3, "the script ended with exit code 3 after its last report")],
        rows["beyond"].key: [(3, "the script went on beyond its budget after its last report")],
    }


def notes(study: Path) -> dict[str, list[tuple[int | None, str]]]:
    from hsweep.record.journal import JournalReader

    with JournalReader(study / "journal") as journal:
        found: dict[str, list[tuple[int | None, str]]] = {}
        for entry in journal.reports():
            if note := entry.payload.get("note"):
                found.setdefault(entry.key, []).append((entry.unit, note))
        return found


HANGS = """
import signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("hello", sys.argv[1], flush=True)
while True:
    signal.pause()
"""


@pytest.mark.parametrize("reported", [[], [1, 2, 3]])
def test_a_script_that_hangs_is_ended(reported: Sequence[int], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(HANGS)
    (trial,) = planned(sweep_of(tmp_path, "python train.py {heads}"))
    root = tmp_path / "study" / "checkpoints"
    folder = trial_folder(str(root), trial.key)
    folder.mkdir(parents=True)
    lines = [json.dumps({"epoch": epoch, "top1": 0.5}) + "\n" for epoch in reported]
    (folder / REPORTS_FILE).write_text("".join(lines))
    assignment = replace(assignment_of(trial, root, attempt=2), report_timeout=0.5)
    assert assignment.patience_seconds is not None
    assert assignment.patience_seconds > 0.5 + 0.2
    events: list[Event] = []
    failed = ""
    try:
        events = to_the_end(assignment)
    except UserError as error:
        failed = str(error)
    late = "no report for 0.5 s (report_timeout)"
    if not reported:
        assert failed.startswith(f"the script was ended, with {late}, after unit 0 of 3 epochs: ")
        assert "epochs: hello" in failed
        return
    assert failed == ""
    assert all(isinstance(event, Report) for event in events)
    assert [(event.unit, event.note) for event in events] == [
        *((1, ""), (2, "")),
        (3, f"the script was ended, with {late}, after its last report"),
    ]


STAYS = """
import os, pathlib, signal, sys
import hsweep

heads, folder = sys.argv[1:]
for number in range(2):
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if number:
            os.setsid()
        while True:
            signal.pause()
for epoch in (1, 2, 3):
    hsweep.report(epoch=epoch, top1=int(heads) / 4)
    if epoch == 1 and heads != "3":
        signal.pause()
"""


def test_a_script_that_is_stopped_early_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(STAYS)
    space, stopping = grid(heads=[3, 2, 1]), Asha(grace=1, min_survivors=1)
    sweep = sweep_of(tmp_path, "python train.py {heads} {folder}", space, early_stopping=stopping)
    rows = run(sweep, tmp_path / "study")
    assert {heads: row.status for heads, row in rows.items()} == {
        "3": TrialStatus.FINISHED,
        "2": TrialStatus.STOPPED_EARLY,
        "1": TrialStatus.STOPPED_EARLY,
    }
    assert running_in(tmp_path) == []


def test_a_run_that_is_to_end_waits_for_no_report(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import signal; signal.pause()")
    sweep = sweep_of(tmp_path, "python train.py {heads}")
    with coordinating(sweep, tmp_path / "study") as coordinator:
        timer = threading.Timer(0.5, coordinator.request_stop, ("enough",))
        timer.start()
        InlineRunner().run(coordinator)
        timer.join()
        coordinator.settle()
        (row,) = coordinator.journal.trials()
    assert (row.status, row.reason, row.failures) == (TrialStatus.PLANNED, "interrupted", 0)
    assert running_in(tmp_path) == []


RESUMES = """
import argparse, os, pathlib
import hsweep

parser = argparse.ArgumentParser()
for name in ("--heads", "--seed", "--epochs"):
    parser.add_argument(name, type=int)
parser.add_argument("--out", type=pathlib.Path)
parser.add_argument("--resume", type=pathlib.Path)
args = parser.parse_args()
epoch = int(args.resume.read_text()) if args.resume else 0
with (args.out / "starts.txt").open("a") as starts:
    starts.write(f"{epoch} ")
while epoch < args.epochs:
    epoch += 1
    unasked = {"heads": args.heads, "time": 1.5, "acc@1": 1, "": 2}
    hsweep.report(epoch=epoch, top1=epoch / 8 + args.heads / 16, **unasked)
    (args.out / "state.tmp").write_text(str(epoch))
    (args.out / "state.tmp").rename(args.out / "state")
    if epoch == 2 and args.resume is None and pathlib.Path("waits").exists():
        import signal
        signal.pause()
"""


def test_a_script_goes_on_where_it_was_ended(tmp_path: Path) -> None:
    """Its folder is gone for one of the trials, as on another machine."""
    (tmp_path / "train.py").write_text(RESUMES)
    line = "python train.py --heads {heads} --seed {seed} --epochs {budget} --out {folder} {resume}"
    sweep = sweep_of(tmp_path, line, grid(heads=[1, 2]), resume="--resume {folder}/state")
    run(sweep, tmp_path / "undisturbed")

    study = tmp_path / "study"
    (tmp_path / "waits").touch()
    with coordinating(sweep, study) as coordinator:
        keys = []
        for _ in range(2):
            assignment = coordinator.next_assignment()
            assert assignment is not None
            training = train_stepwise(assignment)
            for _ in range(2):
                assert coordinator.report(assignment, next(training))
            training.close()
            keys.append(assignment.trial.key)
    assert running_in(tmp_path) == []
    (tmp_path / "waits").unlink()
    folders = [trial_folder(str(study / "checkpoints"), key) for key in keys]
    with (folders[0] / REPORTS_FILE).open("a") as reported:
        reported.write('{"epoch": 3, "to')  # cut off by a kill
    shutil.rmtree(folders[1])
    rows = run(sweep, study)
    assert {row.status for row in rows.values()} == {TrialStatus.FINISHED}
    assert histories(study) == histories(tmp_path / "undisturbed")
    assert [(folder / "starts.txt").read_text() for folder in folders] == ["0 2 ", "0 "]
    note = "nothing to go on from is in the trial's folder, with unit 2 on record: trained again"
    assert notes(study) == {keys[1]: [(3, f"{note} from the start")]}


ODD = """
import sys, hsweep
print("heads", sys.argv[1])
hsweep.report(epoch=1, top1=0.5)
assert sys.argv[1] == "1", "heads are odd"
hsweep.report(epoch=3, top1=0.75)
"""


def test_a_trial_is_shown_with_its_output(
    hsweep: Callable[..., Result], home: Home, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(ODD)
    sweep = sweep_of(tmp_path, "python train.py {heads}", grid(heads=[1, 2]))
    study = new_study(home, "mine", sweep, training="python train.py")
    with study.writer() as journal:
        coordinator = Coordinator(journal, sweep, planned(sweep), study.checkpoints())
        InlineRunner().run(coordinator)

    listed = json.loads(hsweep("show", "mine", "--json").output)["trials_list"]
    for trial in listed:
        output = Path(trial["output"])
        assert output.parent == Path(trial["folder"])
        assert output.read_text().startswith(f"heads {trial['heads']}\n")
    size = sum(os.lstat(file).st_size for file in output.parents[1].rglob("*") if file.is_file())
    line = f"{quantity(size, 'B')} of trials' own files in {output.parents[1]}"
    assert line in one_line(hsweep, "mine")

    shown = one_line(hsweep, "mine", "heads=2 #0")
    assert f"output {output}" in shown
    assert "attempt 1 the script ended with exit code 1 after unit 1 of 3 epochs" in shown
    by_key = json.loads(hsweep("show", "mine", listed[1]["key"][:8], "--json").output)
    assert by_key["failed_attempts"][0]["reason"].endswith("AssertionError: heads are odd")
    unknown = hsweep("show", "mine", "heads=3 #0")
    assert unknown.exit_code == 2
    assert "no trial is called 'heads=3 #0'" in unknown.output


SWEEP_FILE = '''
"""Scripts, swept."""
from hsweep import Sweep, command, epochs, grid

SWEEP = Sweep(
    name="scripts", space=grid(heads=[1, 2]), train=command("python train.py {heads}"),
    metric="top1", goal="max", budget=epochs(2),
)
'''


def test_a_command_that_cannot_run_is_one_message(
    hsweep: Callable[..., Result], tmp_path: Path
) -> None:
    (tmp_path / "sweep.py").write_text(SWEEP_FILE)
    for name in ("plan", "run"):
        refused = hsweep(name, tmp_path / "sweep.py")
        assert (refused.exit_code, "Traceback" in refused.output) == (2, False)
        assert "script 'train.py' is not in" in refused.output


LAUNCHED = {
    "RANK": "1",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "GROUP_RANK": "0",
    "NODE_RANK": "1",
    "MASTER_ADDR": "elsewhere",
    "TORCHELASTIC_RUN_ID": "none",
    "SLURM_PROCID": "1",
    "SLURM_NTASKS": "4",
    "SLURM_NTASKS_PER_NODE": "2",
    "OMPI_COMM_WORLD_SIZE": "4",
    "PMI_RANK": "1",
    "PMIX_RANK": "1",
}
STAYING = {"SLURM_JOB_ID": "17", "PMIX_MCA_gds": "hash", "CUDA_VISIBLE_DEVICES": ""}
LAUNCHED_SWEEP = '''
"""What a trial sees of how the study was started."""
import os

from hsweep import Sweep, command, epochs, grid

os.environ["MASTER_PORT"] = "1234"
NAMES = {names}


def train(point, run):
    run.report(1, **{{name: float(name in os.environ) for name in NAMES}}, one=1.0)


SWEEP = Sweep(
    name="launched", space=grid(heads=[1]), train={train}, metric="one", goal="max",
    budget=epochs(1), max_failures=0,
)
'''


@pytest.mark.parametrize("train", ["train", 'command("python script.py {heads}")'])
def test_a_trial_is_told_of_no_other_processes_but_its_own(
    train: str, hsweep: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [*LAUNCHED, *STAYING, "MASTER_PORT"]
    for name, value in {**LAUNCHED, **STAYING, "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "sweep.py").write_text(LAUNCHED_SWEEP.format(names=names, train=train))
    (tmp_path / "script.py").write_text(
        f"import os, hsweep\nseen = {{n: n in os.environ for n in {names}}}\n"
        "hsweep.report(epoch=1, one=1, **seen)\n"
    )
    done = hsweep("run", tmp_path / "sweep.py", "--runner", "inline")
    assert done.exit_code == 0, done.output
    shown = json.loads(hsweep("show", "launched-quick", "--json").stdout)["trials_list"][0]
    assert [name for name in names if shown[name]] == [*STAYING, "MASTER_PORT"]


def one_line(hsweep: Callable[..., Result], *arguments: str) -> str:
    """What ``show`` prints, however wide its columns are."""
    return " ".join(hsweep("show", *arguments).output.split())
