"""The list of data sets, for the terminal."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table

from gnnsafe.datasets.catalogue import SINGLE_GRAPH, Dataset

__all__ = ["catalogue_table"]


def catalogue_table(datasets: Mapping[str, Dataset], at_hand: Mapping[str, bool]) -> Table:
    """A row per data set: published counts, shifts, and whether it is at hand."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for column in ("data set", "nodes", "edges", "features", "classes"):
        table.add_column(column, justify="left" if column == "data set" else "right", no_wrap=True)
    table.add_column("at hand", no_wrap=True)
    table.add_column("shifts")
    for name, dataset in datasets.items():
        counts = (f"{dataset.nodes:,}", f"{dataset.edges:,}", dataset.features, str(dataset.classes))
        single = ["single-graph*"] if dataset.graph is not None else []
        table.add_row(name, *counts, "yes" if at_hand[name] else "no", ", ".join([*single, *dataset.own]))
    table.caption = f"* {', '.join(SINGLE_GRAPH)}"
    table.caption_justify = "left"
    return table
