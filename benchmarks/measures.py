"""What is measured: each function yields rows of the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

import gnnsafe
from benchmarks import cases, plain, timing
from benchmarks.timing import Blocks, Machine, Work, in_turns, once, several
from gnnsafe import CrossEntropy, Detector, EnergyMargin, Outputs, metrics, train
from gnnsafe.bench.recipes import demo_recipes
from gnnsafe.bench.run import _cached, run
from gnnsafe.edges import Edges
from gnnsafe.methods import GNNSafe
from gnnsafe.models import GCN, MODELS
from gnnsafe.models.two_layers import FewRows, LastLayer, TwoLayers
from gnnsafe.prepared import prepare
from gnnsafe.regions import reached
from gnnsafe.sparse import Sparse
from gnnsafe.training import Objective

MARGIN = (-5.0, -1.0, 0.1)
EPOCHS = 26  # in a block of our training, of which the first warms up
TARGETS = {
    "training step, cross-entropy": {"Cora": 10, "Photo": 18, "CS": 20, "Twitch": 40, "Arxiv shape": 35},
    "training step, energy margin": {"Cora": 8, "Photo": 12, "CS": 14, "Twitch": 25, "Arxiv shape": 12},
    "scoring, K=2, prepared": {"Cora": 8, "Photo": 14, "CS": 24, "Twitch": 28, "Arxiv shape": 10},
    "scoring, K=2, first call": dict.fromkeys(cases.SHAPES, 2),
    "scoring by PyG's GCN, first call": dict.fromkeys(cases.SHAPES, 0.87),
    "propagation, K=2, first call": {"1e+04 nodes": 1, "1e+05 nodes": 1, "1e+06 nodes": 1.2, "1e+07 nodes": 1.2},
    "propagation, K=16, first call": {"1e+06 nodes": 4, "1e+07 nodes": 4},
    "metrics": {"1e6 scores": 10},
    "backbone on Photo, training step": dict.fromkeys(("jknet", "mixhop", "sgc", "appnp"), 4),
}


@dataclass(frozen=True)
class Row:
    """One line of the table, in seconds."""

    what: str
    where: str
    plain: float | None
    ours: float
    bound: float | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times as fast as plain."""
        return None if self.plain is None else self.plain / self.ours

    @property
    def target(self) -> float | None:
        """The ratio that is wanted."""
        return TARGETS.get(self.what, {}).get(self.where)


def steps(model: nn.Module, case: cases.Case, objective: Objective) -> Blocks:
    """Epochs of `gnnsafe.train`, from one call of the objective to the next: validation and book-keeping included."""
    stamps: list[float] = []

    class Timed(type(objective)):  # type: ignore[misc]
        def begin_epoch(self, model: nn.Module, epoch: int) -> None:
            stamps.append(timing.clock())

    timed = Timed(**vars(objective))

    def block() -> Sequence[float]:
        stamps.clear()
        train(model, case.data, objective=timed, exposure=case.exposure, epochs=EPOCHS)
        return [end - start for start, end in pairwise(stamps[1:])]  # the first epoch warms up

    return block


def training(case: cases.Case, machine: Machine, budget: float) -> Iterator[Row]:
    """A step with its validation pass, by both objectives."""
    features = case.data.x.shape[1]
    margin = EnergyMargin(*MARGIN, isolated="decay")
    for name, objective, settings in (("cross-entropy", CrossEntropy(), None), ("energy margin", margin, MARGIN)):
        reference = plain.Training(plain.GCN(features, case.classes), case.plain_data, case.plain_exposure, settings)
        model = GCN(features, plain.HIDDEN, case.classes)
        times = in_turns([several(reference.step), steps(model, case, objective)], budget=budget)
        inside = both_passes(model, case.data, "train_mask", objective, case.data.val_mask)
        work = step_work(inside, case.classes)
        if settings:
            work = work + step_work(both_passes(model, case.exposure, "mask", objective, None, inside), case.classes)
        yield Row(f"training step, {name}", case.name, *times, machine.bound(work), case.source)


def scoring(case: cases.Case, machine: Machine, budget: float) -> Iterator[Row]:
    """GNNSafe's scores of all nodes: of a prepared graph, of bare data, and beside the forward of a user's model."""
    features = case.data.x.shape[1]
    model, reference = GCN(features, plain.HIDDEN, case.classes).eval(), plain.GCN(features, case.classes).eval()
    method, graph, bare = GNNSafe(isolated="decay"), prepare(case.data), case.plain_data
    detector = Detector(reference, method).fit(bare)

    def forward() -> None:
        with torch.no_grad():
            reference(bare.x, bare.edge_index)

    ways = [
        lambda: plain.scores(reference, bare),
        lambda: method.score(Outputs.of(model, graph)),
        lambda: method.score(Outputs.of(model, case.data)),
        lambda: method.score(Outputs.of(model, bare)),
        forward,
        lambda: detector.score(bare),
    ]
    first, prepared, anew, dense, own, detected = in_turns([several(way) for way in ways], budget=budget)
    bound = machine.bound(scoring_work(model, case.data))
    yield Row("scoring, K=2, prepared", case.name, first, prepared, bound, case.source)
    yield Row("scoring, K=2, first call", case.name, first, anew, bound, "bare data")
    if case.data.x.layout != torch.strided:
        yield Row("scoring, K=2, first call, x dense", case.name, first, dense, bound, "bare data")
    yield Row("scoring by PyG's GCN, first call", case.name, own, detected, None, "plain is the model's forward alone")


def backbones(budget: float) -> Iterator[Row]:
    """Other backbones' training steps on Photo."""
    case = cases.case("Photo")
    features = case.data.x.shape[1]
    for name in ("jknet", "mixhop", "sgc", "appnp"):
        reference = plain.Training(plain.MODELS[name](features, case.classes), case.plain_data)
        model = MODELS[name](features, plain.HIDDEN, case.classes)
        times = in_turns([several(reference.step), steps(model, case, CrossEntropy())], budget=budget)
        yield Row("backbone on Photo, training step", name, *times, None, case.source)


def propagation(nodes: int, machine: Machine, budget: float) -> Iterator[Row]:
    """Steps along 15 edges a node: of edges that are seen for the first time, and of prepared ones."""
    index = cases.random_edges(nodes, 15 * nodes).long()
    scores, edges, where = torch.rand(nodes), Edges(index, nodes), f"{nodes:.0e} nodes"
    edges.mean(isolated="decay")
    for steps in (2, 16):
        ways = [
            lambda: plain.summed(scores, index, steps),  # noqa: B023
            lambda: gnnsafe.propagate(scores, index, steps=steps, isolated="decay"),  # noqa: B023
            lambda: gnnsafe.propagate(scores, edges, steps=steps, isolated="decay"),  # noqa: B023
        ]
        reference, first, again = in_turns([once(way) for way in ways], budget=budget, most=10, warm=nodes < 10**7)
        work = Work(steps * (15 * nodes * 8 + 2 * nodes * 4), steps * 2 * 15 * nodes)
        yield Row(f"propagation, K={steps}, first call", where, reference, first)
        yield Row(f"propagation, K={steps}, prepared", where, reference, again, machine.bound(work))


def detection(budget: float) -> Iterator[Row]:
    """AUROC, AUPR and FPR95 against scikit-learn's three calls; ours gives AUPR and FPR95 both ways."""
    rng = np.random.default_rng(0)
    for size in (3000, 10**6):
        inside, outside = (rng.normal(mean, size=size // 2).astype(np.float32) for mean in (0.0, 1.0))  # as scores are
        ways = [lambda: plain.detection(inside, outside), lambda: metrics.detection(inside, outside)]  # noqa: B023
        yield Row(
            "metrics", f"{size:.0e}".replace("+0", "") + " scores", *in_turns([several(w) for w in ways], budget=budget)
        )


def cell(epochs: int) -> Iterator[Row]:
    """A whole cell of `gnnsafe bench` on Cora: two trainings, four methods, metrics."""
    dataset, shift = cases.NAMES["Cora"]
    try:
        benchmark = gnnsafe.load_benchmark(dataset, shift=shift, root=cases.ROOT)
    except OSError:
        benchmark = gnnsafe.load_benchmark("synthetic", shift=shift, nodes=2708, edges=10_556, features=1433, classes=7)
    graph, ood = benchmark.id, benchmark.ood[shift]

    def ours() -> None:
        _cached.clear()  # trained models that a study would find again
        run(benchmark, [r for r in demo_recipes(shift) if "keep" not in r.name], epochs=epochs)

    def reference(every_epoch: bool) -> None:
        for settings in (None, MARGIN):
            model = plain.GCN(graph.x.shape[1], benchmark.num_classes)

            def evaluate(model: nn.Module = model) -> None:
                inside, outside = (plain.scores(model, g).numpy() for g in (graph, ood))
                plain.detection(inside[graph.test_mask.numpy()], outside)

            training = plain.Training(model, graph, benchmark.exposure, settings)
            plain.trained(training, epochs, evaluate if every_epoch else lambda: None)
            evaluate()

    ways = [once(lambda: reference(False)), once(lambda: reference(True)), once(ours)]
    once_, every, fast = in_turns(ways, budget=0)
    yield Row("bench cell, Cora", f"{epochs} epochs", once_, fast)
    yield Row("bench cell, Cora", "metrics every epoch in plain", every, fast, None, "as the published runs do")


def _sparse(matrix: Sparse, columns: int) -> Work:
    rows, width = matrix.csr.shape
    entries = matrix.csr.values().numel()
    return Work(8 * entries + 4 * (rows + width) * columns, 2 * entries * columns)


def _dense(m: int, k: int, n: int) -> Work:
    return Work(4 * (m * k + k * n + m * n), 2 * m * k * n)


def _product(features: Any, aggregated: int, adjacency: Sparse) -> Work:
    own = _sparse(features, plain.HIDDEN) if isinstance(features, Sparse) else _dense(*features.shape, plain.HIDDEN)
    return own if aggregated else own + _sparse(adjacency, plain.HIDDEN)


def _first_layer(inputs: Any, *, lent: bool = False) -> Work:
    if lent:
        return _sparse(inputs.adjacency, plain.HIDDEN)
    return _product(
        *((inputs.features, inputs.aggregated) if inputs.bag is None else (inputs.bag, 0)), inputs.adjacency
    )


def both_passes(
    model: GCN, graph: Any, mask: str, objective: Objective, validation: Any, beside: TwoLayers | None = None
) -> TwoLayers:
    """The passes that training by that objective takes."""
    rows = reached(graph.edge_index.flip(0), getattr(graph, mask), objective.reach() or 0).nonzero().squeeze(1)
    val = torch.empty(0, dtype=torch.int64) if validation is None else validation.nonzero().squeeze(1)
    return TwoLayers(model, prepare(graph), rows, val, beside)


def step_work(passes: TwoLayers, classes: int) -> Work:
    """Forward and backward of the rows that are read; for the bound, each operand is moved once."""
    read, there = passes.rows, _last_layer(passes.last, classes)
    if isinstance(read, FewRows):
        (all_rows, features), some = read.features.shape, passes.last.adjacency.csr.shape[1]
        first = _dense(all_rows, features, plain.HIDDEN) + _dense(some, features, plain.HIDDEN)
        first = first + _dense(features, features, plain.HIDDEN)
    else:
        back = _product(read.inputs.features, read.inputs.aggregated, read.inputs.adjacency)
        first = _first_layer(read.inputs, lent=read.lender is not None) + back
    product = _dense(passes.last.products, plain.HIDDEN, classes)  # one there, two back
    return first + there + there + product + _last_layer(passes.last_in_validation, classes)


def _last_layer(layer: LastLayer, classes: int) -> Work:
    columns = plain.HIDDEN if layer.hears_first else classes
    return _sparse(layer.adjacency, columns) + _dense(layer.products, plain.HIDDEN, classes)


def scoring_work(model: GCN, graph: Any) -> Work:
    """One forward pass on all rows and two products with a vector."""
    graph = prepare(graph)
    inputs, adjacency = model.prepare(graph), graph.edges.convolution()
    nodes, classes = graph.num_nodes, model.biases[0].numel()
    last = _dense(nodes, plain.HIDDEN, classes) + _sparse(adjacency, classes)
    return _first_layer(inputs) + last + _sparse(adjacency, 1) + _sparse(adjacency, 1)
