"""The models of the rows of the lean paper's tables."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from models.base import ModelConfig
from models.davit import davit_base, davit_large
from models.decoder import gpt2_tiny_stories
from models.encoder import crammed_bert
from models.nystromformer import lra
from models.tnt import tnt_base
from models.vit import deit_base, deit_large, vit_base, vit_large
from models.volo import volo_d3, volo_d4
from models.xcit import xcit_large, xcit_medium

PRESETS: dict[str, Callable[..., ModelConfig]] = {
    preset.__name__: preset
    for preset in (
        *(vit_base, vit_large, deit_base, deit_large),
        *(xcit_medium, xcit_large, tnt_base, volo_d3, volo_d4, davit_base, davit_large),
        *(crammed_bert, gpt2_tiny_stories, lra),
    )
}
"""The functions of ``models`` that rows name, by their names."""
ROWS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "results/printed/parameter_counts.json").read_text("utf-8")
)["rows"]


def model_of(row: dict[str, Any]) -> ModelConfig:
    settings = row["settings"].items()
    lists = {name: tuple(value) for name, value in settings if isinstance(value, list)}
    return PRESETS[row["model"]](**{**row["settings"], **lists})
