"""A script runs in its trial's folder, and nothing of it survives its trial."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hsweep.design import template
from hsweep.design.budget import epochs
from hsweep.design.sources import stdout
from hsweep.errors import UserError
from hsweep.reporting import REPORTS_FILE
from hsweep.training.own import process
from hsweep.training.own.leftovers import MARK_VARIABLE, end_leftovers
from hsweep.training.own.process import ScriptProcess, end_text
from hsweep.training.own.readers import Reader, Unit

ROOT = Path(__file__).parents[2]
DEADLINE_SECONDS = 300

FAMILY = """
import os, signal, sys

alive = os.open("alive", os.O_WRONLY)

def live(letter):
    os.write(alive, letter)
    while True:
        signal.pause()

if os.fork() == 0:
    live(b"c")  # a child, in the script's process group
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    live(b"d")  # a daemon: in a session of its own, its parent gone, and deaf
if "leave" not in sys.argv:
    live(b"s")
"""


class Family:
    """The processes of a script, each of which holds one end of a pipe until it dies."""

    def __init__(self, folder: Path) -> None:
        os.mkfifo(folder / "alive")
        self._pipe = os.open(folder / "alive", os.O_RDONLY | os.O_NONBLOCK)

    def _read(self) -> bytes:
        pipe = select.poll()
        pipe.register(self._pipe, select.POLLIN)
        assert pipe.poll(DEADLINE_SECONDS * 1000), "they neither came nor went"
        return os.read(self._pipe, 16)

    def wait_for(self, letters: str) -> None:
        came = b""
        while len(came) < len(letters):
            came += self._read()
        assert sorted(came.decode()) == sorted(letters)

    def wait_for_end(self) -> None:
        """However many of them came before they were ended."""
        while self._read():
            pass

    def is_gone(self) -> bool:
        return self._read() == b""

    def close(self) -> None:
        os.close(self._pipe)


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Family]:
    family = Family(tmp_path)
    yield family
    family.close()


def start(folder: Path, code: str, *arguments: str, **variables: str) -> ScriptProcess:
    return ScriptProcess([sys.executable, "-c", code, *arguments], folder, folder, variables)


def ended(script: ScriptProcess) -> str:
    code = script.wait(DEADLINE_SECONDS)
    assert code is not None
    return end_text(code)


def test_a_script_finds_itself_in_its_folder(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "print(os.getcwd(), os.environ['HSWEEP_REPORTS'], os.environ['MINE'], sys.argv[1])\n"
        "print('RANK' in os.environ, sys.stdin.read(), file=sys.stderr)\n"
    )
    script = start(tmp_path, code, "a 'b' $HOME", MINE="here")
    assert ended(script) == "ended with exit code 0"
    assert ended(script) == "ended with exit code 0"
    assert script.stop(0) == 0
    reports = tmp_path.resolve() / REPORTS_FILE
    assert script.last_lines() == f"{tmp_path} {reports} here a 'b' $HOME\nFalse"


def test_a_later_attempt_appends_to_the_output(tmp_path: Path) -> None:
    for number in range(3):
        ended(start(tmp_path, f"print({number})"))
    assert (tmp_path / "output.txt").read_text() == "0\n1\n2\n"


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("raise SystemExit(3)", "ended with exit code 3"),
        ("import os; os.kill(os.getpid(), 9)", "was ended by signal 9 (SIGKILL)"),
    ],
)
def test_how_a_script_ended_is_told(code: str, text: str, tmp_path: Path) -> None:
    assert ended(start(tmp_path, code)).startswith(text)


def test_a_script_may_take_its_leave_within_the_grace_period(
    tmp_path: Path, family: Family
) -> None:
    code = (
        "import os, signal\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('saved'), exit(5)))\n"
        "os.write(os.open('alive', os.O_WRONLY), b's')\n"
        "signal.pause()\n"
    )
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM})
    try:  # what the worker does with signals is not the script's
        script = start(tmp_path, code)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    family.wait_for("s")
    assert script.wait(0) is None
    assert script.stop(DEADLINE_SECONDS) == 5
    assert script.last_lines() == "saved"


def test_nothing_survives_a_stop(tmp_path: Path, family: Family) -> None:
    script = start(tmp_path, FAMILY)
    family.wait_for("scd")
    assert script.stop(0.2) in (-signal.SIGTERM, -signal.SIGKILL)
    assert family.is_gone()


def test_nothing_survives_the_script_itself(tmp_path: Path, family: Family) -> None:
    script = start(tmp_path, FAMILY, "leave")
    assert ended(script) == "ended with exit code 0"
    family.wait_for_end()


def test_nothing_survives_the_worker(tmp_path: Path, family: Family) -> None:
    """Not even where another process holds the worker's ends of all pipes."""
    worker = (
        "import os, pathlib, signal, sys\n"
        "from hsweep.training.own.process import ScriptProcess\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "script = ScriptProcess([sys.executable, '-c', sys.argv[2]], folder, folder)\n"
        "if os.fork() == 0:\n"
        "    os.read(0, 1)\n"
        "    os._exit(0)\n"
        "signal.pause()\n"
    )
    command = [sys.executable, "-c", worker, str(tmp_path), FAMILY]
    with subprocess.Popen(command, stdin=subprocess.PIPE, cwd=ROOT) as process:
        family.wait_for("scd")
        process.kill()
        assert process.wait(DEADLINE_SECONDS) == -signal.SIGKILL
        assert family.is_gone()


def test_a_later_attempt_ends_what_an_earlier_one_has_left(tmp_path: Path, family: Family) -> None:
    variables = {**os.environ, MARK_VARIABLE: f"{tmp_path.resolve()}:0"}
    other = {**variables, MARK_VARIABLE: f"{tmp_path.resolve()}-other:0"}
    waiting = [sys.executable, "-c", "input()"]
    with (
        subprocess.Popen([sys.executable, "-c", FAMILY], env=variables, cwd=tmp_path),
        subprocess.Popen(waiting, env=other, stdin=subprocess.PIPE) as another,
    ):
        family.wait_for("scd")
        end_leftovers(tmp_path)
        assert family.is_gone()
        assert another.poll() is None
        another.communicate(b"\n", timeout=DEADLINE_SECONDS)


def test_a_command_that_cannot_be_started_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot be started in .*No such file.*'no-such-thing'"):
        ScriptProcess(["no-such-thing"], tmp_path, tmp_path)
    with pytest.raises(UserError, match=r"Exec format error.*--token=\*\*\*"):
        ScriptProcess(["/etc/hostname", "--token=secret"], tmp_path, tmp_path)
    with pytest.raises(UserError, match="No such file"):
        ScriptProcess([sys.executable], tmp_path, tmp_path / "nowhere")


def test_the_last_lines_are_fit_for_a_record(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "sys.stdout.write('x' * (1 << 21) + '\\n')\n"
        "sys.stdout.write('\\n'.join(map(str, range(30))) + '\\n')\n"
        "print('1%\\r50%\\r100%')\n"
        "print('--api-key=abcdef123', 'y' * 1000)\n"
    )
    script = start(tmp_path, code)
    ended(script)
    *numbers, progress, last = script.last_lines(10).split("\n")
    assert numbers == [str(number) for number in range(22, 30)]
    assert progress == "100%"
    assert last.startswith("--api-key=*** yyy")
    assert len(last) < 510


CHATTY = """
for number in range(20_000):
    print(f"epoch {number}: " + "." * 80)
    if number == 15_000:
        open("told", "w").write("x")
        open("go").read()
"""


def test_of_a_long_output_the_beginning_and_the_end_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_OUTPUT_HALF", 200_000)
    for name in ("told", "go"):
        os.mkfifo(tmp_path / name)
    script = start(tmp_path, CHATTY)
    (tmp_path / "told").read_text()
    num_bytes = script.output.stat().st_size
    for _ in range(2):  # what is there at the first call may be read until the second
        assert script.output.stat().st_blocks * 512 >= num_bytes > 1_000_000
        script.free_output()
    assert script.output.stat().st_size == num_bytes  # whoever reads it keeps the place
    assert script.output.stat().st_blocks * 512 < 500_000
    (tmp_path / "go").write_text("x")
    assert ended(script) == "ended with exit code 0"
    assert script.stop(0) == 0
    lines = script.output.read_text().splitlines()
    gap = lines.index("... the middle was left out ...")
    numbers = [int(line.split()[1][:-1]) for line in lines[:gap] + lines[gap + 1 :]]
    assert numbers[:gap] == list(range(gap))
    assert numbers[gap:] == list(range(numbers[gap], 20_000))
    assert 300_000 < script.output.stat().st_size < 401_000


TRAINING = """
import os, signal, sys

state = os.path.join(sys.argv[1], "state")
start = int(open(state).read()) if "--resume" in sys.argv else 0
for epoch in range(start + 1, 6):
    with open(state, "w") as file:
        file.write(str(epoch))
    print(f"epoch {epoch}: top1 {epoch / 8}")
    if epoch == 3 and not start:
        signal.pause()
"""


def test_a_script_is_followed_ended_and_resumed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    folder = tmp_path / "trial"
    folder.mkdir()
    source = stdout(r"epoch (?P<epoch>\d+): top1 (?P<top1>\S+)")
    line = "python train.py {folder} --resume {resume}"
    fields = {"folder": folder, "resume": None}
    script = ScriptProcess(template.fill(line, fields), folder, tmp_path)
    reader = Reader(source, folder, ["top1"], epochs(100))
    units: list[Unit] = []
    while len(units) < 3:
        assert script.wait(0.02) is None
        units += reader.poll()
    assert script.stop(DEADLINE_SECONDS) == -signal.SIGTERM
    units += reader.last_units(killed=True)

    script = ScriptProcess(template.fill(line, {**fields, "resume": folder}), folder, tmp_path)
    reader = Reader(source, folder, ["top1"], epochs(100), after=units[-1][0])
    assert ended(script) == "ended with exit code 0"
    units += reader.last_units()
    assert units == [(epoch, {"top1": epoch / 8}) for epoch in range(1, 6)]


NAME = "it's; rm $HOME"
FIELDS = {
    "heads": 4,
    "lr": 0.0015,
    "name": NAME,
    "folder": "/a b",
    "resume": None,
    "stages": (2, -6),
    "blocks": ((1, 2), (3,)),
    "words": ("a b", 'c"d', "e,f", None, True),
    "empty": (),
    "flag": True,
    "off": False,
    "small": 1e-05,
    "below": -2.5e-05,
    "large": 1e20,
}


@pytest.mark.parametrize(
    ("line", "arguments"),
    [
        ("python train.py --heads {heads}", ["python", "train.py", "--heads", "4"]),
        ("run '{name}' --out={folder}", ["run", "it's; rm $HOME", "--out=/a b"]),
        ("run {lr:.1e} {heads!r:>3}", ["run", "1.5e-03", "  4"]),
        ("run '{{\"heads\": {heads}}}'", ["run", '{"heads": 4}']),
        ("run --resume {resume} --resume={resume} last", ["run", "last"]),
        ("run {resume} ''", ["run", ""]),
        ("run --lr -1 {resume} --lr={lr} {resume}", ["run", "--lr", "-1", "--lr=0.0015"]),
        ("run --at {stages} {resume}", ["run", "--at", "2", "-6"]),
        ("run at={stages} {stages:json} {stages:,}", ["run", "at=[2,-6]", "[2,-6]", "2,-6"]),
        ("run {blocks} at={blocks}", ["run", "[1,2]", "[3]", "at=[[1,2],[3]]"]),
        ("run {words}", ["run", "a b", 'c"d', "e,f", "None", "True"]),
        ("run at={words}", ["run", 'at=["a b","c\\"d","e,f",null,true]']),
        ("run --at {empty} at={empty} {empty:,}", ["run", "--at", "at=[]", ""]),
        ("run {resume:json} {flag:json} {name:json}", ["run", "null", "true", f'"{NAME}"']),
        ("run --lr {small} --by={below}", ["run", "--lr", "0.00001", "--by=-0.000025"]),
        ("run {large} {small:.0e}", ["run", "100000000000000000000.0", "1e-05"]),
        ("run {flag:--amp|--no-amp} {off:--amp|--no-amp}", ["run", "--amp", "--no-amp"]),
        ("run --last {off:--amp|} --lr {lr}", ["run", "--last", "--lr", "0.0015"]),
        ("run {stages!s} {heads:,} {blocks:,}", ["run", "(2, -6)", "4", "[1,2],[3]"]),
    ],
)
def test_a_command_is_filled_in_argument_by_argument(line: str, arguments: list[str]) -> None:
    assert template.fill(line, FIELDS) == arguments


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("run {head}", "unknown field in the command's '{head}', 'head'; known: .*'heads'"),
        ("run {}", "unknown field"),
        ("run {heads.real}", "unknown field"),
        ("run {heads", "{{ for a brace"),
        ("run 'a", "quoted as in a shell"),
        ("run {name:.2e}", "cannot be filled with name="),
        ("run {stages:.2e}", "cannot be filled with stages="),
    ],
)
def test_a_command_that_cannot_be_filled_in_is_refused(line: str, rule: str) -> None:
    with pytest.raises(UserError, match=rule):
        template.fill(line, FIELDS)
