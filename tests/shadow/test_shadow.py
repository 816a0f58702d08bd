"""What trials would do on a GPU, as far as a device that is not there can tell.

It cannot tell of kernels that CUDA lacks and their limits, rounding, CUDA graphs, torch.compile,
NCCL and processes that load data.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest
from shadow.faults import REFUSED, WAITING
from shadow.presets import PRESETS
from shadow.trials import CASES

pytestmark = [pytest.mark.shadow, pytest.mark.slow]

WAITS: Final[Mapping[str, tuple[int, int, str]]] = {
    "recipe soap float16": (1, 1, "the scaler asks whether the update is finite; not if fused"),
    "recipe nadam": (0, 64, "torch moves its product of momentums to the device, and reads it"),
    "recipe asgd": (64, 64, "torch writes two counts of each parameter to the device"),
    "recipe adafactor": (64, 64, "torch reads two norms of each parameter"),
    "recipe shampoo": (
        48,
        48,
        "whether singular values could be computed is asked for each matrix",
    ),
    "recipe adamp": (24, 24, "timm reads the cosine of each matrix and its gradient"),
    "recipe sgdp": (24, 24, "timm reads the cosine of each matrix and its gradient"),
    "recipe novograd": (32, 32, "timm reads the norm of each parameter's gradient"),
}
"""How often the host waits for the device in an update, fresh and resumed, and why; the model has
32 parameters. In the cases that are not here it never does."""


@pytest.mark.parametrize("case", CASES)
def test_an_update_waits_for_the_device_only_where_the_table_says_so(
    case: str, on_shadow: Callable[[str], Any]
) -> None:
    seen = on_shadow(case)
    assert not seen["error"], seen["error"]
    *expected, _ = WAITS.get(case, (0, 0, ""))
    waits = [math.ceil(sum(seen[attempt].values())) for attempt in ("fresh", "resumed")]
    assert waits == expected, seen


@pytest.mark.parametrize("name", PRESETS)
def test_no_update_of_a_shipped_preset_waits_for_the_device(
    name: str, on_shadow: Callable[[str], Any]
) -> None:
    trials = on_shadow(f"preset {name}")
    assert trials
    assert trials == {key: {"error": "", "fresh": {}, "resumed": {}} for key in trials}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cuda_refuses_is_refused_with_its_line(
    name: str, on_shadow: Callable[[str], Any]
) -> None:
    _, part = REFUSED[name]
    seen = on_shadow(f"fault {name}")
    assert part in seen["error"]
    assert "tests/shadow/faults.py:" in seen["error"] or name == "numpy"


@pytest.mark.parametrize("name", WAITING)
def test_what_waits_for_the_device_is_counted_with_its_line(
    name: str, on_shadow: Callable[[str], Any]
) -> None:
    _, times = WAITING[name]
    seen = on_shadow(f"fault {name}")
    assert (seen["error"], len(seen["waits"])) == ("", times)
    assert all("at tests/shadow/faults.py:" in wait for wait in seen["waits"])
