"""What each node brings to a score, and what each piece of evidence does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gnnsafe.edges import Edges
from gnnsafe.methods import Method
from gnnsafe.methods.reasons import Addend
from gnnsafe.methods.scored import base_scores_of
from gnnsafe.outputs import Outputs
from gnnsafe.propagation import Propagation

__all__ = ["Evidence", "Share", "evidence", "mean_weights", "pulls", "shares"]


class Share(NamedTuple):
    """What one node brings to the score: `weight` × its own `score` before propagation = `share`."""

    node: int
    weight: float
    score: float
    share: float


class Evidence(NamedTuple):
    """What one of the method's parts adds: weight · (−log p − what is usual among ID nodes)."""

    says: str
    method: str
    p_value: float | None
    """How rare its score is among ID nodes; None where it says nothing of the node."""
    weight: float
    addend: float
    silent: str
    """Why it says nothing."""
    score: float | None = None
    """The part's own score, where that is propagated."""
    shares: tuple[Share, ...] = ()
    """Every node that counts in it, the heaviest first: they sum to the part's own score, where that is propagated."""

    def to_dict(self) -> dict[str, Any]:
        """All of it, as JSON has it."""
        return {**self._asdict(), "shares": [share._asdict() for share in self.shares]}


def evidence(parts: Sequence[Method], addends: Sequence[Addend], outputs: Outputs, node: int) -> tuple[Evidence, ...]:
    """What each part adds, and which nodes counted in a propagated one; the most telling first."""
    pairs, read = zip(parts, addends, strict=True) if addends else (), outputs.with_embeddings()
    found = [_evidence(part, addend, read, node) for part, addend in pairs]
    return tuple(sorted(found, key=lambda one: (one.p_value is None, -one.addend)))


def _evidence(part: Method, addend: Addend, outputs: Outputs, node: int) -> Evidence:
    if part.propagation.steps == 0:
        return Evidence(part.says, repr(part), *addend)
    found = shares(base_scores_of(part, outputs), part.propagation, outputs.graph.edges, node)
    total = torch.tensor(sum(share.share for share in found), dtype=torch.float32, device="cpu")  # as scores are
    return Evidence(part.says, repr(part), *addend, float(total), found)


def shares(own: Tensor, how: Propagation, edges: Edges, node: int) -> tuple[Share, ...]:
    """weight × own score of every node that counts, the heaviest first."""
    row, own = how.weights(edges, node, own).cpu(), own.cpu().double()
    nodes = row.nonzero().flatten()
    nodes = nodes[row[nodes].argsort(descending=True, stable=True)]
    columns = (nodes, row[nodes], own[nodes], row[nodes] * own[nodes])
    return tuple(Share(*values) for values in zip(*(column.tolist() for column in columns), strict=True))


def mean_weights(whole: tuple[Share, ...], parts: Sequence[Evidence], node: int, num_nodes: int) -> Tensor:
    """How much each node counts, [nodes]: in the score, or on average in the evidence, by its weight; on the CPU."""
    pieces = [(one.weight, one.shares or (Share(node, 1.0, 0.0, 0.0),)) for one in parts if not one.silent]
    row = torch.zeros(num_nodes, dtype=torch.float64, device="cpu")
    for weight, found in pieces or [(1.0, whole)]:
        nodes = torch.tensor([share.node for share in found], dtype=torch.int64, device="cpu")
        weights = torch.tensor([share.weight for share in found], dtype=torch.float64, device="cpu")
        row[nodes] += weight * weights
    return row / sum(weight for weight, _ in pieces) if pieces else row


def pulls(found: Sequence[Share], score: float, node: int, name: Callable[[int], str], count: int) -> list[str]:
    """Which other nodes raised a propagated score most, and which lowered it most."""
    others = sorted(
        (share for share in found if share.node != node), key=lambda share: share.weight * (share.score - score)
    )
    lines = []
    for verb, sign, chosen in (("raised", 1, others[::-1]), ("lowered", -1, others)):
        named = [share for share in chosen[:count] if sign * (share.score - score) > 0]
        if named:
            told = ", ".join(f"{name(share.node)} ({share.score:.4g} × {share.weight:.1%})" for share in named)
            lines.append(f"{verb} most by node{'s' * (len(named) > 1)} {told}")
    return lines
