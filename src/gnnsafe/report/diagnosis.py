"""Candidates and how well each finds planted shifts, for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

__all__ = ["candidates_table"]


def candidates_table(rows: Sequence[tuple[str, Mapping[str, float]]], *, marked: str = "") -> Table:
    """A row per candidate, AUROC in percent under each column's name; its best is bold, `marked` has a star."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("AUROC, %", no_wrap=True)
    columns = list(rows[0][1])
    for column in columns:
        table.add_column(column.replace(", ", "\n").replace("whole graph", "whole"), justify="right", no_wrap=True)
    best = {column: max(figures[column] for _, figures in rows) for column in columns}
    for name, figures in rows:
        texts = [Text(f"{100 * figures[c]:.1f}", style="bold" if figures[c] == best[c] else "") for c in columns]
        table.add_row(f"{name} *" if name == marked else name, *texts)
    return table
