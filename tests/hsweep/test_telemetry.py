import json
import os
import subprocess
import sys

import pytest

from hsweep.telemetry import disable_telemetry

_WHAT_THE_LIBRARIES_READ = """
import json, sys
from hsweep.telemetry import disable_telemetry
disable_telemetry()
import datasets.config, huggingface_hub.constants
from ray._common.usage.usage_lib import usage_stats_enabled
from mlflow.telemetry import utils as telemetry
telemetry._IS_IN_CI_ENV_OR_TESTING = False
json.dump({
    "ray": usage_stats_enabled(),
    "mlflow": not telemetry.is_telemetry_disabled(),
    "hub telemetry": not huggingface_hub.constants.HF_HUB_DISABLE_TELEMETRY,
    "hub": not huggingface_hub.constants.HF_HUB_OFFLINE,
    "datasets": not datasets.config.HF_HUB_OFFLINE,
}, sys.stdout)
"""


def calls_home_in_a_fresh_process() -> dict[str, bool]:
    ours = ("RAY_USAGE", "MLFLOW_", "HF_", "DO_NOT_TRACK", "HSWEEP_", "TRANSFORMERS_", "DISABLE_")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    done = subprocess.run(
        [sys.executable, "-c", _WHAT_THE_LIBRARIES_READ],
        env=inherited | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    answer: dict[str, bool] = json.loads(done.stdout)
    return answer


def test_no_library_calls_home_by_default() -> None:
    assert not any(calls_home_in_a_fresh_process().values())


def test_the_hub_opens_on_request_but_telemetry_stays_off() -> None:
    environment = {"HSWEEP_HUB": "1"}
    disable_telemetry(environment)
    assert "HF_HUB_OFFLINE" not in environment
    assert environment["HF_HUB_DISABLE_TELEMETRY"] == "1"


@pytest.mark.parametrize(
    ("name", "value"), [("RAY_USAGE_STATS_ENABLED", "1"), ("HF_HUB_OFFLINE", "0")]
)
def test_what_the_user_has_set_stays(name: str, value: str) -> None:
    environment = {name: value}
    disable_telemetry(environment)
    assert environment[name] == value
    assert environment["MLFLOW_DISABLE_TELEMETRY"] == "true"


def test_a_value_of_the_switch_other_than_1_keeps_the_hub_closed() -> None:
    environment = {"HSWEEP_HUB": "0"}
    disable_telemetry(environment)
    assert environment["HF_HUB_OFFLINE"] == "1"
