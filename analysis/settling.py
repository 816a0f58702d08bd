"""The command that runs what an answer lacks: the same study, and only its missing trials."""

from collections.abc import Iterable

from analysis.confirmation import sweep_file
from analysis.findings.results import LeanResult, TransitionResult
from hsweep.command_line import command
from hsweep.record.study import Study


def settle_command(
    study: Study, results: Iterable[TransitionResult | LeanResult | None]
) -> str | None:
    """Return the command line that runs the trials that a study's results lack.

    None where it lacks none, and for a study whose search proposes the trials one by one: no cell
    of it can be filled.
    """
    if not any(result is not None and result.missing for result in results):
        return None
    if study.is_adaptive():
        return None
    words = ("--study", study.name, "--only-missing")
    return command("run", sweep_file(study), *words, home=study.paths.home)
