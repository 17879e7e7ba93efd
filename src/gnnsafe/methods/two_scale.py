"""TwoScale: a node's own oddness and its surroundings', weighed by what the graph as a whole looks like."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from gnnsafe.errors import require
from gnnsafe.graph import node_mask
from gnnsafe.methods.base import Method, fitted
from gnnsafe.methods.centred_cosine import CentredCosine
from gnnsafe.methods.diffused_knn import DiffusedKNN
from gnnsafe.methods.energy import Energy
from gnnsafe.methods.evidence import rarity, surroundings_weight
from gnnsafe.methods.mahalanobis import Mahalanobis
from gnnsafe.methods.out_of_place import OutOfPlace
from gnnsafe.methods.propagated import Propagated
from gnnsafe.outputs import Outputs
from gnnsafe.scores import saturated

__all__ = ["TwoScale"]

BANK = 2000  # training nodes that a node is compared with
ENOUGH = 20  # calibration nodes with neighbours, to be compared with them alone


def _own() -> tuple[Method, ...]:
    """Is the node itself odd, among its neighbours?"""
    return OutOfPlace(), CentredCosine(), OutOfPlace("embedding"), DiffusedKNN(2, steps=0, bank=BANK)


def _surroundings() -> tuple[Method, ...]:
    """Is the region odd that it stands in?"""
    return Propagated(Energy(), 16), Propagated(Mahalanobis(), 16), DiffusedKNN(bank=BANK)


@dataclass
class TwoScale(Method):
    """Own evidence and the surroundings': ΣE(a) + w ΣE(b), E = −log p, w by how much of the graph is odd (ours).

    E(s) says how rare a score is among ID validation nodes; `gnnsafe.methods.evidence` has the formulae. Own evidence:
    a prediction, features and an embedding unlike the neighbours', an embedding unlike the training nodes'. Evidence of
    the surroundings: energy, Mahalanobis and KNN distance, propagated far. w is ½ where few nodes are odd by themselves
    and 2 where many are: so the score suits OOD nodes among ID nodes and a graph or region of their own.

    A graph is scored as a whole, since w is one number for all its nodes: `score_new` is refused. The model is asked
    twice, once with every node alone. Where no embedding is known, logits stand for it. Own evidence that reads
    neighbours says nothing of a node that nobody points to: its E is 1, the mean.
    """

    own: tuple[Method, ...] = field(default_factory=_own)
    surroundings: tuple[Method, ...] = field(default_factory=_surroundings)
    calibration_: Tensor = fitted()
    linked_: Tensor = fitted()

    def __post_init__(self) -> None:
        for name in ("own", "surroundings"):
            given = getattr(self, name)
            known = isinstance(given, tuple) and all(isinstance(method, Method) for method in given)
            require(known and len(given) > 0, name, "be a tuple of methods", repr(given))

    base_reach = None  # any: the weight is read from the whole graph

    def parts(self) -> tuple[Method, ...]:
        """All whose evidence is heard; plain energy has a say in the weight alone."""
        return *self.own, Energy(), *self.surroundings

    def learns_from_validation(self) -> bool:
        """It does."""
        return True

    def fit(self, outputs: Outputs, y: Tensor, mask: Tensor) -> TwoScale:
        """Fit each method, and keep its scores of the validation nodes, `val_mask` of the graph."""
        super().fit(outputs, y, mask)
        held_out = node_mask(outputs.graph, "val_mask")
        outputs = _embedded(outputs)
        scores = [method.fit(outputs, y, mask).score(outputs)[held_out] for method in self.parts()]
        self.calibration_, self.linked_ = torch.stack(scores), _linked(outputs)[held_out]
        return self

    def base_scores(self, outputs: Outputs) -> Tensor:
        """ΣE(a) + w ΣE(b)."""
        evidence, count = self.evidence(outputs), len(self.own)
        own, surroundings = evidence[:count], evidence[count + 1 :]
        return saturated(own.sum(dim=0) + self.weight(outputs, evidence) * surroundings.sum(dim=0))

    def evidence(self, outputs: Outputs) -> Tensor:
        """E of every part at every node, [parts, nodes]."""
        calibration, methods, linked = self.calibration_, self.parts(), _linked(outputs)
        fits = (
            calibration.dim() == 2 and len(calibration) == len(methods) and calibration.shape[1:] == self.linked_.shape
        )
        rule = f"have a row for each of {len(methods)} methods"
        require(fits, "calibration_", rule, list(calibration.shape), "fit again")
        outputs, rows = _embedded(outputs), []
        for place, (method, row) in enumerate(zip(methods, calibration, strict=True)):
            scores, reads_neighbours = method.score(outputs), place < len(self.own) and method.reach() != 0
            rows.append(self._among_linked(scores, row, linked) if reads_neighbours else rarity(scores, row))
        return torch.stack(rows)

    def weight(self, outputs: Outputs, evidence: Tensor) -> Tensor:
        """w, by own evidence and energy of the nodes with neighbours."""
        return surroundings_weight(evidence[: len(self.own) + 1, _linked(outputs)])

    def _among_linked(self, scores: Tensor, calibration: Tensor, linked: Tensor) -> Tensor:
        known = self.linked_ if self.linked_.sum() >= ENOUGH else torch.ones_like(self.linked_)
        return torch.where(linked, rarity(scores, calibration[known]), 1.0)


def _embedded(outputs: Outputs) -> Outputs:
    """The outputs, with logits for embeddings where there are none."""
    return outputs if outputs.embedded is not None else replace(outputs, embedded=outputs.logits)


def _linked(outputs: Outputs) -> Tensor:
    """Whether anybody points to a node."""
    return outputs.graph.edges.in_degrees > 0
