"""Whatever a study is called and wherever links lead, nothing is written outside its home."""

import contextlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st
from tiny_studies import SWEEP_FILE, trained

from hsweep.errors import UserError
from hsweep.paths import Home, check_study_name
from hsweep.record.study import StudyFolder
from tasks.sources.hub import resolved

Verb = Callable[..., Result]

NAMES = [
    *("..", ".", "", "a/../../b", "../demo", "demo/../other", "./demo", "/etc/passwd", "a/b"),
    *("a\\b", "~", "~/x", "$HOME", "*", "a b", "a\nb", "a\tb", "a\x1b[2Jb", "a\u202eb", "é"),
    *("\uff41", "x" * 101, "x" * 5000, "-x", ".hidden", "_x", "a:b", "nul\0"),
]
READING = [
    ("show",), ("resume",), ("analyze",), ("report",), ("compare",),
    ("sync",),
    ("export", "out.csv"),
]  # fmt: skip


def tree(folder: Path) -> dict[str, bytes | None]:
    """Every path below a folder with its content, links not followed."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        if path.is_file() and not path.is_symlink()
        else None
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with one finished study, made once."""
    folder = tmp_path_factory.mktemp("finished")
    return trained(folder / "home", folder, SWEEP_FILE)


@pytest.fixture
def demo(finished: Home, home: Home) -> Path:
    shutil.copytree(finished.root, home.root)
    return home.studies / "demo"


@given(st.text(max_size=120))
def test_a_name_that_is_accepted_is_one_folder_under_the_home(name: str) -> None:
    home = Home(Path("/somewhere/home"))
    folder = None
    with contextlib.suppress(UserError):
        folder = home.study(name).root
    if folder is not None:
        assert os.path.normpath(folder) == f"/somewhere/home/studies/{name}"
        assert not name.startswith(".")
        assert name.isascii()


@pytest.mark.parametrize("name", [None, 5, b"demo", ["demo"]])
def test_what_is_no_text_is_no_name(name: object) -> None:
    with pytest.raises(UserError, match="a study's name"):
        check_study_name(name)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_every_verb_refuses_the_name_and_writes_nothing(
    hsweep: Verb,
    demo: Path,
    sweep_file: Path,
    tmp_path: Path,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    before = tree(tmp_path)
    results = {
        verb: hsweep(verb, *(["--", name] if name.startswith("-") else [name]), *rest)
        for verb, *rest in READING
    }
    results["run"] = hsweep("run", sweep_file, "--runner", "inline", f"--study={name}")
    results["power"] = hsweep("plan", sweep_file, "--power", f"--study={name}")
    for verb, result in results.items():
        assert result.exit_code == 2, (verb, result.output)
        assert isinstance(result.exception, SystemExit), verb
        assert "Traceback" not in result.output
    changed = {
        path for path, content in tree(tmp_path).items() if before.get(path, b"?") != content
    }
    assert {path for path in changed if "__pycache__" not in path} == set()


def test_a_preset_cannot_lead_out_either(hsweep: Verb, tmp_path: Path, home: Home) -> None:
    file = tmp_path / "sly.py"
    file.write_text(
        "from hsweep.design.sweep import preset\nfrom tiny import tiny_sweep\n"
        "SWEEP = tiny_sweep(presets={'/../../out': preset(replicates=1)})\n"
    )
    result = hsweep("run", file, "--preset", "/../../out", "--runner", "inline")
    assert result.exit_code == 2
    assert "a study's name" in result.stderr
    assert not (home.root.parent / "out").exists()


@pytest.mark.parametrize(
    "part",
    [
        "",
        "journal",
        "journal/000001.jsonl",
        "report.html",
        "checkpoints",
        "sweep.py",
        "checkpoints/t0",
    ],
)
def test_a_study_with_a_link_out_of_the_home_is_refused_and_what_it_leads_to_is_kept(
    hsweep: Verb, demo: Path, tmp_path: Path, part: str
) -> None:
    outside = tmp_path / "outside"
    place = demo / part if part else demo
    place.parent.mkdir(exist_ok=True)
    if place.exists():
        shutil.move(place, outside)
    else:
        outside.mkdir()
        (outside / "mine").write_text("mine")
    place.symlink_to(outside)
    before = tree(outside)
    for verb, *rest in READING:
        result = hsweep(verb, "demo", *rest)
        if verb == "compare" and result.exit_code == 0:
            continue  # reads alone
        assert result.exit_code == 2, (verb, result.output)
        assert f"{place} is a link that leads out of the home" in result.stderr
    assert tree(outside) == before
    listed = json.loads(hsweep("list", "--json").stdout)
    assert [(row["study"], row["state"]) for row in listed] == [("demo", "unreadable")]


def test_links_within_the_home_and_a_home_that_is_a_link_are_fine(
    hsweep: Verb, demo: Path, home: Home, tmp_path: Path
) -> None:
    (demo / "checkpoints.kept").mkdir()
    shutil.rmtree(demo / "checkpoints", ignore_errors=True)
    (demo / "checkpoints").symlink_to(demo / "checkpoints.kept")
    assert hsweep("show", "demo").exit_code == 0
    elsewhere = tmp_path / "elsewhere"
    elsewhere.symlink_to(home.root)
    assert hsweep("report", "demo", "--home", elsewhere).exit_code == 0
    assert hsweep("resume", "demo", "--runner", "inline", "--home", elsewhere).exit_code == 0


def test_links_in_a_circle_are_refused(demo: Path, home: Home) -> None:
    (demo / "ray").symlink_to(demo / "ray2")
    (demo / "ray2").symlink_to(demo / "ray")
    StudyFolder.open(home, "demo")
    (demo / "plan.json").unlink()
    (demo / "plan.json").symlink_to("/nowhere/plan.json")
    with pytest.raises(UserError, match="leads out of the home"):
        StudyFolder.open(home, "demo")


@pytest.mark.parametrize(
    "folder", ["/etc/passwd", "/proc/nowhere", "x" * 300, "x/" * 3000, "a\0b", "\udcff", ""]
)
@pytest.mark.parametrize("verb", ["list", "show", "run", "plan", "doctor"])
def test_a_home_that_cannot_be_is_refused_in_one_line(
    hsweep: Verb, sweep_file: Path, tmp_path: Path, folder: str, verb: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    rest = {"show": ["demo"], "run": [sweep_file, "--runner", "inline"], "plan": [sweep_file]}
    result = hsweep(verb, *rest.get(verb, []), f"--home={folder}")
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert result.exit_code == 2 or verb in ("list", "plan", "doctor")
    assert "Traceback" not in result.output


@pytest.mark.parametrize("storage", ["", "x://y", "http://example.org/x", "s3://"])
def test_a_storage_that_is_none_is_refused_before_anything_is_recorded(
    hsweep: Verb, sweep_file: Path, home: Home, storage: str
) -> None:
    result = hsweep("run", sweep_file, "--runner", "inline", f"--storage={storage}")
    assert result.exit_code == 2, result.output
    assert "storage" in result.stderr
    assert not list(home.studies.glob("*"))


@pytest.mark.parametrize("argument", ["a\0b", "a\udcffb"])
def test_arguments_that_are_no_text_are_refused(hsweep: Verb, argument: str) -> None:
    for line in (["show", argument], ["plan", argument], ["analyze", "--table", argument]):
        result = hsweep(*line)
        assert result.exit_code == 2, result.output
        assert "UTF-8 text" in result.stderr


@pytest.mark.parametrize("name", ["../secret", "a/../../secret"])
def test_a_data_sets_name_leads_to_nothing_outside_the_data_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for folder in ("root/a", "secret", "deep/here"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep" / "here")
    monkeypatch.setenv("HSWEEP_DATA", str(tmp_path / "root"))
    assert (tmp_path / "root" / name).exists()
    assert resolved(name) == name
    assert resolved("a") == str(tmp_path / "root" / "a")
