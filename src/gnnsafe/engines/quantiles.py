"""Exact quantiles from aggregates: histograms that close in on the places asked for; no sort, no rows collected."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gnnsafe.engines.engine import Engine
from gnnsafe.engines.texts import double

__all__ = ["order_statistics", "quantiles"]

BINS = 4096
FEW = 4096  # values among which a place is looked up


def quantiles(engine: Engine, table: str, column: str, shares: Sequence[float], count: int) -> list[float]:
    """Each share's quantile of `count` values, interpolated linearly as numpy does."""
    places = [share * (count - 1) for share in shares]
    ends = order_statistics(engine, table, column, [f(place) for place in places for f in (math.floor, math.ceil)])
    pairs = zip(places, ends[::2], ends[1::2], strict=True)
    return [low + (high - low) * (place % 1) for place, low, high in pairs]


def order_statistics(engine: Engine, table: str, column: str, places: Sequence[int]) -> list[Any]:
    """The values at these places, counted from 0, of the column in order."""
    low, high, count = engine.rows(f"SELECT min({column}), max({column}), count({column}) FROM {table}")[0]
    found = _between(engine, table, column, sorted({*places}), low, high, count)
    return [found[place] for place in places]


def _between(
    engine: Engine, table: str, column: str, places: Sequence[int], low: Any, high: Any, count: int
) -> dict[int, Any]:
    """The values at places among the `count` ones from `low` to `high`, which are closed in on until they are few."""
    if low == high:
        return dict.fromkeys(places, low)
    few = count <= FEW
    bins = engine.rows(
        f"SELECT {column if few else _bin(column, low, high)} AS bin, count(*), min({column}), max({column}) "
        f"FROM {table} WHERE {column} >= {_literal(low)} AND {column} <= {_literal(high)} GROUP BY 1 ORDER BY 1"
    )
    found: dict[int, Any] = {}
    before = 0
    for _, size, first, last in bins:
        here = [place - before for place in places if before <= place < before + size]
        if here:
            inside = _between(engine, table, column, here, first, last, size)
            found |= {place + before: value for place, value in inside.items()}
        before += size
    return found


def _bin(column: str, low: Any, high: Any) -> str:
    """The number of the bin, of `BINS` between two ends, that a value lies in."""
    width = max(float(high) / BINS - float(low) / BINS, 5e-324)
    return f"LEAST(FLOOR((CAST({column} AS DOUBLE) - {double(low)}) / {double(width)}), {double(BINS - 1)})"


def _literal(value: Any) -> str:
    return str(value) if isinstance(value, int) else double(value)
