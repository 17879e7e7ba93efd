"""AUROC by data set and shift with confidence intervals: the tables of the rigorous protocol."""

from __future__ import annotations

from collections.abc import Sequence

from gnnsafe.bench.store import Record
from gnnsafe.bench.summary import SeedSummary, summaries
from gnnsafe.report.document import Section
from gnnsafe.report.grid import Grid, GridEntry
from gnnsafe.report.places import order

__all__ = ["intervals_section"]

TEXT = (
    "AUROC in percent: mean over seeds, each with a split of its own, ± half the width of the mean's 95 % confidence "
    "interval (Student's t)."
)


def intervals_section(records: Sequence[Record]) -> Section:
    """A grid per data set, a column per shift, methods in the order of their mean."""
    found = {(s.dataset, s.shift, s.method): s for s in summaries(records)}
    grids = []
    for dataset in dict.fromkeys(dataset for dataset, _, _ in found):
        shifts = list(dict.fromkeys(shift for name, shift, _ in found if name == dataset))
        rows = [
            [
                GridEntry(place.method + "*" * place.exposure),
                *(_entry(found.get((dataset, s, place.method))) for s in shifts),
            ]
            for place in order(records)
        ]
        grids.append(Grid(dataset, ["method", *shifts], rows))
    return Section("AUROC with confidence intervals", [TEXT], grids)


def _entry(summary: SeedSummary | None) -> GridEntry:
    if summary is None:
        return GridEntry("–")
    half = summary.interval["auroc"]
    return GridEntry(f"{summary.metrics['auroc'][0]:.1f}" + ("" if half is None else f"±{half:.1f}"))
