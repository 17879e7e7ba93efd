from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console
from scipy.stats import chi2, rankdata

from gnnsafe.bench.recipes import recipes
from gnnsafe.methods import METHODS
from gnnsafe.report.document import print_section
from gnnsafe.report.methods import methods_table
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


def test_methods_are_ordered_by_their_mean_over_settings(records):
    energy, msp, partial = order(records)
    assert (energy.method, msp.method, partial.method) == ("Energy", "MSP", "GNNSafe++")
    assert energy.mean == pytest.approx(85.0)
    assert energy.planted == pytest.approx(60.0)
    assert (energy.rank, msp.rank) == (pytest.approx(4 / 3), pytest.approx(5 / 3))
    assert energy.seeds == (2, 2)
    assert (partial.mean, partial.rank) == (None, None)  # however good where it was run
    assert partial.planted == pytest.approx(50.0)


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
        "                                          amazon",
        "                                cora cora  photo    cora",
        "# method      mean planted rank    S    L      L plant F",
        "1 Energy      85.0    60.0  1.3 80.0 85.0   90.0    60.0",
        "2 MSP         76.7    60.0  1.7 90.0 70.0   70.0    60.0",
        "– GNNSafe++*†    –    50.0    – 99.0    –   98.0    50.0",
    ]
    assert order_lines(records) == [
        "AUROC in percent, mean of 2 seeds; paper protocol, gcn, 200 epochs.",
        "mean: over cora S L, amazon-photo L; rank: mean of the ranks in these",
        "planted: over cora F, OOD nodes among ID nodes",
        "* trained with exposure to OOD nodes",
        "† not run, or failed, in some setting: no mean and no rank there",
    ]


def test_a_narrow_terminal_gets_a_column_per_data_set(records):
    assert table(records, 50) == [
        "                                     amazon",
        "# method      mean planted rank cora  photo",
        "1 Energy      85.0    60.0  1.3 82.5   90.0",
        "2 MSP         76.7    60.0  1.7 80.0   70.0",
        "– GNNSafe++*†    –    50.0    –    –   98.0",
    ]


def test_seeds_are_told_where_they_differ(records):
    fewer = [r for r in records if (r.method, r.shift, r.seed) != ("MSP", "label", 1)]
    lines = table(fewer, 80)
    assert lines[2].split()[:6] == ["#", "method", "mean", "planted", "rank", "seeds"]
    assert [line.split()[5] for line in lines[3:]] == ["2", "1–2", "2"]


def test_planted_settings_alone_are_an_order_too(records):
    planted = [r for r in records if r.shift == "planted-feature"]
    lines = table(planted, 80)
    assert lines[1].split()[:5] == ["#", "method", "planted", "rank", "plant"]
    assert [line.split()[:4] for line in lines[2:]] == [
        ["1", "MSP", "60.0", "1.5"],
        ["2", "Energy", "60.0", "1.5"],
        ["3", "GNNSafe++*", "50.0", "3.0"],
    ]
    assert not any(line.startswith("mean") for line in order_lines(planted))


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
    lines = text(methods_table(METHODS, OBJECTIVES, recipes("cora", "structure")), 300)
    assert lines[0].split()[:3] == ["name", "kind", "needs"]
    tables = [*METHODS, *OBJECTIVES]
    assert [line.split()[0] for line in lines[1:] if line][: len(tables)] == tables
    trained = {line.split("  ")[0]: line.split()[-5:] for line in lines if " trained " in line}
    assert list(trained) == ["Energy FT", "GNNSafe++", "NODESafe", "OE", "GKDE", "GPN"]
    assert trained["GNNSafe++"] == ["exposure", "EnergyMargin,", "scored", "by", "GNNSafe"]
    assert next(line for line in lines if line.startswith("outlier-exposure")).split()[1:3] == ["objective", "exposure"]
    msp = next(line for line in lines if line.startswith("msp"))
    assert msp.split(maxsplit=3)[1:] == ["post-hoc", "–", METHODS["msp"].__doc__.splitlines()[0]]
    narrow = text(methods_table(METHODS, OBJECTIVES, recipes("cora", "structure")), 80)
    assert max(map(cell_len, narrow)) <= 80
    assert not any("…" in line for line in narrow)
