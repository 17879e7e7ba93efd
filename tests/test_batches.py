"""Scores in batches are those of one forward pass, and the model sees no more than a batch's receptive field."""

from __future__ import annotations

import copy
import gc
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import DirGNNConv, GCNConv, GraphNorm, SAGEConv
from torch_geometric.utils import degree

from gnnsafe import CrossEntropy, Detector, prepare, train
from gnnsafe.edges import Edges
from gnnsafe.errors import InputError, ModelWarning
from gnnsafe.methods import GEBM, DiffusedKNN, Energy, Method, Propagated
from gnnsafe.models import GCN
from gnnsafe.regions import receptive_field
from gnnsafe.scaling import FeatureScaling


class Theirs(nn.Module):
    """Two layers of somebody's own; `seen` is the largest graph that it was asked about."""

    def __init__(self, layer: type[nn.Module] = GCNConv, norm: nn.Module | None = None) -> None:
        super().__init__()
        self.hidden, self.head, self.norm, self.seen = layer(8, 16), layer(16, 3), norm or nn.Identity(), 0

    def forward(self, x, edge_index):
        self.seen = max(self.seen, len(x))
        return self.head(self.norm(self.hidden(x, edge_index)).relu(), edge_index)


@pytest.fixture
def chain() -> Data:
    """A path that is walked both ways, with some directed edges, loops and repeated ones of nodes near each other."""
    node, draw = torch.arange(200), torch.Generator().manual_seed(0)
    near = torch.randint(0, 195, (60,), generator=draw)
    more = torch.stack([near, near + torch.randint(0, 5, (60,), generator=draw)])
    edge_index = torch.cat([torch.stack([node[:-1], node[1:]]), torch.stack([node[1:], node[:-1]]), more, more], dim=1)
    order = torch.randperm(edge_index.shape[1], generator=draw)
    x, y = torch.randn(200, 8, generator=draw), node % 3
    masks = {"train_mask": node % 4 == 0, "val_mask": node % 4 == 1, "test_mask": node % 4 == 2}
    return Data(x=x, edge_index=edge_index[:, order], y=y, **masks)


def detector_of(model: nn.Module, data: Data, method=None, **options) -> Detector:
    return Detector(model, method, **options).fit(data).calibrate(data)


@pytest.mark.filterwarnings("ignore:.*of 200 nodes")
@pytest.mark.parametrize("batch_size", [9, 64, 1000])
@pytest.mark.parametrize("layer", [GCNConv, SAGEConv])
def test_scores_p_values_and_flags_are_those_of_one_forward(chain, layer, batch_size):
    torch.manual_seed(0)
    detector = detector_of(Theirs(layer), chain)
    options = {"batch_size": batch_size, "hops": 2}
    for data in (chain, prepare(chain)):
        torch.testing.assert_close(detector.score(data, **options), detector.score(data), rtol=1e-5, atol=1e-6)
    new = Data(x=1.5 * chain.x, edge_index=chain.edge_index)  # whose scores no calibration node has
    flags = detector.predict(new, false_alarm=0.1, **options)
    assert torch.equal(flags, detector.predict(new, false_alarm=0.1))
    decided, whole = detector.decide(new, false_alarm=0.1, **options), detector.decide(new, false_alarm=0.1)
    assert torch.equal(decided.predicted, whole.predicted)
    torch.testing.assert_close(decided.probabilities, whole.probabilities)
    detector.calibrate(chain, by_class=True)
    assert torch.equal(detector.p_values(new, **options), detector.p_values(new))


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_scaled_and_sparse_features_and_no_model(chain):
    torch.manual_seed(0)
    scaling = FeatureScaling.fit(chain.x, chain.train_mask, "standard")
    words = chain.clone()
    words.x = chain.x.clamp(min=0.5).sub(0.5).to_sparse_csr()
    for data, options in ((chain, {"scaling": scaling}), (words, {})):
        detector = detector_of(GCN(8, 16, 3), data, **options)
        torch.testing.assert_close(detector.score(data, batch_size=30), detector.score(data), rtol=1e-5, atol=1e-6)
    detector = Detector(None, "degree").fit(chain)
    assert torch.equal(detector.score(chain, batch_size=30), detector.score(chain))


def test_the_model_sees_the_receptive_field_of_a_batch_and_not_that_of_propagation():
    node = torch.arange(300)
    path = Data(x=torch.randn(300, 8), edge_index=torch.stack([node[:-1], node[1:]]), y=node % 3, train_mask=node < 90)
    model = Theirs()
    detector = Detector(model, Propagated(Energy(), steps=20)).fit(path)
    model.seen = 0
    detector.score(path, batch_size=50, hops=2)
    assert model.seen == 53  # two hops, and one more that counts in a degree


@pytest.mark.filterwarnings("ignore:.*of 200 nodes")
def test_a_graph_that_no_forward_takes_as_a_whole(chain):
    """Fitted, calibrated and scored by the default method, which reads the graph much further than the model does."""
    torch.manual_seed(0)
    model, new = Theirs(), Data(x=1.5 * chain.x, edge_index=chain.edge_index)
    whole = detector_of(model, chain, embedding="hidden")
    decided = whole.decide(new, false_alarm=0.1)
    model.seen, batches = 0, {"batch_size": 20, "hops": 2}
    parts = Detector(model, embedding="hidden").fit(chain, **batches)
    parts.calibrate(chain, **batches)
    found = parts.decide(new, false_alarm=0.1, **batches)
    assert model.seen < 60
    torch.testing.assert_close(found.scores, decided.scores, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.p_values, decided.p_values)
    assert torch.equal(found.predicted, decided.predicted)
    assert parts.check_calibration(chain, **batches) == whole.check_calibration(chain)
    sets = parts.predict_sets(new, error=0.2, **batches)
    assert torch.equal(sets.members, whole.predict_sets(new, error=0.2).members)


def test_attributes_of_edges_go_along(chain):
    """With the edges of a batch, and where the model runs without edges."""

    class Weighed(Theirs):
        def forward(self, x, edge_index, edge_weight):
            return self.head(self.hidden(x, edge_index, edge_weight).relu(), edge_index, edge_weight)

    torch.manual_seed(0)
    chain.edge_weight = torch.rand(chain.edge_index.shape[1])
    with pytest.warns(ModelWarning, match="takes edge_weight"):
        detector = detector_of(Weighed(), chain, embedding="hidden")
    torch.testing.assert_close(
        detector.score(chain, batch_size=30, hops=2), detector.score(chain), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("method", ["gnnsafe", "two-scale"])
def test_no_batch_leaves_a_tensor_behind(chain, method):
    """Small ones, kept between the large ones of each batch, made memory grow with the number of batches."""
    model, alive = Theirs(), []
    detector = detector_of(model, chain, method, embedding="hidden")
    model.register_forward_pre_hook(lambda *_: alive.append(sum(map(torch.is_tensor, gc.get_objects()))))
    detector.decide(chain, false_alarm=0.1, batch_size=5, hops=2)
    assert len(alive) >= 40
    for run in (alive[:40], alive[-40:]):  # by TwoScale the model runs twice, and keeps what it gave at first
        assert max(run[10:]) <= max(run[:10])


@pytest.mark.parametrize("method", ["gnnsafe", DiffusedKNN(diffusion=1), GEBM()])
def test_a_receptive_field_that_is_larger_is_refused(chain, method):
    norm = detector_of(Theirs(norm=GraphNorm(16)), chain, method, embedding="hidden")
    short = detector_of(Theirs(), chain, method, embedding="hidden")
    for detector, hops in ((norm, 2), (short, 1)):
        with pytest.raises(InputError, match=r"'hops' must be as far as the model's receptive field \(got"):
            detector.score(chain, batch_size=20, hops=hops)
    assert len(norm.score(chain, batch_size=200, hops=2)) == 200  # the whole graph at once: right whatever hops are


class OfOutDegrees(nn.Module):
    """A node's logits count the edges that leave it, or those that leave its in-neighbours."""

    def __init__(self, *, hops: int) -> None:
        super().__init__()
        self.last, self.hops = nn.Linear(8, 3), hops

    def forward(self, x, edge_index):
        source, target = edge_index
        logits = self.last(x) * (1 + degree(source, len(x)))[:, None]
        return logits.index_add(0, target, logits[source]) if self.hops else logits


@dataclass
class CountsOut(Method):
    """Out-degrees, counted in the graph that it is given, which may be a part."""

    base_reach = 1

    def base_scores(self, outputs):
        return degree(outputs.graph.edge_index[0], outputs.graph.num_nodes)


@pytest.mark.parametrize("edges", [400, 1600])
@pytest.mark.parametrize(
    ("model", "hops", "method"),
    [
        (Theirs(lambda *sizes: DirGNNConv(SAGEConv(*sizes))), 2, "energy"),
        (Theirs(lambda *sizes: SAGEConv(*sizes, flow="target_to_source")), 2, "gnnsafe"),
        (OfOutDegrees(hops=0), 0, "energy"),
        (OfOutDegrees(hops=1), 1, "gnnsafe"),
        (Theirs(), 2, CountsOut()),
    ],
    ids=["both ways", "backwards", "own out-degree", "in-neighbours' out-degrees", "a method"],
)
def test_edges_that_are_read_against_their_direction_are_found(model, hops, method, edges):
    """No number of hops leads there: scores of parts were silently wrong, such as those of DirGNNConv."""
    draw = torch.Generator().manual_seed(0)
    edge_index, node = torch.randint(0, 800, (2, edges), generator=draw), torch.arange(800)
    data = Data(x=torch.randn(800, 8, generator=draw), edge_index=edge_index, y=node % 3, train_mask=node < 300)
    detector = Detector(model, method).fit(data)
    calls = [
        lambda: detector.score_new(data, node[:60], hops=hops),
        lambda: detector.score_new(data, node[:60], hops=hops, touched=False),
    ]
    if isinstance(method, Method):  # in batches it is the model that reads parts, and the method all of the graph
        assert torch.equal(detector.score(data, batch_size=50, hops=hops), detector.score(data))
    else:
        calls.append(lambda: detector.score(data, batch_size=50, hops=hops))
    for call in calls:
        with pytest.raises(InputError, match="on another part of the graph"):
            call()


class OfSize(nn.Module):
    """Logits depend on how many nodes there are, by up to such a share."""

    def __init__(self, *, share: float) -> None:
        super().__init__()
        self.conv, self.share = GCNConv(8, 3), share

    def forward(self, x, edge_index):
        return self.conv(x, edge_index) * (1 + self.share * (len(x) % 7) / 6)


@pytest.mark.parametrize("method", ["energy", "gnnsafe"])
def test_parts_that_are_much_smaller_than_the_first_are_looked_at_too(method):
    """The first 40 nodes hear nearly all, and no other hears anyone: scores of later batches were silently wrong."""
    draw, node = torch.Generator().manual_seed(0), torch.arange(403)
    edges = torch.stack([torch.randint(0, 403, (1600,), generator=draw), torch.randint(0, 40, (1600,), generator=draw)])
    data = Data(x=torch.randn(403, 8, generator=draw), edge_index=edges, y=node % 3, train_mask=node < 300)
    detector = Detector(OfOutDegrees(hops=0), method).fit(data)
    with pytest.raises(InputError, match="on another part of the graph"):
        detector.score(data, batch_size=40, hops=1)


@pytest.mark.parametrize(("precision", "share"), [(torch.bfloat16, 2**-7), (torch.float16, 2**-10)])
def test_a_model_in_half_precision_is_not_refused_for_its_rounding(chain, precision, share):
    """A share that one of its roundings is; it was told now and then that more hops are needed."""
    data, model = chain.clone(), OfSize(share=share)
    data.x = chain.x.to(precision)
    calls = [
        lambda detector, hops: detector.score(data, batch_size=19, hops=hops),
        lambda detector, hops: detector.score_new(data, [100, 101], hops=hops, touched=False),
    ]
    sound = Detector(copy.deepcopy(model).to(precision), "gnnsafe").fit(data)
    assert all(call(sound, 1)[0].dtype in (torch.float32, torch.int64) for call in calls)
    wrong = Detector(OfSize(share=0.5).to(precision), "gnnsafe").fit(data)
    for detector, hops in ((sound, 0), (wrong, 1)):  # what is more than rounding is found as before
        for call in calls:
            with pytest.raises(InputError, match="on another part of the graph"):
                call(detector, hops)
    with pytest.raises(InputError, match="on another part of the graph"):  # float32 rounds less
        Detector(model, "gnnsafe").fit(chain).score(chain, batch_size=19, hops=1)


@dataclass(slots=True)
class InSlots:
    """A graph whose attributes are in `__slots__`, as PyG's are not."""

    x: torch.Tensor
    edge_index: torch.Tensor
    y: torch.Tensor
    train_mask: torch.Tensor
    val_mask: torch.Tensor
    test_mask: torch.Tensor


class Computed:
    """A graph whose features are computed when they are asked for."""

    def __init__(self, data: Data) -> None:
        self.half, self.edge_index = data.x / 2, data.edge_index
        self.y, self.train_mask, self.val_mask = data.y, data.train_mask, data.val_mask

    @property
    def x(self):
        return 2 * self.half

    @x.setter
    def x(self, x):
        self.half = x / 2


@pytest.mark.filterwarnings("error::gnnsafe.errors.ModelWarning")  # of features in another order than edges
@pytest.mark.parametrize("kind", [lambda data: InSlots(**data.to_dict()), Computed], ids=["slots", "computed"])
def test_graphs_of_ones_own_kind(chain, kind):
    """Features were not found in `__slots__`: parts had those of all nodes, and an IndexError was all that was said."""
    model, graph = Theirs(), kind(chain)
    detector, expected = detector_of(model, graph, "gnnsafe"), detector_of(model, chain, "gnnsafe").score(chain)
    torch.testing.assert_close(detector.score(graph, batch_size=9, hops=2), expected)
    nodes, scores = detector.score_new(graph, [5], hops=2)
    torch.testing.assert_close(scores, expected[nodes])
    histories = [train(GCN(8, 4, 3), data, objective=CrossEntropy(), epochs=3) for data in (graph, chain)]
    assert histories[0] == histories[1]


def test_what_cannot_be_scored_in_batches_is_said_in_a_line(chain):
    ours, theirs = Detector(GCN(8, 16, 3), "odin").fit(chain), detector_of(Theirs(), chain)
    for call, message in (
        (
            lambda: ours.score(chain, batch_size=9),
            r"'batch_size' must be left out for a method that asks for gradients",
        ),
        (lambda: theirs.score(chain, batch_size=9), r"'hops' must be given for Theirs"),
        (lambda: theirs.fit(chain, batch_size=9), r"'hops' must be given for Theirs"),
        (lambda: theirs.calibrate(chain, hops=2), r"'hops' must be left out where there is no batch_size \(got 2\)"),
        (lambda: theirs.score(chain, hops=2), r"'hops' must be left out where there is no batch_size \(got 2\)"),
        (lambda: theirs.score(chain, batch_size=0, hops=2), r"'batch_size' must be"),
        (lambda: theirs.score(chain, batch_size=2.5, hops=2), r"'batch_size' must be"),
    ):
        with pytest.raises(InputError, match=message) as error:
            call()
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("reused", [True, False])
def test_incoming_edges_are_found_with_and_without_sorting(directed, reused):
    edges = Edges(directed.edge_index, 5, reused=reused)
    for node in range(5):
        expected = (directed.edge_index[1] == node).nonzero().flatten()
        assert torch.equal(edges.into(torch.arange(5) == node), expected)
    assert edges.into(torch.zeros(5, dtype=torch.bool)).tolist() == []
    assert sorted(edges.into(torch.ones(5, dtype=torch.bool)).tolist()) == list(range(7))
    path = Edges(torch.tensor([[0, 1, 2], [1, 2, 3]]), 4, reused=reused)
    for hops, expected in enumerate(([3], [2, 3], [1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3])):
        assert receptive_field(path, torch.arange(4) == 3, hops).nonzero().flatten().tolist() == expected


def test_nodes_that_point_outside_their_part_are_looked_at_wherever_they_come():
    """The first 200 nodes hear nearly all, only later ones lack an edge in their part: scores were silently wrong."""
    draw, node = torch.Generator().manual_seed(0), torch.arange(400)
    edges = torch.stack([torch.randint(0, 398, (1600,), generator=draw), torch.randint(0, 40, (1600,), generator=draw)])
    data = Data(x=torch.randn(400, 8, generator=draw), edge_index=edges, y=node % 3, train_mask=node < 300)
    detector = Detector(OfOutDegrees(hops=0), "energy").fit(data)
    with pytest.raises(InputError, match="on another part of the graph"):
        detector.score(data, batch_size=200, hops=1)


def test_a_model_that_pads_to_the_largest_in_degree_is_refused(chain):
    """PyG's LSTM aggregation reads the last step of all: logits are others where nobody hears as many."""
    data = chain.clone()
    data.edge_index = chain.edge_index[:, torch.argsort(chain.edge_index[1], stable=True)]
    torch.manual_seed(0)
    detector = Detector(Theirs(lambda *sizes: SAGEConv(*sizes, aggr="lstm")), "energy").fit(data)
    for call in (lambda: detector.score(data, batch_size=17, hops=2), lambda: detector.score_new(data, [100], hops=2)):
        with pytest.raises(InputError, match="on another part of the graph"):
            call()


class OfKinds(nn.Module):
    """The first feature is a number of something; larger ones there are none of."""

    def __init__(self) -> None:
        super().__init__()
        self.kind, self.conv = nn.Embedding(5, 8), GCNConv(15, 3)

    def forward(self, x, edge_index):
        return self.conv(torch.cat([self.kind(x[:, 0].long()), x[:, 1:]], dim=1), edge_index)


def test_features_that_no_model_takes_larger(chain):
    data = chain.clone()
    data.x[:, 0] = torch.arange(200) % 5
    detector = Detector(OfKinds(), "energy").fit(data)
    torch.testing.assert_close(detector.score(data, batch_size=20, hops=1), detector.score(data))
    half = chain.clone()
    half.x, half.edge_index = 7000 * chain.x.sign().half(), torch.stack([torch.arange(199), torch.arange(1, 200)])
    model = Theirs(SAGEConv).half()
    for parameter in model.parameters():
        parameter.data *= 1e-3
    detector = Detector(model, "energy").fit(half)
    nodes, scores = detector.score_new(half, [100], hops=2)
    torch.testing.assert_close(scores, detector.score(half)[nodes], rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("method", ["gnnsafe", "vim"])
def test_nodes_that_are_all_alike_are_decided_alike_in_every_batch(method):
    """Isolated ones without features: the last bit of their scores, which is another in another batch, decided."""
    torch.manual_seed(0)
    node, x = torch.arange(300), torch.randn(300, 8)
    x[100:] = 0
    masks = {"train_mask": node < 80, "val_mask": (node >= 80) & (node < 200)}
    data = Data(x=x, edge_index=torch.randint(0, 100, (2, 300)), y=node % 3, **masks)
    model = Theirs(SAGEConv)
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    detector = detector_of(model, data, method, embedding="hidden")
    for batch_size in (7, 33, 96):
        alike = detector.p_values(data, batch_size=batch_size, hops=2)[100:]
        assert torch.equal(alike, detector.p_values(data)[100:])
        assert len(alike.unique()) == 1


def test_log_probabilities_in_half_precision_are_refused_in_batches_too():
    class Normalised(Theirs):
        def forward(self, x, edge_index):
            return super().forward(x, edge_index).log_softmax(dim=1)

    torch.manual_seed(0)
    node = torch.arange(201)  # the last, isolated, is a batch of its own
    data = Data(x=torch.randn(201, 8).bfloat16(), edge_index=torch.randint(0, 200, (2, 600)), y=node % 3)
    detector = Detector(Normalised().bfloat16(), "energy").fit(Data(**data.to_dict(), train_mask=node < 90))
    for options in ({}, {"batch_size": 50, "hops": 2}):
        with pytest.raises(InputError, match="log-probabilities"):
            detector.score(data, **options)
