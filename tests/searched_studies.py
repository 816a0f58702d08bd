"""What studies that search say at their end."""

import json
from typing import Any

from hsweep.paths import Home
from hsweep.record.study import StudyFolder


def answer_of(home: Home, name: str) -> dict[str, Any]:
    """Return the answer of a study as its folder has it."""
    study = StudyFolder.open(home, name)
    found: dict[str, Any] = json.loads(study.paths.analysis.read_text())
    return found
