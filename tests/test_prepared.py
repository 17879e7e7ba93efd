from __future__ import annotations

import copy
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.transforms import AddSelfLoops, NormalizeFeatures, ToUndirected

import gnnsafe
from gnnsafe import Detector, prepare, propagate
from gnnsafe.errors import InputError, ModelWarning
from gnnsafe.methods import METHODS
from gnnsafe.models import GCN, MODELS
from gnnsafe.scaling import FeatureScaling
from gnnsafe.sparse import Sparse


def test_it_has_what_the_data_has(blocks):
    graph = prepare(blocks)
    assert graph.x is blocks.x
    assert graph.edge_index is blocks.edge_index
    assert torch.equal(graph.y, blocks.y)
    assert not hasattr(graph, "no_such_thing")
    assert prepare(graph) is graph


def test_it_is_frozen(blocks):
    graph = prepare(blocks)
    with pytest.raises(InputError, match="'y' must be set on the data, before it is prepared"):
        graph.y = blocks.y
    with pytest.raises(InputError, match="'x' must be set on the data, before it is prepared"):
        del graph.x
    with pytest.raises(InputError, match=r"'with_labels' must be given what is neither .* \(got edge_index, x\)"):
        graph.with_labels(x=2 * blocks.x, edge_index=blocks.edge_index[:, :1])
    blocks.x = blocks.x + 1  # the data may get other tensors, which are then not the graph's
    assert not torch.equal(graph.x, blocks.x)


@pytest.mark.parametrize("transform", [NormalizeFeatures(), ToUndirected(), AddSelfLoops()])
def test_a_transform_that_puts_others_into_it_is_refused(transform, blocks):
    """PyG's write into the copy's storage, past attributes: else the transform would be silently without effect."""
    detector, graph = Detector(GCN(8, 16, 3)).fit(blocks), transform(prepare(blocks))
    with pytest.raises(InputError, match=r"'data' must hold the features and edges.*; prepare"):
        detector.score(graph)


def test_features_may_be_computed_by_the_data(blocks):
    class Computed:
        edge_index, y, train_mask = blocks.edge_index, blocks.y, blocks.train_mask
        x = property(lambda self: 2 * blocks.x)

    twice = Data(x=2 * blocks.x, edge_index=blocks.edge_index)
    detector = Detector(GCN(8, 16, 3), "gnnsafe").fit(prepare(Computed()))
    torch.testing.assert_close(detector.score(prepare(Computed())), detector.score(twice))


@pytest.mark.parametrize("name", ["x", "edge_index"])
def test_a_write_into_its_tensors_is_refused(blocks, name):
    detector = Detector(GCN(8, 16, 3)).fit(blocks)
    graph = prepare(blocks)
    detector.score(graph)
    getattr(blocks, name)[0, 0] = 1
    with pytest.raises(InputError, match=f"'{name}' must be left as it was.*; prepare"):
        detector.score(graph)
    assert torch.equal(detector.score(prepare(blocks)), detector.score(prepare(blocks)))


def test_a_model_refuses_a_graph_that_was_written_to(blocks):
    model, graph = GCN(8, 16, 3), prepare(blocks)
    model(graph)
    blocks.x.mul_(2)
    with pytest.raises(InputError, match=r"'x' must be left as it was.*; prepare"):
        model(graph)


@pytest.mark.parametrize("derived", ["with_labels", "without_edges", "both_ways"])
def test_nothing_is_derived_from_a_graph_that_was_written_to(derived, blocks):
    graph = prepare(blocks)
    blocks.x.mul_(2)
    with pytest.raises(InputError, match=r"'x' must be left as it was.*; prepare"):
        getattr(graph, derived)()


def test_what_is_set_on_the_data_afterwards_is_not_the_graphs(blocks):
    graph = prepare(blocks)
    detector = Detector(GCN(8, 16, 3), forward=lambda model, data: model(data.x, data.edge_index)).fit(graph)
    before = detector.score(graph)
    blocks.x, blocks.edge_index, blocks.y = 7 * blocks.x, blocks.edge_index.flip(0), 1 - blocks.y
    assert torch.equal(detector.score(graph), before)
    assert not torch.equal(graph.y, blocks.y)


def test_scaled_features_are_kept_but_not_the_labels_beside_them(blocks):
    scaling, model = FeatureScaling.fit(blocks.x, blocks.train_mask), GCN(8, 16, 3)
    graph, other = prepare(blocks), blocks.clone()
    other.val_mask = blocks.test_mask
    Detector(model, "react", scaling=scaling).fit(graph)
    relabelled = graph.with_labels(val_mask=blocks.test_mask)
    first, right = (Detector(model, "react", scaling=scaling).fit(one).score(blocks) for one in (relabelled, other))
    torch.testing.assert_close(first, right)


@pytest.mark.parametrize("name", MODELS)
def test_modes_around_a_call_leave_no_trace_in_what_is_kept(name, blocks):
    model, graph = MODELS[name](8, 16, 3), prepare(blocks)
    for mode in (torch.inference_mode(), torch.autocast("cpu", torch.bfloat16)):
        with mode:
            model.eval()(graph)
            model(blocks.x, blocks.edge_index)
    right = model(prepare(blocks))
    assert torch.equal(model(graph), right)
    assert torch.equal(model(blocks.x, blocks.edge_index), right)
    model.train()(graph).sum().backward()  # which torch refuses where anything was made in inference mode
    model(blocks.x, blocks.edge_index).sum().backward()


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("method", ["gnnsafe", "odin", "mahalanobis"])
def test_all_of_a_detector_in_inference_mode(method, undirected, blocks):
    scaling = FeatureScaling.fit(blocks.x, blocks.train_mask)
    detector = Detector(GCN(8, 16, 3), method, scaling=scaling, undirected=undirected)
    right = detector.fit(blocks).calibrate(blocks).p_values(blocks)
    with torch.inference_mode():
        made = blocks.clone()
        assert torch.equal(detector.fit(made).calibrate(made).p_values(made), right)
        torch.testing.assert_close(detector.score(prepare(made)), detector.score(made))
        assert propagate(torch.ones(120), made.edge_index, steps=4).tolist() == [1.0] * 120


def test_the_same_with_other_features(blocks):
    graph = prepare(blocks)
    other = graph.with_features(2 * blocks.x)
    assert torch.equal(other.x, 2 * blocks.x)
    assert other.edges is graph.edges
    with pytest.raises(InputError, match="'x' must have a row for each of"):
        graph.with_features(blocks.x[1:])
    with pytest.raises(InputError, match="'x' must be finite"):
        graph.with_features(blocks.x * torch.nan)
    with pytest.raises(InputError, match="'x' must be a torch"):
        graph.with_features(None)


def test_the_same_without_edges():
    x = torch.eye(30)
    graph = prepare(SimpleNamespace(x=x, edge_index=torch.tensor([[0], [1]])))
    alone = graph.without_edges()
    assert alone.edge_index.shape == (2, 0)
    assert isinstance(graph.features, Sparse)
    assert alone.features is graph.features  # made once for both


def test_the_same_with_other_labels(blocks):
    graph = prepare(blocks)
    relabelled = graph.with_labels(y=blocks.y + 1)
    assert torch.equal(relabelled.y, graph.y + 1)
    assert relabelled.cached("key", object) is graph.cached("key", object)


def test_to_the_device_where_it_is(blocks):
    graph = prepare(blocks)
    assert graph.to("cpu") is graph.to("cpu:0") is graph
    for unknown in ("abacus", torch.float64):
        with pytest.raises(InputError, match="'device' must be auto, cpu or one that torch has here"):
            graph.to(unknown)
    assert graph.device == torch.device("cpu")


@pytest.mark.parametrize("name", MODELS)
def test_models_answer_alike_about_data_and_its_prepared_graph(name, blocks):
    model, graph = MODELS[name](8, 16, 3).eval(), prepare(blocks)
    assert torch.equal(model(graph), model(blocks.x, blocks.edge_index))


@pytest.mark.parametrize("name", METHODS)
def test_detectors_answer_alike_about_data_and_its_prepared_graph(name, blocks):
    model = MODELS["gpn" if name == "gpn" else "gcn"](8, 16, 3)
    detector, graph = Detector(model, name).fit(blocks), prepare(blocks)
    alike = {"rtol": 1e-4, "atol": 1e-4}  # other sums, whose rounding small variances magnify
    torch.testing.assert_close(detector.score(graph), detector.score(blocks), **alike)
    again = Detector(model, name).fit(graph)
    torch.testing.assert_close(again.score(graph), detector.score(graph), **alike)


def test_training_is_alike(blocks):
    models = [GCN(8, 16, 3) for _ in range(2)]
    for model, data in zip(models, (blocks, prepare(blocks)), strict=True):
        gnnsafe.train(model, data, objective=gnnsafe.CrossEntropy(), epochs=3)
    assert all(torch.equal(a, b) for a, b in zip(*(model.state_dict().values() for model in models), strict=True))


def test_propagation_is_alike(blocks):
    scores = torch.rand(blocks.num_nodes)
    torch.testing.assert_close(propagate(scores, prepare(blocks).edges), propagate(scores, blocks.edge_index))


def test_threads_share_one(blocks):
    detector, graph = Detector(GCN(8, 16, 3)).fit(blocks), prepare(blocks)
    expected = detector.score(prepare(blocks))
    with ThreadPoolExecutor(8) as pool:
        for scores in pool.map(detector.score, [graph] * 40):
            assert torch.equal(scores, expected)


def test_the_model_runs_once_for_fit_and_calibrate(blocks):
    calls = []

    def forward(model, data):
        calls.append(1)
        return model(data.x, data.edge_index)

    graph = prepare(blocks)
    detector = Detector(GCN(8, 16, 3), "gnnsafe", forward=forward).fit(graph)
    fitted = len(calls)
    detector.calibrate(graph)
    assert len(calls) == fitted
    detector.score(graph)
    assert len(calls) == fitted + 1


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("how", ["as it was", "written to", "behind torch's back", "its edges, behind", "another"])
def test_calibrate_reads_what_fit_read_only_if_it_still_is(blocks, how, undirected):
    class Counted(GCN):
        calls = 0

        def forward(self, x, edge_index=None):
            Counted.calls += 1
            return super().forward(x, edge_index)

    model = Counted(8, 16, 3)
    detector = Detector(model, "gnnsafe", undirected=undirected).fit(blocks)
    if how == "written to":
        blocks.x[0] += 1
    elif how == "behind torch's back":
        blocks.x.numpy()[0] += 1
    elif how == "its edges, behind":
        blocks.edge_index.numpy()[:, 0] = 0
    elif how == "another":
        blocks = blocks.clone()
    before = Counted.calls
    detector.calibrate(blocks)
    assert Counted.calls == before + (how != "as it was")
    fresh = Detector(model, "gnnsafe", undirected=undirected).fit(blocks.clone()).calibrate(blocks.clone())
    if how in ("as it was", "another"):
        assert torch.equal(detector.calibration_.scores, fresh.calibration_.scores)


class Weighted(torch.nn.Module):
    """A user's model with edge weights, which counts its forward passes."""

    calls = 0

    def forward(self, x, edge_index, edge_weight):
        self.calls += 1
        return x[:, :3].index_add(0, edge_index[1], edge_weight[:, None] * x[edge_index[0], :3])


@pytest.mark.parametrize("forward", [None, lambda model, data: model(data.x, data.edge_index, data.edge_weight)])
@pytest.mark.parametrize("how", ["as it was", "written to", "behind torch's back", "another", "a list in it"])
def test_calibrate_compares_all_that_a_forward_may_read(blocks, how, forward):
    blocks.edge_weight = torch.rand(blocks.num_edges)
    if how == "a list in it":  # which may change unseen
        blocks.names = ["some"]
    model = Weighted()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)  # that edge weights are passed on
        detector = Detector(model, "gnnsafe", forward=forward).fit(blocks)
    before = model.calls
    if how == "written to":
        blocks.edge_weight[0] += 1
    elif how == "behind torch's back":
        blocks.edge_weight.numpy()[0] += 1
    elif how == "another":
        blocks.edge_weight = blocks.edge_weight + 1
    detector.calibrate(blocks)
    once = how == "as it was" or (how == "a list in it" and forward is None)
    assert model.calls == before + (not once)
    assert torch.equal(detector.calibration_.scores, detector.score(blocks)[blocks.val_mask])


def test_calibrate_takes_the_mask_of_the_graph_that_it_is_given(blocks):
    model, other = GCN(8, 16, 3), copy.copy(blocks)  # which shares its features and edges
    other.val_mask = blocks.test_mask
    detector = Detector(model, "gnnsafe").fit(blocks).calibrate(other)
    assert torch.equal(detector.calibration_.scores, detector.score(other)[other.val_mask])


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("calibrated", [lambda data: data, prepare], ids=["bare", "prepared"])
@pytest.mark.parametrize("fitted", [lambda data: data, prepare], ids=["bare", "prepared"])
def test_fit_and_calibrate_take_any_two_of_data_and_its_prepared_graphs(blocks, fitted, calibrated, undirected):
    other = copy.copy(blocks)
    other.val_mask = blocks.test_mask
    detector = Detector(GCN(8, 16, 3), "gnnsafe", undirected=undirected).fit(fitted(blocks))
    detector.calibrate(calibrated(other))
    torch.testing.assert_close(detector.calibration_.scores, detector.score(other)[other.val_mask])


def test_calibrate_refuses_a_prepared_graph_into_which_others_were_put(blocks):
    detector, graph = Detector(GCN(8, 16, 3), "gnnsafe").fit(blocks), prepare(blocks)
    graph.data.x = blocks.x + 1
    with pytest.raises(InputError, match="'data' must hold the features and edges that it was prepared with"):
        detector.calibrate(graph)


def hooked(model, detector):
    model.register_forward_hook(lambda module, inputs, logits: 3 * logits)


def other_number(model, detector):
    model.norms[0].eps = 1.0


def other_scaling(model, detector):
    detector.scaling = FeatureScaling("standard", torch.ones(8).double(), torch.ones(8).double())


def read_both_ways(model, detector):
    detector.undirected = True


@pytest.mark.parametrize("change", [hooked, other_number, other_scaling, read_both_ways])
def test_calibrate_sees_whatever_changed_since_fit(change, blocks):
    blocks.edge_index = blocks.edge_index[:, ::2]
    model = GCN(8, 16, 3)
    detector = Detector(model, "gnnsafe").fit(blocks)
    change(model, detector)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)  # that a number is another than it was
        detector.calibrate(blocks)
        assert torch.equal(detector.calibration_.scores, detector.score(blocks)[blocks.val_mask])


def test_calibrate_sees_a_write_into_what_else_a_forward_reads(blocks):
    blocks.temperature = torch.ones(1)
    graph = prepare(blocks)
    forward = lambda model, data: model(data.x, data.edge_index) / data.temperature  # noqa: E731
    detector = Detector(GCN(8, 16, 3), "gnnsafe", forward=forward).fit(graph)
    blocks.temperature.mul_(2)
    detector.calibrate(graph)
    scores = detector.score(graph)[blocks.val_mask]
    assert torch.equal(detector.calibration_.scores, scores)


def test_a_heterogeneous_graph_is_prepared_by_its_detector():
    from torch_geometric.data import HeteroData

    with pytest.raises(InputError, match="'data' must have x and edge_index"):
        prepare(HeteroData())


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda graph: pickle.loads(pickle.dumps(graph))])
def test_copies_are_prepared_graphs_of_their_own(blocks, copied):
    blocks.x[0] += 1  # torch counts it, in the original's tensors
    detector, graph = Detector(GCN(8, 16, 3)).fit(blocks), prepare(blocks)
    other = copied(graph)
    assert other.edges is not graph.edges
    assert torch.equal(detector.score(other), detector.score(graph))


def test_it_says_what_it_is():
    data = Data(x=torch.eye(2), edge_index=torch.tensor([[0], [1]]))
    assert repr(prepare(data)) == "PreparedGraph(nodes=2, features=2, edges=1, device='cpu')"


def test_a_graph_keeps_of_many_detectors_what_the_last_few_make_of_it():
    graph, made = prepare(SimpleNamespace(x=torch.eye(4), edge_index=torch.tensor([[0, 1], [1, 2]]))), []

    def ask(key: int) -> int:
        return graph.recent("kind", key, lambda: made.append(key) or key)

    assert [ask(key) for key in (*range(6), 5, 4, 2, 3, 2, 0)] == [*range(6), 5, 4, 2, 3, 2, 0]
    assert made == [0, 1, 2, 3, 4, 5, 0]
    first = graph.without_messages(torch.tensor([True, False, False, False]))
    assert first.edges is graph.without_messages(torch.tensor([True, False, False, False])).edges
    for node in range(4):
        graph.without_messages(torch.arange(4) == node % 4)
        graph.without_messages(torch.arange(4) <= node)
    assert first.edges is not graph.without_messages(torch.tensor([True, False, False, False])).edges
