"""A saved detector: as figures, and for the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gnnsafe.calibration import LEVELS, Calibration
from gnnsafe.display import shown
from gnnsafe.methods import Method

__all__ = ["saved_figures", "saved_lines"]

MOST = 12  # names in a line


def saved_figures(record: Mapping[str, Any]) -> dict[str, Any]:
    """What it is; `record` has what is saved of a detector, by its names."""
    same = ("num_features", "feature_names", "class_names", "task", "undirected", "notes", "gnnsafe", "format")
    model, calibration, scaling = (record[name] for name in ("model", "calibration", "scaling"))
    return {
        "method": repr(record["method"]),
        "model": model and {"name": model.name, "arguments": model.arguments},
        "scaling": scaling and str(scaling),
        "calibration": calibration and _calibration(calibration, record["method"]),
        **{name: record[name] for name in same},
    }


def _calibration(calibration: Calibration, method: Method) -> dict[str, Any]:
    """Its nodes; at each level of false alarms, above what nodes are flagged, infinite for none; what is compared."""
    by_class = calibration.classes is not None
    thresholds = {} if by_class else {str(level): float(calibration.thresholds(level)) for level in LEVELS}
    compared = "score" if type(method).comparable is Method.comparable else "own evidence"
    return {"nodes": len(calibration.scores), "by_class": by_class, "thresholds": thresholds, "compared": compared}


def saved_lines(figures: Mapping[str, Any]) -> list[str]:
    """The same in words, a line per thing."""
    lines = {
        "method": figures["method"],
        "model": _model(figures["model"]),
        "features": _named(figures["num_features"], figures["feature_names"]),
        "undirected": "yes: each edge is read in both directions" if figures["undirected"] else None,
        "scaling": figures["scaling"] or "none: features as they are",
        "classes": figures["class_names"] and _named(len(figures["class_names"]), figures["class_names"]),
        "task": None if figures["task"] == "multiclass" else figures["task"],
        "calibration": _calibrated(figures["calibration"]),
        **{name: ", ".join(_noted(value)) for name, value in figures["notes"].items()},
        "saved by": f"gnnsafe {figures['gnnsafe']}, format {figures['format']}",
    }
    told = {name: text for name, text in lines.items() if text}
    width = max(map(len, told))
    return [shown(f"{name:<{width}}  {text}") for name, text in told.items()]


def _model(model: Mapping[str, Any] | None) -> str:
    if model is None:
        return "none"
    if model["arguments"] is None:
        return f"{model['name']}, not in this folder: gnnsafe.load(folder, model)"
    return f"{model['name']}({', '.join(f'{name}={value!r}' for name, value in model['arguments'].items())})"


def _named(count: int, names: Sequence[Any] | None) -> str:
    if names is None:
        return f"{count:,}"
    return f"{count:,}: {', '.join(map(str, names[:MOST]))}{', …' if count > MOST else ''}"


def _calibrated(calibration: Mapping[str, Any] | None) -> str:
    if calibration is None:
        return "none: it gives scores, and decides nothing"
    nodes = f"{calibration['nodes']:,} nodes"
    if calibration["by_class"]:
        return f"{nodes}, class by class"
    limits = {float(level): limit for level, limit in calibration["thresholds"].items() if limit < math.inf}
    texts = [f"above {limit:.4g} at {level:.0%}" for level, limit in limits.items()]
    of = "" if calibration["compared"] == "score" else f", by {calibration['compared']}, which is not the score"
    return f"{nodes}; flagged {', '.join(texts) or 'nowhere'} of false alarms{of}"


def _noted(value: Any) -> Iterator[str]:
    """A note's value as texts; nothing where it says nothing."""
    if isinstance(value, Mapping):
        yield from (
            f"{name} {number:.1%}" if isinstance(number, float) else f"{name} {number}"
            for name, number in value.items()
        )
    elif value is not None and value is not False:
        yield "yes" if value is True else f"{value:,}" if isinstance(value, int) else str(value)
