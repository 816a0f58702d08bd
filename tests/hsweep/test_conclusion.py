"""The analysis is imported beside what comes first; what that meets is said where it is used."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hsweep.tracking.target import TrackingTarget
from hsweep.verbs import conclusion
from hsweep.verbs.conclusion import Conclusion

ROOT = Path(__file__).parents[2]
TARGET = TrackingTarget("sqlite:////nowhere/mlflow.db", None, "tiny")


def importing() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "import-ahead"]


def test_the_analysis_is_there_without_having_been_called() -> None:
    program = """
import sys, threading
from hsweep.tracking.target import TrackingTarget
from hsweep.verbs.conclusion import Conclusion
assert "analysis.answer" not in sys.modules
assert "mlflow" not in sys.modules
Conclusion(TrackingTarget("sqlite:////nowhere/mlflow.db", None, "tiny")).import_ahead()
[each.join() for each in threading.enumerate() if each.name == "import-ahead"]
assert "analysis.answer" in sys.modules
assert "mlflow.store.tracking.sqlalchemy_store" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_an_analysis_that_cannot_be_imported_is_said_at_the_end_and_not_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(name: str) -> None:
        raise ImportError(f"no {name}")

    monkeypatch.setattr(conclusion.importlib, "import_module", broken)
    # A thread that raises fails the test: pytest turns it into a warning, and warnings are errors.
    made = Conclusion(TARGET)
    made.import_ahead()
    for thread in importing():
        thread.join()
    assert made.problem == ""
    assert made.answer is None
