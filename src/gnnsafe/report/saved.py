"""A saved detector for the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gnnsafe.calibration import LEVELS, Calibration
from gnnsafe.display import shown

__all__ = ["saved_lines"]

MOST = 12  # names in a line


def saved_lines(record: Mapping[str, Any]) -> list[str]:
    """What it is, a line per thing; `record` has what is saved of a detector, by its names."""
    calibration: Calibration | None = record["calibration"]
    lines = {
        "method": repr(record["method"]),
        "model": _model(record["model"]),
        "features": _named(record["num_features"], record["feature_names"]),
        "undirected": "yes: each edge is read in both directions" if record["undirected"] else None,
        "scaling": str(record["scaling"] or "none: features as they are"),
        "classes": record["class_names"] and _named(len(record["class_names"]), record["class_names"]),
        "task": None if record["task"] == "multiclass" else record["task"],
        "calibration": "none: it gives scores, and decides nothing"
        if calibration is None
        else _calibrated(calibration),
        **{name: ", ".join(_noted(value)) for name, value in record["notes"].items()},
        "saved by": f"gnnsafe {record['gnnsafe']}, format {record['format']}",
    }
    told = {name: text for name, text in lines.items() if text}
    width = max(map(len, told))
    return [shown(f"{name:<{width}}  {text}") for name, text in told.items()]


def _model(model: Any) -> str:
    if model is None:
        return "none"
    if model.arguments is None:
        return f"{model.name}, not in this folder: gnnsafe.load(folder, model)"
    return f"{model.name}({', '.join(f'{name}={value!r}' for name, value in model.arguments.items())})"


def _named(count: int, names: Sequence[Any] | None) -> str:
    if names is None:
        return f"{count:,}"
    return f"{count:,}: {', '.join(map(str, names[:MOST]))}{', …' if count > MOST else ''}"


def _calibrated(calibration: Calibration) -> str:
    nodes = f"{len(calibration.scores):,} nodes"
    if calibration.classes is not None:
        return f"{nodes}, class by class"
    limits = {level: float(calibration.thresholds(level)) for level in LEVELS}
    texts = [f"above {limit:.4g} at {level:.0%}" for level, limit in limits.items() if limit < math.inf]
    return f"{nodes}; flagged {', '.join(texts) or 'nowhere'} of false alarms"


def _noted(value: Any) -> Iterator[str]:
    """A note's value as texts; nothing where it says nothing."""
    if isinstance(value, Mapping):
        yield from (
            f"{name} {number:.1%}" if isinstance(number, float) else f"{name} {number}"
            for name, number in value.items()
        )
    elif value is not None and value is not False:
        yield "yes" if value is True else f"{value:,}" if isinstance(value, int) else str(value)
