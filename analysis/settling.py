"""The command that runs what an answer lacks: the same study, and only its missing trials."""

from analysis.confirmation import sweep_file
from analysis.findings.results import TransitionResult
from hsweep.commands import command
from hsweep.record.study import Study


def settle_command(study: Study, transition: TransitionResult | None) -> str | None:
    """Return the command line that runs the missing trials of a study.

    None where it lacks none, and for a study whose search proposes the trials one by one: no cell
    of it can be filled.
    """
    if transition is None or not transition.missing or study.is_adaptive():
        return None
    words = ("--study", study.name, "--only-missing")
    return command("run", sweep_file(study), *words, home=study.paths.home)
