from __future__ import annotations

import csv
from pathlib import Path

import pytest

from gnnsafe.bench import paper
from gnnsafe.bench.paper import PAPER_SHIFTS

TABLES = Path(__file__).parents[3] / "shared" / "paper" / "tables.csv"


def test_figures_of_table_2():
    assert [paper.published("cora", shift, "GNNSafe") for shift in PAPER_SHIFTS] == [87.52, 93.44, 92.80]
    assert [paper.published("cora", shift, "GNNSafe++") for shift in PAPER_SHIFTS] == [90.62, 95.56, 92.75]
    assert paper.published("cora", "label", "MSP", "ID_ACC") == 88.92
    assert paper.published("cora", "label", "ours") is None
    assert paper.published("pubmed", "label", "MSP") is None
    assert [paper.published(name, "label", "GNNSafe++") for name in ("amazon-photo", "coauthor-cs")] == [97.51, 97.89]


def test_figures_of_each_graph():
    graphs = ("domain:ES", "domain:FR", "domain:RU", "domain")
    assert [paper.published("twitch", graph, "GNNSafe++") for graph in graphs] == [94.54, 93.45, 98.10, 95.36]
    assert paper.published("arxiv", "time:2020", "MSP") == 67.0


def test_margins_are_those_of_the_published_runs():
    assert paper.margins("amazon-photo", "feature") == ((-5, -1, 1.0), (-9, -1, 1.0))
    assert paper.margins("amazon-photo", "planted-feature") == paper.margins("amazon-photo", "feature")
    assert paper.margins("arxiv", "time") == ((-9, -4, 0.01), (-9, -2, 0.01))
    assert paper.margins("pubmed", "label") == paper.margins("cora", "rewire") == (paper.COMMON, paper.COMMON)
    assert len(paper.MARGINS) == 11


def test_settings_of_the_tables_are_those_with_a_figure():
    for dataset in (*paper.PAPER_NAMES, "citeseer", "synthetic"):
        for shift in ("structure", "feature", "label", "domain", "time", "rewire", "planted-feature"):
            figure = paper.published(dataset, shift, "MSP")
            assert paper.in_tables(dataset, shift) == (figure is not None), (dataset, shift)


@pytest.mark.skipif(not TABLES.is_file(), reason="the paper's tables are not available")
def test_figures_are_those_of_the_paper():
    ours = Path(paper.__file__).with_name("paper.csv")
    with ours.open() as a, TABLES.open() as b:
        assert list(csv.DictReader(a)) == list(csv.DictReader(b))
