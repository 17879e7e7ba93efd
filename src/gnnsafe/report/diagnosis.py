"""Candidates and how well each finds planted trouble, for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

__all__ = ["candidates_table"]


def candidates_table(
    rows: Sequence[tuple[str, Mapping[str, float]]], *, marked: Mapping[str, str], default: str
) -> Table:
    """A row per candidate, AUROC in percent under each kind of trouble; its best is bold, the one `marked` has a star.

    The name of the default has a star of its own.
    """
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("AUROC, %; * = recommended", no_wrap=True)
    columns = list(marked)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    best = {column: max(figures[column] for _, figures in rows) for column in columns}
    for name, figures in rows:
        stars = {column: "*" if marked[column] == name else " " for column in columns}
        texts = [
            Text(f"{100 * figures[c]:.1f}{stars[c]}", style="bold" if figures[c] == best[c] else "") for c in columns
        ]
        table.add_row(f"{name} (as it is)" if name == default else name, *texts)
    return table
