"""Planning a sweep counts its models, and waits for no library that would build them."""

import subprocess
import sys

# One interpreter plans them all: what one of them imports stays imported for those after it.
PROGRAM = """
import sys
from importlib import import_module

for made_by in sys.argv[1:]:
    module, _, make = made_by.partition(":")
    getattr(import_module(module), make)().counts()
    for library in ("timm", "transformers"):
        assert library not in sys.modules, f"planning {made_by} imports {library}"
"""


def test_planning_a_model_waits_for_no_library_of_models() -> None:
    planned = (
        "models.davit:davit_base",
        "models.decoder:gpt2_tiny_stories",
        "models.encoder:crammed_bert",
        "models.nystromformer:lra",
        "models.rank_encoder:nearest_neighbor_encoder",
        "models.tnt:tnt_base",
        "models.vit:vit_base",
        "models.volo:volo_d3",
        "models.xcit:xcit_medium",
    )
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *planned], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
