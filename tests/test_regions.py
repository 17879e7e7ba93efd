from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch_geometric.data import Data

from gnnsafe import prepare
from gnnsafe.regions import reached, region, subgraph


def mask(*nodes: int, size: int = 5) -> torch.Tensor:
    return torch.zeros(size, dtype=torch.bool).index_fill(0, torch.tensor(nodes), True)


@pytest.mark.parametrize(("hops", "expected"), [(0, [0]), (1, [0, 1]), (2, [0, 1, 2]), (9, [0, 1, 2])])
def test_reached_along_the_edges_only(directed, hops, expected):
    start = mask(0)
    assert reached(directed.edge_index, start, hops).nonzero().flatten().tolist() == expected
    assert start.sum() == 1  # what was given is left alone


@pytest.mark.parametrize("kind", [Data, SimpleNamespace])
def test_a_part_with_all_that_belongs_to_it(directed, kind):
    graph = kind(
        x=directed.x, edge_index=directed.edge_index, y=torch.arange(5), edge_weight=torch.arange(7.0), name="g",
        other=torch.ones(3),
    )  # fmt: skip
    part = subgraph(graph, mask(0, 1, 2), torch.tensor([2, 3, 5]))  # 1→2, 2→0, 2→2
    assert part.edge_index.tolist() == [[1, 2, 2], [2, 0, 2]]
    assert torch.equal(part.x, directed.x[:3])
    assert part.y.tolist() == [0, 1, 2]
    assert part.edge_weight.tolist() == [2.0, 3.0, 5.0]
    assert (part.name, part.other.tolist()) == ("g", [1.0, 1.0, 1.0])
    later = subgraph(graph, mask(2, 3), torch.tensor([4]))
    assert later.edge_index.tolist() == [[1], [0]]  # 3→2, renumbered
    assert later.y.tolist() == [2, 3]


def test_a_matrix_of_the_edges_is_refused(directed):
    graph = SimpleNamespace(x=directed.x, edge_index=directed.edge_index, adj_t=torch.eye(5))
    with pytest.raises(ValueError, match=r"'data.adj_t' must be left out where edges are, or a part of the graph"):
        subgraph(graph, mask(0), torch.tensor([], dtype=torch.int64), read=None)
    subgraph(graph, mask(0), torch.tensor([], dtype=torch.int64), read=("edge_weight",))  # which nobody reads


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_sparse_features(directed):
    graph = SimpleNamespace(x=directed.x.to_sparse_csr(), edge_index=directed.edge_index)
    part = subgraph(graph, mask(1, 4), torch.tensor([], dtype=torch.int64))
    assert part.x.layout == torch.sparse_csr
    assert torch.equal(part.x.to_dense(), directed.x[[1, 4]])


def test_a_region_holds_whom_the_touched_hear_of_and_their_degrees():
    path = SimpleNamespace(x=torch.rand(8, 2), edge_index=torch.stack([torch.arange(7), torch.arange(1, 8)]))
    touched, part, where, kept = region(prepare(path), mask(4, size=8), 1)
    assert touched.nonzero().flatten().tolist() == [4, 5]
    assert torch.equal(part.x, path.x[2:6])  # 3 is heard by 4, and 2 counts in 3's degree
    assert part.edge_index.tolist() == [[0, 1, 2], [1, 2, 3]]
    assert where.tolist() == [False, False, True, True]
    assert kept.nonzero().flatten().tolist() == [2, 3, 4, 5]
