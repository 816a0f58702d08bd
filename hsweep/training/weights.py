"""Final weights: one safetensors file for each trial, whose header names the model's builder.

A file is named by its trial and the attempt that wrote it, and written before the last report is
sent. So the record, which says which attempt finished, says which file counts, whatever was killed
between the two.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hsweep.errors import UserError, shown
from hsweep.paths import WEIGHTS_HEADER, weights_file
from hsweep.training.batches import mapped, part_alone
from hsweep.training.storage import Store

if TYPE_CHECKING:
    from torch import Tensor


def plain_tensors(state: Mapping[str, Any]) -> dict[str, "Tensor"]:
    """Return the tensors of a model's state, those that share their numbers once.

    Raises:
        UserError: the model's state holds something that is no tensor.
    """
    from torch import Tensor

    tensors: dict[str, Tensor] = {}
    known = set()
    for name, value in mapped(dict(state), part_alone).items():
        if not isinstance(value, Tensor):
            raise UserError(
                f"the state of a model whose weights are kept is made of tensors; {name!r} is "
                f'{shown(value)}. Make it a buffer, or leave keep="none"'
            )
        place = (value.data_ptr(), value.shape, value.stride(), value.dtype)
        if place not in known or not value.data_ptr():
            known.add(place)
            tensors[name] = value.contiguous()
    return tensors


def write_weights(
    root: str, key: str, attempt: int, tensors: Mapping[str, "Tensor"], header: Mapping[str, Any]
) -> None:
    """Write the final weights of an attempt of a trial below a folder or URI, with a header.

    Raises:
        StorageError: the file cannot be written.
    """
    from safetensors.torch import save

    content = save(dict(tensors), {"format": "pt", WEIGHTS_HEADER: json.dumps(header, default=str)})
    files = Store(root, subject="weights")
    files.write(weights_file(key, attempt), content)
    # Files of earlier attempts that died before the record had their last report.
    for earlier in range(1, attempt):
        name = weights_file(key, earlier)
        files.remove(name)
        files.remove(f".{name}.tmp")
