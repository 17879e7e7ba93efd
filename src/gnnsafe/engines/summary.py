"""A summary of all nodes, from aggregates."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnsafe.engines.engine import Engine
from gnnsafe.engines.quantiles import order_statistics, quantiles
from gnnsafe.engines.texts import bar_counts, double, flagged_rows, periods, said_about_all
from gnnsafe.report.decisions import ENDS, PERIOD_ENDS, Summary, bin_edges

__all__ = ["Summary", "summarise"]


def summarise(engine: Engine, table: str, limit: float, out: str, *, times: bool) -> Summary:
    """That of a table with scores and p-values, of which those up to `limit` are flagged."""
    rows = f"({flagged_rows(table, limit, ['score', 'p_value', *(['moment'] if times else [])])}) AS flagged"
    nodes, marked = engine.rows(said_about_all(rows))[0]
    edges = bin_edges(*quantiles(engine, table, "score", ENDS, nodes))
    counted = np.array(engine.rows(bar_counts(rows, edges.tolist()))[0], dtype=np.int64)
    over_time = _periods(engine, table, rows, nodes) if times else None
    return Summary(out, nodes, int(marked), edges, counted[::2], counted[1::2], over_time)


def _periods(engine: Engine, table: str, rows: str, nodes: int) -> list[tuple[Any, Any, int, float, float]]:
    places = [int(np.floor(share * (nodes - 1))) for share in PERIOD_ENDS]
    cuts = sorted({*order_statistics(engine, table, "moment", places)})
    found = engine.rows(periods(rows, [str(cut) if isinstance(cut, int) else double(cut) for cut in cuts]))
    return [(first, last, int(count), float(flagged), float(p)) for _, first, last, count, flagged, p in found]
