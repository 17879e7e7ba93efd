"""Draw the pictures of the pages into docs/pictures, each for light and for dark pages: python docs/build/pictures.py.

All figures in them are computed here, on Cora as the extra `cora` has it; a few minutes on one core.
"""

from __future__ import annotations

import sys
from pathlib import Path

import altair as alt
import numpy as np
import torch
from torch_geometric.nn import GraphSAGE

import gnnsafe
from gnnsafe.methods import Energy, Propagated
from gnnsafe.report.plotting import drawn

FOLDER = Path(__file__).parents[1] / "pictures"
BLUE, ORANGE = "#3b76af", "#e1812c"
INK = {"": "#333333", "-dark": "#d5d7de"}


def scores() -> alt.Chart:
    """Scores of known and of changed papers by the quickstart's detector."""
    cora = gnnsafe.load_benchmark("cora", shift="feature")
    data, changed = cora.id, cora.ood["feature"]
    detector = gnnsafe.Detector(_graphsage(data)).fit(data)
    known, unknown = (detector.score(graph)[data.test_mask] for graph in (data, changed))
    kinds = ("known papers (ID)", "changed papers (OOD)")
    rows = [
        {"score": value, "nodes": kind}
        for kind, values in zip(kinds, (known, unknown), strict=True)
        for value in values.tolist()
    ]
    axis = alt.Axis(values=list(range(0, 12, 2)), grid=False)
    bars = _chart(rows).mark_bar(opacity=0.75).encode(
        x=alt.X("score:Q", bin=alt.Bin(step=0.25), title="score (higher = more out-of-distribution)", axis=axis),
        y=alt.Y("count()", stack=None, title="papers"),
        color=alt.Color("nodes:N", title=None, sort=None, scale=alt.Scale(domain=kinds, range=[BLUE, ORANGE])),
    )  # fmt: skip
    return bars.properties(width=620, height=180)


def propagation() -> alt.Chart:
    """Scores of two groups of five nodes, of which one node each is mistaken, after 0, 1 and 2 steps."""
    angles = np.linspace(0, 2 * np.pi, 5, endpoint=False) + np.pi / 10
    group = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    places = np.concatenate([group + np.array([-1.7, 0]), group + np.array([1.7, 0])])
    links = [
        (base + i, base + j) for base in (0, 5) for i, j in ((0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 2), (0, 3))
    ]
    links.append((0, 7))  # between the groups
    edge_index = torch.tensor(links + [(j, i) for i, j in links]).T
    before = torch.tensor([7.0, 2.0, 1.0, 2.0, 1.0, 2.0, 8.0, 9.0, 8.0, 9.0])  # nodes 0 and 5 are mistaken
    panels = [_panel(places, links, gnnsafe.propagate(before, edge_index, steps=steps), steps) for steps in (0, 1, 2)]
    return alt.hconcat(*panels, spacing=24)


def _panel(places: np.ndarray, links: list[tuple[int, int]], values: torch.Tensor, steps: int) -> alt.Chart:
    kinds = ["in-distribution"] * 5 + ["out-of-distribution"] * 5
    nodes = [
        {"x": x, "y": y, "score": score, "text": f"{score:.1f}", "kind": kind}
        for (x, y), score, kind in zip(places.tolist(), values.tolist(), kinds, strict=True)
    ]
    ends = [
        {"x": places[i, 0], "y": places[i, 1], "x2": places[j, 0], "y2": places[j, 1]} for i, j in links
    ]  # fmt: skip
    x, y = (
        alt.X("x:Q", axis=None, scale=alt.Scale(domain=[-3, 3])),
        alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[-1.4, 1.4])),
    )
    lines = _chart(ends).mark_rule(opacity=0.5).encode(x=x, y=y, x2="x2:Q", y2="y2:Q")
    colour = alt.Color("score:Q", scale=alt.Scale(domain=[1, 5, 9], range=[BLUE, "#d9d9d9", ORANGE]), title="score")
    shape = alt.Shape("kind:N", title=None, scale=alt.Scale(range=["circle", "square"]))
    discs = _chart(nodes).mark_point(filled=True, size=620, opacity=1).encode(x=x, y=y, color=colour, shape=shape)
    texts = _chart(nodes).mark_text(color="#111111", fontSize=11).encode(x=x, y=y, text="text:N")
    title = "scores as they are" if steps == 0 else f"after {steps} step{'s' * (steps > 1)}"
    return (lines + discs + texts).properties(width=270, height=150, title=title)


def regimes() -> alt.Chart:
    """AUROC of energy propagated by K steps, where the whole graph shifts and where OOD nodes stand among ID nodes."""
    shifts = {
        "feature": "whole graph: blended features",
        "structure": "whole graph: redrawn edges",
        "planted-feature": "single nodes among ID nodes",
    }
    rows = []
    for shift, text in shifts.items():
        for seed in range(5):
            rows += [{**row, "shift": text} for row in _by_steps(shift, seed)]
    mean = _chart(rows).encode(
        x=alt.X("steps:Q", title="steps of propagation, K", axis=alt.Axis(values=[0, 1, 2, 4, 8, 16])),
        color=alt.Color("shift:N", title=None, sort=None, scale=alt.Scale(range=[BLUE, "#54a24b", ORANGE]),
                        legend=alt.Legend(symbolOpacity=1)),
    )  # fmt: skip
    y = alt.Y("mean(auroc):Q", title="AUROC, %", scale=alt.Scale(zero=False))
    band = mean.mark_errorband(extent="stdev", opacity=0.2).encode(y=alt.Y("auroc:Q", title="AUROC, %"))
    return (band + mean.mark_line(point=True).encode(y=y)).properties(width=520, height=220)


def _by_steps(shift: str, seed: int) -> list[dict[str, float]]:
    benchmark = gnnsafe.load_benchmark("cora", shift=shift, seed=seed)
    model = gnnsafe.models.GCN(benchmark.id.num_features, 64, benchmark.num_classes)
    gnnsafe.train(model, benchmark.id, objective=gnnsafe.CrossEntropy(), seed=seed)
    (changed,) = benchmark.ood.values()
    rows = []
    for steps in (0, 1, 2, 4, 8, 16):
        detector = gnnsafe.Detector(model, Propagated(Energy(), steps=steps)).fit(benchmark.id)
        known = detector.score(benchmark.id)[benchmark.id.test_mask]
        auroc = gnnsafe.metrics.detection(known, detector.score(changed)[changed.mask]).auroc
        rows.append({"steps": steps, "auroc": 100 * auroc})
    return rows


def calibration() -> alt.Chart:
    """Of ID test nodes the share that is flagged at each stated rate, and their p-values beside those of OOD nodes."""
    rows, levels = [], [level / 100 for level in (1, *range(2, 31, 2))]
    for seed in range(20):
        cora = gnnsafe.load_benchmark("cora", shift="feature", seed=seed, split="random")
        data, changed = cora.id, cora.ood["feature"]
        detector = gnnsafe.Detector(_graphsage(data), "gnnsafe").fit(data).calibrate(data)
        p = detector.p_values(data)[data.test_mask]
        rows += [{"stated": 100 * level, "observed": 100 * float((p <= level).double().mean())} for level in levels]
    rate = _chart(rows).encode(x=alt.X("stated:Q", title="stated false-alarm rate, %"))
    spread = _quantiles(rows)
    area = (
        _chart(spread)
        .mark_area(opacity=0.25, color=BLUE)
        .encode(x="stated:Q", y=alt.Y("low:Q", title="observed, %"), y2="high:Q")
    )
    line = rate.mark_line(color=BLUE).encode(y=alt.Y("mean(observed):Q", title="observed, %"))
    ideal = _chart([{"x": 0, "y": 0}, {"x": 30, "y": 30}]).mark_line(strokeDash=[4, 3], size=1, color="#888888")
    ideal = ideal.encode(x="x:Q", y="y:Q")
    left = (area + ideal + line).properties(width=250, height=220, title="Do stated rates hold?")
    kinds = ("ID test nodes", "OOD nodes")
    values = [
        {"p": value, "nodes": kind}
        for kind, part in zip(kinds, (p, detector.p_values(changed)[data.test_mask]), strict=True)
        for value in part.tolist()
    ]
    bars = _chart(values).mark_bar(opacity=0.7).encode(
        x=alt.X("p:Q", bin=alt.Bin(step=0.05), title="p-value"),
        y=alt.Y("count()", stack=None, title="nodes"),
        color=alt.Color("nodes:N", title=None, sort=None, scale=alt.Scale(domain=kinds, range=[BLUE, ORANGE])),
    )  # fmt: skip
    return alt.hconcat(left, bars.properties(width=300, height=220, title="p-values, one split"), spacing=40)


def _quantiles(rows: list[dict[str, float]]) -> list[dict[str, float]]:
    stated = sorted({row["stated"] for row in rows})
    found = {level: [row["observed"] for row in rows if row["stated"] == level] for level in stated}
    return [
        {"stated": level, "low": float(np.quantile(some, 0.1)), "high": float(np.quantile(some, 0.9))}
        for level, some in found.items()
    ]


def _graphsage(data: object) -> GraphSAGE:
    """The quickstart's model, trained as it is there."""
    torch.manual_seed(0)
    model = GraphSAGE(data.num_features, 64, num_layers=2, out_channels=7, dropout=0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(50):
        model.train()
        optimizer.zero_grad()
        logits = model(data.x, data.edge_index)
        torch.nn.functional.cross_entropy(logits[data.train_mask], data.y[data.train_mask]).backward()
        optimizer.step()
    return model


def _chart(rows: list[dict]) -> alt.Chart:
    return alt.Chart(alt.Data(values=rows))


def _specification(chart: alt.Chart, ink: str) -> dict:
    """What draws it in that colour, on whatever the page's background is."""
    chart = chart.configure(background="transparent", font="Helvetica, Arial, sans-serif").configure_view(stroke=None)
    chart = chart.configure_axis(
        labelColor=ink, titleColor=ink, tickColor=ink, domainColor=ink, gridColor=ink, gridOpacity=0.15,
        titleFontWeight="normal", labelFontSize=11, titleFontSize=12,
    )  # fmt: skip
    chart = chart.configure_legend(
        labelColor=ink, titleColor=ink, symbolFillColor=ink, symbolStrokeColor=ink, orient="top", labelFontSize=12,
        titleFontWeight="normal", columnPadding=24, labelLimit=0,
    )  # fmt: skip
    chart = chart.configure_title(color=ink, fontWeight="normal", fontSize=13)
    chart = chart.configure_rule(color=ink).configure_text(color=ink)
    return chart.to_dict()


def main() -> None:
    """Draw all pictures, or those that are named."""
    pictures = {function.__name__: function for function in (propagation, scores, regimes, calibration)}
    for name in sys.argv[1:] or pictures:
        chart = pictures[name]()
        for theme, ink in INK.items():
            (FOLDER / f"{name}{theme}.svg").write_bytes(drawn(_specification(chart, ink))[".svg"]())
        print(f"docs/pictures/{name}.svg", flush=True)


if __name__ == "__main__":
    main()
