"""What was decided about the nodes of a kept graph, in columns: filtered, sorted and paged without reading it all."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from gnnsafe.detector import Decisions
from gnnsafe.errors import require_known, require_whole
from gnnsafe.evolving.graph import grown

__all__ = ["BINS", "Columns", "Query", "Row", "Sort", "Totals"]

BINS = 20  # of p-values
Sort = Literal["score", "p_value", "probability"]


class Row(NamedTuple):
    """What was decided about one node."""

    id: Any
    score: float
    p_value: float
    flag: bool
    predicted: Any
    """The class by its name or number; None where there is none."""
    probability: float | None


@dataclass(frozen=True)
class Query:
    """Which nodes, in which order: the most unusual first, by default."""

    flagged: bool | None = None
    predicted: str | None = None
    """The class, by its name or number."""
    search: str = ""
    """A text within the id, whatever its capitals."""
    sort: Sort = "score"
    reverse: bool = False
    offset: int = 0
    limit: int = 50

    def __post_init__(self) -> None:
        require_known("sort", self.sort, get_args(Sort))
        require_whole("offset", self.offset, 0)
        require_whole("limit", self.limit, 1)


class Totals(NamedTuple):
    """All nodes at a glance."""

    nodes: int
    flagged: int
    p_values: tuple[int, ...]
    """How many p-values lie in each twentieth of 0 … 1."""
    classes: dict[str, int]
    """How many nodes are predicted to be of each class."""
    flagged_classes: dict[str, int]


class Columns:
    """One entry for each number of a node; a node that went is not there. Safe for threads."""

    def __init__(self, size: int, class_names: Sequence[Any] | None) -> None:
        self.class_names = class_names
        self._ids: list[Any] = [None] * size
        self._there = np.zeros(size, bool)
        self._scores, self._p_values = np.zeros(size, np.float32), np.ones(size, np.float64)
        self._flags, self._probabilities = np.zeros(size, bool), np.zeros(size, np.float32)
        self._predicted = np.full(size, -1, np.int32)
        self._lock = threading.Lock()
        self._summary: Totals | None = None

    def put(self, nodes: Any, decisions: Decisions, gone: Sequence[int] = ()) -> None:
        """What was decided about these nodes, in place of what was before; all at once, with those that went."""
        with self._lock:
            self._summary = None
            self._there[list(gone)] = False
            if len(nodes) and nodes[-1] >= len(self._there):
                self._grow(int(nodes[-1]) + 1)
            self._there[nodes] = True
            for number, name in zip(nodes.tolist(), decisions.ids, strict=True):
                self._ids[number] = name
            self._scores[nodes] = decisions.scores.cpu().numpy()
            self._p_values[nodes] = decisions.p_values.cpu().numpy()
            self._flags[nodes] = decisions.flags.cpu().numpy()
            if decisions.predicted is not None and decisions.probabilities is not None:
                self._predicted[nodes] = decisions.predicted.cpu().numpy()
                self._probabilities[nodes] = decisions.probabilities.cpu().numpy()

    def _grow(self, size: int) -> None:
        size = int(1.5 * size) + 16
        self._ids += [None] * (size - len(self._ids))
        for name in ("_there", "_scores", "_p_values", "_flags", "_probabilities", "_predicted"):
            setattr(self, name, grown(getattr(self, name), size))

    def row(self, number: int) -> Row | None:
        """What was decided about one node; None where it is not there."""
        with self._lock:
            known = 0 <= number < len(self._there) and bool(self._there[number])
            return self._rows([number])[0] if known else None

    def classes(self, nodes: Any) -> tuple[Any, Any]:
        """The predicted classes of these nodes and their probabilities; of one that is not there, nothing."""
        with self._lock:
            predicted, probabilities = np.full(len(nodes), -1, np.int64), np.zeros(len(nodes), np.float32)
            known = nodes < len(self._there)
            predicted[known], probabilities[known] = self._predicted[nodes[known]], self._probabilities[nodes[known]]
            return predicted, probabilities

    def listed(self, query: Query) -> tuple[int, list[Row]]:
        """How many nodes there are of the kind, and a page of them."""
        with self._lock:
            nodes = np.flatnonzero(self._chosen(query))
            if query.search:
                nodes = self._named(nodes, query.search.casefold())
            page = first(self._keys(query, nodes), query.offset + query.limit)[query.offset :]
            return len(nodes), self._rows(nodes[page].tolist())

    def rows(self, numbers: Sequence[int]) -> list[Row]:
        """What was decided about these nodes, those that are there."""
        with self._lock:
            return self._rows([number for number in numbers if self._there[number]])

    def most_unusual(self, count: int) -> list[Row]:
        """The nodes with the highest scores."""
        return self.listed(Query(limit=count))[1]

    def summary(self) -> Totals:
        """All nodes at a glance; counted once for each change."""
        with self._lock:
            if self._summary is None:
                self._summary = self._counted()
            return self._summary

    def _counted(self) -> Totals:
        there, flags = self._there, self._flags & self._there
        counts = np.bincount(np.minimum((self._p_values[there] * BINS).astype(int), BINS - 1), minlength=BINS)
        return Totals(int(there.sum()), int(flags.sum()), tuple(counts.tolist()), self._mix(there), self._mix(flags))

    def _mix(self, mask: Any) -> dict[str, int]:
        classes = self._predicted[mask]
        counts = np.bincount(classes[classes >= 0])
        return {str(self._class(label)): int(counts[label]) for label in np.flatnonzero(counts).tolist()}

    def _chosen(self, query: Query) -> Any:
        chosen = self._there
        if query.flagged is not None:
            chosen = chosen & (self._flags == query.flagged)
        if query.predicted is not None:
            names = [str(self._class(label)) for label in range(int(self._predicted.max(initial=-1)) + 1)]
            label = names.index(query.predicted) if query.predicted in names else -2
            chosen = chosen & (self._predicted == label)
        return chosen

    def _named(self, nodes: Any, text: str) -> Any:
        ids = self._ids
        return np.array([number for number in nodes.tolist() if text in str(ids[number]).casefold()], np.int64)

    def _keys(self, query: Query, nodes: Any) -> Any:
        """Numbers of which the smallest come first: the most unusual nodes, unless they are reversed."""
        keys = {
            "score": lambda: -self._scores[nodes],
            "p_value": lambda: self._p_values[nodes],
            "probability": lambda: self._probabilities[nodes],
        }[query.sort]()
        return -keys if query.reverse else keys

    def _rows(self, numbers: Sequence[int]) -> list[Row]:
        return [
            Row(
                self._ids[number],
                float(self._scores[number]),
                float(self._p_values[number]),
                bool(self._flags[number]),
                self._class(int(self._predicted[number])),
                float(self._probabilities[number]) if self._predicted[number] >= 0 else None,
            )
            for number in numbers
        ]

    def _class(self, label: int) -> Any:
        if label < 0:
            return None
        return label if self.class_names is None else self.class_names[label]


def first(keys: Any, count: int) -> Any:
    """The places of the smallest keys in their order, of equal ones in the order of their places: no full sort.

    >>> first(np.array([2.0, 1.0, 2.0, 0.0]), 3).tolist()
    [3, 1, 0]
    """
    if count >= len(keys):
        return np.argsort(keys, kind="stable")
    last = np.partition(keys, count - 1)[count - 1]
    below = np.flatnonzero(keys < last)
    below = below[np.argsort(keys[below], kind="stable")]
    return np.concatenate([below, np.flatnonzero(keys == last)[: count - len(below)]])
