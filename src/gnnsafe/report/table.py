"""The table of a study, once: for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from gnnsafe.bench.paper import published
from gnnsafe.bench.summary import Summary

__all__ = ["COLUMNS", "rows", "terminal_table"]

COLUMNS = ("shift", "method", "AUROC", "paper", "AUPR", "FPR95", "ID acc")


def rows(summaries: Sequence[Summary]) -> list[tuple[str, ...]]:
    """One row of texts per summary, under `COLUMNS`; the shift is named where it begins."""
    table: list[tuple[str, ...]] = []
    shift = ""
    for summary in summaries:
        paper = published(summary.dataset, summary.shift, summary.method)
        auroc, aupr, fpr, accuracy = (
            _figure(*summary.metrics[name]) for name in ("auroc", "aupr_in", "fpr95", "accuracy")
        )
        name = "" if summary.shift == shift else summary.shift
        table.append((name, summary.method, auroc, "–" if paper is None else f"{paper:.1f}", aupr, fpr, accuracy))
        shift = summary.shift
    return table


def _figure(mean: float, spread: float | None) -> str:
    return f"{mean:.1f}" if spread is None else f"{mean:.1f} ± {spread:.1f}"


def terminal_table(summaries: Sequence[Summary]) -> Table:
    """The table for a terminal of 80 columns."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in ("shift", "method") else "right", no_wrap=True)
    for row in rows(summaries):
        if row[0] and table.row_count:
            table.add_row()
        table.add_row(*row)
    return table
