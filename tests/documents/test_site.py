"""The site of the documents builds, and every link in it leads somewhere."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
READ = ("examples", "hsweep", "models", "tasks", "analysis")


def build(folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("zensical", reason="the site needs the extra `docs`")
    folder = tmp_path_factory.mktemp("checkout")
    shutil.copy(ROOT / "zensical.toml", folder)
    shutil.copytree(ROOT / "docs", folder / "docs")
    for name in READ:
        (folder / name).symlink_to(ROOT / name)
    return folder


def test_every_page_is_built_and_in_the_menu(copy: Path) -> None:
    done = build(copy)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    built = copy / "build" / "site"
    assert {path.relative_to(built) for path in built.rglob("*.html")} >= {
        page.with_suffix(".html") for page in pages
    }
    menu = re.findall(r'"([\w/-]+\.md)"', (ROOT / "zensical.toml").read_text("utf-8"))
    assert sorted(menu) == sorted(str(page) for page in pages)
    field_by_field = (built / "reference" / "python.html").read_text("utf-8")
    assert "checkpoint_seconds" in field_by_field, "no reference of the fields"
    assert "--only-missing" in (built / "reference" / "commands.html").read_text("utf-8")
    assert "https://fonts" not in field_by_field
    for page in built.rglob("*.html"):
        if page.name == "404.html":
            continue
        for target in re.findall(r'href="([^"#:]+\.html)(?:#[^"]*)?"', page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name} leads to {target}"


def test_a_link_to_a_page_that_is_not_there_ends_the_build(copy: Path) -> None:
    with (copy / "docs" / "index.md").open("a") as page:
        page.write("\n[gone](gone.md)\n")
    done = build(copy)
    assert done.returncode != 0
    assert "does not exist" in done.stdout + done.stderr
