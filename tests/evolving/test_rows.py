"""Rows that are edited one entry at a time, against plain lists."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnsafe.evolving.rows import EditableRows


def test_a_row_by_hand():
    rows = EditableRows(np.array([0, 2, 2, 3]), np.array([5, 6, 7]))
    rows.add(1, 8)
    rows.add(1, 9)
    assert rows.remove(0, 5)
    assert not rows.remove(0, 5)
    entries, owners = rows.of(np.array([2, 0, 1]))
    assert entries.tolist() == [7, 6, 8, 9]
    assert owners.tolist() == [0, 1, 2, 2]
    assert rows.lengths.tolist() == [1, 2, 1]
    rows.clear(1)
    assert rows.row(1).tolist() == []


@given(st.lists(st.tuples(st.sampled_from(["add", "remove", "clear", "grow"]), st.integers(0, 4), st.integers(0, 3))))
@settings(max_examples=60)
def test_rows_hold_what_lists_hold(edits):
    rows, lists = EditableRows(np.array([0, 1, 3, 3]), np.array([1, 2, 2])), [[1], [2, 2], []]
    for what, node, entry in edits:
        if what == "grow":
            rows.grow(len(lists) + 1)
            lists.append([])
        elif node < len(lists):
            if what == "add":
                rows.add(node, entry)
                lists[node].append(entry)
            elif what == "remove":
                there = entry in lists[node]
                assert rows.remove(node, entry) is there
                if there:
                    lists[node].remove(entry)
            else:
                rows.clear(node)
                lists[node].clear()
    entries, owners = rows.of(np.arange(len(lists)))
    assert [len(one) for one in lists] == rows.lengths.tolist() == np.bincount(owners, minlength=len(lists)).tolist()
    for node, one in enumerate(lists):
        assert Counter(entries[owners == node].tolist()) == Counter(one)


def test_rooms_left_behind_are_used_again():
    rows = EditableRows(np.array([0, 0]), np.array([], np.int64))
    for entry in range(10_000):
        rows.add(0, entry)
        if entry >= 3:
            rows.remove(0, entry - 3)
    assert len(rows._pool) < 100
    assert sorted(rows.row(0).tolist()) == [9_997, 9_998, 9_999]


@pytest.mark.parametrize("count", [0, 1])
def test_no_nodes_are_no_entries(count):
    rows = EditableRows(np.zeros(count + 1, np.int64), np.array([], np.int64))
    assert [part.tolist() for part in rows.of(np.arange(count))] == [[], []]
