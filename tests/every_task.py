"""Every task of the project with a tiny model of each family that it is made for.

None has dropout, which draws other masks in every process.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from image_files import png
from passage_files import passage, write_data, write_encoder
from review_files import texts, write_texts
from text_tables import sentences, write_table

from models.davit import DaViT
from models.decoder import Decoder
from models.encoder import CrammedBert
from models.nystromformer import Nystromformer
from models.rank_encoder import RankEncoder
from models.ranker import Ranker
from models.retrieval import RetrievalTransformer
from models.tnt import TNT
from models.vit import ViT
from models.volo import VOLO
from models.xcit import XCiT
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

NAMES = (
    *("images-vit", "images-davit", "images-volo", "images-xcit", "images-tnt"),
    *("streamed", "streamed-mixed", "passages", "nearest", "nearest-replayed", "retrieval"),
    *("listops", "byte-text", "document-pairs", "pixels", "pathfinder"),
    *("stories-packed", "stories-windows", "masked-text", "glue"),
)


@dataclass(frozen=True)
class Pair:
    """A task and a model that learns it."""

    task: Any
    model: Any


def pair(name: str, folder: Path) -> Pair:
    """Return one of ``NAMES``, its data written to ``folder``."""
    kind, _, variant = name.partition("-")
    if kind == "images":
        return _images(variant)
    if kind == "streamed":
        return _streamed(folder, mixed=bool(variant))
    if kind == "passages":
        ranker = Ranker(heads=2, seq_len=4, input_dim=16, embed_dim=8)
        return Pair(_passages(folder), ranker)
    if kind == "nearest":
        replay: dict[str, Any] = {"replay_batches": 4} if variant else {}
        points = NearestNeighbor(seq_len=5, dim=4, steps_per_epoch=3, num_validation=21, **replay)
        return Pair(points, RankEncoder(embed_dim=4, depth=1, heads=2, seq_len=5))
    if kind == "retrieval":
        task = Retrieval(seq_len=6, num_train=30, num_validation=21)
        return Pair(task, RetrievalTransformer(heads=2, head_dim=4, seq_len=6, input_dim=4))
    if kind in ("stories", "masked", "glue"):
        return _language(name, folder)
    return _lra(name, folder)


def _images(family: str) -> Pair:
    size = {"vit": 8, "davit": 32}.get(family, 16)
    task = Images("digits", image_size=size, max_train=24, max_validation=21)
    shape: dict[str, Any] = {"image_size": size, "in_chans": 1, "num_classes": 10}
    models: dict[str, Callable[[], Any]] = {
        "vit": lambda: ViT(embed_dim=16, depth=2, heads=2, patch_size=4, **shape),
        "davit": lambda: DaViT(
            embed_dim=(4, 4, 8, 8), depth=(1, 1, 2, 1), heads=2, window_size=3, **shape
        ),
        "volo": lambda: VOLO(
            embed_dim=(8, 12, 12, 12),
            depth=(2, 1, 2, 1),
            heads=(2, 3, 4, 2),
            patch_size=4,
            stem_hidden_dim=4,
            **shape,
        ),
        "xcit": lambda: XCiT(embed_dim=24, depth=2, heads=3, patch_size=8, **shape),
        "tnt": lambda: TNT(
            embed_dim=16,
            depth=2,
            heads=2,
            patch_size=8,
            inner_dim=6,
            inner_heads=2,
            **shape,
        ),
    }
    return Pair(task, models[family]())


def _streamed(folder: Path, *, mixed: bool) -> Pair:
    random = np.random.default_rng(0)
    for split, count in (("train", 8), ("val", 3)):
        for label in range(3):
            place = folder / split / f"kind{label}"
            place.mkdir(parents=True)
            for number in range(count):
                pixels = random.integers(60 * label, 60 * label + 60, (12, 12, 3), np.uint8)
                (place / f"{number}.png").write_bytes(png(pixels))
    task = StreamedImages(
        str(folder),
        image_size=12,
        num_classes=3,
        num_workers=0,
        mixup=0.8 if mixed else 0.0,
        cutmix=1.0 if mixed else 0.0,
    )
    model = ViT(embed_dim=16, depth=2, heads=2, patch_size=4, image_size=12, num_classes=3)
    return Pair(task, model)


def _language(name: str, folder: Path) -> Pair:
    write_table(folder / "texts", "train", {"text": sentences(60)})
    write_table(folder / "texts", "validation", {"text": sentences(20, seed=1)})
    data = str(folder / "texts")
    shape: dict[str, Any] = {"embed_dim": 16, "depth": 2, "heads": 2, "dropout": 0.0}
    if name.startswith("stories"):
        stories = Stories(data, seq_len=8, vocab_size=300, layout=name.partition("-")[2])  # type: ignore[arg-type]
        return Pair(stories, Decoder(seq_len=8, vocab_size=300, **shape))
    text = MaskedText(data, seq_len=16, vocab_size=150)
    model = CrammedBert(seq_len=16, vocab_size=150, **shape)
    if name == "masked-text":
        return Pair(text, model)
    for split, count in (("train", 24), ("validation", 12)):
        labels = [row % 2 for row in range(count)]
        columns = {"sentence": sentences(count, words=5), "label": labels}
        write_table(folder / "glue" / "cola", split, columns)
    entry = "".join(
        f"\n  - {{split: {split}, path: cola/{split}-00000-of-00001.parquet}}"
        for split in ("train", "validation")
    )
    readme = f"---\nconfigs:\n- config_name: cola\n  data_files:{entry}\n---\n"
    (folder / "glue" / "README.md").write_text(readme)
    return Pair(Glue(text, str(folder / "glue"), ("cola",), epochs=1, dropout=0.0), model)


def _lra(name: str, folder: Path) -> Pair:
    few: dict[str, Any] = {"max_train_eval": 9, "steps_per_epoch": 3}
    counts: dict[str, Any] = {"num_train": 24, "num_validation": 9, "num_test": 9}
    task: Any
    if name == "listops":
        task = ListOps(seq_len=16, min_length=4, max_length=17, max_depth=3, **counts, **few)
    elif name == "pathfinder":
        task = Pathfinder(contour_length=4, **counts, **few)
    elif name == "pixels":
        task = Pixels("digits", image_size=8, test=0.2, max_train=24, **few)
    elif name == "byte-text":
        for split, count in (("train", 24), ("test", 9)):
            labels = [row % 2 for row in range(count)]
            write_texts(folder, split, texts(count, seed=count), labels)
        task = ByteText(str(folder), seq_len=16, **few)
    else:
        for split, count in (("train", 24), ("eval", 9), ("test", 9)):
            rows = zip(texts(count), texts(count, seed=3), strict=True)
            lines = [f"{row % 2}\t1\t2\t{one}\t{other}\n" for row, (one, other) in enumerate(rows)]
            folder.mkdir(exist_ok=True)
            (folder / f"new_aan_pairs.{split}.tsv").write_text("".join(lines), "utf-8")
        task = DocumentPairs(str(folder), seq_len=16, **few)
    spec = task.spec()
    model = Nystromformer(
        embed_dim=8,
        depth=2,
        heads=2,
        landmarks=8,
        head_hidden=8,
        dropout=0.0,
        # Over the batch it would be another scale for each part of a batch.
        inverse_scale="matrix",
        seq_len=spec.seq_len,
        vocab_size=spec.vocab_size,
        num_classes=spec.num_classes,
        pair=spec.num_texts == 2,
    )
    return Pair(task, model)


def _passages(folder: Path) -> Passages:
    folder.mkdir()
    rows = [(f"q{number}", f"p{number}", 1) for number in range(30)]
    data = write_data(
        folder / "passages",
        {f"p{number}": passage(number) for number in range(40)},
        {f"q{number}": " ".join(passage(number).split()[:2]) for number in range(30)},
        {"train": rows[:24], "dev": rows[24:]},
    )
    return Passages(seq_len=4, data=data, encoder=write_encoder(folder / "bert"), mined=6)
