"""Run recipes on a benchmark: each objective is trained once, every method reads its outputs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gnnsafe.bench.recipes import Recipe
from gnnsafe.datasets import Benchmark
from gnnsafe.metrics import Detection, accuracy, detection
from gnnsafe.models import MODELS
from gnnsafe.outputs import Outputs
from gnnsafe.training import Objective, train

__all__ = ["HIDDEN", "Result", "attempts", "run"]

HIDDEN = 64  # channels, of every backbone in the paper

Value = TypeVar("Value")


@dataclass(frozen=True)
class Result:
    """One recipe on one OOD graph of one benchmark: what it scored, and how well that tells OOD from ID.

    Wall time in `seconds`: training ("train"; "epoch", each), one forward on every graph, fitting and scoring them.
    """

    dataset: str
    shift: str
    seed: int
    method: str
    detection: Detection
    accuracy: float
    id_scores: NDArray[np.float32]
    ood_scores: NDArray[np.float32]
    ood: str = ""
    seconds: dict[str, float] = field(default_factory=dict)


def run(benchmark: Benchmark, recipes: Sequence[Recipe], *, epochs: int = 200) -> list[Result]:
    """The recipes' results: two layers, 64 hidden channels, BatchNorm, as in the paper."""
    results: list[Result] = []
    for _, outcome in attempts(benchmark, recipes, epochs=epochs):
        if isinstance(outcome, Exception):
            raise outcome
        results += outcome
    return results


def attempts(
    benchmark: Benchmark, recipes: Sequence[Recipe], *, epochs: int
) -> Iterator[tuple[Recipe, list[Result] | Exception]]:
    """Each recipe with its results, or with what went wrong: one that fails costs no other."""
    trainings = dict.fromkeys((recipe.model, recipe.objective) for recipe in recipes)
    outputs = {training: _attempt(_Trained.on, benchmark, *training, epochs) for training in trainings}
    for recipe in recipes:
        trained = outputs[recipe.model, recipe.objective]
        if isinstance(trained, Exception):
            yield recipe, trained
        else:
            yield recipe, _attempt(_results, benchmark, recipe, trained)


def _attempt(compute: Callable[..., Value], *arguments: object) -> Value | Exception:
    try:
        return compute(*arguments)
    except Exception as error:
        return error


@dataclass(frozen=True)
class _Trained:
    """A trained model's outputs on the ID graph and on the OOD graphs, and how long they took."""

    inside: Outputs
    outside: dict[str, Outputs]
    seconds: dict[str, float]

    @classmethod
    def on(cls, benchmark: Benchmark, name: str, objective: Objective, epochs: int) -> _Trained:
        graph, start = benchmark.id, perf_counter()
        model = MODELS[name](graph.num_features, HIDDEN, benchmark.num_classes)
        train(model, graph, objective=objective, exposure=benchmark.exposure, epochs=epochs, seed=benchmark.seed)
        trained = perf_counter()
        inside, outside = Outputs.of(model, graph), {key: Outputs.of(model, ood) for key, ood in benchmark.ood.items()}
        seconds = {"train": trained - start, "epoch": (trained - start) / epochs, "forward": perf_counter() - trained}
        return cls(inside, outside, seconds)


def _results(benchmark: Benchmark, recipe: Recipe, trained: _Trained) -> list[Result]:
    graph, start = benchmark.id, perf_counter()
    method = copy.deepcopy(recipe.method).fit(trained.inside, graph.y, graph.train_mask)
    apart = method.score(trained.inside)[graph.test_mask].numpy()
    scores = {name: method.score(outputs).numpy() for name, outputs in trained.outside.items()}
    seconds = {**trained.seconds, "score": perf_counter() - start}
    results = []
    for name, ood in benchmark.ood.items():
        ood_scores = scores[name][ood.mask.numpy()]
        # ID nodes among which OOD nodes are planted, or the test nodes of a graph apart
        id_scores = scores[name][ood.test_mask.numpy()] if "test_mask" in ood else apart
        results.append(
            Result(
                benchmark.name,
                benchmark.shift,
                benchmark.seed,
                recipe.name,
                detection(id_scores, ood_scores),
                accuracy(trained.inside.logits, graph.y, graph.test_mask),
                id_scores,
                ood_scores,
                name,
                seconds,
            )
        )
    return results
