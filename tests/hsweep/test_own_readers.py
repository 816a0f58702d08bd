"""What a script writes is read while it is written, unit by unit."""

import json
import math
import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hsweep.design.budget import Budget, epochs, steps
from hsweep.design.sources import (
    MetricSource,
    csv_file,
    json_lines,
    reports,
    stdout,
    tensorboard,
    trainer_state,
)
from hsweep.errors import UserError
from hsweep.reporting import OUTPUT_FILE, REPORTS_FILE, REPORTS_VARIABLE
from hsweep.training.own.readers import Reader

ROOT = Path(__file__).parents[2]
EPOCHS = stdout(r"epoch (?P<epoch>\d+).*top1 (?P<top1>[\w.]+)")


def reader(
    source: MetricSource,
    folder: Path,
    *needed: str,
    budget: Budget | None = None,
    after: int = 0,
    offset: float | None = None,
) -> Reader:
    budget = budget or (steps(100) if source.unit == "step" else epochs(100))
    return Reader(source, folder, needed or ("top1",), budget, after, offset)


def append(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(text)


def json_text(**values: object) -> str:
    return f"{json.dumps(values)}\n"


def csv_text(**values: object) -> str:
    return f"{values['epoch']},{values['top1']}\n"


def line_text(**values: object) -> str:
    return f"... epoch {values['epoch']} of 30: top1 {values['top1']} !\n"


@pytest.mark.parametrize(
    ("printed", "amount"),
    [("1,234,567", 1234567), ("0.11M", 110000), ("85_800", 85800), ("2.5e3", 2500), ("n/a", None)],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_the_number_of_parameters_may_be_printed_once(
    printed: str, amount: int | None, is_first: bool, tmp_path: Path
) -> None:
    source = stdout(
        r"parameters: (?P<params>\S+)|epoch (?P<epoch>\d+) top1 (?P<top1>\S+)",
        metrics={"params": "num_params"} if amount else {},
    )
    lines = ["epoch 1 top1 0.5\n", "epoch 2 top1 0.75\n"]
    lines.insert(0 if is_first else 1, f"number of parameters: {printed} (all)\n")
    append(tmp_path / OUTPUT_FILE, "".join(lines))
    read = reader(source, tmp_path)
    units = [*read.poll(), *read.last_units()]
    assert [unit for unit, _ in units] == [1, 2]
    if amount:
        assert units[-1][1] == {"top1": 0.75, "num_params": amount}


@pytest.mark.parametrize(
    ("source", "path", "start", "text"),
    [
        pytest.param(EPOCHS, OUTPUT_FILE, "hello\n", line_text, id="stdout"),
        pytest.param(
            json_lines("log.jsonl"), "log.jsonl", '{"config": {}}\n', json_text, id="json"
        ),
        pytest.param(csv_file("log.csv"), "log.csv", "epoch,top1\n", csv_text, id="csv"),
        pytest.param(reports(), REPORTS_FILE, "", json_text, id="reports"),
    ],
)
class TestAFileOfLines:
    def test_is_read_as_it_grows(
        self, source: MetricSource, path: str, start: str, text: Callable[..., str], tmp_path: Path
    ) -> None:
        read, file = reader(source, tmp_path), tmp_path / path
        assert read.poll() == []
        append(file, start)
        assert read.poll() == []
        append(file, text(epoch=1, top1=0.5))
        assert read.poll() == [(1, {"top1": 0.5})]
        assert read.poll() == []
        append(file, text(epoch=2, top1=0.625) + text(epoch=4, top1=0.75))
        assert read.poll() == [(2, {"top1": 0.625}), (4, {"top1": 0.75})]
        assert read.last_units() == []

    def test_may_end_in_the_middle_of_a_line(
        self, source: MetricSource, path: str, start: str, text: Callable[..., str], tmp_path: Path
    ) -> None:
        read, file = reader(source, tmp_path), tmp_path / path
        whole = start + text(epoch=1, top1=0.5)
        for cut in whole:
            assert read.poll() == []
            append(file, cut)
        assert read.poll() == [(1, {"top1": 0.5})]
        last = text(epoch=2, top1=0.625).removesuffix("\n")
        append(file, last)
        assert read.poll() == []
        assert reader(source, tmp_path, after=1).last_units(killed=True) == []
        assert read.last_units() == [(2, {"top1": 0.625})]

    def test_may_be_written_again_from_the_start(
        self, source: MetricSource, path: str, start: str, text: Callable[..., str], tmp_path: Path
    ) -> None:
        read, file = reader(source, tmp_path), tmp_path / path
        append(file, start + text(epoch=1, top1=0.5) + text(epoch=2, top1=0.5))
        assert [unit for unit, _ in read.poll()] == [1, 2]
        file.write_text("")
        assert read.poll() == []
        lines = [text(epoch=unit, top1=0.25) for unit in range(1, 7)]
        append(file, start + "".join(lines[:3]))
        assert read.poll() == [(3, {"top1": 0.25})]
        append(file, "".join(lines[3:4]))
        assert read.poll() == [(4, {"top1": 0.25})]
        # Longer than before at once, and by another file.
        other = tmp_path / "other"
        other.write_text(start + text(epoch=1, top1=0.125) * 9 + "".join(lines))
        other.replace(file)
        assert read.poll() == [(5, {"top1": 0.25}), (6, {"top1": 0.25})]

    def test_goes_on_after_what_is_known(
        self, source: MetricSource, path: str, start: str, text: Callable[..., str], tmp_path: Path
    ) -> None:
        append(tmp_path / path, start + text(epoch=3, top1=0.5) + text(epoch=4, top1=0.75))
        assert reader(source, tmp_path, after=3).poll() == [(4, {"top1": 0.75})]
        assert reader(source, tmp_path, after=4).last_units() == []

    def test_with_something_else_than_a_number_says_where(
        self, source: MetricSource, path: str, start: str, text: Callable[..., str], tmp_path: Path
    ) -> None:
        append(tmp_path / path, start + text(epoch=1, top1="high"))
        number = start.count("\n") + 1
        with pytest.raises(UserError, match=f"{path}, line {number}: top1 is .*, not 'high'"):
            reader(source, tmp_path).poll()

    def test_without_what_is_needed_says_what_was_there(
        self, source: MetricSource, path: str, start: str, text: Callable[..., str], tmp_path: Path
    ) -> None:
        append(tmp_path / path, start + text(epoch=1, top1=0.5))
        read = reader(source, tmp_path, "top5")
        assert read.poll() == []
        with pytest.raises(UserError, match=r"needs epoch and top5, and .*top1"):
            read.last_units()
        assert reader(source, tmp_path, "top5").last_units(killed=True) == []

    def test_that_was_never_written_is_an_error_of_a_script_that_ended_by_itself(
        self, source: MetricSource, path: str, start: str, text: Callable[..., str], tmp_path: Path
    ) -> None:
        with pytest.raises(UserError, match=f"'{path}' in the trial's folder is nothing"):
            reader(source, tmp_path).last_units()
        assert reader(source, tmp_path).last_units(killed=True) == []

    def test_may_count_from_zero(
        self, source: MetricSource, path: str, start: str, text: Callable[..., str], tmp_path: Path
    ) -> None:
        """Its rows tell at the end of a script that has written them all; a source, and a study
        that knows, tell at once."""
        for epoch in range(3):
            append(tmp_path / path, start * (epoch == 0) + text(epoch=epoch, top1=epoch / 8))
        values = [{"top1": 0.0}, {"top1": 0.125}, {"top1": 0.25}]
        from_0, from_1 = list(enumerate(values, 1)), list(enumerate(values[1:], 1))
        for amount, found in ((3, from_0), (2, from_1), (9, from_1)):
            read = reader(source, tmp_path, budget=epochs(amount))
            units = read.poll()
            assert read.is_undecided == (amount != 2)
            assert units + read.last_units() == found
            assert read.decided == (amount == 3)
        killed = reader(source, tmp_path, budget=epochs(3))
        assert (killed.poll(), killed.last_units(killed=True), killed.decided) == ([], [], None)
        for read in (
            reader(replace(source, offset=1), tmp_path),
            reader(source, tmp_path, offset=1),
        ):
            assert read.poll() + read.last_units() == from_0
        told = reader(source, tmp_path, budget=epochs(3), offset=0)
        assert told.poll() + told.last_units() == from_1

    def test_may_call_metrics_otherwise_and_diverge(
        self, source: MetricSource, path: str, start: str, text: Callable[..., str], tmp_path: Path
    ) -> None:
        append(tmp_path / path, start + text(epoch=1, top1="nan"))
        renamed = replace(source, metrics=(("top1", "accuracy"),))
        [(unit, metrics)] = reader(renamed, tmp_path, "accuracy").poll()
        assert unit == 1
        assert math.isnan(metrics["accuracy"])
        assert pickle.loads(pickle.dumps(renamed)) == renamed


def test_rows_of_one_unit_are_merged_until_all_that_is_needed_is_there(tmp_path: Path) -> None:
    """Lightning's CSVLogger writes rows with holes, and its file again when a column is new."""
    path = "lightning_logs/version_*/metrics.csv"
    source = csv_file(path, offset=1, metrics={"train_loss": "loss"})
    read, file = reader(source, tmp_path), tmp_path / path.replace("*", "0")
    append(file, "epoch,step,lr\n0,49,0.125\n")
    assert read.poll() == []
    file.write_text("epoch,lr,step,top1,train_loss\n0,0.125,49,,\n0,,99,0.5,\n")
    assert read.poll() == []
    append(file, "0,,99,,2.5\n1,,199,0.75,\n")
    assert read.poll() == [(1, {"lr": 0.125, "step": 99, "top1": 0.5, "loss": 2.5})]
    again = tmp_path / path.replace("*", "10")
    append(again, "epoch,step,top1,train_loss\n1,199,0.75,\n1,199,,1.5\n2,299,0.75,\n2,299,,1\n")
    append(file.parents[1] / "version_9" / "metrics.csv", "epoch,top1,train_loss\n1,0.75,1.25\n")
    assert [(unit, each["loss"]) for unit, each in read.poll()] == [(2, 1.25), (3, 1)]


def test_what_is_tested_after_the_last_unit_belongs_to_it(tmp_path: Path) -> None:
    read = reader(csv_file("log"), tmp_path, budget=epochs(2))
    append(tmp_path / "log", "epoch,top1,test\n1,0.5,\n2,0.75,\n")
    assert read.poll() == [(1, {"top1": 0.5})]
    append(tmp_path / "log", "2,,0.625\n")
    assert read.poll() + read.last_units() == [(2, {"top1": 0.75, "test": 0.625})]


def test_a_csv_file_may_change_its_columns_in_the_middle(tmp_path: Path) -> None:
    read = reader(csv_file("log.csv"), tmp_path)
    rows = "epoch,loss,top1\n1,9,0.5\nepoch,lr,loss,top1\n2,0.1,8,0.75\n"
    append(tmp_path / "log.csv", rows)
    two = {"lr": 0.1, "loss": 8, "top1": 0.75}
    assert read.poll() == [(1, {"loss": 9, "top1": 0.5}), (2, two)]
    append(tmp_path / "log.csv", "3,0.1,7,0.8,\n")  # a comma at the end is no value
    assert [unit for unit, _ in read.poll()] == [3]
    append(tmp_path / "log.csv", "4,0.1,7,0.8,0.9\n")
    with pytest.raises(UserError, match=r"line 6: a row has as many cells as .* 4, .* has 5"):
        read.poll()


def test_units_without_the_metric_are_passed_over(tmp_path: Path) -> None:
    read = reader(json_lines("log", unit="step"), tmp_path)
    for step in range(1, 8):
        append(tmp_path / "log", json_text(step=step, loss=step, note="fine", flag=True))
        if step % 5 == 0:
            append(tmp_path / "log", json_text(step=step, top1=0.5))
    assert read.poll() == [(5, {"loss": 5, "top1": 0.5})]
    assert read.last_units() == []


def test_counts_between_two_units_belong_to_the_later_one(tmp_path: Path) -> None:
    read = reader(json_lines("log", unit="step", per_unit=100), tmp_path)
    for step, top1 in [(50, 0.1), (100, 0.2), (150, 0.3), (190, 0.4), (290, 0.5), (700, 0.6)]:
        append(tmp_path / "log", json_text(step=step, top1=top1))
    append(tmp_path / "log", json_text(step=730, top1=0.7))
    units = [(unit, metrics["top1"]) for unit, metrics in read.poll()]
    assert units == [(1, 0.2), (2, 0.4), (3, 0.5), (7, 0.6)]
    assert read.last_units() == [(8, {"top1": 0.7})]


def test_what_is_read_does_not_depend_on_when_one_looks(tmp_path: Path) -> None:
    rows = [json_text(epoch=e, **{key: e}) for e in range(1, 5) for key in ("a", "top1", "late")]
    often = reader(json_lines("log"), tmp_path)
    seen = []
    for row in rows:
        append(tmp_path / "log", row)
        seen += often.poll()
    assert seen == reader(json_lines("log"), tmp_path).poll()
    assert seen[0] == (1, {"a": 1, "top1": 1})


def test_a_progress_bar_shares_its_line_with_what_is_looked_for(tmp_path: Path) -> None:
    append(tmp_path / OUTPUT_FILE, " 10%|#\r 99%|####\repoch 3 top1 0.5\r\n")
    assert reader(EPOCHS, tmp_path).poll() == [(3, {"top1": 0.5})]


def test_a_line_that_is_written_over_is_read_as_it_is_shown(tmp_path: Path) -> None:
    """The last value of a unit counts, once the line shows another unit or ends."""
    read, output = reader(EPOCHS, tmp_path), tmp_path / OUTPUT_FILE
    append(output, "epoch 1 top1 0.1\repoch 1 top1 0.2\r")
    assert read.poll() == []
    append(output, "epoch 2 top1 0.3\repoch 2 top1 0.4\r")
    assert read.poll() == [(1, {"top1": 0.2})]
    append(output, "\repoch 3 top1 0.5\n")
    assert read.poll() == [(2, {"top1": 0.4}), (3, {"top1": 0.5})]
    append(output, "epoch 4 top1 0.6\r      \r")
    assert read.poll() == []
    assert read.last_units() == [(4, {"top1": 0.6})]


def test_each_match_of_a_line_is_a_report(tmp_path: Path) -> None:
    source = stdout(r"epoch (?P<epoch>\d+) top1 (?P<top1>[\d.]+)")
    append(tmp_path / OUTPUT_FILE, "epoch 1 top1 0.1; epoch 2 top1 0.2\n")
    assert reader(source, tmp_path).poll() == [(1, {"top1": 0.1}), (2, {"top1": 0.2})]


def test_what_a_terminal_obeys_hides_no_metric(tmp_path: Path) -> None:
    source = stdout(r"epoch (?P<epoch>\d+) top1 (?P<top1>[\d.]+)")
    cyan, green, plain = "\x1b[2K\x1b[36m", "\x1b[38;5;2m", "\x1b[0m"
    coloured = f"\x1b]0;title\x07{cyan}epoch{plain} 1 \x1b[1mtop1{plain} {green}0.5{plain}\n"
    append(tmp_path / OUTPUT_FILE, coloured)
    assert reader(source, tmp_path).poll() == [(1, {"top1": 0.5})]


def test_a_line_that_is_no_json_object_is_told(tmp_path: Path) -> None:
    append(tmp_path / "log.jsonl", "\n[1]\n")
    with pytest.raises(UserError, match=r"log.jsonl, line 2: must be a JSON object, not '\[1\]'"):
        reader(json_lines("log.jsonl"), tmp_path).poll()


def test_the_trainer_state_of_the_newest_checkpoint_is_read(tmp_path: Path) -> None:
    source = trainer_state("out", metrics={"eval_accuracy": "top1"})
    read = reader(source, tmp_path)
    assert read.poll() == []
    history = [{"eval_accuracy": 0.1, "epoch": 0, "step": 0}]
    for epoch in (1, 2, 3):
        history.append({"loss": 1 / epoch, "epoch": epoch - 0.5, "step": 20 * epoch - 10})
        history.append({"eval_accuracy": epoch / 4, "epoch": float(epoch), "step": 20 * epoch})
        text = json.dumps({"global_step": 20 * epoch, "log_history": history})
        file = tmp_path / "out" / f"checkpoint-{epoch * 20}" / "trainer_state.json"
        append(file, text[:20])
        assert read.poll() == []
        append(file, text[20:])
        [(unit, metrics)] = read.poll()
        assert (unit, metrics["top1"], metrics["loss"]) == (epoch, epoch / 4, 1 / epoch)
    append(tmp_path / "out" / "trainer_state.json", json.dumps({"log_history": history}))
    assert read.last_units() == []


def test_the_scalars_of_tensorboard_are_read_as_they_are_written(tmp_path: Path) -> None:
    from tensorboardX import SummaryWriter

    read = reader(tensorboard("runs", metrics={"val/top1": "top1"}), tmp_path)
    by_tag = reader(
        tensorboard("runs", unit="epoch", offset=1, metrics={"val/top1": "top1"}), tmp_path
    )
    assert read.poll() == []
    for step in (1, 2):
        folder = str(tmp_path / "runs" / "mine")
        with SummaryWriter(folder, filename_suffix=f".{step}") as writer:
            writer.add_scalar("loss", 0.1 * step, step)
            writer.add_scalar("val/top1", 0.81, step)
            writer.add_scalar("epoch", step - 1, step)
            writer.add_text("note", "text", step)
        assert read.poll() == [(step, {"loss": 0.1 * step, "top1": 0.81})]
        assert by_tag.poll() == [(step, {"loss": 0.1 * step, "top1": 0.81})]
    assert read.last_units() == []


@pytest.mark.parametrize("at_once", [True, False])
def test_two_writers_of_one_tag_are_told_apart_from_a_script_that_was_started_again(
    tmp_path: Path, at_once: bool
) -> None:
    from tensorboardX import SummaryWriter

    for offset, part in enumerate(("train", "val")):
        with SummaryWriter(str(tmp_path / "runs" / part)) as writer:
            for step in (1, 2, 3):
                time = 100.0 + step + (0.5 if at_once else 10) * offset
                writer.add_scalar("top1", step / 8, step, walltime=time)
                writer.add_scalar("lr", step / 8, step, walltime=time + 100 * offset)
    read = reader(tensorboard("runs"), tmp_path)
    if at_once:
        with pytest.raises(UserError, match=r"top1 is written in two folders at once"):
            read.poll()
        read = reader(tensorboard("runs/val"), tmp_path)
    assert [unit for unit, _ in read.poll() + read.last_units()] == [1, 2, 3]


def test_an_event_file_may_end_in_the_middle_of_an_event(tmp_path: Path) -> None:
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.summary_pb2 import Summary
    from tensorboardX.proto.tensor_pb2 import TensorProto

    tensor = TensorProto(dtype=1, tensor_content=struct.pack("<f", 0.81))
    value = Summary.Value(tag="top1", tensor=tensor)
    content = Event(step=1, summary=Summary(value=[value])).SerializeToString()
    record = struct.pack("<QI", len(content), 0) + content + b"\0" * 4
    file = tmp_path / "runs" / "events.out.tfevents.1.host"
    file.parent.mkdir()
    read = reader(tensorboard("runs"), tmp_path)
    for cut in range(len(record)):
        file.write_bytes(record[:cut])
        assert read.poll() == []
    file.write_bytes(record)
    assert read.poll() == [(1, {"top1": 0.81})]
    file.write_bytes(record + struct.pack("<QI", 2, 0) + b"\xff\xff" + b"\0" * 4)
    with pytest.raises(UserError, match=r"tfevents.*event 2: must be an event"):
        read.poll()


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda: stdout("(?P<epoch>"), "is a regular expression"),
        (lambda: stdout(r"(?P<top1>\d+)"), "names top1"),
        (lambda: stdout(r"(?P<epoch>\d+)"), "a metric and what counts"),
        (lambda: json_lines("/tmp/log"), "path in the trial's folder"),
        (lambda: csv_file("../log"), "path in the trial's folder"),
        (lambda: csv_file("log", offset=math.nan), "offset is a finite number"),
        (lambda: csv_file("log", per_unit=0), "above 0, not 0"),
        (lambda: csv_file("log", ofset=1), "unknown option 'ofset'.*'offset'"),  # type: ignore[call-arg]
        (lambda: reports(metrics=["top1"]), "maps the script's names"),  # type: ignore[arg-type]
        (lambda: reports(metrics={"a": "b", "c": "b"}), "two of the script's metrics one name"),
        (lambda: reports(metrics={"epoch": "b"}).check_unit("epochs"), "counts the budget"),
        (lambda: stdout(r"(?P<epoch>\d+) (?P<a>.*)").check_unit("steps"), r"\(\?P<step>"),
    ],
)
def test_an_option_that_cannot_be_used_is_refused(
    make: Callable[[], MetricSource], rule: str
) -> None:
    with pytest.raises(UserError, match=rule):
        make()


def run_script(folder: Path, code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    file = folder / "train.py"
    file.write_text(code)
    environment = {k: v for k, v in os.environ.items() if k not in (REPORTS_VARIABLE, "RANK")}
    return subprocess.run(
        [sys.executable, str(file)],
        env={**environment, "PYTHONPATH": str(ROOT), **variables},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_script_reports_to_the_study_and_does_nothing_outside_one(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "import hsweep\n"
        "for epoch in (1, 2): hsweep.report(epoch=epoch, top1=epoch / 4)\n"
        "print(*{'torch', 'ray', 'numpy', 'mlflow', 'optuna', 'pandas'} & set(sys.modules))"
    )
    file = tmp_path / REPORTS_FILE
    for variables, has_reported in (
        ({}, False),
        ({REPORTS_VARIABLE: str(file), "RANK": "1"}, False),
        ({REPORTS_VARIABLE: str(file)}, True),
    ):
        done = run_script(tmp_path, code, **variables)
        assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr
        assert file.exists() == has_reported
    assert reader(reports(), tmp_path).poll() == [(1, {"top1": 0.25}), (2, {"top1": 0.5})]


@pytest.mark.parametrize("is_in_study", [True, False])
def test_a_script_keeps_its_own_modules(tmp_path: Path, is_in_study: bool) -> None:
    """Even those that are called like this project's: nothing of it is imported unasked."""
    for name in ("models", "tasks"):
        (tmp_path / f"{name}.py").write_text("WIDTH = 3\n")
    code = (
        "import sys\n"
        "import hsweep\n"
        "import models, tasks\n"
        "hsweep.report(epoch=1, top1=0.5)\n"
        "print(models.WIDTH + tasks.WIDTH, hasattr(hsweep, '_nothing'))\n"
        "print(*(name for name in sys.modules if name.startswith('hsweep.design')))\n"
    )
    reports = {REPORTS_VARIABLE: str(tmp_path / REPORTS_FILE)} if is_in_study else {}
    done = run_script(tmp_path, code, **reports)
    assert done.stdout.split() == ["6", "False"], done.stderr


def test_a_sweep_file_may_be_its_own_script(tmp_path: Path) -> None:
    code = "from hsweep import epochs, report\nreport(epoch=epochs(3).amount)\n"
    file = tmp_path / REPORTS_FILE
    done = run_script(tmp_path, code, **{REPORTS_VARIABLE: str(file)})
    assert (done.stderr, file.read_text()) == ("", '{"epoch": 3.0}\n')


def test_a_report_takes_numbers(tmp_path: Path) -> None:
    code = "import hsweep; hsweep.report(epoch=1, top1='high')"
    done = run_script(tmp_path, code, **{REPORTS_VARIABLE: str(tmp_path / REPORTS_FILE)})
    assert "hsweep.report takes numbers, and top1 is 'high'" in done.stderr
