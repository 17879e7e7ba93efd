"""A bare call `model(x, edge_index)` finds its prepared graph again, and never another's."""

from __future__ import annotations

import gc
import weakref

import pytest
import scipy.sparse as sp
import torch

from gnnsafe.errors import InputError
from gnnsafe.models.known import known_graph
from gnnsafe.prepared import prepare
from gnnsafe.sparse import Sparse


@pytest.fixture
def edges() -> torch.Tensor:
    return torch.tensor([[0, 1], [1, 0]])


@pytest.fixture
def x() -> torch.Tensor:
    return torch.eye(3)


def test_the_same_graph_is_prepared_once(x, edges):
    assert known_graph(x, edges) is known_graph(x, edges)
    assert known_graph(x, edges) is not known_graph(x.clone(), edges)


def test_a_prepared_graph_is_itself(x, edges):
    graph = prepare(known_graph(x, edges))
    assert known_graph(graph, None) is graph
    with pytest.raises(InputError, match="'edge_index' must be left out beside a prepared graph"):
        known_graph(graph, edges)


def test_an_edit_in_place_is_seen(x, edges):
    known_graph(x, edges)
    edges[1, 0] = 2
    assert known_graph(x, edges).edges.mean().csr.to_dense()[2].tolist() == [1.0, 0.0, 0.0]


def test_an_edit_behind_torchs_back_is_seen(x, edges):
    known_graph(x, edges)
    version = edges._version
    edges.numpy()[1, 0] = 2
    assert edges._version == version  # which is why the version counter is not trusted
    assert known_graph(x, edges).edges.mean().csr.to_dense()[2].tolist() == [1.0, 0.0, 0.0]


def test_another_graph_at_the_same_address_is_seen(x):
    answers = []
    for target in (1, 2, 1, 2):
        edges = torch.tensor([[0], [target]])
        answers.append(known_graph(x, edges).edges.mean().csr.to_dense()[target, 0].item())
        del edges
    assert answers == [1.0] * 4


def test_the_same_bytes_in_another_shape_are_another_graph(edges):
    x = torch.arange(6.0).view(3, 2)
    assert known_graph(x, edges).num_nodes == 3
    x.resize_(2, 3)
    assert known_graph(x, edges).num_nodes == 2


def test_a_csr_tensor_is_compared_by_content(edges):
    x = Sparse(sp.eye_array(3, format="csr")).csr
    known_graph(x, edges)
    x.values().numpy()[0] = 5
    assert known_graph(x, edges).x.values()[0] == 5


def test_features_that_ask_for_a_gradient_are_not_remembered(x, edges):
    x.requires_grad_()
    assert known_graph(x, edges) is not known_graph(x, edges)
    assert known_graph(x, edges).features is x


def test_it_is_freed_with_its_tensors(edges):
    x = torch.eye(3)
    alive = weakref.ref(known_graph(x, edges))
    assert alive() is not None
    del x
    gc.collect()
    assert alive() is None
