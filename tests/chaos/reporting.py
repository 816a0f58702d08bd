"""The options of the suite, and the table at its end; known to pytest wherever it starts.

Rows travel with the reports of their tests, so the table is whole where several processes run them.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final

import pytest
from chaos.fault_table import Fault, table, write_table

DEFAULT_SEED: Final = 1
_PROPERTY: Final = "fault"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("chaos")
    group.addoption(
        "--chaos-seed", type=int, default=DEFAULT_SEED, help="What moments and victims come from."
    )
    group.addoption("--chaos-table", type=Path, help="A file to write the table of faults into.")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Table(config))


def note(item: pytest.Item, fault: Fault) -> None:
    """Let a row travel with the report of a test."""
    item.user_properties.append((_PROPERTY, asdict(fault)))


class _Table:
    def __init__(self, config: pytest.Config) -> None:
        self._file: Path | None = config.getoption("--chaos-table")
        self._faults: list[Fault] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties if report.when == "teardown" else ():
            if name == _PROPERTY and isinstance(value, Mapping):
                self._faults.append(Fault(**value))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._faults:
            return
        faults = sorted(self._faults, key=lambda fault: fault.test)
        terminalreporter.section("faults")
        terminalreporter.write_line(table(faults))
        if self._file is not None:
            write_table(faults, self._file)
