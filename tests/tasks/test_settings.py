"""Impossible settings of tasks are refused with the rule and the value."""

from collections.abc import Callable
from typing import Any

import pytest

from tasks.language.glue import Glue
from tasks.language.masked_text import MaskedText
from tasks.language.stories import Stories
from tasks.lra.byte_text import ByteText
from tasks.lra.document_pairs import DocumentPairs
from tasks.lra.listops import ListOps
from tasks.lra.pathfinder import Pathfinder
from tasks.lra.pixels import Pixels
from tasks.ranking.passages import Passages
from tasks.synthetic.nearest_neighbor import NearestNeighbor
from tasks.synthetic.retrieval import Retrieval
from tasks.vision.images import Images
from tasks.vision.streamed_images import StreamedImages

NEEDED: dict[Any, dict[str, Any]] = {
    Retrieval: {"seq_len": 8},
    NearestNeighbor: {"seq_len": 8},
    StreamedImages: {"data": "x"},
    Passages: {"seq_len": 4, "mined": 6},
    Glue: {"pretraining": MaskedText()},
}
"""What a task cannot be made without."""

REFUSED: dict[Callable[..., Any], list[tuple[dict[str, Any], str]]] = {
    Retrieval: [
        ({"seq_len": 0}, "seq_len must be a whole number of at least 1, not 0"),
        ({"dim": 2.5}, "dim must be a whole number"),
        ({"dim": True}, "dim must be a whole number"),
        ({"input_dim": 0}, "input_dim must be a whole number"),
        ({"num_train": 0}, "num_train must be a whole number of at least 2, not 0"),
        ({"directions": "random"}, "directions must be one of 'orthonormal', 'iid', not 'random'"),
        ({"dim": 5, "input_dim": 4}, "dim=5 is more than input_dim=4"),
        ({"outer": "max"}, "outer must be one of 'sum', 'squares', 'product', 'sine', not 'max'"),
        ({"sets": "half"}, "sets must be one of 'all', 'blocks', 'random', not 'half'"),
        ({"sets": "blocks", "seq_len": 3}, "each of dim=4 blocks needs a position: seq_len=3"),
        ({"samples": "fresh"}, "samples must be one of 'fixed', 'stream', not 'fresh'"),
    ],
    NearestNeighbor: [
        ({"seq_len": 1}, "seq_len must be a whole number of at least 2, not 1"),
        ({"dim": 0}, "dim must be a whole number of at least 1, not 0"),
        ({"points": "random"}, "points must be one of 'iid', 'orthonormal', not 'random'"),
        ({"doubled": 1}, "doubled must be True or False, not 1"),
        ({"seq_len": 7, "doubled": True}, "seq_len must be even, not 7"),
        ({"dim": 7, "points": "orthonormal"}, "8 are drawn for seq_len=8, more than dim=7"),
        ({"replay_batches": 0}, "replay_batches must be a whole number of at least 1, not 0"),
    ],
    Images: [
        ({"data": ""}, "data must be"),
        ({"image_size": 0}, "image_size must be a whole number of at least 1, not 0"),
        ({"max_train": 0}, "max_train must be a whole number of at least 1, not 0"),
        ({"crop_padding": -1}, "crop_padding must be a whole number of at least 0"),
        ({"label_smoothing": 1.0}, r"label_smoothing must lie in \[0, 1\), not 1.0"),
        ({"fit": "crop"}, "fit must be one of 'resize', 'border', 'edge', not 'crop'"),
        ({"validation": 1.2}, "validation must lie in"),
        ({"validation": 0.0}, "validation must be a split or a share"),
        ({"validation": "test"}, "digits have no splits"),
    ],
    StreamedImages: [
        ({"data": "hfds/"}, "data must name a folder"),
        ({"image_size": 0}, "image_size must be a whole number of at least 1, not 0"),
        ({"num_classes": 1}, "num_classes must be a whole number of at least 2, not 1"),
        ({"num_workers": -1}, "num_workers must be a whole number of at least 0, not -1"),
        ({"max_train_eval": 0}, "max_train_eval must be"),
        ({"mixup": -0.1}, "mixup must be a finite number of at least 0, not -0.1"),
        ({"cutmix": float("inf")}, "cutmix must be a finite number"),
        ({"label_smoothing": 1}, "label_smoothing must lie in"),
        ({"crop_pct": 0}, r"crop_pct must lie in \(0, 1\], not 0"),
        ({"interpolation": "nearest"}, "interpolation must be one of"),
    ],
    ListOps: [
        ({"seq_len": 0}, "seq_len must be a whole number of at least 1, not 0"),
        ({"num_test": 0}, "num_test must be"),
        ({"seq_len": 1998}, "max_length must be at most seq_len . 1 = 1999, not 2000"),
        ({"min_length": 1999}, "there is none between 1999 and 2000"),
        ({"max_depth": 3}, "is longer than 122 tokens, and min_length=500"),
        ({"max_args": 1}, "max_args must be a whole number of at least 2, not 1"),
        ({"max_train_eval": 0}, "max_train_eval must be"),
    ],
    Pathfinder: [
        ({"contour_length": 1}, "contour_length must be a whole number of at least 2, not 1"),
        ({"num_distractors": -1}, "num_distractors must be a whole number of at least 0"),
        ({"continuity": 0.5}, "continuity must be a number of at least 1, not 0.5"),
        ({"contrast": 0.0}, r"contrast must lie in \(0, 1\], not 0.0"),
        ({"contrast": 1.1}, "contrast must lie in"),
        ({"num_test": 0}, "num_test must be"),
    ],
    Pixels: [
        ({"data": ""}, "data must be 'digits', a folder or a hub name"),
        ({"data": "digits"}, "digits have no splits: test must be the share"),
        ({"validation": 0}, r"validation must be a split or a share in \(0, 1\), not 0"),
        ({"test": 1.0}, r"test must lie in \[0, 1\), not 1.0"),
        ({"image_size": 0}, "image_size must be"),
    ],
    ByteText: [
        ({"data": ""}, "data must be a folder or a hub name"),
        ({"max_bytes": 4097}, "max_bytes must be at most seq_len=4096, not 4097"),
        ({"validation": 0.0}, r"validation must be a split or a share in \(0, 1\), not 0"),
        ({"validation": 1.5}, r"validation must lie in \[0, 1\), not 1.5"),
        ({"num_classes": 1}, "num_classes must be a whole number of at least 2, not 1"),
    ],
    DocumentPairs: [
        ({"data": ""}, "data must be the folder"),
        ({"max_bytes": 5_000}, "max_bytes must be at most seq_len=4096, not 5000"),
        ({"seq_len": "long"}, "seq_len must be a whole number"),
    ],
    Stories: [
        ({"layout": "rows"}, "layout must be one of 'packed', 'windows', not 'rows'"),
        ({"seq_len": 0}, "seq_len must be a whole number of at least 1, not 0"),
        ({"vocab_size": 256}, "vocab_size must be at least 257"),
        ({"validation": "test"}, "docstrings have no splits"),
    ],
    MaskedText: [({"masked_share": 0}, r"masked_share must lie in \(0, 1\), not 0")],
    Glue: [
        ({"tasks": ()}, "tasks must name at least one task"),
        ({"tasks": ("cola", "cola")}, "none twice"),
        ({"tasks": ("squad",)}, "each of tasks must be one of 'cola', 'sst2'.*, not 'squad'"),
        ({"epochs": 0}, "epochs must be a whole number"),
        ({"lr": 0.0}, "lr must be a positive number, not 0.0"),
        ({"lr": -1}, "lr must be a finite number of at least 0, not -1"),
        ({"dropout": 1.0}, "dropout must lie in"),
        ({"seq_len": 4}, "seq_len must be a whole number of at least 5, not 4"),
        ({"every_report": "yes"}, "every_report must be True or False, not 'yes'"),
    ],
    Passages: [
        ({"seq_len": 1}, "seq_len must be a whole number of at least 2"),
        ({"seq_len": 8}, r"mined must be at least seq_len - 1 = 7, not 6"),
        ({"held_out": 0}, "held_out must lie in"),
        ({"encoder": ""}, "encoder must be 'words', a folder or a hub name, not empty"),
        ({"max_tokens": 0}, "max_tokens must be a whole number"),
    ],
}


@pytest.mark.parametrize(
    ("task", "wrong", "message"),
    [(task, wrong, message) for task, rows in REFUSED.items() for wrong, message in rows],
)
def test_impossible_settings_are_refused_with_the_value(
    task: Callable[..., Any], wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        task(**NEEDED.get(task, {}) | wrong)
