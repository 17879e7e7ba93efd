"""TwoScale: a node's own oddness and its surroundings', weighed by what the graph as a whole looks like."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from gnnsafe.errors import require
from gnnsafe.graph import node_mask
from gnnsafe.methods.base import Method, fitted
from gnnsafe.methods.centred_cosine import CentredCosine
from gnnsafe.methods.degree_balance import DegreeBalance
from gnnsafe.methods.diffused_knn import DiffusedKNN
from gnnsafe.methods.energy import Energy
from gnnsafe.methods.evidence import combined, excess, rarity, rarity_by_degree
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
    near = DiffusedKNN(2, steps=0, bank=BANK)
    return OutOfPlace(), CentredCosine(), OutOfPlace("embedding"), near, Energy(), DegreeBalance()


def _surroundings() -> tuple[Method, ...]:
    """Is the region odd that it stands in?"""
    return Propagated(Energy(), 16), Propagated(Mahalanobis(), 16), DiffusedKNN(bank=BANK)


@dataclass
class TwoScale(Method):
    """Own evidence a and the surroundings' b: Σu E(a) + w Σv E(b), E = −log p, weights read from the graph (ours).

    E says how rare a score is among ID validation nodes, for own evidence among those of about the same in-degree;
    `gnnsafe.methods.evidence` has the formulae. Own evidence: a prediction, features and an embedding unlike the
    neighbours', an embedding unlike the training nodes', energy, and many edges out and few in. Evidence of the
    surroundings: energy, Mahalanobis and KNN distance, propagated far; it counts little where few nodes are odd by
    themselves and most where many are, so the score suits OOD nodes among ID nodes and a graph or region of their own.
    Evidence that finds nothing in a graph hardly counts in it. KNN compares with at most 2,000 training nodes.

    A graph is scored as a whole, since weights are the same for all its nodes: `score_new` is refused. The model is
    asked twice, once with every node alone. Where no embedding is known, logits stand for it. Own evidence that reads
    neighbours says nothing of a node that nobody points to: its E is the mean.
    """

    own: tuple[Method, ...] = field(default_factory=_own)
    surroundings: tuple[Method, ...] = field(default_factory=_surroundings)
    calibration_: Tensor = fitted()
    degrees_: Tensor = fitted()
    means_: Tensor = fitted()

    def __post_init__(self) -> None:
        for name in ("own", "surroundings"):
            given = getattr(self, name)
            known = isinstance(given, tuple) and all(isinstance(method, Method) for method in given)
            require(known and len(given) > 0, name, "be a tuple of methods", repr(given))

    base_reach = None  # any: weights are read from the whole graph

    def parts(self) -> tuple[Method, ...]:
        """All whose evidence is heard."""
        return *self.own, *self.surroundings

    def learns_from_validation(self) -> bool:
        """It does."""
        return True

    def fit(self, outputs: Outputs, y: Tensor, mask: Tensor) -> TwoScale:
        """Fit each method, and keep its scores of the validation nodes, `val_mask` of the graph."""
        super().fit(outputs, y, mask)
        held_out = node_mask(outputs.graph, "val_mask")
        outputs = _embedded(outputs)
        scores = [method.fit(outputs, y, mask).score(outputs)[held_out] for method in self.parts()]
        self.calibration_, self.degrees_ = torch.stack(scores), outputs.graph.edges.in_degrees[held_out]
        self.means_ = self._rarities(self.calibration_, self.degrees_).nanmean(dim=1).nan_to_num(1.0)
        return self

    def base_scores(self, outputs: Outputs) -> Tensor:
        """Σ_a u_a (E_a − Ē_a) + w · Σ_b (1 + u_b (E_b − Ē_b))."""
        evidence, count = self.evidence(outputs), len(self.own)
        q, centred = excess(evidence, self._counted(outputs)), evidence - self.means_[:, None]
        return saturated(combined(centred[:count], centred[count:], q[:count], q[count:]))

    def evidence(self, outputs: Outputs) -> Tensor:
        """E of every part at every node, [parts, nodes]; its mean where it says nothing."""
        size = (len(self.parts()), len(self.degrees_))
        fits = self.calibration_.shape == size and self.means_.shape == size[:1]
        require(fits, "calibration_", f"be of shape {list(size)}", list(self.calibration_.shape), "fit again")
        outputs = _embedded(outputs)
        scores = torch.stack([method.score(outputs) for method in self.parts()])
        evidence = self._rarities(scores, outputs.graph.edges.in_degrees)
        return torch.where(evidence.isnan(), self.means_[:, None], evidence)

    def _rarities(self, scores: Tensor, degrees: Tensor) -> Tensor:
        """E of the parts' scores, [parts, nodes], NaN where they say nothing."""
        count = len(self.own)
        own = zip(self.own, scores, self.calibration_, strict=False)
        others = zip(scores[count:], self.calibration_[count:], strict=True)
        rows = [self._own_rarity(*part, degrees) for part in own]
        return torch.stack([*rows, *(rarity(*part) for part in others)])

    def _own_rarity(self, method: Method, scores: Tensor, calibration: Tensor, degrees: Tensor) -> Tensor:
        if isinstance(method, DegreeBalance):  # which is what degrees say; in an undirected graph they say nothing
            silent = bool((calibration == calibration[0]).all())
            return torch.full_like(degrees, torch.nan) if silent else rarity(scores, calibration)
        known = self.degrees_
        if not _reads_neighbours(method):
            return rarity_by_degree(scores, degrees, calibration, known)
        fit = known > 0 if (known > 0).sum() >= ENOUGH else torch.ones_like(known, dtype=torch.bool)
        return torch.where(degrees > 0, rarity_by_degree(scores, degrees, calibration[fit], known[fit]), torch.nan)

    def _counted(self, outputs: Outputs) -> Tensor:
        """By which nodes weights are read, [parts, nodes]: those with edges, or with neighbours to be compared with."""
        heard = outputs.graph.edges.in_degrees > 0
        linked = heard.index_fill(0, outputs.graph.edge_index[0], True)
        own = [heard if _reads_neighbours(method) else linked for method in self.own]
        return torch.stack([*own, *(linked for _ in self.surroundings)])


def _reads_neighbours(method: Method) -> bool:
    return method.reach() not in (0, None)


def _embedded(outputs: Outputs) -> Outputs:
    """The outputs, with logits for embeddings where there are none."""
    return outputs if outputs.embedded is not None else replace(outputs, embedded=outputs.logits)
