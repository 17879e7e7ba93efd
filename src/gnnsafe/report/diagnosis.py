"""Candidates and how well each finds planted shifts, for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

__all__ = ["candidates_table"]

Row = tuple[str, Mapping[str, tuple[float, float]], float]


def candidates_table(rows: Sequence[Row], *, marked: str = "") -> Table:
    """A row per candidate, a column per trouble, AUROC in percent; a column's best is bold, `marked` has a star."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold", caption_justify="left")
    table.add_column("AUROC, %", no_wrap=True)
    troubles = list(rows[0][1])
    for trouble in troubles:
        table.add_column(trouble.replace(", ", "\n").replace("whole graph", "whole"), justify="right", no_wrap=True)
    table.add_column("mean", justify="right", no_wrap=True)
    best = [max(row[1][trouble][0] for row in rows) for trouble in troubles] + [max(row[2] for row in rows)]
    for name, auroc, mean in rows:
        figures = [auroc[trouble][0] for trouble in troubles] + [mean]
        texts = [
            Text(f"{100 * figure:.1f}", style="bold" if figure == top else "")
            for figure, top in zip(figures, best, strict=True)
        ]
        table.add_row(f"{name} *" if name == marked else name, *texts)
    return table
