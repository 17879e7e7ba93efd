"""Who is tried: the detector's own score with more and less propagation, and other methods.

A method that weighs evidence by the graph as a whole, such as TwoScale, has propagated what is worth it: of such a
detector only the score as it is is tried, beside all others.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from gnnsafe.errors import InputError, require, require_known
from gnnsafe.graph import node_labels, node_mask
from gnnsafe.methods import KNN, METHODS, Energy, GNNSafe, Method, Propagated
from gnnsafe.methods.scored import base_scores_of
from gnnsafe.outputs import Outputs
from gnnsafe.propagation import Propagation, diffused

__all__ = ["CANDIDATES", "Contenders", "contenders"]

DEPTHS = (1, 2, 4, 8, 16)
ALPHAS = (0.9, 0.5, 0.1)
CANDIDATES: tuple[Method | str, ...] = (
    "two-scale", "energy", *(Propagated(Energy(), steps) for steps in DEPTHS), "msp", "agreement", "edge-disagreement",
    "knn", Propagated(KNN()), Propagated(KNN(), steps=8), "mahalanobis", "diffused-knn", "mean-cosine",
)  # fmt: skip


class Contenders:
    """A fitted method, whose score is tried with all kinds of propagation where that may help, and its fitted rivals.

    `usual` is the method's own propagation, its steps and alpha.
    """

    def __init__(self, method: Method, rivals: dict[str, Method], usual: tuple[int, float]) -> None:
        self.method, self.usual = method, usual
        others = () if _weighs(method) else ((0, 0.5), *((steps, alpha) for steps in DEPTHS for alpha in ALPHAS))
        grid = {usual, *others}
        self.own = {_name(method, *how): how for how in sorted(grid, key=lambda how: (how[0], -how[1]))}
        self.rivals = {name: rival for name, rival in rivals.items() if name not in self.own}

    @property
    def default(self) -> str:
        """The name of the method as it is."""
        return _name(self.method, *self.usual)

    def methods(self) -> dict[str, Method]:
        """What each name stands for, as a method that a detector can be made with; own scores come first."""
        return {name: _propagated(self.method, *how) for name, how in self.own.items()} | self.rivals

    def refitted(self, outputs: Outputs) -> Contenders:
        """The same contenders, having seen these outputs alone."""
        rivals = {name: _fitted(rival, outputs) for name, rival in self.rivals.items()}
        return Contenders(_fitted(self.method, outputs), rivals, self.usual)

    def scores(self, outputs: Outputs) -> dict[str, Tensor]:
        """The scores of all on one graph; each step of propagation is made once."""
        edges, isolated = outputs.graph.edges, _propagation(self.method).isolated
        before = base_scores_of(self.method, outputs) if _propagates(self.method) else self.method.score(outputs)
        scores, reached = {}, dict.fromkeys((alpha for _, alpha in self.own.values()), (before, 0))
        for name, (steps, alpha) in self.own.items():
            values, done = reached[alpha]
            scores[name] = diffused(values, edges, steps=steps - done, alpha=alpha, isolated=isolated)
            reached[alpha] = scores[name], steps
        return scores | self._rival_scores(outputs)

    def _rival_scores(self, outputs: Outputs) -> dict[str, Tensor]:
        scores: dict[str, Tensor] = {}
        alone: dict[str, Tensor] = {}  # by settings, so that one method with several propagations is scored once
        for name, rival in self.rivals.items():
            within = _within(rival)
            before = alone.get(repr(within))
            alone[repr(within)] = before = within.score(outputs) if before is None else before
            scores[name] = before if within is rival else rival.propagation(before, outputs.graph.edges)
        return scores


def contenders(
    method: Method, candidates: Sequence[Method | str], outputs: Outputs
) -> tuple[Contenders, dict[str, str]]:
    """A fitted method and the candidates, fitted, except for what the method is itself; and why some cannot be."""
    listed = isinstance(candidates, Sequence) and not isinstance(candidates, str)
    require(listed, "candidates", "be a list of methods or their names", repr(candidates))
    usual = _propagation(method)
    alone = Contenders(method, {}, (usual.steps, usual.alpha if usual.steps else 0.5))
    found: dict[str, Method] = {}
    left_out: dict[str, str] = {}
    for given in candidates:
        name, candidate = _named(given)
        if name in alone.own:
            continue
        try:
            found[name] = _fitted(candidate, outputs)
            found[name].score(outputs)
        except InputError as error:
            found.pop(name, None)
            left_out[name] = str(error)
    return Contenders(method, found, alone.usual), left_out


def _named(given: object) -> tuple[str, Method]:
    """A candidate and its name: that of its kind and its steps where all else is as usual, or its settings."""
    if isinstance(given, Method):
        plain = next((name for name, kind in METHODS.items() if kind is type(_within(given))), None)
        usual = plain is not None and _within(given) == METHODS[plain]()
        return _name(given, *_settings(given)) if usual and isinstance(given, Propagated) else repr(given), given
    require(isinstance(given, str), "candidates", "be methods or their names", repr(given))
    require_known("candidates", given, METHODS)
    name = str(given)
    return name, METHODS[name]()


def _fitted(method: Method, outputs: Outputs) -> Method:
    y, mask = node_labels(outputs.graph, outputs.task), node_mask(outputs.graph, "train_mask")
    return copy.deepcopy(method).fit(outputs, y, mask)


def _settings(method: Any) -> tuple[int, float]:
    return method.steps, method.alpha


def _within(method: Method) -> Method:
    """The method whose score is propagated."""
    return method.method if isinstance(method, Propagated) else method


def _name(method: Method, steps: int, alpha: float) -> str:
    """What a method's score is called when it is propagated so."""
    within = _within(method)
    known = next((name for name, kind in METHODS.items() if kind is type(within)), type(within).__name__)
    base = "energy" if isinstance(method, GNNSafe) else known
    own_steps = within is method and not isinstance(method, GNNSafe) and _propagates(method)
    name = f"{base} K={steps}" if steps or own_steps else base
    return name if steps == 0 or alpha == 0.5 else f"{name} α={alpha:g}"


def _propagated(method: Any, steps: int, alpha: float) -> Method:
    """The method, propagated so instead of as it is."""
    made: Method = method
    if not _propagates(method):
        return Propagated(made, steps, alpha) if steps else made
    if hasattr(method, "alpha"):
        made = replace(method, steps=steps, alpha=alpha)
    else:
        made = replace(method, steps=steps if alpha == 0.5 else 0)
    return made if hasattr(method, "alpha") or alpha == 0.5 else Propagated(made, steps, alpha)


def _weighs(method: Method) -> bool:
    """Whether it weighs what it knows of each node by the graph as a whole."""
    return type(method).for_graph is not Method.for_graph


def _propagates(method: Method) -> bool:
    """Whether its settings say how many steps its scores are propagated."""
    return type(method).propagation is not Method.propagation and hasattr(method, "steps")


def _propagation(method: Method) -> Propagation:
    """How its scores are propagated, where its settings say so; else none can be taken from them."""
    return method.propagation if _propagates(method) else Propagation()
