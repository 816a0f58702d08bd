"""``hsweep.report`` for scripts: it imports next to nothing, and does nothing outside a study."""

import json
import os
from typing import Final, SupportsFloat

REPORTS_VARIABLE: Final = "HSWEEP_REPORTS"
"""Names the file that a script's reports are appended to; without it there is no study."""

SEED_VARIABLE: Final = "HSWEEP_SEED"
"""What ``{seed}`` is in a script's command."""

NUM_PARAMS: Final = "num_params"
"""A metric by which a report may say how many parameters the model has."""

REPORTS_FILE: Final = "reports.jsonl"
"""Where that is, in the trial's folder."""

OUTPUT_FILE: Final = "output.txt"
"""What a script writes to its standard output and error, in the trial's folder."""


def report(**values: SupportsFloat) -> None:
    """Report numbers to the study that runs this script, as in
    ``hsweep.report(epoch=3, top1=0.81)``.

    The sweep says with ``reports()`` which of the values counts the budget. Outside a study this
    does nothing, and neither does it in processes but the first where a launcher such as torchrun
    started several (``RANK`` in the environment).

    Raises:
        TypeError: in a study, a value that is no number.
        OSError: in a study, the report cannot be written.
    """
    path = os.environ.get(REPORTS_VARIABLE)
    if not path or os.environ.get("RANK", "0") != "0":
        return
    numbers = {}
    for name, value in values.items():
        try:
            # Also a tensor of one element, or a number of numpy's.
            numbers[name] = float(value)
        except (TypeError, ValueError, OverflowError):
            raise TypeError(
                f"hsweep.report takes numbers, and {name} is {value!r}; give one number a name"
            ) from None
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        # One write, so that reports of several threads or processes do not mix.
        os.write(file, f"{json.dumps(numbers)}\n".encode())
    finally:
        os.close(file)
