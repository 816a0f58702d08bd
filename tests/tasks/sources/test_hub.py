import errno
from pathlib import Path
from typing import Any

import pytest
from image_files import random_images, write_split

from tasks.base import DataError
from tasks.sources.hub import (
    _load_splits,
    content_digest,
    load_splits,
    local_folder,
    outline_digest,
    resolved,
)


def test_a_folder_is_read_where_it_lies(tiny_images: Path) -> None:
    splits = load_splits(str(tiny_images))
    assert {name: len(split) for name, split in splits.items()} == {"train": 30, "test": 12}


def test_a_name_reaches_the_hub_only_when_turned_on(
    tiny_images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    asked: list[tuple[Any, ...]] = []
    local = datasets.load_dataset

    def hub(name: str, config: str | None, cache_dir: str | None) -> Any:
        asked.append((name, config, cache_dir))
        return local(str(tiny_images), cache_dir=str(tiny_images.with_name("downloads")))

    monkeypatch.setattr(datasets, "load_dataset", hub)
    with pytest.raises(DataError, match="HSWEEP_HUB=1"):
        load_splits("someone/something")
    assert asked == []
    monkeypatch.setenv("HSWEEP_HUB", "1")
    assert set(load_splits("someone/something", "small")) == {"train", "test"}
    assert asked == [("someone/something", "small", None)]
    digests = {content_digest("someone/something", "small"), outline_digest("someone/something")}
    assert len(digests) == 2
    # Downloads turned off again: what was read before must not hide it.
    monkeypatch.delenv("HSWEEP_HUB")
    with pytest.raises(DataError, match="HSWEEP_HUB=1"):
        load_splits("someone/something", "small")


def test_a_digest_sees_names_sizes_and_contents(tmp_path: Path) -> None:
    file = tmp_path / "data" / "a.bin"
    file.parent.mkdir()
    file.write_bytes(b"one")
    contents, sizes = [content_digest(str(file.parent))], [outline_digest(str(file.parent))]
    file.write_bytes(b"two")
    contents.append(content_digest(str(file.parent)))
    sizes.append(outline_digest(str(file.parent)))
    file.rename(file.with_name("b.bin"))
    contents.append(content_digest(str(file.parent)))
    sizes.append(outline_digest(str(file.parent)))
    assert len(set(contents)) == 3
    assert len(set(sizes)) == 3
    (file.parent / ".hidden").write_bytes(b"ignored")
    assert content_digest(str(file.parent)) == contents[2]


def test_paths_become_absolute_and_names_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    assert resolved("data") == str(tmp_path / "data")
    assert resolved("uoft-cs/cifar10") == "uoft-cs/cifar10"
    assert local_folder(resolved("data")) == tmp_path / "data"


def test_a_hub_name_is_found_by_its_last_part_in_any_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HSWEEP_DATA", str(tmp_path))
    (tmp_path / "tinystories").mkdir()
    assert resolved("roneneldan/TinyStories") == str(tmp_path / "tinystories")
    (tmp_path / "TinyStories").mkdir()
    assert resolved("roneneldan/TinyStories") == str(tmp_path / "TinyStories")


def test_an_unknown_configuration_is_named(tmp_path: Path) -> None:
    write_split(tmp_path / "d", "train", random_images(3), [0, 1, 2])
    with pytest.raises(DataError, match=r"cannot load .* \(configuration 'large'\)"):
        load_splits(str(tmp_path / "d"), "large")


def test_rows_that_were_converted_before_are_converted_again_where_they_are_damaged(
    tiny_images: Path, cache: Path
) -> None:
    whole = content_of(load_splits(str(tiny_images)))
    file = next(cache.rglob("*-train.arrow"))
    intact = file.read_bytes()
    for damage in (lambda: file.write_bytes(intact[:100]), file.unlink):
        _load_splits.cache_clear()
        damage()
        assert content_of(load_splits(str(tiny_images))) == whole


def test_a_cache_that_cannot_be_written_is_said(
    tiny_images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    def refuse(*_: object, cache_dir: str) -> None:
        raise OSError(errno.EROFS, "Read-only file system", f"{cache_dir}/x.lock")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(DataError, match=r"cannot write .*x\.lock: Read-only.*set HSWEEP_CACHE"):
        load_splits(str(tiny_images))


def test_a_path_that_the_library_takes_for_a_pattern_is_said(tmp_path: Path) -> None:
    write_split(tmp_path / "run[1]", "train", random_images(3), [0, 1, 2])
    with pytest.raises(DataError, match="in a path for patterns: move or link"):
        load_splits(str(tmp_path / "run[1]"))


def content_of(splits: Any) -> list[Any]:
    import datasets

    rows = splits["train"].cast_column("img", datasets.Image(decode=False))
    return [(row["img"]["bytes"], row["label"]) for row in rows]
