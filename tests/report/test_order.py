from __future__ import annotations

import io
import re
from dataclasses import replace

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console
from scipy.stats import chi2, rankdata

from gnnsafe.bench.recipes import recipes
from gnnsafe.methods import METHODS
from gnnsafe.report.document import print_section
from gnnsafe.report.methods import method_figures, methods_table
from gnnsafe.report.order import order_lines, order_section
from gnnsafe.report.places import order
from gnnsafe.report.ranks import ranking
from gnnsafe.training import OBJECTIVES

SETTINGS = [("cora", "structure"), ("cora", "label"), ("amazon-photo", "label"), ("cora", "planted-feature")]


@pytest.fixture
def records(record):
    """MSP leads on the first setting, Energy on the others; GNNSafe++ failed in one, and has three seeds less."""
    figures = {"MSP": (0.9, 0.7, 0.7, 0.6), "Energy": (0.8, 0.85, 0.9, 0.6), "GNNSafe++": (0.99, None, 0.98, 0.5)}
    return [
        record(dataset=dataset, shift=shift, seed=seed, method=method, auroc=auroc + shake, exposure="+" in method)
        for method, row in figures.items()
        for (dataset, shift), auroc in zip(SETTINGS, row, strict=True)
        for seed, shake in enumerate((-0.01, 0.01))
        if auroc is not None
    ]


def table(records, width: int) -> list[str]:
    """The order's grid on a terminal of this width."""
    section = order_section(records)
    screen = io.StringIO()
    bare = replace(section, text=(), notes=())
    print_section(bare, Console(file=screen, width=width, highlight=False, markup=False))
    return [line.rstrip() for line in screen.getvalue().splitlines()]


def text(renderable, width: int) -> list[str]:
    screen = io.StringIO()
    Console(file=screen, width=width, highlight=False, markup=False).print(renderable)
    return [line.rstrip() for line in screen.getvalue().splitlines()]


def test_methods_are_ordered_by_their_mean_rank_over_all_settings(records):
    energy, msp, partial = order(records)
    assert (energy.method, msp.method, partial.method) == ("Energy", "MSP", "GNNSafe++")
    assert energy.regimes == pytest.approx({"whole": 80.0, "classes": 87.5, "planted": 60.0})
    assert (energy.rank, msp.rank) == (pytest.approx((2 + 1 + 1 + 1.5) / 4), pytest.approx((1 + 2 + 2 + 1.5) / 4))
    assert energy.seeds == (2, 2)
    assert partial.rank is None  # however good where it was run
    assert partial.regimes == {"whole": pytest.approx(99.0), "classes": None, "planted": pytest.approx(50.0)}


def test_ranks_are_those_of_scipy(record):
    rng = np.random.default_rng(0)
    figures = rng.integers(60, 70, (9, 5)) / 100  # with ties
    records = [
        record(method=f"m{row}", dataset=f"d{column}", auroc=value) for (row, column), value in np.ndenumerate(figures)
    ]
    ranks = rankdata(-figures, axis=0).mean(axis=1)
    assert {place.method: place.rank for place in order(records)} == pytest.approx(
        {f"m{row}": rank for row, rank in enumerate(ranks)}
    )


def test_the_table(records):
    assert table(records, 80) == [
        "                                                   amazon",
        "                                         cora cora  photo    cora",
        "# method      whole classes planted rank    S    L      L plant F",
        "1 Energy       80.0    87.5    60.0  1.4 80.0 85.0   90.0    60.0",
        "2 MSP          90.0    70.0    60.0  1.6 90.0 70.0   70.0    60.0",
        "– GNNSafe++*†  99.0       –    50.0    – 99.0    –   98.0    50.0",
    ]
    assert order_lines(records) == [
        "AUROC in percent, mean of 2 seeds; paper protocol, gcn, 200 epochs; rank: mean of the ranks in all settings.",
        "whole: OOD nodes are a graph of their own; cora S",
        "classes: classes that no training node has; cora L, amazon-photo L",
        "planted: OOD nodes among ID nodes; cora F",
        "* trained with exposure to OOD nodes",
        "† not run, or failed, in some setting: no mean there and no rank",
    ]


def test_a_setting_of_few_methods_leaves_the_others_their_means_and_ranks(records, record):
    """One that joins was first tried on a data set where no other was: all others had no mean and no rank."""
    before = order(records)
    joined = [record(dataset="synthetic", shift="feature", method="Mine", auroc=0.7),
              record(dataset="synthetic", shift="control-half", method="Mine", auroc=0.5)]  # fmt: skip
    *others, mine = order([*records, *joined])
    assert others == before
    assert (mine.rank, mine.regimes["whole"], mine.controls) == (None, None, {})
    assert mine.auroc["synthetic", "feature"] == pytest.approx(70.0)
    row = table([*records, *joined], 120)[-1].split()
    assert (row[:2], row[-1]) == (["–", "Mine†"], "70.0")  # the figure is there all the same
    told = "in no mean and no rank, since fewer than half of the methods were run there: synthetic F"
    assert told in order_lines([*records, *joined])


def test_a_setting_of_half_of_the_methods_counts(record):
    records = [record(method=method, shift="structure", auroc=0.6) for method in ("Energy", "MSP")]
    records.append(record(method="MSP", shift="feature", auroc=0.8))
    msp, energy = order(records)
    assert (msp.regimes, msp.rank) == ({"whole": pytest.approx(70.0)}, 1.0)
    assert (energy.regimes, energy.rank) == ({"whole": None}, None)


def test_a_narrow_terminal_gets_a_column_per_regime(records):
    assert table(records, 50)[0] == "# method      whole classes planted rank"


@pytest.mark.parametrize("width", [39, 20, 5])
def test_a_terminal_that_is_too_narrow_loses_no_figure(records, width):
    assert table(records, width) == table(records, 50)


def test_seeds_are_told_where_they_differ(records):
    fewer = [r for r in records if (r.method, r.shift, r.seed) != ("MSP", "label", 1)]
    lines = table(fewer, 80)
    assert lines[2].split()[:7] == ["#", "method", "whole", "classes", "planted", "rank", "seeds"]
    assert [line.split()[6] for line in lines[3:]] == ["2", "1–2", "2"]


def test_planted_settings_alone_are_an_order_too(records):
    planted = [r for r in records if r.shift == "planted-feature"]
    lines = table(planted, 80)
    assert lines[1].split()[:5] == ["#", "method", "planted", "rank", "plant"]
    assert [line.split()[:4] for line in lines[2:]] == [
        ["1", "MSP", "60.0", "1.5"],
        ["2", "Energy", "60.0", "1.5"],
        ["3", "GNNSafe++*", "50.0", "3.0"],
    ]
    assert not any(line.startswith("whole") for line in order_lines(planted))


class TestControls:
    """Two data sets; GRASP tells even the controls of the first apart."""

    @pytest.fixture
    def records(self, record):
        figures = {
            "GRASP": {("cora", "structure"): 0.7, ("cora", "label"): 0.7, ("pubmed", "structure"): 0.7,
                      ("cora", "control-nothing"): 0.62, ("cora", "control-half"): 0.55,
                      ("pubmed", "control-nothing"): 0.5},
            "MSP": {("cora", "structure"): 0.7, ("cora", "label"): 0.6, ("pubmed", "structure"): 0.8,
                    ("cora", "control-nothing"): 0.5, ("cora", "control-half"): 0.51,
                    ("pubmed", "control-nothing"): 0.52},
        }  # fmt: skip
        return [
            record(dataset=dataset, shift=shift, method=method, auroc=auroc)
            for method, row in figures.items()
            for (dataset, shift), auroc in row.items()
        ]

    def test_they_are_columns_and_have_no_say_in_the_rank(self, records):
        grasp, msp = sorted(order(records), key=lambda place: place.method)
        assert grasp.controls == pytest.approx({"control-nothing": 56.0, "control-half": 55.0})
        assert msp.controls == pytest.approx({"control-nothing": 51.0, "control-half": 51.0})
        assert grasp.rank == msp.rank == 1.5  # 1.5, 1, 2 and 1.5, 2, 1
        last = table(records, 120)[1].split()
        assert last[:7] == ["#", "method", "whole", "classes", "rank", "happened", "half"]

    def test_a_figure_that_a_control_explains_is_marked(self, records):
        grasp, msp = sorted(order(records), key=lambda place: place.method)
        assert grasp.explained(("cora", "structure"))  # 12 of 20 points are there where nothing happened
        assert not grasp.explained(("cora", "label"))  # whose OOD nodes are in the graph of the ID nodes
        assert not grasp.explained(("pubmed", "structure"))
        assert not any(msp.explained(setting) for setting in msp.auroc)
        row = next(line for line in table(records, 120) if "GRASP" in line).split()
        assert row.count("70.0‡") == 1
        assert any(line.startswith("‡ half or more") for line in order_lines(records))

    @pytest.mark.parametrize(
        ("auroc", "marked"), [(0.3, False), (0.5, False), (0.501, True), (0.74, True), (0.75, False)]
    )
    def test_a_figure_with_nothing_beyond_50_has_nothing_to_explain(self, record, auroc, marked):
        figures = {"structure": auroc, "control-nothing": 0.62}
        (place,) = order([record(shift=shift, auroc=figure) for shift, figure in figures.items()])
        assert place.explained(("cora", "structure")) == marked


def test_scores_within_equal_degrees_stand_beside_those_over_time(record):
    records = [
        record(dataset="arxiv-topics", shift="time", method=method, auroc=0.8, within_degrees=within)
        for method, within in (("Energy", 0.6), ("DegreeBalance", None), ("MSP", 0.55))
    ]
    assert {place.method: place.within for place in order(records)} == {
        "Energy": pytest.approx(60.0), "DegreeBalance": None, "MSP": pytest.approx(55.0),
    }  # fmt: skip
    assert "degrees" in " ".join(table(records, 120)[:3])


def test_the_critical_difference(record):
    """Five methods in a fixed order over twelve settings: Demšar's q for k = 5 is 2.728."""
    records = [
        record(method=f"m{row}", dataset=f"d{column}", auroc=0.9 - row / 10) for row in range(5) for column in range(12)
    ]
    found = ranking(records)
    assert found.critical == pytest.approx(2.728 * (5 * 6 / (6 * 12)) ** 0.5, rel=1e-3)
    assert found.p_value == pytest.approx(chi2.sf(48, 4))  # 12 n / (k (k + 1)) Σ (rank − 3)² = 48
    assert [place.rank for place in found.places] == [1, 2, 3, 4, 5]
    assert [found.with_the_best(place) for place in found.places] == [True, True, False, False, False]
    assert "differ by less than 1.8 (Nemenyi, 5 %; Friedman's test p = 9e-10; 12 settings" in found.line
    assert found.line in order_lines(records)
    assert [line.split()[1] for line in table(records, 200)[2:]] == ["m0≈", "m1≈", "m2", "m3", "m4"]


def test_two_methods_or_one_setting_have_no_test(record):
    assert ranking([record(method=m, dataset=d) for m in "ab" for d in "xyz"]) is None
    assert ranking([record(method=m) for m in "abcd"]) is None


def test_methods_and_objectives():
    lines = text(methods_table(method_figures(METHODS, OBJECTIVES, recipes("cora", "structure"))), 300)
    assert lines[0].split()[:3] == ["name", "kind", "needs"]
    tables = [*METHODS, *OBJECTIVES]
    assert [line.split()[0] for line in lines[1:] if line][: len(tables)] == tables
    recipes_of = [line for line in lines[len(tables) + 1 :] if " trained " in line]
    trained = {re.split(" +trained ", line)[0]: line.split()[-5:] for line in recipes_of}
    own = ["Energy FT", "GNNSafe++", "NODESafe", "OE", "Energy, synthetic", "GNNSafe, synthetic", "DirichletEnergy FT"]
    assert list(trained) == [*own, "GKDE", "GPN", "DeepEnsemble", "DeepEnsemble, information"]
    assert trained["GNNSafe++"] == ["exposure", "EnergyMargin,", "scored", "by", "GNNSafe"]
    assert next(line for line in lines if line.startswith("outlier-exposure")).split()[1:3] == ["objective", "exposure"]
    msp = next(line for line in lines if line.startswith("msp"))
    assert msp.split(maxsplit=3)[1:] == ["post-hoc", "–", METHODS["msp"].__doc__.splitlines()[0]]
    narrow = text(methods_table(method_figures(METHODS, OBJECTIVES, recipes("cora", "structure"))), 80)
    assert max(map(cell_len, narrow)) <= 80
    assert not any("…" in line for line in narrow)
