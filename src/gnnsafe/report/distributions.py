"""The paper's Figure 1: how the energies of ID and OOD test nodes part, from Energy to GNNSafe++."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gnnsafe.bench.run import Result
from gnnsafe.errors import MissingExtraError
from gnnsafe.metrics import threshold

__all__ = ["altair", "distributions", "offline_chart"]

COLOURS = {"ID": "#3b76af", "OOD": "#e1812c"}
BINS = 60


def altair() -> Any:
    """The plotting library, or one line on how to get it."""
    try:
        import altair
        import vl_convert  # noqa: F401 - carries the JavaScript that makes a page work offline
    except ImportError as error:
        raise MissingExtraError(f"the report needs {error.name}: pip install 'gnnsafe[report]'") from error
    return altair


def distributions(results: Sequence[Result], methods: Sequence[str] = ("Energy", "GNNSafe", "GNNSafe++")) -> Any:
    """A row of panels per shift, a column per method, from the first seed: an Altair chart."""
    alt = altair()
    shifts = list(dict.fromkeys(result.shift for result in results))
    first = {(r.shift, r.method): r for r in reversed(results)}
    panels = [_panel(first[shift, method]) for shift in shifts for method in methods]
    chart = alt.concat(*panels, columns=len(methods)).configure_view(stroke=None).configure_axis(grid=False)
    return chart.configure_legend(orient="top", labelFontSize=13)


def offline_chart(chart: Any) -> tuple[str, str]:
    """The JavaScript library that draws the chart and the chart's specification, both fit for a <script>."""
    import vl_convert

    version = ".".join(altair().SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    bundle: Any = vl_convert.javascript_bundle  # its stub asks for a snippet that it does not need
    return bundle(vl_version=version), chart.to_json(indent=None).replace("</", "<\\/")


def _panel(result: Result) -> Any:
    alt = altair()
    tau = threshold(result.id_scores)
    title = alt.TitleParams(
        f"{result.method}, {result.shift} shift",
        subtitle=f"AUROC {100 * result.detection.auroc:.1f} · FPR95 {100 * result.detection.fpr95:.1f}",
    )
    bars = (
        alt.Chart(alt.Data(values=_histogram(result)))
        .mark_bar(opacity=0.6)
        .encode(
            x=alt.X("from:Q", bin="binned", title="energy (higher = more OOD)"),
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
        alt.Chart(alt.Data(values=[{"threshold": tau, "says": "95 % of ID nodes lie left of this line"}]))
        .mark_rule(strokeDash=[5, 4], strokeWidth=1.5)
        .encode(x="threshold:Q", tooltip=["says:N", alt.Tooltip("threshold:Q", format=".3f")])
    )
    return (bars + line).properties(width=260, height=150, title=title)


def _histogram(result: Result) -> list[dict[str, Any]]:
    """Shares of ID and of OOD nodes per bin; the outermost bins take in the hundredth that lies beyond them."""
    both = np.concatenate([result.id_scores, result.ood_scores])
    low, high = np.quantile(both, [0.005, 0.995])
    edges = np.linspace(low, max(high, np.nextafter(low, np.inf)), BINS + 1)
    scores = {"ID": np.clip(result.id_scores, low, high), "OOD": np.clip(result.ood_scores, low, high)}
    return [
        {"nodes": nodes, "from": float(low), "to": float(high), "share": float(count / len(values))}
        for nodes, values in scores.items()
        for low, high, count in zip(edges, edges[1:], np.histogram(values, edges)[0], strict=False)
        if count
    ]
