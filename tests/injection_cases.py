"""Text that would do something if a page, a picture or a terminal took it for its own."""

from typing import Any

import numpy as np
import pandas as pd

MARK = "injected"
ATTACK = (
    "\"'></title></style></textarea></script><script>window.injected=1</script>"
    "<img src=http://planted.example/x onerror=window.injected=2><svg/onload=window.injected=3>"
    "<a href='https://planted.example/'>go</a> javascript:window.injected=4 <!-- ]]> {{7*7}} "
    "${window.injected=5} %{x} $x^2$ \\u003cscript\\u003e \u2028 [red] \x1b[2J"
)
WEB = "javascript:window.injected=6"


def named(name: str) -> str:
    """A column's name that is an attack, different for each ``name``."""
    return f"{name} {ATTACK}"


def runs(seed: int = 0) -> pd.DataFrame:
    """Runs of shapes, of which every name and text is planted."""
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for heads in (1, 2, 3, 4):
        for length in (8, 16, 32):
            for replicate in range(3):
                error = 10 ** (-1.0 if heads < 3 else -3.0) * (1 + 0.05 * rng.standard_normal())
                rows.append(
                    {
                        named("heads"): heads,
                        named("length"): length,
                        named("family"): f"{heads}x{length} {ATTACK}",
                        named("seed"): f"{replicate} {ATTACK}",
                        named("error"): error,
                        named("accuracy"): 0.9 + 0.01 * heads - 0.02 * error,
                        named("params"): 1000 * heads * length,
                        "condition_number": 10.0 * heads + rng.random(),
                        named("status"): "finished",
                    }
                )
    return pd.DataFrame(rows)
