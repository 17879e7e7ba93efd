"""Why a node has its score, where a method weighs evidence: each addend by hand, their sums, and the graph's say."""

from __future__ import annotations

import copy
import json
import math
from dataclasses import dataclass

import pytest
import torch
from tests.conftest import block_graph
from tests.second_device import other_devices
from tests.test_devices import moved
from torch import nn

import gnnsafe
from gnnsafe import Detector
from gnnsafe.errors import InputError
from gnnsafe.explanation.shares import Evidence, Share, mean_weights
from gnnsafe.methods import METHODS, MSP, DegreeBalance, Energy, GNNSafe, Propagated, TwoScale
from gnnsafe.methods.reasons import ALIKE, ALONE, graph_in_words
from gnnsafe.models import GCN


@pytest.fixture
def graph():
    return block_graph(num_nodes=400)


def fitted(graph, method=None):
    torch.manual_seed(0)
    model = GCN(8, 16, 3)
    gnnsafe.train(model, graph, objective=gnnsafe.CrossEntropy(), epochs=30)
    return Detector(model, method or TwoScale()).fit(graph)


def shuffled(graph):
    other = copy.copy(graph)
    other.x = graph.x[torch.randperm(len(graph.x), generator=torch.Generator().manual_seed(0))]
    return other


def directed(graph):
    """One way for most edges; nobody points to node 7."""
    other = copy.copy(graph)
    kept = (graph.edge_index[0] < graph.edge_index[1]) | (torch.arange(graph.edge_index.shape[1]) % 5 == 0)
    other.edge_index = graph.edge_index[:, kept & (graph.edge_index[1] != 7)]
    return other


def test_addends_by_hand():
    """E of three parts; among ID nodes its mean is 1, 2 and unknown, for they are all alike in the third."""
    method = TwoScale(unlike=(MSP(),), unknown=(Energy(),), surroundings=(GNNSafe(),))
    method.known_ = torch.tensor([[0.5, 3.0, torch.nan], [1.5, 1.0, torch.nan]]).double()
    method.weights_ = torch.tensor([2.0, 0.5, 0.25]).double()
    method.deciding_ = torch.tensor([2.0, 0.5, 0.0]).double()
    zero, one = torch.tensor(0.0).double(), torch.tensor(1.0).double()
    method.regions_, method.openness_, method.shift_, method.silent_from_ = zero, zero, one, torch.tensor(1)
    addends, words, figures = method.reasons(torch.tensor([math.log(20), torch.nan, 1.0]).double())
    assert addends[0] == (pytest.approx(0.05), 2.0, pytest.approx(2 * (math.log(20) - 1)), "")
    assert addends[1] == (None, 0.5, 0.0, ALONE)
    assert addends[2] == (None, 0.25, 0.0, ALIKE)
    # z = 3.99; the ID nodes' are 2 (0.5 − 1) + ½ (3 − 2) = −½ and 1 − ½ = ½, of which the higher has −log p = log 3,
    # and beyond it −log p grows by 1 for each 1, as one node alone has no spread
    z = 2 * (math.log(20) - 1)
    assert figures == {
        "regions": 0.0,
        "surroundings": 0.25,
        "openness": 0.0,
        "lift": 0.0,
        "shift": 1.0,
        "around": 0.0,
        "explained": 0.0,
        "rarity": pytest.approx(math.log(3) + z - 0.5),
        "compared": pytest.approx(math.log(3) + z - 1.5),
        "silencing": 1.0,
    }
    assert words == (
        "Together that is as rare as one ID node in 99 (-log p = 4.59).",
        "Odd nodes are unlike their neighbours in this graph (t = 0.00), which as a whole is usual (openness 0.00): "
        "surroundings count little (w = 0.25 of 2).",
        "Some nodes have features that are far off: their neighbours are judged without them.",
        "p-values compare 3.59: without 1.00 of its evidence, by which usual nodes of this graph lie above ID nodes.",
    )


def test_how_rare_is_not_said_beyond_what_can_be_seen():
    """Of absurd features p was 2.6e-220, and the node "as rare as one ID node in 5e+191": nobody saw so many."""
    graph = block_graph()
    detector, new = Detector(GCN(graph.x.shape[1], 8, 3)).fit(graph), graph.clone()
    new.x[7] = 1e6
    words = str(detector.explain(new, node=7))
    assert "features far from training nodes' (p < 1e-06, weight" in words
    assert "Together that is rarer than one ID node in a million (-log p = 3" in words


def test_words_about_a_graph():
    half = graph_in_words(
        regions=0.5, surroundings=1.125, openness=0.5, lift=2.0, shift=0.5, around=-1.5, explained=0.75, rarity=2.0,
        compared=1.25, silencing=1.0,
    )  # fmt: skip
    assert half == (
        "Together that is as rare as one ID node in 7 (-log p = 2).",
        "It does not show whether odd nodes stand together in this graph (t = 0.50), "
        "which as a whole is half odd (openness 0.50): surroundings count in part (w = 1.12 of 2).",
        "Some nodes have features that are far off: their neighbours are judged without them.",
        "p-values compare 1.25: without what its surroundings say (-1.50) and without the 2.00 that the graph adds "
        "to every score and without 0.50 of its evidence, by which usual nodes of this graph lie above ID nodes and "
        "without 0.75 of its evidence, which in-neighbours that are odd themselves may explain.",
    )
    odd = graph_in_words(
        regions=1.0, surroundings=2.0, openness=1.0, lift=4.0, shift=0.0, around=0.0, explained=0.0, rarity=1e30,
        compared=1e30, silencing=0.0,
    )  # fmt: skip
    assert odd[0] == "Together that is rarer than one ID node in a million (-log p = 1e+30)."
    assert odd[1] == (
        "Odd nodes stand together in this graph (t = 1.00), which as a whole is odd (openness 1.00): "
        "surroundings count much (w = 2.00 of 2)."
    )
    usual = graph_in_words(
        regions=0.0, surroundings=0.25, openness=0.0, lift=0.0, shift=0.0, around=0.0, explained=0.0, rarity=-1.0,
        compared=-1.0, silencing=0.0,
    )  # fmt: skip
    assert len(usual) == 2
    assert usual[0] == "Together that is as rare as one ID node in 1 (-log p = -1)."


@pytest.mark.parametrize("change", [lambda graph: graph, shuffled, directed])
def test_addends_sum_to_z_and_shares_to_the_score(graph, change):
    detector, data = fitted(graph).calibrate(graph), change(graph)
    outputs = detector.outputs(data)
    scored = detector.method.scored(outputs)
    z, p = scored.method.weighted(scored.rows), detector.p_values(data)
    for node in (0, 7, 399):
        why = detector.explain(data, node=node)
        assert why.total == pytest.approx(float(z[node]), abs=1e-12)
        assert [one.addend for one in why.evidence if one.p_value] == sorted(
            (one.addend for one in why.evidence if one.p_value), reverse=True
        )
        assert (why.score, why.compared) == (float(scored.scores[node]), float(scored.compared[node]))
        assert why.figures["rarity"] + why.figures["lift"] == pytest.approx(why.score, rel=1e-6)
        assert why.figures["compared"] == pytest.approx(why.compared, rel=1e-6)
        assert [share.share for share in why.shares] == [why.score]
        assert why.p_value == float(p[node])
        assert why.above == sum(score < why.compared for score in why.calibration) / len(why.calibration)
        assert json.loads(json.dumps(why.to_dict())) == why.to_dict()
        assert len(str(why).splitlines()) <= 20


def test_each_piece_has_its_part_and_its_nodes(graph):
    detector = fitted(graph)
    outputs = detector.outputs(graph)
    why = detector.explain(graph, node=3)
    assert len(why.evidence) == 10
    by_method = {one.method: one for one in why.evidence}
    for number, part in enumerate(detector.method.parts()):
        one, row = by_method[repr(part)], detector.method.scored(outputs).rows[3]
        if one.p_value is not None:
            assert one.p_value == pytest.approx(math.exp(-row[number]))
        assert one.says == part.says
        assert bool(one.shares) == (part.propagation.steps > 0) == (one.score is not None)
        if one.shares:
            assert one.score == pytest.approx(float(part.score(outputs)[3]), rel=1e-5)
            assert sum(share.share for share in one.shares) == pytest.approx(one.score, rel=1e-6)
            assert sum(share.weight for share in one.shares) == pytest.approx(1.0)


def test_what_says_nothing_is_said(graph):
    why = fitted(graph).explain(graph, node=3)  # an undirected graph
    assert [(one.method, one.silent, one.addend) for one in why.evidence if one.p_value is None] == [
        ("DegreeBalance(side='high')", ALIKE, 0.0)
    ]
    assert f"    none  points to many, few point to it: {ALIKE}" in str(why)
    one_way = directed(graph)
    detector = fitted(one_way)
    assert "DegreeBalance(side='high')" in [
        one.method for one in detector.explain(one_way, node=3).evidence if one.p_value
    ]
    alone = detector.explain(one_way, node=7)
    assert {one.silent for one in alone.evidence if one.p_value is None} == {ALONE}
    assert {one.method for one in alone.evidence if one.p_value is None} == {
        "OutOfPlace(of='prediction')", "CentredCosine()", "OutOfPlace(of='embedding')",
        "DiffusedKNN(diffusion=2, k=10, steps=0, bank=1000)",
    }  # fmt: skip
    assert all(len(one.shares) == 1 for one in alone.evidence if one.score is not None)
    assert " most by " not in str(alone)


def test_a_graph_that_is_odd_as_a_whole(graph, tmp_path):
    detector = fitted(graph).calibrate(graph)
    why = detector.explain(shuffled(graph), node=3)
    assert why.figures["openness"] > 0.9
    assert why.figures["lift"] == pytest.approx(4 * why.figures["openness"])
    assert str(why).startswith(f"Node 3 scores {why.score:.4g}; what p-values compare of it is above")
    assert "which as a whole is odd (openness" in str(why)
    assert f"p-values compare {why.compared:.4g}: without the " in str(why)
    chart = why.chart().to_dict()
    note = f"Colours are by what p-values compare, {why.compared:.4g} for this node: see the text."
    assert chart["title"]["subtitle"][-1] == note
    compared = detector.method.scored(detector.outputs(shuffled(graph))).compared
    nodes, _ = why.ego
    assert [node["score"] for node in nodes] == [float(compared[node["node"]]) for node in nodes]
    assert nodes[0]["weight"] == max(node["weight"] for node in nodes) < 1  # others count in surroundings' evidence
    why.draw(tmp_path / "why.svg")


def test_an_explanation_leaves_the_weights_of_the_last_graph(graph):
    detector = fitted(graph)
    before = detector.score_new(graph, [3], touched=False).scores
    detector.explain(shuffled(graph), node=3)
    assert torch.equal(detector.score_new(graph, [3], touched=False).scores, before)


def test_multilabel_by_class_and_after_a_save(graph, tmp_path):
    detector = fitted(graph).calibrate(graph)
    detector.save(tmp_path)
    assert gnnsafe.load(tmp_path).explain(graph, node=5).to_dict() == detector.explain(graph, node=5).to_dict()
    by_class = detector.calibrate(graph, by_class=True).explain(graph, node=5)
    assert len(by_class.calibration) == int(detector.calibration_.counts()[by_class.predicted[0]])
    graph.y = nn.functional.one_hot(graph.y)
    labels = Detector(GCN(8, 4, 3), TwoScale(), task="multilabel").fit(graph).calibrate(graph)
    why = labels.explain(graph, node=3)
    assert why.total == pytest.approx(sum(one.addend for one in why.evidence))
    assert "Its evidence adds up to" in str(why)
    assert "Predicted labels" in str(why)


def test_a_model_without_embeddings(graph):
    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.within = nn.Linear(8, 3)

        def forward(self, x, edge_index):
            return self.within(x).index_add(0, edge_index[1], self.within(x)[edge_index[0]])

    torch.manual_seed(0)
    why = Detector(Bare(), TwoScale()).fit(graph).explain(graph, node=3)
    assert all(one.score is not None for one in why.evidence if one.says.startswith("around it"))


@other_devices
def test_elsewhere(graph, device):
    torch.manual_seed(0)
    model, there = GCN(8, 16, 3).eval(), moved(graph, device)
    here = Detector(model, TwoScale()).fit(graph).calibrate(graph).explain(graph, node=3)
    ours = Detector(copy.deepcopy(model).to(device), TwoScale()).fit(there).calibrate(there).explain(there, node=3)
    assert str(ours) == str(here)
    assert ours.to_dict()["ego"]["edges"] == here.to_dict()["ego"]["edges"]


def test_consensus(graph):
    detector = fitted(graph, METHODS["consensus"]())
    why = detector.explain(graph, node=3)
    assert why.total == pytest.approx(why.score, rel=1e-6)
    assert [one.addend for one in why.evidence] == pytest.approx([-math.log(one.p_value) for one in why.evidence])
    assert {one.weight for one in why.evidence} == {1.0}
    assert why.graph == ()


def test_evidence_that_is_propagated_again(graph):
    """Evidence explains a node's own score, shares whom it hears."""

    @dataclass
    class Twice(METHODS["consensus"]):
        propagation = GNNSafe().propagation

    why = fitted(graph, Twice(methods=(MSP(), Energy()))).explain(graph, node=3)
    assert why.total == pytest.approx(why.own, rel=1e-6)
    assert sum(share.share for share in why.shares) == pytest.approx(why.score, rel=1e-6)
    assert "Its own score before propagation is" in str(why)


def test_how_much_nodes_count_in_a_picture():
    heard = Evidence("", "", 0.5, 3.0, 0.0, "", 0.0, (Share(1, 0.75, 0.0, 0.0), Share(0, 0.25, 0.0, 0.0)))
    own, silent = Evidence("", "", 0.5, 1.0, 0.0, ""), Evidence("", "", None, 9.0, 0.0, ALONE)
    assert mean_weights((), [heard, own, silent], 0, 3).tolist() == [0.4375, 0.5625, 0.0]
    assert mean_weights((Share(2, 0.5, 0.0, 0.0),), [], 0, 3).tolist() == [0.0, 0.0, 0.5]


def test_what_methods_say():
    assert Propagated(Energy()).says == GNNSafe().says == "around it: high energy of the logits"
    assert Propagated(Energy(), 0).says == Energy().says
    assert METHODS["diffused-knn"]().says.startswith("around it: ")
    assert METHODS["out-of-place"]("embedding").says == "embedding unlike its neighbours'"
    assert DegreeBalance().says == "points to many, few point to it"

    @dataclass
    class Other(MSP):
        def base_scores(self, outputs):
            return outputs.logits[:, 0]

    assert Other().says == "Other"  # not MSP's: other scores say something else
    with pytest.raises(InputError, match=r"'Wrong.says' must be a value or a property \(got a function\)"):
        type("Wrong", (MSP,), {"says": lambda self: "anything"})
