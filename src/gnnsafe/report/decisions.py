"""Decisions about nodes: as a table in a file, and as a summary for the terminal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
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
    "Summary",
    "bin_edges",
    "check_ending",
    "write_table",
]

ENDINGS = (".parquet", ".csv")
BINS = 16
WIDTH = 40  # of the longest bar
ENDS = (0.005, 0.995)  # quantiles of the scores between which bars are drawn
PERIOD_ENDS = np.linspace(0, 1, 7)[1:-1]  # quantiles of time that part six periods
PERIOD = ("from", "to", "nodes", "flagged", "mean_p")
DATES = (1e8, 1e10)  # numbers that are seconds since 1970 if they are times: 1973 to 2286


def check_ending(name: str, path: Path) -> None:
    """What the file's name ends in says how it is written, and what is needed for that is installed."""
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


@dataclass(frozen=True, eq=False)
class Summary:
    """How many nodes there are and how many are flagged, their scores as a histogram, and flags over time.

    Args:
        out: Where the decisions are.
        nodes: How many nodes there are.
        flagged: How many of them are flagged.
        edges: Where the histogram's bars begin and end.
        every: How many nodes each bar has.
        marked: How many of them are flagged.
        periods: Flags over time; None where nodes have no time.
    """

    out: str
    """Where the decisions are."""
    nodes: int
    flagged: int
    edges: NDArray[np.float64]
    """Of the histogram's bars; the outermost take in the hundredth of the nodes that lies beyond the others."""
    every: NDArray[np.int64]
    marked: NDArray[np.int64]
    """The flagged ones in each bar."""
    periods: Sequence[tuple[Any, Any, int, float, float]] | None
    """First and last time, nodes, share flagged and mean p-value, in periods of about as many nodes each: drift is a
    share that rises, a p-value that falls. None where nodes have no time. Of ID nodes like the calibration nodes the
    mean p-value is about one half."""

    @classmethod
    def of(
        cls, out: str, scores: NDArray[Any], p: NDArray[Any], flags: NDArray[np.bool_], times: NDArray[Any] | None
    ) -> Summary:
        """That of decisions in memory.

        Args:
            out: Where the decisions are.
            scores: One per node.
            p: The p-values.
            flags: True = OOD.
            times: When each node came; None where that is not known.

        Returns:
            A summary of all nodes.
        """
        edges = bin_edges(*np.quantile(scores, ENDS).astype(np.float64))
        inside = np.clip(scores.astype(np.float64), edges[0], edges[-1])
        every, marked = np.histogram(inside, edges)[0], np.histogram(inside[flags], edges)[0]
        periods = None if times is None else _periods(times, p, flags)
        return cls(out, len(flags), int(flags.sum()), edges, every, marked, periods)

    def to_dict(self) -> dict[str, Any]:
        """All of it but where the decisions are, as JSON has it.

        Returns:
            Numbers and lists by name.
        """
        periods = [dict(zip(PERIOD, period, strict=True)) for period in self.periods or ()]
        bars = zip(self.edges[:-1].tolist(), self.every.tolist(), self.marked.tolist(), strict=True)
        return {
            "nodes": self.nodes, "flagged": self.flagged, **({} if self.periods is None else {"periods": periods}),
            "histogram": [{"from": left, "nodes": nodes, "flagged": flagged} for left, nodes, flagged in bars],
        }  # fmt: skip

    def histogram(self) -> Table:
        """A bar per range of scores; of each bar, what is flagged is drawn lighter and in colour.

        Returns:
            A table for the terminal.
        """
        table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
        table.add_column("score", justify="right", no_wrap=True)
        table.add_column("nodes", justify="right", no_wrap=True)
        table.add_column("█ kept  ▒ flagged", no_wrap=True)
        for left, count, marked in zip(self.edges, self.every.tolist(), self.marked.tolist(), strict=False):
            table.add_row(f"{left:.4g}", f"{count:,}", _bar(count, marked, int(self.every.max())))
        return table

    def over_time(self) -> list[Table]:
        """A table with a row per period, or none.

        Returns:
            One table for the terminal; none where nodes have no time.
        """
        if self.periods is None:
            return []
        table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
        for column in ("from", "to", "nodes", "flagged", "mean p"):
            table.add_column(column, justify="right", no_wrap=True)
        for first, last, nodes, flagged, p in self.periods:
            table.add_row(_time(first), _time(last), f"{nodes:,}", f"{flagged:.1%}", f"{p:.2f}")
        return [table]


def bin_edges(low: float, high: float) -> NDArray[np.float64]:
    """Where the histogram's bars begin and end, from the scores' quantiles at `ENDS`."""
    return np.linspace(low, max(high, np.nextafter(low, np.inf)), BINS + 1)


def _periods(
    times: NDArray[Any], p: NDArray[Any], flags: NDArray[np.bool_]
) -> list[tuple[Any, Any, int, float, float]]:
    """Nodes of one time are in one period."""
    period = np.searchsorted(np.unique(np.quantile(times, PERIOD_ENDS, method="lower")), times)
    parts = [period == number for number in np.unique(period)]
    return [(times[i].min(), times[i].max(), int(i.sum()), flags[i].mean(), p[i].mean()) for i in parts]


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
