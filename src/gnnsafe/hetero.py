"""One node type of a heterogeneous graph, seen as a graph of its own."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gnnsafe.errors import InputError, require, require_known
from gnnsafe.graph import Data

__all__ = ["EdgeType", "NodeTypeGraph", "node_type_graph"]

EdgeType = tuple[str, str, str]


class NodeTypeGraph:
    """Nodes of one type and the edges of some types between them; the rest of PyG's `HeteroData` stands behind.

    What a model reads is `whole`. Features that are set here are set in a copy of it; edges can only be taken away, all
    of every type at once, which leaves every node alone. Labels and masks are those of the node type.
    """

    def __init__(self, whole: Data, node_type: str, edge_types: Sequence[EdgeType]) -> None:
        features = getattr(whole[node_type], "x", None)
        none = torch.empty(2, 0, dtype=torch.int64, device=getattr(features, "device", None))
        edges = torch.cat([none, *(whole[kind].edge_index for kind in edge_types)], dim=1)
        self.__dict__.update(whole=whole, node_type=node_type, kinds=tuple(edge_types), edges=edges)

    @property
    def x(self) -> Any:
        """The node type's features."""
        return self.whole[self.node_type].x

    @property
    def edge_index(self) -> Tensor:
        """The edges of the chosen types, one type after the other."""
        edges: Tensor = self.__dict__["edges"]
        return edges

    def to_dict(self) -> dict[str, Any]:
        """All that the whole graph holds, by type and name."""
        return {f"{kind}.{name}": value for kind, part in self.whole.to_dict().items() for name, value in part.items()}

    def to(self, device: torch.device | str) -> NodeTypeGraph:
        """The same on another device, with all of the whole graph."""
        new = copy.copy(self)
        new.__dict__.update(whole=copy.copy(self.whole).to(device), edges=self.edges.to(device))
        return new

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "whole":
            raise AttributeError(name)
        return getattr(self.whole[self.node_type], name)

    def __setattr__(self, name: str, value: Any) -> None:
        whole = copy.copy(self.whole)
        if name == "edge_index":
            require(value.numel() == 0, "edge_index", "be left as it is or emptied in a heterogeneous graph", "edges")
            self.__dict__["edges"] = value
            for kind in whole.edge_types:
                for attribute in whole[kind].edge_attrs():
                    rows = whole[kind][attribute]
                    whole[kind][attribute] = rows[:, :0] if attribute == "edge_index" else rows[:0]
        else:
            whole[self.node_type][name] = value
        self.__dict__["whole"] = whole


def node_type_graph(data: Data, node_type: str, edge_types: Sequence[EdgeType] | None) -> Data:
    """The nodes of that type, and the edges of these types or of all that join such nodes; such a graph as it is."""
    if isinstance(getattr(data, "data", None), NodeTypeGraph):  # prepared
        return data
    if not hasattr(data, "node_types") or not hasattr(data, "edge_types"):
        raise InputError(f"'data' must be a HeteroData where node_type is given (got {type(data).__name__})")
    require_known("node_type", node_type, data.node_types)
    within = [kind for kind in data.edge_types if kind[0] == kind[2] == node_type]
    for kind in edge_types or ():
        known = ", ".join(map(str, within)) or "none"
        remedy = "a graph without any such edge holds an empty edge_index of that type"
        require(tuple(kind) in within, "edge_types", f"join {node_type!r} with itself: {known}", kind, remedy)
    return NodeTypeGraph(data, node_type, within if edge_types is None else [(a, b, c) for a, b, c in edge_types])
