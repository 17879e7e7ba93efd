"""Shifts of the edges that keep more of the graph than the block model does."""

from __future__ import annotations

from gnnsafe.datasets.shifts.edge_list import EdgeList
from gnnsafe.datasets.shifts.graphs import Data, TestNodes, counted, dice, shifted
from gnnsafe.errors import is_number, require, require_whole
from gnnsafe.prepared import check_graph

__all__ = ["perturb_edges", "rewire"]


def rewire(data: Data, seed: int, *, sweeps: int = 10, test_nodes: TestNodes = "all") -> Data:
    """The same nodes with the same degrees, edges rewired by swaps: a→b, c→d become a→d, c→b. All OOD.

    A sweep pairs all edges at random and swaps every pair for which that neither repeats an edge nor makes a
    self-loop, so each edge is tried once per sweep; it sorts the edges, no more. Guaranteed: every node's in- and
    out-degree is as it was, an undirected graph stays undirected (there the swaps are double edge swaps), self-loops
    stay where they are, and no edge is repeated that was not. Where nothing else has these degrees (a complete
    graph, a star), the graph stays as it is.

    Args:
        data: The graph.
        seed: The same seed gives the same graph.
        sweeps: How often each edge is tried.
        test_nodes: "all" nodes count as OOD, or with "id-test" those alone that are ID test nodes of the original.

    Returns:
        A new graph, whose `mask` holds the nodes that count as OOD.

    Raises:
        InputError: The graph or an argument breaks a rule.

    >>> import torch
    >>> from types import SimpleNamespace
    >>> data = SimpleNamespace(x=torch.eye(4), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
    >>> rewire(data, 0).edge_index[1].sort().values.tolist()  # in-degrees stay
    [1, 2, 3]
    """
    check_graph(data)
    require_whole("sweeps", sweeps, 1)
    rng = dice(seed)
    edges = EdgeList.of(data)
    for _ in range(sweeps):
        edges = edges.swapped(rng)
    return shifted(data, counted(data, test_nodes), edge_index=edges.edge_index(like=data.edge_index))


def perturb_edges(data: Data, seed: int, *, rate: float, test_nodes: TestNodes = "all") -> Data:
    """The same nodes, a share `rate` of the edges with a new end, either, drawn from all nodes. All OOD.

    Of E edges (an undirected one counts once and stays undirected; self-loops stay) round(rate E) are moved. Their
    number stays; no self-loop, no repeated edge and none that was there before is drawn. An edge that finds no free
    place in 20 draws, as in a graph that is all but complete, stays.

    Args:
        data: The graph.
        seed: The same seed gives the same graph.
        rate: The share of edges to move, from 0 to 1.
        test_nodes: "all" nodes count as OOD, or with "id-test" those alone that are ID test nodes of the original.

    Returns:
        A new graph, whose `mask` holds the nodes that count as OOD.

    Raises:
        InputError: The graph or an argument breaks a rule.
    """
    check_graph(data)
    require(is_number(rate) and 0 <= rate <= 1, "rate", "lie in [0, 1]", rate)
    rng = dice(seed)
    edges = EdgeList.of(data)
    count = edges.ends.shape[1]
    chosen = rng.choice(count, size=round(rate * count), replace=False)
    edges = edges.redrawn(chosen, rng.integers(2, size=len(chosen)), rng)
    return shifted(data, counted(data, test_nodes), edge_index=edges.edge_index(like=data.edge_index))
