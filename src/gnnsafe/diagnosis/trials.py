"""Trouble planted into a graph, and every candidate's try at finding it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from gnnsafe.datasets import shifts
from gnnsafe.diagnosis.candidates import Contenders
from gnnsafe.diagnosis.new_classes import class_left_out, possible_classes
from gnnsafe.errors import InputError, require
from gnnsafe.graph import Data, changed, edge_attributes, node_labels, node_mask
from gnnsafe.metrics import detection
from gnnsafe.outputs import Outputs
from gnnsafe.prepared import check_graph
from gnnsafe.progress import progress

__all__ = ["NEW_CLASSES", "TROUBLE", "Ask", "Figures", "planted", "ready", "tried"]

NEW_CLASSES = "new classes"

Ask = Callable[[Data], Outputs]
Figures = dict[str, dict[str, list[float]]]
"""AUROC by candidate and kind of trouble, trial by trial."""

TROUBLE: dict[str, dict[str, Callable[..., Data]]] = {
    "scattered nodes": {
        "feature": partial(shifts.planted, kind="feature"),
        "structure": partial(shifts.planted, kind="structure"),
    },
    "regions": {
        "feature": partial(shifts.planted, kind="feature", clustered=True),
        "structure": partial(shifts.planted, kind="structure", clustered=True),
    },
    "whole graph": {
        "feature": partial(shifts.feature, test_nodes="id-test"),
        "structure": partial(shifts.rewire, test_nodes="id-test"),
    },
}
"""The kinds of trouble that change the graph, and what of it they change."""


@dataclass(frozen=True)
class PlantedCase:
    """One try: who looks (as they were fitted for it), at which outputs, and which nodes are the ID and OOD ones."""

    contenders: Contenders
    outputs: Outputs
    outside: Tensor
    inside: Tensor | None
    """None: the test nodes of the graph as it was before the trouble."""


def ready(data: Data) -> Data:
    """The graph, once it and its masks are known to be such, its test nodes those that are in no other mask.

    Without a test mask these are all such nodes. An empty `val_mask` is none.
    """
    check_graph(data)
    seen, validation = node_mask(data, "train_mask"), getattr(data, "val_mask", None)
    if isinstance(validation, Tensor) and not validation.any():
        data = changed(data, val_mask=None)
    elif validation is not None:
        seen = seen | node_mask(data, "val_mask")
    test = ~seen if getattr(data, "test_mask", None) is None else node_mask(data, "test_mask") & ~seen
    rule = "hold at least two nodes, one to plant trouble in and one to leave alone, that are in no other mask"
    require(int(test.sum()) > 1, "test_mask", rule, int(test.sum()))
    return changed(data, test_mask=test)


def tried(
    contenders: Contenders, ask: Ask, data: Data, outputs: Outputs, *, draws: int, seed: int
) -> tuple[Figures, dict[str, tuple[str, ...]], dict[str, str]]:
    """How well each contender finds each kind of trouble, the names of the trials, and what could not be tried."""
    plan, untried = _plan(contenders, ask, data, outputs, draws, seed)
    clean = contenders.scores(outputs)
    found: Figures = {name: {} for name in clean}
    names: dict[str, tuple[str, ...]] = {}
    with progress("Planting trouble", len(plan)) as advance:
        for kind, name, make in plan:
            try:
                figures = _figures(make, clean, data)  # one planted graph at a time: it dies with this call
            except InputError as error:
                if kind != NEW_CLASSES:
                    raise
                untried[f"{kind}, {name}"] = str(error)
                continue
            finally:
                advance()
            names[kind] = (*names.get(kind, ()), name)
            for candidate, figure in figures.items():
                found[candidate].setdefault(kind, []).append(figure)
    return found, names, untried


Cases = list[tuple[str, str, Callable[[], PlantedCase]]]


def _plan(
    contenders: Contenders, ask: Ask, data: Data, outputs: Outputs, draws: int, seed: int
) -> tuple[Cases, dict[str, str]]:
    untried: dict[str, str] = {}
    classes, why = possible_classes(outputs, data.test_mask, seed)
    if why:
        untried[NEW_CLASSES] = why
    plan: Cases = [(NEW_CLASSES, f"class {c}", partial(_new_class, contenders, outputs, c, data)) for c in classes]
    if bound := sorted([*edge_attributes(data), *(name for name in ("adj", "adj_t") if hasattr(data, name))]):
        untried["structure"] = f"data.{bound[0]} belongs to the edges, and new edges have none"
    for kind, shifted in TROUBLE.items():
        for what in [name for name in shifted if name not in untried]:
            plan += [
                (kind, f"{what} {draw}", partial(_shifted, contenders, ask, data, kind, what, seed + draw))
                for draw in range(draws)
            ]
    return plan, untried


def _new_class(contenders: Contenders, outputs: Outputs, number: int, data: Data) -> PlantedCase:
    y, without = node_labels(outputs.graph), class_left_out(outputs, number)
    known = data.test_mask & (y >= 0) & (y < outputs.logits.shape[1])
    return PlantedCase(contenders.refitted(without), without, known & (y == number), known & (y != number))


def _shifted(contenders: Contenders, ask: Ask, data: Data, kind: str, what: str, seed: int) -> PlantedCase:
    graph = planted(kind, what, data, seed)
    return PlantedCase(contenders, ask(graph), graph.mask, getattr(graph, "test_mask", None))


def planted(kind: str, what: str, data: Data, seed: int) -> Data:
    """A graph in that trouble: a tenth of all nodes, or half of the test nodes where that is fewer, or every node."""
    if kind == "whole graph":
        return TROUBLE[kind][what](data, seed)
    return TROUBLE[kind][what](data, seed, share=min(0.1, 0.5 * float(data.test_mask.double().mean())))


def _figures(make: Callable[[], PlantedCase], clean: dict[str, Tensor], data: Data) -> dict[str, float]:
    trial = make()
    scores = trial.contenders.scores(trial.outputs)
    return {name: _auroc(values, clean[name], trial, data) for name, values in scores.items()}


def _auroc(scores: Tensor, clean: Tensor, trial: PlantedCase, data: Data) -> float:
    inside = clean[data.test_mask] if trial.inside is None else scores[trial.inside]
    return detection(inside, scores[trial.outside]).auroc
