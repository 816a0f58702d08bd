"""A study's copy in its storage: whole at every instant, and enough to go on from elsewhere."""

import contextlib
import json
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result
from hypothesis import given, settings
from hypothesis import strategies as st
from object_store import KEYS, object_store
from tiny_runs import histories
from tiny_studies import new_study
from told_process import ToldProcess

from hsweep.errors import UserError
from hsweep.paths import Home
from hsweep.record import lease, mirror
from hsweep.record.mirror import Mirror, bring, copied_home, stored_studies
from hsweep.record.study import StudyFolder
from hsweep.training.storage import Store

Invoke = Callable[..., Result]

DRIVER = """
import sys
from pathlib import Path
from rich.console import Console
from hsweep.errors import FencedError, UserError
from hsweep.paths import Home
from hsweep.record import lease, mirror
from hsweep.record.study import StudyFolder

home, storage, machine = sys.argv[1:]
lease._machine = lambda: machine
lease.BEAT_SECONDS, lease.LEASE_SECONDS, lease._LOOK_SECONDS = 0.05, 1.0, 0.05
mirror.COPY_SECONDS = 0.1
home = Home(Path(home))
try:
    print("ready", flush=True)
    sys.stdin.readline()
    is_here = home.study("mine").root.exists()
    study = StudyFolder.open(home, "mine") if is_here else mirror.bring(storage, "mine", home)
    with study.writer() as journal, mirror.mirroring(study, journal, {}, Console()):
        print("holds", flush=True)
        for line in sys.stdin:
            journal.set_meta("said", line.strip())
            journal.lease.confirm()
            print("copied", flush=True)
except (FencedError, UserError) as error:
    print(error, flush=True)
"""


class Driver(ToldProcess):
    """A process on a machine of its own, which has no file system in common with others."""

    def __init__(self, home: Path, storage: str, machine: str) -> None:
        super().__init__(DRIVER, home, storage, machine)


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HSWEEP_NODE_DIR", str(tmp_path / "node"))
    monkeypatch.setattr(lease, "LEASE_SECONDS", 1.0)
    monkeypatch.setattr(lease, "_LOOK_SECONDS", 0.05)


@pytest.fixture
def storage(tmp_path: Path, node: None) -> str:
    return str(tmp_path / "storage")


@pytest.fixture
def drivers(tmp_path: Path, storage: str) -> Iterator[Callable[[str], Driver]]:
    with contextlib.ExitStack() as stack:

        def start(machine: str) -> Driver:
            driver = Driver(tmp_path / machine, storage, machine)
            stack.callback(driver.close)
            return driver

        yield start


def said(storage: str) -> str | None:
    home = copied_home(storage, "mine")
    with StudyFolder.open(home, "mine").journal() as journal:
        return journal.meta("said")


@pytest.fixture
def first(tmp_path: Path, storage: str, drivers: Callable[[str], Driver]) -> Driver:
    """A driver that runs the study on a machine called first."""
    new_study(Home(tmp_path / "first").create(), storage=storage)
    driver = drivers("first")
    assert driver.asks() == "holds"
    assert driver.asks("one") == "copied"
    return driver


def test_a_study_that_runs_is_not_begun_elsewhere(
    first: Driver, drivers: Callable[[str], Driver], storage: str
) -> None:
    answer = drivers("second").asks()
    assert f"the study 'mine' is being run by process {first.process.pid} on" in answer
    assert first.asks("two") == "copied"
    assert said(storage) == "two"


def test_what_a_lost_machine_has_copied_goes_on_elsewhere(
    first: Driver, drivers: Callable[[str], Driver], storage: str, tmp_path: Path
) -> None:
    first.close()
    shutil.rmtree(tmp_path / "first")
    second = drivers("second")
    assert second.asks() == "holds"
    assert said(storage) == "one"
    assert second.asks("two") == "copied"
    assert said(storage) == "two"


def test_a_driver_that_was_frozen_finds_that_the_study_went_on_and_ends(
    first: Driver, drivers: Callable[[str], Driver], storage: str, tmp_path: Path
) -> None:
    first.process.send_signal(signal.SIGSTOP)
    second = drivers("second")
    assert second.asks() == "holds"
    assert second.asks("two") == "copied"
    first.say("late")
    first.process.send_signal(signal.SIGCONT)
    assert "another driver goes on with the study 'mine' from its copy" in first.hears()
    assert first.process.wait(60) == 0
    assert said(storage) == "two"
    assert second.asks("three") == "copied"
    assert said(storage) == "three"
    # Its home has what does not count: it is refused, and brought up to date by the storage.
    with pytest.raises(UserError, match=r"has more of the study 'mine' than .* --from"):
        mirror.check_storage(
            StudyFolder.open(Home(tmp_path / "first"), "mine").manifest,
            Home(tmp_path / "first").study("mine"),
        )
    second.close()
    study = bring(storage, "mine", Home(tmp_path / "first"))
    with study.journal() as journal:
        assert journal.meta("said") == "three"


def test_of_two_that_take_a_study_over_at_once_one_stays(
    first: Driver, drivers: Callable[[str], Driver], storage: str
) -> None:
    first.close()
    both = [drivers("second"), drivers("third")]
    for driver in both:
        driver.say("")
    answers = [driver.hears() for driver in both]
    rivals = [driver for driver, answer in zip(both, answers, strict=True) if answer == "holds"]
    assert rivals, answers
    # Each finds the other by its next copy at the latest.
    for turn in range(3):
        rivals = [rival for rival in rivals if rival.asks(f"turn {turn}") == "copied"]
    assert len(rivals) == 1
    assert said(storage) == "turn 2"


@settings(max_examples=25, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["record", "copy", "stale"]), st.integers(1, 40)), max_size=25
    )
)
def test_a_copy_holds_whole_lines_up_to_the_last_copying(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    """Whatever older parts a late writer leaves, and however often it is read."""
    folder = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HSWEEP_NODE_DIR", str(folder / "node"))
        patch.setattr(mirror, "_PART_BYTES", 2_000)
        storage = str(folder / "storage")
        study = new_study(Home(folder / "home").create(), storage=storage)
        store = Store(f"{storage}/mine")
        late: dict[str, bytes] = {}
        with study.writer() as journal:
            assert journal.lease is not None
            copying = Mirror(study, journal.lease, {})
            copying.copy()
            copied = recorded = "nothing"
            for number, (step, size) in enumerate(steps):
                if step == "record":
                    recorded = f"{number} " + "x" * size * 50
                    journal.set_meta("said", recorded)
                elif step == "copy":
                    for name in store.sizes("journal"):
                        late[f"journal/{name}"] = store.read(f"journal/{name}") or b""
                    copying.copy()
                    copied = recorded
                else:
                    for name, content in list(late.items())[-size:]:
                        store.write(name, content)
                assert (said(storage) or "nothing") == copied


# By the command line.


@pytest.fixture(params=["a folder", "an S3 server"])
def place(
    request: pytest.FixtureRequest, storage: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    if request.param == "a folder":
        yield storage
        return
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    with object_store("bucket") as held:
        yield held.uri()


def test_a_study_goes_on_from_its_copy_when_its_home_and_its_sweep_are_lost(
    hsweep: Invoke, home: Home, tmp_path: Path, place: str
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    # What a test before has left in this process's path is another module.
    beside = f"beside_{'s3' if '://' in place else 'folder'}"
    (here / f"{beside}.py").write_text("WIDTHS = [2, 4]\n")
    (here / "sweep.py").write_text(
        f'"""A tiny question."""\nfrom tiny import tiny_sweep\nimport {beside}\n'
        f"from hsweep import grid\n\nSWEEP = tiny_sweep(space=grid(width={beside}.WIDTHS))\n"
    )
    store = f"sqlite:///{tmp_path}/mlflow.db"
    options = ("--runner", "inline", "--tracking-uri", store)
    done = hsweep("run", here / "sweep.py", "--study", "mine", "--storage", place, *options)
    assert done.exit_code == 0, done.output
    trained = histories(home.study("mine").root)
    plan = home.study("mine").plan.read_bytes()
    assert Store(place, "mine").read("plan.json") == plan
    runs = _num_runs(store)
    shutil.rmtree(home.root)
    shutil.rmtree(here)
    sys.modules.pop(beside)

    [row] = json.loads(hsweep("list", "--from", place, "--json").output)
    assert (row["study"], row["state"], row["finished"]) == ("mine", "complete", len(trained))
    shown = json.loads(hsweep("show", "mine", "--from", place, "--json").output)
    assert {trial["key"] for trial in shown["trials_list"]} == trained.keys()
    assert hsweep("analyze", "mine", "--from", place).exit_code == 0
    report = hsweep("report", "mine", "--from", place)
    assert Path(report.output.strip()).is_file()
    assert not home.study("mine").root.exists()

    other = ("--home", str(tmp_path / "other"))
    again = hsweep("resume", "mine", "--from", place, "--runner", "inline", *other)
    assert again.exit_code == 0, again.output
    assert "there is nothing to train" in again.output
    assert histories(tmp_path / "other" / "studies" / "mine") == trained
    assert _num_runs(store) == runs


def _num_runs(store: str) -> int:
    from mlflow import MlflowClient

    client = MlflowClient(store)
    experiments = [each.experiment_id for each in client.search_experiments()]
    return len(client.search_runs(experiments, max_results=1000))


def test_a_storage_without_the_study_says_what_it_has(
    hsweep: Invoke, home: Home, storage: str
) -> None:
    study = new_study(home, name="there", storage=storage)
    with study.writer() as journal:
        assert journal.lease is not None
        Mirror(study, journal.lease, {}).copy()
    for command in ("show", "resume", "analyze", "report"):
        refused = hsweep(command, "mine", "--from", storage)
        assert refused.exit_code == 2
        assert f"no study called 'mine' has a copy in {storage}; there: there" in refused.stderr
    assert stored_studies(storage)[0]["study"] == "there"


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ('{"../beside.py": "1"}', "outside its own folder"),
        ('{"/tmp/absolute.py": "1"}', "outside its own folder"),
        ('{"deep/../../beside.py": "1"}', "outside its own folder"),
        ("no JSON", "is damaged"),
        ("[1]", "is damaged"),
    ],
)
def test_a_copy_with_code_for_other_folders_or_none_is_refused(
    tmp_path: Path, storage: str, code: str, why: str
) -> None:
    with new_study(Home(tmp_path / "home").create(), storage=storage).writer() as journal:
        assert journal.lease is not None
        study = StudyFolder.open(Home(tmp_path / "home"), "mine")
        Mirror(study, journal.lease, {}).copy(is_last=True)
    Store(f"{storage}/mine").write("code.json", code.encode())
    with pytest.raises(UserError, match=why):
        bring(storage, "mine", Home(tmp_path / "other"))
    assert not (tmp_path / "other" / "studies" / "mine").exists()
    assert not list((tmp_path / "other").rglob("*.py"))


def test_a_storage_that_fails_is_told_and_made_up_for(
    home: Home, monkeypatch: pytest.MonkeyPatch, node: None, hsweep: Invoke
) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    with object_store("bucket") as held:
        study = new_study(home, storage=held.uri())
        with study.writer() as journal:
            assert journal.lease is not None
            copying = Mirror(study, journal.lease, {})
            copying.copy()
            held.fault = lambda method, path: "refuse"
            journal.set_meta("said", "in the outage")
            with pytest.raises(OSError, match="cannot be read"):
                copying.copy()
            journal.lease.beat()
            assert "is not up to date" in hsweep("show", "mine").output
            held.fault = None
            copying.copy()
            journal.lease.beat()
            assert "is not up to date" not in hsweep("show", "mine").output
        assert said(held.uri()) == "in the outage"
