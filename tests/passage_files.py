"""Passages, queries and a tiny encoder of both, written by the tests that read them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from models.torchvision_compat import make_torchvision_importable

WORDS = [f"word{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]


def write_encoder(folder: Path) -> str:
    """Write a BERT of width 8 with a vocabulary of whole words."""
    make_torchvision_importable()
    from transformers import BertConfig, BertModel, BertTokenizerFast  # type: ignore[attr-defined]

    folder.mkdir()
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]))
    BertTokenizerFast(vocab=str(vocabulary)).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS) + 5,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=32,
    )
    BertModel(config).save_pretrained(folder)
    return str(folder)


def write_data(
    folder: Path,
    texts: Mapping[str, str],
    queries: Mapping[str, str],
    judgements: Mapping[str, Sequence[tuple[str, str, int]]],
) -> str:
    """Write a data set in the hub's layout of MS MARCO."""
    (folder / "parts").mkdir(parents=True)
    lines = ["---", "configs:", "- config_name: default", "  default: true", "  data_files:"]
    for split, rows in judgements.items():
        names = ("query-id", "corpus-id", "score")
        columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
        pq.write_table(pa.table(columns), folder / "parts" / f"{split}.parquet")
        lines.append(f"  - {{split: {split}, path: parts/{split}.parquet}}")
    for name, table in (("corpus", texts), ("queries", queries)):
        columns = {"_id": list(table), "text": list(table.values())}
        if name == "corpus":
            columns["title"] = [""] * len(table)
        pq.write_table(pa.table(columns), folder / "parts" / f"{name}.parquet")
        lines += [f"- config_name: {name}", "  data_files:"]
        lines.append(f"  - {{split: {name}, path: parts/{name}.parquet}}")
    (folder / "README.md").write_text("\n".join([*lines, "---", ""]))
    return str(folder)


def passage(number: int) -> str:
    return " ".join(WORDS[(number * step + step) % len(WORDS)] for step in (1, 3, 5, 7))
