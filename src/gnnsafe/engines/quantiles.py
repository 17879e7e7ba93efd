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


def quantiles(engine: Engine, table: str, column: str, shares: Sequence[float]) -> list[float]:
    """Each share's quantile, interpolated linearly as numpy does."""
    ((count,),) = engine.rows(f"SELECT count({column}) FROM {table}")
    places = [share * (count - 1) for share in shares]
    ends = order_statistics(engine, table, column, [f(place) for place in places for f in (math.floor, math.ceil)])
    pairs = zip(places, ends[::2], ends[1::2], strict=True)
    return [low + (high - low) * (place % 1) for place, low, high in pairs]


def order_statistics(engine: Engine, table: str, column: str, places: Sequence[int]) -> list[Any]:
    """The values at these places, counted from 0, of the column in order."""
    low, high = engine.rows(f"SELECT min({column}), max({column}) FROM {table}")[0]
    return [_at(engine, table, column, place, low, high) for place in places]


def _at(engine: Engine, table: str, column: str, place: int, low: Any, high: Any) -> Any:
    """The value at that place among those from `low` to `high`, which are closed in on until they are few."""
    while True:
        value = f"CAST({column} AS DOUBLE)"
        width = (float(high) - float(low)) / BINS
        within = f"{column} >= {_literal(low)} AND {column} <= {_literal(high)}"
        if width > 0 and math.isfinite(width):
            bin_of = f"LEAST(FLOOR(({value} - {double(low)}) / {double(width)}), {double(BINS - 1)})"
        else:
            bin_of = double(0)
        counted = engine.rows(
            f"SELECT {bin_of} AS bin, count(*), min({column}), max({column}) FROM {table} WHERE {within} "
            "GROUP BY 1 ORDER BY 1"
        )
        for _, count, first, last in counted:
            if place < count:
                low, high = first, last
                break
            place -= count
        if low == high:
            return low
        if count <= FEW:
            found = engine.rows(
                f"SELECT {column}, count(*) FROM {table} WHERE {column} >= {_literal(low)} AND "
                f"{column} <= {_literal(high)} GROUP BY {column} ORDER BY {column}"
            )
            return _looked_up(found, place)


def _looked_up(counted: Sequence[tuple[Any, int]], place: int) -> Any:
    for value, count in counted:
        if place < count:
            return value
        place -= count
    raise AssertionError("a place beyond the last")


def _literal(value: Any) -> str:
    return str(value) if isinstance(value, int) else double(value)
