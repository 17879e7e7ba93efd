"""Scores of logits that no model here has given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torch import Tensor

from gnnsafe.checks import as_tensor, check_logits, check_no_probabilities, full_precision
from gnnsafe.edges import Edges
from gnnsafe.errors import require
from gnnsafe.methods import Method, own_method
from gnnsafe.outputs import Outputs
from gnnsafe.prepared import PreparedGraph

__all__ = ["logits_outputs", "score_logits"]


def score_logits(logits: Any, edge_index: Any, *, method: Method | str = "gnnsafe") -> Tensor:
    """Scores of logits from anywhere: numpy, JAX, DGL, a file; float32, one per node, higher = more OOD.

    Args:
        logits: Unnormalised, one row per node and one column per class: a tensor, an array or nested lists.
        edge_index: Edges [2, edges], from the first row to the second.
        method: GNNSafe, or another method (or its name) that needs nothing but logits and edges.

    Returns:
        A score for each node.

    Raises:
        InputError: Logits or edges break a rule, or the method needs more than them.

    >>> score_logits([[0.0, 9.0], [0.0, 0.0]], [[0], [1]]).tolist()
    [-9.0001..., -6.9...]
    """
    method = own_method(method)
    return method.score(logits_outputs(as_tensor("logits", logits), as_tensor("edge_index", edge_index), method=method))


def logits_outputs(logits: Tensor, edge_index: Tensor, *, method: Method) -> Outputs:
    """Logits and edges as what a model gave, for a method that reads nothing else."""
    check_logits(logits)
    logits = full_precision(logits)
    check_no_probabilities(logits)
    require(_post_hoc(method), "method", "read logits and edges alone", repr(method))
    remedy = f"call edge_index.to('{logits.device}')"
    require(
        edge_index.device == logits.device,
        "edge_index",
        f"be on {logits.device}, as logits are",
        edge_index.device,
        remedy,
    )
    edges = Edges(edge_index, len(logits), reused=False)
    return Outputs(logits, PreparedGraph(SimpleNamespace(x=logits[:, :0], edge_index=edge_index), edges))


def _post_hoc(method: Method) -> bool:
    return method.kind == "post-hoc" and all(map(_post_hoc, method.parts()))
