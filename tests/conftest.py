"""How tests share out among processes."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent
TOGETHER = {"hsweep": "ray", "analysis/test_report_browser.py": "browser"}
"""What one process runs alone: tests that share a Ray, and those that share a browser."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.pluginmanager.hasplugin("xdist"):
        return
    for item in items:
        place = item.path.relative_to(HERE).as_posix()
        for beginning, group in TOGETHER.items():
            if place.startswith(beginning):
                item.add_marker(pytest.mark.xdist_group(group))
