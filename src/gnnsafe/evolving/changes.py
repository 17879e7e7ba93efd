"""Changes of a graph: nodes and edges that came, changed or went, checked against the rules before any is made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gnnsafe.errors import InputError, require

__all__ = ["Changes", "key"]

Id = str | int
Pair = tuple[Id, Id]
LARGEST = float(np.finfo(np.float32).max)
LISTS = ("nodes", "edges", "remove_nodes", "remove_edges")


@dataclass(frozen=True)
class Changes:
    """What came, changed and went, by the ids of nodes.

    First edges and nodes go, a node with all its edges; then nodes come or get other features; then edges come.
    """

    nodes: Mapping[Id, Any] = field(default_factory=dict)
    """Features of the nodes that came or changed, by id."""
    edges: Sequence[Pair] = ()
    """Edges that came, source and target; a repeated one counts as often as it is given."""
    remove_nodes: Sequence[Id] = ()
    remove_edges: Sequence[Pair] = ()

    @classmethod
    def of(cls, record: Any, num_features: int) -> Changes:
        """Out of JSON: `nodes` (id and features), `edges` (pairs of ids), `remove_nodes`, `remove_edges`.

        >>> Changes.of({"nodes": [{"id": "a", "features": [1, 0.5]}], "edges": [["a", "b"]]}, 2).edges
        [('a', 'b')]
        """
        require(isinstance(record, Mapping), "changes", "be an object", type(record).__name__)
        unknown = next((name for name in record if name not in LISTS), None)
        require(unknown is None, "changes", f"hold nothing but {', '.join(LISTS)}", repr(unknown))
        for name in LISTS:
            given = record.get(name)
            require(given is None or isinstance(given, list), name, "be a list", type(given).__name__)
        nodes = dict(_node(place, one, num_features) for place, one in enumerate(record.get("nodes") or ()))
        once = len({*map(key, nodes)}) == len(record.get("nodes") or ())
        require(once, "nodes", "name each node once", "one twice")
        gone = [_id("remove_nodes", place, one) for place, one in enumerate(record.get("remove_nodes") or ())]
        require(len({*map(key, gone)}) == len(gone), "remove_nodes", "name each node once", "one twice")
        pairs = {
            name: [_pair(name, place, one) for place, one in enumerate(record.get(name) or ())]
            for name in ("edges", "remove_edges")
        }
        return cls(nodes=nodes, remove_nodes=gone, **pairs)

    def to_record(self) -> dict[str, Any]:
        """As JSON has it; `of` reads it again."""
        nodes = [{"id": name, "features": np.asarray(x).tolist()} for name, x in self.nodes.items()]
        edges, gone = ([list(pair) for pair in pairs] for pairs in (self.edges, self.remove_edges))
        return {"nodes": nodes, "edges": edges, "remove_nodes": list(self.remove_nodes), "remove_edges": gone}

    def __len__(self) -> int:
        return sum(len(getattr(self, name)) for name in LISTS)

    def repeated(self) -> Counter[tuple[str, str]]:
        """How often each edge is to go."""
        return Counter((key(a), key(b)) for a, b in self.remove_edges)


def key(name: Id) -> str:
    """By what a node is found: 7 and "7" are one."""
    return str(name)


def _node(place: int, one: Any, num_features: int) -> tuple[Id, Any]:
    if not (isinstance(one, Mapping) and one.keys() == {"id", "features"}):
        raise _wrong(f"nodes[{place}]", "be an object with id and features", one)
    name, features = f"nodes[{place}].features", one["features"]
    try:
        x = np.asarray(features, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise _wrong(name, "be a list of numbers", features) from error
    if not (isinstance(features, list) and x.ndim == 1):
        raise _wrong(name, "be a list of numbers", features)
    require(len(x) == num_features, name, f"be {num_features} numbers", len(x))
    finite = bool((np.abs(x) <= LARGEST).all())  # NaN is not
    require(finite, name, "be finite in float32", "one that is not")
    return _id("nodes", place, one["id"]), x


def _id(name: str, place: int, one: Any) -> Id:
    whole = isinstance(one, int) and not isinstance(one, bool) and abs(one) < 2**63
    if not (whole or (isinstance(one, str) and 0 < len(one) <= 1000 and _encodable(one))):
        raise _wrong(f"{name}[{place}]", "name a node by a text or a whole number", one)
    return one  # type: ignore[no-any-return]


def _pair(name: str, place: int, one: Any) -> Pair:
    if not (isinstance(one, list) and len(one) == 2):
        raise _wrong(f"{name}[{place}]", "be [source, target]", one)
    return _id(name, place, one[0]), _id(name, place, one[1])


def _encodable(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _wrong(name: str, rule: str, value: Any) -> InputError:
    """In words only where they are needed: those of a long list cost more than the check."""
    text = repr(value)
    return InputError(f"'{name}' must {rule} (got {text if len(text) <= 60 else f'{text[:57]}…'})")
