"""Charts drawn on the server, as SVG that a strict content policy lets through: no script, no style but classes.

Vega, which draws the reports, needs a policy that allows evaluated code; here nothing runs in the browser to draw.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from gnnsafe.display import shown

__all__ = ["Dot", "Line", "bars", "lines", "node_map", "stacked"]

WIDTH, HEIGHT = 640, 220
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 12, 26
SHADES = 8  # colours of classes in the style sheet
TICKS = 4
SIZE, MARGIN = 640, 10  # of a map


@dataclass(frozen=True)
class Line:
    """What is drawn over time: values, where they are expected, and a limit."""

    values: Sequence[float]
    labels: Sequence[str]
    """One per value: what it is the value of, such as a time and a name."""
    band: Sequence[tuple[float, float]] = ()
    limit: float | None = None
    unit: str = ""


@dataclass(frozen=True)
class Dot:
    """A node of a map, in the unit square."""

    x: float
    y: float
    name: str
    p_value: float
    flag: bool

    @property
    def at(self) -> tuple[str, str]:
        """Where it is drawn."""
        across = SIZE - 2 * MARGIN
        return f"{MARGIN + self.x * across:.1f}", f"{MARGIN + self.y * across:.1f}"

    @property
    def shade(self) -> int:
        """0 for the rarest, 4 for the usual."""
        return next((shade for shade, bound in enumerate((0.01, 0.05, 0.2, 0.5)) if self.p_value <= bound), 4)


def lines(line: Line, ends: Sequence[str], *, title: str, words: str) -> Markup:
    """Values over time as a line with dots, a band behind it and a limit across it; `ends` stand below."""
    every = [*line.values, *(end for pair in line.band for end in pair), *([] if line.limit is None else [line.limit])]
    low, high = min([0.0, *every]), max([*every, 1e-9])
    high += 0.05 * (high - low)
    xs, ys = _places(len(line.values)), [_height(value, low, high) for value in line.values]
    parts = _axis(low, high, line.unit)
    if line.band:
        wide = [(x + side, pair) for x, pair in zip(xs, line.band, strict=True) for side in _sides(len(xs))]
        upper = [(x, _height(pair[1], low, high)) for x, pair in wide]
        lower = [(x, _height(pair[0], low, high)) for x, pair in wide]
        parts.append(_tag("polygon", cls="band", points=_points(upper + lower[::-1])))
    if line.limit is not None:
        parts.append(_across("limit", _height(line.limit, low, high)))
    parts.append(_tag("polyline", cls="line", points=_points(list(zip(xs, ys, strict=True)))))
    for x, y, value, label in zip(xs, ys, line.values, line.labels, strict=True):
        told = _tag("title", f"{label}: {value:.4g}{line.unit}")
        parts.append(_tag("circle", told, cls="dot", cx=f"{x:.1f}", cy=f"{y:.1f}", r="3.5"))
    return _svg([*parts, *_ends(ends)], title, words)


def bars(counts: Sequence[int], *, title: str, words: str, expected: float) -> Markup:
    """Counts of p-values from 0 to 1, and how many are expected in each bar."""
    high = 1.05 * max([*counts, expected, 1])
    parts, width = _axis(0, high, ""), (WIDTH - LEFT - RIGHT) / max(len(counts), 1)
    for place, count in enumerate(counts):
        label = f"p from {place / len(counts):.2f} to {(place + 1) / len(counts):.2f}: {count:,} nodes"
        kind = "bar rare" if place == 0 else "bar"
        parts.append(_bar(kind, LEFT + place * width + 1, width - 2, count, 0, high, label))
    return _svg([*parts, _across("limit", _height(expected, 0, high)), *_ends(["p = 0", "p = 1"])], title, words)


def stacked(
    mixes: Sequence[Mapping[str, int]], labels: Sequence[str], ends: Sequence[str], *, title: str, words: str
) -> Markup:
    """Shares of classes over time, a bar for each time."""
    names = list(dict.fromkeys(name for mix in mixes for name in mix))
    width = (WIDTH - LEFT - RIGHT) / max(len(mixes), 1)
    parts = _axis(0, 100, " %")
    for place, (mix, label) in enumerate(zip(mixes, labels, strict=True)):
        total, below = sum(mix.values()) or 1, 0.0
        for number, name in enumerate(names):
            share = 100 * mix.get(name, 0) / total
            told = f"{label}: {name} {share:.1f} %"
            x, kind = LEFT + place * width, f"class-{number % SHADES}"
            parts.append(_bar(kind, x, max(width - 1, 0.5), below + share, below, 100, told))
            below += share
    return _svg([*parts, *_ends(ends)], title, words) + _legend(names)


def node_map(dots: Sequence[Dot], edges: Sequence[tuple[int, int]], *, title: str, words: str) -> Markup:
    """A picture of a sample of the graph, its nodes coloured by p-value."""
    parts = []
    for a, b in edges:
        (x, y), (x2, y2) = dots[a].at, dots[b].at
        parts.append(_tag("line", cls="edge", x1=x, y1=y, x2=x2, y2=y2))
    for dot in sorted(dots, key=lambda dot: -dot.p_value):  # the rare on top
        told, (x, y) = _tag("title", f"{dot.name}: p = {dot.p_value:.3g}"), dot.at
        parts.append(_tag("circle", told, cls=f"p-{dot.shade}", cx=x, cy=y, r=6 if dot.flag else 4))
    return _svg(parts, title, words, width=SIZE, height=SIZE)


def _tag(name: str, content: Any = "", **attributes: Any) -> Markup:
    """An element; its text and its attributes are escaped, `cls` is its class."""
    named = [("class" if key == "cls" else key.replace("_", "-"), value) for key, value in attributes.items()]
    head = "".join(f' {key}="{escape(shown(value))}"' for key, value in named)
    inner = content if isinstance(content, Markup) else escape(shown(content))
    return Markup(f"<{name}{head}>{inner}</{name}>")


def _bar(kind: str, x: float, width: float, top: float, bottom: float, high: float, label: str) -> Markup:
    y, base = _height(top, 0, high), _height(bottom, 0, high)
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "width": f"{width:.1f}", "height": f"{base - y:.1f}"}
    return _tag("rect", _tag("title", label), cls=kind, **place)


def _legend(names: Sequence[str]) -> Markup:
    items = []
    for number, name in enumerate(names):
        square = _tag("rect", cls=f"class-{number % SHADES}", width=12, height=12)
        items.append(_tag("li", _tag("svg", square, width=12, height=12, aria_hidden="true") + f" {shown(name)}"))
    return _tag("ul", Markup("").join(items), cls="legend")


def _places(count: int) -> list[float]:
    width = WIDTH - LEFT - RIGHT
    return [LEFT + width * (0.5 if count == 1 else place / (count - 1)) for place in range(count)]


def _sides(count: int) -> tuple[float, ...]:
    """A band of one time has a width, too."""
    return (-20.0, 20.0) if count == 1 else (0.0,)


def _points(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def _height(value: float, low: float, high: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - (value - low) / (high - low))


def _across(kind: str, y: float) -> Markup:
    return _tag("line", cls=kind, x1=LEFT, x2=WIDTH - RIGHT, y1=f"{y:.1f}", y2=f"{y:.1f}")


def _axis(low: float, high: float, unit: str) -> list[Markup]:
    values = _ticks(low, high)
    heights = [_height(value, low, high) for value in values]
    texts = [
        _tag("text", f"{_number(value)}{unit}", cls="tick", x=LEFT - 5, y=f"{y + 4:.1f}", text_anchor="end")
        for value, y in zip(values, heights, strict=True)
    ]
    return [*(_across("grid", y) for y in heights), *texts]


def _number(value: float) -> str:
    """A number at an axis, which has little room.

    >>> [_number(value) for value in (0.25, 50, 1000, 100_000, 2_500_000)]
    ['0.25', '50', '1,000', '100,000', '2.5M']
    """
    if value >= 1e6:
        return f"{value / 1e6:.3g}M"
    return f"{value:,.0f}" if value >= 1e3 else f"{value:.3g}"


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers between two, about `TICKS` of them.

    >>> _ticks(-0.234, 2.11), _ticks(0, 14.9), _ticks(0, 100)
    ([0.0, 1.0, 2.0], [0.0, 5.0, 10.0], [0.0, 25.0, 50.0, 75.0, 100.0])
    """
    least = (high - low) / TICKS
    unit = 10.0 ** math.floor(math.log10(least))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= least * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [step * number for number in range(first, last + 1)]


def _ends(labels: Sequence[str]) -> list[Markup]:
    places = [(LEFT, "start"), (WIDTH - RIGHT, "end")][: len(labels)]
    shown_ends = [labels[0], labels[-1]][: len(places)] if labels else []
    return [
        _tag("text", label, cls="tick", x=x, y=HEIGHT - 8, text_anchor=anchor)
        for label, (x, anchor) in zip(shown_ends, places, strict=True)
    ]


def _svg(parts: Sequence[Markup], title: str, words: str, *, width: int = WIDTH, height: int = HEIGHT) -> Markup:
    inner = _tag("title", title) + Markup("").join(parts)
    return _tag("svg", inner, cls="chart", role="img", viewBox=f"0 0 {width} {height}", aria_label=f"{title}. {words}")
