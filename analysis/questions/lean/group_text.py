"""What several lean comparisons say in words: sentences and tables."""

from analysis.questions.lean.result import LeanGroups
from analysis.questions.lean.text import VERDICTS, lean_sentences, lean_table
from analysis.runs.losses import runs_text
from analysis.sensitivity import Sensitivity, Settled
from analysis.text.numbers import NONE, Tone, at_fixed_rate, first_to_lower, number_text, sentence
from analysis.text.settled import sensitivity_badge
from analysis.text.tables import Table


def groups_badge(groups: LeanGroups) -> tuple[str, Tone]:
    established, every = len(groups.established), len(groups.found) + len(groups.problems)
    if not groups.found:
        return "no verdict", "unknown"
    verdicts = groups.settled_verdicts()
    worst: Settled = "settled" if set(verdicts) == {"settled"} else "unknown"
    together = Sensitivity(verdict="moving" if "moving" in verdicts else worst)
    if len(groups.excluded) == every:
        return sensitivity_badge(VERDICTS["excluded"], together)
    unsettled = every - established - len(groups.excluded)
    if not established:
        return f"undecided in {unsettled} of {every}", "unknown"
    tone: Tone = "found" if established == every else "partial"
    rest = f", undecided in {unsettled}" if unsettled else ""
    label = f"leaner equivalent in {established} of {every}{rest}"
    return sensitivity_badge((label, tone), together)


def groups_sentences(groups: LeanGroups) -> list[str]:
    found = {value: " ".join(lean_sentences(each)) for value, each in groups.found.items()}
    found |= {value: f"No answer: {problem}." for value, problem in groups.problems.items()}
    parts = []
    for text in dict.fromkeys(found.values()):
        values = ", ".join(value for value, other in found.items() if other == text)
        parts.append(f"{groups.within} = {values}: {first_to_lower(text)}")
    established, every = len(groups.established), len(groups.found) + len(groups.problems)
    summary = (
        f"A leaner shape is established as no worse than its baseline in {established} of "
        f"{every} comparisons"
    )
    excluded = len(groups.excluded)
    unsettled = every - established - excluded
    rest = [f"excluded in {excluded}"] if excluded else []
    rest += [f"undecided in {unsettled}"] if unsettled else []
    fixed = at_fixed_rate(groups.fixed_rate)
    return [f"{', '.join([summary, *rest])}{fixed}.{_settled_groups(groups)}", *parts]


def _settled_groups(groups: LeanGroups) -> str:
    verdicts = groups.settled_verdicts()
    if not verdicts:
        return ""
    settled, moving = verdicts.count("settled"), verdicts.count("moving")
    is_or_are = "is" if settled == 1 else "are"
    rest = f", {moving} still moving" if moving else ""
    return f" Of the {len(verdicts)} answered {settled} {is_or_are} settled{rest}."


def group_candidates_table(groups: LeanGroups) -> Table:
    tables = {value: lean_table(result) for value, result in groups.found.items()}
    header = max((table.header for table in tables.values()), key=len, default=())
    rows = tuple((value, *row) for value, table in tables.items() for row in table.rows)
    return Table((groups.within, *header), rows)


def group_baselines_table(groups: LeanGroups) -> Table:
    header = (
        *(groups.within, "baseline", "mean", "runs", "seed standard deviation"),
        *("margin in these", "what the seeds can show"),
    )
    rows = [
        (
            value,
            result.baseline_label,
            number_text(result.baseline_mean, 4),
            runs_text(result.baseline_n, result.baseline_lost),
            number_text(result.sd),
            number_text(result.margin_over_sd),
            f"{sentence(result.power_note)} {sentence(result.confirm)}".strip(),
        )
        for value, result in groups.found.items()
    ]
    rows += [
        (value, NONE, NONE, NONE, NONE, NONE, sentence(f"no answer: {problem}"))
        for value, problem in groups.problems.items()
    ]
    return Table(header, tuple(rows))
