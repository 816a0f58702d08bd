"""A study beside the papers' printed results that it repeats."""

from collections.abc import Sequence

from analysis.questions.base import Finding, StudyRuns
from analysis.questions.transition.result import TransitionResult
from hsweep.design.labels import unit_word
from hsweep.errors import unknown_name
from results.printed.fit import fit
from results.printed.numbers import setup_of, setups
from results.printed.result import PublishedResult, PublishedSettings


def beside_published(
    study: StudyRuns, findings: Sequence[Finding], setup_name: str | None = None, **vouched: bool
) -> PublishedResult | None:
    """Lay a study beside the published results that it repeats; None if it repeats none.

    Args:
        findings: its own findings.
        setup_name: which results; None finds them by the sweep's name or the task.
        vouched: ``same_data``, that the user vouches that the data are those of the paper.

    Raises:
        UserError: an unknown name, or a table that cannot be read.
    """
    manifest, setups_by_name = study.manifest, {item.name: item for item in setups()}
    tasks = [item["task"] for item in manifest.provenance.get("data", ()) if "task" in item]
    if setup_name is not None and setup_name not in setups_by_name:
        raise unknown_name("group of published results", setup_name, setups_by_name)
    setup = setup_of(manifest.sweep, tasks) if setup_name is None else setups_by_name[setup_name]
    if setup is None:
        return None
    amount, unit = manifest.budget["amount"], str(manifest.budget["unit"])
    return fit(
        study.trials,
        setup,
        axes=manifest.axes,
        tasks=tasks,
        transition=next(
            (f.result for f in findings if isinstance(f.result, TransitionResult)), None
        ),
        budget=f"{amount} {unit_word(unit, amount)}",
        settings=PublishedSettings(**vouched),
    )
