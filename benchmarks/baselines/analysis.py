"""What a user writes to look at a sweep: pandas, scipy and matplotlib over the exported tables.

Means and bootstrap intervals of every cell, the learning curves of every trial's cell, one figure
and one table of numbers. It says neither where an error collapses nor which shapes are on a front.
"""

import argparse
import json
import resource
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import pandas as pd
from scipy import stats


def main() -> None:
    """Read the tables, summarise, draw, and print what was used."""
    parser = argparse.ArgumentParser()
    parser.add_argument("trials", type=Path)
    parser.add_argument("reports", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--metric", required=True)
    parser.add_argument("--axes", required=True, nargs="+")
    parser.add_argument("--resamples", type=int, default=1000)
    given = parser.parse_args()

    trials = pd.read_parquet(given.trials)
    reports = pd.read_parquet(given.reports)
    finished = trials[trials["status"] == "finished"]

    rows = []
    for cell, runs in finished.groupby(given.axes):
        values = runs[given.metric].to_numpy()
        low = high = float("nan")
        if len(values) > 1:
            found = stats.bootstrap(
                (values,),
                lambda sample, axis: sample.mean(axis=axis),
                n_resamples=given.resamples,
                method="percentile",
                batch=100,
                random_state=0,
            )
            low, high = found.confidence_interval
        rows.append((*cell, values.mean(), low, high, len(values)))
    table = pd.DataFrame(rows, columns=[*given.axes, "mean", "low", "high", "runs"])
    table.to_csv(given.out / "cells.csv", index=False)

    curves = (
        reports.merge(trials[["key", *given.axes]], on="key")
        .groupby([given.axes[0], "unit"])[given.metric]
        .mean()
        .reset_index()
    )
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
    for value, line in table.groupby(given.axes[-1]):
        left.errorbar(
            line[given.axes[0]],
            line["mean"],
            yerr=[line["mean"] - line["low"], line["high"] - line["mean"]],
            fmt="o",
            label=f"{given.axes[-1]} = {value}",
        )
    left.set(xlabel=given.axes[0], ylabel=given.metric)
    left.legend(fontsize=6)
    for value, line in curves.groupby(given.axes[0]):
        right.plot(line["unit"], line[given.metric], label=f"{given.axes[0]} = {value}")
    right.set(xlabel="epoch", ylabel=given.metric)
    figure.savefig(given.out / "cells.png", dpi=200)

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"cells": len(table), "peak_kib": peak}))


if __name__ == "__main__":
    main()
