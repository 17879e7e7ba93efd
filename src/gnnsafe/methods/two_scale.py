"""TwoScale: a node's own oddness and its surroundings', weighed by what the graph as a whole looks like."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from gnnsafe.errors import require
from gnnsafe.graph import node_mask
from gnnsafe.methods.base import Method, fitted
from gnnsafe.methods.centred_cosine import CentredCosine
from gnnsafe.methods.degree_balance import DegreeBalance
from gnnsafe.methods.diffused_knn import DiffusedKNN
from gnnsafe.methods.energy import Energy
from gnnsafe.methods.evidence import GROUP, Compared, continued_rarity
from gnnsafe.methods.feature_distance import FeatureDistance
from gnnsafe.methods.in_degree import InDegree
from gnnsafe.methods.mahalanobis import Mahalanobis
from gnnsafe.methods.out_degree import OutDegree
from gnnsafe.methods.out_of_place import OutOfPlace
from gnnsafe.methods.propagated import Propagated
from gnnsafe.methods.reasons import Reasons, centred_addends, graph_in_words
from gnnsafe.methods.silence import BEYOND, Hearing, absurd
from gnnsafe.methods.spread import Spread, spread_of
from gnnsafe.methods.weighing import (
    Weights,
    added,
    counted,
    counted_excess,
    explained,
    explaining,
    none_left,
    oddness,
    surroundings_weight,
    usual_shares,
)
from gnnsafe.outputs import Outputs
from gnnsafe.scores import saturated

__all__ = ["TwoScale"]

BANK = 1000  # training nodes that a node is compared with
ENOUGH = 20  # calibration nodes with neighbours, to be compared with them alone
LIFT = 4.0  # of all nodes of a graph that is odd as a whole
RESOLUTION = 0.06  # of the distance between two training nodes: what is nearer than that is equally near
PAIRED = 500  # training nodes of whose pairs that distance is the median
DEGREES = (DegreeBalance, InDegree, OutDegree)  # which are those of the graph, whoever is heard
KINDS = ("unlike", "unknown", "surroundings")


def _unlike() -> tuple[Method, ...]:
    """Is the node unlike those that point to it, placed as no other is, or its features far off?"""
    return OutOfPlace(), CentredCosine(), OutOfPlace("embedding"), DegreeBalance(), FeatureDistance()


def _unknown() -> tuple[Method, ...]:
    """Is the node unlike what the model was trained on?"""
    return DiffusedKNN(2, steps=0, bank=BANK), Energy()


def _surroundings() -> tuple[Method, ...]:
    """Is the region odd that it stands in?"""
    return Propagated(Energy(), 16), Propagated(Mahalanobis(), 16), DiffusedKNN(bank=BANK)


@dataclass
class TwoScale(Hearing):
    """Own evidence a and the surroundings' b: Σu E(a) + w Σv E(b), E = −log p, weights read from the graph (ours).

    E says how rare a score is among ID validation nodes, for own evidence among those of about the same in-degree;
    `gnnsafe.methods.weighing` has the formulae. Own evidence: a prediction, features and an embedding `unlike` the
    neighbours', many edges out and few in, and features far from training nodes'; an embedding `unknown` to training
    nodes, and energy. Evidence of the `surroundings`: energy, Mahalanobis and KNN distance, propagated far; it counts
    little where odd nodes are scattered among others and most where they stand together, so the score suits OOD nodes
    among ID nodes and a region (a new class) or a graph of their own. Which it is the graph says, beside the one that
    was fitted. Evidence that finds nothing in a graph hardly counts in it. KNN compares with at most 1,000 training
    nodes.

    A node whose own features are far off makes all around it look unknown to the model. Where there are many such
    nodes, and of those that are absurdly far off however few (`gnnsafe.methods.silence`), evidence is read from the
    model without the edges that lead from them to others: they are odd, their neighbours not. A heterogeneous graph is
    read as it is. Distances of embeddings that are small beside those between training nodes are not told apart: a
    dense graph's differ more from another draw of the same graph than among themselves.

    A score is −log p of the whole: 3 is as odd as one ID node in twenty of the graph that was fitted. Scores of another
    graph lie higher, even where nothing is odd in it: between graphs compare p-values. These go by own evidence alone,
    since ID nodes beside OOD nodes share their surroundings, unless the graph has no usual node left; and where odd
    nodes are scattered, by less of it the odder a node's in-neighbours are than the node itself: they may be the reason
    why it is unlike them. Weights are the same for all nodes of a graph; a graph that is scored as a whole leaves its
    weights behind, by which parts of it are scored (`score_new`). The model runs twice, once with every node alone, and
    once more where edges are left out. Where no embedding is known, logits stand for it. Own evidence that reads
    neighbours says nothing of a node without in-neighbours.

    Args:
        unlike: Methods that say how unlike its neighbours a node is.
        unknown: Methods that say how unlike the training nodes it is.
        surroundings: Methods that say how odd the region around it is.

    Raises:
        InputError: An argument breaks its rule.
    """

    unlike: tuple[Method, ...] = field(default_factory=_unlike)
    unknown: tuple[Method, ...] = field(default_factory=_unknown)
    surroundings: tuple[Method, ...] = field(default_factory=_surroundings)

    tells: ClassVar[bool] = True
    calibration_: Tensor = fitted()
    """Scores of the validation nodes by each part, [nodes, parts]."""
    degrees_: Tensor = fitted()
    known_: Tensor = fitted()
    """Their evidence, each compared with the others."""
    usual_: Tensor = fitted()
    """Shares of nodes that are rare by each part, in the graph that was fitted."""
    weights_: Tensor = fitted()
    deciding_: Tensor = fitted()
    """The weights that p-values go by: own evidence's alone, unless no usual node is left in the graph."""
    regions_: Tensor = fitted()
    openness_: Tensor = fitted()
    shift_: Tensor = fitted()
    explaining_: Tensor = fitted()
    """How far odd in-neighbours may be the reason why nodes are odd, 0 to 1, in the graph that was seen last."""
    least_: Tensor = fitted()
    """What each part's scores are told apart from, −∞ where all are."""
    far_off_: Tensor = fitted()
    validated_: Tensor = fitted()
    usual_far_: Tensor = fitted()
    silencing_: Tensor = fitted()
    silent_from_: Tensor = fitted()

    def __post_init__(self) -> None:
        for name in KINDS:
            given = getattr(self, name)
            known = isinstance(given, tuple) and all(isinstance(method, Method) for method in given)
            require(known and len(given) > 0, name, "be a tuple of methods", repr(given))

    def __repr__(self) -> str:
        usual = dict(zip(KINDS, (_unlike(), _unknown(), _surroundings()), strict=True))
        others = [f"{name}={getattr(self, name)!r}" for name in KINDS if getattr(self, name) != usual[name]]
        return f"TwoScale({', '.join(others)})"

    @property
    def base_reach(self) -> int | None:
        """That of the part that reaches furthest, and one hop for degrees, which change where a node is not heard."""
        reaches = [method.reach_within() for method in self.parts()]
        known = max(1, *(reach for reach in reaches if reach is not None))
        return None if None in reaches else known + (self.distance is not None)

    def parts(self) -> tuple[Method, ...]:
        """All whose evidence counts."""
        return *self.unlike, *self.unknown, *self.surroundings

    def learns_from_validation(self) -> bool:
        """It does."""
        return True

    def fit(self, outputs: Outputs, y: Tensor, mask: Tensor) -> TwoScale:
        """Fit each method, and keep its scores of the validation nodes, `val_mask` of the graph."""
        super().fit(outputs, y, mask)
        held_out = node_mask(outputs.graph, "val_mask")
        outputs = outputs.with_embeddings()
        mask = self.learn_far(outputs, y, mask, held_out)
        heard = self.heard(outputs)
        degrees = heard.graph.edges.in_degrees
        scores = self._scores(outputs, heard, lambda part, read: part.fit(read, y, mask))
        self.calibration_, self.degrees_ = scores[held_out], degrees[held_out]
        self.least_ = torch.tensor(
            [_least(method) for method in self.parts()], dtype=scores.dtype, device=scores.device
        )
        self.known_ = self.evidence(self.calibration_, self.degrees_, among=True)
        rows, features = self.evidence(scores, degrees), [isinstance(part, FeatureDistance) for part in self.parts()]
        self.usual_ = usual_shares(rows, self.known_, torch.tensor(features, device=rows.device))
        vars(self).update(vars(self.for_graph(rows)))
        return self

    @property
    def distance(self) -> FeatureDistance | None:
        """The part that says how far off a node's own features are.

        None where there is none, or no `OutOfPlace`: with that `fit` has run the model on other edges, so it can.
        """
        again = any(isinstance(method, OutOfPlace) for method in self.unlike)
        found = (method for method in self.unlike if isinstance(method, FeatureDistance) and again)
        return next(found, None)

    def rows(self, outputs: Outputs) -> Tensor:
        """E of every part at every node, [nodes, parts]; NaN where it says nothing."""
        size = [len(self.degrees_), len(self.parts())]
        fits = list(self.calibration_.shape) == size and list(self.known_.shape) == size
        require(fits, "calibration_", f"be of shape {size}", list(self.calibration_.shape), "fit again")
        outputs = outputs.with_embeddings()
        heard = self.heard(outputs)
        return self.evidence(self._scores(outputs, heard), heard.graph.edges.in_degrees)

    def _scores(
        self, outputs: Outputs, heard: Outputs, fitted: Callable[[Method, Outputs], Method] = lambda part, read: part
    ) -> Tensor:
        """Of every part: degrees are those of the whole graph, all else is of what is heard in it."""
        reads = [(part, outputs if isinstance(part, DEGREES) else heard) for part in self.parts()]
        return torch.stack([fitted(part, read).score(read) for part, read in reads], dim=1)

    def for_graph(self, rows: Tensor) -> TwoScale:
        """The same with the weights of a graph, its openness, and what trouble in it has added to usual nodes."""
        return self.for_counts(counted(rows), lambda numbers: spread_of(numbers(rows)))

    def for_counts(self, counts: Tensor, spread: Callable[[Callable[[Tensor], Tensor]], Spread]) -> TwoScale:
        """The same by what is `counted` of the graph's rows, and how numbers of its rows are spread over its nodes."""
        own = len(self.unlike) + len(self.unknown)
        q, new = counted_excess(counts, self.usual_, len(self.known_)), copy.copy(self)
        sizes = len(self.unlike), len(self.unknown)
        found = Weights.of(q, *sizes, torch.tensor(self.scatters(), device=counts.device), self.silencing_)
        new.weights_, new.regions_, new.openness_ = found.each, found.regions, found.openness
        alone = copy.copy(new)  # which goes by own evidence alone
        alone.deciding_ = torch.cat([found.each[:own], torch.zeros_like(found.each[own:])])
        left = none_left(found, spread(alone.decided), alone.decided(self.known_))
        new.deciding_ = torch.cat([found.each[:own], left * found.each[own:]])
        new.shift_ = added(found, left, spread(new.decided), new.decided(self.known_))
        new.explaining_ = torch.zeros_like(left) if self.silences else explaining(found, left)
        return new

    def scatters(self) -> list[bool]:
        """Which parts tell of scattered nodes: those that ask no model; where there are none, all of `unlike`.

        Features by themselves do not: new classes have some that are a little off, too.
        """
        others = [not isinstance(method, FeatureDistance) for method in self.parts()]
        plain = [other and not method.needs_model() for other, method in zip(others, self.parts(), strict=True)]
        return plain if any(plain) else [other and place < len(self.unlike) for place, other in enumerate(others)]

    def weighed(self, rows: Tensor) -> Tensor:
        """−log p(z) + 4 o, p among the validation nodes' z by the same weights."""
        return saturated(self._rarity(self.weighted(rows)) + LIFT * self.openness_)

    def told(self, rows: Tensor) -> Tensor | None:
        """e: how odd nodes are by what p-values go by; None where that explains nothing."""
        return self._oddness(rows) if bool(self.explaining_ > 0) else None

    def comparable(self, rows: Tensor, around: Tensor | None = None) -> Tensor:
        """−log p(z' − δ), p among the validation nodes' z', of which nothing is left to in-neighbours to explain.

        Nodes without in-neighbours, of which less is known, are compared with each other where there are enough.
        """
        return saturated(self._among_alike(self.decided(rows, around) - self.shift_, rows))

    def weighted(self, rows: Tensor) -> Tensor:
        """z = Σ weight · (E − Ē), one number per node; E = Ē where evidence says nothing."""
        return self._centred(rows) @ self.weights_

    def decided(self, rows: Tensor, around: Tensor | None = None) -> Tensor:
        """z', the same by the weights that p-values go by, less what in-neighbours explain whose mean e is `around`."""
        centred = self._centred(rows)
        if around is not None:
            share = self.explaining_ * explained(self._oddness(rows), around.to(centred))
            alone = (*DEGREES, FeatureDistance)
            reading = [not isinstance(one, alone) for one in (*self.unlike, *self.unknown)]
            reading += [False] * len(self.surroundings)
            less = torch.tensor(reading, device=rows.device) & (centred > 0)
            centred = torch.where(less, centred * (1 - share[:, None]), centred)
        return centred @ self.deciding_

    def watched(self, rows: Tensor) -> Tensor:
        """Own evidence: Σ (E − Ē) without weights, then each E.

        A graph's weights favour what is odd in it, and δ hides what all its nodes share. What surroundings say is
        nearly the same all over a region: hundreds of nodes would count for what one of them says.
        """
        own = len(self.unlike) + len(self.unknown)
        total = self._centred(rows)[:, :own].sum(dim=1)
        return torch.cat([total[:, None], rows[:, :own]], dim=1)

    def known_watched(self) -> Tensor:
        """Of the validation nodes, each as if it had learnt from the others alone."""
        return self.watched(self.known_)

    def watched_names(self) -> tuple[str, ...]:
        """In the same order."""
        return ("own evidence", *(method.says for method in (*self.unlike, *self.unknown)))

    def reasons(self, row: Tensor, around: Tensor | None = None) -> Reasons:
        """What each E of a node adds to z, and what the graph that was seen last made of z."""
        heard = None if around is None else around[None]
        figures = {
            "regions": float(self.regions_),
            "surroundings": float(surroundings_weight(self.regions_, self.openness_)),
            "openness": float(self.openness_),
            "lift": LIFT * float(self.openness_),
            "shift": float(self.shift_),
            "around": float(self.weighted(row[None]) - self.decided(row[None])),
            "explained": float(self.decided(row[None]) - self.decided(row[None], heard)),
            "rarity": float(self._rarity(self.weighted(row[None]))),
            "compared": float(self.comparable(row[None], heard)),
            "silencing": float(self.silences),
        }
        return Reasons(centred_addends(row, self.known_, self.weights_), graph_in_words(**figures), figures)

    def known_scores(self) -> Tensor:
        """Of the validation nodes that it learnt from, each as if it had learnt from the others alone."""
        return saturated(self._among_alike(self.decided(self.known_), self.known_))

    def base_scores(self, outputs: Outputs) -> Tensor:
        """By the weights of the graph that was seen last."""
        return self.weighed(self.rows(outputs))

    def _oddness(self, rows: Tensor) -> Tensor:
        return oddness(self.decided(rows), self.decided(self.known_), self.shift_)

    def _centred(self, rows: Tensor) -> Tensor:
        return (rows - self.known_.nanmean(dim=0)).nan_to_num(0.0)

    def _among_alike(self, values: Tensor, rows: Tensor) -> Tensor:
        """How rare values of nodes are among the validation nodes' z'; those that hear nobody apart from the others."""
        own = enumerate((*self.unlike, *self.unknown))
        reading = [number for number, method in own if _way(method, alike=False) == "linked"]
        known = self.decided(self.known_)
        lonely, others = (each[:, reading].isnan().all(dim=1) for each in (rows, self.known_))
        if not reading or min(int(others.sum()), int((~others).sum())) < GROUP:
            return continued_rarity(values, known)
        apart = continued_rarity(values, known[others]), continued_rarity(values, known[~others])
        return torch.where(lonely, *apart)

    def _rarity(self, weighted: Tensor) -> Tensor:
        return continued_rarity(weighted, self.weighted(self.known_))

    def evidence(self, scores: Tensor, degrees: Tensor, *, among: bool = False) -> Tensor:
        """E of the parts' scores, [nodes, parts], NaN where they say nothing; `among` validation nodes themselves."""
        known, everyone, linked = self.degrees_, self.degrees_ >= 0, self.degrees_ > 0
        linked = linked if linked.sum() >= ENOUGH else everyone
        ways = {
            "linked": (Compared.by(known[linked]), linked, degrees > 0),
            "degree": (Compared.by(known), everyone, degrees >= 0),
            "all": (Compared.with_all(known), everyone, degrees >= 0),
        }
        evidence, chosen = torch.full_like(scores, torch.nan, dtype=torch.float64), self._ways()
        scores, calibration = (torch.maximum(each, self.least_) for each in (scores, self.calibration_))
        for name, (compared, of, asked) in ways.items():
            if columns := [number for number, way in enumerate(chosen) if way == name]:
                those = scores[asked][:, columns], degrees[asked], calibration[of][:, columns]
                evidence[asked.nonzero(), columns] = compared.rarity(*those, among=among)
        for number, method in enumerate(self.parts()):
            if method is self.distance:
                evidence[:, number] += torch.where(absurd(scores[:, number], self.far_off_[0]), BEYOND, 0.0)
        return evidence

    def _ways(self) -> list[str]:
        """Which calibration nodes each part compares a node with: all, those of its degree, or with in-neighbours."""
        first, own = self.calibration_[0], [*self.unlike, *self.unknown]
        alike = (self.calibration_ == first).all(dim=0).tolist()
        return [
            *(_way(method, alike=same) for method, same in zip(own, alike, strict=False)),
            *("all" for _ in self.surroundings),
        ]


def _way(method: Method, *, alike: bool) -> str:
    if isinstance(method, DegreeBalance):  # which is what degrees say; in an undirected graph they say nothing
        return "none" if alike else "all"
    if isinstance(method, FeatureDistance):  # which no neighbour moves
        return "all"
    return "degree" if method.reach() in (0, None) else "linked"


def _least(method: Method) -> float:
    """The distance below which training nodes are equally near, for a method that measures distances."""
    if not isinstance(method, DiffusedKNN) or len(method.bank_) < 2:
        return -torch.inf
    some = method.bank_[:: -(-len(method.bank_) // PAIRED)].double()
    above = torch.ones(len(some), len(some), dtype=torch.bool, device=some.device).triu(1)
    return RESOLUTION * float(torch.cdist(some, some)[above].median())
