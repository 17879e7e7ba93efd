"""A node and those around it, coloured by their scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gnnsafe.errors import require
from gnnsafe.files import replacing
from gnnsafe.report.distributions import COLOURS
from gnnsafe.report.document import Document, Section, as_html
from gnnsafe.report.plotting import altair, drawn, specification

__all__ = ["ego_graph", "places", "write_ego_graph"]

ENDINGS = (".png", ".svg", ".html")
LABELLED = 40  # with more nodes their numbers would hide them
SIZE = 460

Nodes = Sequence[Mapping[str, Any]]
Edges = Sequence[tuple[int, int]]


def write_ego_graph(path: Path, nodes: Nodes, edges: Edges, *, title: str, boundary: float | None) -> None:
    """The picture, as PNG, SVG or an HTML page that needs no network, by the ending of `path`."""
    require(path.suffix.lower() in ENDINGS, "path", f"end in {', '.join(ENDINGS)}", f"'{path}'")
    spec = specification(ego_graph(nodes, edges, title=title, boundary=boundary))
    page = Document(title, (), [Section("", chart=spec)])
    content = as_html(page).encode() if path.suffix.lower() == ".html" else drawn(spec)[path.suffix.lower()]()
    with replacing(path) as part:
        part.write_bytes(content)


def ego_graph(nodes: Nodes, edges: Edges, *, title: str, boundary: float | None = None) -> Any:
    """An Altair chart: the first node in the middle, others on rings by hops; size is weight, colour is score.

    Colours turn from blue to orange at the `boundary`, without one at the middle of the scores.
    """
    alt = altair()
    place = places(nodes, edges)
    rows = [{"name": node["node"], **node, "x": place[node["node"]][0], "y": place[node["node"]][1]} for node in nodes]
    both = set(edges)
    lines = [
        {"x": place[a][0], "y": place[a][1], "x2": place[b][0], "y2": place[b][1]}
        for a, b in edges
        if a < b or (b, a) not in both
    ]
    scores = [node["score"] for node in nodes]
    low, high = min(scores), max(scores)
    middle = (low + high) / 2 if boundary is None else min(max(boundary, low), high)
    position = {
        "x": alt.X("x:Q", axis=None, scale=alt.Scale(domain=[-1.08, 1.08])),
        "y": alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[-1.08, 1.08])),
    }
    scale = alt.Scale(domain=[low, middle, high], range=[COLOURS["ID"], "#d9d9d9", COLOURS["OOD"]])
    edge_layer = alt.Chart({"values": lines}).mark_rule(color="#c4c8ce").encode(**position, x2="x2:Q", y2="y2:Q")
    arrows = alt.Chart({"values": _arrows(edges, place)}).mark_point(shape="triangle", filled=True)
    turned = {"angle": alt.Angle("angle:Q", scale=None), "size": alt.value(40), "color": alt.value("#8b949e")}
    arrow_layer = arrows.encode(**position, **turned)
    circles = alt.Chart({"values": rows}).encode(
        **position,
        color=alt.Color("score:Q", title=["score", "(higher = more OOD)"], scale=scale),
        size=alt.Size("weight:Q", title="weight", scale=alt.Scale(range=[120, 900], type="sqrt"), legend=None),
        tooltip=["name:N", "hop:Q", alt.Tooltip("score:Q", format=".4f"), alt.Tooltip("weight:Q", format=".2%")],
    )
    own = alt.datum.hop == 0
    node_layer = circles.mark_circle(opacity=1, stroke="white", strokeWidth=1)
    own_layer = circles.transform_filter(own).mark_circle(opacity=1, stroke="#1b1f24", strokeWidth=2.5)
    shown = alt.Chart({"values": rows if len(rows) <= LABELLED else rows[:1]})
    names = shown.mark_text(fontSize=10, color="#1b1f24").encode(**position, text="name:N")
    subtitle = ["The larger a node, the more it counts in the score of the one with the black rim."]
    if boundary is not None:
        subtitle.append(f"Orange nodes score above {boundary:.4g}, as one calibration node in twenty does.")
    return alt.layer(edge_layer, arrow_layer, node_layer, own_layer, names).properties(
        width=SIZE, height=SIZE, title=alt.TitleParams(title, subtitle=subtitle, anchor="start")
    )


def places(nodes: Nodes, edges: Edges) -> dict[int, tuple[float, float]]:
    """The first node in the middle, the others on one ring per hop, in the order of those whom they point to."""
    middle = nodes[0]["node"]
    angle = {middle: 0.0}
    place = {middle: (0.0, 0.0)}
    points_to: dict[int, list[int]] = {}
    for a, b in edges:
        points_to.setdefault(a, []).append(b)
    rings = max((node["hop"] for node in nodes), default=0)
    for hop in range(1, rings + 1):
        ring = [node["node"] for node in nodes if node["hop"] == hop]
        inner = {i: min((angle[j] for j in points_to.get(i, ()) if j in angle), default=0.0) for i in ring}
        ordered = sorted(ring, key=lambda i: (inner[i], i))
        for k, i in enumerate(ordered):
            angle[i] = 2 * math.pi * (k + hop / 4) / len(ordered)  # turned a little, so that rings do not line up
            place[i] = (math.cos(angle[i]) * hop / rings, math.sin(angle[i]) * hop / rings)
    return place


def _arrows(edges: Edges, place: Mapping[int, tuple[float, float]]) -> list[dict[str, float]]:
    """A triangle two thirds along each edge that has no other way round, turned as Vega turns: clockwise from up."""
    both = set(edges)
    arrows = []
    for a, b in edges:
        if (b, a) not in both:
            (x, y), (x2, y2) = place[a], place[b]
            angle = math.degrees(math.atan2(x2 - x, y2 - y))
            arrows.append({"x": x + 0.6 * (x2 - x), "y": y + 0.6 * (y2 - y), "angle": angle})
    return arrows
