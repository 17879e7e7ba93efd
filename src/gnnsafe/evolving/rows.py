"""Lists of numbers, one for each node, that can be changed one entry at a time and read for many nodes at once."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["EditableRows"]

ROOM = 4  # entries of a row that had none
SLACK = 1.5  # by which arrays grow


class EditableRows:
    """The rows of a CSR matrix without its values, each with room to grow; one that is full moves to the pool's end.

    An entry is added in constant time on average and removed in the time of its row; nothing is read of other rows.
    Within a row entries are in no order.

    >>> rows = EditableRows(np.array([0, 2, 2]), np.array([1, 0]))
    >>> rows.add(1, 7), rows.remove(0, 1)
    (None, True)
    >>> [part.tolist() for part in rows.of(np.array([0, 1]))]
    [[0, 7], [0, 1]]
    """

    def __init__(self, starts: Any, entries: Any) -> None:
        self._starts = np.asarray(starts[:-1], np.int64).copy()
        self.lengths = np.diff(starts).astype(np.int64)
        self._capacity = self.lengths.copy()
        self._pool = np.array(entries, np.int64 if len(starts) >= 2**31 else np.int32)
        self._used = len(self._pool)

    def __len__(self) -> int:
        return len(self._starts)

    def of(self, nodes: Any) -> tuple[Any, Any]:
        """The entries of these nodes' rows, and for each the place among `nodes` that it belongs to."""
        lengths = self.lengths[nodes]
        owners = np.repeat(np.arange(len(nodes)), lengths)
        before = np.cumsum(lengths) - lengths
        places = np.arange(len(owners)) + np.repeat(self._starts[nodes] - before, lengths)
        return self._pool[places].astype(np.int64), owners

    def row(self, node: int) -> Any:
        """The entries of one node's row, as a view."""
        start = self._starts[node]
        return self._pool[start : start + self.lengths[node]]

    def grow(self, count: int) -> None:
        """Room for `count` nodes in all, the new ones with empty rows."""
        more = count - len(self)
        if more > 0:
            none = np.zeros(more, np.int64)
            self._starts, self.lengths, self._capacity = (
                np.concatenate([values, none]) for values in (self._starts, self.lengths, self._capacity)
            )

    def add(self, node: int, entry: int) -> None:
        """One more entry in a node's row."""
        length = int(self.lengths[node])
        if length == self._capacity[node]:
            self._move(node, max(ROOM, 2 * length))
        self._pool[self._starts[node] + length] = entry
        self.lengths[node] = length + 1

    def remove(self, node: int, entry: int) -> bool:
        """Take one such entry out of a node's row; whether there was one."""
        found = np.flatnonzero(self.row(node) == entry)
        if len(found) == 0:
            return False
        row = self.row(node)
        row[found[0]] = row[-1]
        self.lengths[node] -= 1
        return True

    def clear(self, node: int) -> None:
        """Empty a node's row."""
        self.lengths[node] = 0

    def _move(self, node: int, capacity: int) -> None:
        if self._used + capacity > len(self._pool):
            self._make_room(capacity)
        row = self.row(node)
        start, self._used = self._used, self._used + capacity
        self._pool[start : start + len(row)] = row
        self._starts[node], self._capacity[node] = start, capacity

    def _make_room(self, needed: int) -> None:
        """A larger pool, in which rows lie without gaps, so that what moved rows left behind is used again."""
        nodes = np.arange(len(self))
        entries, _ = self.of(nodes)
        self._starts = np.cumsum(self.lengths) - self.lengths
        self._capacity = self.lengths.copy()
        pool = np.empty(int(SLACK * len(entries)) + needed + ROOM, self._pool.dtype)
        pool[: len(entries)] = entries
        self._pool, self._used = pool, len(entries)
