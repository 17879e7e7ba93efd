"""The paper's Figure 1: how the energies of ID and OOD test nodes part, from Energy to GNNSafe++."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gnnsafe.bench.curves import Curves
from gnnsafe.bench.figures import DISTRIBUTIONS
from gnnsafe.bench.run import Result
from gnnsafe.bench.store import Record
from gnnsafe.report.plotting import altair

__all__ = ["distributions"]

WIDTH = 780  # of a row of panels without their axes, so that it fits on a page
COLOURS = {"ID": "#3b76af", "OOD": "#e1812c"}


def distributions(results: Sequence[Result | Record], methods: Sequence[str] = DISTRIBUTIONS) -> Any:
    """A row of panels per data set, shift and OOD graph, a column per method, from the first seed: an Altair chart."""
    alt = altair()
    first: dict[tuple[str, ...], Result | Record] = {}
    for result in sorted(results, key=lambda result: result.seed):
        first.setdefault((result.dataset, result.shift, result.ood, result.method), result)
    several = len({key[0] for key in first}) > 1
    rows = dict.fromkeys(key[:3] for key in first)
    width = WIDTH // len(methods)
    panels = [
        [_panel(first[(*row, method)], several, width) for method in methods if (*row, method) in first] for row in rows
    ]
    return alt.vconcat(*(alt.hconcat(*row) for row in panels if row))


def _panel(result: Result | Record, several: bool, width: int) -> Any:
    alt = altair()
    curves = result.curves
    assert curves is not None  # of a run that failed
    shift = result.shift if result.ood in ("", result.shift) else f"{result.shift} {result.ood}"
    detected = result.detection
    title = alt.TitleParams(
        f"{result.method}, {f'{result.dataset} ' if several else ''}{shift} shift",
        subtitle=f"AUROC {100 * detected.auroc:.1f} · FPR95 {100 * detected.fpr95:.1f}",
    )
    kind = "energy" if result.method in DISTRIBUTIONS else "score"
    bars = (
        alt.Chart({"values": _bars(curves)})
        .mark_bar(opacity=0.6)
        .encode(
            x=alt.X("from:Q", bin="binned", title=f"{kind} (higher = more OOD)"),
            x2="to:Q",
            y=alt.Y("share:Q", title="share of nodes", stack=None, axis=alt.Axis(format="%", tickCount=4)),
            color=alt.Color("nodes:N", title=None, scale=alt.Scale(domain=[*COLOURS], range=[*COLOURS.values()])),
            tooltip=[
                "nodes:N",
                alt.Tooltip("from:Q", format=".2f"),
                alt.Tooltip("to:Q", format=".2f"),
                alt.Tooltip("share:Q", format=".2%"),
            ],
        )
    )
    line = (
        alt.Chart({"values": [{"threshold": curves.threshold, "says": "95 % of ID nodes lie left of this line"}]})
        .mark_rule(strokeDash=[5, 4], strokeWidth=1.5)
        .encode(x="threshold:Q", tooltip=["says:N", alt.Tooltip("threshold:Q", format=".3f")])
    )
    return (bars + line).properties(width=width, height=150, title=title)


def _bars(curves: Curves) -> list[dict[str, Any]]:
    low, high = curves.span
    width = (high - low) / len(curves.id_shares)
    return [
        {"nodes": nodes, "from": low + number * width, "to": low + (number + 1) * width, "share": share}
        for nodes, shares in (("ID", curves.id_shares), ("OOD", curves.ood_shares))
        for number, share in enumerate(shares)
        if share
    ]
