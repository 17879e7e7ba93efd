"""The drift report: one page that needs no network, of all entries of a detector."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gnnsafe.monitoring.drift import Drift
from gnnsafe.monitoring.judgement import Judgement
from gnnsafe.report.document import Document, Section
from gnnsafe.report.grid import Grid, GridEntry
from gnnsafe.report.plotting import altair, specification

__all__ = ["drift_document"]

BLUE, ORANGE, GREY = "#4e79a7", "#f28e2b", "#8a929b"
ROWS = 30  # of the newest entries in the table
MARTINGALE = (
    'What a gambler owns who bets against "nodes are as they were". While that is true it exceeds 1 / α at any time, '
    "ever, with a probability of at most α; the alarm stays raised once it did. Dotted: its highest so far. Values "
    "beyond 1 / α⁴ are drawn there."
)
DOUBT = "After an alarm the estimated accuracy is not to be relied on: it takes confidence to be worth what it was."
READING = "For reading only: looked at daily, none of these has an error rate. The alarm above has."


def drift_document(found: Judgement) -> Document:
    """What `gnnsafe monitor --report` writes."""
    since, last, count = found.since, found.last, len(found.entries)
    state = "Calm" if since is None else f"Alarm since {since.entry.time}"
    lead = [
        *found.lines(),
        f"{count} {'entry' if count == 1 else 'entries'} from {found.entries[0].entry.time} to {last.entry.time}; "
        f"detector {last.entry.detector[:12]}; α = {found.alpha:g}.",
    ]
    sections = [
        Section("The alarm", [MARTINGALE], chart=specification(_martingale(found)), name="martingale"),
        Section("Nodes flagged", [READING], chart=specification(_flagged(found)), name="flagged"),
        Section("Predicted classes", chart=specification(_classes(found)), name="classes"),
        Section(
            "p-values of the newest graph", ["Flat is right; too many at the left are unusual nodes."],
            chart=specification(_p_values(found)), name="p-values",
        ),
        *_changes(found),
        Section("Entries", grids=[_entries(found)], notes=["The newest first.", *([] if since is None else [DOUBT])]),
    ]  # fmt: skip
    return Document(f"Drift report: {state}", lead, sections)


def _times(found: Judgement) -> list[dict[str, Any]]:
    rows = []
    for one in found.entries:
        entry = one.entry
        share = entry.flagged / entry.nodes
        rows.append({
            "time": entry.time, "entry": one.number, "graph": entry.name, "now": one.log_value / math.log(10),
            "peak": one.log_peak / math.log(10), "share": share, "low": entry.expected[0], "high": entry.expected[1],
            "accuracy": None if entry.accuracy is None else entry.accuracy.value,
        })  # fmt: skip
    return rows


def _martingale(found: Judgement) -> Any:
    alt = altair()
    rows, threshold = _times(found), -math.log10(found.alpha)
    top = 4 * threshold  # far beyond the alarm it makes no difference how far
    rows = [{**row, "drawn": min(row["now"], top), "highest": min(row["peak"], top)} for row in rows]
    base = alt.Chart({"values": rows}).encode(x=_time(alt))
    tip = ["entry:Q", "graph:N", "time:N", alt.Tooltip("now:Q", format=".2f", title="log10 now"),
           alt.Tooltip("peak:Q", format=".2f", title="log10 highest")]  # fmt: skip
    scale = alt.Scale(
        domain=[min(-1.0, *(row["drawn"] for row in rows)), max(threshold * 1.3, *(r["highest"] for r in rows))]
    )
    highest = base.mark_line(color=GREY, strokeDash=[2, 3], interpolate="step-after").encode(
        y=alt.Y("highest:Q", scale=scale)
    )
    now = base.mark_line(point=True, color=BLUE).encode(
        y=alt.Y("drawn:Q", title="log10 of the martingale", scale=scale), tooltip=tip
    )
    rule = alt.Chart({"values": [{"y": threshold, "text": f"alarm at 1 / α = {1 / found.alpha:,.0f}"}]})
    line = rule.mark_rule(color=ORANGE, strokeWidth=2).encode(y="y:Q")
    text = rule.mark_text(align="left", dx=4, dy=-7, color=ORANGE).encode(y="y:Q", x=alt.value(0), text="text:N")
    return alt.layer(highest, now, line, text).properties(width=720, height=240)


def _flagged(found: Judgement) -> Any:
    alt = altair()
    base = alt.Chart({"values": _times(found)}).encode(x=_time(alt))
    percent = alt.Axis(format=".0%")
    # A single entry has no width as an area: a rule shows its band.
    band = base.mark_area(opacity=0.25, color=GREY).encode(
        y=alt.Y("low:Q", axis=percent, title="flagged; grey: expected, 95 %"), y2="high:Q"
    )
    bars = base.mark_rule(opacity=0.25, color=GREY, strokeWidth=6).encode(y="low:Q", y2="high:Q")
    share = base.mark_line(point=True, color=BLUE).encode(
        y="share:Q",
        tooltip=["entry:Q", "graph:N", "time:N", alt.Tooltip("share:Q", format=".2%", title="flagged"),
                 alt.Tooltip("high:Q", format=".2%", title="expected at most"),
                 alt.Tooltip("accuracy:Q", format=".1%", title="estimated accuracy")],
    )  # fmt: skip
    return alt.layer(band, bars, share).properties(width=720, height=200)


def _classes(found: Judgement) -> Any:
    alt = altair()
    values = [
        {"time": one.entry.time, "entry": one.number, "class": name, "share": count / one.entry.nodes}
        for one in found.entries
        for name, count in one.entry.classes.items()
    ]
    return (
        alt.Chart({"values": values})
        .mark_bar()
        .encode(
            x=alt.X("entry:O", title="entry", axis=alt.Axis(labelOverlap=True, labelAngle=0)),
            y=alt.Y("share:Q", stack="normalize", axis=alt.Axis(format=".0%"), title="share of nodes"),
            color=alt.Color("class:N", title=None),
            tooltip=["entry:O", "time:N", "class:N", alt.Tooltip("share:Q", format=".1%")],
        )
        .properties(width=720, height=200)
    )


def _p_values(found: Judgement) -> Any:
    alt = altair()
    values = [
        {"p": round(place / len(counts), 3), "end": round((place + 1) / len(counts), 3), "class": name, "nodes": count}
        for name, counts in found.last.entry.p_values.items()
        for place, count in enumerate(counts)
    ]
    return (
        alt.Chart({"values": values})
        .mark_bar()
        .encode(
            x=alt.X("p:Q", bin="binned", title="p-value"),
            x2="end:Q",
            y=alt.Y("nodes:Q", title="nodes"),
            color=alt.Color("class:N", title=None),
            tooltip=["class:N", "p:Q", "nodes:Q"],
        )
        .properties(width=720, height=200)
    )


def _time(alt: Any) -> Any:
    return alt.X("time:T", title=None, axis=alt.Axis(tickCount=8, labelOverlap=True))


def _changes(found: Judgement) -> list[Section]:
    first = f"the first entry, {found.entries[0].entry.time}"
    features, classes, regions = found.features(), found.classes(), found.regions()
    grids = {
        "Features that changed most": (
            features, ("feature", "mean at first", "mean now", "change, in standard deviations"),
            f"Beside {first}: their means, in standard deviations of that graph's nodes.", "{:.4g}",
        ),
        "Classes that changed most": (
            classes, ("class", "share at first", "share now", "change"), f"Beside {first}.", "{:.1%}"
        ),
        "Where flagged nodes sit": (
            regions, ("region around node", "expected", "flagged", "beyond chance, in standard deviations"),
            "The newest graph in up to 24 parts around nodes drawn at random.", "{:.1%}",
        ),
    }  # fmt: skip
    return [
        Section(title, [text], [_grid(head, changes, form, title)])
        for title, (changes, head, text, form) in grids.items()
        if changes
    ]


def _grid(head: Sequence[str], changes: Sequence[Drift], form: str, title: str) -> Grid:
    sizes = "{:.1%}" if title.startswith("Classes") else "{:.2f}"
    rows = [
        [
            GridEntry(one.name),
            GridEntry(form.format(one.before)),
            GridEntry(form.format(one.now)),
            GridEntry(sizes.format(one.size)),
        ]
        for one in changes
    ]
    return Grid("", head, rows)


def _entries(found: Judgement) -> Grid:
    head = ("graph", "entry", "time (UTC)", "nodes", "new", "flagged", "expected", "log10 martingale", "stability",
            "two-sample p", "accuracy, estimated")  # fmt: skip
    rows = []
    for one in list(reversed(found.entries))[:ROWS]:
        entry, low, high = one.entry, *one.entry.expected
        known = "–" if entry.accuracy is None else f"{entry.accuracy.value:.1%} ± {2 * entry.accuracy.error:.1%}"
        texts = (
            entry.name or entry.graph[:12], str(one.number), entry.time[:16].replace("T", " "), f"{entry.nodes:,}",
            f"{one.counted:,}", f"{entry.flagged / entry.nodes:.1%}", f"{low:.1%}–{high:.1%}",
            f"{one.log_value / math.log(10):.2f}", f"{entry.stability:.3f}", f"{entry.two_sample.p_value:.2g}", known,
        )  # fmt: skip
        rows.append(
            [GridEntry(text, "best" if one.raised(found.alpha) and k == 7 else "") for k, text in enumerate(texts)]
        )
    return Grid("", head, rows)
