"""``hsweep paper``: parameter counts and results of the papers beside those that are here."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from hsweep.commands.options import home_option, json_option
from hsweep.commands.output import console_for, print_json, quantity, table_of
from hsweep.errors import UserError, unknown_name
from hsweep.paths import Home
from models.base import Counts, ModelConfig
from models.counts import checked_build, train_memory_bytes

if TYPE_CHECKING:
    from rich.console import Console

    from analysis.published.numbers import PrintedCount
    from analysis.questions.published.result import PublishedResult
    from hsweep.record.study import StudyFolder


@click.command()
@click.argument("study_name", metavar="[STUDY]", required=False)
@click.option("--table", metavar="TABLE", help="One table alone: T1 to T5, or Fig3.")
@click.option("--as", "setup", metavar="NAME", help="What STUDY repeats, if it does not show.")
@click.option("--same-data", is_flag=True, help="STUDY's data are the paper's: you vouch for it.")
@home_option
@json_option
def paper(
    study_name: str | None,
    table: str | None,
    setup: str | None,
    same_data: bool,
    home: Home,
    as_json: bool,
) -> None:
    """Show STUDY beside the published results that it repeats.

    Without STUDY: the lean paper's parameter counts beside those of the models built here.
    """
    from hsweep.record.study import StudyFolder

    console = console_for(as_json=as_json)
    if study_name is not None:
        if table is not None:
            raise UserError("--table is of parameter counts, without a STUDY")
        result = _study_beside_paper(StudyFolder.open(home, study_name), setup, same_data=same_data)
        if as_json:
            print_json(result.to_json())
        else:
            _show_study(console, result)
        return
    if setup is not None or same_data:
        raise UserError("--as and --same-data are of a STUDY; give its name")
    compared = built_counts(rows_of(table), published_presets())
    if as_json:
        print_json(compared)
    else:
        _show_counts(console, compared)


def published_presets() -> dict[str, Callable[..., ModelConfig]]:
    """Return the functions of ``models`` that published rows name."""
    from models.davit import davit_base, davit_large
    from models.decoder import gpt2_tiny_stories
    from models.encoder import crammed_bert
    from models.nystromformer import lra
    from models.tnt import tnt_base
    from models.vit import deit_base, deit_large, vit_base, vit_large
    from models.volo import volo_d3, volo_d4
    from models.xcit import xcit_large, xcit_medium

    presets: tuple[Callable[..., ModelConfig], ...] = (
        *(vit_base, vit_large, deit_base, deit_large),
        *(xcit_medium, xcit_large, tnt_base, volo_d3, volo_d4, davit_base, davit_large),
        *(crammed_bert, gpt2_tiny_stories, lra),
    )
    return {preset.__name__: preset for preset in presets}


def built_counts(
    rows: "Iterable[PrintedCount]", presets: Mapping[str, Callable[..., ModelConfig]]
) -> list[dict[str, Any]]:
    """Build the model of every row on the meta device, without memory, and count it; return what
    the paper prints of each model beside its costs.

    Raises:
        AssertionError: a model's counts are not those of the model that is built.
    """
    counted: dict[ModelConfig, Counts] = {}
    compared = []
    for row in rows:
        model = presets[row.model](**row.settings)
        if model not in counted:
            checked_build(model)
            counted[model] = model.counts()
        counts, printed = counted[model], asdict(row)
        # The peak of a training step with AdamW under bfloat16 autocast, estimated.
        memory = train_memory_bytes(
            counts, batch_size=row.batch_size, optimizer="adamw", precision="bfloat16"
        )
        compared.append(
            printed
            | {
                "printed_params": row.printed_params,
                "printed_memory": printed.pop("memory"),
                "num_params": counts.num_params,
                "ratio": counts.num_params / row.printed_params,
                "family": type(model).__name__,
                "params": dict(counts.params),
                "flops_per_example": counts.forward_flops,
                "train_flops_per_example": counts.train_flops,
                "train_memory_bytes": memory,
            }
        )
    return compared


def rows_of(table: str | None) -> "list[PrintedCount]":
    """Return the published rows of ``table``; of all tables if it is None.

    Raises:
        UserError: no such table.
    """
    from analysis.published.numbers import printed_counts

    by_name = {row.table.lower(): row.table for row in printed_counts()}
    if table is not None and table.lower() not in by_name:
        raise unknown_name("table", table, by_name.values())
    return [row for row in printed_counts() if table is None or row.table == by_name[table.lower()]]


def _show_counts(console: "Console", compared: Iterable[Mapping[str, Any]]) -> None:
    model, ratio = "model (depth,heads)", ">built/printed"
    table = table_of("table", model, ">printed", ">built", ratio, "note", overflow="fold")
    for column in table.columns[:-1]:
        column.no_wrap = True
    for row in compared:
        counts = (row["printed"], quantity(row["num_params"]), f"{row['ratio']:.4f}")
        table.add_row(row["table"], row["row"], *counts, row["note"])
    console.print(table)


def _study_beside_paper(
    study: "StudyFolder", setup: str | None, *, same_data: bool
) -> "PublishedResult":
    """Lay a study's results beside the published ones that it repeats, those of ``setup``, or of
    the sweep's name or task.

    Raises:
        UserError: nothing published is known to be about this study, or an unknown setup.
    """
    from analysis.ask import answer_study
    from analysis.published.numbers import setups
    from analysis.questions.base import StudyRuns
    from analysis.questions.published.kind import beside_published

    with study.reading() as tables:
        findings = answer_study(study, tables).findings
        runs = StudyRuns(study.manifest, tables)
        result = beside_published(runs, findings, setup, same_data=same_data)
    if result is None:
        raise UserError(
            f"no published result is known to be about the sweep {study.manifest.sweep!r}; name "
            f"what it repeats by --as: {', '.join(each.name for each in setups())}"
        )
    return result


def _show_study(console: "Console", result: "PublishedResult") -> None:
    from analysis.questions.published.text import published_sentence, published_tables
    from analysis.terminal import print_table

    console.print(published_sentence(result), style="bold")
    if not result.comparable:
        return
    for title, table in published_tables(result):
        if table.rows:
            console.print()
            print_table(console, title, table)
