"""A graph that changes: features and edges in place, and the part of it that determines the scores of some nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gnnsafe.checks import check_features
from gnnsafe.errors import require
from gnnsafe.evolving.changes import Changes, Id, key
from gnnsafe.evolving.rows import SLACK, EditableRows
from gnnsafe.graph import Data, node_ids
from gnnsafe.tiles import by_target

__all__ = ["EvolvingGraph", "Part", "grown"]

DENSE = 2**34  # bytes of features that are kept as a dense array


class Part(NamedTuple):
    """Some nodes of the graph, and as much of it as determines their scores."""

    asked: Any
    """Numbers of the given nodes, in ascending order."""
    kept: Any
    """Numbers of the part's nodes, in ascending order."""
    edge_index: Tensor
    """Edges among these, by their places."""

    @property
    def where(self) -> Tensor:
        """The places of the given ones."""
        return torch.from_numpy(np.searchsorted(self.kept, self.asked))


class EvolvingGraph:
    """Nodes by number, each with an id, features, and its neighbours either way; the number of one that went is free.

    With `undirected` each edge is read in both directions, repeated ones once, as `Detector(…, undirected=True)` does.
    """

    def __init__(self, data: Data, *, undirected: bool = False) -> None:
        x, ids = check_features(data.x), node_ids(data)
        size = x.shape[0] * x.shape[1] * x.element_size()
        require(size <= DENSE, "x", f"take at most {DENSE >> 30} GiB as a dense array to be kept", f"{size:,} bytes")
        self.x = (x.to_dense() if x.layout != torch.strided else x).detach().cpu().numpy().copy()
        self.ids: list[Any] = list(range(len(self.x))) if ids is None else list(ids)
        self.numbers = {key(name): number for number, name in enumerate(self.ids)}
        require(len(self.numbers) == len(self.ids), "node_id", "name each node once, as text", "one twice")
        self.alive = np.ones(len(self.x), bool)
        self.undirected = undirected
        self.count, self._free = len(self.ids), list[int]()
        self._undo: list[Callable[[], None]] = []
        edges = data.edge_index.cpu().numpy()
        self._into = EditableRows(*by_target(edges, len(self.x)))
        self._out_of = EditableRows(*by_target(edges[::-1], len(self.x)))
        self._position = np.zeros(len(self.x), np.int64)  # of a node within a part, while one is made

    @property
    def num_features(self) -> int:
        """Columns of the features."""
        return int(self.x.shape[1])

    @property
    def num_edges(self) -> int:
        """How many edges there are, each as often as it was given."""
        return int(self._into.lengths.sum())

    @property
    def size(self) -> int:
        """Bytes of features and edges, about."""
        return int(self.count * self.x[:1].nbytes) + 16 * self.num_edges

    def number(self, name: Id) -> int | None:
        """The number of a node, None where there is no such node."""
        return self.numbers.get(key(name))

    def check(self, changes: Changes) -> None:
        """Raise an `InputError` unless all the changes can be made."""
        gone, came = {*map(key, changes.remove_nodes)}, {*map(key, changes.nodes)}
        for name in changes.remove_nodes:
            require(key(name) in self.numbers, "remove_nodes", "name nodes of the graph", repr(name))
            require(key(name) not in came, "remove_nodes", "name no node that comes or changes", repr(name))
        for pair in changes.edges:
            for name in pair:
                known = key(name) in came or (key(name) in self.numbers and key(name) not in gone)
                require(known, "edges", "join nodes that are there", repr(name), "send the node in 'nodes' too")
        for (a, b), times in changes.repeated().items():
            ends = self.numbers.get(a), self.numbers.get(b)
            known = ends[0] is not None and ends[1] is not None
            have = int((self._into.row(ends[1]) == ends[0]).sum()) if known else 0  # type: ignore[arg-type]
            require(have >= times, "remove_edges", "name edges of the graph", f"{a!r} to {b!r}, which it has {have} of")
        left = self.count - len(gone) + sum(one not in self.numbers for one in came)
        require(left > 0, "remove_nodes", "leave a node", "all of them")

    def apply(self, changes: Changes) -> Any:
        """Make changes that `check` has let pass; the numbers of the nodes that came or changed, and of edges' ends.

        Until the next changes, `undo` takes them back.
        """
        touched: set[int] = set()
        self._undo.clear()
        for pair in changes.remove_edges:
            a, b = (self.numbers[key(name)] for name in pair)
            self._unlink(a, b)
            self._undo.append(partial(self._link, a, b))
            touched |= {a, b}
        for name in changes.remove_nodes:
            touched |= self._remove(key(name))
        for name, x in changes.nodes.items():
            touched.add(self._put(name, x))
        for pair in changes.edges:
            a, b = (self.numbers[key(name)] for name in pair)
            self._link(a, b)
            self._undo.append(partial(self._unlink, a, b))
            touched |= {a, b}
        return np.array(sorted(one for one in touched if self.alive[one]), np.int64)

    def undo(self) -> None:
        """Take the last changes back, the last one first."""
        while self._undo:
            self._undo.pop()()

    def _link(self, a: int, b: int) -> None:
        self._into.add(b, a)
        self._out_of.add(a, b)

    def _unlink(self, a: int, b: int) -> None:
        self._into.remove(b, a)
        self._out_of.remove(a, b)

    def _remove(self, name: str) -> set[int]:
        """Its neighbours."""
        number = self.numbers.pop(name)
        sources, targets = self._into.row(number).tolist(), self._out_of.row(number).tolist()
        outward = [one for one in targets if one != number]  # a loop is among the sources
        self._undo.append(partial(self._restore, name, self.ids[number], number, sources, outward))
        for one in sources:
            self._out_of.remove(one, number)
        for one in targets:
            self._into.remove(one, number)
        self._into.clear(number)
        self._out_of.clear(number)
        self.alive[number], self.ids[number] = False, None
        self._free.append(number)
        self.count -= 1
        return {*sources, *targets}

    def _restore(self, name: str, own: Id, number: int, sources: list[int], targets: list[int]) -> None:
        """A node that went, with its edges; its features were left where they are."""
        self._free.remove(number)
        self.numbers[name], self.ids[number], self.alive[number] = number, own, True
        self.count += 1
        for one in sources:
            self._link(one, number)
        for one in targets:
            self._link(number, one)

    def _forget(self, name: str, number: int, x: Any) -> None:
        """A node that came; its number may have been another's, whose features were there."""
        del self.numbers[name]
        self.alive[number], self.ids[number], self.x[number] = False, None, x
        self._free.append(number)
        self.count -= 1

    def _features(self, number: int, x: Any) -> None:
        self.x[number] = x

    def _put(self, name: Id, x: Any) -> int:
        number = self.numbers.get(key(name))
        if number is None:
            number = self._free.pop() if self._free else self._new()
            self.numbers[key(name)], self.ids[number], self.alive[number] = number, name, True
            self.count += 1
            self._undo.append(partial(self._forget, key(name), number, self.x[number].copy()))
        else:
            self._undo.append(partial(self._features, number, self.x[number].copy()))
        self.x[number] = x
        return number

    def _new(self) -> int:
        number = len(self.ids)
        self.ids.append(None)
        if number == len(self.x):
            size = int(SLACK * number) + 16
            self.x, self.alive, self._position = (grown(one, size) for one in (self.x, self.alive, self._position))
            self._into.grow(size)
            self._out_of.grow(size)
        return number

    def reached(self, nodes: Any, hops: int, most: int) -> Any:
        """The nodes that these reach in at most `hops` edges, themselves among them; None if there are over `most`."""
        return self._spread(nodes, hops, most, self._out_of, self._into)

    def receptive_field(self, nodes: Any, hops: int, most: int) -> Any:
        """The nodes from which at most `hops` edges lead to these; None if there are over `most`."""
        return self._spread(nodes, hops, most, self._into, self._out_of)

    def _spread(self, nodes: Any, hops: int, most: int, rows: EditableRows, others: EditableRows) -> Any:
        seen = np.zeros(len(self.x), bool)
        seen[nodes] = True
        found, last = [np.asarray(nodes)], np.asarray(nodes)
        for _ in range(hops):
            near = rows.of(last)[0]
            near = np.concatenate([near, others.of(last)[0]]) if self.undirected else near
            last = np.unique(near[~seen[near]])
            seen[last] = True
            found.append(last)
            if len(last) == 0 or sum(map(len, found)) > most:
                break
        every = np.sort(np.concatenate(found))
        return every if len(every) <= most else None

    def part(self, asked: Any, hops: int, most: int) -> Part | None:
        """These nodes, those from which at most `hops` edges lead to them, and all that point into one of these.

        It decides about the nodes where the receptive field is `hops` hops: degrees count all in-neighbours. None where
        it is over `most`.
        """
        field = self.receptive_field(asked, hops, most)
        if field is None:
            return None
        sources, targets = self._edges_into(field)
        kept = np.union1d(field, sources)
        self._position[kept] = np.arange(len(kept))
        return Part(asked, kept, torch.from_numpy(np.stack([self._position[sources], self._position[targets]])))

    def around(self, part: Part) -> tuple[Data, Tensor]:
        """The part as a graph, and its nodes' out-degrees in the whole."""
        self._position[part.kept] = np.arange(len(part.kept))
        return self._data(part.kept, part.edge_index), self._out_degrees(part.kept)

    def _edges_into(self, nodes: Any) -> tuple[Any, Any]:
        sources, owners = self._into.of(nodes)
        if not self.undirected:
            return sources, nodes[owners]
        targets, others = self._out_of.of(nodes)
        pairs = np.unique(
            np.stack([np.concatenate([nodes[owners], nodes[others]]), np.concatenate([sources, targets])]), axis=1
        )
        return pairs[1], pairs[0]

    def _out_degrees(self, nodes: Any) -> Tensor:
        if not self.undirected:
            return torch.from_numpy(self._out_of.lengths[nodes].astype(np.float64))
        _, targets = self._edges_into(nodes)  # as many leave a node as come
        return torch.from_numpy(np.bincount(self._position[targets], minlength=len(nodes)).astype(np.float64))

    def whole(self) -> tuple[Any, Data]:
        """All nodes that are there: their numbers, and the graph that they are, with its edges as they were given."""
        nodes = np.flatnonzero(self.alive[: len(self.ids)])
        self._position[nodes] = np.arange(len(nodes))
        sources, owners = self._into.of(nodes)
        return nodes, self._data(nodes, torch.from_numpy(np.stack([self._position[sources], owners])))

    def _data(self, nodes: Any, edge_index: Tensor) -> Data:
        from torch_geometric.data import Data as Graph  # seconds to import

        return Graph(x=torch.from_numpy(self.x[nodes]), edge_index=edge_index)

    def near(self, node: int, count: int) -> list[int]:
        """At most so many nodes around one, the nearest first, whichever way edges point."""
        found, seen = [node], {node}
        for one in found:  # which grows meanwhile
            for other in (*self._into.row(one).tolist(), *self._out_of.row(one).tolist()):
                if len(found) >= count:
                    return found
                if other not in seen:
                    seen.add(other)
                    found.append(other)
        return found

    def among(self, nodes: Any) -> list[tuple[int, int]]:
        """The edges among these nodes, each once, by the places of their ends among `nodes`; no loops."""
        place = {number: at for at, number in enumerate(nodes.tolist())}
        sources, owners = self._into.of(nodes)
        pairs = zip(sources.tolist(), owners.tolist(), strict=True)
        return list(dict.fromkeys((place[a], b) for a, b in pairs if a in place and place[a] != b))

    def names(self, nodes: Any) -> Sequence[Any]:
        """What the user calls these nodes."""
        return [self.ids[number] for number in nodes.tolist()]


def grown(values: Any, size: int) -> Any:
    """The array with room for `size` rows, zeros at its end."""
    more = np.zeros((size - len(values), *values.shape[1:]), values.dtype)
    return np.concatenate([values, more]) if len(more) else values
