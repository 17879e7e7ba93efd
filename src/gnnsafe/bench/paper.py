"""The paper's published figures and the hyper-parameters of its published runs (Wu et al., ICLR 2023)."""

from __future__ import annotations

import csv
from collections import defaultdict
from functools import cache
from importlib.resources import files
from itertools import product

__all__ = [
    "GRID",
    "LEARNING_RATE",
    "LEARNING_RATES",
    "PAPER_METHODS",
    "PAPER_NAMES",
    "PAPER_SHIFTS",
    "SUBSTITUTES",
    "Margins",
    "in_tables",
    "margins",
    "published",
    "tables_with",
]

PAPER_METHODS = {
    "MSP": False, "ODIN": False, "Mahalanobis": False, "Energy": False, "GKDE": False, "GPN": False, "GNNSafe": False,
    "OE": True, "Energy FT": True, "GNNSafe++": True,
}  # fmt: skip
"""The ten that it compares, in its order, and whether they learn from exposure."""

PAPER_SHIFTS = ("structure", "feature", "label")  # those that the paper makes of a single graph

# data set as named here → in the paper's tables
PAPER_NAMES = {
    "cora": "Cora", "amazon-photo": "Amazon", "coauthor-cs": "Coauthor", "twitch": "Twitch", "arxiv": "Arxiv"
}  # fmt: skip

SUBSTITUTES = {"arxiv-topics": "arxiv"}
"""Data sets that stand in tables for one of the paper's, named as such: the same graph, other features."""

LEARNING_RATE = 0.01  # of the published runs
LEARNING_RATES = (0.1, 0.01, 0.001)  # the grid that the paper searches

Margins = tuple[float, float, float]  # t_in, t_out, λ

# of Energy FT and of GNNSafe++ in the published runs
MARGINS: dict[tuple[str, str], tuple[Margins, Margins]] = {
    ("cora", "structure"): ((-5.0, -1.0, 0.01), (-5.0, -1.0, 0.01)),
    ("cora", "feature"): ((-5.0, -1.0, 0.01), (-5.0, -1.0, 0.01)),
    ("cora", "label"): ((-5.0, -4.0, 1.0), (-5.0, -4.0, 1.0)),
    ("amazon-photo", "structure"): ((-9.0, -1.0, 0.01), (-9.0, -1.0, 0.1)),
    ("amazon-photo", "feature"): ((-5.0, -1.0, 1.0), (-9.0, -1.0, 1.0)),
    ("amazon-photo", "label"): ((-9.0, -4.0, 1.0), (-9.0, -4.0, 1.0)),
    ("coauthor-cs", "structure"): ((-5.0, -1.0, 0.1), (-5.0, -1.0, 0.1)),
    ("coauthor-cs", "feature"): ((-7.0, -1.0, 0.1), (-7.0, -1.0, 0.1)),
    ("coauthor-cs", "label"): ((-9.0, -2.0, 0.01), (-9.0, -2.0, 0.01)),
    ("twitch", "domain"): ((-7.0, -2.0, 0.1), (-5.0, -1.0, 0.1)),
    ("arxiv", "time"): ((-9.0, -4.0, 0.01), (-9.0, -2.0, 0.01)),
}
COMMON = (-5.0, -1.0, 0.1)  # in the middle of the paper's grids; where there is no published run, chosen by no figure

GRID: list[Margins] = list(product((-9.0, -7.0, -5.0), (-1.0, -2.0, -3.0, -4.0), (0.01, 0.1, 1.0)))  # the paper's


def in_tables(dataset: str, shift: str) -> bool:
    """Whether the paper's tables have this data set under this shift.

    >>> in_tables("cora", "label"), in_tables("cora", "rewire"), in_tables("citeseer", "label")
    (True, False, False)
    """
    return (SUBSTITUTES.get(dataset, dataset), shift) in MARGINS


def margins(dataset: str, shift: str) -> tuple[Margins, Margins]:
    """(t_in, t_out, λ) of Energy FT and of GNNSafe++ in the published runs; a planted shift has its namesake's.

    >>> margins("twitch", "domain")
    ((-7.0, -2.0, 0.1), (-5.0, -1.0, 0.1))
    >>> margins("pubmed", "label")
    ((-5.0, -1.0, 0.1), (-5.0, -1.0, 0.1))
    """
    return MARGINS.get((SUBSTITUTES.get(dataset, dataset), shift.removeprefix("planted-")), (COMMON, COMMON))


def published(
    dataset: str, shift: str, method: str, metric: str = "AUROC", *, table: int | None = None
) -> float | None:
    """The figure that the paper's tables give, in percent (in table 8, seconds), or None where they give none.

    Tables disagree in places: it is that of `table`, or of the first that has one, tables 1 and 2 before the appendix.
    One OOD graph of several is asked for by name, "domain:ES"; "domain" is what the paper gives for all of them.

    >>> published("cora", "structure", "GNNSafe++"), published("twitch", "domain:ES", "GNNSafe")
    (90.62, 49.07)
    >>> published("amazon-photo", "label", "Energy FT"), published("amazon-photo", "label", "Energy FT", table=6)
    (97.35, 96.61)
    """
    figures = _figures()[_named(dataset), shift, method, metric]
    return next(iter(figures.values()), None) if table is None else figures.get(table)


def tables_with(dataset: str, shift: str, method: str, metric: str) -> dict[int, float]:
    """The figures of all tables that have one, by the table's number."""
    return dict(_figures()[_named(dataset), shift, method, metric])


def _named(dataset: str) -> str:
    return PAPER_NAMES.get(SUBSTITUTES.get(dataset, dataset), "")


@cache
def _figures() -> defaultdict[tuple[str, str, str, str], dict[int, float]]:
    figures: defaultdict[tuple[str, str, str, str], dict[int, float]] = defaultdict(dict)
    with (files("gnnsafe.bench") / "paper.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            figures[row["dataset"], row["shift"], row["method"], row["metric"]][int(row["table"])] = float(row["value"])
    return figures
