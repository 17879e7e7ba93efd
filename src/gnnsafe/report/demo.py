"""The demo's document: a table beside the paper's figures, and how the scores part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gnnsafe.bench.figures import DISTRIBUTIONS
from gnnsafe.bench.paper import published
from gnnsafe.bench.run import Result
from gnnsafe.bench.summary import SeedSummary, summaries
from gnnsafe.report.distributions import distributions
from gnnsafe.report.document import Document, Section
from gnnsafe.report.grid import Grid, GridEntry
from gnnsafe.report.plotting import specification

__all__ = ["demo_document", "demo_figures", "demo_grid"]

COLUMNS = ("shift", "method", "AUROC", "paper", "AUPR", "FPR95", "ID acc")
PANELS = (*DISTRIBUTIONS, "TwoScale")
PARTED = (
    "One panel per shift and method, first seed: the paper's energies, and TwoScale's −log p. The dashed line is the "
    "threshold that accepts 95 % of ID nodes: orange to the left of it is missed (FPR95), blue to the right of it is a "
    "false alarm. Outermost bars hold the 1 % of nodes beyond them."
)


def demo_document(results: Sequence[Result], *, lead: str, notes: Sequence[str]) -> Document:
    """What `gnnsafe demo` found."""
    table = Section("How well each method tells OOD from ID nodes", (), [demo_grid(summaries(results))], notes)
    chart = specification(distributions(results, PANELS))
    parted = Section("Scores of ID and OOD test nodes", [PARTED], chart=chart)
    return Document("gnnsafe demo: out-of-distribution nodes on Cora", [lead], [table, parted])


def demo_figures(rows: Sequence[SeedSummary]) -> list[dict[str, Any]]:
    """An entry per shift and method: each metric's mean and standard deviation, and what the paper published."""
    return [
        {
            "shift": row.shift,
            "method": row.method,
            **{name: {"mean": mean, "std": std} for name, (mean, std) in row.metrics.items()},
            "paper_auroc": published(row.dataset, row.shift, row.method),
        }
        for row in rows
    ]


def demo_grid(rows: Sequence[SeedSummary]) -> Grid:
    """One row per summary, for a terminal of 80 columns; the shift is named where it begins."""
    begins = [number for number, row in enumerate(rows) if number == 0 or row.shift != rows[number - 1].shift]
    grid = []
    for number, row in enumerate(rows):
        paper = published(row.dataset, row.shift, row.method)
        auroc, *others = (_figure(*row.metrics[name]) for name in ("auroc", "aupr_in", "fpr95", "accuracy"))
        shift = row.shift if number in begins else ""
        texts = (shift, row.method, auroc, "–" if paper is None else f"{paper:.1f}", *others)
        grid.append([GridEntry(text) for text in texts])
    return Grid("", COLUMNS, grid, left=2, breaks=begins[1:])


def _figure(mean: float, spread: float | None) -> str:
    return f"{mean:.1f}" if spread is None else f"{mean:.1f} ± {spread:.1f}"
