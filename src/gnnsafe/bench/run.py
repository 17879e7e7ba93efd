"""Run recipes on a benchmark: each objective is trained once, every method reads its outputs."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from gnnsafe.bench.curves import Curves
from gnnsafe.bench.recipes import Recipe, SelectedBy, code_of
from gnnsafe.bench.trained import TrainedModel, TrainedModels
from gnnsafe.datasets import Benchmark
from gnnsafe.errors import WorkerError
from gnnsafe.graph import fingerprint
from gnnsafe.methods import Method, Propagated
from gnnsafe.metrics import Detection, accuracy, auroc_within, detection
from gnnsafe.models import MODELS
from gnnsafe.outputs import Outputs
from gnnsafe.prepared import prepare
from gnnsafe.training import History, Objective, train

__all__ = ["HIDDEN", "Result", "attempts", "run"]

HIDDEN = 64  # channels, of every backbone in the paper
MOMENTS = 10  # epochs from one look at the test data to the next, where these choose
MOST_CACHED = 8  # trained models: those of one ID graph

Value = TypeVar("Value")
_Scores = tuple[Tensor, dict[str, Tensor], float]


@dataclass(frozen=True)
class Result:
    """One recipe on one OOD graph of one benchmark: what it scored, and how well that tells OOD from ID.

    Wall time in `seconds`: training ("train", with all that an objective makes ready; "epoch", its share), one forward
    pass on every graph ("forward"), fitting and scoring them all ("score"; a forward without edges is paid by the
    first).
    """

    dataset: str
    shift: str
    seed: int
    method: str
    detection: Detection
    accuracy: float
    id_scores: NDArray[np.float32]
    ood_scores: NDArray[np.float32]
    right: NDArray[np.bool_]
    """Of the ID nodes: whether the classifier gives them their class."""
    ood: str = ""
    val_loss: float = math.nan
    """The ID validation loss of the epoch whose weights were scored."""
    epoch: int = -1
    """That epoch, counted from 0."""
    within_degrees: float | None = None
    """AUROC among nodes of equal in- and out-degree."""
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def curves(self) -> Curves:
        """What its scores look like beyond the metrics."""
        return Curves.of(self.id_scores, self.ood_scores, self.right)


def run(benchmark: Benchmark, recipes: Sequence[Recipe], *, epochs: int = 200) -> list[Result]:
    """The recipes' results: two layers, 64 hidden channels, BatchNorm, as in the paper."""
    results: list[Result] = []
    for _, outcome in attempts(benchmark, recipes, epochs=epochs):
        if isinstance(outcome, Exception):
            raise outcome
        results += outcome
    return results


def attempts(
    benchmark: Benchmark,
    recipes: Sequence[Recipe],
    *,
    epochs: int,
    selection: SelectedBy = "validation",
    kept: TrainedModels | None = None,
) -> Iterator[tuple[Recipe, list[Result] | Exception]]:
    """Each recipe with its results, or with what went wrong: one that fails costs no other.

    With selection="test", for the audit alone, they are those of the epoch with the highest test AUROC. Models in
    `kept` are not trained again, and others are added to it.
    """
    if selection == "test":
        yield from _audited(benchmark, recipes, epochs)
        return
    trainings = dict.fromkeys((recipe.model, recipe.objective, recipe.lr) for recipe in recipes)
    outputs = {training: _attempt(_Trained.on, benchmark, *training, epochs, kept) for training in trainings}
    for recipe in recipes:
        yield recipe, _scored(benchmark, recipe, outputs[recipe.model, recipe.objective, recipe.lr])


def _scored(benchmark: Benchmark, recipe: Recipe, trained: _Trained | Exception) -> list[Result] | Exception:
    return trained if isinstance(trained, Exception) else _attempt(_results, benchmark, recipe, trained)


def _audited(
    benchmark: Benchmark, recipes: Sequence[Recipe], epochs: int
) -> Iterator[tuple[Recipe, list[Result] | Exception]]:
    """Every tenth epoch's weights are scored by each of a training's recipes; the best on test data are kept."""
    trainings: dict[tuple[str, Objective, float], list[Recipe]] = {}
    for recipe in recipes:
        trainings.setdefault((recipe.model, recipe.objective, recipe.lr), []).append(recipe)
    for training, group in trainings.items():
        best: dict[str, list[Result] | Exception] = {}
        moments = _attempt(_moments, benchmark, *training, epochs)
        for moment in [moments] if isinstance(moments, Exception) else moments:
            trained = moment if isinstance(moment, Exception) else _attempt(_Trained.of, benchmark, *moment)
            for recipe in group:
                outcome = _scored(benchmark, recipe, trained)
                if recipe.name not in best or _auroc(outcome) > _auroc(best[recipe.name]):
                    best[recipe.name] = outcome
        yield from ((recipe, best[recipe.name]) for recipe in group)


def _auroc(outcome: list[Result] | Exception) -> float:
    return -1.0 if isinstance(outcome, Exception) else fmean(result.detection.auroc for result in outcome)


def _attempt(compute: Callable[..., Value], *arguments: object) -> Value | Exception:
    try:
        return compute(*arguments)
    except Exception as error:
        return error
    except SystemExit as error:  # a method of your own may call it
        return WorkerError(f"it called sys.exit({error.code!r})")


@dataclass(frozen=True)
class _Trained:
    """A trained model's outputs on the ID graph and on the OOD graphs, and how long they took."""

    inside: Outputs
    outside: dict[str, Outputs]
    val_loss: float
    epoch: int
    seconds: dict[str, float]

    scores: dict[str, _Scores] = field(default_factory=dict)
    """What a method gave, by its repr: propagated, it shares the scores with the method alone."""

    @classmethod
    def on(
        cls,
        benchmark: Benchmark,
        name: str,
        objective: Objective,
        lr: float,
        epochs: int,
        kept: TrainedModels | None,
    ) -> _Trained:
        return cls.of(benchmark, *_model(benchmark, name, objective, lr, epochs, kept))

    @classmethod
    def of(
        cls, benchmark: Benchmark, model: nn.Module, val_loss: float, epoch: int, duration: float, epochs: int
    ) -> _Trained:
        """The outputs of a model that was trained so."""
        graph, others = prepare(benchmark.id), {key: prepare(ood) for key, ood in benchmark.ood.items()}
        for one in (graph, *others.values()):  # made ready once: what follows is inference
            Outputs.of(model, one)
        start = perf_counter()
        inside = Outputs.of(model, graph)
        outside = {key: Outputs.of(model, ood) for key, ood in others.items()}
        seconds = {"train": duration, "epoch": duration / epochs, "forward": perf_counter() - start}
        return cls(inside, outside, val_loss, epoch, seconds)

    def scored(self, method: Method, y: Tensor, mask: Tensor) -> _Scores:
        """The method's scores of the ID graph and of each OOD graph, with the seconds they take from the outputs on."""
        if (key := repr(method)) not in self.scores:
            start = perf_counter()
            if isinstance(method, Propagated):
                inside, outside, before = self.scored(method.method, y, mask)
                start = perf_counter() - before
                inside = method.propagation(inside, self.inside.graph.edges)
                outside = {
                    name: method.propagation(scores, self.outside[name].graph.edges) for name, scores in outside.items()
                }
            else:
                method = copy.deepcopy(method).fit(self.inside, y, mask)
                inside = method.score(self.inside)
                outside = {name: method.score(outputs) for name, outputs in self.outside.items()}
            self.scores[key] = inside, outside, perf_counter() - start
        return self.scores[key]


def _model(
    benchmark: Benchmark, name: str, objective: Objective, lr: float, epochs: int, kept: TrainedModels | None
) -> TrainedModel:
    """A trained model; one trained without exposure is the same under every shift that leaves the ID graph alone.

    The last of these are cached, and models of gnnsafe.models, whose weights are all that training changes, are `kept`.
    """
    exposure = benchmark.exposure if objective.needs_exposure else None
    graphs = [graph for graph in (benchmark.id, exposure) if graph is not None]
    key = (name, objective, lr, epochs, benchmark.seed, benchmark.id.x.device, fingerprint(*graphs))
    if key in _cached:
        return _cached[key]
    kept = None if code_of(type(objective), MODELS[name]) else kept
    found = kept and kept.find(key, _fresh(benchmark, name))
    trained = found or _train(benchmark, name, objective, lr, epochs)
    if kept and not found:
        kept.keep(key, trained)
    if exposure is None:  # the next shift has another exposure graph
        _cached[key] = trained
    if len(_cached) > MOST_CACHED:
        del _cached[next(iter(_cached))]
    return trained


def _train(benchmark: Benchmark, name: str, objective: Objective, lr: float, epochs: int) -> TrainedModel:
    start, model = perf_counter(), _fresh(benchmark, name)
    history = _trained(model, benchmark, objective, lr, epochs)
    return TrainedModel(model, min(history.val_loss), history.best_epoch, perf_counter() - start, epochs)


def _fresh(benchmark: Benchmark, name: str) -> nn.Module:
    graph = benchmark.id
    sizes = {"in_channels": graph.num_features, "hidden_channels": HIDDEN, "out_channels": benchmark.num_classes}
    model: nn.Module = MODELS[name](**sizes).to(graph.x.device)
    return model


def _trained(
    model: nn.Module, benchmark: Benchmark, objective: Objective, lr: float, epochs: int, **watch: Any
) -> History:
    settings: dict[str, Any] = {"epochs": epochs, "lr": lr, "seed": benchmark.seed, **watch}
    return train(model, benchmark.id, objective=objective, exposure=benchmark.exposure, **settings)


def _moments(benchmark: Benchmark, name: str, objective: Objective, lr: float, epochs: int) -> Iterator[TrainedModel]:
    """The model as it was at every tenth epoch, the last among them, and at its best on validation nodes."""
    start, model, seen = perf_counter(), _fresh(benchmark, name), {}

    def look(history: History) -> None:
        epoch = len(history.val_loss) - 1
        if epoch % MOMENTS == MOMENTS - 1 or epoch == epochs - 1:
            seen[epoch] = copy.deepcopy(model.state_dict()), history.val_loss[-1]

    history = _trained(model, benchmark, objective, lr, epochs, each_epoch=look)
    duration, best = perf_counter() - start, copy.deepcopy(model.state_dict())
    seen[history.best_epoch] = best, min(history.val_loss)

    def walk() -> Iterator[TrainedModel]:
        for epoch, (weights, loss) in sorted(seen.items()):
            model.load_state_dict(weights)
            yield TrainedModel(model, loss, epoch, duration, epochs)

    return walk()


_cached: dict[Hashable, TrainedModel] = {}


def _results(benchmark: Benchmark, recipe: Recipe, trained: _Trained) -> list[Result]:
    graph = benchmark.id
    inside, outside, duration = trained.scored(recipe.method, graph.y, graph.train_mask)
    apart = inside[graph.test_mask].cpu().numpy(), _right(trained.inside, graph.y)[graph.test_mask].cpu().numpy()
    scores = {name: values.cpu().numpy() for name, values in outside.items()}
    id_degrees = _degrees(trained.inside)[graph.test_mask.cpu().numpy()]
    seconds = {**trained.seconds, "score": duration}
    results = []
    for name, ood in benchmark.ood.items():
        degrees, mask = _degrees(trained.outside[name]), ood.mask.cpu().numpy()
        ood_scores, among_degrees = scores[name][mask], id_degrees
        # ID nodes among which OOD nodes are planted, or the test nodes of a graph apart
        id_scores, right = apart
        if "test_mask" in ood:
            among = ood.test_mask.cpu()
            right = _right(trained.outside[name], ood.y).cpu()[among].numpy()
            id_scores, among_degrees = scores[name][among.numpy()], degrees[among.numpy()]
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
                right,
                name,
                trained.val_loss,
                trained.epoch,
                auroc_within(id_scores, ood_scores, among_degrees, degrees[mask]),
                seconds,
            )
        )
    return results


def _degrees(outputs: Outputs) -> NDArray[np.int64]:
    """A number per node, the same for nodes of equal in- and out-degree."""
    edges = outputs.graph.edges
    both = edges.in_degrees.long() * (outputs.graph.edge_index.shape[1] + 1) + edges.out_degrees.long()
    return np.asarray(both.cpu().numpy())


def _right(outputs: Outputs, y: Tensor) -> Tensor:
    return outputs.logits.argmax(dim=1) == y
