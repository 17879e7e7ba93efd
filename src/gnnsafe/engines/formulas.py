"""Aggregation: D⁻¹A, Â and A + I by rows, of sums over the edges from other nodes.

A block has `value`, the node's own row, `aggregated`, the sum of its in-neighbours' rows, `count`, how many edges that
are, and `loops`, how many edges it has to itself.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gnnsafe.edges import Isolated
from gnnsafe.engines.engine import Block

__all__ = ["convolved", "diffused", "mean", "root", "total"]


def root(block: Block) -> Tensor:
    """d^-½ with d the in-degree of A + I, in which each node has exactly one self-loop.

    >>> root({"count": torch.tensor([[3.0]])}).tolist()
    [[0.5]]
    """
    return (1 + block["count"].double()).rsqrt().float()


def convolved(block: Block) -> Tensor:
    """Row of Â H, Â = D̃^-½ (A + I) D̃^-½, where the rows of `value` are D̃^-½ H already (Kipf & Welling, 2017)."""
    return (block["aggregated"] + block["value"]) * root(block)


def total(block: Block) -> Tensor:
    """Row of (A + I) H."""
    return block["aggregated"] + (1 + block["loops"]).to(block["value"].dtype) * block["value"]


def mean(block: Block, isolated: Isolated) -> Tensor:
    """Row of D⁻¹A H; a node without in-neighbours has its own row ("keep") or zeros ("decay").

    >>> block = {"value": torch.tensor([[8.0]]), "aggregated": torch.tensor([[1.0]]),
    ...          "count": torch.tensor([[2.0]]), "loops": torch.tensor([[1.0]])}
    >>> mean(block, "keep").tolist()
    [[3.0]]
    """
    own = block["value"]
    degree = (block["count"] + block["loops"]).to(own.dtype)
    average = (block["aggregated"] + block["loops"].to(own.dtype) * own) / degree.clamp(min=1)
    return torch.where(degree > 0, average, own if isolated == "keep" else 0)


def diffused(block: Block, alpha: float, isolated: Isolated) -> Tensor:
    """Row of α H + (1−α) D⁻¹A H  (Wu et al., 2023, eq. 6)."""
    return torch.lerp(mean(block, isolated), block["value"], alpha)
