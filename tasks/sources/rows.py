"""Where a row of a data set lies, for messages about it."""

from pathlib import Path

from tasks.sources.cache import cache_folder


def row_name(data: str, config: str | None, split: str, row: int) -> str:
    """Return a row's data set, configuration, split and number and, where it can be told, its file.

    Args:
        data: a folder in a hub layout, or a name on the hub.
        config: configuration (subset) name, None for the default one.
        split: name of the split.
        row: number in the split, from 0; that in the file, also from 0, is added.
    """
    named = data if config is None else f"{data}, {config}"
    where = f"{named}, split {split!r}, row {row}"
    folder = Path(data).expanduser()
    if not folder.is_dir():
        return where
    try:
        file, number = _file_and_row(folder, config, split, row)
    except Exception:  # the fault has been found; its file is an extra
        return where
    return f"{where} (row {number} of {file})"


def _file_and_row(folder: Path, config: str | None, split: str, row: int) -> tuple[Path, int]:
    import datasets
    from pyarrow import parquet

    cache = str(cache_folder() / "datasets")
    builder = datasets.load_dataset_builder(str(folder), config, cache_dir=cache)
    files = [Path(file) for file in builder.config.data_files[split]]
    number = row
    while len(files) > 1:
        held = parquet.read_metadata(files[0]).num_rows
        if number < held:
            break
        number -= held
        del files[0]
    return files[0].relative_to(folder.resolve()), number
