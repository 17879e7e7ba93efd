from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch_geometric.data import Data

from gnnsafe.graph import masked, node_labels, node_mask
from gnnsafe.prepared import admit
from gnnsafe.sparse import Sparse

EDGES = torch.tensor([[0], [1]])


def graph(**changes) -> SimpleNamespace:
    return SimpleNamespace(**{"x": torch.rand(3, 2), "edge_index": EDGES, **changes})


def test_what_is_a_graph(directed, blocks):
    admit(directed)
    admit(blocks)
    admit(graph(edge_index=torch.empty(2, 0, dtype=torch.int64)))
    admit(graph(x=torch.rand(3, 2, dtype=torch.float64)), num_features=2)


def test_masked():
    values = torch.tensor([1.0, 2.0, 3.0])
    assert masked(values, graph(mask=torch.tensor([True, False, True])), "mask").tolist() == [1.0, 3.0]
    assert masked(values, graph(mask=torch.ones(3, dtype=torch.bool)), "mask") is values
    with pytest.raises(ValueError, match="'mask' must hold at least one node"):
        masked(values, graph(mask=torch.zeros(3, dtype=torch.bool)), "mask")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": None}, r"'x' must be a torch.Tensor \(got NoneType\)"),
        ({"x": torch.rand(3)}, r"'x' must be a floating tensor of shape \[nodes, features\] \(got .* \[3\]\)"),
        ({"x": torch.rand(0, 4)}, r"'x' must hold at least one node \(got torch.float32 \[0, 4\]\)"),
        (
            {"x": torch.ones(3, 4, dtype=torch.int64)},
            r"'x' must be a floating tensor .*got torch.int64 .*; call x.float\(\)",
        ),
        ({"x": torch.rand(3, 4).to_sparse()}, r"'x' must be dense or torch.sparse_csr \(got torch.sparse_coo\)"),
        ({"x": torch.rand(3, 5)}, r"'x' must have 4 features \(got 5\)"),
        ({"x": torch.full((3, 4), float("nan"))}, r"'x' must be finite \(got 12 NaN or infinite of 12 values"),
        ({"edge_index": torch.tensor([[0], [4]])}, r"'edge_index' must hold node ids < 4"),
        ({"edge_index": torch.zeros(3, 2, dtype=torch.int64)}, r"got torch.int64 \[3, 2\]\); call edge_index.t\(\)"),
        ({"edge_index": torch.tensor([0, 1])}, r"'edge_index' must be .*shape \[2, edges\]"),
    ],
)
def test_what_is_not(changes, message):
    with pytest.raises(ValueError, match=message):
        admit(graph(**{"x": torch.rand(4, 4), **changes}), num_features=4)


def test_not_a_graph_at_all():
    with pytest.raises(ValueError, match=r"'data' must have x and edge_index, as PyG's Data has \(got int\)"):
        admit(3)


def test_infinity_in_sparse_features_is_found():
    import scipy.sparse as sp

    x = Sparse(sp.csr_array([[0.0, float("inf")], [1.0, 0.0]])).csr
    with pytest.raises(ValueError, match=r"'x' must be finite \(got 1 NaN or infinite of 2 values\)"):
        admit(graph(x=x, edge_index=EDGES))


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (None, r"'train_mask' must be given \(got none\); set data.train_mask"),
        (torch.tensor([0, 2]), r"'train_mask' must be a boolean tensor of shape \[3\] \(got torch.int64 \[2\]\); turn"),
        (torch.ones(3), r"'train_mask' must be a boolean tensor .*got torch.float32"),
        (torch.ones(2, dtype=torch.bool), r"shape \[3\] \(got torch.bool \[2\]\)"),
        (torch.zeros(3, dtype=torch.bool), r"'train_mask' must hold at least one node \(got an empty mask\)"),
        (torch.tensor(True), r"'train_mask' must be a boolean tensor of shape \[3\] \(got torch.bool \[\]\)"),
        ([True, False, True], r"'train_mask' must be a torch.Tensor \(got list\)"),
    ],
)
def test_bad_masks(mask, message):
    with pytest.raises(ValueError, match=message):
        node_mask(graph(train_mask=mask), "train_mask")


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, r"'y' must be given \(got none\); set data.y"),
        ([0, 1, 2], r"'y' must be a torch.Tensor"),
        (torch.zeros(3), r"'y' must be an int64 tensor of shape \[3\] \(got torch.float32 \[3\]\)"),
        (torch.zeros(3, 2, dtype=torch.int64), r"got torch.int64 \[3, 2\]"),
    ],
)
def test_bad_labels(y, message):
    with pytest.raises(ValueError, match=message):
        node_labels(Data(x=torch.rand(3, 2), y=y))
