from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def values() -> Callable[[dict[str, Any], Any], list[dict[str, Any]]]:
    """The data of a part of a chart's specification."""

    def find(chart: dict[str, Any], part: dict[str, Any]) -> list[dict[str, Any]]:
        data = part["data"] if "data" in part else part["spec"]["data"]
        return chart["datasets"][data["name"]]

    return find
