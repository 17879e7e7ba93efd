"""What the first page says: is it calm, since when, how sure; and what an uploaded graph looks like."""

from __future__ import annotations

import math
import time
from typing import Any

import torch

from gnnsafe.calibration import CalibrationCheck
from gnnsafe.detector import Decisions, Detector
from gnnsafe.evolving import Totals
from gnnsafe.service.answers import plain_columns
from gnnsafe.service.charts import Dot, Line, bars, lines, node_map, stacked
from gnnsafe.service.sampling import MapOf
from gnnsafe.service.state import Service

__all__ = ["overview", "uploaded"]

FIRST = 10  # nodes on the first page
UPLOADED = 100  # nodes of an uploaded graph
BINS = 20


def overview(service: Service, kept_map: MapOf | None) -> dict[str, Any]:
    """All that the first page shows."""
    kept = service.kept
    return {
        "state": _state(service),
        "problems": service.problems(),
        "models": list(service.models),
        "charts": _over_time(service),
        "now": None if kept is None else _now(service),
        "rows": [] if kept is None else kept.columns.most_unusual(FIRST),
        "map": None if kept_map is None else _map(service, kept_map),
    }


def _state(service: Service) -> dict[str, Any]:
    """Calm or not, since when, how sure."""
    if service.watch is None:
        why = "No history is kept: start with --history to watch over time."
        return {"kind": "unknown", "word": "No alarm yet", "text": why}
    followed = service.watch.followed
    if not followed.judged or followed.began is None:
        return {"kind": "unknown", "word": "No alarm yet", "text": "Nothing was judged yet."}
    last = followed.judged[-1]
    threshold = 1 / service.alpha
    value = f"The martingale stands at {_power(last.log_value)} of {threshold:.0f}"
    sure = f"of streams of ID nodes at most {service.alpha:.0%} ever reach {threshold:.0f}"
    counted = f"{last.total:,} nodes were counted"
    if last.raised(service.alpha):
        first = followed.raised or last
        text = f"Since {_when(first.entry.time)} ({first.entry.name}), by {last.loudest}. "
        return {
            "kind": "alarm",
            "word": "Alarm",
            "text": f"{text}It rose to {_power(last.log_peak)}; {sure}; {counted}.",
        }
    since = f"Since {_when(followed.began.entry.time)}. "
    return {"kind": "calm", "word": "Calm", "text": f"{since}{value}; {sure}; {counted}."}


def _now(service: Service) -> dict[str, Any]:
    """The kept graph as it is."""
    kept = service.graph()
    summary = kept.columns.summary()
    low, high = _band(service, summary)
    share = summary.flagged / max(summary.nodes, 1)
    word = "less than" if share < low else "more than" if share > high else "within what"
    usual = f"{word} is expected"
    chart = bars(
        summary.p_values, title="p-values of the kept graph", expected=summary.nodes / BINS,
        words=f"{summary.p_values[0]:,} of {summary.nodes:,} nodes have a p-value below {1 / BINS:.2f}, where "
        f"{summary.nodes / BINS:,.0f} are expected of ID nodes.",
    )  # fmt: skip
    return {
        "summary": summary, "share": share, "low": low, "high": high, "usual": usual, "edges": kept.graph.num_edges,
        "chart": chart, "level": service.false_alarm, "version": kept.version,
        "changed": _when(kept.changed_at) if kept.changed_at else "not since the start",
    }  # fmt: skip


def _band(service: Service, summary: Totals) -> tuple[float, float]:
    """Where the share flagged lies 95 times in 100 if all nodes are ID."""
    p = torch.ones(max(summary.nodes, 1), dtype=torch.float64)
    calibration = service.models[None].detector.calibrated()
    (check,) = CalibrationCheck.of(p, calibration, (service.false_alarm,)).levels
    return check.expected


def _over_time(service: Service) -> list[Any]:
    judged = service.judged
    if not judged:
        return []
    labels = [f"{_when(one.entry.time)} {one.entry.name}" for one in judged]
    ends = [_when(one.entry.time) for one in judged]
    shares = [100 * one.entry.flagged / one.entry.nodes for one in judged]
    bands = [(100 * low, 100 * high) for low, high in (one.entry.expected for one in judged)]
    beyond = sum(share > high for share, (_, high) in zip(shares, bands, strict=True))
    limit = -math.log10(service.alpha)
    values = [one.log_value / math.log(10) for one in judged]
    return [
        ("Share flagged, with the band that is expected of ID nodes", lines(
            Line(shares, labels, bands, unit=" %"), ends, title="Share of nodes flagged over time",
            words=f"Last {shares[-1]:.1f} percent; {beyond} of {len(shares)} times above the expected band.",
        )),
        ("Martingale (log10); the alarm is raised at the dashed line", lines(
            Line(values, labels, limit=limit), ends, title="Logarithm of the martingale over time",
            words=f"Last {values[-1]:.2f}; the alarm is raised at {limit:.2f}.",
        )),
        ("Classes that the model predicts", stacked(
            [one.entry.classes for one in judged], labels, ends, title="Share of predicted classes over time",
            words="Last: " + ", ".join(f"{name} {count:,}" for name, count in judged[-1].entry.classes.items()),
        )),
    ]  # fmt: skip


def _map(service: Service, kept_map: MapOf) -> dict[str, Any]:
    kept, sample = service.graph(), kept_map.sample()
    rows = [kept.columns.row(number) for number in sample.numbers]
    there = [place for place, row in enumerate(rows) if row is not None]
    where = {place: at for at, place in enumerate(there)}
    found = [row for row in rows if row is not None]
    edges = [(where[a], where[b]) for a, b in sample.edges if a in where and b in where]
    flagged = sum(row.flag for row in found)
    dots = [
        Dot(*sample.places[place], str(row.id), row.p_value, row.flag) for place, row in zip(there, found, strict=True)
    ]
    words = f"{len(found)} nodes, {flagged} of them flagged; the rarer a node's p-value, the warmer its colour."
    drawing = node_map(dots, edges, title="Map of a sample of the graph", words=words)
    return {"drawing": drawing, "nodes": len(found), "flagged": flagged}


def uploaded(decisions: Decisions, detector: Detector, name: str, level: float) -> dict[str, Any]:
    """What was decided about a graph that was sent: a histogram, and the most unusual nodes."""
    p = decisions.p_values.cpu()
    counts = torch.bincount((p * BINS).long().clamp(max=BINS - 1), minlength=BINS).tolist()
    flagged, nodes = int(decisions.flags.sum()), len(decisions)
    (check,) = CalibrationCheck.of(p, detector.calibrated(), (level,)).levels
    order = decisions.scores.cpu().argsort(descending=True, stable=True)[:UPLOADED].tolist()
    columns = plain_columns(decisions)
    none = {"predicted": None, "probability": None}
    rows = [none | {name: values[place] for name, values in columns.items()} for place in order]
    chart = bars(
        counts, title="p-values of the graph", expected=nodes / BINS,
        words=f"{counts[0]:,} of {nodes:,} nodes have a p-value below {1 / BINS:.2f}.",
    )  # fmt: skip
    return {
        "nodes": nodes, "flagged": flagged, "share": flagged / nodes, "low": check.expected[0], "level": level,
        "high": check.expected[1], "rows": rows, "chart": chart, "model": name,
    }  # fmt: skip


def _power(logarithm: float) -> str:
    """A number of which the logarithm is given."""
    if abs(logarithm) < math.log(1e4):
        return f"{math.exp(logarithm):.3g}"
    return f"10^{logarithm / math.log(10):.1f}"


def _when(moment: str | float) -> str:
    if isinstance(moment, str):
        return moment[:16].replace("T", " ") + " UTC"
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(moment)) + " UTC"
