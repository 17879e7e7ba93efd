"""The paper's figures 1–3 as studies of their own: which cells, and which recipes in them."""

from __future__ import annotations

from dataclasses import dataclass

from gnnsafe.bench import paper
from gnnsafe.bench.plan import Cell
from gnnsafe.bench.recipes import Recipe
from gnnsafe.datasets import DATASETS
from gnnsafe.methods import GNNSafe
from gnnsafe.training import CrossEntropy, EnergyMargin

__all__ = ["DISTRIBUTIONS", "FIGURES", "Point", "figure_cells", "sweep"]

FIGURES = {
    1: "energies of ID and OOD nodes: Energy, GNNSafe, GNNSafe++ on Twitch and on a temporal shift",
    2: "five backbones: MSP, Energy, Energy FT, GNNSafe, GNNSafe++ on Cora under three shifts",
    3: "hyper-parameters of GNNSafe++ on Cora under structure shift: K and α; t_in and t_out; λ",
}

DISTRIBUTIONS = ("Energy", "GNNSafe", "GNNSafe++")
OVER_TIME = ("arxiv", "arxiv-topics", "pubmed-years")  # the first that is available
FIGURE_BACKBONES = ("mlp", "gcn", "gat", "jknet", "mixhop")
COMPARED = ("MSP", "Energy", "Energy FT", "GNNSafe", "GNNSafe++")
DEPTHS = (1, 2, 4, 8, 16, 32, 64)
FIGURE_ALPHAS = (0.1, 0.3, 0.5, 0.7, 0.9)
T_IN, T_OUT, WEIGHTS = (-9.0, -7.0, -5.0), (-4.0, -3.0, -2.0, -1.0), (0.01, 0.1, 1.0)  # the paper's grids


@dataclass(frozen=True)
class Point:
    """A recipe in a panel of figure 3, and where it stands there."""

    panel: str
    line: float
    """What tells lines of the panel apart: α, t_out."""
    x: float
    recipe: Recipe


def figure_cells(number: int, seeds: int, epochs: int, root: str | None) -> list[tuple[Cell, list[Recipe]]]:
    """The cells of a figure with their recipes, by the paper's protocol, seed by seed."""
    if number == 1:
        temporal = next((name for name in OVER_TIME if DATASETS[name].available(root)), OVER_TIME[-1])
        settings = [("twitch", "domain"), (temporal, "time")]
        cells = [Cell(*setting, seed, epochs=epochs) for seed in range(seeds) for setting in settings]
        return [(cell, _named(cell, DISTRIBUTIONS)) for cell in cells]
    if number == 2:
        cells = [
            Cell("cora", shift, seed, backbone, epochs=epochs)
            for seed in range(seeds)
            for backbone in FIGURE_BACKBONES
            for shift in paper.PAPER_SHIFTS
        ]
        return [(cell, _named(cell, COMPARED)) for cell in cells]
    recipes = list({point.recipe.name: point.recipe for point in sweep()}.values())
    return [(Cell("cora", "structure", seed, epochs=epochs), recipes) for seed in range(seeds)]


def _named(cell: Cell, names: tuple[str, ...]) -> list[Recipe]:
    return [recipe for recipe in cell.recipes() if recipe.name in names]


def sweep() -> list[Point]:
    """Figure 3: each panel moves its own values, the others are those of the published run."""
    t_in, t_out, weight = paper.margins("cora", "structure")[1]
    gnnsafe, trained = GNNSafe(isolated="decay"), _margin(t_in, t_out, weight)
    points = [
        Point(f"{name}: K and α", alpha, steps, Recipe(f"{name} K={steps} α={alpha}", objective, method))
        for name, objective in (("GNNSafe++", trained), ("GNNSafe", CrossEntropy()))
        for alpha in FIGURE_ALPHAS
        for steps in DEPTHS
        for method in [GNNSafe(steps=steps, alpha=alpha, isolated="decay")]
    ]
    for high in T_OUT:
        for low in T_IN:
            recipe = Recipe(f"GNNSafe++ t_in={low} t_out={high}", _margin(low, high, weight), gnnsafe)
            points.append(Point("GNNSafe++: t_in and t_out", high, low, recipe))
    for value in WEIGHTS:
        recipe = Recipe(f"GNNSafe++ λ={value}", _margin(t_in, t_out, value), gnnsafe)
        points.append(Point("GNNSafe++: λ", t_out, value, recipe))
    return points


def _margin(t_in: float, t_out: float, weight: float) -> EnergyMargin:
    return EnergyMargin(t_in, t_out, weight, isolated="decay")
