"""GRASP: propagation on a graph with edges added among reliable training nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gnnsafe.checks import FLOAT32_MAX
from gnnsafe.edges import Edges
from gnnsafe.errors import is_number, require, require_whole
from gnnsafe.graph import node_mask
from gnnsafe.methods.base import Kind, Method, fitted
from gnnsafe.methods.rows import quantiles
from gnnsafe.outputs import Outputs
from gnnsafe.scores import max_softmax

__all__ = ["GRASP", "GraphNodes"]

ROUNDING = 1e-5  # probabilities that differ by less count as equal, whatever order their nodes come in


@dataclass
class GraphNodes:
    """Nodes to be scored together: MSP, edges, and which of them are training nodes or otherwise known to be ID."""

    scores: Tensor
    edge_index: Tensor
    train: Tensor
    known: Tensor

    def beside(self, other: GraphNodes) -> GraphNodes:
        """Both, in one graph with no edge between them; these nodes first."""
        edges = torch.cat([self.edge_index, other.edge_index + len(self.scores)], dim=1)
        scores, train, known = (
            torch.cat([getattr(self, name), getattr(other, name)]) for name in ("scores", "train", "known")
        )
        return GraphNodes(scores, edges, train, known)


@dataclass
class GRASP(Method):
    """MSP propagated over A + 1.001 · (clique on G), G the known nodes nearest to sure test nodes (Ma et al., 2024).

    Transductive: a new graph is scored as a whole, together with the training graph unless it holds the training
    nodes itself (it has a `train_mask`, or is the training graph). S_id and S_ood are the `share` of test nodes
    that MSP is surest and least sure of; G is the half of the training and validation nodes with the largest
    #S_id / (#S_ood + 1) among their in-neighbours. Training nodes' scores are held at the ID end.

    Args:
        steps: How often scores are propagated.
        share: Of the test nodes, how many are taken for sure ones and how many for unsure ones, below ½.
        weight: Of an edge within the clique, where one of the graph has 1.

    Raises:
        InputError: An argument breaks its rule.
    """

    steps: int = 8
    share: float = 0.05
    weight: float = 1.001
    training_: GraphNodes = fitted()

    kind: ClassVar[Kind] = "transductive"

    def __post_init__(self) -> None:
        require_whole("steps", self.steps, 0)
        require(is_number(self.share) and 0 < self.share < 0.5, "share", "lie in (0, 0.5)", self.share)
        require(is_number(self.weight) and 0 < self.weight <= FLOAT32_MAX, "weight", "be > 0", self.weight)

    def learns_from_validation(self) -> bool:
        """It does."""
        return True

    def fit(self, outputs: Outputs, y: Tensor, mask: Tensor) -> GRASP:
        """Remember the training graph, its scores, and which of its nodes are known to be ID."""
        super().fit(outputs, y, mask)
        self.training_ = _nodes(outputs, mask)
        return self

    base_reach = None  # any: the sure nodes of the whole graph count

    def base_scores(self, outputs: Outputs) -> Tensor:
        """The scores of the graph's nodes after `steps` rounds over its edges and the clique."""
        nodes = self._together(outputs)
        scores, size = nodes.scores, len(nodes.scores)
        edges = Edges(nodes.edge_index, size)
        degree, mean = edges.in_degrees, edges.mean(scores.dtype)
        joined = self._joined(nodes, lambda marks: (degree * (mean @ marks)).round())
        clique = self.weight * joined  # the clique's rows are this times joinedᵀ: it is never built
        total = degree + clique * joined.sum()
        held = scores.min()
        for _ in range(self.steps):
            scores = torch.where(nodes.train, held, scores)
            summed = degree * (mean @ scores) + clique * (joined @ scores)
            scores = torch.where(total > 0, summed / total, scores)
        return scores[: len(outputs.logits)].float()

    def _together(self, outputs: Outputs) -> GraphNodes:
        training, graph = self.training_, outputs.graph
        own = getattr(graph, "train_mask", None)
        if own is not None and own.any():
            return _nodes(outputs, node_mask(graph, "train_mask"))
        new = _nodes(outputs, torch.zeros_like(outputs.logits[:, 0], dtype=torch.bool))
        if torch.equal(new.edge_index, training.edge_index) and torch.equal(new.scores, training.scores):
            return training
        return new.beside(training)

    def _joined(self, nodes: GraphNodes, counted: Callable[[Tensor], Tensor]) -> Tensor:
        """1 for the nodes of G, those above the median, else 0; all that are known, where none stands out."""
        test = ~nodes.known
        if not test.any():
            return nodes.known.to(nodes.scores.dtype)
        low, high = quantiles(nodes.scores[test], [self.share, 1 - self.share])
        sure, unsure = test & (nodes.scores <= low + ROUNDING), test & (nodes.scores >= high - ROUNDING)
        gain = counted(sure.to(nodes.scores.dtype)) / (counted(unsure.to(nodes.scores.dtype)) + 1)
        better = nodes.known & (gain > quantiles(gain[nodes.known], [0.5]))
        return (better if better.any() else nodes.known).to(nodes.scores.dtype)


def _msp(outputs: Outputs) -> Tensor:
    return max_softmax(outputs.logits.double(), task=outputs.task)


def _nodes(outputs: Outputs, train: Tensor) -> GraphNodes:
    held_out = getattr(outputs.graph, "val_mask", None)
    known = train if held_out is None else train | node_mask(outputs.graph, "val_mask")
    return GraphNodes(_msp(outputs), outputs.graph.edge_index, train, known)
