"""TwoScale, what it is made of, and how that is put together, by hand."""

from __future__ import annotations

import math
import statistics
import warnings
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import block_graph
from tests.second_device import other_devices
from torch import nn
from torch_geometric.data import Data

import gnnsafe
from gnnsafe import Detector, Outputs
from gnnsafe.calibration import conformal_p_values
from gnnsafe.errors import CalibrationWarning, InputError
from gnnsafe.methods import (
    MSP,
    CentredCosine,
    DegreeBalance,
    DiffusedKNN,
    Energy,
    FeatureDistance,
    FeatureNorm,
    GNNSafe,
    Method,
    OutOfPlace,
    Propagated,
    TwoScale,
)
from gnnsafe.methods.evidence import Compared, continued_rarity, degree_bounds, rarity
from gnnsafe.methods.spread import spread_of
from gnnsafe.methods.weighing import Weights, added, excess, explaining, none_left, usual_shares
from gnnsafe.models import GCN, MLP, GraphSAGE
from gnnsafe.propagation import diffused
from gnnsafe.sparse import Sparse

EDGES = torch.tensor([[0, 1, 2], [1, 2, 1]])  # 1 hears 0 and 2, 2 hears 1, 0 has no in-neighbours


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


def test_excess_by_hand():
    evidence, tenth = torch.zeros(10, 3), torch.full((3,), 0.1)
    evidence[:4, 1] = 9.0
    evidence[0, 2] = 9.0
    assert excess(evidence, tenth, 10).tolist() == pytest.approx([0.0, 0.3, 0.0])
    assert excess(evidence, torch.tensor([0.0, 0.15, 0.02]), 10).tolist() == pytest.approx([0.0, 0.25, 0.08])
    chance = 2 * (0.3 / 10**0.5 - 0.3 / 20)  # of 10 nodes, beside 400 calibration nodes
    assert excess(evidence, tenth, 400).tolist() == pytest.approx([0.0, 0.3 - chance, 0.0])
    evidence[5:, 1] = torch.nan  # of whom it says nothing
    assert excess(evidence, tenth, 3).tolist() == pytest.approx([0.0, 0.7, 0.0])
    assert excess(torch.full((10, 3), torch.nan), tenth, 10).tolist() == [0.0] * 3


def test_usual_shares_by_hand():
    """Those of the graph fitted, but no more than chance explains among 36 calibration nodes, or 9 of them."""
    evidence = torch.zeros(100, 4)
    evidence[:12, 0], evidence[:30, 1], evidence[:30, 2], evidence[:, 3] = 9.0, 9.0, 9.0, torch.nan
    known = torch.zeros(36, 4)
    known[9:, 2], known[:, 3] = torch.nan, torch.nan
    alone = torch.zeros(4, dtype=torch.bool)
    assert usual_shares(evidence, known, alone).tolist() == pytest.approx([0.12, 0.1 + 0.3 / 6, 0.1 + 0.3 / 3, 0.1])
    alone[1] = True  # that of features by themselves, as it is
    assert usual_shares(evidence, known, alone).tolist() == pytest.approx([0.12, 0.3, 0.1 + 0.3 / 3, 0.1])


PLAIN = torch.tensor([False, True, False, False, False])  # unlike: two, unknown: one, surroundings: two
NONE = torch.tensor(0.0)  # of the nodes are far off


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_weights_of_a_graph_with_scattered_nodes_by_hand():
    """Features unlike the neighbours' in excess 0.08 explain all of the 0.28 nodes that seem unknown, or 0.08 of it."""
    found = Weights.of(torch.tensor([0.0, 0.08, 0.28, 0.0, 0.9]).double(), 2, 1, PLAIN, NONE)
    t = 0.005**2 / (0.005**2 + 0.085**2)
    u = [0.005 / 0.205, 0.085 / 0.205, 1.0]
    scale = math.sqrt(3 / sum(value**2 for value in u))
    own = [(1 - t) * scale * value for value in u]
    w = 0.25 * (1 - t) + 2 * t
    assert found.regions.item() == pytest.approx(t)
    assert found.each.tolist() == pytest.approx([*own[:2], own[2] + t, w * 0.005 / 0.905, w])
    assert found.unlike.item() == pytest.approx(sigmoid((0.08 - 0.48) / 0.03))
    assert found.unknown.item() == pytest.approx(sigmoid((0.28 - 4 * 0.08 - 0.25) / 0.05))
    assert found.openness.item() == max(found.unlike.item(), found.unknown.item())


def test_weights_of_a_graph_with_a_region_by_hand():
    """0.07 of the nodes are unknown, 0.01 unlike their neighbours: 0.03 remain, beside 0.01."""
    found = Weights.of(torch.tensor([0.0, 0.01, 0.07, 0.3, 0.1]).double(), 2, 1, PLAIN, NONE)
    t = 0.035**2 / (0.035**2 + 0.015**2)
    u = [0.005 / 0.065, 0.015 / 0.065, 1.0]
    scale = math.sqrt(3 / sum(value**2 for value in u))
    own = [(1 - t) * scale * value for value in u]
    w = 0.25 * (1 - t) + 2 * t
    assert found.regions.item() == pytest.approx(t)
    assert found.each.tolist() == pytest.approx([*own[:2], own[2] + t, w, w * 0.105 / 0.305])


def test_surroundings_count_most_where_a_graph_is_odd_as_a_whole():
    found = Weights.of(torch.tensor([0.0, 0.6, 0.0, 0.0, 0.3]).double(), 2, 1, PLAIN, NONE)
    o = sigmoid((0.6 - 0.48) / 0.03)
    assert found.regions.item() < 0.001
    assert found.each[-1].item() == pytest.approx(0.25 + 1.75 * o)


def test_where_odd_nodes_stand():
    def regions(*q: float, plain: torch.Tensor = PLAIN) -> float:
        return float(Weights.of(torch.tensor([*q, 0.0, 0.0]).double(), 2, 1, plain, NONE).regions)

    assert regions(0.0, 0.0, 0.0) == 0.5  # nothing shows
    assert regions(0.0, 0.0, 0.02) > 0.95
    assert regions(0.0, 0.02, 0.0) < 0.05
    assert regions(0.0, 0.02, 0.08) < 0.05  # beside scattered ones
    assert regions(0.2, 0.0, 0.3) > 0.95  # what a model says does not count
    assert regions(0.2, 0.0, 0.3, plain=torch.arange(5) < 2) < 0.05  # unless nothing else does


def test_which_evidence_tells_of_scattered_nodes():
    def scatters(*unlike: Method) -> list[bool]:
        return TwoScale(unlike, (Energy(),), (Propagated(Energy(), 16),)).scatters()

    assert scatters(OutOfPlace(), CentredCosine(), FeatureDistance()) == [False, True, False, False, False]
    assert scatters(OutOfPlace(), FeatureDistance()) == [True, False, False, False]  # no other needs no model
    assert scatters(FeatureDistance()) == [False, False, False]


def test_what_opens_a_graph():
    """Many nodes unlike their neighbours, or many that are unknown where neighbours are alike; never the latter alone
    where features are unlike, as beside planted nodes."""

    def openness(*q: float) -> float:
        return float(Weights.of(torch.tensor([*q, 0.0, 0.0]).double(), 2, 1, PLAIN, NONE).openness)

    assert openness(0.0, 0.0, 0.0) < 0.01
    assert openness(0.0, 0.6, 0.0) > 0.95
    assert openness(0.0, 0.0, 0.42) > 0.95
    assert openness(0.0, 0.2, 0.7) < 0.01


def test_what_trouble_has_added_by_hand():
    def found(regions: float, unlike: float, unknown: float) -> Weights:
        return Weights(torch.ones(1), *(torch.tensor(value).double() for value in (regions, unlike, unknown, 0.0)))

    def shift(weights: Weights, values: torch.Tensor) -> float:
        spread = spread_of(values)
        return float(added(weights, none_left(weights, spread, known), spread, known))

    known, values = torch.arange(101.0).double(), 2 * torch.arange(101.0).double()  # 25 of 101 values are below 50
    assert shift(found(0.0, 0.0, 0.0), values) == 50  # the medians are 100 and 50
    assert shift(found(1.0, 0.0, 0.0), values) == 25  # the quartiles 50 and 25
    assert shift(found(0.0, 0.25, 0.0), values) == 0.75 * 50
    assert shift(found(0.0, 0.0, 1.0), values) == pytest.approx(50, abs=1e-4)  # a quarter is as usual as half are
    assert shift(found(0.0, 0.0, 1.0), values + 60) == pytest.approx(0, abs=0.01)  # none is: all of it is theirs
    few = torch.cat([torch.zeros(40), torch.full((360,), 90.0)]).double()  # one in ten is usual
    assert shift(found(0.0, 0.0, 1.0), few) == pytest.approx((1 - 0.5) * 40)
    assert shift(found(0.0, 0.0, 0.0), values / 4) == 0  # never less than nothing
    assert shift(found(0.0, 0.0, 0.0), values[:0]) == 0


def test_rarity_by_degree_by_hand():
    known = torch.cat([torch.zeros(100), torch.ones(60), torch.full((50,), 2.0)])  # 1 and 2 share a group
    calibration = torch.cat([torch.arange(100.0), 1000 + torch.arange(110.0)])
    scores, degrees = torch.tensor([49.5, 1049.5, 1049.5, 49.5]), torch.tensor([0.0, 1.0, 7.0, 1.0])
    expected = [101 / 51, 111 / 61, 111 / 61, 1.0]
    assert Compared.by(known).rarity(scores, degrees, calibration).exp().tolist() == pytest.approx(expected)
    assert degree_bounds(known).tolist() == [0.0]
    assert degree_bounds(known[:150]).tolist() == []  # too few for two groups
    few = Compared.by(known[:150]).rarity(scores, degrees, calibration[:150])
    torch.testing.assert_close(few, rarity(scores, calibration[:150]))


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_rarity_is_the_logarithm_of_a_conformal_p_value(seed):
    rng = torch.Generator().manual_seed(seed)
    calibration = torch.randn(40, generator=rng) * 10 ** float(torch.randint(-20, 30, (1,), generator=rng))
    scores = torch.cat([calibration[:5], calibration[5:10] + 3 * calibration.std(), torch.tensor([3e38, -3e38])])
    lowered = scores.double() - 1e-5 * (1 + scores.double().abs())
    torch.testing.assert_close(
        rarity(scores, calibration), -conformal_p_values(lowered, calibration.double()).log(), rtol=1e-9, atol=1e-12
    )


def test_each_calibration_node_is_held_against_the_others():
    calibration = torch.tensor([3.0, 1.0, 2.0, 2.0])
    assert rarity(calibration, calibration, among=True).exp().tolist() == pytest.approx([4.0, 1.0, 4 / 3, 4 / 3])


def test_a_tail_goes_on_by_hand():
    reference = torch.arange(20.0)  # the top tenth is 18 and 19: a mean excess of 0.5
    found = continued_rarity(torch.tensor([19.0, 20.0, 9.5, -1.0]), reference)
    middle = (math.log(21 / 11) + math.log(21 / 10)) / 2
    assert found.tolist() == pytest.approx([math.log(21), math.log(21) + 2, middle, math.log(21 / 20) - 2])


def test_tied_references_and_one_reference():
    tied = torch.tensor([1.0, 1.0, 1.0, 2.0])
    assert continued_rarity(tied, tied).exp().tolist() == pytest.approx([1.25, 1.25, 1.25, 5.0])
    assert continued_rarity(torch.tensor([0.0, 1.0, 2.0]), torch.tensor([1.0])).tolist() == pytest.approx(
        [math.log(2) - 1, math.log(2), math.log(2) + 1]
    )


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_what_is_higher_is_never_less_rare(seed):
    rng = torch.Generator().manual_seed(seed)
    reference = torch.randn(30, generator=rng).round(decimals=int(torch.randint(0, 3, (1,), generator=rng)))
    values = (3 * torch.randn(100, generator=rng)).sort().values
    found = continued_rarity(values, reference)
    assert (found.diff() >= -1e-12).all()
    p = conformal_p_values(values.double(), reference.double())
    held = conformal_p_values(found, continued_rarity(reference, reference))
    assert torch.equal(p, held)  # ranks are the same on the new scale


def test_evidence_that_finds_nothing_hardly_counts():
    found, noise = torch.zeros(400).double(), torch.rand(400, 6, generator=torch.Generator().manual_seed(0)).double()
    found[:200] = 5.0
    evidence = torch.cat([found[:, None], -noise.log(), found[:, None]], dim=1)
    features = torch.arange(8) == 7
    each = Weights.of(excess(evidence, torch.full((8,), 0.1), 400), 7, 0, features, NONE).each
    score, plain = (evidence - 1) @ each, evidence[:, :7].sum(dim=1)
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
    method, outputs = detector.method, detector.outputs(blocks)
    evidence = method.rows(outputs)
    assert evidence.shape == (120, 10)
    assert evidence[:, 3].isnan().all()  # the graph is undirected: degree balance says nothing
    energy = rarity(Energy().score(outputs), Energy().score(outputs)[blocks.val_mask])
    torch.testing.assert_close(evidence[:, 6], energy)
    scored = method.scored(outputs)
    place = torch.arange(10)
    usual = usual_shares(evidence, method.known_, place == 4)
    plain = (place == 1) | (place == 3)  # features and degrees are read without a model
    found = Weights.of(excess(evidence, usual, len(method.known_)), 5, 2, plain, NONE)
    means = method.known_.nanmean(dim=0)
    centred = [(rows - means).nan_to_num(0.0) for rows in (evidence, method.known_)]
    z, known = (rows @ found.each for rows in centred)
    alone = found.each * (place < 7)  # surroundings are the last three
    left = none_left(found, spread_of(centred[0] @ alone), centred[1] @ alone)
    deciding = found.each * torch.tensor([1.0] * 7 + [float(left)] * 3)
    own, known_own = (rows @ deciding for rows in centred)
    shift = added(found, left, spread_of(own), known_own)
    torch.testing.assert_close(scored.compared, continued_rarity(own - shift, known_own).float())
    torch.testing.assert_close(scored.scores, (continued_rarity(z, known) + 4 * found.openness).float())
    assert 0.8 < float(method.known_.nanmean()) < 1.05  # 1 on average, less what n nodes leave out


def test_p_values_compare_nodes_under_the_same_weights(detector, blocks):
    """Each is a node's rank among the validation nodes by the weights of the graph that it is in, without the lift."""
    detector.calibrate(blocks)
    other = blocks.clone()
    other.x = other.x[torch.randperm(120, generator=torch.Generator().manual_seed(0))]
    with pytest.warns(CalibrationWarning, match="odder by their own evidence"):  # where all have another's features
        p = detector.p_values(other)
    method = detector.method
    assert 0.2 < float(method.openness_) < 0.9
    rows, around = method.rows(detector.outputs(other)), method.scored(detector.outputs(other)).around
    torch.testing.assert_close(
        p, conformal_p_values(method.decided(rows, around) - method.shift_, method.decided(method.known_))
    )
    rarities = continued_rarity(method.weighted(rows), method.weighted(method.known_))
    lifted = detector.score(other).double() - rarities
    torch.testing.assert_close(lifted, torch.full_like(lifted, 4 * float(method.openness_)), rtol=1e-5, atol=1e-5)


def test_p_values_go_by_own_evidence_unless_no_usual_node_is_left(detector, blocks):
    method = detector.method
    usual = method.rows(detector.outputs(blocks))
    louder = usual.clone()
    louder[:, 7:] += 5.0  # the surroundings of all, as beside OOD nodes
    seen = method.for_graph(usual)
    assert (seen.weighed(louder) > seen.weighed(usual)).all()
    torch.testing.assert_close(seen.comparable(louder), seen.comparable(usual))
    odd = method.for_graph(torch.full_like(usual, 9.0))
    torch.testing.assert_close(odd.deciding_, odd.weights_, rtol=1e-5, atol=1e-5)


def test_odder_in_neighbours_explain_evidence_by_hand():
    """Node 0 points to 1 and 2, and 3 to 0; z' is 8, 4, 0.5 and 0.5, and nine in ten validation nodes lie below 0.9."""
    method = TwoScale(unlike=(OutOfPlace(), FeatureDistance()), unknown=(Energy(),), surroundings=(GNNSafe(),))
    method.known_ = torch.stack([torch.arange(11) / 10, *[torch.zeros(11)] * 3], dim=1).double()  # 0, 0.1, …, 1
    method.known_[:, 0] -= 0.5  # whose mean is 0
    method.deciding_ = torch.tensor([1.0, 1.0, 1.0, 0.0]).double()
    method.shift_ = torch.tensor(0.5).double()  # so that e = max(0, z' − 0.5 − 0.4)
    rows = torch.tensor([[8.0, 0, 0, 0], [2.0, 1.0, 1.0, 9.0], [0.5, 0, 0, 9.0], [1.0, 0, -0.5, 0]]).double()
    edges = torch.tensor([[0, 0, 3], [1, 2, 0]])
    method.explaining_ = torch.tensor(0.0).double()
    assert method.told(rows) is None
    method.explaining_ = torch.tensor(0.8).double()
    told = method.told(rows)
    assert told.tolist() == pytest.approx([7.1, 3.1, 0.0, 0.0])
    around = diffused(told, edges, steps=1, alpha=0.0, isolated="decay")
    assert around.tolist() == pytest.approx([0.0, 7.1, 7.1, 0.0])
    h = 0.8 * 0.75 * 7.1**2 / (7.1**2 + 3.1**2)  # of what reads neighbours: not of the node's own features
    expected = [8.0, (2 + 1) * (1 - h) + 1, 0.5 * (1 - 0.8 * 0.75), 0.5]
    assert method.decided(rows, around).tolist() == pytest.approx(expected)


def test_scattered_nodes_explain_their_neighbours_and_regions_do_not():
    some = torch.tensor([0.05, 0.0, 0.02, 0.01]).double()  # x = 0.05
    first = torch.tensor([True, False, False, False])
    found, zero = Weights.of(some, 2, 1, first, NONE), torch.tensor(0.0).double()
    assert float(found.regions) == pytest.approx(0.005**2 / (0.005**2 + 0.055**2))  # t: hardly any
    assert float(explaining(found, zero)) == pytest.approx((1 - float(found.regions)) * 0.05 / 0.055)
    assert float(explaining(found, zero + 1)) == 0.0  # no usual node is left
    calm = Weights.of(torch.zeros(4).double(), 2, 1, first, NONE)
    assert float(explaining(calm, zero)) == 0.0


def test_id_nodes_that_only_hear_a_planted_node_are_flagged_less_often():
    """Hubs with another class's features among leaves that hear nobody else."""
    data = block_graph(num_nodes=900, seed=3)
    hubs = torch.arange(0, 900, 15)
    alone = torch.cat([hubs + step for step in (3, 6, 9, 12)])  # of the same class
    keep = ~torch.isin(data.edge_index, alone).any(dim=0)
    links = torch.stack([hubs.repeat(4), alone])
    data.edge_index = torch.cat([data.edge_index[:, keep], links, links.flip(0)], dim=1)
    torch.manual_seed(0)
    model = GCN(8, 16, 3)
    gnnsafe.train(model, data, objective=gnnsafe.CrossEntropy(), epochs=50)
    detector = Detector(model).fit(data).calibrate(data)
    other = data.clone()
    other.x = data.x.clone()
    other.x[hubs] = data.x[hubs + 1]
    method, outputs = detector.method, detector.outputs(other)
    scored = method.scored(outputs)
    calibration = detector.calibration_
    assert float(scored.method.explaining_) > 0.3
    without = calibration.p_values(scored.method.comparable(scored.rows))
    p = calibration.p_values(scored.compared)
    assert (p >= without).all()
    before, after = (float((one[alone] <= 0.1).double().mean()) for one in (without, p))
    assert after < before


def test_a_calm_draw_of_a_dense_graph_is_not_flagged_as_a_whole():
    """With a hundred neighbours embeddings differ less within a graph than between two draws of it."""

    def drawn(seed: int) -> gnnsafe.graph.Data:
        draw = torch.Generator().manual_seed(seed)
        data = block_graph(num_nodes=1200, seed=seed)
        data.x = torch.randn(1200, 16, generator=draw) + 2.0 * torch.eye(16)[data.y]
        return data

    known, fresh = drawn(5), drawn(6)
    torch.manual_seed(0)
    model = GCN(16, 32, 3)
    gnnsafe.train(model, known, objective=gnnsafe.CrossEntropy(), epochs=50)
    detector = Detector(model).fit(known).calibrate(known)
    assert float(detector.predict(fresh, false_alarm=0.05).double().mean()) < 0.12
    assert float(detector.method.openness_) < 0.2


def test_validation_nodes_calibrate_as_if_it_had_not_learnt_from_them(detector, blocks):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        detector.calibrate(blocks)
    count = int(blocks.val_mask.sum())
    assert len(detector.calibration_.scores) == count
    ranks = detector.calibration_.p_values(detector.calibration_.scores)
    assert ranks.min() >= 1 / (count + 1)
    some = blocks.val_mask.clone()
    some[some.nonzero().flatten()[0]] = False
    with pytest.warns(CalibrationWarning, match="has learnt from"):  # others than those that it has learnt from
        detector.calibrate(blocks, mask=some)


def test_false_alarms_of_exchangeable_nodes():
    """Validation and test nodes are drawn again from one pool: 10 % asked, over 60 splits."""
    rates = []
    for seed in range(60):
        data = block_graph(num_nodes=400, seed=1)
        order = torch.randperm(400, generator=torch.Generator().manual_seed(seed))
        for name, nodes in (("train_mask", order[:60]), ("val_mask", order[60:160]), ("test_mask", order[160:])):
            mask = torch.zeros(400, dtype=torch.bool)
            mask[nodes] = True
            data[name] = mask
        torch.manual_seed(0)
        detector = Detector(GCN(8, 16, 3), "two-scale").fit(data).calibrate(data)
        rates.append(float(detector.predict(data, false_alarm=0.1)[data.test_mask].double().mean()))
    error = statistics.stdev(rates) / len(rates) ** 0.5
    assert statistics.mean(rates) < 0.1 + 3 * error
    assert statistics.mean(rates) > 0.07


def test_parts_are_scored_by_the_weights_of_the_graph_that_was_seen_last(detector, blocks):
    other = blocks.clone()
    other.x = other.x[torch.randperm(120, generator=torch.Generator().manual_seed(0))]
    scores = detector.score(other)
    touched, new = detector.score_new(other, [3], touched=False)
    torch.testing.assert_close(new, scores[touched], rtol=1e-4, atol=1e-4)
    detector.score(blocks)  # whose weights are others
    assert not torch.allclose(detector.score_new(other, [3], touched=False).scores, scores[touched])


def test_batches_read_the_graph_as_a_whole(detector, blocks):
    scores, p = detector.score(blocks), detector.calibrate(blocks).p_values(blocks)
    torch.testing.assert_close(detector.score(blocks, batch_size=50), scores, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(detector.p_values(blocks, batch_size=50), p)


def test_a_part_of_a_directed_graph_knows_who_points_to_many():
    data = block_graph(num_nodes=60)
    data.edge_index = data.edge_index[:, data.edge_index[0] < data.edge_index[1]]
    detector = Detector(GCN(8, 16, 3), "degree-balance").fit(data)
    scores = detector.score(data)
    touched, new = detector.score_new(data, [0, 30], touched=False)
    assert torch.equal(new, scores[touched])


def test_a_graph_that_is_odd_as_a_whole_scores_higher(detector, blocks):
    other = blocks.clone()
    other.x = other.x[torch.randperm(120, generator=torch.Generator().manual_seed(0))]
    inside, outside = detector.score(blocks)[blocks.test_mask], detector.score(other)
    assert gnnsafe.metrics.detection(inside, outside).auroc > 0.95


def test_a_node_that_nobody_points_to_has_no_neighbours_to_be_unlike(detector, blocks):
    alone = blocks.clone()
    alone.edge_index = alone.edge_index[:, alone.edge_index[1] != 7]
    evidence = detector.method.rows(detector.outputs(alone))[7]
    assert evidence[[0, 1, 2, 3, 5]].isnan().all()
    assert evidence[[4, 6, 7, 8, 9]].isfinite().all()  # its features and its energy it has of its own


def test_evidence_that_is_the_same_for_all_changes_no_order_and_lifts_no_graph(blocks, detector):
    """A weight times a constant would tell graphs apart by their weights alone."""

    @dataclass
    class Same(MSP):
        def base_scores(self, outputs):
            return torch.ones(len(outputs.logits))

    other = blocks.clone()
    other.x = other.x[torch.randperm(120, generator=torch.Generator().manual_seed(0))]
    method = Detector(detector.classifier.model, TwoScale(unlike=(MSP(), Same()))).fit(blocks).method
    for graph in (blocks, other):
        assert (method.rows(detector.outputs(graph))[:, 1] == method.known_[:, 1].mean()).all()


def test_a_few_directed_edges_in_an_undirected_world_are_no_evidence(blocks, detector):
    directed = blocks.clone()
    directed.edge_index = directed.edge_index[:, 3:]
    assert detector.method.rows(detector.outputs(directed))[:, 3].isnan().all()


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
    method = TwoScale(unlike=(MSP(),), unknown=(Energy(),), surroundings=(FeatureNorm(),))
    scored = Detector(detector.classifier.model, method).fit(blocks)
    assert scored.method.rows(scored.outputs(blocks)).shape == (120, 3)


@pytest.mark.parametrize("given", [(), MSP(), ("msp",)])
def test_what_is_no_evidence(given):
    with pytest.raises(InputError, match=r"^'unlike' must be a tuple of methods \(got"):
        TwoScale(unlike=given)
    with pytest.raises(InputError, match=r"^'surroundings' must be a tuple of methods \(got"):
        TwoScale(surroundings=given)


def test_without_validation_nodes_it_cannot_be_fitted(blocks):
    del blocks.val_mask
    with pytest.raises(InputError, match=r"val_mask"):
        Detector(GCN(8, 16, 3), TwoScale()).fit(blocks)


def test_it_is_called_by_what_is_not_usual():
    assert repr(TwoScale()) == "TwoScale()"
    assert repr(TwoScale(unknown=(Energy(),))) == "TwoScale(unknown=(Energy(temperature=1.0),))"


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


def test_rates_hold_for_nodes_without_in_neighbours_and_for_the_others():
    """At 5 % asked one in ten of those with in-neighbours was flagged, and next to none of the others."""
    nodes, classes, draw = 3000, 5, torch.Generator().manual_seed(1)
    means, y = torch.randn(classes, 24, generator=draw), torch.randint(0, classes, (nodes,), generator=draw)
    source, target = (torch.randint(0, size, (12000,), generator=draw) for size in (nodes, nodes // 2))
    kept = (y[source] == y[target]) | (torch.rand(12000, generator=draw) < 0.1)
    edge_index, train = torch.stack([source, target])[:, kept], torch.rand(nodes, generator=draw) < 1 / 3
    x = means[y] + torch.randn(nodes, 24, generator=draw)
    model, shares = GraphSAGE(24, 32, classes), []
    torch.manual_seed(0)
    for number in range(6):
        validation = ~train & (torch.rand(nodes, generator=draw) < 0.5)
        data = Data(x=x, edge_index=edge_index, y=y, train_mask=train, val_mask=validation)
        if number == 0:
            gnnsafe.train(model, data, objective=gnnsafe.CrossEntropy(), epochs=60)
        flags = Detector(model).fit(data).calibrate(data).predict(data, false_alarm=0.05)[~train & ~validation]
        hears = torch.zeros(nodes, dtype=torch.bool).index_fill(0, edge_index[1], True)[~train & ~validation]
        shares.append([float(flags[group].double().mean()) for group in (hears, ~hears)])
    for found in zip(*shares, strict=True):
        assert 0.03 < statistics.fmean(found) < 0.07
