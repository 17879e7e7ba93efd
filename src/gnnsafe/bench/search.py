"""A search for hyper-parameters by the paper's grids, on ID validation and exposure nodes: it sees no test data."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from statistics import fmean
from typing import NamedTuple

import torch

from gnnsafe.bench import paper
from gnnsafe.bench.plan import Cell, Plan
from gnnsafe.bench.recipes import Recipe, code_of, margins_text
from gnnsafe.bench.store import Record
from gnnsafe.bench.study import CellTask
from gnnsafe.datasets import Benchmark
from gnnsafe.graph import changed
from gnnsafe.methods import MSP
from gnnsafe.models import MODELS
from gnnsafe.training import EnergyMargin

__all__ = ["AUDIT", "FOLDER", "SEARCH_STEPS", "SearchStep", "Trial", "blind", "settled", "steps_of", "trials"]

FOLDER = "search"  # in the store's


def blind(benchmark: Benchmark) -> Benchmark:
    """The benchmark without its test data.

    ID validation nodes stand for ID test nodes. One half of the exposure nodes, drawn from the seed, is left to learn
    from; the other, held out, stands for OOD test nodes.
    """
    inside = changed(benchmark.id, test_mask=benchmark.id.val_mask)
    exposure = benchmark.exposure
    if exposure is None:  # only the validation loss is read then: nodes told from themselves
        return replace(benchmark, id=inside, ood={"": changed(inside, mask=inside.val_mask)})
    ids = exposure.mask.nonzero().squeeze(1)
    ids = ids[torch.randperm(len(ids), generator=torch.Generator().manual_seed(benchmark.seed))]
    held = torch.zeros_like(exposure.mask)
    held[ids[: len(ids) // 2]] = True
    among = {"test_mask": exposure.val_mask} if "test_mask" in exposure else {}  # planted: ID nodes of the same graph
    unseen = {"exposure": changed(exposure, mask=held, **among)}
    return replace(benchmark, id=inside, exposure=changed(exposure, mask=exposure.mask & ~held), ood=unseen)


@dataclass(frozen=True)
class Trial(CellTask):
    """One value tried, in the cell of seed 0."""

    @property
    def group(self) -> Hashable:
        """Alone: trials are many, and spread over the cores."""
        return self.runs()[0].key

    def benchmark(self) -> Benchmark:
        """No test data, unless they are to choose."""
        whole = super().benchmark()
        return whole if self.cell.selection == "test" else blind(whole)


class SearchStep(NamedTuple):
    """One search: the values that a recipe may take, what is tried of each, and what of its record is to be least."""

    name: str
    values: Callable[[Recipe], list[Recipe]]
    tried: Callable[[Recipe], Recipe]
    loss: Callable[[Record], float]
    text: Callable[[Recipe], str]
    reason: str


def _rates(recipe: Recipe) -> list[Recipe]:
    return [replace(recipe, lr=lr) for lr in paper.LEARNING_RATES]


def _margins(recipe: Recipe) -> list[Recipe]:
    objective = recipe.objective
    if not isinstance(objective, EnergyMargin):
        return []
    grid = [replace(objective, t_in=t_in, t_out=t_out, weight=weight) for t_in, t_out, weight in paper.GRID]
    return [replace(recipe, objective=tried) for tried in grid]


SEARCH_STEPS = (
    SearchStep(
        "lr",
        _rates,
        # whatever scores afterwards: recipes that share a training share its trials
        lambda recipe: Recipe(
            "search",
            recipe.objective,
            MSP(),
            recipe.model,
            code_of(type(recipe.objective), MODELS[recipe.model]),
            recipe.lr,
            {},
        ),
        lambda record: record.val_loss,
        lambda recipe: f"{recipe.lr:g}",
        f"lowest ID validation loss among {', '.join(map(str, paper.LEARNING_RATES))}",
    ),
    SearchStep(
        "margins",
        _margins,
        lambda recipe: replace(recipe, chosen={}),
        lambda record: -record.metrics["auroc"],
        lambda recipe: margins_text(recipe.objective),  # type: ignore[arg-type]
        f"highest AUROC of ID validation against held-out exposure nodes among {len(paper.GRID)}",
    ),
)


AUDIT = (
    SearchStep(
        "lr",
        _rates,
        lambda recipe: replace(recipe, chosen={}),
        lambda record: -record.metrics["auroc"],
        lambda recipe: f"{recipe.lr:g}",
        f"highest AUROC on test data among {', '.join(map(str, paper.LEARNING_RATES))}",
    ),
    SEARCH_STEPS[1]._replace(reason=f"highest AUROC on test data among {len(paper.GRID)}"),
)
"""The same on test data: what choosing there would have gained. For the audit alone."""


def steps_of(plan: Plan) -> tuple[SearchStep, ...]:
    """What is searched for before a plan is run."""
    return AUDIT if plan.selection == "test" else SEARCH_STEPS if plan.search else ()


def trials(work: Iterable[CellTask], step: SearchStep) -> list[Trial]:
    """What has to be tried for these tasks: in the cell of seed 0, for all seeds."""
    found = {
        trial.runs()[0].key: trial
        for task in work
        if task.cell.seed == 0
        for recipe in task.recipes
        for trial in _trials(task, recipe, step)
    }
    return list(found.values())


def _trials(task: CellTask, recipe: Recipe, step: SearchStep) -> list[Trial]:
    known = {field.name: getattr(task, field.name) for field in fields(CellTask)}
    known["folder"] = task.folder / FOLDER
    return [Trial(**{**known, "recipes": [step.tried(value)]}) for value in step.values(recipe)]


def settled(work: Sequence[CellTask], step: SearchStep, records: Iterable[Record]) -> list[CellTask]:
    """The tasks with the values that did best in the trials' records; the first of equals.

    Protocol `paper`: each shift has its own, `rigorous`: the best mean over the data set's shifts. A value of which a
    trial failed is not chosen.
    """
    tried: dict[Hashable, list[float]] = {}
    for record in records:
        if not record.error:
            tried.setdefault(record.key, []).append(step.loss(record))
    losses = {key: fmean(values) for key, values in tried.items()}  # over OOD graphs, where there are several
    found: dict[Hashable, dict[str, list[float]]] = {}
    for task in work:
        if task.cell.seed == 0:
            for recipe in task.recipes:
                keys = [trial.runs()[0].key for trial in _trials(task, recipe, step)]
                shifts = found.setdefault(_search_key(task.cell, recipe), {})
                shifts[task.cell.shift] = [losses.get(key, math.inf) for key in keys]
    return [
        replace(task, recipes=[_chosen(recipe, step, found[_search_key(task.cell, recipe)]) for recipe in task.recipes])
        for task in work
    ]


def _search_key(cell: Cell, recipe: Recipe) -> Hashable:
    shift = cell.shift if cell.protocol == "paper" else ""
    return cell.dataset, cell.backbone, cell.protocol, shift, recipe.name


def _chosen(recipe: Recipe, step: SearchStep, losses: dict[str, list[float]]) -> Recipe:
    values, means = step.values(recipe), [fmean(column) for column in zip(*losses.values(), strict=True)]
    if not values:
        return recipe
    if min(means) == math.inf:
        return replace(recipe, chosen={**recipe.chosen, step.name: f"{step.text(recipe)}, every trial failed"})
    best = values[means.index(min(means))]
    where = f", mean over {', '.join(losses)}" if len(losses) > 1 else ""
    return replace(best, chosen={**recipe.chosen, step.name: f"{step.text(best)}, {step.reason}{where}"})
