"""Make timm and transformers importable beside a torchvision whose operators cannot load.

Both import torchvision whenever it is installed. A torchvision wheel built for another torch (for
CUDA, say, beside a CPU-only torch) cannot load its compiled operators, and its import then dies
with "operator torchvision::nms does not exist": it registers meta kernels for two operators that
only the compiled library declares. Declaring their schemas is enough for the import; everything
in torchvision that is pure Python then works, and a call of the two operators still fails loudly.
"""

import contextlib
from importlib.machinery import PathFinder
from importlib.util import find_spec
from typing import Final

import torch

_BOX_SCHEMA: Final = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_OPERATORS: Final = ("nms", "qnms")
_LIBRARIES: Final = ("_C", "_C_stable")
"""The compiled library's names: up to torchvision 0.28, and since."""


def make_torchvision_importable() -> bool:
    """Declare the operators torchvision's import needs, if its compiled library cannot.

    Call it before anything that imports timm, transformers or torchvision; it may be called any
    number of times.

    Returns:
        Whether a schema had to be declared: False where torchvision is absent or healthy.
    """
    if _missing_operators():
        spec = find_spec("torchvision")
        if spec is None or spec.submodule_search_locations is None:
            return False
        _load_operators(list(spec.submodule_search_locations))
    missing = _missing_operators()
    for operator in missing:
        torch.library.define(f"torchvision::{operator}", _BOX_SCHEMA)
    return bool(missing)


def _missing_operators() -> list[str]:
    return [name for name in _OPERATORS if not hasattr(torch.ops.torchvision, name)]


def _load_operators(package_folders: list[str]) -> None:
    """Load the compiled library as torchvision's own import would, and stay silent as it does."""
    for name in _LIBRARIES:
        library = PathFinder.find_spec(name, package_folders)
        if library is not None and library.origin is not None:
            with contextlib.suppress(OSError):
                torch.ops.load_library(library.origin)  # type: ignore[no-untyped-call]
