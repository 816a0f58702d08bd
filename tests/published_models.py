"""The functions of ``models`` that rows of the lean paper name, by their names."""

from collections.abc import Callable

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
