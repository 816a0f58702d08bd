"""Keep the libraries underneath from calling home."""

import os
from collections.abc import MutableMapping
from typing import Final

HUB_SWITCH: Final = "HSWEEP_HUB"
"""Set to 1 to let the Hugging Face libraries ask the hub for models and data sets."""

# The values differ because the readers do: Ray raises on anything but 0 and 1, MLflow's reading of
# DO_NOT_TRACK knows only "true", huggingface_hub takes both.
_NO_TELEMETRY: Final = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "true",
}


def disable_telemetry(environment: MutableMapping[str, str] = os.environ) -> None:
    """Turn off usage statistics, and look-ups on the Hugging Face hub unless ``HSWEEP_HUB=1``.

    A variable the user has set is left alone. Has to run before ray, mlflow, timm, transformers or
    datasets is imported, since most read their switches on import.
    """
    # datasets and transformers follow the hub's switch unless they are told otherwise.
    hub = {} if environment.get(HUB_SWITCH) == "1" else {"HF_HUB_OFFLINE": "1"}
    for name, value in {**_NO_TELEMETRY, **hub}.items():
        environment.setdefault(name, value)
