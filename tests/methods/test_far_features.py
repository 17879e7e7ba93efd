"""TwoScale beside nodes whose own features are far off: they are found, and their neighbours are not blamed."""

from __future__ import annotations

import copy

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

import gnnsafe
from gnnsafe import Detector
from gnnsafe.errors import InputError
from gnnsafe.graph import changed
from gnnsafe.methods import Energy, FeatureDistance, OutOfPlace, TwoScale
from gnnsafe.methods.weighing import Weights
from gnnsafe.metrics import detection
from gnnsafe.models import GCN, SGC, GraphSAGE

NODES, FEATURES = 1500, 6


def world(seed: int) -> Data:
    """Three classes of points with neighbours of their own class, directed; the same nodes for every seed."""
    fixed, draw = torch.Generator().manual_seed(0), torch.Generator().manual_seed(seed)
    y = torch.randint(0, 3, (NODES,), generator=fixed)
    x = torch.randn(NODES, FEATURES, generator=fixed) + 2 * torch.eye(FEATURES)[y]
    order = y.argsort(stable=True)  # a class after the other
    starts, sizes = torch.bincount(y).cumsum(0) - torch.bincount(y), torch.bincount(y)
    source = torch.randint(0, NODES, (5 * NODES,), generator=draw)
    place = (torch.rand(len(source), generator=draw) * sizes[y[source]]).long()
    edge_index = torch.stack([source, order[starts[y[source]] + place]])
    part = torch.rand(NODES, generator=fixed)
    masks = {"train_mask": part < 0.5, "val_mask": (part >= 0.5) & (part < 0.75), "test_mask": part >= 0.75}
    return Data(x=x, edge_index=edge_index, y=y, **masks)


def moved(data: Data, share: float, by: float = 6.0) -> tuple[Data, torch.Tensor]:
    """A share of all nodes, test nodes first, has all features moved."""
    draw = torch.rand(NODES, generator=torch.Generator().manual_seed(7)) + data.test_mask
    odd = torch.zeros(NODES, dtype=torch.bool)
    odd[draw.argsort(descending=True)[: round(share * NODES)]] = True
    return changed(data, x=data.x + by * odd[:, None]), odd


@pytest.fixture(scope="module")
def detector() -> Detector:
    data = world(1)
    torch.manual_seed(0)
    model = GCN(FEATURES, 32, 3)
    gnnsafe.train(model, data, objective=gnnsafe.CrossEntropy(), epochs=100)
    return Detector(model).fit(data).calibrate(data)


@pytest.mark.filterwarnings("ignore:.*nodes are flagged")  # a fifth of them are odd
@pytest.mark.parametrize("share", [0.02, 0.1, 0.2])
def test_they_are_found_and_their_neighbours_are_not_flagged(detector, share):
    data, odd = moved(world(2), share)
    usual = data.test_mask & ~odd
    decided = detector.decide(data, false_alarm=0.05)
    assert bool(detector.method.silencing_)
    assert detection(decided.scores[usual], decided.scores[odd]).auroc > 0.99
    assert decided.flags[odd].double().mean() > 0.95
    count = int(usual.sum())
    assert decided.flags[usual].double().mean() < 0.05 + 3 * (0.05 * 0.95 / count) ** 0.5


def one_feature_moved(seed: int = 0) -> tuple[Detector, Data, torch.Tensor]:
    """One of 400 features is far off in a tenth of the nodes, which the sum of their squares hardly shows."""
    draw = torch.Generator().manual_seed(seed)
    known, new = (changed(one, x=torch.randn(NODES, 400, generator=draw)) for one in (world(1), world(2)))
    torch.manual_seed(seed)
    detector = Detector(GCN(400, 16, 3)).fit(known).calibrate(known)
    odd = moved(new, 0.1)[1]
    return detector, changed(new, x=new.x + 7.0 * odd[:, None] * (torch.arange(400) == 2)), odd


@pytest.mark.filterwarnings("ignore:.*nodes are flagged")
def test_one_feature_far_off_among_many():
    detector, data, odd = one_feature_moved()
    method = detector.method
    sums = method.distance.of_graph(gnnsafe.prepare(data))
    assert (sums[odd] > method.far_off_)[:, 0].double().mean() < 0.5
    far = method.levels(gnnsafe.prepare(data)) > 0
    assert far[odd].double().mean() > 0.95
    assert far[~odd].double().mean() < 0.06
    decided = detector.decide(data, false_alarm=0.05)
    usual = data.test_mask & ~odd
    assert decided.flags[usual].double().mean() < 0.05 + 3 * (0.05 * 0.95 / int(usual.sum())) ** 0.5
    torch.testing.assert_close(detector.score(data, batch_size=400), decided.scores, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [1.0, 1e3, 1e5, 1e8])
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_sparse_features_are_as_far_off_as_dense_ones(size):
    """Beside a column that is hardly ever 0, and of any size."""
    draw = torch.Generator().manual_seed(0)
    x = torch.rand(300, 40, generator=draw) * (torch.rand(300, 40, generator=draw) < 0.05)
    x[:, 7], x[:, 9] = size, 1 + 0.01 * torch.rand(300, generator=draw)
    x[5, 9] = 0.0
    mask = torch.arange(300) < 100
    graphs = [gnnsafe.prepare(Data(x=one, edge_index=torch.tensor([[0], [1]]))) for one in (x, x.to_sparse_csr())]
    method = FeatureDistance().fit(gnnsafe.Outputs(torch.zeros(300, 2), graphs[0]), mask.long(), mask)
    dense, sparse = method.sums(x), method.sums(x.to_sparse_csr())
    torch.testing.assert_close(sparse, dense, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (1, 2), (300, 2)])
def test_a_forged_limit_is_refused_in_words(detector, shape):
    forged = copy.copy(detector.method)
    forged.far_off_ = torch.ones(shape)
    with pytest.raises(InputError, match=r"'far_off_' must be of shape \[2\]"):
        forged.levels(gnnsafe.prepare(world(2)))


def test_the_share_that_is_far_off_says_that_odd_nodes_are_scattered():
    """q = 0.3 of unknown nodes: four times the 0.05 that are far off, beyond the usual share, explain 0.2 of it."""
    q = torch.tensor([0.0, 0.3, 0.0]).double()
    found = Weights.of(q, 1, 1, torch.tensor([True, False, False]), torch.tensor(0.05))
    assert float(found.regions) == pytest.approx((0.005 + 0.1) ** 2 / ((0.005 + 0.1) ** 2 + (0.005 + 0.05) ** 2))
    q[0] = 0.2  # the larger of both counts
    both = Weights.of(q, 1, 1, torch.tensor([True, False, False]), torch.tensor(0.05))
    assert both.regions == Weights.of(q, 1, 1, torch.tensor([True, False, False]), torch.tensor(0.0)).regions


def test_a_graph_of_them_is_odd_as_a_whole(detector):
    calm, (data, _) = world(2), moved(world(2), 1.0)
    known, unknown = detector.score(calm)[calm.test_mask], detector.score(data)[data.test_mask]
    assert detection(known, unknown).auroc > 0.99


def test_a_graph_without_many_of_them_is_read_as_it_is(detector):
    calm = world(2)
    detector.score(calm)
    method = detector.method
    assert not bool(method.silencing_)
    outputs = detector.outputs(calm)
    assert method.heard(outputs) is outputs
    few, _ = moved(calm, 4 / NODES)  # of 1,500, fewer than one in 200
    detector.score(few)
    assert not bool(detector.method.silencing_)


def test_classes_are_the_models_own(detector):
    data, _ = moved(world(2), 0.1)
    assert torch.equal(detector.decide(data, false_alarm=0.05).predicted, detector.outputs(data).logits.argmax(dim=1))


def test_batches_and_parts_hear_as_the_whole_graph_does(detector):
    data, _ = moved(world(2), 0.05)
    whole = detector.score(data)
    torch.testing.assert_close(detector.score(data, batch_size=400), whole, rtol=1e-5, atol=1e-5)
    detector.score(world(2))  # which had none
    near = Detector(detector.classifier.model, TwoScale(surroundings=(OutOfPlace(),))).fit(world(1))
    whole = near.score(data)
    nodes, scores = near.score_new(data, [3, 700], touched=False)
    torch.testing.assert_close(scores, whole[nodes], rtol=1e-5, atol=1e-5)


def test_reasons_say_so(detector):
    data, odd = moved(world(2), 0.1)
    node = int(odd.nonzero()[0])
    why = detector.explain(data, node=node)
    assert "judged without them" in str(why)
    assert why.figures["silencing"] == 1.0
    (far,) = [one for one in why.evidence if one.says == FeatureDistance.says]
    assert far.p_value == pytest.approx(1 / (int(world(1).val_mask.sum()) + 1))
    source, target = data.edge_index
    beside = int(target[odd[source] & ~odd[target]][0])
    counted = {share.node for one in detector.explain(data, node=beside).evidence for share in one.shares}
    assert not odd[list(counted)].any()


class Weighted(torch.nn.Module):
    """A user's model, which reads a weight of each edge."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.head = GCNConv(FEATURES, 16), GCNConv(16, 3)

    def forward(self, x, edge_index, edge_weight):
        return self.head(self.hidden(x, edge_index, edge_weight).relu(), edge_index, edge_weight)


@pytest.mark.filterwarnings("ignore:Weighted's forward takes edge_weight")
def test_weights_go_with_their_edges():
    graphs = [changed(one, edge_weight=torch.linspace(0.5, 1.5, 5 * NODES)) for one in (world(1), world(2))]
    torch.manual_seed(0)
    model = Weighted()
    detector = Detector(model, embedding="hidden").fit(graphs[0])
    data, odd = moved(graphs[1], 0.1)
    outputs = detector.outputs(data)
    heard = detector.method.looking_at(outputs.graph).heard(outputs)
    far = detector.method.levels(outputs.graph) > 0
    kept = ~far[data.edge_index[0]] | (data.edge_index[0] == data.edge_index[1])
    assert far[odd].all()
    with torch.no_grad():
        expected = model(data.x, data.edge_index[:, kept], data.edge_weight[kept])
    torch.testing.assert_close(heard.logits, expected)


def test_a_model_that_cannot_run_again_hears_all():
    data, _ = moved(world(1), 0.1)
    method = TwoScale(unlike=(FeatureDistance(),))
    outputs = gnnsafe.Outputs.of(GCN(FEATURES, 8, 3), world(1))
    method.fit(outputs, world(1).y, world(1).train_mask)
    assert not bool(method.looking_at(gnnsafe.prepare(data)).silencing_)


def test_other_features_of_the_same_edges_are_read_anew(detector):
    data, odd = moved(world(2), 0.1)
    graph = gnnsafe.prepare(data)
    detector.score(graph)
    far = detector.method.levels(graph) > 0
    x = torch.where(far[:, None], data.x + 3.0 * odd[:, None], 0.9 * data.x)  # of which the same are far off
    fresh = gnnsafe.prepare(changed(data, x=x))
    assert torch.equal(detector.method.levels(fresh) > 0, far)
    assert torch.equal(detector.score(graph.with_features(x)), detector.score(fresh))


@pytest.mark.filterwarnings("ignore::gnnsafe.errors.MethodWarning")
def test_lists_go_with_their_edges():
    names = [str(edge) for edge in range(5 * NODES)]
    torch.manual_seed(0)
    seen, model = [], GCN(FEATURES, 8, 3)

    def forward(model, data):
        seen.append((data.edge_index, data.edge_names))
        return model(data.x, data.edge_index)

    detector = Detector(model, forward=forward).fit(changed(world(1), edge_names=names))
    data, _ = moved(changed(world(2), edge_names=names), 0.1)
    detector.score(data)
    assert bool(detector.method.silencing_)
    edges, left = next(one for one in seen if 0 < len(one[1]) < 5 * NODES)
    torch.testing.assert_close(edges, data.edge_index[:, list(map(int, left))])


@pytest.mark.parametrize("backbone", [GCN, SGC, GraphSAGE])
def test_touched_are_all_that_a_node_reaches_which_is_no_longer_heard(backbone):
    """Its neighbours' in-degrees change, and so what a GCN's neighbours hear of these, a hop further."""
    line = torch.arange(NODES - 1)
    graph = changed(world(1), edge_index=torch.stack([line, line + 1]).repeat(1, 2))
    torch.manual_seed(0)
    near = TwoScale(unknown=(Energy(),), surroundings=(OutOfPlace(),))  # read neighbours, and no further
    detector = Detector(backbone(FEATURES, 8, 3), near).fit(graph)
    before, _ = moved(graph, 0.1)
    detector.score(before)
    method = detector.method
    far = (method.levels(gnnsafe.prepare(before)) > 0).tolist()
    node = next(first for first in range(NODES) if not any(far[first : first + 6]))
    after = changed(before, x=before.x + 60.0 * (torch.arange(NODES) == node)[:, None])
    heard = [method.heard(detector.outputs(one)).logits for one in (before, after)]
    differ = (heard[0] != heard[1]).any(dim=1)
    last = int(differ.nonzero().max()) - node
    nodes, _ = detector.score_new(after, [node])
    assert int(nodes.max()) - node >= last + 1  # whose own evidence reads those before it


def test_chance_is_that_of_the_graph_where_it_is_small(detector):
    method = detector.method
    share, none = float(method.usual_far_) + 0.03, torch.tensor(0.0)
    assert float(method.with_far(torch.tensor(share), none, 1000).silencing_) == pytest.approx(0.03)
    assert not bool(method.with_far(torch.tensor(share), none, 30).silencing_)  # two nodes of 30
    assert bool(method.with_far(torch.tensor(share + 0.1), none, 30).silencing_)


@pytest.mark.parametrize(("far", "absurd", "level"), [(0.0, 0.0, 3), (0.001, 0.001, 2), (0.3, 0.001, 1), (0.3, 0.0, 1)])
def test_who_is_heard(detector, far, absurd, level):
    seen = detector.method.with_far(torch.tensor(far), torch.tensor(absurd), 1000)
    assert int(seen.silent_from_) == level
    assert seen.silences == (level < 3)


@pytest.mark.parametrize("backbone", [GCN, GraphSAGE])
@pytest.mark.parametrize("count", [1, 5])
def test_a_few_absurd_rows_are_found_and_nobody_is_flagged_with_them(backbone, count):
    """A corrupt row, a million times too large, in a graph of 1,500 nodes."""
    known, calm = world(1), world(2)
    torch.manual_seed(0)
    model = backbone(FEATURES, 32, 3)
    gnnsafe.train(model, known, objective=gnnsafe.CrossEntropy(), epochs=50)
    detector = Detector(model).fit(known).calibrate(known)
    odd = moved(calm, count / NODES)[1]
    assert int(odd.sum()) == count
    data = changed(calm, x=torch.where(odd[:, None], 1e6 * calm.x, calm.x))
    before, decided = detector.decide(calm, false_alarm=0.05), detector.decide(data, false_alarm=0.05)
    assert int(detector.method.silent_from_) == 2
    assert decided.flags[odd].all()
    assert abs(float(decided.flags[~odd].double().mean() - before.flags[~odd].double().mean())) < 0.01
    why = detector.explain(data, node=int(odd.nonzero()[0]))
    assert min(why.evidence, key=lambda one: one.p_value or 1.0).says == FeatureDistance.says
    assert "Some nodes have features that are far off: their neighbours are judged without them" in str(why)
    torch.testing.assert_close(detector.score(data, batch_size=400), decided.scores, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("fitted", "asked"), [("csr", "dense"), ("dense", "csr")])
@pytest.mark.parametrize("value", [1.0, 0.1, 1 / 7])
def test_rounding_is_not_far_off_where_all_features_are_the_same(detector, value, fitted, asked):
    """Sums of such features are 0 or 1e-18, as sparse and dense ones are rounded: neither is a hundred times as far."""
    dense = changed(world(1), x=torch.full((NODES, FEATURES), value))
    given = {"dense": dense, "csr": changed(dense, x=dense.x.to_sparse_csr())}
    again = Detector(detector.classifier.model, TwoScale(surroundings=(OutOfPlace(),))).fit(given[fitted])
    torch.testing.assert_close(again.score(given[asked]), again.score(given[fitted]), rtol=1e-5, atol=1e-5)
    assert not again.method.silences


@pytest.fixture(scope="module")
def topics():
    benchmark = gnnsafe.load_benchmark("synthetic", shift="feature", nodes=600, edges=3000, features=32, classes=4)
    torch.manual_seed(0)
    model = GCN(32, 32, 4)
    gnnsafe.train(model, benchmark.id, objective=gnnsafe.CrossEntropy(), epochs=40)
    return benchmark.id, benchmark.ood["feature"], model


@pytest.mark.filterwarnings("ignore:.*nodes are flagged")  # all are odd
@pytest.mark.parametrize("where", ["train_mask", "val_mask", "test_mask"])
@pytest.mark.parametrize("node", [0, 3, 5])
def test_an_absurd_row_in_the_graph_that_is_fitted_spoils_no_rate(topics, where, node):
    clean, odd, model = topics
    spoilt = changed(clean, x=clean.x.clone())
    spoilt.x[spoilt[where].nonzero()[node], 3] = 1e6
    detector = Detector(model).fit(spoilt).calibrate(spoilt)
    for graph in (spoilt, clean):
        assert detector.predict(graph, false_alarm=0.05)[clean.test_mask].float().mean() < 0.08
    assert detector.predict(odd, false_alarm=0.05)[odd.mask].float().mean() > 0.9


def test_many_far_training_nodes_are_learnt_from(topics):
    clean, _, model = topics
    spoilt = changed(clean, x=clean.x + 1e3 * (clean.train_mask & (torch.arange(600) % 2 == 0))[:, None])
    outputs = gnnsafe.Outputs.of(model, spoilt)
    assert torch.equal(TwoScale().learn_far(outputs, clean.y, clean.train_mask, clean.val_mask), clean.train_mask)
    spoilt.x[clean.train_mask] = clean.x[clean.train_mask]
    first = int(clean.train_mask.nonzero()[0])
    spoilt.x[first] += 1e3
    outputs = gnnsafe.Outputs.of(model, spoilt)
    taught = TwoScale().learn_far(outputs, clean.y, clean.train_mask, clean.val_mask)
    assert (clean.train_mask & ~taught).nonzero().flatten().tolist() == [first]
