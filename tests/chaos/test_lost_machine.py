"""Studies whose machine is lost with its whole home, and whose object store fails for a while."""

import random
import shutil
from collections.abc import Callable, Iterator

import pytest
from chaos.audit import Endings, audit_all, standing
from chaos.fault_table import Fault
from chaos.workplace import CHECKPOINT_SECONDS, REPORT_SECONDS, Process, Workplace
from object_store import KEYS, ObjectStore, object_store

from hsweep.errors import UserError
from hsweep.record.mirror import COPY_SECONDS, copied_home

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

STUDY = "lost"
HOW = ("--runner", "inline", "--no-check")


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    with object_store("bucket") as served:
        yield served


def copied(held: ObjectStore) -> tuple[int, int]:
    """Return how many reports the storage holds, and how many trials have not ended there."""
    try:
        return standing(copied_home(held.uri(), STUDY).study(STUDY).root)
    except UserError:
        return 0, 0


def settle(workplace: Workplace, tried: Fault, calm: Endings, store: str) -> None:
    tried.settle(audit_all(workplace.study(STUDY), calm, workplace.seen, store))


def test_a_lost_machine_costs_what_it_had_not_copied(
    workplace: Workplace,
    calm: Endings,
    rng: random.Random,
    fault: Callable[[str], Fault],
    held: ObjectStore,
) -> None:
    tried = fault("driver's machine lost with its home, study resumed from an S3 server elsewhere")
    database = workplace.root / "mlflow.db"
    shutil.copy(workplace.home(STUDY) / "mlflow" / "mlflow.db", database)
    store = f"sqlite:///{database}"

    def go_on() -> Process:
        place = ("--home", workplace.home(STUDY), "--tracking-uri", store)
        if copied(held) != (0, 0):
            return workplace.start("resume", STUDY, "--from", held.uri(), *HOW, *place)
        begin = ("--study", STUDY, "--storage", held.uri())
        return workplace.start("run", workplace.sweep, *begin, *HOW, *place)

    for _ in range(5):
        driver = go_on()
        workplace.wait_for_report(STUDY, driver)
        driver.runs_until(driver.seconds() + rng.uniform(0.0, 1.5 * COPY_SECONDS))
        driver.kill()
        tried.tries += 1
        reports, _ = workplace.standing(STUDY)
        shutil.rmtree(workplace.home(STUDY))
        lost = (reports - copied(held)[0]) * REPORT_SECONDS
        tried.cost([lost])
        assert lost <= 2 * COPY_SECONDS + CHECKPOINT_SECONDS
    driver = go_on()
    assert driver.wait() == 0, driver.output
    settle(workplace, tried, calm, store)


def test_an_object_store_that_fails_for_a_minute(
    workplace: Workplace,
    calm: Endings,
    rng: random.Random,
    fault: Callable[[str], Fault],
    held: ObjectStore,
) -> None:
    tried = fault("object store failing for a minute: it refuses, drops connections, hangs")
    driver = workplace.go_on(STUDY, *HOW, "--storage", held.uri())
    workplace.wait_for_report(STUDY, driver)
    driver.runs_until(driver.seconds() + rng.uniform(0.0, 2.0))
    began = driver.seconds()
    for kind in ("refuse", "drop", "hang"):
        held.fault = lambda _method, _path, kind=kind: kind
        tried.tries += 1
        driver.runs_until(began + 20.0 * tried.tries)
        workplace.look(STUDY)
    held.fault = None
    held.ended.set()
    assert driver.wait() == 0, driver.output
    settle(workplace, tried, calm, workplace.store(STUDY))
    assert copied(held) == workplace.standing(STUDY)
