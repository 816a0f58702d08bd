"""Labels of shapes, and links from a point to its trials in the table and to its runs' pages."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import pandas as pd

from analysis.charts.chart import Chart, Pick
from analysis.runs.statuses import FULL
from analysis.values import Config, value_text

Key = tuple[tuple[str, str], ...]
"""A shape as a key for a dictionary, see `config_key`."""


def query_text(values: Mapping[str, object]) -> str:
    """Return the text that finds the trials with these values in the table of trials."""
    parts = []
    for name, value in values.items():
        # As many digits as the table holds.
        text = f"{value:.7g}" if isinstance(value, float) else value_text(value)
        text = "none" if text == "nan" else text.replace('"', "")
        quoted = not text or any(letter.isspace() for letter in text)
        parts.append(f'{name}="{text}"' if quoted else f"{name}={text}")
    return " ".join(parts)


def config_key(config: Mapping[str, object]) -> Key:
    """Return a shape as a key for a dictionary, in which 4 and 4.0 are the same."""
    return tuple(sorted((name, value_text(value)) for name, value in config.items()))


def link_runs(charts: Sequence[Chart], trials: pd.DataFrame) -> list[Chart]:
    """Return the charts with links from each point to the MLflow pages of its runs."""
    if "mlflow_url" not in trials.columns:
        return list(charts)
    known = trials[trials["mlflow_url"].map(lambda url: isinstance(url, str) and bool(url))]
    links: dict[tuple[str, ...], dict[Key, list[tuple[str, str]]]] = {}

    def with_links(pick: Pick) -> Pick:
        names = tuple(name for name, _ in pick.at)
        if names not in links:
            # A curve is of any trial, all else of those that count.
            is_any = names == ("key",) or "status" not in known
            counted = known if is_any else known[known["status"].isin(FULL)]
            links[names] = links_by_values(counted, names)
        return replace(pick, links=tuple(links[names].get(config_key(dict(pick.at)), ())))

    return [replace(chart, picks=tuple(map(with_links, chart.picks))) for chart in charts]


def links_by_values(trials: pd.DataFrame, names: Sequence[str]) -> dict[Key, list[tuple[str, str]]]:
    """Return names and addresses of trials' pages, by `config_key` of the columns ``names``."""
    if not names or not set(names) <= set(trials.columns):
        return {}
    urls = trials["mlflow_url"]
    if "seed" in trials:
        labels = "seed " + trials["seed"].astype(str)
    else:  # the beginning of the run's id in its address
        labels = urls.map(lambda url: url.rstrip("/").rsplit("/", 1)[-1][:8])
    links: dict[Key, list[tuple[str, str]]] = {}
    # A value that stands in many rows is written once.
    text_of = lru_cache(maxsize=None, typed=True)(value_text)
    texts = (map(text_of, trials[name].tolist()) for name in sorted(set(names)))
    for values, *link in zip(zip(*texts, strict=True), labels, urls, strict=True):
        key = tuple(zip(sorted(set(names)), values, strict=True))
        links.setdefault(key, []).append((link[0], link[1]))
    return links


def short_label(config: Config, axes: Sequence[str]) -> str:
    """Return a shape by the values of ``axes`` alone: ``heads=8 depth=4``."""
    return " ".join(f"{name}={value_text(config[name])}" for name in axes if name in config)


def unique_names(names: Sequence[str]) -> list[str]:
    """Return the names, with a number added to names that occur several times."""
    return [
        name if names.count(name) == 1 else f"{name} ({names[: at + 1].count(name)})"
        for at, name in enumerate(names)
    ]
