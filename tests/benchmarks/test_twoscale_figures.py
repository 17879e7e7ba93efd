"""The default's figures in docs/methods.md are those of the page that the command's output is kept in."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import fmean

import pytest

REPOSITORY = Path(__file__).parents[2]
DATASETS = {"Cora": "cora", "Photo": "amazon-photo", "CS": "coauthor-cs"}
COLUMNS = ["structure", "feature", "label", "rewire"]
COLUMNS += [f"planted {kind}, {where}" for where in ("scattered", "clustered") for kind in ("feature", "structure")]
COLUMNS += ["nothing"]


def cells(line: str) -> list[str]:
    return [cell.strip().strip("*") for cell in line.strip("|").split("|")]


@pytest.fixture(scope="module")
def measured() -> dict[tuple[str, str, str], dict[str, str]]:
    """Mean ± deviation by column, of each data set, backbone and method."""
    found = {}
    for part in (REPOSITORY / "benchmarks/twoscale_figures.md").read_text().split("\n## ")[1:]:
        dataset, backbone, _ = part.splitlines()[0].split(", ")
        head, _, *rows = [cells(line) for line in part.splitlines() if line.startswith("|")]
        for name, *figures in rows:
            found[dataset, backbone, name.partition("(")[0]] = dict(zip(head[1:], figures, strict=True))
    return found


@pytest.fixture(scope="module")
def told() -> str:
    return (REPOSITORY / "docs/methods.md").read_text().split("## The default in every regime")[1].split("\n## ")[0]


def means(figures: dict[str, str], columns: list[str]) -> list[str]:
    return [figures[column].split()[0] for column in columns]


def test_by_regime(measured, told):
    """TwoScale's means with their deviations, then GNNSafe's means."""
    rows = [cells(line) for line in told.splitlines() if line.startswith("|")]
    for name, dataset in DATASETS.items():
        place = next(place for place, row in enumerate(rows) if row[0] == name)
        assert rows[place][1:] == [measured[dataset, "gcn", "TwoScale"][column] for column in COLUMNS]
        assert rows[place + 1] == ["GNNSafe", *means(measured[dataset, "gcn", "GNNSafe"], COLUMNS)]


def test_other_backbones(measured, told):
    rows = re.findall(r"^\| (\w+), (GAT|GraphSAGE|GIN|MLP) \| (.*) \|$", told, re.MULTILINE)
    assert len(rows) == 8
    for name, backbone, figures in rows:
        ours, theirs = (measured[DATASETS[name], backbone.lower(), method] for method in ("TwoScale", "GNNSafe"))
        pairs = zip(means(ours, COLUMNS), means(theirs, COLUMNS), strict=True)
        assert cells(figures) == [f"{first} ({second})" for first, second in pairs]


def test_countries_and_years(measured, told):
    ours, theirs = (measured["twitch", "gcn", method] for method in ("TwoScale", "GNNSafe"))
    assert f"countries: {', '.join(means(ours, [*ours]))} (GNNSafe {', '.join(theirs.values())})." in told
    for method in ("TwoScale", "GNNSafe", "DiffusedKNN", "DegreeBalance"):
        figures = [*measured["pubmed-years", "gcn", method].values(), *measured["arxiv-topics", "gcn", method].values()]
        assert [method, *figures] in [cells(line) for line in told.splitlines()]


def test_means_over_settings(measured, told):
    """Of the ten settings of the paper, Twitch's countries one of them, and of the planted ones."""
    number = r"([\d.]+)"
    pair = rf"\({number} and {number}\)"
    words = rf"mean is {number} \(GNNSafe {number}\), .*\n{number} scattered and {number} clustered {pair}"
    said = [float(figure) for figure in re.search(words, told).groups()]
    for method, those in (("TwoScale", (said[0], *said[2:4])), ("GNNSafe", (said[1], *said[4:]))):
        countries = fmean(map(float, means(measured["twitch", "gcn", method], ["ES", "FR", "RU"])))
        by_dataset = [[*map(float, means(measured[name, "gcn", method], COLUMNS))] for name in DATASETS.values()]
        paper = fmean([*(figure for row in by_dataset for figure in row[:3]), countries])
        planted = (
            fmean(figure for row in by_dataset for figure in row[first:last]) for first, last in ((4, 6), (6, 8))
        )
        assert those == pytest.approx((paper, *planted), abs=0.1)
