"""Propagation of scores along edges: the paper's belief propagation, for any score."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from gnnsafe.checks import check_node, check_scores
from gnnsafe.edges import Edges, Isolated, as_edges
from gnnsafe.errors import is_number, require, require_known, require_whole
from gnnsafe.scores import saturated
from gnnsafe.sparse import Matrix
from gnnsafe.tiles import Tiles

__all__ = ["Propagation", "Weighting", "check_propagation", "diffused", "mixed", "propagate", "shares", "weights"]

Weighting = Literal["equal", "similarity"]
WEIGHTINGS = get_args(Weighting)


@dataclass(frozen=True)
class Propagation:
    """How scores are to be propagated, as data: `steps` times s ← α s + (1−α) W s, by default not at all.

    W is D⁻¹A, in which all in-neighbours count alike; or, where `weighting` is "similarity", softmax_j(1 − |e_i − e_j|)
    with e the scores before the first step: neighbours of a similar score count more (EPGNN and EDBD, 2025). W is
    made once: given e, the propagated score is a weighted mean of it, whose shares are exact.

    Args:
        steps: How often, K; 0: not at all.
        alpha: How much of its own score a node keeps at each step, from 0 to 1.
        isolated: What becomes of a node without in-neighbours: "keep" its score, or let it "decay" by α at every step.
        weighting: "equal", in which all in-neighbours count alike, or "similarity".

    Raises:
        InputError: A setting breaks its rule.

    >>> Propagation(steps=1)(torch.tensor([8.0, 0.0]), torch.tensor([[0], [1]])).tolist()  # 0 → 1
    [8.0, 4.0]
    """

    steps: int = 0
    alpha: float = 0.5
    isolated: Isolated = "keep"
    weighting: Weighting = "equal"

    def __post_init__(self) -> None:
        check_propagation(self.steps, self.alpha, self.isolated, self.weighting)

    def __call__(self, scores: Tensor, edge_index: Tensor | Edges) -> Tensor:
        """The scores after it: every method's are propagated here."""
        if self.steps == 0:
            return scores
        check_scores(scores)
        if self.weighting == "similarity":
            return self._mixed_alike(scores, _edges_of(edge_index, scores))
        return diffused(scores, edge_index, steps=self.steps, alpha=self.alpha, isolated=self.isolated)

    def weights(self, edge_index: Tensor | Edges, node: int, scores: Tensor) -> Tensor:
        """How much each node's score counts in that node's propagated one, float64; `scores` are those before it.

        Args:
            edge_index: Edges [2, edges] from the first row to the second, or prepared `Edges`.
            node: The number of the node.
            scores: Before propagation, one per node.

        Returns:
            A weight for each node, float64; they sum to 1, or to less where scores "decay".

        Raises:
            InputError: There is no such node, or an edge joins nodes that do not exist.
        """
        edges = _edges_of(edge_index, scores)
        if self.weighting == "equal":
            matrix = edges.mean(torch.float64, self.isolated)
        else:
            matrix = alike(scores, edges, self.isolated)
        return _row(matrix, check_node(node, len(scores)), edges, self.steps, self.alpha)

    def _mixed_alike(self, scores: Tensor, edges: Edges) -> Tensor:
        values = scores.detach().double()
        return saturated(mixed(values, alike(values, edges, self.isolated), self.steps, self.alpha), scores.dtype)


def check_propagation(steps: int, alpha: float, isolated: str, weighting: str = "equal") -> None:
    """The rules for propagation's settings."""
    require_whole("steps", steps, 0)
    require(is_number(alpha) and 0 <= alpha <= 1, "alpha", "lie in [0, 1]", alpha)
    require_known("isolated", isolated, ("keep", "decay"))
    require_known("weighting", weighting, WEIGHTINGS)


def alike(scores: Tensor, edge_index: Tensor | Edges, isolated: Isolated = "keep") -> Matrix:
    """W with w_ij = softmax_j(1 − |e_i − e_j|) over the edges j → i, each as often as it is given; float64.

    A node without in-neighbours keeps its own score, or with `isolated="decay"` averages to 0.

    >>> three = torch.tensor([[0, 1], [2, 2]])  # 0 → 2 ← 1, whose scores are 0 and log 3 away from 2's
    >>> alike(torch.tensor([1.0, 1.0 + math.log(3), 1.0]), three).csr.to_dense()[2]
    tensor([0.7500, 0.2500, 0.0000], dtype=torch.float64)
    """
    edges, values = _edges_of(edge_index, scores), scores.detach().double()
    starts, sources, targets = edges.in_edges(isolated)
    likeness = 1 - (values.index_select(0, targets) - values.index_select(0, sources)).abs()
    highest = torch.full_like(values, -torch.inf).scatter_reduce(0, targets, likeness, "amax")
    weight = (likeness - highest[targets]).exp()
    total = torch.zeros_like(values).index_add(0, targets, weight)
    return edges.weighted(starts, sources, weight / total[targets])


def propagate(
    scores: Tensor, edge_index: Tensor | Edges, *, steps: int = 2, alpha: float = 0.5, isolated: Isolated = "keep"
) -> Tensor:
    """Repeat s ← α s + (1−α) D⁻¹A s, `steps` times  (Wu et al., 2023, eq. 6).

    A node averages over its in-neighbours: row i of D⁻¹A averages over the edges j → i. Repeated edges count
    as often as they are given, self-loops where they are given. D⁻¹A is undefined for a node without
    in-neighbours: `isolated="keep"` leaves its score alone, `"decay"` multiplies it by α at every step, as the paper's
    published runs do (which reads as "more OOD" when scores are negative energies).

    Args:
        scores: One per node.
        edge_index: Edges [2, edges] from the first row to the second, or prepared `Edges`.
        steps: How often, K.
        alpha: How much of its own score a node keeps at each step, from 0 to 1.
        isolated: What becomes of a node that no edge points to: "keep" or "decay".

    Returns:
        The propagated scores, in the precision of `scores`.

    Raises:
        InputError: A score is NaN or infinite, an edge joins nodes that do not exist, or a setting breaks its rule.

    >>> path = torch.tensor([[0, 1], [1, 2]])  # 0 → 1 → 2
    >>> propagate(torch.tensor([8.0, 0.0, 0.0]), path, steps=1).tolist()
    [8.0, 4.0, 0.0]
    >>> propagate(torch.tensor([8.0, 0.0, 0.0]), path, steps=1, isolated="decay").tolist()
    [4.0, 4.0, 0.0]
    """
    check_propagation(steps, alpha, isolated)
    check_scores(scores)
    return diffused(scores, edge_index, steps=steps, alpha=alpha, isolated=isolated)


def weights(
    edge_index: Tensor | Edges,
    node: int,
    *,
    num_nodes: int,
    steps: int = 2,
    alpha: float = 0.5,
    isolated: Isolated = "keep",
) -> Tensor:
    """How much each node's score counts in a node's propagated one: its row of (αI + (1−α)D⁻¹A)^K, float64.

    Args:
        edge_index: Edges [2, edges] from the first row to the second, or prepared `Edges`.
        node: The number of the node.
        num_nodes: How many nodes the graph has.
        steps: How often scores are propagated, K.
        alpha: How much of its own score a node keeps at each step, from 0 to 1.
        isolated: What becomes of a node without in-neighbours: "keep" its score, or let it "decay" by α at every step.

    Returns:
        A weight for each node; they sum to 1, or to less where scores "decay".

    Raises:
        InputError: There is no such node, an edge joins nodes that do not exist, or a setting breaks its rule.

    >>> weights(torch.tensor([[0, 1], [1, 2]]), 2, num_nodes=3).tolist()  # 0 → 1 → 2
    [0.25, 0.5, 0.25]
    """
    check_propagation(steps, alpha, isolated)
    edges = as_edges(edge_index, num_nodes)
    return _row(edges.mean(torch.float64, isolated), check_node(node, num_nodes), edges, steps, alpha)


def _row(matrix: Matrix, node: int, edges: Edges, steps: int, alpha: float) -> Tensor:
    row = torch.zeros(edges.num_nodes, dtype=torch.float64, device=edges.device)
    row[node] = 1.0
    for _ in range(steps):
        row = alpha * row + (1 - alpha) * (matrix.T @ row)
    return row


def shares(
    scores: Tensor,
    edge_index: Tensor | Edges,
    node: int,
    *,
    steps: int = 2,
    alpha: float = 0.5,
    isolated: Isolated = "keep",
) -> Tensor:
    """What each node brings to a node's propagated score, w_j s_j: propagation is linear, so they sum to it exactly.

    Args:
        scores: Before propagation, one per node.
        edge_index: Edges [2, edges] from the first row to the second, or prepared `Edges`.
        node: The number of the node.
        steps: How often scores are propagated, K.
        alpha: How much of its own score a node keeps at each step, from 0 to 1.
        isolated: What becomes of a node without in-neighbours: "keep" its score, or let it "decay" by α at every step.

    Returns:
        A share for each node, float64; their sum is the propagated score of `node`.

    Raises:
        InputError: A score is NaN or infinite, there is no such node, or a setting breaks its rule.

    >>> shares(torch.tensor([8.0, 0.0, 4.0]), torch.tensor([[0, 1], [1, 2]]), 2).tolist()
    [2.0, 0.0, 1.0]
    """
    check_scores(scores)
    row = weights(edge_index, node, num_nodes=len(scores), steps=steps, alpha=alpha, isolated=isolated)
    return row * scores.double()


def diffused(
    values: Tensor, edge_index: Tensor | Edges, *, steps: int, alpha: float = 0.5, isolated: Isolated = "keep"
) -> Tensor:
    """The same for any values of nodes, one number or a row of them.

    A mean lies within the range of what it is made of, so where a sum or difference on the way left float32's, all of
    it is done again in double precision.

    Args:
        values: One number or one row per node, such as embeddings.
        edge_index: Edges [2, edges] from the first row to the second, or prepared `Edges`.
        steps: How often, K.
        alpha: How much of its own value a node keeps at each step, from 0 to 1.
        isolated: As for `propagate`.

    Returns:
        The values after K steps, of the same shape and precision.

    Raises:
        InputError: Edges join nodes that do not exist, or are on another device than the values.
    """
    edges = _edges_of(edge_index, values)
    constant = not (values.requires_grad and torch.is_grad_enabled())
    if values.dim() == 1 and constant and not edges.worth_a_matrix(steps):
        return _summed(values, edges, steps, alpha, isolated)
    result = mixed(values, edges.mean(values.dtype, isolated), steps, alpha)
    if values.dtype == torch.float64 or math.isfinite(result.sum().item()):
        return result
    return saturated(diffused(values.double(), edges, steps=steps, alpha=alpha, isolated=isolated), values.dtype)


def _edges_of(edge_index: Tensor | Edges, values: Tensor) -> Edges:
    """The edges between the nodes that have these values, once both are known to be in one place."""
    edges = as_edges(edge_index, len(values))
    remedy = f"call edge_index.to('{values.device}')"
    require(edges.device == values.device, "edge_index", f"be on {values.device}, as scores are", edges.device, remedy)
    return edges


def _summed(values: Tensor, edges: Edges, steps: int, alpha: float, isolated: Isolated) -> Tensor:
    """The same without a matrix, by sums along the edges in double precision."""
    tiles = Tiles(edges.index.numpy(), edges.num_nodes)
    degrees = tiles.degrees()
    alone = degrees == 0 if isolated == "keep" else False
    result, count = values.detach().double().numpy(), np.maximum(degrees, 1)
    for _ in range(steps):
        mean = tiles.sums(result)
        mean /= count
        np.copyto(mean, result, where=alone)
        result = mean + alpha * (result - mean)  # exact where the mean equals the value
    return torch.from_numpy(result).to(values.dtype)


def mixed(values: Tensor, matrix: Matrix, steps: int, alpha: float) -> Tensor:
    """(αI + (1−α)A)^K s."""
    for _ in range(steps):
        values = (matrix @ values).lerp_(values, alpha)  # exact where the mean equals the value
    return values
