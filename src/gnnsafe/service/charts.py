"""Charts drawn on the server, as SVG that a strict content policy lets through: no script, no style but classes.

Vega, which draws the reports, needs a policy that allows evaluated code; here nothing runs in the browser to draw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from gnnsafe.display import shown

__all__ = ["Line", "bars", "lines", "node_map", "stacked"]

WIDTH, HEIGHT = 640, 220
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 12, 26
SHADES = 8  # colours of classes in the style sheet
TICKS = 4


@dataclass(frozen=True)
class Line:
    """What is drawn over time: values, where they are expected, and a limit."""

    values: Sequence[float]
    labels: Sequence[str]
    """One per value: what it is the value of, such as a time and a name."""
    band: Sequence[tuple[float, float]] = ()
    limit: float | None = None
    limit_label: str = ""
    unit: str = ""


def lines(line: Line, *, title: str, words: str) -> Markup:
    """Values over time as a line with dots, a band behind it and a limit across it."""
    every = [*line.values, *(end for pair in line.band for end in pair), *([] if line.limit is None else [line.limit])]
    low, high = min([0.0, *every]), max([*every, 1e-9])
    high += 0.05 * (high - low)
    xs = _places(len(line.values))
    ys = [_height(value, low, high) for value in line.values]
    parts = _axis(low, high, line.unit)
    if line.band:
        upper = [f"{x:.1f},{_height(pair[1], low, high):.1f}" for x, pair in zip(xs, line.band, strict=True)]
        lower = [f"{x:.1f},{_height(pair[0], low, high):.1f}" for x, pair in zip(xs, line.band, strict=True)]
        parts.append(Markup('<polygon class="band" points="{}"/>').format(" ".join(upper + lower[::-1])))
    if line.limit is not None:
        y = _height(line.limit, low, high)
        parts.append(
            Markup('<line class="limit" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>').format(LEFT, WIDTH - RIGHT, y, y)
        )
        parts.append(
            Markup('<text class="limit-label" x="{}" y="{:.1f}">{}</text>').format(LEFT + 4, y - 4, line.limit_label)
        )
    parts.append(
        Markup('<polyline class="line" points="{}"/>').format(
            " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True))
        )
    )
    for x, y, value, label in zip(xs, ys, line.values, line.labels, strict=True):
        dot = Markup('<circle class="dot" cx="{:.1f}" cy="{:.1f}" r="3.5"><title>{}: {:.4g}{}</title></circle>')
        parts.append(dot.format(x, y, shown(label), value, line.unit))
    parts += _ends(line.labels)
    return _svg(parts, title, words)


def bars(counts: Sequence[int], *, title: str, words: str, expected: float | None = None) -> Markup:
    """Counts of p-values from 0 to 1, and how many are expected in each bar."""
    high = 1.05 * max([*counts, expected or 0, 1])
    parts, width = _axis(0, high, ""), (WIDTH - LEFT - RIGHT) / max(len(counts), 1)
    for place, count in enumerate(counts):
        y, x = _height(count, 0, high), LEFT + place * width
        bar = Markup(
            '<rect class="bar{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"><title>{}</title></rect>'
        )
        label = f"p from {place / len(counts):.2f} to {(place + 1) / len(counts):.2f}: {count:,} nodes"
        parts.append(bar.format(" rare" if place == 0 else "", x + 1, y, width - 2, HEIGHT - BOTTOM - y, label))
    if expected is not None:
        y = _height(expected, 0, high)
        parts.append(
            Markup('<line class="limit" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>').format(LEFT, WIDTH - RIGHT, y, y)
        )
        parts.append(
            Markup('<text class="limit-label" x="{}" y="{:.1f}">expected of ID nodes</text>').format(LEFT + 4, y - 4)
        )
    parts += _ends(["p = 0", "p = 1"])
    return _svg(parts, title, words)


def stacked(mixes: Sequence[Mapping[str, int]], labels: Sequence[str], *, title: str, words: str) -> Markup:
    """Shares of classes over time, a bar for each time."""
    names = list(dict.fromkeys(name for mix in mixes for name in mix))
    width = (WIDTH - LEFT - RIGHT) / max(len(mixes), 1)
    parts = _axis(0, 100, " %")
    for place, (mix, label) in enumerate(zip(mixes, labels, strict=True)):
        total, below = sum(mix.values()) or 1, 0.0
        for number, name in enumerate(names):
            share = 100 * mix.get(name, 0) / total
            top, bottom = _height(below + share, 0, 100), _height(below, 0, 100)
            below += share
            bar = Markup(
                '<rect class="class-{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"><title>{}</title></rect>'
            )
            text = f"{shown(label)}: {shown(name)} {share:.1f} %"
            parts.append(
                bar.format(number % SHADES, LEFT + place * width, top, max(width - 1, 0.5), bottom - top, text)
            )
    parts += _ends(labels)
    return _svg(parts, title, words) + _legend(names)


def node_map(
    places: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]], p_values: Sequence[float],
    names: Sequence[str], flags: Sequence[bool], *, title: str, words: str,
) -> Markup:  # fmt: skip
    """A picture of a sample of the graph: nodes in the unit square, coloured by p-value, each a link to its page."""
    size, margin = 640, 10

    def at(place: tuple[float, float]) -> tuple[float, float]:
        return margin + place[0] * (size - 2 * margin), margin + place[1] * (size - 2 * margin)

    parts = []
    for a, b in edges:
        ends = (*at(places[a]), *at(places[b]))
        parts.append(Markup('<line class="edge" x1="{:.0f}" y1="{:.0f}" x2="{:.0f}" y2="{:.0f}"/>').format(*ends))
    order = sorted(range(len(places)), key=lambda one: -p_values[one])  # the rare on top
    for one in order:
        x, y = at(places[one])
        circle = Markup('<circle class="p-{}" cx="{:.1f}" cy="{:.1f}" r="{}"><title>{}: p = {:.3g}</title></circle>')
        radius = 6 if flags[one] else 4
        parts.append(circle.format(_shade(p_values[one]), x, y, radius, shown(names[one]), p_values[one]))
    return _svg(parts, title, words, width=size, height=size)


def _shade(p: float) -> int:
    """0 for the rarest, 4 for the usual."""
    return next((shade for shade, bound in enumerate((0.01, 0.05, 0.2, 0.5)) if p <= bound), 4)


def _legend(names: Sequence[str]) -> Markup:
    items = [
        Markup(
            '<li><svg width="12" height="12" aria-hidden="true"><rect class="class-{}" width="12" height="12"/></svg>'
            " {}</li>"
        ).format(number % SHADES, shown(name))
        for number, name in enumerate(names)
    ]
    return Markup('<ul class="legend">') + Markup("").join(items) + Markup("</ul>")


def _places(count: int) -> list[float]:
    width = WIDTH - LEFT - RIGHT
    return [LEFT + width * (0.5 if count == 1 else place / (count - 1)) for place in range(count)]


def _height(value: float, low: float, high: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - (value - low) / (high - low))


def _axis(low: float, high: float, unit: str) -> list[Markup]:
    parts = []
    for tick in range(TICKS + 1):
        value = low + (high - low) * tick / TICKS
        y = _height(value, low, high)
        parts.append(
            Markup('<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>').format(LEFT, WIDTH - RIGHT, y, y)
        )
        parts.append(
            Markup('<text class="tick" x="{}" y="{:.1f}" text-anchor="end">{:.3g}{}</text>').format(
                LEFT - 5, y + 4, value, unit
            )
        )
    return parts


def _ends(labels: Sequence[str]) -> list[Markup]:
    if not labels:
        return []
    text = Markup('<text class="tick" x="{}" y="{}" text-anchor="{}">{}</text>')
    y = HEIGHT - 8
    ends = [text.format(LEFT, y, "start", shown(labels[0])[:24])]
    return ends if len(labels) == 1 else [*ends, text.format(WIDTH - RIGHT, y, "end", shown(labels[-1])[:24])]


def _svg(parts: Sequence[Markup], title: str, words: str, *, width: int = WIDTH, height: int = HEIGHT) -> Markup:
    head = Markup('<svg class="chart" role="img" viewBox="0 0 {} {}" aria-label="{}">').format(
        width, height, shown(f"{title}. {words}")
    )
    return head + Markup("<title>{}</title>").format(escape(shown(title))) + Markup("").join(parts) + Markup("</svg>")
