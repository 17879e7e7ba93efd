"""Controls: graphs in which nothing is OOD. A method that tells them from the ID graph sees an artefact.

A method that scores a graph next to the training graph may tell one from the other by the training nodes alone; part of
a lead under a shift that gives OOD nodes a graph of their own may be that. Both have AUROC 50 where a method is fair.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gnnsafe.datasets.shifts.edge_list import EdgeList
from gnnsafe.datasets.shifts.graphs import Data, counted, dice, shifted
from gnnsafe.errors import is_number, require
from gnnsafe.prepared import check_graph
from gnnsafe.regions import subgraph

__all__ = ["nothing", "other_half"]


def nothing(data: Data, seed: int, *, rate: float = 0.01) -> Data:
    """The same graph without a share `rate` of its edges: nothing happened, and its ID test nodes are the ones scored.

    Of E edges (an undirected one counts once and goes as a whole; self-loops stay) round(rate E), at least one where
    there is one, are left out.

    Args:
        data: The graph.
        seed: The same seed gives the same graph.
        rate: The share of edges to leave out.

    Returns:
        A new graph, whose `mask` holds the ID test nodes.

    Raises:
        InputError: The graph or an argument breaks a rule.
    """
    check_graph(data)
    require(is_number(rate) and 0 < rate < 1, "rate", "lie in (0, 1)", rate)
    edges, rng = EdgeList.of(data), dice(seed)
    count = edges.ends.shape[1]
    kept = torch.ones(count, dtype=torch.bool, device="cpu").numpy()
    kept[rng.choice(count, size=min(count, max(1, round(rate * count))), replace=False)] = False
    fewer = EdgeList(edges.ends[:, kept], edges.loops, edges.num_nodes, edges.undirected)
    return shifted(data, counted(data, "id-test"), edge_index=fewer.edge_index(like=data.edge_index))


def other_half(data: Data, seed: int) -> tuple[Data, Data]:
    """Two halves of a graph, drawn at random, each with the edges within it: one to train on, one to score.

    The second has as `mask` those of its nodes that are test nodes of the whole; the first keeps its part of the split.

    Args:
        data: The graph, with `train_mask`, `val_mask` and `test_mask`.
        seed: The same seed gives the same graph.

    Returns:
        The half to train on, and the half to score.

    Raises:
        InputError: The graph or the seed breaks a rule.
    """
    check_graph(data)
    num_nodes = data.x.shape[0]
    first = torch.zeros(num_nodes, dtype=torch.bool, device="cpu")
    first[torch.from_numpy(dice(seed).permutation(num_nodes)[: num_nodes // 2])] = True
    first = first.to(data.x.device)
    here, there = (_induced(data, nodes) for nodes in (first, ~first))
    for name in ("train_mask", "val_mask", "test_mask"):
        mask = getattr(here, name)
        require(bool(mask.any()), "data", f"have nodes of its {name} in either half", "none", "take a larger graph")
    return here, shifted(there, counted(there, "id-test"))


def _induced(data: Data, nodes: Tensor) -> Data:
    source, target = data.edge_index
    return subgraph(data, nodes, (nodes[source] & nodes[target]).nonzero().flatten())
