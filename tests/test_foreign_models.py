"""What a detector promises about models that are none of ours: PyG's kinds, each with a habit that can mislead."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from threading import Thread

import pytest
import torch
from tests.conftest import block_graph
from torch import nn
from torch.nn import functional as F  # noqa: N812 - torch's own idiom
from torch_geometric.data import Data
from torch_geometric.nn import APPNP, GAT, GCN, GIN, GCNConv, GraphSAGE, PairNorm, SGConv

import gnnsafe
from gnnsafe import Detector, energy, propagate
from gnnsafe.errors import ModelWarning
from gnnsafe.outputs import Classifier

HOPS = 2


class TwoConvolutions(nn.Module):
    def __init__(self, *, cached: bool = False) -> None:
        super().__init__()
        self.first, self.last = GCNConv(8, 16, cached=cached), GCNConv(16, 3, cached=cached)

    def forward(self, x, edge_index):
        return self.last(self.first(x, edge_index).relu(), edge_index)


class Simplified(nn.Module):
    def __init__(self, *, cached: bool = False) -> None:
        super().__init__()
        self.conv = SGConv(8, 3, K=HOPS, cached=cached)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)


class Personalised(nn.Module):
    def __init__(self, *, cached: bool = False) -> None:
        super().__init__()
        self.linear, self.spread = nn.Linear(8, 3), APPNP(K=HOPS, alpha=0.1, cached=cached)

    def forward(self, x, edge_index):
        return self.spread(self.linear(x), edge_index)


class Tuple(TwoConvolutions):
    def forward(self, x, edge_index):
        return super().forward(x, edge_index), x


class WritesInPlace(TwoConvolutions):
    def forward(self, x, edge_index):
        return super().forward(x.sub_(x.mean(dim=0)), edge_index)


class WritesUnseen(TwoConvolutions):
    def forward(self, x, edge_index):
        x.numpy()[:] += 1  # torch does not see it
        return super().forward(x, edge_index)


class AnswersInOnePlace(TwoConvolutions):
    """As a captured CUDA graph does."""

    def forward(self, x, edge_index):
        if not hasattr(self, "answer"):
            self.answer = torch.empty(10_000, 3)
        self.answer[: len(x)] = super().forward(x, edge_index)
        return self.answer[: len(x)]


class DropsByHand(TwoConvolutions):
    def forward(self, x, edge_index):
        return super().forward(F.dropout(x, 0.5, training=True), edge_index)


class KeepsItsFirstGraph(TwoConvolutions):
    """It caches under a name of its own, where nobody can clear it."""

    kept = None

    def forward(self, x, edge_index):
        self.kept = edge_index if self.kept is None else self.kept
        return super().forward(x, self.kept)


class KeepsABuffer(TwoConvolutions):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", None)

    def forward(self, x, edge_index):
        self.kept = edge_index if self.kept is None else self.kept
        return super().forward(x, self.kept)


class KeepsOneLayersMatrix(TwoConvolutions):
    kept = None

    def forward(self, x, edge_index):
        if self.kept is None:
            self.kept = torch.zeros(len(x), len(x)).index_put_(tuple(edge_index.flip(0)), torch.ones(()))
        return super().forward(self.kept @ x, edge_index)


class KeepsNorms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.kept = nn.Linear(8, 3), None

    def forward(self, x, edge_index):
        source, target = edge_index
        if self.kept is None:
            self.kept = 1 / torch.bincount(target, minlength=len(x))[target][:, None]
        hidden = self.linear(x)
        return hidden.index_add(0, target, self.kept * hidden[source])


class KeepsElsewhere(TwoConvolutions):
    def __init__(self) -> None:
        super().__init__()
        kept: dict[str, torch.Tensor] = {}
        self.first_seen = lambda edge_index: kept.setdefault("edges", edge_index)

    def forward(self, x, edge_index):
        return self.last(self.first(x, self.first_seen(edge_index)).relu(), edge_index)


class KeepsByShape(TwoConvolutions):
    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[int, ...], torch.Tensor] = {}

    def forward(self, x, edge_index):
        return super().forward(x, self.kept.setdefault(tuple(edge_index.shape), edge_index))


class EmbedsNumbers(TwoConvolutions):
    def __init__(self) -> None:
        super().__init__()
        self.own = nn.Embedding(120, 8)

    def forward(self, x, edge_index):
        return super().forward(x + self.own.weight, edge_index)


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 3)

    def forward(self, x, edge_index):
        return self.linear(x)


def first_of(model, data):
    return model(data.x, data.edge_index)[0]


SOUND: dict[str, Callable[[], nn.Module]] = {
    "gcn": TwoConvolutions,
    "gcn, cached": lambda: TwoConvolutions(cached=True),
    "sgc, cached": lambda: Simplified(cached=True),
    "appnp, cached": lambda: Personalised(cached=True),
    "gat": lambda: GAT(8, 16, HOPS, 3),
    "sage": lambda: GraphSAGE(8, 16, HOPS, 3, norm="BatchNorm"),
    "gin": lambda: GIN(8, 16, HOPS, 3),
    "layer norm by graph": lambda: GCN(8, 16, HOPS, 3, norm="LayerNorm"),
    "pair norm": lambda: GCN(8, 16, HOPS, 3, norm="PairNorm"),
    "graph norm": lambda: GCN(8, 16, HOPS, 3, norm="GraphNorm"),
    "layer norm by node": lambda: GCN(8, 16, HOPS, 3, norm="LayerNorm", norm_kwargs={"mode": "node"}),
    "edge weights": lambda: GCN(8, 16, HOPS, 3, dropout=0.5),
    "tuple": Tuple,
}
UNBOUNDED = ("layer norm by graph", "pair norm", "graph norm")


def model_of(name: str) -> nn.Module:
    torch.manual_seed(0)
    return SOUND[name]().train()


def graph_for(name: str) -> Data:
    data = block_graph()
    if name == "edge weights":
        data.edge_weight = torch.rand(data.num_edges, generator=torch.Generator().manual_seed(1))
    return data


def changed_graph(data: Data) -> Data:
    """Every third edge is gone; some features are other ones."""
    new = data.clone()
    new.edge_index = data.edge_index[:, torch.arange(data.num_edges) % 3 > 0]
    if "edge_weight" in data:
        new.edge_weight = data.edge_weight[torch.arange(data.num_edges) % 3 > 0]
    new.x[::7] += 1
    return new


def fitted(name: str, model: nn.Module, data: Data, method: str = "gnnsafe") -> Detector:
    expected = pytest.warns(ModelWarning, match="takes edge_weight") if name == "edge weights" else nullcontext()
    with expected:
        return Detector(model, method, forward=first_of if name == "tuple" else None).fit(data)


def answered(model: nn.Module, data: Data) -> torch.Tensor:
    """The logits, as its owner would ask for them: by a copy that has never seen another graph."""
    weights = {"edge_weight": data.edge_weight} if "edge_weight" in data else {}
    with torch.no_grad():
        given = model.eval()(data.x, data.edge_index, **weights)
    return given[0] if isinstance(given, tuple) else given


def state(model: nn.Module) -> list[object]:
    kept = [value for module in model.modules() for name, value in vars(module).items() if name.startswith("_cached")]
    return [[module.training for module in model.modules()], list(map(id, kept)), gnnsafe.hashing.weights_digest(model)]


everyone = pytest.mark.parametrize("name", SOUND)


@everyone
def test_the_model_and_the_graph_are_left_as_they_were_found(name):
    data, model = graph_for(name), model_of(name)
    answered(copy.deepcopy(model), data)
    model(data.x, data.edge_index)  # in training mode: caches are filled, statistics moved
    before, held = state(model), {key: value.clone() for key, value in data.to_dict().items()}
    detector = fitted(name, model, data).calibrate(data)
    detector.score(changed_graph(data))
    detector.predict(data, false_alarm=0.1)
    assert state(model) == before
    assert all(torch.equal(value, held[key]) for key, value in data.to_dict().items())


@everyone
def test_a_changed_graph_is_scored_as_by_a_model_that_saw_no_other(name):
    data, model = graph_for(name), model_of(name)
    twin = copy.deepcopy(model)
    model(data.x, data.edge_index)
    twin.load_state_dict(model.state_dict())
    detector, new = fitted(name, model, data), changed_graph(graph_for(name))
    torch.testing.assert_close(detector.score(new), propagate(energy(answered(twin, new)), new.edge_index))


@everyone
@pytest.mark.parametrize("touched", [True, False])
def test_new_scores_are_those_of_the_whole_graph_or_refused(name, touched):
    data, model, node = graph_for(name), model_of(name), torch.arange(120)
    ring = torch.stack([node, (node + 1) % 120])
    data.edge_index = torch.cat([ring, ring.flip(0)], dim=1)
    if "edge_weight" in data:
        data.edge_weight = data.edge_weight[:240]
    detector = fitted(name, model.eval(), data)
    if name in UNBOUNDED:
        with pytest.raises(ValueError, match=r"'hops' must be as far as .*GraphNorm.*use score\(data\)"):
            detector.score_new(data, [5, 17], hops=HOPS, touched=touched)
        with pytest.raises(ValueError, match=r"'hops' must be as far as .*GraphNorm.*use score\(data\)"):
            detector.score(data, batch_size=20, hops=HOPS)
        return
    torch.testing.assert_close(detector.score(data, batch_size=50, hops=HOPS), detector.score(data))
    nodes, scores = detector.score_new(data, [5, 17], hops=HOPS, touched=touched)
    torch.testing.assert_close(scores, detector.score(data)[nodes])
    for hops in range(HOPS):
        with pytest.raises(ValueError, match=f"'hops' must be as far as .*got {hops}"):
            detector.score_new(data, [5, 17], hops=hops, touched=touched)


class LargestNorm(TwoConvolutions):
    def forward(self, x, edge_index):
        hidden = self.first(x, edge_index)
        return self.last(hidden / hidden.norm(dim=1).max(), edge_index)


class Centred(TwoConvolutions):
    def forward(self, x, edge_index):
        hidden = self.first(x, edge_index)
        return self.last((hidden - hidden.mean(dim=0)).relu(), edge_index)


class Counted(TwoConvolutions):
    def forward(self, x, edge_index):
        return super().forward(x, edge_index) * (len(x) / 120)


def centred(_model, _inputs, logits):
    return logits - logits.mean(dim=0)


def hooked() -> nn.Module:
    model = gnnsafe.models.GCN(8, 16, 3)
    model.register_forward_hook(centred)
    return model


def hooked_within() -> nn.Module:
    model = gnnsafe.models.GCN(8, 16, 3)
    model.penultimate.register_forward_hook(centred)
    return model


def with_a_part_replaced() -> nn.Module:
    model = gnnsafe.models.GCN(8, 16, 3)
    model.penultimate = nn.Sequential(PairNorm())
    return model


@pytest.mark.parametrize("model", [LargestNorm, Centred, Counted, hooked, hooked_within, with_a_part_replaced])
def test_new_scores_of_a_model_that_reads_all_nodes_at_once_are_refused(model):
    """For every node: it is no matter of luck whether the largest is among those that are looked at."""
    data, node = block_graph(), torch.arange(120)
    ring = torch.stack([node, (node + 1) % 120])
    data.edge_index = torch.cat([ring, ring.flip(0)], dim=1)
    torch.manual_seed(0)
    detector = Detector(model(), "energy").fit(data)
    hops = HOPS if isinstance(detector.classifier.model, TwoConvolutions) else None
    for one in range(0, 120, 7):
        with pytest.raises(ValueError, match=r"'hops' must be as far as .*use score\(data\)"):
            detector.score_new(data, [one], hops=hops, touched=False)


@pytest.mark.parametrize("name", gnnsafe.models.MODELS)
def test_models_of_ours_are_known_as_they_are_made(name):
    model = gnnsafe.models.MODELS[name](8, 16, 3)
    assert Classifier(model).as_made
    model.register_forward_hook(centred)
    assert not Classifier(model).as_made


@everyone
def test_edge_disagreement_is_that_of_the_edges(name):
    data, model = graph_for(name), model_of(name)
    twin, alone = copy.deepcopy(model), data.clone()
    detector = fitted(name, model, data, "edge-disagreement")
    alone.edge_index = data.edge_index[:, :0]
    if "edge_weight" in data:
        alone.edge_weight = data.edge_weight[:0]
    log_alone, log_together = (answered(copy.deepcopy(twin), graph).log_softmax(dim=1) for graph in (alone, data))
    expected = (log_alone.exp() * (log_alone - log_together)).sum(dim=1)
    torch.testing.assert_close(detector.score(data), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("model", [WritesInPlace, WritesUnseen])
def test_a_forward_that_writes_into_the_graph_is_refused_and_undone(model):
    data = block_graph()
    before = data.x.clone()
    with pytest.raises(ValueError, match=r"'model' must leave data.x as it is .*x = x.clone\(\)"):
        Detector(model()).fit(data)
    assert torch.equal(data.x, before)


@pytest.mark.filterwarnings("error")  # none of which would be true
def test_a_forward_that_writes_into_logits_that_it_gave_is_refused():
    """`calibrate` and other threads read the first while the next are written: scores were silently wrong."""
    with pytest.raises(ValueError, match=r"'model' must leave the logits that it gave .*return logits.clone\(\)"):
        Detector(AnswersInOnePlace()).fit(block_graph())


def test_one_that_was_loaded_is_still_watched(tmp_path):
    data, model = block_graph(), TwoConvolutions()
    Detector(model).fit(data).save(tmp_path)
    model.forward = lambda x, edge_index: TwoConvolutions.forward(model, x.mul_(2), edge_index)
    with pytest.raises(ValueError, match=r"'model' must leave data.x as it is"):
        gnnsafe.load(tmp_path, model).score(data)


def test_what_a_forward_sets_stays_there():
    data = block_graph()
    before = data.x

    def forward(model, data):
        data.x = data.x * 2
        return model(data.x, data.edge_index)

    Detector(TwoConvolutions(), forward=forward).fit(data).score(data)
    assert data.x is before


@pytest.mark.parametrize(("model", "message"), [
    (DropsByHand, r"DropsByHand answers differently at each call, its logits by up to \d"),
    *((model, rf"{model.__name__}'s logits depend on how nodes are numbered, by up to \d.*: it keeps part of a graph")
      for model in (KeepsItsFirstGraph, KeepsABuffer, KeepsOneLayersMatrix, KeepsNorms, KeepsElsewhere, KeepsByShape,
                    EmbedsNumbers)),
])  # fmt: skip
def test_odd_habits_are_said_where_fit_is_called(model, message):
    with pytest.warns(ModelWarning, match=message) as warned:
        Detector(model(), "gnnsafe").fit(block_graph())
    assert len(warned) == 1
    assert warned[0].filename == __file__


HELD_BESIDE: dict[str, Callable[[Data], object]] = {
    "year": lambda data: torch.arange(120),
    "w": lambda data: torch.rand(data.num_edges),
    "names": lambda data: [f"node {number}" for number in range(120)],
    "array": lambda data: torch.arange(120).numpy(),
    "train_index": lambda data: torch.arange(120),
    "edge_label_index": lambda data: data.edge_index,
    "adj_t": lambda data: torch.eye(120).to_sparse_csr(),
    "relation": lambda data: torch.eye(120).to_sparse_coo(),
    "distances": lambda data: torch.rand(120, 120),
}


@pytest.mark.parametrize("model", [Perceptron, lambda: gnnsafe.models.MLP(8, 4, 3)])
def test_a_model_that_reads_no_edges_is_said_to_where_edges_are_the_score(model):
    with pytest.warns(ModelWarning, match=r"same logits without edges: EdgeDisagreement is 0") as warned:
        Detector(model(), "edge-disagreement").fit(block_graph())
    assert [one.filename for one in warned] == [__file__]


class TestWhatElseTheGraphHolds:
    """It may make the check for a kept graph harder; it never switches it off in silence."""

    class TakesW(TwoConvolutions):
        def forward(self, x, edge_index, w):
            return super().forward(x * w.mean(), edge_index)

    class TakesWAndKeeps(KeepsItsFirstGraph):
        def forward(self, x, edge_index, w):
            return super().forward(x * w.mean(), edge_index)

    @pytest.mark.filterwarnings("ignore:Sparse CSR tensor support", "ignore:Sparse invariant checks")
    @pytest.mark.parametrize("name", HELD_BESIDE)
    @pytest.mark.parametrize("forward", [None, lambda model, data: model(data.x, data.edge_index)])
    def test_a_kept_graph_is_noticed_beside_it(self, name, forward):
        data = block_graph()
        data[name] = HELD_BESIDE[name](data)
        Detector(TwoConvolutions(), "energy", forward=forward).fit(data)  # warnings are errors here
        with pytest.warns(ModelWarning, match=r"logits depend on how nodes are numbered.* caches nothing"):
            Detector(KeepsItsFirstGraph(), "energy", forward=forward).fit(data)

    def test_a_matrix_of_nodes_does_not_stand_in_the_way_of_taking_edges_away(self):
        data = block_graph()
        data.distances = torch.rand(120, 120)
        detector = Detector(
            TwoConvolutions(), "edge-disagreement", forward=lambda model, data: model(data.x, data.edge_index)
        )
        assert detector.fit(data).score(data).max() > 0

    @pytest.mark.parametrize("rows", ["num_nodes", "num_edges"])
    def test_rows_that_are_read_are_guessed_by_their_length(self, rows):
        data = block_graph()
        data.w = torch.rand(getattr(data, rows))
        with pytest.warns(ModelWarning, match="takes w, and what data holds of it is passed on") as warned:
            Detector(self.TakesW(), "energy").fit(data)
        assert len(warned) == 1
        with pytest.warns(ModelWarning) as warned:
            Detector(self.TakesWAndKeeps(), "energy").fit(data)
        assert "or call data.w node_… or edge_… by what its rows belong to" in str(warned[1].message)

    @pytest.mark.filterwarnings("ignore:Sparse CSR tensor support", "ignore:Sparse invariant checks")
    def test_what_cannot_be_renumbered_and_is_read_leaves_it_unchecked(self):
        data = block_graph()
        data.adj_t = torch.eye(120).to_sparse_csr()
        detector = Detector(Perceptron(), "energy", forward=lambda model, data: model(data.adj_t @ data.x, None))
        with pytest.warns(ModelWarning, match=r"could not be checked whether Perceptron keeps part of a graph.*adj_t"):
            detector.fit(data)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("model", [
    Perceptron, TwoConvolutions, lambda: GAT(8, 16, HOPS, 3), lambda: GIN(8, 16, HOPS, 3, norm="BatchNorm"),
    lambda: GraphSAGE(8, 16, HOPS, 3, aggr="lstm"), lambda: gnnsafe.models.MLP(8, 4, 3),
])  # fmt: skip
def test_nothing_is_said_of_sound_models(model, dtype):
    data = block_graph()
    if isinstance(model(), gnnsafe.models.MLP | GraphSAGE) and dtype in (torch.float16, torch.bfloat16):
        pytest.skip("ours want float32, and torch has no LSTM in half precision")
    data.x, data.edge_index = data.x.to(dtype), data.edge_index[:, data.edge_index[1].argsort(stable=True)]
    for seed in range(3):
        torch.manual_seed(seed)
        Detector(model().to(dtype), "gnnsafe").fit(data)  # warnings are errors here


def test_weighted_loops_that_are_given_twice_are_no_memory():
    """PyG's GCN takes the weight of the last."""
    data, loops = block_graph(), torch.arange(40).repeat(2, 2)
    data.edge_index = torch.cat([data.edge_index, loops], dim=1)
    data.edge_weight = torch.rand(data.num_edges, generator=torch.Generator().manual_seed(1))
    fitted("edge weights", model_of("edge weights"), data)


class TestWhatTheForwardTakes:
    class Relational(TwoConvolutions):
        def forward(self, x, edge_index, edge_type, *, size=None, y=None):
            assert size is None  # a method of PyG's Data, no attribute
            assert y is None
            return super().forward(x, edge_index[:, edge_type == 0])

    def test_what_is_required_is_passed_or_said(self):
        data = block_graph()
        detector = Detector(self.Relational())
        with pytest.raises(ValueError, match="'data' must hold edge_type, which Relational's forward takes"):
            detector.fit(data)
        data.edge_type = torch.zeros(3)
        with pytest.raises(ValueError, match=rf"'data.edge_type' must have a row for each of {data.num_edges} edges"):
            detector.fit(data)
        data.edge_type = torch.arange(data.num_edges) % 2
        with pytest.warns(ModelWarning, match="forward takes edge_type, and what data holds of it is passed on"):
            detector.fit(data)
        nodes, scores = detector.score_new(data, [3], hops=HOPS)
        torch.testing.assert_close(scores, detector.score(data)[nodes])

    class HandsOn(nn.Module):
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module = module

        def forward(self, *args, **kwargs):
            return self.module(*args, **kwargs)

    @pytest.mark.parametrize("wrapper", [HandsOn, nn.DataParallel, torch.optim.swa_utils.AveragedModel])
    def test_a_wrapper_takes_what_the_model_within_takes(self, wrapper):
        data, model = graph_for("edge weights"), model_of("edge weights")
        scores = fitted("edge weights", model, data).score(data)
        assert torch.equal(fitted("edge weights", wrapper(self.HandsOn(model)), data).score(data), scores)

    def test_a_wrapped_model_that_is_called_otherwise_is_said_to_be(self):
        class TakesTheGraph(TwoConvolutions):
            def forward(self, data):
                return super().forward(data.x, data.edge_index)

        with pytest.raises(ValueError, match=r"'model' must be called \(x, edge_index\) \(got forward\(data\)\)"):
            Detector(self.HandsOn(TakesTheGraph())).fit(block_graph())

    def test_what_is_taken_without_a_name_is_said_not_to_be_passed(self):
        class Anything(TwoConvolutions):
            def forward(self, x, edge_index, **kwargs):
                return super().forward(x, edge_index)

        class OtherName(TwoConvolutions):
            def forward(self, x, edge_index, weight=None):
                return super().forward(x, edge_index)

        data = graph_for("edge weights")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            traced = torch.jit.trace(Perceptron(), (data.x, data.edge_index))
        for model in (Anything(), OtherName(), traced):
            with pytest.warns(ModelWarning, match="names no edge_weight, and what data holds of it is not passed on"):
                Detector(model).fit(data)
            Detector(model).fit(block_graph())  # warnings are errors here

    def test_later_graphs_hold_the_same(self, tmp_path):
        data, model = graph_for("edge weights"), model_of("edge weights")
        fitted("edge weights", model, data).save(tmp_path)
        del data.edge_weight
        with pytest.raises(ValueError, match=r"what the training graph held: edge_weight \(got none\)"):
            gnnsafe.load(tmp_path, model).score(data)


class TestAttributesOfAPart:
    @staticmethod
    def weighted(model, data):
        return model(data.x, data.edge_index) * data.w.mean()

    def test_rows_of_nobody_knows_whom_are_refused_if_they_are_read(self):
        data = block_graph()
        for w in (torch.rand(120), torch.rand(data.num_edges)):
            data.w = w
            detector = Detector(TwoConvolutions(), "gnnsafe", forward=self.weighted).fit(data)
            with pytest.raises(ValueError, match=r"'data.w' must be called node_w or edge_w.*; delete what the model"):
                detector.score_new(data, [3], hops=HOPS)
            assert len(Detector(TwoConvolutions()).fit(data).score_new(data, [3], hops=HOPS).nodes)

    def test_a_global_vector_goes_along_whole(self):
        data = block_graph()
        data.w = torch.rand(7)
        detector = Detector(TwoConvolutions(), forward=self.weighted).fit(data)
        nodes, scores = detector.score_new(data, [3], hops=HOPS)
        torch.testing.assert_close(scores, detector.score(data)[nodes])

    @pytest.mark.parametrize("columns", [1, 8])
    def test_sparse_features_of_one_column_and_parts_of_one_node(self, columns):
        data = block_graph()
        data.x = data.x[:, :columns].contiguous().to_sparse_csr()
        data.edge_index = data.edge_index[:, (data.edge_index != 0).all(dim=0)]  # node 0 is alone
        torch.manual_seed(0)
        detector = Detector(gnnsafe.models.GCN(columns, 4, 3), "gnnsafe").fit(data)
        for nodes, hops in (([0], None), ([1, 2], None), ([0], HOPS), ([1, 2], HOPS)):  # with hops it is looked at
            touched, scores = detector.score_new(data, nodes, hops=hops, touched=hops is None)
            torch.testing.assert_close(scores, detector.score(data)[touched])


class TestThreads:
    """Many threads and one model, in training mode: bit for bit what one thread gets."""

    METHODS = ("energy", "react", "knn", "odin", "edge-disagreement", "gnnsafe")

    class Wrapped(nn.Module):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.within = model

        def forward(self, x, edge_index):
            return self.within(x, edge_index)

    @pytest.mark.parametrize("ours", [True, False])
    @pytest.mark.parametrize("wrapped", [True, False])
    def test_as_one_after_the_other(self, ours, wrapped):
        """Wrapped, each detector has a model of its own, and all of them share what is within."""
        data = block_graph()
        torch.manual_seed(0)
        model = gnnsafe.models.GCN(8, 16, 3, dropout=0.5) if ours else GCN(8, 16, 2, 3, norm="BatchNorm", dropout=0.5)
        model.train()(data.x, data.edge_index)
        before = state(model)
        place = None if ours else f"{'within.' * wrapped}convs.0"
        models = [self.Wrapped(model) if wrapped else model for _ in self.METHODS]
        for each in models:
            each.train()
        detectors = [
            Detector(each, name, embedding=place).fit(data) for each, name in zip(models, self.METHODS, strict=True)
        ]
        graphs = [data, changed_graph(data)]
        alone = [[detector.score(graph) for graph in graphs] for detector in detectors]
        wrong: list[object] = []

        def work(start: int) -> None:
            try:
                for turn in range(2 * len(detectors)):
                    which = (start + turn) % len(detectors)
                    for graph, expected in zip(graphs, alone[which], strict=True):
                        if not torch.equal(detectors[which].score(graph.clone()), expected):
                            wrong.append(self.METHODS[which])
            except Exception as error:
                wrong.append(error)

        threads = [Thread(target=work, args=(start,)) for start in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        assert state(model) == before


class TestWeights:
    def test_other_weights_are_refused_until_it_is_fitted_again(self):
        data, model = block_graph(), TwoConvolutions()
        detector = Detector(model).fit(data).calibrate(data)
        with torch.no_grad():
            model.last.bias += 1
        for use in (
            detector.score,
            detector.p_values,
            detector.calibrate,
            lambda data: detector.explain(data, node=0),
            lambda data: detector.score_new(data, [0], hops=2),
            lambda data: detector.save("never"),
        ):
            with pytest.raises(ValueError, match=r"'model' must have the weights .*fit and calibrate again"):
                use(data)
        assert detector.fit(data).calibrate(data).p_values(data).shape == (120,)

    def test_a_compiled_model_is_the_model_within(self, tmp_path):
        data, model = block_graph(), TwoConvolutions()
        detector = Detector(torch.compile(model, backend="eager"), "knn", embedding="first").fit(data)
        scores = Detector(model, "knn", embedding="first").fit(data).score(data)
        assert torch.equal(detector.score(data), scores)
        detector.save(tmp_path)
        for given in (model, torch.compile(model, backend="eager")):
            assert torch.equal(gnnsafe.load(tmp_path, given).score(data), scores)
        ours = gnnsafe.models.GCN(8, 4, 3)
        assert Detector(torch.compile(ours, backend="eager")).fit(data).score_new(data, [0]).scores.numel()


@pytest.mark.parametrize("ours", [True, False])
@pytest.mark.parametrize("method", ["gnnsafe", "knn", "mahalanobis", "vim", "agreement"])
def test_autocast_around_a_score_has_no_say(ours, method):
    data = block_graph()
    torch.manual_seed(0)
    model, embedding = (gnnsafe.models.GCN(8, 16, 3), None) if ours else (TwoConvolutions(), "first")
    detector = Detector(model, method, embedding=embedding)
    scores = detector.fit(data).score(data)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(detector.score(data), scores)
        assert torch.equal(detector.fit(data).score(data), scores)


class TestGraphsOfOtherKinds:
    class Tagged(torch.Tensor):
        """A tensor of somebody's own class, as some libraries have."""

    def test_tensors_of_a_subclass(self):
        data, model = block_graph(), TwoConvolutions()
        detector = Detector(model).fit(data)
        tagged = data.clone()
        tagged.x, tagged.edge_index = data.x.as_subclass(self.Tagged), data.edge_index.as_subclass(self.Tagged)
        scores = detector.score(tagged)
        assert type(scores) is torch.Tensor
        assert torch.equal(scores, detector.score(data))
        assert torch.equal(Detector(model).fit(tagged).score(data), detector.score(data))

    @pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
    @pytest.mark.parametrize("layout", ["csr", "coo", "csc"])
    def test_a_matrix_of_the_edges_alone(self, layout):
        data, model = block_graph(), TwoConvolutions()
        data.edge_index = data.edge_index[:, ::2]  # directed
        scores = Detector(model).fit(data).score(data)
        source, target = data.edge_index
        matrix = torch.sparse_coo_tensor(
            torch.stack([target, source]), torch.ones(len(source)), (120, 120), check_invariants=True
        )
        data.adj_t = {"csr": matrix.to_sparse_csr, "csc": matrix.to_sparse_csc, "coo": matrix.coalesce}[layout]()
        del data.edge_index
        detector = Detector(model, "edge-disagreement").fit(data)
        assert torch.isfinite(detector.score(data)).all()
        torch.testing.assert_close(Detector(model).fit(data).score(data), scores)

    def test_a_matrix_with_weights(self):
        data = graph_for("edge weights")
        model = model_of("edge weights")
        scores = fitted("edge weights", model, data).score(data)
        source, target = data.edge_index
        data.adj_t = torch.sparse_coo_tensor(
            torch.stack([target, source]), data.edge_weight, (120, 120), check_invariants=True
        ).coalesce()
        del data.edge_index, data.edge_weight
        torch.testing.assert_close(fitted("edge weights", model, data).score(data), scores)
        with pytest.raises(ValueError, match=r"'model' must take edge_weight, since data.adj_t has weights"):
            Detector(TwoConvolutions()).fit(data)
        data.adj_t = "a matrix"
        with pytest.raises(ValueError, match=r"'data.adj_t' must be a torch.Tensor \(got str\)"):
            Detector(TwoConvolutions()).fit(data)

    @pytest.mark.parametrize("shift", [-100_000, 100_000])
    @pytest.mark.parametrize("name", ["x", "adj_t"])
    def test_entries_outside_a_sparse_matrix(self, name, shift):
        data = block_graph()
        detector = Detector(gnnsafe.models.GCN(8, 4, 3), "gnnsafe").fit(data)
        sound = data.x.to_sparse_csr() if name == "x" else torch.eye(120).to_sparse_csr()
        parts = sound.crow_indices(), sound.col_indices() + shift, sound.values()
        setattr(data, name, torch.sparse_csr_tensor(*parts, size=sound.shape, check_invariants=False))
        if name == "adj_t":
            del data.edge_index
        with pytest.raises(ValueError, match=rf"'(data\.)?{name}' must have its entries inside .*got some outside"):
            detector.score(data)

    def test_a_model_of_torchscript(self):
        data, model = block_graph(), Perceptron()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            traced = torch.jit.trace(model, (data.x, data.edge_index))
            scores = Detector(traced, "energy").fit(data).score(data)
        assert torch.equal(scores, energy(model(data.x, None).detach()))

    def test_numbers_that_are_none(self):
        data = block_graph()
        data.x = data.x.to("meta")
        with pytest.raises(ValueError, match=r"'x' must hold numbers \(got a tensor on the meta device"):
            Detector(TwoConvolutions()).fit(data)
        with pytest.raises(ValueError, match=r"'model' must have weights \(got one on the meta device.*load its"):
            Detector(TwoConvolutions().to("meta")).fit(block_graph())

    def test_labels_in_a_column_and_masks_of_many_splits(self):
        data, model = block_graph(), TwoConvolutions()
        scores = Detector(model, "mahalanobis", embedding="first").fit(data).score(data)
        data.y = data.y[:, None]
        assert torch.equal(Detector(model, "mahalanobis", embedding="first").fit(data).score(data), scores)
        data.y = data.y.float()
        with pytest.raises(ValueError, match=r"'y' must be an int64 tensor of shape \[120\] \(got torch.float32"):
            Detector(model).fit(data)
        data = block_graph()
        data.train_mask = data.train_mask[:, None].repeat(1, 10)
        with pytest.raises(ValueError, match=r"must be one mask \(got 10 splits\); .* train_mask\[:, 0\]"):
            Detector(model).fit(data)

    def test_a_model_that_gives_several_things(self):
        class Named(TwoConvolutions):
            def forward(self, x, edge_index):
                return {"scores": super().forward(x, edge_index)}

        for model, key in ((Tuple(), r"\[0\]"), (Named(), r"\['scores'\]")):
            with pytest.raises(ValueError, match=rf"forward=lambda model, data: model\(data.x, data.edge_index\){key}"):
                Detector(model).fit(block_graph())

    @pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta", "ignore:Sparse invariant checks")
    def test_sparse_tensors_within_the_model_and_the_graph(self, tmp_path):
        """A matrix that the model keeps as a buffer, and one of the graph, not coalesced, that nobody reads."""
        graph = block_graph()
        nodes, edges = graph.num_nodes, graph.edge_index

        class KeepsAMatrix(TwoConvolutions):
            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("matrix", torch.eye(8).to_sparse_csr())

            def forward(self, x, edge_index):
                return super().forward((self.matrix @ x.T).T.contiguous(), edge_index)

        torch.manual_seed(0)
        model = KeepsAMatrix()
        twice = torch.cat([edges, edges], dim=1)
        graph.relation = torch.sparse_coo_tensor(twice, torch.ones(twice.shape[1]), (nodes, nodes))
        detector = Detector(model).fit(graph)
        scores = detector.score(graph)
        detector.save(tmp_path)
        assert torch.equal(gnnsafe.load(tmp_path, model).score(graph), scores)
        model.matrix.values()[0] = 2.0
        with pytest.raises(ValueError, match="'model' must have the weights that the detector was fitted with"):
            detector.score(graph)


def test_a_buffer_that_is_not_saved_is_noticed_and_a_cached_graph_is_not(blocks, tmp_path):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.conv = GCNConv(8, 3, cached=True)
            self.register_buffer("scale", torch.ones(8), persistent=False)
            self.register_buffer("_cached_sum", None, persistent=False)

        def forward(self, x, edge_index):
            return self.conv(x * self.scale, edge_index)

    model = Scaled()
    detector = Detector(model).fit(blocks)
    detector.save(tmp_path)
    model._cached_sum = torch.ones(3)
    model(blocks.x, blocks.edge_index)  # its layer keeps the graph
    scores = detector.score(blocks)
    assert torch.equal(gnnsafe.load(tmp_path, Scaled()).score(blocks), scores)
    model.scale.mul_(2)
    with pytest.raises(ValueError, match="'model' must have the weights that the detector was fitted with"):
        detector.score(blocks)
    with pytest.raises(ValueError, match="got one with other weights"):
        gnnsafe.load(tmp_path, model)


class Tempered(TwoConvolutions):
    """Its answers depend on a plain attribute, and it counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.temperature, self.calls, self._seen = 1.0, 0, None

    def forward(self, x, edge_index):
        self.calls, self._seen = self.calls + 1, len(x)
        return super().forward(x, edge_index) / self.temperature


@pytest.mark.parametrize("ask", [
    lambda detector, data: detector.score(data), lambda detector, data: detector.predict(data, false_alarm=0.1),
    lambda detector, data: detector.explain(data, node=0), lambda detector, data: detector.calibrate(data),
])  # fmt: skip
def test_an_attribute_that_changed_after_the_fit_is_named(ask, blocks):
    model = Tempered()
    detector = Detector(model, "gnnsafe").fit(blocks).calibrate(blocks)
    ask(detector, blocks)  # warnings are errors here: what changes at each call is no setting
    model.temperature = 0.1
    with pytest.warns(ModelWarning, match=r"model\.temperature is another than when the detector was fitted"):
        ask(detector, blocks)


@pytest.mark.parametrize("method", ["odin", "edge-disagreement", "gnnsafe"])
def test_features_and_edges_made_in_inference_mode(blocks, method):
    with torch.inference_mode():
        x, edges = blocks.x.clone(), blocks.edge_index.clone()
    strange = blocks.clone()
    strange.x, strange.edge_index = x, edges
    torch.manual_seed(0)
    for model in (GCN(8, 16, 2, 3), gnnsafe.models.GCN(8, 16, 3)):
        detector = Detector(model, method)
        right = detector.fit(blocks).score(blocks)
        assert torch.equal(detector.fit(strange).score(strange), right)
    assert strange.x is x
