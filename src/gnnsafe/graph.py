"""What a graph is here, and the one check that it passes when it comes in."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from inspect import ismemberdescriptor
from typing import Any, Literal, Protocol

import numpy as np
import torch
import xxhash
from torch import Tensor

from gnnsafe.checks import (
    Task,
    check_labels,
    check_mask,
    check_node,
    check_places,
    check_tensor,
)
from gnnsafe.errors import InputError, require
from gnnsafe.hashing import content
from gnnsafe.modes import without_modes

__all__ = [
    "WHOLE_GRAPH",
    "Data",
    "Graph",
    "Kind",
    "called",
    "changed",
    "check_feature_names",
    "edge_attributes",
    "edges_of",
    "fingerprint",
    "kept_names",
    "masked",
    "moved",
    "node_ids",
    "node_labels",
    "node_mask",
    "node_number",
    "plain",
    "stored",
]


NODES = ("x", "y", "z", "pos", "batch", "n_id", "mask")  # what PyG calls what nodes have
WHOLE_GRAPH = ("edge_index", "feature_names", "class_names")  # that are of neither
Kind = Literal["node", "edge"]
TENSOR_TYPES = (Tensor, torch.nn.Parameter)
NAME_TYPES = (str, int, float, type(None))  # what JSON has
Data = Any  # PyG's own class, where one is made or changed; its package ships no types


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


def plain(data: Any) -> Any:
    """The graph with tensors of torch's own class, and with `edge_index` where it has `adj_t` alone, as PyG allows.

    `adj_t` has a row for each target node: an edge points from column to row. Entries other than 1 are weights and
    become `edge_weight`. A graph that has all that is returned as it is.
    """
    values: dict[str, Any] = {}
    if getattr(data, "edge_index", None) is None and getattr(data, "adj_t", None) is not None:
        values = edges_of(data.adj_t)
    for name in ("x", "edge_index"):
        value = values.get(name, getattr(data, name, None))
        if isinstance(value, Tensor) and value.layout == torch.strided and type(value) not in TENSOR_TYPES:
            bare = value.as_subclass(Tensor)
            if type(bare) is Tensor:  # else it is what it wraps, as a tensor of a device written in Python is
                values[name] = value = bare
        if isinstance(value, Tensor) and value.is_inference():  # through which no gradient can be taken
            with without_modes():
                values[name] = value.clone()
    return changed(data, **values) if values else data


def edges_of(adj_t: Any) -> dict[str, Tensor]:
    """`edge_index` and, where entries are other than 1, `edge_weight` of a sparse matrix, as `plain` has them."""
    matrix = check_tensor("data.adj_t", adj_t, torch.sparse_csr, torch.sparse_csc, torch.sparse_coo)
    require(matrix.dim() == 2, "data.adj_t", "be of shape [nodes, nodes]", list(matrix.shape))
    check_places("data.adj_t", matrix)
    entries = matrix.detach().to_sparse_coo().coalesce()  # type: ignore[no-untyped-call]
    weights = {} if bool((entries.values() == 1).all()) else {"edge_weight": entries.values()}
    return {"edge_index": entries.indices().flip(0).contiguous(), **weights}


def stored(graph: Any) -> dict[str, Any]:
    """What the graph holds, by name, in `__slots__` too; neither properties nor methods, nor what is None.

    >>> from types import SimpleNamespace
    >>> stored(SimpleNamespace(x=1, y=None))
    {'x': 1}
    """
    values = graph.to_dict() if hasattr(graph, "to_dict") else {**_in_slots(graph), **getattr(graph, "__dict__", {})}
    return {name: value for name, value in values.items() if value is not None}


def _in_slots(graph: Any) -> dict[str, Any]:
    members = (name for kind in type(graph).__mro__ for name, slot in vars(kind).items() if ismemberdescriptor(slot))
    return {name: getattr(graph, name, None) for name in members if name != "__dict__"}


def node_ids(graph: Graph) -> Sequence[Any] | None:
    """What the user calls the nodes, `graph.node_id`, checked to be one per node; None where there is none."""
    own: Any = getattr(graph, "node_id", None)
    own = own.tolist() if isinstance(own, Tensor | np.ndarray) else own
    nodes, many = graph.x.shape[0], isinstance(own, Sequence) and not isinstance(own, str)
    fits = own is None or (many and len(own) == nodes)
    require(
        fits, "node_id", f"be a list of {nodes} ids", len(own) if many else type(own).__name__, "correct data.node_id"
    )
    return own  # type: ignore[no-any-return]


def node_number(graph: Graph, node: object, name: str = "node") -> int:
    """The number of a node that is given by its number or, as text, by its id in `graph.node_id`."""
    nodes = graph.x.shape[0]
    if isinstance(node, str):
        own = node_ids(graph)
        none = f"be a node's number, 0..{nodes - 1}"
        require(own is not None, name, none, repr(node), "this graph has no node_id")
        ids = [str(one) for one in own or ()]
        few = ", ".join(ids[:3])
        require(node in ids, name, "be the id of a node of the graph", repr(node), f"its ids are such as {few}")
        return ids.index(node)
    own = getattr(graph, "node_id", None)
    return check_node(node, nodes, name, "" if own is None else f"an id is given as text, such as {str(node)!r}")


def node_labels(graph: Graph, task: Task = "multiclass") -> Tensor:
    """The graph's labels on its device, checked to be one class per node, or a row of zeros and ones."""
    y: Any = getattr(graph, "y", None)
    require(y is not None, "y", "be given", "none", "set data.y, an int64 class per node")
    nodes = graph.x.shape[0]
    column = task == "multiclass" and isinstance(y, Tensor) and y.shape == (nodes, 1)  # as OGB has them
    return check_labels("y", y.squeeze(1) if column else y, nodes, task).to(graph.edge_index.device)


def node_mask(graph: Graph, name: str) -> Tensor:
    """The graph's mask of that name on its device, checked to be a mask with a node in it."""
    mask = getattr(graph, name, None)
    require(mask is not None, name, "be given", "none", f"set data.{name}, a boolean tensor with one entry per node")
    return check_mask(name, mask, graph.x.shape[0]).to(graph.edge_index.device)


def masked(values: Tensor, graph: Graph, name: str) -> Tensor:
    """The values of the nodes in the graph's mask of that name; all of them as they are where it holds all nodes."""
    mask = node_mask(graph, name)
    require(len(values) == len(mask), name, f"have one entry for each of {len(values)} rows", len(mask))
    nodes = mask.nonzero().squeeze(1)
    return values if len(nodes) == len(mask) else values.index_select(0, nodes)


def kept_names(graph: Graph, name: str, count: int | None) -> tuple[Any, ...] | None:
    """The graph's `feature_names` or `class_names`, checked to be `count` where that is given."""
    names = getattr(graph, name, None)
    if names is None:
        return None
    require(isinstance(names, Sequence | np.ndarray) and not isinstance(names, str), name, "be a list of names", names)
    require(count in (None, len(names)), name, f"have {count} names", len(names), f"correct data.{name}, or delete it")
    plain = tuple(one.item() if hasattr(one, "item") else one for one in names)  # numpy's are not JSON's
    odd = next((one for one in plain if not isinstance(one, NAME_TYPES)), "")
    remedy = f"call data.{name} = [str(name) for name in data.{name}]"
    require(isinstance(odd, str), name, "hold texts or numbers", type(odd).__name__, remedy)
    return plain


def check_feature_names(graph: Graph, names: tuple[str, ...] | None) -> None:
    """The graph's features are these in this order, where both say what theirs are called."""
    own = kept_names(graph, "feature_names", None)
    if names is None or own is None or own == names:
        return
    lacking, surplus = ([n for n in a if n not in b] for a, b in ((names, own), (own, names)))
    got = [f"no '{lacking[0]}'"] if lacking else []
    got += [f"'{surplus[0]}', which it does not know"] if surplus else []
    place = next((place for place, pair in enumerate(zip(names, own, strict=False)) if len(set(pair)) > 1), 0)
    require(
        False,
        "x",
        f"have the {len(names)} features of the training graph in their order",
        " and ".join(got) or f"another order, '{own[place]}' where '{names[place]}' was",
        "" if got else "put them in that order",
    )


def called(name: str) -> Kind | None:
    """Whose rows an attribute of this name has; None where the name does not say."""
    if name == "edge_index":
        return None
    if "edge" in name or name == "e_id":
        return "edge"
    return "node" if name in NODES or name.startswith("node_") or name.endswith("_mask") else None


def edge_attributes(graph: Data) -> list[str]:
    """Of a PyG graph the names of what its edges have: what is called so, and what is as long as they are many.

    Neither what belongs to nodes nor what belongs to the whole graph by its name, as long as it may be.
    """
    names: list[str] = getattr(graph, "edge_attrs", list)()
    return [name for name in names if called(name) != "node" and name not in WHOLE_GRAPH]


def changed(graph: Data, **values: Any) -> Data:
    """A new graph with these values; all others are shared. Attributes of edges do not outlive the edges."""
    new = copy.copy(graph)
    if "edge_index" in values:
        for name in edge_attributes(new):
            if name not in values:
                delattr(new, name)
    try:
        for name, value in values.items():
            setattr(new, name, value)
    except AttributeError as error:
        raise InputError(f"'data' must let its attributes be set on a copy (got {type(graph).__name__})") from error
    return new


def moved(graph: Data, device: torch.device | str) -> Data:
    """A new graph with all its tensors on the device; PyG's own way finds those in its lists and dictionaries, too."""
    if hasattr(graph, "to"):
        return copy.copy(graph).to(device)
    return changed(
        graph, **{name: value.to(device) for name, value in stored(graph).items() if isinstance(value, Tensor)}
    )


def fingerprint(*graphs: Data) -> str:
    """A hash of all tensors of PyG graphs, with their names: equal graphs have the same."""
    hashed = xxhash.xxh3_128()
    for graph in graphs:
        for name, value in sorted(graph.to_dict().items()):
            if isinstance(value, Tensor):
                hashed.update(f"{name} {value.dtype} {list(value.shape)}".encode())
                hashed.update(content(value))
    return hashed.hexdigest()
