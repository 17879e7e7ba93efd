"""Papers that cite papers and are written by authors: the papers are scored."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import SAGEConv, to_hetero

import gnnsafe
from gnnsafe import Detector, energy, propagate
from gnnsafe.hetero import node_type_graph
from gnnsafe.methods import METHODS
from gnnsafe.monitoring import observe

CITES, LIKE, WRITES = ("paper", "cites", "paper"), ("paper", "like", "paper"), ("author", "writes", "paper")


class Sage(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = SAGEConv((-1, -1), 8), SAGEConv((-1, -1), 3)

    def forward(self, x, edge_index):
        return self.last(self.first(x, edge_index).relu(), edge_index)


@pytest.fixture
def library() -> HeteroData:
    generator = torch.Generator().manual_seed(0)

    def edges(a: int, b: int, count: int) -> torch.Tensor:
        return torch.stack([torch.randint(size, (count,), generator=generator) for size in (a, b)])

    data = HeteroData()
    data["paper"].x = torch.rand(60, 5, generator=generator)
    data["author"].x = torch.rand(20, 4, generator=generator)
    data["paper"].y = torch.arange(60) % 3
    data["paper"].train_mask, data["paper"].val_mask = torch.arange(60) < 20, torch.arange(60) >= 40
    data[CITES].edge_index, data[LIKE].edge_index = edges(60, 60, 100), edges(60, 60, 50)
    data[WRITES].edge_index, data[WRITES].edge_attr = edges(20, 60, 80), torch.rand(80, 2, generator=generator)
    data["paper", "by", "author"].edge_index = data[WRITES].edge_index.flip(0)
    return data


def forward(model, data):
    return model(data.x_dict, data.edge_index_dict)["paper"]


@pytest.fixture
def model(library) -> nn.Module:
    torch.manual_seed(0)
    model = to_hetero(Sage(), library.metadata())
    forward(model, library)  # its layers learn their sizes
    return model


@pytest.mark.parametrize("edge_types", [None, [CITES], [LIKE, CITES], []])
def test_propagated_over_the_chosen_edges(library, model, edge_types):
    detector = Detector(model, "gnnsafe", forward=forward, node_type="paper", edge_types=edge_types).fit(library)
    kinds = [CITES, LIKE] if edge_types is None else edge_types
    together = torch.cat([torch.empty(2, 0).long(), *(library[kind].edge_index for kind in kinds)], dim=1)
    expected = propagate(energy(forward(model.eval(), library).detach()), together)
    torch.testing.assert_close(detector.score(library), expected)


def test_edges_of_a_type_that_was_not_fitted_are_not_read(library, model, tmp_path):
    """Of users who know each other since yesterday 99 % were flagged, by a model that does not read it."""

    def known(model, data):
        kinds = [kind for kind in data.edge_types if kind[1] != "quotes"]
        return model(data.x_dict, {kind: data[kind].edge_index for kind in kinds})["paper"]

    detector = Detector(model, "gnnsafe", forward=known, node_type="paper").fit(library)
    before, new = detector.score(library), library.clone()
    new["paper", "quotes", "paper"].edge_index = torch.randint(0, 60, (2, 200))
    assert torch.equal(detector.score(new), before)
    assert detector.edge_types == (CITES, LIKE)
    detector.save(tmp_path)
    again, fewer = gnnsafe.load(tmp_path, model, forward=known), library.clone()
    assert torch.equal(again.score(new), before)
    del fewer[LIKE]
    for one in (detector, again):
        with pytest.raises(ValueError, match="a graph without any such edge holds an empty edge_index of that type"):
            one.score(fewer)
    assert detector.fit(new).edge_types == (CITES, LIKE, ("paper", "quotes", "paper"))
    assert not torch.equal(detector.score(new), before)


@pytest.mark.parametrize("name", [name for name in METHODS if name not in ("gpn", "gkde")])
def test_every_method(library, model, name, tmp_path):
    embedding = next(
        name for name, _ in model.named_modules() if name.startswith("first") and name.endswith("cites__paper")
    )
    detector = Detector(model, name, forward=forward, node_type="paper", embedding=embedding).fit(library)
    scores = detector.score(library)
    assert scores.shape == (60,)
    assert torch.isfinite(scores).all()
    detector.save(tmp_path)
    again = gnnsafe.load(tmp_path, model, forward=forward)
    assert torch.equal(again.score(library), scores)


def test_decisions_and_reasons(library, model):
    detector = Detector(model, forward=forward, node_type="paper", edge_types=[CITES]).fit(library).calibrate(library)
    assert len(detector.calibration_.scores) == 20
    assert detector.predict(library, false_alarm=0.2).shape == (60,)
    why = detector.explain(library, node=4)
    assert sum(share.share for share in why.shares) == pytest.approx(why.score, rel=1e-6)


def test_rates_are_checked_and_graphs_monitored(library, model):
    detector = Detector(model, "gnnsafe", forward=forward, node_type="paper").fit(library).calibrate(library)
    others = (torch.arange(60) >= 20) & (torch.arange(60) < 40)
    p = detector.p_values(library)[others]
    for check in detector.check_calibration(library, others).levels:
        assert check.flagged == int((p <= check.level).sum())
    observed = observe(detector, library)
    assert observed.candidates.tolist() == others.nonzero().flatten().tolist()
    assert torch.equal(observed.decisions.p_values[others], p)


def test_the_graph_is_left_as_it_was(library, model):
    graph = node_type_graph(library, "paper", None)
    alone = gnnsafe.Outputs.of(model, graph, forward=lambda model, graph: forward(model, graph.whole)).without_edges
    assert [alone.graph.whole[kind].edge_index.shape[1] for kind in library.edge_types] == [0, 0, 0, 0]
    assert alone.graph.whole[WRITES].edge_attr.shape == (0, 2)
    assert library[CITES].edge_index.shape[1] == 100
    assert library[WRITES].edge_attr.shape == (80, 2)
    assert not library["paper"].x.requires_grad
    expected = library.clone()
    for kind in expected.edge_types:
        expected[kind].edge_index = expected[kind].edge_index[:, :0]
    torch.testing.assert_close(alone.logits, forward(model, expected).detach())


@pytest.mark.parametrize(("options", "message"), [
    ({"node_type": "papers"}, "'node_type' must be one of paper, author .*did you mean 'paper'"),
    ({"node_type": "paper", "edge_types": [WRITES]}, "'edge_types' must join 'paper' with itself"),
    ({}, "'node_type' must be given for a HeteroData"),
])  # fmt: skip
def test_refused(library, model, options, message):
    with pytest.raises(ValueError, match=message):
        Detector(model, forward=forward, **options).fit(library)


def test_refused_at_once(library, model, blocks):
    with pytest.raises(ValueError, match="'forward' must be given with node_type"):
        Detector(model, node_type="paper")
    with pytest.raises(ValueError, match="'edge_types' must be given with node_type"):
        Detector(model, forward=forward, edge_types=[CITES])
    detector = Detector(model, forward=forward, node_type="paper").fit(library)
    with pytest.raises(ValueError, match=r"'data' must be a HeteroData where node_type is given \(got Data\)"):
        detector.score(blocks)
    with pytest.raises(ValueError, match="'data' must be one graph with one type of nodes"):
        detector.score_new(library, [0])


def test_copied_and_pickled(library, model):
    detector = Detector(model, forward=forward, node_type="paper").fit(library)
    for copied in (copy.deepcopy(detector), pickle.loads(pickle.dumps(detector))):
        assert torch.equal(copied.score(library), detector.score(library))


@pytest.mark.filterwarnings("ignore::gnnsafe.errors.CalibrationWarning")
def test_nodes_that_are_far_off_are_heard_and_nothing_else_is_said(library, model):
    detector = Detector(model, "two-scale", forward=forward, node_type="paper").fit(library)
    odd = copy.deepcopy(library)
    odd["paper"].x[::3] += 50.0
    detector.score(odd)
    assert not detector.method.levels(detector.prepared(odd)).any()
    assert not bool(detector.method.silencing_)
    assert "judged without them" not in str(detector.explain(odd, node=1))
