"""Run recipes on a benchmark: each objective is trained once, every method reads its outputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnsafe.bench.recipes import Recipe
from gnnsafe.datasets import Benchmark
from gnnsafe.metrics import Detection, accuracy, detection
from gnnsafe.models import GCN
from gnnsafe.outputs import Outputs
from gnnsafe.training import Objective, train

__all__ = ["Result", "Summary", "run", "summaries"]


@dataclass(frozen=True)
class Result:
    """One recipe on one OOD graph of one benchmark: what it scored, and how well that tells OOD from ID."""

    dataset: str
    shift: str
    seed: int
    method: str
    detection: Detection
    accuracy: float
    id_scores: NDArray[np.float32]
    ood_scores: NDArray[np.float32]


def run(benchmark: Benchmark, recipes: Sequence[Recipe], *, epochs: int = 200) -> list[Result]:
    """The recipes' results with the paper's GCN: two layers, 64 hidden channels, BatchNorm."""
    objectives = dict.fromkeys(recipe.objective for recipe in recipes)
    outputs = {objective: _outputs(benchmark, objective, epochs) for objective in objectives}
    return [result for recipe in recipes for result in _results(benchmark, recipe, *outputs[recipe.objective])]


def _outputs(benchmark: Benchmark, objective: Objective, epochs: int) -> tuple[Outputs, dict[str, Outputs]]:
    model = GCN(benchmark.id.num_features, 64, benchmark.num_classes)
    train(model, benchmark.id, objective=objective, exposure=benchmark.exposure, epochs=epochs, seed=benchmark.seed)
    return Outputs.of(model, benchmark.id), {name: Outputs.of(model, ood) for name, ood in benchmark.ood.items()}


def _results(benchmark: Benchmark, recipe: Recipe, inside: Outputs, outside: dict[str, Outputs]) -> Iterable[Result]:
    graph = benchmark.id
    method = recipe.method.fit(inside, graph.y, graph.train_mask)
    apart = method.score(inside)[graph.test_mask].numpy()
    for name, ood in benchmark.ood.items():
        scores = method.score(outside[name]).numpy()
        ood_scores = scores[ood.mask.numpy()]
        id_scores = scores[ood.test_mask.numpy()] if "test_mask" in ood else apart  # planted among ID nodes, or apart
        yield Result(
            benchmark.name,
            benchmark.shift,
            benchmark.seed,
            recipe.name,
            detection(id_scores, ood_scores),
            accuracy(inside.logits, graph.y, graph.test_mask),
            id_scores,
            ood_scores,
        )


@dataclass(frozen=True)
class Summary:
    """One method under one shift over all seeds: mean and standard deviation (none from one seed) in percent."""

    dataset: str
    shift: str
    method: str
    seeds: int
    metrics: dict[str, tuple[float, float | None]]


def summaries(results: Iterable[Result]) -> list[Summary]:
    """Results grouped by data set, shift and method, in the order in which these first appear."""
    groups: dict[tuple[str, str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.dataset, result.shift, result.method), []).append(result)
    return [Summary(*key, len({r.seed for r in group}), _spread(group)) for key, group in groups.items()]


def _spread(group: list[Result]) -> dict[str, tuple[float, float | None]]:
    columns: dict[str, list[Any]] = {
        name: [100 * getattr(result.detection, name) for result in group] for name in Detection._fields
    }
    columns["accuracy"] = [100 * result.accuracy for result in group]
    return {name: (mean(values), stdev(values) if len(values) > 1 else None) for name, values in columns.items()}
