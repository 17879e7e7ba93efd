"""What a graph is here, and the one check that it passes at the door."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from gnnsafe.checks import check_edge_index, check_finite, check_mask, check_tensor
from gnnsafe.errors import InputError, require

__all__ = ["Graph", "check_graph", "node_labels", "node_mask"]


@runtime_checkable
class Graph(Protocol):
    """Anything with features and edges: a PyG `Data`, or any object with these attributes.

    `x` is [nodes, features], dense or sparse CSR; `edge_index` is [2, edges], an edge pointing from the node in
    its first row to the node in its second. Labels `y` and masks (`train_mask`, …, `mask`) are asked for by name
    where they are needed.
    """

    @property
    def x(self) -> Any:
        """Features, [nodes, features]."""
        ...

    @property
    def edge_index(self) -> Any:
        """Edges, [2, edges]."""
        ...


def check_graph(graph: object, *, num_features: int | None = None) -> None:
    """Features are finite numbers, one row per node, and edges join nodes that exist."""
    if not isinstance(graph, Graph):
        raise InputError(f"'data' must have x and edge_index, as PyG's Data has (got {type(graph).__name__})")
    x = check_tensor("x", graph.x)
    columns = "features" if num_features is None else num_features
    require(
        x.layout in (torch.strided, torch.sparse_csr) and x.dim() == 2 and x.shape[0] > 0 and x.is_floating_point(),
        "x", f"be a floating tensor of shape [nodes, {columns}], dense or CSR", f"{x.dtype} {list(x.shape)}",
    )  # fmt: skip
    require(num_features in (None, x.shape[1]), "x", f"have {num_features} features", x.shape[1])
    check_finite("x", x)
    check_edge_index(graph.edge_index, x.shape[0])


def node_labels(graph: Graph) -> Tensor:
    """The graph's class labels, once they are known to be one integer per node."""
    num_nodes = graph.x.shape[0]
    y = check_tensor("y", getattr(graph, "y", None))
    require(
        y.shape == (num_nodes,) and y.dtype == torch.int64,
        "y", f"be an int64 tensor of shape [{num_nodes}]", f"{y.dtype} {list(y.shape)}",
    )  # fmt: skip
    return y


def node_mask(graph: Graph, name: str) -> Tensor:
    """The graph's mask of that name, once it is known to be a mask with a node in it."""
    mask = getattr(graph, name, None)
    require(mask is not None, name, "be given", "none", f"set data.{name}, a boolean tensor with one entry per node")
    return check_mask(name, mask, graph.x.shape[0])
