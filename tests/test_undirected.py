"""`Detector(undirected=True)`: each edge is read in both directions, by all that a detector does."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch_geometric.data import HeteroData
from torch_geometric.utils import to_undirected

import gnnsafe
from gnnsafe import Detector
from gnnsafe.errors import InputError
from gnnsafe.graph import changed
from gnnsafe.methods import Degree


@pytest.fixture
def one_way(blocks):
    """Each edge in one direction, the first one twice."""
    source, target = blocks.edge_index
    edges = blocks.edge_index[:, source < target]
    blocks.edge_index = torch.cat([edges, edges[:, :1]], dim=1)
    return blocks


@pytest.fixture
def both(one_way):
    graph = one_way.clone()
    graph.edge_index = to_undirected(one_way.edge_index, num_nodes=120)
    return graph


@pytest.fixture
def model():
    torch.manual_seed(0)
    return gnnsafe.models.GCN(8, 16, 3)


def test_everything_sees_the_same_edges(one_way, both, model, tmp_path):
    detector = Detector(model, undirected=True).fit(one_way).calibrate(one_way)
    plain = Detector(model).fit(both).calibrate(both)
    detector.save(tmp_path)
    assert not torch.equal(Detector(model).fit(one_way).score(one_way), plain.score(both))
    for one in (detector, gnnsafe.load(tmp_path)):
        assert one.undirected is True
        for graph in (one_way, both):
            assert torch.equal(one.score(graph), plain.score(both))
            assert torch.equal(one.p_values(graph), plain.p_values(both))
            assert torch.equal(one.predict(graph, false_alarm=0.1), plain.predict(both, false_alarm=0.1))
            assert torch.equal(one.decide(graph, false_alarm=0.1).flags, plain.predict(both, false_alarm=0.1))
            new = one.score_new(graph, [5])
            assert torch.equal(new.nodes, plain.score_new(both, [5]).nodes)
            torch.testing.assert_close(new.scores, plain.score(both)[new.nodes])
            assert str(one.explain(graph, node=5)) == str(plain.explain(both, node=5))
            assert str(one.check_calibration(graph)) == str(plain.check_calibration(both))
    told = [str(each.diagnose(graph, draws=1)) for each, graph in ((detector, one_way), (plain, both))]
    assert told[0] == told[1]
    assert one_way.edge_index.shape[1] * 2 == both.edge_index.shape[1] + 2  # the data is left as it was


def test_a_repeated_edge_counts_once():
    """0→1 twice and 1→2: in-degrees 0, 2, 1; each link once in both directions: 1, 2, 1. The median is 1."""
    graph = SimpleNamespace(
        x=torch.eye(3), edge_index=torch.tensor([[0, 0, 1], [1, 1, 2]]), y=torch.arange(3), train_mask=torch.ones(3) > 0
    )
    assert Detector(None, Degree()).fit(graph).score(graph).tolist() == [1, 1, 0]
    assert Detector(None, Degree(), undirected=True).fit(graph).score(graph).tolist() == [0, 1, 0]


@pytest.mark.parametrize("name", ["edge_weight", "edge_attr"])
@pytest.mark.parametrize("kind", ["pyg", "plain"])
def test_attributes_of_edges_are_refused(one_way, model, name, kind):
    detector = Detector(model, undirected=True).fit(one_way)
    one_way[name] = torch.rand(one_way.edge_index.shape[1])
    graph = one_way if kind == "pyg" else SimpleNamespace(**one_way.to_dict())
    message = rf"^'undirected' must be False for a graph with attributes of edges \(got {name}\); set data to torch_geo"
    with pytest.raises(InputError, match=message):
        detector.score(graph)


def test_mistakes(one_way, model):
    with pytest.raises(InputError, match=r"'undirected' must be True or False \(got 'yes'\)"):
        Detector(model, undirected="yes")
    with pytest.raises(InputError, match=r"'undirected' must be False with node_type \(got True\); add the reverse"):
        Detector(model, forward=lambda model, data: data, node_type="paper", undirected=True)
    one_way.edge_index[0, 0] = 500
    with pytest.raises(InputError, match="edge_index"):
        Detector(model, undirected=True).fit(one_way)
    with pytest.raises(InputError, match="'node_type' must be given for a HeteroData"):
        Detector(model, undirected=True).fit(HeteroData())


@pytest.mark.parametrize("edges", [1, 3, 120])
def test_names_of_nodes_and_classes_are_none_of_edges_however_many_these_are(blocks, model, edges):
    detector = Detector(model, "gnnsafe", undirected=True).fit(blocks).calibrate(blocks)
    blocks.edge_index = torch.randint(0, 120, (2, edges), generator=torch.Generator().manual_seed(0))
    expected = detector.score(blocks)
    blocks.node_id, blocks.class_names = [f"paper {node}" for node in range(120)], ["a", "b", "c"]
    blocks.feature_names = [f"word {word}" for word in range(8)]
    assert torch.equal(detector.score(blocks), expected)
    assert changed(blocks, edge_index=blocks.edge_index[:, :0]).class_names == ["a", "b", "c"]
    blocks.cost = torch.rand(edges, 2)
    if edges != 120:  # else as many rows as there are nodes, too
        with pytest.raises(InputError, match=r"be False for a graph with attributes of edges \(got cost\)"):
            detector.score(blocks)
