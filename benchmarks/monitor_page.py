"""The page of `benchmarks/monitor.py`: from its records to benchmarks/monitor.md."""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.calibration import GRAPHS

Record = dict[str, Any]
DAY = 50
WAYS = ("random", "growing", "regions", "regions, apart", "regions, as blocks")


def page(folder: Path) -> str:
    """All tables, as Markdown."""
    records: list[Record] = []
    for file in sorted(folder.glob("*.json")):
        records += json.loads(file.read_text(encoding="utf-8"))
    by_kind = {kind: [one for one in records if one["kind"] == kind] for kind in ("calm", "change", "accuracy")}
    return "\n".join([
        "# The alarm of `gnnsafe monitor` on real graphs", "",
        "Made by `python -m benchmarks.monitor --data FOLDER`, whose docstring says what each row is.", "",
        "## Calm streams that raised the alarm", "",
        "In brackets, a 95 % interval of the share (Clopper and Pearson). `random` is what the promise is about;",
        "in the others nodes are not exchangeable with the calibration nodes, and it does not hold.", "",
        _calm(by_kind["calm"]), "", "`random`, graph by graph:", "", _by_graph(by_kind["calm"]), "",
        "## Delays", "",
        "Shifted nodes counted by the end of the day of the alarm (α = 5 %), in days of 50: the median over streams,",
        "and where some never raised it within 20 days, how many did. The daily test is at the same false-alarm rate:",
        "a day below its threshold in 5 % of calm streams of 30 days. 50 is the first day.", "",
        _delays(by_kind["change"], by_kind["calm"]), "",
        "## Estimated accuracy of nodes that are not flagged", "",
        _accuracy(by_kind["accuracy"]), "",
    ])  # fmt: skip


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _share(streams: list[Record], alpha: float) -> str:
    from scipy.stats import binomtest

    raised = sum(one["peaks"][-1] >= -math.log(alpha) for one in streams)
    low, high = binomtest(raised, len(streams)).proportion_ci(method="exact")
    return f"{raised} of {len(streams)}: {raised / len(streams):.1%} [{low:.1%}, {high:.1%}]"


def _calm(calm: list[Record]) -> str:
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for one in calm:
        groups[one["way"], one["method"]].append(one)
    rows = [
        [way, method, _share(groups[way, method], 0.01), _share(groups[way, method], 0.05)]
        for way in WAYS
        for method in ("two-scale", "gnnsafe")
        if groups[way, method]
    ]
    return _table(["streams", "method", "α = 1 %", "α = 5 %"], rows)


def _by_graph(calm: list[Record]) -> str:
    rows = []
    for graph, name in GRAPHS.items():
        for method in ("two-scale", "gnnsafe"):
            streams = [
                one for one in calm if one["way"] == "random" and (one["graph"], one["method"]) == (graph, method)
            ]
            if streams:
                rows.append([name, method, _share(streams, 0.01), _share(streams, 0.05)])
    return _table(["graph", "method", "α = 1 %", "α = 5 %"], rows)


def _thresholds(calm: list[Record]) -> dict[tuple[str, str], float]:
    """The p-value below which a day of the daily test lies in 5 % of the calm streams of a graph, within 30 days."""
    least: dict[tuple[str, str], list[float]] = defaultdict(list)
    for one in calm:
        if one["way"] == "random":
            least[one["graph"], one["method"]].append(min(one["tests"][:30]))
    return {key: float(np.quantile(values, 0.05)) for key, values in least.items()}


def _delays(changes: list[Record], calm: list[Record]) -> str:
    limits, rows = _thresholds(calm), []
    for graph, change in dict.fromkeys((one["graph"], one["change"]) for one in changes):
        row = [GRAPHS[graph], change]
        for method in ("two-scale", "gnnsafe"):
            streams = [
                one for one in changes if (one["graph"], one["change"], one["method"]) == (graph, change, method)
            ]
            alarm = [_days(one, lambda k, one=one: one["peaks"][k] >= math.log(20)) for one in streams]
            limit = limits.get((graph, method), 0.0)
            test = [_days(one, lambda k, one=one, limit=limit: one["tests"][k] < limit) for one in streams]
            row += [_median(alarm), _median(test)]
        rows.append(row)
    return _table(["graph", "change", "two-scale, alarm", "daily test", "gnnsafe, alarm", "daily test"], rows)


def _days(one: Record, found: Any) -> float:
    """Days after the change, ∞ where it was not found; a stream that was stopped by a false alarm counts from 0."""
    days = [k - one["before"] + 1 for k in range(one["before"], len(one["peaks"])) if found(k)]
    return days[0] if days else math.inf


def _median(days: list[float]) -> str:
    middle = statistics.median_high(days)
    text = "none" if math.isinf(middle) else f"{DAY * middle:.0f}"
    missed = sum(map(math.isinf, days))
    return f"{text} ({len(days) - missed} of {len(days)})" if missed else text


def _accuracy(found: list[Record]) -> str:
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for one in found:
        groups[one["graph"], one["at"]].append(one)
    rows = []
    for (graph, at), ones in groups.items():
        errors = [100 * (one["estimate"] - one["truth"]) for one in ones]
        mean = {key: 100 * statistics.mean(one[key] for one in ones) for key in ("truth", "estimate", "all")}
        rows.append([
            GRAPHS[graph], at, str(len(ones)), f"{mean['truth']:.1f} %", f"{mean['estimate']:.1f} %",
            f"{statistics.mean(map(abs, errors)):.1f}", f"{statistics.mean(errors):+.1f}", f"{mean['all']:.1f} %",
        ])  # fmt: skip
    head = ["graph", "nodes", "streams", "truth", "estimate", "mean absolute error, points", "bias, points",
            "truth, flagged nodes too"]  # fmt: skip
    return _table(head, rows)
