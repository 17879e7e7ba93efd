"""A node and those around it, coloured by their scores."""

from __future__ import annotations

import math
import textwrap
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
LABELLED = 40  # with more nodes their names would hide the edges
LETTERS = 10  # of a name, which lies between two rings
LETTER = 6.5  # pixels, of a name
TITLE = 56  # letters in a line: browsers' letters are wider than those that Vega measures
LEGEND = 18  # pixels above the picture
SIZE, ALONE = 460, 60  # of the picture in pixels; without neighbours it is as wide, for the title, and low
EDGE = 1.08  # where the picture ends: the outermost ring has radius 1
SMALLEST, LARGEST = 120, 900  # area of a disc in pixels
GREY = "#d9d9d9"

Nodes = Sequence[Mapping[str, Any]]
Edges = Sequence[tuple[int, int]]


def write_ego_graph(path: Path, nodes: Nodes, edges: Edges, *, title: str, **about: Any) -> None:
    """The picture, as PNG, SVG or an HTML page that needs no network, by the ending of `path`."""
    require(path.suffix.lower() in ENDINGS, "path", f"end in {', '.join(ENDINGS)}", f"'{path}'")
    spec = specification(ego_graph(nodes, edges, title=title, **about))
    page = Document(title, (), [Section("", chart=spec)])
    content = as_html(page).encode() if path.suffix.lower() == ".html" else drawn(spec)[path.suffix.lower()]()
    with replacing(path) as part:
        part.write_bytes(content)


def ego_graph(
    nodes: Nodes,
    edges: Edges,
    *,
    title: str,
    boundary: float | None = None,
    around: int | None = None,
    note: str = "",
) -> Any:
    """An Altair chart: the first node in the middle, others on rings by hops; size is weight, colour is score.

    Colours turn from blue to orange at the `boundary`, without one at the middle of the scores; the legend has those
    that are there. `around` is how many nodes there are around the first, itself counted, drawn or not. A
    `note` stands below the title.
    """
    alt = altair()
    size = SIZE if len(nodes) > 1 else ALONE
    place = places(nodes, edges)
    shown = {"axis": None, "scale": alt.Scale(domain=[-EDGE, EDGE])}
    position = {"x": alt.X("x:Q", **shown), "y": alt.Y("y:Q", **shown)}
    faint = alt.value(max(0.15, min(1.0, 150 / max(len(edges), 1))))  # many edges would hide each other
    turned = {"angle": alt.Angle("angle:Q", scale=None), "size": alt.value(40), "color": alt.value("#8b949e")}
    rows = [_row(node, place, nodes, size) for node in nodes]
    named = rows if len(rows) <= LABELLED else rows[:1]
    beyond = max(0.0, *(row["top"] - EDGE for row in named)) * size / (2 * EDGE)
    circles = alt.Chart({"values": rows}).encode(
        **position,
        color=_colour(alt, [node["score"] for node in nodes], boundary, LEGEND + beyond),
        size=alt.Size("area:Q", scale=None),
        tooltip=["name:N", "hop:Q", alt.Tooltip("score:Q", format=".4f"), alt.Tooltip("weight:Q", format=".2%")],
    )
    names = alt.Chart({"values": named}).encode(
        x=alt.X("label_x:Q", **shown),
        y=alt.Y("label_y:Q", **shown),
        text="label:N",
        angle=alt.Angle("turn:Q", scale=None),
    )
    words = {"fontSize": 10, "baseline": "middle", "align": alt.expr("datum.align")}
    layers = [
        alt.Chart({"values": _lines(edges, place)}).mark_rule(color="#c4c8ce").encode(
            **position, x2="x2:Q", y2="y2:Q", opacity=faint
        ),
        alt.Chart({"values": _arrows(edges, place)}).mark_point(shape="triangle", filled=True).encode(
            **position, **turned
        ),
        circles.mark_circle(opacity=1, stroke="white", strokeWidth=1),
        circles.transform_filter(alt.datum.hop == 0).mark_circle(opacity=1, stroke="#1b1f24", strokeWidth=2.5),
        names.mark_text(**words, stroke="white", strokeWidth=3, strokeJoin="round"),  # readable on edges
        names.mark_text(**words, color="#1b1f24"),
    ]  # fmt: skip
    about = alt.TitleParams(
        textwrap.wrap(title, TITLE), subtitle=[*_subtitle(nodes, boundary, around), *filter(None, [note])],
        anchor="start",
    )  # fmt: skip
    return alt.layer(*layers).properties(width=SIZE, height=size, title=about, padding=12)


def _row(node: Mapping[str, Any], place: Mapping[int, tuple[float, float]], nodes: Nodes, size: int) -> dict[str, Any]:
    """A disc, and its name beside it: along the ray from the middle, that of the middle itself below it."""
    x, y = place[node["node"]]
    name = str(node.get("name", node["node"]))
    heaviest = max((other["weight"] for other in nodes), default=0.0) or 1.0
    area = SMALLEST + (LARGEST - SMALLEST) * math.sqrt(max(node["weight"], 0.0) / heaviest)
    apart = (math.sqrt(area / math.pi) + 4) * 2 * EDGE / size
    angle = math.atan2(y, x) if (x, y) != (0.0, 0.0) else -math.pi / 2
    left = math.cos(angle) < -1e-9
    alone = (x, y) == (0.0, 0.0)
    label = name if len(name) <= LETTERS or alone else f"{name[: LETTERS - 1]}…"
    return {
        **node,
        "name": name,
        "label": label,
        "x": x,
        "y": y,
        "area": area,
        "label_x": x + apart * math.cos(angle),
        "label_y": y + (apart + 8 * alone / size) * math.sin(angle),
        "turn": 0.0 if alone else -math.degrees(angle) + 180 * left,  # as Vega turns: clockwise
        "top": y + (apart + LETTER * len(label) * 2 * EDGE / size) * math.sin(angle),  # where the name ends
        "align": "center" if alone else "right" if left else "left",
    }


def _colour(alt: Any, scores: Sequence[float], boundary: float | None, offset: float) -> Any:
    """Blue below the boundary, grey at it, orange above; the scale ends where the scores do, the legend is above."""
    low, high = min(scores), max(scores)
    middle = (low + high) / 2 if boundary is None else boundary
    furthest = max(abs(low - middle), abs(high - middle)) or 1.0

    def colour(score: float) -> str:
        end = COLOURS["OOD" if score > middle else "ID"]
        return _mixed(GREY, end, abs(score - middle) / furthest)

    if low == high:
        return alt.value(colour(low))
    stops = [low, *([middle] if low < middle < high else []), high]
    scale = alt.Scale(domain=stops, range=[colour(stop) for stop in stops])
    legend = alt.Legend(offset=offset)  # above the names, too
    return alt.Color("score:Q", title=["score", "(higher = more OOD)"], scale=scale, legend=legend)


def _mixed(start: str, end: str, share: float) -> str:
    parts = [(int(start[k : k + 2], 16), int(end[k : k + 2], 16)) for k in (1, 3, 5)]
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in parts)


def _subtitle(nodes: Nodes, boundary: float | None, around: int | None) -> list[str]:
    """What is to be seen, and what is not."""
    lines = []
    if len(nodes) == 1:
        lines.append("No node points to it.")
    else:
        lines.append("The larger a node, the more it counts in the score of the one in the middle.")
    if around is not None and around > len(nodes):
        lines.append(f"{len(nodes) - 1} of the {around - 1:,} nodes around it are drawn: the nearest that count most.")
    if boundary is not None:
        above = sum(node["score"] > boundary for node in nodes)
        who = "Orange nodes score" if above else "None scores"
        lines.append(f"{who} above {boundary:.4g}, as one calibration node in twenty does.")
    return lines


def places(nodes: Nodes, edges: Edges) -> dict[int, tuple[float, float]]:
    """The first node in the middle, the others on one ring per hop, in the order of their out-neighbours."""
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


def _lines(edges: Edges, place: Mapping[int, tuple[float, float]]) -> list[dict[str, float]]:
    """A line for each edge; both ways are one."""
    both = set(edges)
    once = [(a, b) for a, b in edges if a < b or (b, a) not in both]
    return [{"x": place[a][0], "y": place[a][1], "x2": place[b][0], "y2": place[b][1]} for a, b in once]


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
