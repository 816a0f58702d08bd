"""The command that runs what an answer lacks: the same study, and only its missing trials."""

import shlex

from analysis.confirmation import sweep_file
from analysis.findings.results import TransitionResult
from hsweep.record.study import Study


def settle_command(study: Study, transition: TransitionResult | None) -> str | None:
    """Return the command line that runs the missing trials of a study, None where it lacks none."""
    if transition is None or not transition.missing:
        return None
    words = ["hsweep", "run", str(sweep_file(study)), "--study", study.name, "--only-missing"]
    return shlex.join([*words, "--home", str(study.paths.root.parent.parent)])
