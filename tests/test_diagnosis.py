from __future__ import annotations

import json
import math
import warnings

import pytest
import torch
from tests.conftest import block_graph
from torch_geometric.data import HeteroData
from torch_geometric.nn import GraphSAGE

from gnnsafe import CrossEntropy, Detector, metrics, train
from gnnsafe.diagnosis import Candidate
from gnnsafe.diagnosis.candidates import contenders
from gnnsafe.diagnosis.new_classes import class_left_out, possible_classes
from gnnsafe.diagnosis.trials import TROUBLE
from gnnsafe.diagnosis.verdict import judge, overall
from gnnsafe.errors import GnnsafeWarning, HeterophilyWarning
from gnnsafe.graph import changed
from gnnsafe.methods import (
    KNN,
    METHODS,
    MSP,
    ODIN,
    DiffusedKNN,
    EdgeDisagreement,
    Energy,
    GNNSafe,
    Propagated,
    ReAct,
    TwoScale,
)
from gnnsafe.models import GCN
from gnnsafe.outputs import Outputs
from gnnsafe.progress import progress
from gnnsafe.propagation import Propagation


@pytest.fixture(scope="module")
def graph():
    return block_graph()


@pytest.fixture(scope="module")
def detector(graph):
    model = GCN(8, 8, 3)
    train(model, graph, objective=CrossEntropy(), epochs=40)
    return Detector(model, "gnnsafe").fit(graph)


@pytest.fixture(scope="module")
def found(detector, graph):
    return detector.diagnose(graph, draws=2)


OTHERS = ["two-scale", "msp", "agreement", "edge-disagreement", "knn", "knn K=2", "knn K=8", "mahalanobis",
          "diffused-knn", "mean-cosine"]  # fmt: skip
KINDS = ["new classes", "scattered nodes", "regions", "whole graph"]


class Fixed(MSP):
    """A method of your own whose propagation is no setting of it."""

    propagation = Propagation(3)


class TestOnAGraph:
    def test_every_trouble_and_candidate_has_its_figures(self, found):
        names = [candidate.name for candidate in found.candidates]
        assert names[:3] == ["energy", "energy K=1 α=0.9", "energy K=1"]
        assert names[16:] == OTHERS
        assert found.trials["new classes"] == ("class 0", "class 1", "class 2")
        assert found.trials["regions"] == ("feature 0", "feature 1", "structure 0", "structure 1")
        for candidate in found.candidates:
            assert list(candidate.auroc) == KINDS
            for kind, figures in candidate.auroc.items():
                assert len(figures) == len(found.trials[kind])
                assert 0 <= min(figures) <= max(figures) <= 1
        assert found.left_out == {}
        assert found.default.name == "energy K=2"
        assert found.default.method == GNNSafe()

    def test_the_verdicts_follow_the_rule_and_what_they_name_can_be_used(self, found, detector, graph):
        assert list(found.verdicts) == KINDS
        for kind in KINDS:
            assert found.verdicts[kind] == judge(found.candidates, found.default, kind)
        assert (found.overall, found.closest) == overall(found.candidates, found.default, KINDS)
        for candidate in found.candidates:
            scores = Detector(detector.classifier.model, candidate.method).fit(graph).score(graph)
            assert torch.isfinite(scores).all()

    def test_figures_are_those_of_the_detector_itself(self, detector, graph, found):
        """The same shift, planted and scored by hand, with the settings of one own candidate."""
        propagated = Detector(detector.classifier.model, GNNSafe(steps=4, alpha=0.1)).fit(graph)
        whole, planted = [], []
        for seed in (0, 1):
            shifted = TROUBLE["whole graph"]["structure"](graph, seed)
            inside = propagated.score(graph)[graph.test_mask]
            whole.append(metrics.detection(inside, propagated.score(shifted)[shifted.mask]).auroc)
            mixed = TROUBLE["regions"]["feature"](graph, seed, share=0.1)
            scores = propagated.score(mixed)
            planted.append(metrics.detection(scores[mixed.test_mask], scores[mixed.mask]).auroc)
        mine = next(c for c in found.candidates if c.method == GNNSafe(steps=4, alpha=0.1))
        assert mine.name == "energy K=4 α=0.1"
        assert mine.auroc["whole graph"][2:] == pytest.approx(whole, abs=1e-3)
        assert mine.auroc["regions"][:2] == pytest.approx(planted, abs=1e-3)

    def test_a_new_class_by_hand(self, detector, graph, found):
        """Class 1 without its logit and its training nodes: energy of two logits, a bank of two classes."""
        outputs, test, new = detector.outputs(graph), graph.test_mask, graph.y == 1
        energy = -torch.logsumexp(outputs.logits[:, [0, 2]], dim=1)
        knn = KNN().fit(outputs, graph.y, graph.train_mask & ~new).score(outputs)
        for name, scores in (("energy", energy), ("knn", knn)):
            figure = metrics.detection(scores[test & ~new], scores[test & new]).auroc
            mine = next(c for c in found.candidates if c.name == name)
            assert mine.auroc["new classes"][1] == pytest.approx(figure, abs=1e-6)

    def test_it_is_deterministic_and_leaves_the_graph_alone(self, detector, graph, found):
        before = graph.clone()
        assert detector.diagnose(graph, draws=2).to_dict() == found.to_dict()
        assert graph.keys() == before.keys()
        assert all(torch.equal(graph[key], before[key]) for key in before.keys())  # noqa: SIM118 - PyG's
        assert detector.diagnose(graph, draws=2, seed=5).to_dict() != found.to_dict()

    def test_printed(self, found):
        text = str(found)
        words = " ".join(text.split())
        assert "Neighbours have the same predicted class on" in text
        for kind in KINDS:
            assert f" {kind}: " in words
        assert "If you do not know which: " in words
        assert text.count("*") == 1 + len(KINDS)  # the table's head, and one for each kind of trouble
        assert max(map(len, text.splitlines())) <= 100
        assert json.loads(json.dumps(found.to_dict(), allow_nan=False)) == found.to_dict()

    @pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
    def test_no_test_mask_sparse_features_and_own_candidates(self, detector, graph, found):
        data = graph.clone()
        del data.test_mask
        data.x = data.x.to_sparse_csr()
        again = detector.diagnose(data, draws=2, candidates=["knn", KNN(k=3)])
        assert [candidate.name for candidate in again.candidates][16:] == ["knn", "KNN(k=3)"]
        assert detector.diagnose(changed(graph, val_mask=torch.zeros_like(graph.val_mask)), draws=1).trials
        knn, before = (next(c for c in result.candidates if c.name == "knn") for result in (again, found))
        for kind in KINDS:
            assert knn.auroc[kind] == pytest.approx(before.auroc[kind], abs=1e-3)

    def test_nodes_that_trained_are_no_test_nodes(self, detector, graph, found):
        """Nearest to themselves, they made KNN look better than it is."""
        every = changed(graph, test_mask=torch.ones_like(graph.train_mask))
        again = detector.diagnose(every, draws=2, candidates=["knn"])
        apart = changed(graph, test_mask=None)
        assert again.to_dict() == detector.diagnose(apart, draws=2, candidates=["knn"]).to_dict()

    @pytest.mark.parametrize(("method", "base", "default"), [
        (MSP(), "msp", "msp"),
        (Propagated(MSP(), steps=3), "msp", "msp K=3"),
        (GNNSafe(steps=3, alpha=0.7), "energy", "energy K=3 α=0.7"),
        (DiffusedKNN(), "diffused-knn K=0", "diffused-knn K=16"),
        (METHODS["gebm"](), "gebm", "gebm"),
    ])  # fmt: skip
    def test_other_methods_are_diagnosed_with_and_without_propagation(self, detector, graph, method, base, default):
        mine = Detector(detector.classifier.model, method).fit(graph)
        result = mine.diagnose(graph, draws=1, candidates=["msp"])
        assert (result.candidates[0].name, result.default.name) == (base, default)
        assert ("msp" in {candidate.name for candidate in result.candidates[1:]}) == (base != "msp")
        assert torch.equal(
            Detector(detector.classifier.model, result.default.method).fit(graph).score(graph), mine.score(graph)
        )

    @pytest.mark.parametrize("method", [
        GNNSafe(isolated="decay"), Propagated(Fixed(), steps=1, alpha=0.9), DiffusedKNN(2, steps=2), Fixed(),
    ])  # fmt: skip
    def test_what_is_tried_is_what_is_named(self, detector, graph, method):
        outputs = detector.outputs(graph)
        tries, _ = contenders(method.fit(outputs, graph.y, graph.train_mask), (), outputs)
        named = tries.methods()
        for name, scores in tries.scores(outputs).items():
            made = named[name].fit(outputs, graph.y, graph.train_mask)
            torch.testing.assert_close(scores, made.score(outputs))

    def test_without_a_model(self, graph):
        result = Detector(None, "degree").fit(graph).diagnose(graph, draws=1, candidates=["mean-cosine", "energy"])
        assert math.isnan(result.prediction_homophily[0])
        assert result.to_dict()["prediction_homophily"] == [None, None]
        assert list(result.left_out) == ["energy", "new classes"]
        assert "Left out: energy" in str(result)

    def test_what_cannot_be_tried_is_said(self, graph):
        data = graph.clone()
        data.edge_attr = torch.ones(data.edge_index.shape[1])
        torch.manual_seed(0)
        model = GraphSAGE(8, 16, num_layers=2, out_channels=3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GnnsafeWarning)
            forward = lambda model, data: model(data.x, data.edge_index)  # noqa: E731
            detector = Detector(model, "gnnsafe", forward=forward).fit(data)
            result = detector.diagnose(data, draws=1)
        unread = {"knn", "knn K=2", "knn K=8", "mahalanobis", "diffused-knn", "structure"}
        assert unread == set(result.left_out)
        assert "belongs to the edges" in result.left_out["structure"]
        assert all(name.startswith("feature") for name in result.trials["regions"])

    def test_multilabel(self, graph):
        data = graph.clone()
        data.y = torch.nn.functional.one_hot(data.y)
        model = GCN(8, 8, 3)
        train(model, data, objective=CrossEntropy(), epochs=40, task="multilabel")
        result = Detector(model, task="multilabel").fit(data).diagnose(data, draws=1, candidates=["msp"])
        assert result.prediction_homophily[1] > 0.4
        assert result.label_homophily is not None
        assert "multiclass" in result.left_out["new classes"]

    def test_two_classes_leave_no_class_to_take_out(self, graph):
        data = changed(graph, y=(graph.y > 0).long())
        model = GCN(8, 8, 2)
        train(model, data, objective=CrossEntropy(), epochs=40)
        result = Detector(model).fit(data).diagnose(data, draws=1, candidates=[])
        assert "at least 3 classes" in result.left_out["new classes"]
        assert list(result.verdicts) == KINDS[1:]
        assert "All trouble here is planted" in str(result)
        assert "New classes are known ones" not in str(result)  # none was tried

    def test_nodes_whose_label_is_not_known(self, detector, graph):
        data = changed(graph, y=graph.y.where(graph.train_mask, -1))
        assert "new classes" in detector.diagnose(data, draws=1, candidates=[]).left_out

    def test_a_default_device_has_no_say(self, detector, graph):
        with torch.device("meta"):
            ours = detector.diagnose(graph, draws=1, candidates=["knn"])
        assert str(ours) == str(detector.diagnose(graph, draws=1, candidates=["knn"]))

    def test_half_precision(self, graph):
        data = changed(graph, x=graph.x.bfloat16())
        torch.manual_seed(0)
        model = GraphSAGE(8, 16, num_layers=2, out_channels=3).bfloat16()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HeterophilyWarning)
            result = Detector(model, embedding="convs.0").fit(data).diagnose(data, draws=1)
        assert list(result.verdicts) == KINDS

    @pytest.mark.parametrize(("wrong", "message"), [
        ({"draws": 0}, "'draws' must be a whole number >= 1"),
        ({"draws": "3"}, "'draws' must be a whole number >= 1"),
        ({"seed": -1}, "'seed' must be a whole number >= 0"),
        ({"seed": True}, "'seed' must be a whole number >= 0"),
        ({"candidates": ["nonsense"]}, "'candidates' must be one of"),
        ({"candidates": "knn"}, "'candidates' must be a list of methods or their names"),
        ({"candidates": [3]}, "'candidates' must be methods or their names"),
        ({"candidates": None}, "'candidates' must be a list of methods or their names"),
    ])  # fmt: skip
    def test_refused(self, detector, graph, wrong, message):
        with pytest.raises(ValueError, match=message):
            detector.diagnose(graph, **wrong)

    def test_refused_data(self, detector, graph):
        with pytest.raises(ValueError, match="'data' must have x and edge_index"):
            detector.diagnose(None)
        for name, mask, message in (
            ("train_mask", None, "'train_mask' must be given"),
            ("test_mask", torch.arange(len(graph.x)) == 2, r"'test_mask' must hold at least two nodes, .* \(got 1\)"),
            ("val_mask", torch.stack([graph.val_mask] * 3, dim=1), r"'val_mask' must be one mask \(got 3 splits\)"),
        ):
            with pytest.raises(ValueError, match=message):
                detector.diagnose(changed(graph, **{name: mask}), draws=1)
        other = Detector(torch.nn.Identity(), forward=lambda model, data: data, node_type="paper")
        with pytest.raises(ValueError, match="'data' must be one graph with one type of nodes"):
            other.diagnose(HeteroData())


@pytest.fixture(scope="module")
def own(detector, graph):
    return Detector(detector.classifier.model, "two-scale").fit(graph)


@pytest.fixture(scope="module")
def result(own, graph):
    return own.diagnose(graph, draws=1)


class TestTwoScale:
    """As the detector's own method, of which nothing but itself is tried."""

    def test_it_is_tried_once_and_beside_it_energy_with_each_number_of_steps(self, result):
        names = [candidate.name for candidate in result.candidates]
        energies = ["energy", *(f"energy K={steps}" for steps in (1, 2, 4, 8, 16))]
        assert names == ["two-scale", *energies, *OTHERS[1:]]
        assert result.default is result.candidates[0]
        assert result.default.method == TwoScale()
        assert list(result.verdicts) == KINDS

    def test_figures_are_those_of_the_detector_itself(self, own, graph, result):
        mixed = TROUBLE["scattered nodes"]["feature"](graph, 0, share=0.1)
        scores = own.score(mixed)
        figure = metrics.detection(scores[mixed.test_mask], scores[mixed.mask]).auroc
        assert result.default.auroc["scattered nodes"][0] == pytest.approx(figure, abs=1e-6)
        shifted = TROUBLE["whole graph"]["feature"](graph, 0)
        figure = metrics.detection(own.score(graph)[graph.test_mask], own.score(shifted)[shifted.mask]).auroc
        assert result.default.auroc["whole graph"][0] == pytest.approx(figure, abs=1e-6)

    def test_the_graph_that_was_scored_last_has_no_say(self, own, graph, result):
        own.score(TROUBLE["whole graph"]["feature"](graph, 0))
        assert own.diagnose(graph, draws=1).to_dict() == result.to_dict()

    def test_the_names_are_those_of_gnnsafe_and_so_are_the_figures(self, result, detector, graph):
        paper = detector.diagnose(graph, draws=1)
        for name in ("energy", "energy K=2", "energy K=16", "two-scale"):
            mine, its = (next(c for c in each.candidates if c.name == name) for each in (result, paper))
            for kind in KINDS:
                assert mine.auroc[kind] == pytest.approx(its.auroc[kind], abs=1e-6)

    def test_verdicts_in_words(self, result):
        words = " ".join(str(result).split())
        assert "two-scale (as it is)" in words
        for kind in KINDS:
            assert str(result.verdicts[kind]).startswith(f"{kind}: ")
            assert "two-scale as it is: AUROC" in str(result.verdicts[kind])
        assert "two-scale K=" not in words

    def test_without_validation_nodes(self, own, detector, graph):
        """A candidate that cannot be fitted is left out; a fitted one is tried where it need not be fitted again."""
        data = changed(graph, val_mask=None)
        assert "'val_mask' must be given" in detector.diagnose(data, draws=1).left_out["two-scale"]
        result = own.diagnose(data, draws=1, candidates=["energy"])
        assert list(result.verdicts) == KINDS[1:]
        assert "'val_mask' must be given" in result.left_out["new classes, class 0"]

    def test_multilabel(self, graph):
        data = changed(graph, y=torch.nn.functional.one_hot(graph.y))
        model = GCN(8, 8, 3)
        train(model, data, objective=CrossEntropy(), epochs=40, task="multilabel")
        result = (
            Detector(model, "two-scale", task="multilabel").fit(data).diagnose(data, draws=1, candidates=["energy"])
        )
        assert [candidate.name for candidate in result.candidates] == ["two-scale", "energy"]
        assert list(result.verdicts) == KINDS[1:]

    def test_propagated_it_is_any_other_score(self, detector, graph):
        own = Detector(detector.classifier.model, Propagated(TwoScale(), steps=2)).fit(graph)
        result = own.diagnose(graph, draws=1, candidates=[])
        assert (result.candidates[0].name, result.default.name) == ("two-scale", "two-scale K=2")


class TestClassLeftOut:
    def test_a_model_that_is_asked_again_lacks_the_class_too(self, detector, graph):
        """Without edges, with gradients, with an edited embedding, and behind a copy of it all."""
        outputs = detector.outputs(graph)
        without = class_left_out(outputs, 1)
        kept = [0, 2]
        assert torch.equal(without.logits, outputs.logits[:, kept])
        assert torch.equal(without.without_edges.logits, outputs.without_edges.logits[:, kept])
        assert without.again(gradients=True).logits.shape == (120, 2)
        edited = outputs.again(edit=lambda h: h.clamp(max=0.1)).logits[:, kept]
        assert torch.equal(without.again(edit=lambda h: h.clamp(max=0.1)).logits, edited)
        assert torch.equal(without.embeddings, outputs.embeddings)
        assert without.graph.y.unique().tolist() == [-1, 0, 1]
        assert not (without.graph.train_mask & (graph.y == 1)).any()
        assert not (without.graph.val_mask & (graph.y == 1)).any()
        assert graph.y.max() == 2

    @pytest.mark.parametrize("method", [EdgeDisagreement(), ODIN(), ReAct(), Energy()])
    def test_scores_are_those_of_a_model_without_that_output(self, detector, graph, method):
        class Two(torch.nn.Module):
            def __init__(self, model):
                super().__init__()
                self.model = model

            def forward(self, x, edge_index):
                return self.model(x, edge_index)[:, [0, 2]]

        without = class_left_out(detector.outputs(graph), 1)
        own = Outputs.of(Two(detector.classifier.model), without.graph)
        scores = []
        for outputs in (without, own):
            method.fit(outputs, outputs.graph.y, outputs.graph.train_mask)
            scores.append(method.score(outputs))
        assert torch.allclose(*scores, atol=1e-6)

    def test_which_classes(self, detector, graph):
        outputs = detector.outputs(graph)
        assert possible_classes(outputs, graph.test_mask, 0) == ([0, 1, 2], "")
        few = graph.test_mask & ((graph.y == 0) | (torch.arange(120) < 9))
        assert possible_classes(outputs, few, 0)[0] == []
        assert "at least 2 classes with 10 labelled test nodes" in possible_classes(outputs, few, 0)[1]
        unlabelled = detector.outputs(changed(graph, y=graph.y.where(graph.train_mask, -1)))
        assert possible_classes(unlabelled, graph.test_mask, 0)[0] == []


def test_heterophilic_graphs_get_a_warning(graph):
    data = graph.clone()
    source = torch.arange(120).repeat_interleave(4)
    target = (source + 3 * torch.randint(40, source.shape, generator=torch.Generator().manual_seed(0)) + 1) % 120
    data.edge_index = torch.cat([torch.stack([source, target]), torch.stack([target, source])], dim=1)  # other classes
    model = GCN(8, 8, 3)
    train(model, data, objective=CrossEntropy(), epochs=40)
    with pytest.warns(HeterophilyWarning, match="This graph is heterophilic") as warned:
        result = Detector(model).fit(data).diagnose(data, draws=1, candidates=[])
    assert warned[0].filename == __file__
    assert result.heterophilic
    assert result.label_homophily[1] < 0
    assert "This graph is heterophilic" in str(result)


def candidate(name: str, **auroc: list[float]) -> Candidate:
    return Candidate(name, MSP(), auroc)


class TestVerdict:
    usual = candidate("usual", a=[0.70, 0.80, 0.90], b=[0.6, 0.6, 0.6])

    def test_a_clear_winner_is_named_with_its_lead(self):
        better = candidate("better", a=[0.75, 0.85, 0.93])
        found = judge([self.usual, better], self.usual, "a")
        assert found.clear
        assert found.recommended is better
        assert found.lead == (pytest.approx(0.13 / 3), pytest.approx(0.02 / 3 / math.sqrt(3), rel=1e-6, abs=1e-2))
        assert str(found).startswith("a: use better (+4.3 ± 0.7 in 3 trials; usual as it is: AUROC 80.0 ± 5.8)")

    def test_a_lead_within_noise_keeps_the_default(self):
        """+10, +10 and −4 points: in log-odds 0.54, 0.81, −0.38; mean 0.32, error 0.36, t(2) at 95 % 2.92."""
        noisy = candidate("noisy", a=[0.80, 0.90, 0.86])
        found = judge([self.usual, noisy], self.usual, "a")
        assert not found.clear
        assert (found.recommended, found.best) == (self.usual, noisy)
        assert "no clear winner, keep usual as it is" in str(found)
        assert found.to_dict()["lead"] == pytest.approx(0.16 / 3)

    def test_nineteen_in_twenty_are_sure_enough(self):
        """+8, +7 and +4.5 points: in log-odds 0.42, 0.51, 0.65; mean 0.53, error 0.07, of which 2.92 is 0.19."""
        sure = candidate("sure", a=[0.78, 0.87, 0.945])
        assert judge([self.usual, sure], self.usual, "a").recommended is sure
        likely = candidate("likely", a=[0.80, 0.90, 0.88])  # 0.54, 0.81, −0.20: at 80 % it would do
        assert judge([self.usual, likely], self.usual, "a").recommended is self.usual

    def test_nothing_better(self):
        worse = candidate("worse", a=[0.60, 0.70, 0.80])
        found = judge([self.usual, worse], self.usual, "a")
        assert (found.clear, found.best) == (False, self.usual)
        assert str(found) == "a: keep usual as it is: AUROC 80.0 ± 5.8; no candidate finds more"

    def test_odds_count_near_the_ceiling(self):
        """97 → 99 halves the mistakes thrice over; 60 → 62 does not: the larger lead in odds wins."""
        usual = candidate("usual", a=[0.97, 0.97])
        odds = candidate("odds", a=[0.99, 0.99])
        assert judge([usual, odds], usual, "a").recommended is odds
        both = candidate("usual", a=[0.97, 0.60]), candidate("low", a=[0.972, 0.63]), candidate("high", a=[0.99, 0.601])
        assert judge(both, both[0], "a").best is both[2]

    def test_one_trial_proves_nothing(self):
        usual, better = candidate("usual", a=[0.5]), candidate("better", a=[0.9])
        assert judge([usual, better], usual, "a").recommended is usual

    def test_without_knowing_the_trouble_only_who_leads_everywhere_is_named(self):
        split = candidate("split", a=[0.99, 0.99, 0.99], b=[0.59, 0.6, 0.6])
        everywhere = candidate("everywhere", a=[0.72, 0.82, 0.91], b=[0.61, 0.61, 0.61])
        assert overall([self.usual, split], self.usual, ["a", "b"]) == (self.usual, "a")
        assert overall([self.usual, split, everywhere], self.usual, ["a", "b"]) == (everywhere, "b")


def test_progress_is_shown_on_a_terminal_after_a_while(monkeypatch, capsys):
    with progress("Planting shifts", 3) as advance:
        advance()
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    with progress("Planting shifts", 3) as advance:
        advance()
    assert "Planting" not in capsys.readouterr().err
    monkeypatch.setattr("gnnsafe.progress.PATIENCE", 0.0)
    with progress("Planting shifts", 3) as advance:
        advance()
        advance()
    assert "Planting shifts" in capsys.readouterr().err
