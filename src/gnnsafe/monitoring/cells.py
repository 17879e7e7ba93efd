"""Regions of a graph within which nodes are compared, for streams whose nodes come region by region.

Neighbours are alike, so a day of one region is unlike a random draw of all nodes, and ranks among all calibration nodes
are not uniform. Ranks among those of the same region are: some training nodes are taken as anchors, every node belongs
to the cell of the anchor that is nearest along the edges, and is compared with the calibration nodes, and the nodes
before it, of its cell alone. Cells depend on the graph and on training nodes, never on a score or on which of the other
nodes calibrated. So if within each cell calibration nodes and stream are exchangeable, ranks are independent and
uniform in whatever order cells come, and what `ranks` and `martingale` promise holds (conformal prediction by category:
Vovk et al., 2005). Nodes of a graph that holds no training node are compared with all calibration nodes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnsafe.detector import Detector
from gnnsafe.errors import require
from gnnsafe.graph import Graph
from gnnsafe.hashing import row_digests
from gnnsafe.monitoring.ranks import ALL
from gnnsafe.tiles import by_target

__all__ = ["Cells", "cells", "nearest"]

Whole = NDArray[np.int64]
MEMBERS = 10  # calibration nodes of a cell, on average
NOWHERE = -2  # the cell of nodes that no anchor reaches


class Cells(NamedTuple):
    """Where nodes are compared."""

    nodes: Whole
    """The cell of each node of the graph."""
    known: Whole | None
    """The cell of each calibration node, `NOWHERE` too for one that is not in the graph; None where no anchor is."""


def cells(detector: Detector, data: Graph) -> Cells:
    """The cells of a graph's nodes; they keep their names as it grows."""
    used, count = detector.used_, len(detector.watching()[1])
    assert used is not None  # as it is fitted
    sources = [one for one in (used.calibrated, used.validated) if one is not None and int(one.mask.sum()) == count]
    rule = "be calibrated with nodes of one graph to compare nodes within regions"
    require(bool(sources), "detector", rule, "nodes of several")
    rows, taught = row_digests(data.x).numpy(), np.unique(used.taught.nodes[used.taught.mask].numpy())
    order = np.argsort((taught.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(np.int64), kind="stable")
    names = taught[order[: max(1, count // MEMBERS)]]
    anchors = np.flatnonzero(np.isin(rows, names))
    anchors = anchors[np.argsort(rows[anchors], kind="stable")]  # whatever the order of nodes
    if len(anchors) == 0:
        return Cells(np.full(len(rows), ALL), None)
    found = nearest(data.edge_index.cpu().numpy(), len(rows), anchors)
    inside = np.where(found < 0, NOWHERE, np.abs(rows[anchors][found]) >> 1)  # a name is no number below 0
    known = sources[0].nodes[sources[0].mask].numpy()
    return Cells(inside, _at(known, rows, inside))


def nearest(edge_index: Any, nodes: int, anchors: Whole) -> Whole:
    """The place among `anchors` of the one that is nearest along edges, whichever way they point; of equal ones the
    first; −1 where none is reached.

    >>> nearest(np.array([[0, 1, 3], [1, 2, 2]]), 5, np.array([0, 3])).tolist()  # 0 → 1 → 2 ← 3, and 4
    [0, 0, 1, 1, -1]
    """
    both = np.concatenate([edge_index, edge_index[::-1]], axis=1)
    starts, others = by_target(both, nodes)
    found = np.full(nodes, -1, dtype=np.int64)
    found[anchors[::-1]] = np.arange(len(anchors))[::-1]
    last = np.unique(anchors)
    while len(last):
        lengths = np.diff(starts)[last]
        places = np.arange(lengths.sum()) + np.repeat(starts[last] - (np.cumsum(lengths) - lengths), lengths)
        near, whose = others[places], np.repeat(found[last], lengths)
        new = found[near] < 0
        near, whose = near[new], whose[new]
        order = np.lexsort([whose, near])
        last, first = np.unique(near[order], return_index=True)
        found[last] = whose[order][first]
    return found


def _at(known: Whole, rows: Whole, inside: Whole) -> Whole:
    """The cells of nodes that are known by the hashes of their features."""
    order = np.argsort(rows, kind="stable")
    places = np.searchsorted(rows[order], known).clip(max=len(rows) - 1)
    there = rows[order][places] == known
    return np.where(there, inside[order][places], NOWHERE)
