"""Where data lie and how they are read is in no trial's key, of every task that reads any."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from hsweep.planning.identity import content_hash, describe
from tasks.base import is_in_key
from tasks.language.glue import Glue
from tasks.language.masked_text import MaskedText
from tasks.language.stories import Stories
from tasks.lra.byte_text import ByteText
from tasks.lra.document_pairs import DocumentPairs
from tasks.lra.pixels import Pixels
from tasks.ranking.passages import Passages
from tasks.vision.images import Images
from tasks.vision.streamed_images import StreamedImages

TASKS: dict[str, Callable[..., Any]] = {
    "images": lambda data: Images(data=data),
    "streamed images": lambda data: StreamedImages(data=data, num_workers=len(data)),
    "pixels": lambda data: Pixels(data=data),
    "byte text": lambda data: ByteText(data=data),
    "document pairs": lambda data: DocumentPairs(data=data),
    "passages": lambda data: Passages(seq_len=8, data=data, encoder=f"{data}/encoder"),
    "stories": lambda data: Stories(data=data, tokenizer=f"{data}/tokenizer"),
    "masked text": lambda data: MaskedText(data=data),
    "glue": lambda data: Glue(MaskedText(data=data), data=f"{data}/glue"),
}


@pytest.mark.parametrize("make", TASKS.values(), ids=TASKS)
def test_the_same_task_on_data_elsewhere_has_the_same_part_of_the_key(
    make: Callable[..., Any],
) -> None:
    one, other = make("here"), make("over/there")
    assert one != other, "what is kept in memory by task tells them apart"
    assert describe(one) != describe(other)
    assert content_hash(one, for_key=True) == content_hash(other, for_key=True)


def test_nothing_else_is_left_out() -> None:
    out = {field.name for field in fields(StreamedImages) if not is_in_key(field)}
    assert out == {"data", "num_workers"}
