"""A view of a study in MLflow's pages: its trials side by side, with charts of the main metric.

MLflow 3.17 lists the saved views of an experiment in the menu "Views" and opens the one that an
address names. It keeps each in a tag of the experiment; its Python API does not know them.
"""

import json
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlencode

from hsweep.tracking.names import STUDY_ID, safe_names
from hsweep.tracking.study import TrackedStudy

TAG: Final = "mlflow.sharedViewState."
_SECTION: Final = "hsweep"
_MOST_RUNS: Final = 100
_MOST_AXES: Final = 8
_COST: Final = "num_params"
_TRAINING: Final = {"workflowType": "machine_learning"}
"""Lets the pages show training runs, where they would begin with traces of language models."""


EXPERIMENTS: Final = f"#/experiments?{urlencode(_TRAINING)}"
"""The part of an address, behind the server's, that lists the experiments."""


def view_of(study: TrackedStudy, axes: Sequence[str]) -> str:
    """Return the tag's value for a study whose trials differ in ``axes``."""
    metric = safe_names([study.metric])[study.metric]
    names = safe_names(axes)
    params = [names[axis] for axis in axes][:_MOST_AXES]
    state = {
        # Runs nest, and show nothing of the trials, unless they are filtered or sorted.
        "searchFilter": f"tags.`{STUDY_ID}` = '{study.tags[STUDY_ID]}' "
        "AND tags.`hsweep.trial` != ''",
        "orderByKey": f"metrics.`{metric}`",
        "orderByAsc": study.goal == "min",
        "selectedColumns": [
            "attributes.`Duration`",
            f"metrics.`{metric}`",
            *(f"params.`{name}`" for name in [*params, _COST]),
        ],
        "runsHiddenMode": "SHOW_ALL",
        "isAccordionReordered": True,
        "compareRunSections": [_section(study.name)],
        "compareRunCharts": [
            _chart(
                "LINE",
                metricKey=metric,
                selectedMetricKeys=[metric],
                scaleType="log" if study.is_log else "linear",
                useGlobalXaxisKey=True,
                useGlobalLineSmoothing=True,
            ),
            *(
                _chart("SCATTER", xaxis=_param(name), yaxis={"key": metric, "type": "METRIC"})
                for name in dict.fromkeys([*params[:1], _COST])
            ),
            _chart(
                "PARALLEL",
                selectedParams=params,
                selectedMetrics=[metric],
                showAllRuns=True,
            ),
        ],
    }
    moment = int(study.created * 1000)
    content = {"name": study.name, "createdAt": moment, "updatedAt": moment}
    return json.dumps({**content, "state": json.dumps(state)})


def view_address(experiment: str, study_id: str) -> str:
    """Return the part of an address, behind the server's, that opens the charts of a study."""
    query = {"compareRunsMode": "CHART", "viewStateShareKey": study_id, **_TRAINING}
    return f"#/experiments/{experiment}/runs?{urlencode(query)}"


def run_address(experiment: str, run_id: str) -> str:
    """Return the part of an address, behind the server's, that opens a run."""
    return f"#/experiments/{experiment}/runs/{run_id}?{urlencode(_TRAINING)}"


def _section(name: str) -> dict[str, Any]:
    shown = {"display": True, "isReordered": False, "deleted": False, "isGenerated": False}
    # Of three in a row, which is usual, titles and axes are cut.
    return {"uuid": _SECTION, "name": name, "columns": 2, **shown}


def _chart(kind: str, **settings: Any) -> dict[str, Any]:
    return {
        "type": kind,
        "uuid": f"{kind}-{settings.get('xaxis', {}).get('key', '')}",
        "metricSectionId": _SECTION,
        "deleted": False,
        "isGenerated": False,
        "runsCountToCompare": _MOST_RUNS,
        **settings,
    }


def _param(name: str) -> dict[str, str]:
    return {"key": name, "type": "PARAM"}
