"""Decisions about nodes: as a table in a file, and as a summary for the terminal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from rich.text import Text

from gnnsafe.errors import MissingExtraError, require
from gnnsafe.files import replacing

__all__ = [
    "ENDINGS",
    "ENDS",
    "PERIOD_ENDS",
    "bin_edges",
    "check_ending",
    "histogram",
    "histogram_table",
    "period_table",
    "periods_table",
    "write_table",
]

ENDINGS = (".parquet", ".csv")
BINS = 16
WIDTH = 40  # of the longest bar
ENDS = (0.005, 0.995)  # quantiles of the scores between which bars are drawn
PERIOD_ENDS = np.linspace(0, 1, 7)[1:-1]  # quantiles of time that part six periods
DATES = (1e8, 1e10)  # numbers that are seconds since 1970 if they are times: 1973 to 2286


def check_ending(name: str, path: Path) -> None:
    """What the file's name ends in says how it is written, and what is needed for that is at hand."""
    require(path.suffix.lower() in ENDINGS, name, f"end in {' or '.join(ENDINGS)}", f"'{path}'")
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(f"writing {path} needs {error.name}: pip install 'gnnsafe[tables]'") from error


def write_table(path: Path, table: Any) -> None:
    """An Arrow table, whole or not at all: Parquet or CSV by the ending; CSV has lists as JSON."""
    from pyarrow import csv, parquet

    with replacing(path) as part:
        if path.suffix.lower() == ".csv":
            csv.write_csv(_flat(table), part)
        else:
            parquet.write_table(table, part)


def _flat(table: Any) -> Any:
    """The table with its lists as texts."""
    import pyarrow as pa

    for place, column in enumerate(table.columns):
        if pa.types.is_large_list(column.type):
            texts = [json.dumps(values, ensure_ascii=False) for values in column.to_pylist()]
            table = table.set_column(place, table.column_names[place], pa.array(texts, pa.string()))
    return table


def histogram(scores: NDArray[np.float32], flags: NDArray[np.bool_]) -> Table:
    """How many nodes score what, a bar per range; of each bar, what is flagged is drawn lighter and in colour.

    The outermost bars take in the hundredth of the nodes that lies beyond the others.
    """
    edges = bin_edges(*np.quantile(scores, ENDS).astype(np.float64))
    inside = np.clip(scores.astype(np.float64), edges[0], edges[-1])
    every, flagged = np.histogram(inside, edges)[0], np.histogram(inside[flags], edges)[0]
    return histogram_table(edges, every, flagged)


def bin_edges(low: float, high: float) -> NDArray[np.float64]:
    """Where the histogram's bars begin and end, from the scores' quantiles at `ENDS`."""
    return np.linspace(low, max(high, np.nextafter(low, np.inf)), BINS + 1)


def histogram_table(edges: NDArray[np.float64], every: NDArray[Any], flagged: NDArray[Any]) -> Table:
    """The same of counts, whoever counted."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("score", justify="right", no_wrap=True)
    table.add_column("nodes", justify="right", no_wrap=True)
    table.add_column("█ kept  ▒ flagged", no_wrap=True)
    for left, count, marked in zip(edges, every.tolist(), flagged.tolist(), strict=False):
        table.add_row(f"{left:.4g}", f"{count:,}", _bar(count, marked, int(every.max())))
    return table


def period_table(times: NDArray[Any], p: NDArray[np.float64], flags: NDArray[np.bool_]) -> Table:
    """Flags and p-values over time, in periods of about as many nodes each: drift is a rate that rises, a p that falls.

    Nodes of one time are in one period. Of ID nodes like the calibration nodes the mean p-value is about one half.
    """
    cuts = np.unique(np.quantile(times, PERIOD_ENDS, method="lower"))
    period = np.searchsorted(cuts, times)
    parts = [period == number for number in np.unique(period)]
    return periods_table([(times[i].min(), times[i].max(), int(i.sum()), flags[i].mean(), p[i].mean()) for i in parts])


def periods_table(periods: Sequence[tuple[Any, Any, int, float, float]]) -> Table:
    """The same of each period's first and last time, nodes, share of them flagged, and mean p-value."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for column in ("from", "to", "nodes", "flagged", "mean p"):
        table.add_column(column, justify="right", no_wrap=True)
    for first, last, nodes, flagged, p in periods:
        table.add_row(_time(first), _time(last), f"{nodes:,}", f"{flagged:.1%}", f"{p:.2f}")
    return table


def _time(value: Any) -> str:
    """A time as the table of nodes has it; one that may be in seconds since 1970 with its date beside it."""
    text = f"{value:g}" if float(value) < DATES[0] and not float(value).is_integer() else f"{value:.0f}"
    if not DATES[0] <= value < DATES[1]:
        return text
    return f"{text} ({datetime.fromtimestamp(float(value), UTC):%Y-%m-%d})"


def _bar(count: int, flagged: int, tallest: int) -> Text:
    length = -(-WIDTH * count // tallest)  # rounded up: one node is seen
    marked = min(-(-WIDTH * flagged // tallest), length)
    return Text("█" * (length - marked), style="blue") + Text("▒" * marked, style="yellow")
