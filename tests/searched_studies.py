"""What studies that search say at their end, also where they were cut off."""

import json
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from click.testing import Result

from hsweep.paths import Home
from hsweep.record.study import StudyFolder


def answer_of(home: Home, name: str) -> dict[str, Any]:
    """Return the answer of a study as its folder has it."""
    study = StudyFolder.open(home, name)
    found: dict[str, Any] = json.loads(study.paths.analysis.read_text())
    return found


def assert_interruptions_change_nothing(
    hsweep: Callable[..., Result],
    home: Home,
    write: Callable[..., Path],
    trained: Callable[[Home, str], list[tuple[Any, ...]]],
    cuts: Sequence[int],
) -> None:
    """Assert that a study trains and says the same wherever a training interrupts it.

    Args:
        write: writes its sweep file, whose training ``dies_at`` counts its calls in ``count``
            beside it.
        trained: returns what a study has trained.
        cuts: numbers of the trainings that interrupt it.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    how = ("--runner", "inline", "--no-check", "--no-reuse", "--study")
    file = write()
    assert hsweep("run", file, *how, "whole").exit_code == 0
    whole = trained(home, "whole"), answer_of(home, "whole")
    for dies_at in cuts:
        name = f"cut-{dies_at}"
        file.with_name("count").unlink()
        ended = hsweep("run", write(dies_at=dies_at), *how, name)
        assert ended.exit_code == 130, ended.output
        write()
        assert hsweep("resume", name, "--runner", "inline", "--accept-code").exit_code == 0
        # Its commands name the study, and the copy of the sweep file that it was resumed from.
        copy = StudyFolder.open(home, name).paths.root / "sweep.py"
        text = json.dumps(answer_of(home, name)).replace(str(copy), str(file))
        answer = json.loads(text.replace(name, "whole"))
        assert (trained(home, name), answer) == whole
