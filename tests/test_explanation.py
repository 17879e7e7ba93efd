from __future__ import annotations

import json
from datetime import date, timedelta

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Data

import gnnsafe
from gnnsafe import Detector
from gnnsafe.graph import changed
from gnnsafe.methods import GNNSafe, Propagated
from gnnsafe.models import GCN


class Logits(nn.Module):
    def forward(self, x, edge_index):
        return x


@pytest.fixture
def path() -> Data:
    """0 → 1 → 2, 3 alone, 4 → 5 like 0 → 1; logits are the features, energies about -4, -2, -1, -8, -4 and -2."""
    x = torch.tensor([[4.0, -9.0, -9.0], [-9.0, 2.0, -9.0], [1.0, -9.0, -9.0], [-9.0, -9.0, 8.0]])
    node = torch.arange(6)
    return Data(
        x=torch.cat([x, x[:2]]), edge_index=torch.tensor([[0, 1, 4], [1, 2, 5]]), y=torch.tensor([0, 1, 0, 2, 0, 1]),
        train_mask=node < 2, val_mask=node > 2,
    )  # fmt: skip


def test_a_split_by_hand(path):
    why = Detector(Logits(), "gnnsafe").fit(path).calibrate(path).explain(path, node=2)
    # two steps with α = ½: ¼ of 0, ½ of 1, ¼ of itself
    assert [(share.node, share.weight) for share in why.shares] == [(1, 0.5), (0, 0.25), (2, 0.25)]
    assert why.own == pytest.approx(-1.0, abs=1e-3)
    assert why.score == pytest.approx(-(0.25 * 4 + 0.5 * 2 + 0.25 * 1), abs=1e-3)
    assert [share.share for share in why.shares] == pytest.approx([-1.0, -1.0, -0.25], abs=1e-3)
    assert (why.p_value, why.above) == (0.25, 1.0)  # the calibration nodes score -4, -3.5 and -8
    assert why.logits == (1.0, -9.0, -9.0)
    assert why.predicted == (0,)
    assert why.probabilities[0] == pytest.approx(1.0, abs=1e-4)
    # from the mean of class 0, (4, -9, -9), three away; classes of one node each have no spread to measure by
    assert [near.label for near in why.nearest] == [0, 1]
    assert str(why).splitlines() == [
        "Node 2 scores -2.25, above 100.0% of 3 calibration nodes (p = 0.25).",
        "Its own score before propagation is -1 and counts 25.0%; 2 other nodes count for the rest.",
        "  raised most by node 1 (-2 × 50.0%)",
        "  lowered most by node 0 (-4 × 25.0%)",
        "Predicted class 0 (probability 1); largest logits 0: 1, 1: -9, 2: -9.",
        str(why).splitlines()[-1],
    ]
    assert str(why).splitlines()[-1].startswith("Nearest training classes 0 (")


def test_distances_are_in_units_of_the_class(blocks):
    blocks.x = torch.zeros(120, 2)
    blocks.x[:, 0] = blocks.y.float() * 10
    members = (blocks.y == 0).nonzero().flatten()
    blocks.train_mask = torch.zeros(120, dtype=torch.bool)
    blocks.train_mask[members[:2]] = True
    blocks.x[members[0], 1], blocks.x[members[1], 1] = 2.0, -2.0  # 2 away from their mean
    blocks.x[members[2], 1] = 6.0
    why = Detector(Logits()).fit(blocks).explain(blocks, node=int(members[2]))
    assert why.nearest == ((0, pytest.approx(3.0)),)


@pytest.mark.parametrize("method", [
    "gnnsafe", GNNSafe(steps=16, alpha=0.1, isolated="decay"), Propagated(GNNSafe(), 3), "diffused-knn",
    "dirichlet-energy", "msp", "consensus", "grasp",
])  # fmt: skip
def test_shares_sum_to_the_score(method, blocks):
    torch.manual_seed(0)
    blocks.edge_index = blocks.edge_index[:, ::3]  # directed, some have no in-neighbours
    detector = Detector(GCN(8, 16, 3), method).fit(blocks)
    scores = detector.score(blocks)
    for node in (0, 7, 119):
        why = detector.explain(blocks, node=node)
        assert why.score == float(scores[node])
        assert sum(share.share for share in why.shares) == pytest.approx(why.score, rel=1e-6, abs=1e-6)
        assert why.node in [share.node for share in why.shares]
        assert all(share.share == pytest.approx(share.weight * share.score) for share in why.shares)
        assert json.loads(json.dumps(why.to_dict())) == why.to_dict()
        assert len(str(why).splitlines()) <= 8


def test_by_class_multilabel_and_without_a_model(blocks):
    torch.manual_seed(0)
    detector = Detector(GCN(8, 4, 3)).fit(blocks).calibrate(blocks, by_class=True)
    why = detector.explain(blocks, node=3)
    assert why.p_value == float(detector.p_values(blocks)[3])
    assert len(why.calibration) == int(detector.calibration_.counts()[why.predicted[0]])
    alone = Detector(None, "degree").fit(blocks).explain(blocks, node=3)
    assert (alone.logits, alone.predicted, alone.nearest, alone.p_value) == ((), (), (), None)
    assert "All of it is its own, by Degree()." in str(alone)
    blocks.y = nn.functional.one_hot(blocks.y)
    labels = Detector(GCN(8, 4, 3), task="multilabel").fit(blocks).explain(blocks, node=3)
    assert labels.predicted == tuple(label for label in range(3) if labels.logits[label] > 0)
    assert len(labels.nearest) == 3
    assert "Predicted labels" in str(labels)


def test_a_class_without_calibration_nodes_and_a_node_that_decays_to_nothing(path):
    detector = Detector(Logits(), GNNSafe(alpha=0.0, isolated="decay")).fit(path)
    why = detector.calibrate(path, mask=torch.arange(6) > 3, by_class=True).explain(path, node=3)
    assert (why.p_value, why.above, why.shares) == (1.0, None, ())
    assert str(why).startswith("Node 3 scores 0 (higher = more OOD); its class has no calibration node.")
    assert "All of it is its own" in str(why)


@pytest.mark.parametrize("node", [-1, 120, 1.0, True, "a", None])
def test_no_node(blocks, node):
    with pytest.raises(ValueError, match=r"'node' must be a node's number, 0..119.*\(got .*\)"):
        Detector(Logits()).fit(blocks).explain(blocks, node=node)


@pytest.mark.parametrize("ids", [["a"] * 3, "a" * 120, 7])
def test_ids_that_are_not_one_per_node(blocks, ids):
    data = changed(blocks, node_id=ids)
    with pytest.raises(ValueError, match=r"'node_id' must be a list of 120 ids \(got .*\); correct data.node_id"):
        Detector(Logits()).fit(blocks).explain(data, node=3)


def test_a_node_of_numpy(blocks):
    assert Detector(Logits()).fit(blocks).explain(blocks, node=np.int64(3)).node == 3


@pytest.mark.parametrize("ids", [[f"doc:{n:05}" for n in range(120)], np.arange(120) + 7, torch.arange(120) + 7])
def test_a_node_by_its_own_id(blocks, ids):
    blocks.node_id = ids
    own = ids[12] if isinstance(ids, list) else int(ids[12])
    why = Detector(Logits()).fit(blocks).explain(blocks, node=str(own))
    assert (why.node, why.node_ids[12]) == (12, own)
    with pytest.raises(ValueError, match=r"'node' must be the id of a node of the graph .*its ids are such as"):
        Detector(Logits()).fit(blocks).explain(blocks, node="doc:4")


def test_names_of_numpy_are_names_of_json(blocks):
    blocks.class_names = np.array([10, 20, 30])
    blocks.node_id = np.arange(120) * 2
    why = Detector(GCN(8, 4, 3)).fit(blocks).explain(blocks, node="6")
    assert why.node == 3
    with pytest.raises(ValueError, match=r"0\.\.119 \(got 200\); an id is given as text, such as '200'"):
        Detector(GCN(8, 4, 3)).fit(blocks).explain(blocks, node=200)
    assert json.loads(json.dumps(why.to_dict()))["class_names"] == [10, 20, 30]


def test_ids_that_json_has_not_are_text_in_it(blocks):
    blocks.node_id = [date(2020, 1, 1) + timedelta(days=node) for node in range(120)]
    why = Detector(GCN(8, 4, 3)).fit(blocks).explain(blocks, node=3)
    assert json.loads(json.dumps(why.to_dict()))["node_ids"]["3"] == "2020-01-04"


@pytest.mark.parametrize("names", [np.zeros(3, dtype="datetime64[D]"), [b"a", "b", "c"], [("a",), 1, 2]])
def test_names_that_json_has_not_are_refused(blocks, names):
    blocks.class_names = names
    with pytest.raises(ValueError, match=r"'class_names' must hold texts or numbers \(got (date|bytes|tuple)\); call"):
        Detector(GCN(8, 4, 3)).fit(blocks)


def test_it_survives_a_save(blocks, tmp_path):
    torch.manual_seed(0)
    detector = Detector(GCN(8, 4, 3)).fit(blocks).calibrate(blocks)
    detector.save(tmp_path)
    assert gnnsafe.load(tmp_path).explain(blocks, node=5).to_dict() == detector.explain(blocks, node=5).to_dict()


class TestEgo:
    def test_the_nodes_around_it(self, path):
        nodes, edges = Detector(Logits(), "gnnsafe").fit(path).explain(path, node=2).ego
        assert [(node["node"], node["hop"], node["weight"]) for node in nodes] == [
            (2, 0, 0.25),
            (1, 1, 0.5),
            (0, 2, 0.25),
        ]
        assert edges == ((0, 1), (1, 2))
        nodes, edges = Detector(Logits(), "gnnsafe").fit(path).explain(path, node=0).ego  # no in-neighbours
        assert [node["node"] for node in nodes] == [0]
        assert edges == ()

    def test_not_too_many(self):
        star = Data(x=torch.rand(200, 3), edge_index=torch.stack([torch.arange(1, 200), torch.zeros(199).long()]))
        star.y, star.train_mask = torch.arange(200) % 3, torch.ones(200, dtype=torch.bool)
        nodes, edges = Detector(Logits(), "gnnsafe").fit(star).explain(star, node=0).ego
        assert len(nodes) == 60
        assert nodes[0]["node"] == 0
        assert len(edges) == 59

    @pytest.mark.parametrize("ending", ["png", "svg", "html", "SVG"])
    def test_drawn(self, path, tmp_path, ending):
        why = Detector(Logits(), "gnnsafe").fit(path).calibrate(path).explain(path, node=2)
        file = tmp_path / f"why.{ending}"
        why.draw(file)
        content = file.read_bytes()
        starts = {"png": b"\x89PNG", "svg": b"<svg", "html": b"<!doctype html>"}
        assert content.startswith(starts[ending.lower()])
        if ending != "png":
            assert b"Node 2 scores -2.25" in content
        assert list(tmp_path.iterdir()) == [file]

    def test_another_ending(self, path, tmp_path):
        with pytest.raises(ValueError, match=r"'path' must end in .png, .svg, .html"):
            Detector(Logits(), "gnnsafe").fit(path).explain(path, node=2).draw(tmp_path / "why.pdf")
