"""TwoScale, what it is made of, and how that is put together, by hand."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import scipy.sparse as sp
import torch
from tests.conftest import block_graph
from tests.second_device import other_devices
from torch import nn

import gnnsafe
from gnnsafe import Detector, Outputs
from gnnsafe.errors import InputError
from gnnsafe.methods import MSP, CentredCosine, DegreeBalance, DiffusedKNN, Energy, FeatureNorm, OutOfPlace, TwoScale
from gnnsafe.methods.evidence import (
    combined,
    degree_bounds,
    excess,
    rarity,
    rarity_by_degree,
    surroundings_weight,
    weights,
)
from gnnsafe.models import GCN, MLP
from gnnsafe.sparse import Sparse

EDGES = torch.tensor([[0, 1, 2], [1, 2, 1]])  # 1 hears 0 and 2, 2 hears 1, nobody points to 0


class Sum(nn.Module):
    """Logits are a node's features, and those of whoever points to it."""

    def forward(self, x, edge_index):
        return x.index_add(0, edge_index[1], x[edge_index[0]])


def test_out_of_place_by_hand():
    p = torch.tensor([[0.5, 0.5], [0.8, 0.2], [0.9, 0.1]])
    data = SimpleNamespace(x=p.log(), edge_index=EDGES)
    outputs = Outputs.of(Sum(), data)  # logits of 1: log(0.5 · 0.8 · 0.9), log(0.5 · 0.2 · 0.1), so p = 36 : 1
    led = [torch.tensor([0.5, 0.5]), torch.tensor([36.0, 1.0]) / 37, torch.tensor([36.0, 1.0]) / 37]
    expected = [-0.5, -float(p[1] @ (led[0] + led[2]) / 2), -float(p[2] @ led[1])]
    assert OutOfPlace().score(outputs).tolist() == pytest.approx(expected)


def test_out_of_place_in_embeddings_by_hand():
    x = torch.tensor([[3.0, 4.0], [1.0, 0.0], [0.0, 2.0]])
    outputs = Outputs.of(Sum(), SimpleNamespace(x=x, edge_index=EDGES))
    outputs = Outputs(outputs.logits, outputs.graph, "multiclass", outputs.classifier, outputs.logits)
    object.__setattr__(outputs, "without_edges", Outputs(x, outputs.graph, embedded=x))
    heard = [torch.tensor([0.6, 0.8]), torch.tensor([4.0, 6.0]) / math.sqrt(52), torch.tensor([1.0, 2.0]) / 5**0.5]
    expected = [-1.0, -float((heard[0] + heard[2])[0] / 2), -float(heard[1][1])]
    assert OutOfPlace("embedding").score(outputs).tolist() == pytest.approx(expected)


X = torch.tensor([[4.0, 1.0], [2.0, 3.0], [1.0, 1.0], [2.0, 2.0]])


def cosines(x: torch.Tensor, device: str = "cpu") -> list[float]:
    mask = torch.tensor([True, True, False, False], device=device)
    data = SimpleNamespace(x=x, edge_index=EDGES.to(device), y=torch.zeros(4, dtype=torch.int64, device=device))
    outputs = Outputs(torch.empty(4, 0, device=device), data)
    return CentredCosine().fit(outputs, data.y, mask).score(outputs).tolist()


def test_centred_cosine_by_hand():
    # about the training nodes' mean, (3, 2): (1, −1), (−1, 1), (−2, −1), (−1, 0)
    expected = [0.0, (1 - (2 - 1) / math.sqrt(10)) / 2, -(2 - 1) / math.sqrt(10), 0.0]
    assert cosines(X) == pytest.approx(expected, abs=1e-7)


def wide(x: torch.Tensor) -> torch.Tensor:
    """The same among so many empty columns that they are sparse, in more than one block of columns."""
    return torch.cat([x[:, :1], torch.zeros(len(x), 150), x[:, 1:]], dim=1)


def test_centred_cosine_of_sparse_features():
    csr = Sparse(sp.csr_array(wide(X).numpy())).csr
    for x in (wide(X), csr, wide(X).double(), X.double()):
        assert cosines(x) == pytest.approx(cosines(X), abs=1e-6)


@other_devices
def test_centred_cosine_elsewhere(device):
    csr = Sparse(sp.csr_array(wide(X).numpy())).csr
    for x in (X, csr):
        assert cosines(x.to(device), device) == pytest.approx(cosines(X), abs=1e-6)


def test_a_node_at_the_centre_is_like_nobody():
    x = X.clone()
    x[2] = torch.tensor([3.0, 2.0])
    for features in (x, wide(x)):
        assert cosines(features) == pytest.approx([0.0, 0.5, 0.0, 0.0], abs=1e-6)


def test_weights_by_hand():
    evidence = torch.zeros(3, 10)
    evidence[1, :4] = 9.0
    evidence[2, 0] = 9.0
    q = excess(evidence, torch.ones(3, 10, dtype=torch.bool))
    assert q.tolist() == pytest.approx([0.0, 0.3, 0.0])
    assert weights(q).tolist() == pytest.approx([1 / 16, 1.0, 1 / 16])
    assert surroundings_weight(q).item() == pytest.approx(1.125)
    assert surroundings_weight(0 * q).item() == pytest.approx(0.25 + 1.75 / (1 + math.exp(6)))
    assert excess(evidence, torch.zeros(3, 10, dtype=torch.bool)).tolist() == [0.0] * 3  # nobody counts


def test_rarity_by_degree_by_hand():
    known = torch.cat([torch.zeros(100), torch.ones(60), torch.full((50,), 2.0)])  # 1 and 2 share a group
    calibration = torch.cat([torch.arange(100.0), 1000 + torch.arange(110.0)])
    scores, degrees = torch.tensor([49.5, 1049.5, 1049.5, 49.5]), torch.tensor([0.0, 1.0, 7.0, 1.0])
    expected = [101 / 51, 111 / 61, 111 / 61, 1.0]
    assert rarity_by_degree(scores, degrees, calibration, known).exp().tolist() == pytest.approx(expected)
    assert degree_bounds(known).tolist() == [0.0]
    assert degree_bounds(known[:150]).tolist() == []  # too few for two groups
    few = rarity_by_degree(scores, degrees, calibration[:150], known[:150])
    torch.testing.assert_close(few, rarity(scores, calibration[:150]))


def test_a_score_by_hand():
    own, surroundings = torch.tensor([[2.0], [0.5]]).double(), torch.tensor([[1.0], [-1.0]]).double()
    q_own, q_surroundings = torch.tensor([0.0, 0.3]).double(), torch.tensor([0.0, 0.0]).double()
    scale = math.sqrt(2 / (1 + 1 / 16**2))
    expected = scale * (2 / 16 + 0.5) + 1.125 * (2 + 1.0 - 1.0)
    assert combined(own, surroundings, q_own, q_surroundings).item() == pytest.approx(expected)


def test_evidence_that_finds_nothing_hardly_counts():
    found, noise = torch.zeros(400).double(), torch.rand(6, 400, generator=torch.Generator().manual_seed(0)).double()
    found[:200] = 5.0
    evidence = torch.cat([found[None], -noise.log()])
    q = excess(evidence, torch.ones(7, 400, dtype=torch.bool))
    score = combined(evidence - 1, evidence[:1] - 1, q, q[:1])
    plain = evidence.sum(dim=0)
    assert [float((s[:200, None] > s[None, 200:]).double().mean()) for s in (score, plain)] == pytest.approx(
        [1.0, 0.93], abs=0.02
    )


def test_degree_balance_by_hand():
    outputs = Outputs(torch.empty(4, 0), SimpleNamespace(x=X, edge_index=EDGES))
    assert DegreeBalance().score(outputs).tolist() == [1.0, -1.0, 0.0, 0.0]


@pytest.fixture
def detector(blocks):
    torch.manual_seed(0)
    model = GCN(8, 16, 3)
    gnnsafe.train(model, blocks, objective=gnnsafe.CrossEntropy(), epochs=30)
    return Detector(model, TwoScale()).fit(blocks)


def test_the_score_is_its_evidence_put_together(detector, blocks):
    outputs = detector.outputs(blocks)
    evidence = detector.method.evidence(outputs)
    heard = torch.bincount(blocks.edge_index[1], minlength=120) > 0
    q = excess(evidence, heard.expand(len(evidence), -1))
    centred = evidence - detector.method.means_[:, None]
    torch.testing.assert_close(detector.score(blocks), combined(centred[:6], centred[6:], q[:6], q[6:]).float())
    energy = rarity(Energy().score(outputs), Energy().score(outputs)[blocks.val_mask])
    torch.testing.assert_close(evidence[4], energy)
    assert (centred[5] == 0).all()  # the graph is undirected: degree balance says nothing
    held_out = evidence[:, blocks.val_mask].mean(dim=1)
    assert ((held_out > 0.8) & (held_out < 1.05)).all()  # 1 on average, less what n nodes leave out


def test_a_graph_that_is_odd_as_a_whole_scores_higher(detector, blocks):
    other = blocks.clone()
    other.x = other.x[torch.randperm(120, generator=torch.Generator().manual_seed(0))]
    inside, outside = detector.score(blocks)[blocks.test_mask], detector.score(other)
    assert gnnsafe.metrics.detection(inside, outside).auroc > 0.95


def test_a_node_that_nobody_points_to_has_no_neighbours_to_be_unlike(detector, blocks):
    alone = blocks.clone()
    alone.edge_index = alone.edge_index[:, alone.edge_index[1] != 7]
    evidence, means = detector.method.evidence(detector.outputs(alone)), detector.method.means_
    assert torch.equal(evidence[:4, 7], means[:4])
    assert evidence[4, 7] != means[4]  # its energy it has of its own


def test_evidence_that_is_the_same_for_all_changes_no_order_and_lifts_no_graph(blocks, detector):
    """A weight times a constant would tell graphs apart by their weights alone."""

    @dataclass
    class Same(MSP):
        def base_scores(self, outputs):
            return torch.ones(len(outputs.logits))

    other = blocks.clone()
    other.x = other.x[torch.randperm(120, generator=torch.Generator().manual_seed(0))]
    method = Detector(detector.classifier.model, TwoScale(own=(MSP(), Same()))).fit(blocks).method
    for graph in (blocks, other):
        outputs = detector.outputs(graph)
        centred = method.evidence(outputs) - method.means_[:, None]
        assert (centred[1] == 0).all()


def test_a_few_directed_edges_in_an_undirected_world_are_no_evidence(blocks, detector):
    directed = blocks.clone()
    directed.edge_index = directed.edge_index[:, 3:]
    evidence = detector.method.evidence(detector.outputs(directed))
    assert (evidence[5] == detector.method.means_[5]).all()


def test_a_model_without_embeddings(blocks):
    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.within = MLP(8, 16, 3)

        def forward(self, x, edge_index):
            return self.within.eval()(x, edge_index)

    detector = Detector(Bare(), TwoScale(), forward=lambda model, data: 2 * model.within(data.x, data.edge_index))
    assert torch.isfinite(detector.fit(blocks).score(blocks)).all()


def test_a_saved_one_gives_the_same(detector, blocks, tmp_path):
    detector.save(tmp_path)
    again = gnnsafe.load(tmp_path)
    assert again.method == detector.method
    assert torch.equal(again.score(blocks), detector.score(blocks))


def test_other_methods_may_be_its_evidence(blocks, detector):
    method = TwoScale(own=(MSP(),), surroundings=(FeatureNorm(),))
    scored = Detector(detector.classifier.model, method).fit(blocks)
    assert scored.method.evidence(scored.outputs(blocks)).shape == (2, 120)


@pytest.mark.parametrize("given", [(), MSP(), ("msp",)])
def test_what_is_no_evidence(given):
    with pytest.raises(InputError, match=r"^'(own|surroundings)' must be a tuple of methods \(got"):
        TwoScale(own=given)
    with pytest.raises(InputError, match=r"^'surroundings' must be a tuple of methods \(got"):
        TwoScale(surroundings=given)


def test_without_validation_nodes_it_cannot_be_fitted(blocks):
    del blocks.val_mask
    with pytest.raises(InputError, match=r"val_mask"):
        Detector(GCN(8, 16, 3), TwoScale()).fit(blocks)


def test_a_bank_is_bounded():
    data = block_graph(num_nodes=400)
    outputs = Outputs.of(GCN(8, 16, 3), data)
    bounded, whole = (DiffusedKNN(bank=bank).fit(outputs, data.y, data.train_mask) for bank in (20, None))
    assert (len(bounded.bank_), len(whole.bank_)) == (20, 100)
    assert all((row == whole.bank_).all(dim=1).any() for row in bounded.bank_)
    assert torch.equal(bounded.bank_, DiffusedKNN(bank=20).fit(outputs, data.y, data.train_mask).bank_)
    enough = DiffusedKNN(bank=100).fit(outputs, data.y, data.train_mask)
    assert torch.equal(enough.score(outputs), whole.score(outputs))
    with pytest.raises(InputError, match=r"'bank' must be a whole number >= 1 \(got 0\)"):
        DiffusedKNN(bank=0)
