"""Studies as jobs: the script that is written, what is refused before anything is submitted."""

import os
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hsweep.cli import main
from hsweep.clusters import slurm
from hsweep.clusters.node import offer_of, offering
from hsweep.clusters.sbatch import LIMIT
from hsweep.errors import UserError
from hsweep.paths import Home

SWEEP = '''
"""Four trials of a function."""

from hsweep import Sweep, epochs, grid


def train(point, run):
    run.report(1, score=point.width)


SWEEP = Sweep(
    name="tiny", space=grid(width=[1, 2]), train=train, metric="score", goal="max", budget=epochs(1)
)
'''


@dataclass
class Place:
    """A folder with a sweep, a home, and commands of SLURM that are shell scripts."""

    root: Path

    @property
    def home(self) -> Path:
        return self.root / "home"

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(main, words)

    def submit(self, *words: str) -> Result:
        return self.run("submit", "slurm", str(self.root / "tiny.py"), *words)

    def command(self, name: str, script: str) -> None:
        file = self.root / "bin" / name
        file.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
        file.chmod(0o755)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    (tmp_path / "tiny.py").write_text(SWEEP)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("HSWEEP_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("SLURM", "RAY_"))]:
        monkeypatch.delenv(name)
    slurm.this_job.cache_clear()
    return Place(tmp_path)


def test_a_dry_run_prints_the_whole_script_and_submits_nothing(place: Place) -> None:
    sizes = ("--nodes", "2", "--cpus-per-node", "8", "--gpus-per-node", "a100:4", "--time", "2-12")
    done = place.submit(*sizes, "--dry-run", "--set", "width=1,2", "--grace", "90s")
    assert done.exit_code == 0, done.output
    script = done.stdout
    assert script.startswith("#!/bin/bash\n")
    for setting in (
        *("nodes 2", "ntasks-per-node=1", "cpus-per-task 8", "gpus-per-node a100:4", "time=2-12"),
        *("signal=B:TERM@120", "open-mode=append", "requeue", f"chdir={place.root}"),
    ):
        assert f"#SBATCH --{setting}\n" in script
    shared = f"--grace 90 --home {place.home}"
    assert f"set -- run {place.root}/tiny.py --study tiny-quick --set width=1,2 {shared}" in script
    assert f"set -- resume tiny-quick {shared}\n" in script
    assert subprocess.run(["/bin/bash", "-n"], input=script, text=True, check=False).returncode == 0
    assert not place.home.exists()


def test_options_that_hsweep_does_not_know_go_to_sbatch(place: Place) -> None:
    done = place.submit("--dry-run", "--partition=gpu", "-A", "my lab", "--", "--qos", "low")
    assert done.exit_code == 0, done.output
    lines = [line for line in done.stdout.splitlines() if line.startswith("#SBATCH")]
    assert lines[-3:] == ["#SBATCH --partition=gpu", "#SBATCH -A 'my lab'", "#SBATCH --qos low"]


def run_script(
    place: Place, script: str, restarts: int, code: int, state: str = "RUNNING"
) -> tuple[int, list[str]]:
    """Run a script whose driver is a stand-in; return its exit code and what was called."""
    called = place.root / "called"
    called.write_text("")
    driver = place.root / "bin" / "driver"
    told = f"[ {code} = 0 ] || {{ kill -TERM $PPID; sleep 5 & wait; }}"
    place.command("driver", f"trap 'exit {code}' TERM; echo driver $1 >> {called}; {told}")
    place.command("squeue", f"echo {state}")
    place.command("scontrol", f"echo scontrol $* >> {called}")
    lines = [
        f'{driver} "$@" &' if line.endswith('"$@" &') else line for line in script.splitlines()
    ]
    done = subprocess.run(
        ["/bin/bash", "-c", "\n".join(lines)],
        env={
            **os.environ,
            "PATH": f"{place.root}/bin:/usr/bin:/bin",
            "SLURM_JOB_ID": "7",
            "SLURM_RESTART_COUNT": str(restarts),
        },
        check=False,
    )
    return done.returncode, called.read_text().splitlines()


def test_a_job_queues_again_for_the_code_that_says_so_and_for_no_other(place: Place) -> None:
    script = place.submit("--dry-run").stdout
    assert run_script(place, script, 0, 0) == (0, ["driver run"])
    assert run_script(place, script, 0, 75) == (75, ["driver run", "scontrol requeue 7"])
    # SIGTERM has ended it before Python had begun.
    assert run_script(place, script, 0, 143) == (143, ["driver run", "scontrol requeue 7"])
    assert run_script(place, script, 0, 2) == (2, ["driver run"])
    assert run_script(place, script, 0, 130) == (130, ["driver run"])
    # The user has cancelled it, and the study has ended within its time.
    assert run_script(place, script, 0, 75, "COMPLETING") == (75, ["driver run"])


def test_lines_of_the_users_come_before_the_study(place: Place) -> None:
    script = place.submit("--dry-run").stdout
    (place.home / "slurm").mkdir(parents=True)
    (place.home / "slurm" / "job.sh").write_text(f"echo loaded >> {place.root}/called\n")
    assert run_script(place, script, 0, 0) == (0, ["loaded", "driver run"])


def test_a_job_that_comes_back_goes_on_with_the_study_on_record(place: Place) -> None:
    script = place.submit("--dry-run").stdout
    # One that was taken away before it had begun the study begins it.
    assert run_script(place, script, 1, 0) == (0, ["driver run"])
    study = Home(place.home).study("tiny-quick")
    study.root.mkdir(parents=True)
    study.manifest.touch()
    assert run_script(place, script, 1, 0) == (0, ["driver resume"])
    # The first time the file counts, also for a study that is there: it may have been edited.
    assert run_script(place, script, 0, 0) == (0, ["driver run"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--time", "soon"], "'soon' is no time limit; write 30 (minutes), 24:00:00"),
        (["--time", "1"], "--time 1 leaves no time to train"),
        (["--time", "00:02:59"], "60 s earlier; give at least 3 minutes"),
        (["--array=1-4"], "--array=1-4 makes several jobs of one study"),
        (["--", "-a", "1-4"], "let further nodes join it by `sbatch --array"),
        (["--study", "mine", "--array=2"], "hsweep join mine --home /"),
        (["--export=ALL,HF_TOKEN=abc"], "got '--export=ALL,HF_TOKEN=***'. Export it before"),
        (["--address", "head:1"], "leave out the address head:1"),
        (["--set", "depth=3"], "depth"),
        (["partition"], "unexpected argument 'partition'"),
        (["--storage", "s3://key:secret@bucket/x"], "must hold no password"),
    ],
)
def test_what_cannot_be_submitted_is_refused_at_once(
    place: Place, words: list[str], said: str
) -> None:
    done = place.submit(*words)
    assert done.exit_code == 2, done.output
    assert said in done.stderr
    assert not (place.home / "studies").exists()


def test_without_slurm_the_refusal_says_what_to_do(place: Place) -> None:
    done = place.submit()
    assert done.exit_code == 2
    assert "there is no sbatch on this machine" in done.stderr
    assert "--dry-run" in done.stderr


def test_a_submitted_study_shows_what_the_queue_says(place: Place) -> None:
    place.command("squeue", 'echo "$*" > asked; cat queue')
    place.command("sbatch", 'cat "$2" > submitted; echo "41;lab"')
    (place.root / "queue").touch()
    done = place.submit()
    assert done.exit_code == 0, done.output
    assert "job 41 is submitted" in done.stdout
    script = Home(place.home).submissions("tiny-quick") / "41.sbatch"
    assert script.read_text() == (place.root / "submitted").read_text()

    (place.root / "queue").write_text("41|PENDING||0:00|1:00:00|Priority|2030-01-02T03:04:05\n")
    shown = place.run("show", "tiny-quick")
    assert shown.exit_code == 0, shown.output
    assert "tiny-quick is submitted, and has not begun" in shown.stdout
    assert "job 41: pending (Priority), expected to start at 2030-01-02T03:04:05" in shown.stdout
    again = place.submit()
    assert again.exit_code == 2
    assert "`scancel 41` ends it" in again.stderr

    place.command("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    assert (
        f"is not in the queue; its output: {script.with_suffix('.out')}"
        in place.run("show", "tiny-quick").stdout
    )


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [
        *(("30", 1800), ("30:15", 1815), ("2:00:05", 7205)),
        *(("1-0", 86400), ("1-2:3", 93780), ("2-01:02:03", 176523)),
    ],
)
def test_time_limits_are_read_as_sbatch_reads_them(limit: str, seconds: int) -> None:
    assert LIMIT.convert(limit, None, None) == (limit, seconds)


def test_in_a_job_ray_starts_on_its_nodes_unless_an_address_is_given(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert slurm.this_job() is None
    slurm.this_job.cache_clear()
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    with pytest.raises(UserError, match="shell of SLURM job 12 on none of its nodes"):
        slurm.this_job()
    monkeypatch.setenv("SLURMD_NODENAME", "b")
    assert slurm.this_job() == slurm.Job(12, "b", ())
    slurm.this_job.cache_clear()
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "3")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "[a-c]")
    with pytest.raises(UserError, match="scontrol and srun do not work here"):
        slurm.this_job()
    place.command("scontrol", "printf 'a\\nb\\nc\\n'")
    place.command("srun", "true")
    assert slurm.this_job() == slurm.Job(12, "b", ("a", "c"))
    slurm.this_job.cache_clear()


def test_what_it_takes_to_join_is_for_its_owner_and_goes_with_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = Home(tmp_path).study("tiny")
    paths.root.mkdir(parents=True)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "a-token-of-its-own")
    with offering(paths, "10.0.0.1:6379"):
        assert stat.S_IMODE(paths.cluster.stat().st_mode) == 0o600
        assert offer_of(paths) == ("10.0.0.1:6379", "a-token-of-its-own")
    assert offer_of(paths) is None
    with offering(paths, None):
        assert not paths.cluster.exists()


def test_joining_what_is_not_there_is_refused(place: Place) -> None:
    done = place.run("join", "nothing")
    assert done.exit_code == 2
    assert "no study called 'nothing'" in done.stderr
