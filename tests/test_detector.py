from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE

from gnnsafe import CrossEntropy, Detector, energy, load, max_softmax, metrics, propagate, score_logits, train
from gnnsafe.errors import CalibrationWarning, GnnsafeError, InputError, NotFittedError
from gnnsafe.methods import (
    GRASP,
    METHODS,
    MSP,
    Agreement,
    Consensus,
    GNNSafe,
    Mahalanobis,
    MeanCosine,
    Propagated,
    ReAct,
    TwoScale,
)
from gnnsafe.methods.scored import base_scores_of
from gnnsafe.models import GCN, MODELS

everyone = pytest.mark.parametrize("name", METHODS)


def test_somebodys_own_model(blocks):
    torch.manual_seed(0)
    model = GraphSAGE(8, 16, num_layers=2, out_channels=3)
    detector = Detector(model, "gnnsafe").fit(blocks)
    scores = detector.score(blocks)
    with torch.no_grad():
        logits = model.eval()(blocks.x, blocks.edge_index)
    expected = -torch.logsumexp(logits, dim=1)
    for _ in range(2):
        mean = torch.stack([expected[blocks.edge_index[0][blocks.edge_index[1] == i]].mean() for i in range(120)])
        expected = 0.5 * expected + 0.5 * mean.where(~mean.isnan(), expected)
    torch.testing.assert_close(scores, expected)


def test_default_method_and_repr():
    detector = Detector(nn.Identity())
    assert detector.method == TwoScale()
    assert repr(Detector(nn.Identity(), MSP())) == "Detector(Identity, MSP())"


def test_a_method_by_its_name():
    assert Detector(nn.Identity(), "msp").method == MSP()
    with pytest.raises(ValueError, match=r"'method' must be one of msp, .*did you mean 'gnnsafe'\?"):
        Detector(nn.Identity(), "gnnsaf")


@pytest.mark.parametrize(
    ("model", "method", "message"),
    [
        (nn.Identity(), GNNSafe, r"'method' must be a method such as gnnsafe.methods.GNNSafe\(\)"),
        (lambda x: x, None, r"'model' must be a torch.nn.Module \(got function\)"),
    ],
)
def test_what_is_no_model_and_no_method(model, method, message):
    with pytest.raises(ValueError, match=message):
        Detector(model, method)


def test_not_fitted(blocks):
    with pytest.raises(NotFittedError, match=r"Detector\(Identity, MSP\(\)\) is not fitted; call fit\(data\)"):
        Detector(nn.Identity(), MSP()).score(blocks)


class Logits(nn.Module):
    def forward(self, x, edge_index):
        return x


def test_the_graph_is_checked(blocks):
    detector = Detector(Logits()).fit(blocks)
    with pytest.raises(ValueError, match=r"'x' must have 8 features \(got 3\)"):
        detector.score(SimpleNamespace(x=torch.rand(4, 3), edge_index=blocks.edge_index))
    with pytest.raises(ValueError, match="'edge_index' must hold node ids < 4"):
        detector.score(SimpleNamespace(x=torch.rand(4, 8), edge_index=blocks.edge_index))
    with pytest.raises(ValueError, match="'x' must be finite"):
        detector.score(SimpleNamespace(x=torch.full((4, 8), torch.nan), edge_index=blocks.edge_index[:, :0]))


def test_fit_needs_labels_and_a_training_mask(blocks):
    del blocks.train_mask
    with pytest.raises(ValueError, match=r"'train_mask' must be given"):
        Detector(Logits()).fit(blocks)


def test_the_method_is_fitted_on_the_training_nodes(blocks):
    seen = {}

    class Spy(MSP):
        def fit(self, outputs, y, mask):
            seen.update(logits=outputs.logits, y=y, mask=mask)
            return self

    Detector(Logits(), Spy()).fit(blocks)
    assert torch.equal(seen["logits"], blocks.x)
    assert seen["y"] is blocks.y
    assert seen["mask"] is blocks.train_mask


def test_embeddings_of_somebodys_own_model(blocks):
    torch.manual_seed(0)
    model = GraphSAGE(8, 16, num_layers=2, out_channels=3).train()
    scores = Detector(model, "knn", embedding="convs.0").fit(blocks).score(blocks)
    assert scores.shape == (120,)
    assert model.training
    with pytest.raises(ValueError, match=r"'embedding' must name the submodule .*convs.0"):
        Detector(model, "knn").fit(blocks)


def test_a_call_of_ones_own(blocks):
    model = nn.Linear(8, 3)
    blocks.extra = 2 * blocks.x
    scores = Detector(model, "energy", forward=lambda model, data: model(data.extra)).fit(blocks).score(blocks)
    torch.testing.assert_close(scores, -torch.logsumexp(model(2 * blocks.x).detach(), dim=1))


class TestCalibrated:
    @pytest.fixture
    def detector(self, blocks) -> Detector:
        return Detector(Logits(), "energy").fit(blocks).calibrate(blocks)

    def test_p_values_are_those_of_the_validation_nodes(self, detector, blocks):
        scores = detector.score(blocks)
        held_out = scores[blocks.val_mask]
        expected = [(1 + int((held_out >= score).sum())) / 41 for score in scores]
        assert detector.p_values(blocks).tolist() == expected
        assert torch.equal(detector.predict(blocks, false_alarm=0.1), torch.tensor(expected) <= 0.1)
        random = detector.p_values(blocks, seed=1)
        assert (random < detector.p_values(blocks)).all()
        assert torch.equal(detector.predict(blocks, false_alarm=0.1, seed=1), random <= 0.1)

    def test_other_nodes_to_calibrate_with(self, detector, blocks):
        first = blocks.test_mask
        detector.calibrate(blocks, mask=first)
        assert len(detector.calibration_.scores) == 50
        assert torch.equal(detector.calibration_.scores, detector.score(blocks)[first])

    def test_strange_nodes_are_flagged(self, detector, blocks):
        blocks.x = blocks.x.clone()
        blocks.x[blocks.test_mask] -= 3
        flags = detector.predict(blocks, fdr=0.1)
        assert torch.equal(flags & ~blocks.val_mask & ~blocks.train_mask, blocks.test_mask)
        with pytest.warns(CalibrationWarning, match="43% of 120 nodes are flagged"):
            assert detector.predict(blocks, false_alarm=0.05)[blocks.test_mask].all()

    def test_by_class(self, detector, blocks):
        detector.calibrate(blocks, by_class=True)
        predicted, scores = blocks.x.argmax(dim=1), detector.score(blocks)
        node = 7
        alike = scores[blocks.val_mask & (predicted == predicted[node])]
        p = (1 + int((alike >= scores[node]).sum())) / (len(alike) + 1)
        assert detector.p_values(blocks)[node] == p
        with pytest.raises(ValueError, match="'by_class' must be left out where there is no model"):
            Detector(None, "degree").fit(blocks).calibrate(blocks, by_class=True)
        blocks.y = nn.functional.one_hot(blocks.y, 8)
        with pytest.raises(ValueError, match="'by_class' must be given only for a multiclass model"):
            Detector(Logits(), "msp", task="multilabel").fit(blocks).calibrate(blocks, by_class=True)

    def test_checked_on_other_nodes(self, detector, blocks):
        check = detector.check_calibration(blocks, blocks.test_mask, levels=(0.1, 0.5))
        assert (check.nodes, check.calibration_nodes) == (50, 40)
        assert check.levels[1].flagged == int((detector.p_values(blocks)[blocks.test_mask] <= 0.5).sum())
        with pytest.raises(ValueError, match="'mask' must be a boolean tensor"):
            detector.check_calibration(blocks, torch.arange(5))

    def test_not_calibrated(self, detector, blocks):
        detector.fit(blocks)  # again: what it was calibrated with means nothing now
        for call in (
            lambda: detector.p_values(blocks),
            lambda: detector.predict(blocks, fdr=0.1),
            lambda: detector.check_calibration(blocks, blocks.test_mask),
        ):
            with pytest.raises(NotFittedError, match=r"is not calibrated; call calibrate\(data\)"):
                call()
        with pytest.raises(NotFittedError, match="is not fitted"):
            Detector(Logits()).calibrate(blocks)

    @pytest.mark.parametrize("method", ["consensus", "react", "grasp", Propagated(ReAct())])
    def test_validation_nodes_that_the_method_has_learnt_from(self, blocks, method):
        detector = Detector(GCN(8, 4, 3), method).fit(blocks)
        with pytest.warns(CalibrationWarning, match="has learnt from 40 of these 40 nodes"):
            detector.calibrate(blocks)
        detector.calibrate(blocks, mask=blocks.test_mask)  # warnings are errors here

    @pytest.mark.parametrize("change", ["a setting", "the whole method"])
    def test_thresholds_of_another_method_are_refused(self, detector, blocks, tmp_path, change):
        detector.save(tmp_path)
        for one in (detector, load(tmp_path, detector.classifier.model)):
            if change == "a setting":
                one.method.temperature = 2.0
            else:
                one.method = MSP()
            assert one.score(blocks).shape == (120,)
            right = r"^'method' must be the one that the detector was calibrated with, .*; calibrate again$"
            for asked in (
                lambda one=one: one.p_values(blocks),
                lambda one=one: one.predict(blocks, false_alarm=0.1),
                lambda one=one: one.decide(blocks, false_alarm=0.1),
                lambda one=one: one.check_calibration(blocks),
                lambda one=one: one.explain(blocks, node=0),
                lambda one=one: one.save(tmp_path),
            ):
                with pytest.raises(InputError, match=right):
                    asked()
            one.calibrate(blocks)
            assert one.p_values(blocks).min() > 0

    def test_too_few_nodes_are_said_where_predict_is_called(self, detector, blocks):
        with pytest.warns(CalibrationWarning, match="at least 99 are needed") as warned:
            detector.predict(blocks, false_alarm=0.01)
        assert warned[0].filename == __file__


class Array:
    """An array of another library, which speaks DLPack as JAX's do."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **options):
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


class Numbers:
    """What has an __array__ and nothing else."""

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array


class TestLogitsFromAnywhere:
    logits = torch.tensor([[0.0, 9.0], [0.0, 0.0], [1.0, 2.0]])
    edges = torch.tensor([[0, 1], [1, 2]])

    @pytest.mark.parametrize("make", [
        lambda t: t, lambda t: t.clone().requires_grad_() if t.is_floating_point() else t, lambda t: t.numpy(), Array,
        lambda t: Numbers(t.numpy()), lambda t: t.tolist(), lambda t: tuple(t.unbind()),
    ])  # fmt: skip
    def test_the_same_scores(self, make):
        scores = score_logits(make(self.logits), make(self.edges))
        assert scores.dtype == torch.float32
        assert not scores.requires_grad
        torch.testing.assert_close(scores, propagate(energy(self.logits), self.edges))

    def test_read_only_arrays_double_precision_and_32_bit_edges(self):
        logits, edges = self.logits.double().numpy(), self.edges.int().numpy()
        logits.flags.writeable = edges.flags.writeable = False
        torch.testing.assert_close(score_logits(logits, edges), propagate(energy(self.logits), self.edges))

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_half_precision(self, dtype):
        """It was an overflow in torch; and log-probabilities were scored by what rounding had left of their energy."""
        logits = self.logits.to(dtype)
        assert torch.equal(score_logits(logits, self.edges), score_logits(logits.float(), self.edges))
        draws = 3 * torch.randn(200, 40, generator=torch.Generator().manual_seed(0))
        for given in (draws.log_softmax(dim=1), draws.softmax(dim=1)):
            with pytest.raises(GnnsafeError, match=r"'logits' must be unnormalised .*probabilities\)"):
                score_logits(given.to(dtype), self.edges)
        normalised = score_logits(draws.log_softmax(dim=1).to(dtype), self.edges, method="msp")
        torch.testing.assert_close(normalised, max_softmax(draws), atol=0.02, rtol=0)

    def test_probabilities_are_no_logits(self):
        for method in ("gnnsafe", "msp"):
            with pytest.raises(GnnsafeError, match=r"'logits' must be unnormalised \(got probabilities\)"):
                score_logits(self.logits.softmax(dim=1), self.edges, method=method)

    def test_another_method(self):
        torch.testing.assert_close(score_logits(self.logits, self.edges, method="msp"), max_softmax(self.logits))

    @pytest.mark.parametrize(("logits", "edges", "method", "message"), [
        ([[0.0, 1.0]], [[0], [1]], "gnnsafe", "'edge_index' must hold node ids < 1"),
        ([[0, 1]], [[0], [0]], "gnnsafe", "'logits' must be a floating tensor"),
        ([["a"]], [[0], [0]], "gnnsafe", "'logits' must be an array of numbers"),
        ([[0.0, 1.0]], [[0], [0]], "degree", "'method' must read logits and edges alone"),
        ([[0.0, 1.0]], [[0], [0]], Propagated(MeanCosine()), "'method' must read logits and edges alone"),
        ([[0.0, 1.0]], [[0], [0]], None, "'method' must read logits and edges alone"),
        ([[0.0, 1.0]], [[0], [0]], "odin", "is not fitted"),
        ([[0.0, 1.0]], [[0], [0]], "edge-disagreement", "'outputs' must come from"),
    ])  # fmt: skip
    def test_refused(self, logits, edges, method, message):
        with pytest.raises(GnnsafeError, match=message):
            score_logits(logits, edges, method=method)


@everyone
def test_what_propagation_has_the_last_word_on(name, blocks):
    """Every method's score is its base score, propagated; those with steps have something to split."""
    torch.manual_seed(0)
    detector = Detector(GCN(8, 4, 3), name).fit(blocks)
    outputs = detector.outputs(blocks)
    before, how = base_scores_of(detector.method, outputs), detector.method.propagation
    assert torch.equal(how(before, outputs.graph.edges), detector.score(blocks))
    assert (how.steps > 0) == (name in ("gnnsafe", "dirichlet-energy", "diffused-knn"))


class TestNewScores:
    """A graph of 300 nodes in a ring, so that surroundings are small, and a few long ways."""

    @staticmethod
    def ring(seed: int = 0) -> Data:
        generator = torch.Generator().manual_seed(seed)
        node = torch.arange(300)
        edges = torch.cat([torch.stack([node, (node + 1) % 300]), torch.stack([(node + 1) % 300, node])], dim=1)
        directed = torch.randint(300, (2, 30), generator=generator)
        masks = {"train_mask": node % 3 == 0, "val_mask": node % 3 == 1}
        x = torch.rand(300, 8, generator=generator)
        return Data(x=x, edge_index=torch.cat([edges, directed], dim=1), y=node % 3, **masks)

    @staticmethod
    def grown(data: Data) -> tuple[Data, torch.Tensor]:
        """Two new nodes, one edge between old nodes gone, one node with other features."""
        new = data.clone()
        new.x = torch.cat([data.x, torch.rand(2, 8, generator=torch.Generator().manual_seed(7))])
        new.x[100] += 1
        gone = (data.edge_index == torch.tensor([[40], [41]])).all(dim=0)
        edges = torch.tensor([[300, 5, 301], [7, 300, 300]])
        new.edge_index = torch.cat([data.edge_index[:, ~gone], edges], dim=1)
        for name in ("y", "train_mask", "val_mask"):
            delattr(new, name)
        return new, torch.tensor([300, 301, 5, 7, 40, 41, 100])

    @pytest.mark.parametrize("model", [name for name in MODELS if name not in ("appnp", "gpn", "sgformer", "gps")])
    def test_equal_to_the_whole_and_nothing_else_changes(self, model):
        torch.manual_seed(0)
        data = self.ring()
        method = Propagated(MSP(), 2) if model == "ensemble" else "gnnsafe"  # its logits have no energy
        detector = Detector(MODELS[model](8, 6, 3), method).fit(data)
        new, nodes = self.grown(data)
        touched, scores = detector.score_new(new, nodes)
        whole = detector.score(new)
        torch.testing.assert_close(scores, whole[touched])
        assert scores.dtype == torch.float32
        assert len(touched) < 200
        kept = torch.cat([detector.score(data), torch.zeros(2)])
        kept[touched] = scores
        torch.testing.assert_close(kept, whole)

    @pytest.mark.parametrize("model", ["sgformer", "gps"])
    def test_a_model_that_reads_the_whole_graph_is_refused(self, model):
        data = self.ring()
        detector = Detector(MODELS[model](8, 6, 3), "gnnsafe").fit(data)
        with pytest.raises(InputError, match="'model' must have a known receptive field"):
            detector.score_new(data, [7])

    @pytest.mark.parametrize(
        "method", [Propagated(MSP(), 1), Propagated(GNNSafe(), 1), Consensus((MSP(), Agreement()))]
    )
    def test_methods_within_methods(self, method):
        torch.manual_seed(0)
        data = self.ring()
        detector = Detector(GCN(8, 6, 3), method).fit(data)
        touched, scores = detector.score_new(data, [7])
        torch.testing.assert_close(scores, detector.score(data)[touched])
        assert len(touched) < 100

    @pytest.mark.parametrize("method", [Propagated(GRASP()), Consensus((MSP(), GRASP())), Mahalanobis(epsilon=0.1)])
    def test_methods_that_read_the_whole_graph(self, method):
        data = self.ring()
        detector = Detector(GCN(8, 6, 3), method).fit(data)
        with pytest.raises(ValueError, match="'method' must have a known receptive field"):
            detector.score_new(data, [7])

    def test_the_given_nodes_alone(self):
        data = self.ring()
        torch.manual_seed(0)
        detector = Detector(GCN(8, 6, 3)).fit(data)
        nodes, scores = detector.score_new(data, [7, 3], touched=False)
        assert nodes.tolist() == [3, 7]
        torch.testing.assert_close(scores, detector.score(data)[nodes])

    def test_only_what_is_needed_is_read(self):
        data = self.ring()
        data.edge_index = data.edge_index[:, :600]  # the ring alone
        seen = []

        class Spy(GCN):
            def forward(self, x, edge_index):
                seen.append(len(x))
                return super().forward(x, edge_index)

        detector = Detector(Spy(8, 6, 3), "gnnsafe").fit(data)
        seen.clear()
        touched, _ = detector.score_new(data, [50], hops=2)  # a model of somebody's own
        assert touched.tolist() == list(range(46, 55))  # 2 layers and 2 steps either way
        part, probe = seen
        assert part == 9 + 2 * 5  # they hear 4 further, whose degrees 1 further
        assert probe < 100  # three of them and three others, a hop further

    @pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
    def test_masks_sparse_features_and_attributes_of_edges(self):
        data = self.ring()
        data.edge_weight = torch.rand(data.edge_index.shape[1])
        data.x = data.x.to_sparse_csr()
        model = nn.Linear(8, 3)

        def forward(model, data):
            heard = torch.zeros(data.x.shape[0], 3)
            messages = data.edge_weight[:, None] * model(data.x.to_dense())[data.edge_index[0]]
            return heard.index_add(0, data.edge_index[1], messages)

        detector = Detector(model, forward=forward).fit(data)
        mask = torch.arange(300) == 9
        touched, scores = detector.score_new(data, mask, hops=1)
        torch.testing.assert_close(scores, detector.score(data)[touched])

    @pytest.mark.filterwarnings("ignore:the calibration nodes of class")
    @pytest.mark.parametrize("by_class", [False, True])
    def test_none_are_new(self, blocks, by_class):
        detector = Detector(MODELS["gcn"](8, 4, 3)).fit(blocks).calibrate(blocks, by_class=by_class)
        for nodes in ([], torch.empty(0, dtype=torch.int64), torch.zeros(120, dtype=torch.bool)):
            found = detector.score_new(blocks, nodes)
            assert [list(part.shape) for part in found] == [[0], [0]]
            assert [part.dtype for part in found] == [torch.int64, torch.float32]
            for level in ({"false_alarm": 0.5}, {"fdr": 0.5}):
                decided = detector.predict_new(blocks, nodes, **level)
                assert [list(part.shape) for part in decided] == [[0]] * 4
                assert decided.flags.dtype == torch.bool

    def test_without_a_model(self):
        data = self.ring()
        detector = Detector(None, "mean-cosine").fit(data)
        touched, scores = detector.score_new(data, [0, 1])
        torch.testing.assert_close(scores, detector.score(data)[touched])

    def test_refused(self, blocks):
        model = GraphSAGE(8, 16, num_layers=2, out_channels=3)
        detector = Detector(model).fit(blocks)
        with pytest.raises(ValueError, match=r"'hops' must be given for GraphSAGE, .*gnnsafe.models"):
            detector.score_new(blocks, [0])
        assert len(detector.score_new(blocks, [0], hops=2).nodes)
        for nodes in ({1, 2}, {1: 2}, None, 3, "3", [0.5], ["3"], [[1]], [None], iter([1])):
            with pytest.raises(ValueError, match=r"^'nodes' must be (numbers of nodes|an array of numbers).*$"):
                detector.score_new(blocks, nodes, hops=2)
        for nodes, message in (([120], "lie in 0..119"), ([-1], "lie in 0..119")):
            with pytest.raises(ValueError, match=f"'nodes' must {message}"):
                detector.score_new(blocks, nodes, hops=2)
        with pytest.raises(ValueError, match="'hops' must be a whole number >= 0"):
            detector.score_new(blocks, [0], hops=-1)
        with pytest.raises(NotFittedError):
            Detector(model).score_new(blocks, [0], hops=2)


class TestMultilabel:
    """Two labels, of which a node has one or both; OOD nodes have features that speak for neither."""

    @staticmethod
    def graph(num_nodes=200, seed=0):
        generator = torch.Generator().manual_seed(seed)
        y = torch.randint(2, (num_nodes, 2), generator=generator)
        y[y.sum(dim=1) == 0, 0] = 1
        x = torch.randn(num_nodes, 6, generator=generator)
        x[:, :2] += 4.0 * (2 * y - 1)
        alike = (y[:, None] == y).all(dim=2)
        edges = (alike & (torch.rand(num_nodes, num_nodes, generator=generator) < 0.05)).nonzero().T
        node = torch.arange(num_nodes)
        return Data(x=x, edge_index=edges, y=y, train_mask=node < 80, val_mask=(node >= 80) & (node < 120))

    def test_trained_and_scored(self):
        data = self.graph()
        model = GCN(6, 16, 2)
        train(model, data, objective=CrossEntropy(), epochs=100, task="multilabel")
        with torch.no_grad():
            predicted = model(data.x, data.edge_index) > 0
        assert (predicted == data.y.bool())[120:].float().mean() > 0.95
        strange = self.graph(seed=1)
        strange.x[:, :2] = torch.randn(200, 2, generator=torch.Generator().manual_seed(2)) * 0.3
        for name in ("energy", "msp", "entropy", "gen", "gnnsafe", "odin", "knn", "mahalanobis", "agreement"):
            detector = Detector(model, name, task="multilabel").fit(data)
            auroc = metrics.detection(detector.score(data)[120:], detector.score(strange)).auroc
            assert auroc > 0.8, name

    def test_a_binary_head(self):
        data = self.graph()
        data.y = data.y[:, 0]  # one label, as users of a sigmoid head have it
        model = GCN(6, 16, 1)
        train(model, data, objective=CrossEntropy(), epochs=50, task="multilabel")
        scores = Detector(model, "msp", task="multilabel").fit(data).score(data)
        assert scores.max() <= -0.5
        assert scores.min() >= -1.0

    def test_labels_that_do_not_fit(self):
        data = self.graph()
        with pytest.raises(ValueError, match=r"'y' must have the model's 3 labels \(got 2\)"):
            train(GCN(6, 4, 3), data, objective=CrossEntropy(), task="multilabel")
        data.y[3] = 7
        with pytest.raises(ValueError, match="'y' must be 0 or 1 for every node of train_mask and every label"):
            train(GCN(6, 4, 2), data, objective=CrossEntropy(), task="multilabel")
        with pytest.raises(
            ValueError, match=r"'y' must be an int64 tensor of shape \[200\] \(got torch.int64 \[200, 2\]\)"
        ):
            train(GCN(6, 4, 2), data, objective=CrossEntropy())


@pytest.mark.parametrize("by_class", [False, True])
def test_new_nodes_are_decided_about_as_in_the_whole_graph(blocks, by_class):
    torch.manual_seed(0)
    detector = Detector(GCN(8, 16, 3)).fit(blocks).calibrate(blocks, by_class=by_class)
    if by_class:
        with pytest.warns(CalibrationWarning, match="too few"):
            found = detector.predict_new(blocks, [3, 50], false_alarm=0.02)
    else:
        found = detector.predict_new(blocks, [3, 50], false_alarm=0.1)
    assert torch.equal(found.nodes, detector.score_new(blocks, [3, 50]).nodes)
    assert torch.allclose(found.scores, detector.score(blocks)[found.nodes])
    assert torch.equal(found.p_values, detector.p_values(blocks)[found.nodes])
    assert torch.equal(found.flags, found.p_values <= (0.02 if by_class else 0.1))


def test_a_split_that_was_kept_is_checked_later(blocks, tmp_path):
    Detector(GCN(8, 16, 3)).fit(blocks).calibrate(blocks).save(tmp_path)
    detector, right = load(tmp_path), blocks.test_mask
    del blocks.train_mask, blocks.val_mask, blocks.test_mask
    assert str(detector.check_calibration(blocks)) == str(detector.check_calibration(blocks, right))
    blocks.x = blocks.x + 1
    with pytest.raises(ValueError, match=r"'mask' must be given where no test nodes are known \(got none\)"):
        detector.check_calibration(blocks)
    blocks.test_mask = right  # another graph has its own
    assert detector.check_calibration(blocks).nodes == 50


@pytest.mark.filterwarnings("ignore:.*nodes are flagged")
def test_a_default_device_has_no_say_in_what_else_a_detector_does(blocks, tmp_path):
    expected = Detector(GCN(8, 16, 3)).fit(blocks).calibrate(blocks)
    model = expected.classifier.model
    with torch.device("meta"):  # whose tensors hold nothing: whoever makes one fails
        detector = Detector(model).fit(blocks).calibrate(blocks, by_class=True)
        detector.calibrate(blocks).save(tmp_path)
        for ours in (detector, load(tmp_path)):
            assert torch.equal(ours.score(blocks), expected.score(blocks))
            assert torch.equal(ours.score(blocks, batch_size=40), expected.score(blocks, batch_size=40))
            assert torch.equal(ours.score_new(blocks, [3]).scores, expected.score_new(blocks, [3]).scores)
            assert ours.score_new(blocks, []).scores.tolist() == []
            assert torch.equal(ours.predict_sets(blocks).members, expected.predict_sets(blocks).members)
            assert torch.equal(ours.predict(blocks, false_alarm=0.1), expected.predict(blocks, false_alarm=0.1))
            assert str(ours.check_calibration(blocks)) == str(expected.check_calibration(blocks))
            assert ours.decide(blocks, false_alarm=0.1).to_arrow().num_rows == 120


def test_class_numbers_are_no_labels_of_a_multilabel_model(blocks):
    with pytest.raises(InputError, match=r"'y' must have the model's 8 labels \(got 1\)"):
        Detector(Logits(), "gnnsafe", task="multilabel").fit(blocks)


def test_texts_are_no_levels(blocks):
    detector = Detector(Logits(), "energy").fit(blocks).calibrate(blocks)
    with pytest.raises(InputError, match=r"'false_alarm' must lie in \(0, 1\) \(got '0.05'\)"):
        detector.predict(blocks, false_alarm="0.05")
