"""Charts of a study: ROC curves, accuracy of the nodes kept, seeds, ranks; the paper's figures 2 and 3."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import mean
from typing import Any

import numpy as np

from gnnsafe.bench import figures, paper
from gnnsafe.bench.curves import KEPT, ROC
from gnnsafe.bench.store import Record
from gnnsafe.bench.summary import SeedSummary, summaries
from gnnsafe.report.plotting import altair
from gnnsafe.report.ranks import Ranking

__all__ = ["backbones", "kept_accuracy", "rank_chart", "roc_curves", "seed_spread", "sweeps"]

COLOURS = ("#4e79a7", "#f28e2b", "#e15759", "#76b7b2", "#59a14f", "#edc948", "#b07aa1", "#ff9da7", "#9c755f", "#1b1f24",
           "#86bcb6", "#d37295")  # fmt: skip
MOST_LINES = len(COLOURS)  # in one panel


def roc_curves(records: Sequence[Record], methods: Sequence[str]) -> Any:
    """ID nodes accepted against OOD nodes accepted, mean of seeds and OOD graphs; a panel per setting."""
    return _curves(records, methods, "roc", ROC, "OOD nodes accepted", "ID nodes accepted", zero=True)


def kept_accuracy(records: Sequence[Record], methods: Sequence[str]) -> Any:
    """Accuracy of the classifier on the ID test nodes with the lowest scores, as more of them are kept."""
    return _curves(records, methods, "accuracy", KEPT, "ID nodes kept", "their accuracy", zero=False)


def _curves(
    records: Sequence[Record], methods: Sequence[str], name: str, grid: Any, x: str, y: str, *, zero: bool
) -> Any:
    alt = altair()
    groups: dict[tuple[str, str], list[list[float]]] = {}
    for record in records:
        if record.method in methods and record.curves is not None:
            groups.setdefault((_setting(record), record.method), []).append(getattr(record.curves, name))
    values = [
        {"setting": setting, "method": method, "x": round(float(at), 3), "y": round(float(height), 4)}
        for (setting, method), curves in groups.items()
        for at, height in zip(grid, np.mean(curves, axis=0), strict=True)
    ]
    chosen = alt.selection_point(fields=["method"], bind="legend")
    base = alt.Chart().encode(
        x=alt.X("x:Q", title=x, scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%", tickCount=5)),
        y=alt.Y("y:Q", title=y, scale=alt.Scale(zero=zero), axis=alt.Axis(format="%", tickCount=5)),
        color=_colour(methods),
        tooltip=["method:N", alt.Tooltip("x:Q", title=x, format=".0%"), alt.Tooltip("y:Q", title=y, format=".1%")],
    )
    lines = base.mark_line(strokeWidth=1.6).encode(opacity=alt.condition(chosen, alt.value(0.9), alt.value(0.08)))
    points = base.mark_circle(size=60, opacity=0)  # what the pointer meets
    panel = alt.layer(lines, points, data={"values": values}).properties(width=210, height=170)
    order = list(dict.fromkeys(value["setting"] for value in values))
    faceted = panel.facet(facet=alt.Facet("setting:N", title=None, sort=order), columns=4).add_params(chosen)
    return faceted.resolve_scale(x="independent", y="independent")  # an axis for every panel


def seed_spread(records: Sequence[Record], methods: Sequence[str]) -> Any:
    """Every seed's AUROC, the mean over its OOD graphs; a panel per setting."""
    alt = altair()
    values = [
        {"setting": _setting(summary), "method": summary.method, "AUROC": round(value, 2)}
        for summary in summaries(record for record in records if record.method in methods)
        for value in summary.values["auroc"]
    ]
    order = list(dict.fromkeys(value["setting"] for value in values))
    panel = (
        alt.Chart({"values": values})
        .mark_point(filled=True, size=45, opacity=0.65)
        .encode(
            x=alt.X("AUROC:Q", scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=5)),
            y=alt.Y("method:N", sort=list(methods), title=None),
            color=_colour(methods).legend(None),
            tooltip=["method:N", alt.Tooltip("AUROC:Q", format=".2f")],
        )
        .properties(width=190, height=16 * len(methods))
    )
    facets = panel.facet(facet=alt.Facet("setting:N", title=None, sort=order), columns=4)
    return facets.resolve_scale(x="independent")


def rank_chart(found: Ranking) -> Any:
    """Mean ranks with bars of the critical difference: methods whose bars do not overlap differ."""
    alt = altair()
    values: list[dict[str, Any]] = [
        {"method": place.method, "rank": place.rank, "from": place.rank - found.critical / 2,
         "to": place.rank + found.critical / 2}
        for place in found.places if place.rank is not None
    ]  # fmt: skip
    order = [value["method"] for value in sorted(values, key=lambda value: value["rank"])]
    base = alt.Chart({"values": values}).encode(y=alt.Y("method:N", sort=order, title=None))
    bars = base.mark_rule(strokeWidth=6, opacity=0.35, color="#3b76af").encode(
        x=alt.X("from:Q", title="mean rank ± half the critical difference (left is better)"), x2="to:Q"
    )
    points = base.mark_point(filled=True, size=70, color="#1b1f24").encode(
        x="rank:Q", tooltip=["method:N", alt.Tooltip("rank:Q", format=".2f")]
    )
    return (bars + points).properties(width=560, height=20 * len(order))


def backbones(records: Sequence[Record]) -> Any:
    """Figure 2: AUROC of five methods by backbone, a panel per shift; mean and deviation of seeds."""
    alt = altair()
    values = [
        {"shift": summary.shift, "backbone": backbone, **_spread(summary.method, summary.values["auroc"])}
        for backbone in dict.fromkeys(record.backbone for record in records)
        for summary in summaries(record for record in records if record.backbone == backbone)
    ]
    low = 10 * ((min(value["AUROC"] for value in values) - 1) // 10)
    base = alt.Chart().encode(
        x=alt.X("backbone:N", sort=list(figures.FIGURE_BACKBONES), title=None, axis=alt.Axis(labelAngle=0)),
        xOffset=alt.XOffset("method:N", sort=list(figures.COMPARED)),
        tooltip=["backbone:N", "method:N", alt.Tooltip("AUROC:Q", format=".1f"), alt.Tooltip("std:Q", format=".1f")],
    )
    bars = base.mark_bar(clip=True).encode(
        y=alt.Y("AUROC:Q", scale=alt.Scale(domain=[low, 100]), title="AUROC in percent"),
        color=_colour(figures.COMPARED),
    )
    errors = base.mark_rule(strokeWidth=1.2).encode(y="low:Q", y2="high:Q")
    panel = alt.layer(bars, errors, data={"values": values}).properties(width=280, height=200)
    return panel.facet(column=alt.Column("shift:N", title=None, sort=list(paper.PAPER_SHIFTS)))


def sweeps(records: Sequence[Record]) -> Any:
    """Figure 3: AUROC of Cora under structure shift as K and α, t_in and t_out, λ move."""
    alt = altair()
    found = {summary.method: summary.values["auroc"] for summary in summaries(records)}
    panels: dict[str, list[dict[str, Any]]] = {}
    for point in figures.sweep():
        if (seeds := found.get(point.recipe.name)) is not None:
            spread = _spread(point.recipe.name, seeds)
            panels.setdefault(point.panel, []).append({"x": point.x, "line": point.line, **spread})
    drawn = []
    for title, values in panels.items():
        over, by = _axes(title)
        scale = alt.Scale(type="log", base=2 if over == "K" else 10) if over in ("K", "λ") else alt.Scale(zero=False)
        drawn.append(
            alt.Chart({"values": values})
            .mark_line(point=True)
            .encode(
                x=alt.X("x:Q", title=over, scale=scale, axis=alt.Axis(values=sorted({value["x"] for value in values}))),
                y=alt.Y("AUROC:Q", scale=alt.Scale(zero=False), title="AUROC in percent"),
                **({"color": alt.Color("line:O", title=by, scale=alt.Scale(scheme="viridis"))} if by else {}),
                tooltip=["method:N", alt.Tooltip("AUROC:Q", format=".1f"), alt.Tooltip("std:Q", format=".1f")],
            )
            .properties(width=300, height=200, title=title)
        )
    return alt.concat(*drawn, columns=2).resolve_scale(color="independent")


def _axes(panel: str) -> tuple[str, str]:
    names = panel.partition(": ")[2].split(" and ")
    return names[0], names[1] if len(names) > 1 else ""


def _spread(method: str, seeds: Sequence[float]) -> dict[str, Any]:
    centre, spread = mean(seeds), float(np.std(seeds, ddof=1)) if len(seeds) > 1 else 0.0
    return {"method": method, "AUROC": round(centre, 3), "std": round(spread, 3),
            "low": round(centre - spread, 3), "high": round(centre + spread, 3)}  # fmt: skip


def _setting(of: Record | SeedSummary) -> str:
    return f"{of.dataset} {of.shift}"


def _colour(methods: Iterable[str]) -> Any:
    alt = altair()
    domain = list(methods)
    return alt.Color("method:N", title=None, sort=domain, scale=alt.Scale(domain=domain, range=COLOURS[: len(domain)]))
