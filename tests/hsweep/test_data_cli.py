import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from image_files import random_images, write_split

from hsweep.cli import main

SWEEP = """
from hsweep import Recipe, Sweep, epochs, grid
from models.vit import ViT
from tasks.vision.images import Images

SWEEP = Sweep(
    name="looking",
    space=grid(heads=[1, 2], data="{data}"),
    task=lambda p: Images(data=p.data),
    model=lambda p: ViT(embed_dim=4, depth=1, heads=p.heads, image_size=6, patch_size=3,
                        num_classes=3),
    metric="top1", goal="max", budget=epochs(1),
)
"""


STREAMED = (
    SWEEP.replace("images import Images", "streamed_images import StreamedImages")
    .replace("Images(data=p.data)", "StreamedImages(data=p.data, num_classes=2, image_size=6)")
    .replace("num_classes=3", "num_classes=2")
)


@pytest.fixture
def hsweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run a verb of ``hsweep data`` where nothing is found and nothing was prepared."""
    monkeypatch.setenv("HSWEEP_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HSWEEP_HUB", raising=False)

    def run(*arguments: object) -> Result:
        monkeypatch.setenv("HSWEEP_DATA", "")  # a verb sets it for what it starts
        return CliRunner().invoke(main, ["data", *map(str, arguments)])

    return run


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    path = tmp_path / "looking.py"
    path.write_text(SWEEP.format(data="hub/tiny"))
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root" / "tiny"
    write_split(folder, "train", random_images(12), [row % 3 for row in range(12)])
    write_split(folder, "test", random_images(6, seed=1), [row % 3 for row in range(6)])
    return tmp_path / "root"


def test_the_list_says_what_was_found_and_that_nothing_is_downloaded(
    hsweep: Callable[..., Result], tmp_path: Path
) -> None:
    (tmp_path / "glue").mkdir()
    (tmp_path / "glue" / "rows").write_bytes(b"1234")
    listed = hsweep("list", "--data-root", tmp_path)
    assert listed.exit_code == 0, listed.output
    assert "downloads from the Hugging Face hub are off" in listed.output
    rows = {row["name"]: row for row in json.loads(hsweep("list", "--json").stdout)}
    assert rows["glue"]["folder"] is None
    found = json.loads(hsweep("list", "--json", "--data-root", tmp_path).stdout)
    assert [(row["name"], row["num_bytes"]) for row in found if row["folder"]] == [("glue", 4)]


def test_the_list_names_the_tasks_of_every_data_set_and_what_needs_no_file(
    hsweep: Callable[..., Result],
) -> None:
    rows = {row["name"]: row for row in json.loads(hsweep("list", "--json").stdout)}
    assert rows["cifar10"]["tasks"] == ["Images", "Pixels"]
    there = {name: row["origin"] for name, row in rows.items() if row["is_there"]}
    assert there == {
        **dict.fromkeys(("digits", "docstrings"), "installed"),
        **dict.fromkeys(("retrieval", "nearest_neighbor", "listops", "pathfinder"), "generated"),
    }
    text = hsweep("list").output
    assert "generated from the task's settings and seeds" in text
    assert "for Images, Pixels" in text


def test_the_list_fits_a_narrow_terminal(
    hsweep: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    *listed, _, _ = hsweep("list", "--fingerprint").output.splitlines()
    assert max(map(len, listed)) <= 84


def test_a_fingerprint_is_taken_where_one_is_asked_for(
    hsweep: Callable[..., Result], tmp_path: Path
) -> None:
    def fingerprints() -> dict[str, str | None]:
        listed = hsweep("list", "imdb", "digits", "aan", "--fingerprint", "--json", *root)
        return {row["name"]: row["fingerprint"] for row in json.loads(listed.stdout)}

    root = ("--data-root", tmp_path)
    (tmp_path / "imdb").mkdir()
    (tmp_path / "imdb" / "rows").write_bytes(b"1234")
    before = fingerprints()
    (tmp_path / "imdb" / "rows").write_bytes(b"1235")
    assert before["aan"] is None
    assert {name for name, each in fingerprints().items() if each != before[name]} == {"imdb"}


def test_an_unknown_data_set_and_a_root_that_is_no_folder_are_said(
    hsweep: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    refused = hsweep("list", "cifar11")
    assert (refused.exit_code, "no data set 'cifar11'" in refused.output) == (2, True)
    refused = hsweep("list", "--data-root", tmp_path / "nowhere")
    assert (refused.exit_code, "does not exist" in refused.output) == (2, True)


def test_preparing_builds_the_caches_and_a_second_time_reads_no_image(
    hsweep: Callable[..., Result], sweep: Path, root: Path, tmp_path: Path
) -> None:
    prepared = hsweep("prepare", sweep, "--data-root", root)
    assert prepared.exit_code == 0, prepared.output
    assert "ready: 1 of 1 tasks" in prepared.output
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.npy")}
    assert files
    assert hsweep("prepare", sweep, "--data-root", root).exit_code == 0
    assert files == {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.npy")}


def test_preparing_what_is_missing_is_a_message_and_not_a_traceback(
    hsweep: Callable[..., Result], sweep: Path
) -> None:
    refused = hsweep("prepare", sweep)
    assert refused.exit_code == 2
    assert "hsweep: Images(data='hub/tiny'): data must be an existing folder" in refused.output


def test_a_cache_that_cannot_be_made_is_a_message(
    hsweep: Callable[..., Result],
    sweep: Path,
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HSWEEP_CACHE", str(tmp_path / "file" / "cache"))
    refused = hsweep("prepare", sweep, "--data-root", root)
    assert refused.exit_code == 2
    assert "cannot make the cache folder" in refused.output
    assert "Traceback" not in refused.output


def test_preparing_asks_for_batches_of_the_size_that_trials_take(
    hsweep: Callable[..., Result], tmp_path: Path
) -> None:
    """Mixing pairs images up, so batches of one image are none."""
    for split in ("train", "val"):
        for label, image in enumerate(random_images(2)):
            folder = tmp_path / "folder" / split / f"class{label}"
            folder.mkdir(parents=True)
            (folder / "0.png").write_bytes(image)
    path = tmp_path / "streaming.py"
    path.write_text(STREAMED.format(data=tmp_path / "folder"))
    prepared = hsweep("prepare", path)
    assert prepared.exit_code == 0, prepared.output
