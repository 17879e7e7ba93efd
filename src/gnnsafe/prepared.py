"""A graph made ready once, on the device that its tensors are on: checked, and with what is made of it cached."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch
from torch import Tensor

from gnnsafe.checks import check_features, check_tensor, full_precision
from gnnsafe.devices import chosen_device
from gnnsafe.edges import Cache, Edges
from gnnsafe.errors import InputError, require
from gnnsafe.graph import changed, edge_attributes, moved, plain, stored
from gnnsafe.modes import version
from gnnsafe.once import once
from gnnsafe.sparse import Matrix, Sparse, matrix, scipy_csr, sparse_enough

__all__ = ["Features", "PreparedGraph", "admit", "check_graph", "prepare"]

Features = Matrix | Tensor
Result = TypeVar("Result")


class PreparedGraph:
    """A graph that was checked once and does not change, with what is made of it: matrices, features as CSR, and so on.

    `gnnsafe.prepare(data)` makes it; `Detector`, `train` and our models take it wherever they take data, and then read
    its features and edges no more than they need to. Labels, masks and all else are what the data held then. It shares
    the data's tensors, which are to be left alone from then on: a write into them is refused where torch notices it.

    >>> from types import SimpleNamespace
    >>> graph = prepare(SimpleNamespace(x=torch.eye(2), edge_index=torch.tensor([[0], [1]]), y=torch.tensor([0, 1])))
    >>> graph, graph.y.tolist()
    (PreparedGraph(nodes=2, features=2, edges=1, device='cpu'), [0, 1])
    """

    data: Any
    x: Tensor
    edges: Edges
    _of_features: Cache
    _of_both: Cache
    _version: int | None

    def __init__(self, data: Any, edges: Edges, of_features: Cache | None = None, of_both: Cache | None = None) -> None:
        values = {
            "data": data,
            "x": data.x,
            "edges": edges,
            "_of_features": Cache() if of_features is None else of_features,
            "_of_both": Cache() if of_both is None else of_both,
            "_version": version(data.x),
        }
        vars(self).update(values)

    @property
    def edge_index(self) -> Tensor:
        """Edges, [2, edges]."""
        return self.edges.index

    @property
    def num_nodes(self) -> int:
        """How many nodes it has."""
        return int(self.x.shape[0])

    @property
    def device(self) -> torch.device:
        """Where its tensors are."""
        return self.x.device

    @property
    def features(self) -> Features:
        """X, as a sparse matrix where few of its entries are not 0; as it is where it requires a gradient."""
        return self.x if self.x.requires_grad else self._of_features("features", lambda: _features(self.x))

    def cached(self, key: Hashable, build: Callable[[], Result]) -> Result:
        """What `build` makes of this graph's features and edges, once."""
        return self._of_both(key, build)

    def recent(self, kind: str, key: Hashable, build: Callable[[], Result]) -> Result:
        """The same for keys without end, such as what detectors learnt: the last few of a kind are kept."""
        return self._of_both.recent(kind, key, build)

    def with_labels(self, **values: Any) -> PreparedGraph:
        """The same with other labels and masks."""
        read = ", ".join(sorted({"x", "edge_index"} & values.keys()))
        require(not read, "with_labels", "be given what is neither features nor edges", read, "prepare it again")
        return self.labelled_as(changed(self.data, **values))

    def labelled_as(self, data: Any) -> PreparedGraph:
        """The same features and edges, with all else as this data has it: labels, masks, names."""
        self.check_unwritten()  # what is kept of its features goes along, as it does below
        return PreparedGraph(changed(data, x=self.x), self.edges, self._of_features, self._of_both)

    def with_features(self, x: Tensor) -> PreparedGraph:
        """The same with other features; what was made of its edges goes along."""
        data = changed(self.data, x=x)
        _check(data, None)
        require(len(x) == self.num_nodes, "x", f"have a row for each of {self.num_nodes} nodes", len(x))
        return PreparedGraph(data, self.edges)

    def read_as(self, features: Matrix) -> PreparedGraph:
        """The same for a model that reads X by products alone, which are those of this matrix."""
        self.check_unwritten()
        cache = Cache()
        cache("features", lambda: features)
        return PreparedGraph(self.data, self.edges, cache)

    def without_edges(self, **attributes: Any) -> PreparedGraph:
        """The same with every node alone; `attributes` are those of no edges. What was made of features goes along."""
        self.check_unwritten()
        none = self.edge_index[:, :0]
        edges = self.edges.cached("none", lambda: Edges(none, self.num_nodes, reused=self.edges.reused))
        data = changed(self.data, **attributes, edge_index=edges.index)
        return PreparedGraph(data, edges, self._of_features, self.cached("without edges", Cache))

    def heard_edges(self, silent: Tensor) -> Tensor:
        """The numbers of all edges but those that lead from `silent` nodes, a mask, to others."""
        source, target = self.edge_index
        heard: Tensor = ~silent[source] | (source == target)
        return heard.nonzero().flatten()

    def without_messages(self, silent: Tensor, **attributes: Any) -> PreparedGraph:
        """The same with its `heard_edges` alone, and `attributes` of these; what was made of features goes along."""
        self.check_unwritten()
        kind, key = "without messages", silent.cpu().numpy().tobytes()
        edges = self.edges.cached.recent(
            kind,
            key,
            lambda: Edges(self.edge_index[:, self.heard_edges(silent)], self.num_nodes, reused=self.edges.reused),
        )
        data = changed(self.data, **attributes, edge_index=edges.index)
        return PreparedGraph(data, edges, self._of_features, self.recent(kind, key, Cache))

    def both_ways(self) -> PreparedGraph:
        """The same with each edge in both directions, every one once: links that mean the same either way.

        Raises:
            InputError: The graph has attributes of edges, such as `edge_weight`, which say nothing of reverse edges.
        """
        self.check_unwritten()
        data = self.data
        held = {*edge_attributes(data), *(name for name in stored(data) if name.startswith("edge_"))}
        own = ", ".join(sorted(held - {"edge_index"}))
        remedy = "set data to torch_geometric.transforms.ToUndirected()(data), and leave undirected out"
        require(not own, "undirected", "be False for a graph with attributes of edges", own, remedy)
        edges, of_both = self.edges.both_ways(), self.cached("both ways", Cache)
        others = {name: None for name in ("adj", "adj_t") if getattr(data, name, None) is not None}
        return PreparedGraph(changed(data, edge_index=edges.index, **others), edges, self._of_features, of_both)

    def to(self, device: torch.device | str) -> PreparedGraph:
        """The same on another device: all its tensors are copied there, and what is made of them is made there."""
        place = chosen_device(device)
        if place == self.device:
            return self
        self.check_unwritten()
        data = moved(self.data, place)
        return PreparedGraph(data, Edges(data.edge_index, self.num_nodes, reused=self.edges.reused))

    @once
    def tensors(self) -> dict[str, Tensor]:
        """The tensors that it holds, by name; not those made in inference mode, whose writes torch does not count."""
        held = {"x": self.x, "edge_index": self.edge_index, **self._held}
        return {name: value for name, value in held.items() if isinstance(value, Tensor) and not value.is_inference()}

    def versions(self) -> list[int]:
        """How often torch saw each of them written to."""
        return [tensor._version for tensor in self.tensors.values()]

    def to_dict(self) -> dict[str, Any]:
        """What the data holds, by name."""
        return dict(self._held)

    @once
    def _held(self) -> dict[str, Any]:
        return stored(self.data)

    @property
    def unwritten(self) -> bool:
        """Whether nothing was written into its features or edges since it was prepared, as far as torch noticed."""
        return version(self.x) == self._version and self.edges.unwritten

    def check_unwritten(self) -> None:
        """Nothing was written into its features or edges."""
        same = version(self.x) == self._version
        require(same, "x", "be left as it was when the graph was prepared", "other features", "prepare it again")
        self.edges.check_unwritten()

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, and what another process is handed, is prepared again."""
        return _prepared, (self.data, self.edges.reused)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "data":
            raise AttributeError(name)
        return getattr(self.data, name)

    def __setattr__(self, name: str, value: object) -> None:
        raise InputError(f"'{name}' must be set on the data, before it is prepared (got a prepared graph)")

    def __delattr__(self, name: str) -> None:
        self.__setattr__(name, None)

    def __repr__(self) -> str:
        sizes = f"nodes={self.num_nodes}, features={self.x.shape[1]}, edges={self.edge_index.shape[1]}"
        return f"PreparedGraph({sizes}, device='{self.device}')"


def prepare(data: Any) -> PreparedGraph:
    """The graph, checked once and made ready for repeated use.

    Args:
        data: A PyG `Data`, or anything with `x` [nodes, features] (dense or CSR) and `edge_index` [2, edges].

    Returns:
        A prepared graph on the device that the tensors are on; one that is given comes back as it is.

    Raises:
        InputError: Where features are not finite numbers, one row per node, or edges join nodes that do not exist.

    >>> from types import SimpleNamespace
    >>> prepare(SimpleNamespace(x=torch.eye(2), edge_index=torch.tensor([[0], [1]])))
    PreparedGraph(nodes=2, features=2, edges=1, device='cpu')
    """
    return admit(data, reused=True)


def admit(data: Any, *, num_features: int | None = None, reused: bool = False) -> PreparedGraph:
    """The graph, checked: a prepared graph as it is, bare data after preparing it.

    Bare data is `reused` or read once, which makes another way through it the cheapest.
    """
    if not isinstance(data, PreparedGraph):
        data = plain(data)
        _check(data, num_features)
        return _prepared(data, reused)
    data.check_unwritten()
    held = stored(data.data)  # into which a user's transform may have put others
    same = held.get("x", data.x) is data.x and held.get("edge_index", data.edge_index) is data.edge_index
    require(same, "data", "hold the features and edges that it was prepared with", "others", "prepare it again")
    _check_width(data.x, num_features)
    return data


def _prepared(data: Any, reused: bool) -> PreparedGraph:
    """Made of a copy, which shares the tensors: what is set on the data from then on is not the graph's."""
    return PreparedGraph(copy.copy(data), Edges(data.edge_index, data.x.shape[0], reused=reused))


def check_graph(data: Any) -> None:
    """Features are finite numbers, one row per node, and edges join nodes that exist."""
    admit(data)


def _check(data: Any, num_features: int | None) -> None:
    if not (hasattr(data, "x") and hasattr(data, "edge_index")):
        raise InputError(f"'data' must have x and edge_index, as PyG's Data has (got {type(data).__name__})")
    x, edge_index = check_features(data.x), check_tensor("edge_index", data.edge_index)
    _check_width(x, num_features)
    together = x.device == edge_index.device
    require(together, "edge_index", f"be on {x.device}, as x is", edge_index.device, "call data.to(...)")


def _check_width(x: Tensor, num_features: int | None) -> None:
    require(num_features in (None, x.shape[1]), "x", f"have {num_features} features", x.shape[1])


def _features(x: Tensor) -> Features:
    if x.device.type != "cpu":
        return x.detach() if x.layout == torch.strided else _csr_on_device(x)
    if sparse_enough(x):
        return Sparse(scipy_csr(x))
    return x.to_dense() if x.layout == torch.sparse_csr else x.detach()


def _csr_on_device(x: Tensor) -> Matrix:
    return matrix(x.crow_indices(), x.col_indices(), full_precision(x.values()), (x.shape[0], x.shape[1]))
