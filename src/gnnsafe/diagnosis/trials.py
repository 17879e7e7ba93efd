"""Shifts planted into a graph, and every candidate's try at finding them."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor

from gnnsafe.datasets import shifts
from gnnsafe.diagnosis.result import Candidate
from gnnsafe.errors import InputError, require_known
from gnnsafe.graph import Data, changed, node_labels, node_mask
from gnnsafe.methods import METHODS, GNNSafe, Method, Propagated
from gnnsafe.metrics import detection
from gnnsafe.outputs import Outputs
from gnnsafe.propagation import diffused

__all__ = ["SHIFTS", "Ask", "fitted", "planted", "progress", "ready", "tried"]

STEPS = (1, 2, 4, 8, 16)
ALPHAS = (0.9, 0.5, 0.1)
PATIENCE = 2.0  # seconds before progress is shown

Ask = Callable[[Data], Outputs]

SHIFTS: dict[str, Callable[..., Data]] = {
    "feature, scattered": partial(shifts.planted, kind="feature"),
    "feature, clustered": partial(shifts.planted, kind="feature", clustered=True),
    "feature, whole graph": partial(shifts.feature, test_nodes="id-test"),
    "structure, scattered": partial(shifts.planted, kind="structure"),
    "structure, clustered": partial(shifts.planted, kind="structure", clustered=True),
    "structure, whole graph": partial(shifts.rewire, test_nodes="id-test"),
}


def ready(data: Data) -> Data:
    """Dense features, which shifts need, and a test mask: without one, all nodes that have taught nothing."""
    values: dict[str, Any] = {} if data.x.layout == torch.strided else {"x": data.x.to_dense()}
    if getattr(data, "test_mask", None) is None:
        masks = [getattr(data, name, None) for name in ("train_mask", "val_mask")]
        seen = torch.stack([torch.zeros(data.x.shape[0], dtype=torch.bool), *(m for m in masks if m is not None)])
        values["test_mask"] = ~seen.any(dim=0)
    return changed(data, **values)


def fitted(
    candidates: Sequence[Method | str], method: Method, outputs: Outputs
) -> tuple[dict[str, Method], dict[str, str]]:
    """The candidates by their names, fitted, but for what `method` is itself; and why some cannot be."""
    y, mask = node_labels(outputs.graph, outputs.task), node_mask(outputs.graph, "train_mask")
    found: dict[str, Method] = {}
    left_out: dict[str, str] = {}
    for given in candidates:
        if isinstance(given, str):
            require_known("candidates", given, METHODS)
        name = given if isinstance(given, str) else repr(given)
        if name == _base(method):
            continue
        candidate = METHODS[given]() if isinstance(given, str) else copy.deepcopy(given)
        try:
            candidate.fit(outputs, y, mask).score(outputs)
            found[name] = candidate
        except InputError as error:
            left_out[name] = str(error)
    return found, left_out


def tried(
    method: Method, rivals: Mapping[str, Method], ask: Ask, outputs: Outputs, *, draws: int, seed: int
) -> tuple[tuple[Candidate, ...], tuple[Candidate, ...], dict[str, str]]:
    """The method's own score with all kinds of propagation, its rivals, and the shifts that could not be planted."""
    data, base, untried = outputs.graph, _base(method), {}
    names = list(SHIFTS)
    kept = {*getattr(data, "edge_attrs", list)(), *(name for name in ("adj", "adj_t") if hasattr(data, name))}
    if bound := sorted(kept - {"edge_index"}):
        untried["structure"] = f"data.{bound[0]} belongs to the edges, and new edges have none"
        names = [name for name in names if not name.startswith("structure")]
    clean = _scores(method, rivals, outputs)
    found: dict[str, dict[str, list[float]]] = {name: {trouble: [] for trouble in names} for name in clean}
    with progress("Planting shifts", len(names) * draws) as advance:
        for trouble in names:
            for draw in range(draws):
                graph = planted(trouble, data, seed + draw)
                scores = _scores(method, rivals, ask(graph))
                for name in scores:
                    found[name][trouble].append(_auroc(scores[name], clean[name], graph, data))
                advance()
    own = tuple(Candidate(_name(base, *how), found[_name(base, *how)], *how) for how in _settings())
    return own, tuple(Candidate(name, found[name]) for name in rivals), untried


def planted(trouble: str, data: Data, seed: int) -> Data:
    """A graph in that trouble: a tenth of all nodes, or half of the test nodes where that is fewer, or every node."""
    if trouble.endswith("whole graph"):
        return SHIFTS[trouble](data, seed)
    return SHIFTS[trouble](data, seed, share=min(0.1, 0.5 * float(data.test_mask.double().mean())))


def _auroc(scores: Tensor, clean: Tensor, graph: Data, data: Data) -> float:
    """Planted nodes against the ID test nodes of the same graph; a whole graph's against those of the original."""
    among = getattr(graph, "test_mask", None)
    inside = clean[data.test_mask] if among is None else scores[among]
    return detection(inside, scores[graph.mask]).auroc


def _settings() -> Iterator[tuple[int, float]]:
    """No propagation, then more and more of it."""
    yield 0, 0.5
    yield from ((steps, alpha) for steps in STEPS for alpha in ALPHAS)


def _name(base: str, steps: int, alpha: float) -> str:
    name = base if steps == 0 else f"{base} K={steps}"
    return name if steps == 0 or alpha == 0.5 else f"{name} α={alpha:g}"


def _base(method: Method) -> str:
    """What the method's score is called before it is propagated."""
    if isinstance(method, GNNSafe):
        return "energy"
    within = method.method if isinstance(method, Propagated) else method
    name = next((name for name, known in METHODS.items() if known is type(within)), type(within).__name__)
    return f"{name}, unpropagated" if within is method and hasattr(method, "steps") else name


def _scores(method: Method, rivals: Mapping[str, Method], outputs: Outputs) -> dict[str, Tensor]:
    """The scores of all candidates on one graph; each step of propagation is made once."""
    before, edges, base = method.unpropagated(outputs), outputs.graph.edge_index, _base(method)
    scores = {_name(base, 0, 0.5): before.scores}
    for alpha in ALPHAS:
        values, done = before.scores, 0
        for steps in STEPS:
            values = diffused(values, edges, steps=steps - done, alpha=alpha, isolated=before.isolated)
            scores[_name(base, steps, alpha)], done = values, steps
    return scores | {name: rival.score(outputs) for name, rival in rivals.items()}


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[], None]]:
    """A call for every step done; a bar on a terminal, once the work has taken a while."""
    console = Console(stderr=True)
    bar = Progress(console=console, transient=True, disable=not console.is_terminal)
    task, start = bar.add_task(title, total=total), time.monotonic()

    def advance() -> None:
        bar.advance(task)
        if time.monotonic() - start > PATIENCE:
            bar.start()

    try:
        yield advance
    finally:
        bar.stop()
