from __future__ import annotations

import csv
from pathlib import Path

import pytest

from gnnsafe.bench import paper
from gnnsafe.bench.paper import SHIFTS
from gnnsafe.methods import GNNSafe
from gnnsafe.training import CrossEntropy, EnergyMargin

TABLES = Path(__file__).parents[3] / "shared" / "paper" / "tables.csv"


def test_figures_of_table_2():
    assert [paper.published("cora", shift, "GNNSafe") for shift in SHIFTS] == [87.52, 93.44, 92.80]
    assert [paper.published("cora", shift, "GNNSafe++") for shift in SHIFTS] == [90.62, 95.56, 92.75]
    assert paper.published("cora", "label", "MSP", "ID_ACC") == 88.92
    assert paper.published("cora", "label", "ours") is None


@pytest.mark.skipif(not TABLES.is_file(), reason="the paper's tables are not at hand")
def test_figures_are_those_of_the_paper():
    ours = Path(paper.__file__).with_name("paper.csv")
    with ours.open() as a, TABLES.open() as b:
        assert list(csv.DictReader(a)) == list(csv.DictReader(b))


@pytest.mark.parametrize("shift", SHIFTS)
def test_recipes_are_those_of_the_published_runs(shift):
    recipes = {recipe.name: recipe for recipe in paper.recipes("cora", shift)}
    margins = {"structure": (-5, -1, 0.01), "feature": (-5, -1, 0.01), "label": (-5, -4, 1.0)}
    assert recipes["GNNSafe++"].objective == EnergyMargin(*margins[shift], steps=2, alpha=0.5, isolated="decay")
    assert recipes["GNNSafe++"].method == recipes["GNNSafe"].method == GNNSafe(2, 0.5, 1.0, "decay")
    assert {recipes[name].objective for name in ("MSP", "Energy", "GNNSafe")} == {CrossEntropy()}
    assert ("GNNSafe, keep" in recipes) == (shift == "structure")
