"""A driver that is killed before each of its writes in turn, and a study that goes on each time."""

import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from chaos.audit import Audit, Endings, Seen, audit, audit_tracking, lost_work, read_record, seen_in
from chaos.fault_table import Fault
from chaos.forking import TESTS, Ended, Forks

from hsweep.paths import index_file

STUDY = "small"
SWEEP = '''
"""Three shapes whose dropout would show any step out of order, stopped early among themselves."""

from hsweep.paths import index_file
from hsweep import Asha, Recipe, Sweep, epochs, grid
from tiny_beside import TinyTask, tiny_model

SWEEP = Sweep(
    name="small",
    space=grid(width=[1, 2, 3], dropout=[0.2]),
    task=TinyTask(),
    model=tiny_model,
    recipe=Recipe(lr=0.05, batch_size=8),
    metric="nmse",
    goal="min",
    budget=epochs(3),
    early_stopping=Asha(grace=1, reduction_factor=2, min_survivors=1),
    checkpoint_seconds=0.0,
)
'''


class Small:
    """A small study, begun anew for each try.

    Attributes:
        calm: how its trials end undisturbed.
        undisturbed: the run without a kill.
    """

    def __init__(self, forks: Forks, sweep: Path) -> None:
        self._forks, self._sweep = forks, sweep
        self._number = 0
        self.home = forks.root / "calm"
        self.undisturbed = self.begin(concludes=True)
        assert self.undisturbed.code == 0, self.undisturbed.output
        self._calm_home = self._forks.root / "kept"
        shutil.copytree(self.home, self._calm_home)
        self.calm: Endings = read_record(self.study).endings()

    @property
    def study(self) -> Path:
        return self.home / "studies" / STUDY

    def anew(self) -> None:
        """Go on in an empty home."""
        shutil.rmtree(self.home, ignore_errors=True)
        self._number += 1
        self.home = self._forks.root / f"home-{self._number}"

    def begin(
        self, *, dies_at: int | None = None, torn: bool = False, concludes: bool = False
    ) -> Ended:
        return self._forks.run(
            *("run", self._sweep, "--study", STUDY, "--runner", "inline", "--home", self.home),
            dies_at=dies_at,
            torn=torn,
            concludes=concludes,
        )

    def go_on(
        self, *, dies_at: int | None = None, torn: bool = False, concludes: bool = True
    ) -> Ended:
        """Resume the study, or begin it again if it was killed before there was one."""
        if not self.study.exists():
            return self.begin(dies_at=dies_at, torn=torn, concludes=concludes)
        return self._forks.run(
            *("resume", STUDY, "--runner", "inline", "--home", self.home),
            dies_at=dies_at,
            torn=torn,
            concludes=concludes,
        )

    @property
    def store(self) -> str:
        return f"sqlite:///{self.home}/mlflow.db"

    def deliver(self, empty: Path | None, *, dies_at: int | None = None) -> Ended:
        """Deliver the study, to an empty store if one is given."""
        if empty is not None:
            # The record as it was before any delivery.
            self.anew()
            shutil.copytree(self._calm_home, self.home)
            shutil.copy(empty, self.home / "mlflow.db")
        return self._forks.run(
            *("sync", STUDY, "--home", self.home, "--tracking-uri", self.store),
            dies_at=dies_at,
            tracks=True,
        )

    def kill_and_go_on(self, *kills: tuple[int, bool]) -> Audit:
        """Kill the first run and then each resumption, go on once more, and audit."""
        self.anew()
        seen: Seen = set()
        for at, torn in kills:
            ended = self.go_on(dies_at=at, torn=torn)
            assert ended.was_killed, ended.output
            if index_file(self.study / "journal").exists():
                # Checkpoints follow every report here, so nothing on record is lost.
                assert set(lost_work(self.study).values()) <= {0.0}
                seen |= seen_in(read_record(self.study))
        was_concluding = (self.study / "trials.parquet").exists()
        ended = self.go_on(concludes=was_concluding)
        assert ended.code == 0, ended.output
        assert (self.study / "report.html").exists() == was_concluding
        return audit(self.study, self.calm, seen)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Small]:
    root = tmp_path_factory.mktemp("every-write")
    shutil.copy(TESTS / "tiny.py", root / "tiny_beside.py")
    sweep = root / "small.py"
    sweep.write_text(SWEEP)
    forks = Forks(root, tmp_path_factory.mktemp("notes"))
    try:
        yield Small(forks, sweep)
    finally:
        forks.close()


def killed_before(writes: Iterable[int], small: Small, tried: Fault) -> None:
    for at in writes:
        tried.tries += 1
        tried.settle(small.kill_and_go_on((at, False)))


def test_a_driver_killed_before_every_third_of_its_writes(
    small: Small, fault: Callable[[str], Fault]
) -> None:
    tried = fault("driver killed before every third write (one process, small study)")
    killed_before(range(1, len(small.undisturbed.writes) + 1, 3), small, tried)


@pytest.mark.slow
def test_a_driver_killed_before_any_one_of_its_writes(
    small: Small, fault: Callable[[str], Fault]
) -> None:
    tried = fault("driver killed before each write in turn (one process, small study)")
    killed_before(range(1, len(small.undisturbed.writes) + 1), small, tried)


@pytest.mark.slow
def test_a_delivery_killed_before_any_one_of_its_writes(
    small: Small, store: Path, fault: Callable[[str], Fault]
) -> None:
    """Those to MLflow's database and those to the study's record."""
    tried = fault("delivery to MLflow killed before each write in turn")
    done = small.deliver(store)
    assert done.code == 0, done.output
    assert done.writes
    for at in range(1, len(done.writes) + 1):
        assert small.deliver(store, dies_at=at).was_killed
        done = small.deliver(None)
        assert done.code == 0, done.output
        found = audit(small.study, small.calm)
        audit_tracking(found, small.study, small.store)
        tried.tries += 1
        tried.settle(found)


@pytest.mark.slow
def test_a_driver_killed_in_the_middle_of_a_file(
    small: Small, fault: Callable[[str], Fault]
) -> None:
    tried = fault("driver killed half through each file it writes")
    for at, write in enumerate(small.undisturbed.writes, start=1):
        if write["tears"]:
            tried.tries += 1
            tried.settle(small.kill_and_go_on((at, True)))
