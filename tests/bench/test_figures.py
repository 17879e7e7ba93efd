from __future__ import annotations

import pytest

from gnnsafe.bench.figures import figure_cells, sweep
from gnnsafe.training import CrossEntropy


def test_figure_1_is_twitch_and_a_temporal_shift(data_root):
    cells = figure_cells(1, 1, 200, str(data_root))
    assert [(cell.dataset, cell.shift, cell.seed) for cell, _ in cells] == [
        ("twitch", "domain", 0), ("arxiv-topics", "time", 0)  # Arxiv is not available
    ]  # fmt: skip
    assert all({r.name for r in recipes} == {"Energy", "GNNSafe", "GNNSafe++"} for _, recipes in cells)


def test_figure_2_is_five_backbones_and_five_methods():
    cells = figure_cells(2, 3, 50, None)
    assert len(cells) == 3 * 5 * 3
    assert {cell.backbone for cell, _ in cells} == {"mlp", "gcn", "gat", "jknet", "mixhop"}
    assert all(cell.protocol == "paper" and cell.epochs == 50 and len(recipes) == 5 for cell, recipes in cells)
    assert all(recipe.model == cell.backbone for cell, recipes in cells for recipe in recipes)


def test_figure_3_moves_each_value_over_the_papers_range():
    ((cell, recipes),) = figure_cells(3, 1, 200, None)
    assert (cell.dataset, cell.shift) == ("cora", "structure")
    names = [recipe.name for recipe in recipes]
    assert len(names) == len(set(names)) == 2 * 35 + 12 + 3
    panels = {panel: [p for p in sweep() if p.panel == panel] for panel in dict.fromkeys(p.panel for p in sweep())}
    assert list(panels) == ["GNNSafe++: K and α", "GNNSafe: K and α", "GNNSafe++: t_in and t_out", "GNNSafe++: λ"]
    first = panels["GNNSafe++: K and α"]
    assert {(p.recipe.method.steps, p.recipe.method.alpha) for p in first} == {(p.x, p.line) for p in first}
    assert {p.x for p in first} == {1, 2, 4, 8, 16, 32, 64}
    assert {p.line for p in first} == {0.1, 0.3, 0.5, 0.7, 0.9}
    assert len({p.recipe.objective for p in first}) == 1  # trained once, scored 35 times
    assert all(p.recipe.objective == CrossEntropy() for p in panels["GNNSafe: K and α"])
    margins = panels["GNNSafe++: t_in and t_out"]
    assert {(p.recipe.objective.t_in, p.recipe.objective.t_out) for p in margins} == {(p.x, p.line) for p in margins}
    assert [p.recipe.objective.weight for p in panels["GNNSafe++: λ"]] == [0.01, 0.1, 1.0]
    assert all(p.recipe.method.isolated == "decay" for p in sweep())


@pytest.mark.parametrize("number", [2, 3])
def test_cells_come_seed_by_seed(number):
    seeds = [cell.seed for cell, _ in figure_cells(number, 2, 200, None)]
    assert seeds == sorted(seeds)
