"""Scripts whose worker or driver is killed: nothing of them survives, and the study goes on."""

import os
import signal
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
from cli_process import Driver, Workplace, running_in
from tiny_runs import coordinating, histories, status_log, statuses

from hsweep.coordination.runner import InlineRunner
from hsweep.workspace import load_sweep

_SWEEP = '''
"""Scripts that wait before their third epoch."""

from hsweep import Sweep, command, epochs, grid

SWEEP = Sweep(
    name="outside",
    space=grid(heads=[1, 2]),
    train=command(
        "python train.py {heads} {budget} {folder} {resume}", resume="{folder}/state",
        grace_seconds=0.5,
    ),
    metric="top1",
    goal="max",
    budget=epochs(4),
)
'''
_SCRIPT = """
import os, pathlib, signal, sys, time
import hsweep

heads, budget, *places = sys.argv[1:]
folder, *state = map(pathlib.Path, places)
traces = pathlib.Path("traces")
epoch = int(state[0].read_text()) if state else 0
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:  # deaf, and in a session of its own
    os.setsid()
    while True:
        signal.pause()
while epoch < int(budget):
    if epoch == 2 and not (traces / "go").exists():
        (traces / f"waiting-{os.getppid()}").touch()
        while not (traces / "go").exists():
            time.sleep(0.02)
    epoch += 1
    hsweep.report(epoch=epoch, top1=epoch / 8 + int(heads) / 16)
    (folder / "state.tmp").write_text(str(epoch))
    (folder / "state.tmp").rename(folder / "state")
"""


@pytest.fixture
def workplace(tmp_path: Path) -> Iterator[Workplace]:
    workplace = Workplace(tmp_path)
    workplace.sweep.write_text(_SWEEP)
    (tmp_path / "train.py").write_text(_SCRIPT)
    yield workplace
    workplace.close()


def wait_for_waiting(driver: Driver, workplace: Workplace, known: Collection[int] = ()) -> int:
    """Wait until a script waits that another process started than the known ones, with two reports
    on record; return that process."""

    def reached() -> bool:
        done = [len(history) for history in workplace.histories("mine").values()]
        return bool(workplace.waiting() - {*known}) and 2 in done

    driver.until(reached)
    (worker,) = workplace.waiting() - {*known}
    return worker


def test_nothing_that_is_killed_leaves_a_process_or_a_gap(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = workplace.root
    on_ray = ("--max-concurrent", "1", "--no-dashboard")
    driver = workplace.start("run", "outside.py", "--study", "mine", *on_ray)
    worker = wait_for_waiting(driver, workplace)
    scripts = running_in(root)
    assert len(scripts) >= 2  # the script and its child
    os.kill(worker, signal.SIGKILL)
    other = wait_for_waiting(driver, workplace, {worker})
    assert not {*scripts} & {*running_in(root)}

    driver.kill()
    for trace in workplace.traces.iterdir():
        trace.unlink()
    going_on = workplace.start("resume", "mine", "--runner", "inline")
    # The one that starts the trial again ends first what is left of it.
    assert wait_for_waiting(going_on, workplace) not in (worker, other)
    going_on.interrupt()  # which waits for no report
    assert going_on.wait() == 130
    assert running_in(root) == []
    workplace.let_go()

    monkeypatch.chdir(root)
    sweep = load_sweep(workplace.sweep).sweep
    for study in (workplace.study("mine"), root / "calm"):
        with coordinating(sweep, study) as coordinator:
            InlineRunner().run(coordinator)
    assert running_in(root) == []
    assert set(statuses(workplace.study("mine")).values()) == {"finished"}
    assert workplace.histories("mine") == histories(root / "calm")
    for key in histories(root / "calm"):
        assert status_log(workplace.study("mine"), key).count("finished") == 1
