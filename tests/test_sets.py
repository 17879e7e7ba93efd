"""Sets of classes at a stated error: the formula, its promise, and `Detector.predict_sets`."""

from __future__ import annotations

import copy
import math
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import block_graph
from torch import nn

import gnnsafe
from gnnsafe import Detector
from gnnsafe.calibration import Calibration, KnownClasses, class_margins, conformal_p_values, shared_p_values
from gnnsafe.detector import ClassSets
from gnnsafe.detector.decisions import Decisions
from gnnsafe.errors import CalibrationWarning, InputError, MissingExtraError, NotFittedError
from gnnsafe.methods import Degree


def sets_of(scores, logits, y, asked, *, error, by_class=False) -> torch.Tensor:
    """Sets of the nodes in `asked`, all others calibrating."""
    rest, predicted = ~asked, logits.argmax(dim=1)
    known = KnownClasses.of(logits[rest], y[rest])
    classes = {"classes": predicted[rest], "num_classes": logits.shape[1]} if by_class else {}
    calibration = Calibration(scores[rest], known=known, **classes)
    p = calibration.p_values(scores[asked], predicted[asked] if by_class else None)
    return calibration.sets(p, logits[asked], error)


def lacking(scores, logits, y, **how) -> list[bool]:
    """Each node in turn is the new one: whether its set lacks its class."""
    each = torch.arange(len(y))
    return [not sets_of(scores, logits, y, each == node, **how)[0, y[node]] for node in range(len(y))]


class TestFormula:
    def test_margins_by_hand(self):
        assert class_margins(torch.tensor([[2.0, 0.5, 3.0], [1.0, 1.0, 0.0]])).tolist() == [[1, 2.5, 0], [0, 0, 1]]
        far = class_margins(torch.tensor([[3e38, -3e38]]))
        assert far.tolist() == [[0.0, torch.finfo(torch.float32).max]]

    def test_by_hand(self):
        """Four nodes: scores 4, 3, 2, 1 (B = 1, 2, 3, 4), margins 0, 0, 5, 1 (themselves counted: 4, 4, 1, 2)."""
        scores, margins = torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.tensor([0.0, 0.0, 5.0, 1.0])
        known = torch.tensor([1, 2, 3, 4]).double() / 5
        p = conformal_p_values(torch.tensor([0.0, 9.0, 9.0, 0.0, 2.5]), scores)
        assert p.tolist() == [1.0, 0.2, 0.2, 1.0, 0.6]
        # margins 0, 0, 9, 2, 0.5 have Q = 5, 5, 1, 2, 3 fifths; the lesser of both: 5, 1, 1, 2, 3 fifths
        # Q ≤ P (all but the second): Q_j = 5, 5, 2, 3, so min(P_j, Q_j) = 1, 2, 2, 3: 4, 1, 3, 4 of them are as small;
        # P < Q (the second): Q_j = 4, 4, 1, 2, so min = 1, 2, 1, 2: 2 are as small
        shared = shared_p_values(p, torch.tensor([0.0, 0.0, 9.0, 2.0, 0.5]), known, margins)
        assert shared.tolist() == [1.0, 0.6, 0.4, 0.8, 1.0]

    @given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=2, max_size=25))
    def test_never_less_than_the_rank_among_all_and_little_more(self, pairs):
        """The rank that the promise is proved for: of min(P, Q) among n + 1 nodes, with all ranks taken among them."""
        every = torch.tensor(pairs).double()
        above = (every[None] >= every[:, None]).sum(dim=1)  # how many have at least the node's score, and its margin
        least = above.amin(dim=1)
        right = (least <= least[0]).double().mean()
        scores, margins = every[1:].float().T
        known = Calibration(scores).p_values(scores) - 1 / (len(scores) + 1)
        p = conformal_p_values(every[:1, 0].float(), scores)
        ours = shared_p_values(p, every[:1, 1].float(), known - 1e-9, margins)
        assert ours >= right - 1e-12
        if len({s for s, _ in pairs}) == len({a for _, a in pairs}) == len(pairs):
            assert ours <= right + 1 / len(every) + 1e-12

    @pytest.mark.parametrize("by_class", [False, True])
    def test_ranks_say_the_same_in_any_order_of_calibration_nodes(self, by_class):
        generator = torch.Generator().manual_seed(0)
        scores, logits = torch.rand(60, generator=generator), torch.randn(60, 2, generator=generator)
        y, asked = torch.arange(60) % 2, torch.arange(60) < 10
        order = torch.cat([torch.arange(10), 10 + torch.randperm(50, generator=generator)])
        expected = sets_of(scores, logits, y, asked, error=0.2, by_class=by_class)
        again = sets_of(scores[order], logits[order], y[order], asked, error=0.2, by_class=by_class)
        assert torch.equal(again, expected)


class TestPromise:
    @pytest.mark.filterwarnings("ignore::gnnsafe.errors.CalibrationWarning")
    @given(
        st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, 4)), min_size=2, max_size=16),
        st.sampled_from([0.05, 0.1, 0.25, 0.5]),
    )
    def test_at_most_the_stated_share_of_exchangeable_nodes_lacks_its_class(self, nodes, error):
        """Each of n + 1 nodes in turn is the new one, which is all that exchangeable means; ties included."""
        scores, y, margins = torch.tensor(nodes).T
        logits = -torch.nn.functional.one_hot(y, 3).float() * margins[:, None]
        assert sum(lacking(scores.float(), logits, y, error=error)) <= error * len(nodes) + 1e-9

    @pytest.mark.filterwarnings("ignore::gnnsafe.errors.CalibrationWarning")
    @pytest.mark.parametrize("seed", range(3))
    def test_and_in_each_class_by_class(self, seed):
        rng = np.random.default_rng(seed)
        y = torch.from_numpy(rng.integers(2, size=60))
        scores = torch.from_numpy(rng.normal(size=60).astype("f4")) + 2 * y  # one class is odder than the other
        logits = torch.from_numpy(rng.normal(size=(60, 2)).astype("f4"))
        for label in range(2):
            others = y != label
            found = [
                node for node in (~others).nonzero().flatten().tolist()
                if not sets_of(scores, logits, y, torch.arange(60) == node, error=0.1, by_class=True)[0, label]
            ]  # fmt: skip
            assert len(found) <= 0.1 * int((~others).sum())

    @pytest.mark.parametrize("correlation", [0.0, 0.9])
    def test_nearly_all_of_the_error_is_used(self, correlation):
        """Also where odd nodes are the misclassified ones: halves of the error for each would cover far more."""
        rng = np.random.default_rng(0)
        first, noise = rng.normal(size=(2, 200)).astype("f4")
        margins = correlation * first + math.sqrt(1 - correlation**2) * noise
        logits = torch.from_numpy(np.stack([np.minimum(-margins, 0), np.minimum(margins, 0)], axis=1))
        share = np.mean(lacking(torch.from_numpy(first), logits, torch.zeros(200, dtype=torch.long), error=0.1))
        assert 0.085 <= share <= 0.1

    @pytest.mark.parametrize("error", [0.05, 0.1, 0.3])
    def test_coverage_of_new_nodes_over_many_calibration_sets(self, error):
        rng = np.random.default_rng(1)
        lacks, nodes = 0, 200 * 20
        for _ in range(200):
            y = torch.from_numpy(rng.integers(4, size=220))
            logits = torch.from_numpy(rng.normal(size=(220, 4)).astype("f4")) + 2 * nn.functional.one_hot(y, 4)
            scores = torch.from_numpy(rng.normal(size=220).astype("f4")) - logits.amax(dim=1)
            asked = torch.arange(220) < 20
            sets = sets_of(scores, logits, y, asked, error=error)
            lacks += int((~sets[torch.arange(20), y[asked]]).sum())
        # nodes that share a calibration set vary together: 20 of them by about √(1 + 20/200) of a binomial's
        spread = 3 * math.sqrt(error * (1 - error) / nodes * 1.1)
        assert error - 0.01 - spread <= lacks / nodes <= error + spread

    def test_odd_nodes_get_empty_sets_and_unsure_ones_large_sets(self):
        rng = np.random.default_rng(2)
        y = torch.from_numpy(rng.integers(3, size=300))
        logits = torch.from_numpy(rng.normal(size=(300, 3)).astype("f4")) + nn.functional.one_hot(y, 3)
        scores = torch.from_numpy(rng.normal(size=300).astype("f4"))
        logits[0], scores[0] = torch.tensor([9.0, 0.0, 0.0]), 50.0  # sure, and odd
        logits[1], scores[1] = torch.tensor([0.0, 0.1, 0.0]), -1.0  # unsure, and not
        members = sets_of(scores, logits, y, torch.arange(300) < 2, error=0.1)
        assert members.tolist() == [[False] * 3, [True] * 3]


class TestKnownClasses:
    def test_labels_that_are_none_of_the_models(self):
        logits = torch.tensor([[2.0, 0.0], [2.0, 1.0], [0.0, 3.0]])
        known = KnownClasses.of(logits, torch.tensor([1, -1, 5]))
        assert known.labels.tolist() == [1, -1, -1]
        assert known.margins[0] == 2.0
        assert KnownClasses.of(logits, torch.tensor([-1, -1, 2])) is None

    def test_unlabelled_nodes_count_for_the_score_alone(self):
        scores, logits = torch.arange(40.0), torch.zeros(40, 2)
        labels = torch.where(torch.arange(40) % 2 == 0, 0, -1)
        calibration = Calibration(scores, known=KnownClasses.of(logits, labels))
        p = calibration.p_values(torch.tensor([40.0, 0.0]))
        assert p.tolist() == [1 / 41, 1.0]
        assert calibration.sets(p, torch.zeros(2, 2), 0.1).tolist() == [[False, False], [True, True]]

    def test_too_few(self):
        known = KnownClasses.of(torch.zeros(30, 3), torch.arange(30) % 2)
        small = Calibration(torch.arange(30.0), known=known)
        message = r"^30 calibration nodes of known class are too few to leave out any class: at least 99 are"
        with pytest.warns(CalibrationWarning, match=message):
            assert small.sets(torch.full((1,), 1 / 31).double(), torch.zeros(1, 3), 0.02).all()
        by_class = Calibration(torch.arange(30.0), torch.arange(30) % 2, 3, known)
        message = r"^the calibration nodes of class 2 \(0\) are too few for sets by class, so .*: at least 9 are"
        with pytest.warns(CalibrationWarning, match=message):
            assert not by_class.sets(torch.full((1,), 1 / 16).double(), torch.zeros(1, 3), 0.2).any()
        with pytest.warns(CalibrationWarning, match="^30 calibration nodes of known class are too few"):
            assert by_class.sets(torch.full((1,), 1 / 16).double(), torch.zeros(1, 3), 0.02).all()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            small.sets(torch.ones(1).double(), torch.zeros(1, 3), 0.1)

    def test_what_does_not_fit(self):
        known = KnownClasses.of(torch.zeros(3, 2), torch.tensor([0, 1, 1]))
        with pytest.raises(InputError, match=r"^'known' must have 4 labels \(got 3\)$"):
            Calibration(torch.arange(4.0), known=known)
        with pytest.raises(InputError, match=r"^'margins' must be 3 \(got 2\)$"):
            KnownClasses(torch.tensor([0, 1, 1]), torch.zeros(2))
        with pytest.raises(InputError, match="'labels' must be known for a node"):
            KnownClasses(torch.tensor([-1]), torch.zeros(1))
        for error in (0, 1, "a", True, math.nan):
            with pytest.raises(InputError, match=r"^'error' must lie in \(0, 1\)"):
                Calibration(torch.arange(3.0), known=known).sets(torch.ones(1).double(), torch.zeros(1, 2), error)


@pytest.fixture
def detector(blocks):
    torch.manual_seed(0)
    blocks.class_names = ["red", "green", "blue"]
    model = gnnsafe.models.GCN(8, 16, 3)
    gnnsafe.train(model, blocks, objective=gnnsafe.CrossEntropy(), epochs=20)
    return Detector(model).fit(blocks).calibrate(blocks)


class TestDetector:
    @pytest.mark.parametrize("by_class", [False, True])
    def test_as_a_whole_in_batches_and_from_files(self, detector, blocks, tmp_path, by_class):
        detector.calibrate(blocks, by_class=by_class)
        sets = detector.predict_sets(blocks, error=0.2)
        assert sets.members.shape == (120, 3)
        expected = detector.calibration_.sets(detector.p_values(blocks), detector.outputs(blocks).logits, 0.2)
        assert torch.equal(sets.members, expected)
        assert torch.equal(detector.predict_sets(blocks, error=0.2, batch_size=50).members, sets.members)
        detector.save(tmp_path)
        assert torch.equal(gnnsafe.load(tmp_path).predict_sets(blocks, error=0.2).members, sets.members)
        covered = sets.members[torch.arange(120), blocks.y][blocks.test_mask].double().mean()
        assert covered >= 0.8 - 3 * math.sqrt(0.16 / 40 + 0.16 / 50)  # calibration and test nodes both vary

    def test_the_model_runs_once(self, detector, blocks):
        detector = Detector(detector.classifier.model, "gnnsafe").fit(blocks).calibrate(blocks)
        calls = []
        handle = detector.classifier.model.register_forward_hook(lambda *_: calls.append(1))
        detector.predict_sets(blocks)
        handle.remove()
        assert len(calls) == 1

    def test_many_threads(self, detector, blocks):
        graphs = [block_graph(seed=seed) for seed in range(4)]
        alone = [detector.predict_sets(graph).members for graph in graphs]
        with ThreadPoolExecutor(8) as pool:
            found = pool.map(lambda call: detector.predict_sets(graphs[call % 4]).members, range(40))
        assert all(torch.equal(members, alone[call % 4]) for call, members in enumerate(found))

    def test_what_must_be_known(self, detector, blocks):
        for labels in (None, torch.full((120,), -1)):
            data = copy.copy(blocks)
            data.y = labels
            detector.calibrate(data)
            with pytest.raises(InputError, match=r"^'y' must be known for calibration nodes to make sets \(got none\)"):
                detector.predict_sets(blocks)
        with pytest.raises(NotFittedError, match="is not calibrated"):
            Detector(detector.classifier.model).fit(blocks).predict_sets(blocks)
        with pytest.raises(InputError, match=r"^'model' must be a multiclass .* \(got no model\); use predict"):
            Detector(None, Degree()).fit(blocks).calibrate(blocks).predict_sets(blocks)
        blocks.y = nn.functional.one_hot(blocks.y)
        several = Detector(detector.classifier.model, "msp", task="multilabel").fit(blocks).calibrate(blocks)
        with pytest.raises(InputError, match=r"^'model' must be a multiclass one for .* \(got multilabel\)"):
            several.predict_sets(blocks)

    @pytest.mark.parametrize("between", [lambda detector, data: None, Detector.score])
    def test_classes_are_those_of_the_graph_that_calibrates(self, detector, blocks, between):
        """Right after fit, too, when the model does not run again: the graph fitted may have had placeholders."""
        unlabelled = copy.copy(blocks)
        unlabelled.y = torch.where(blocks.train_mask, blocks.y, 0)
        again = Detector(detector.classifier.model).fit(unlabelled)
        between(again, blocks)
        assert torch.equal(again.calibrate(blocks).calibration_.known.labels, blocks.y[blocks.val_mask])
        again = Detector(detector.classifier.model).fit(blocks)
        between(again, blocks)
        unlabelled.y = None
        assert again.calibrate(unlabelled).calibration_.known is None


@pytest.mark.parametrize("mask", [torch.tensor([0, 2]), torch.tensor([0, 1, 1]), torch.tensor([True]), [True] * 3])
def test_what_is_no_mask_selects_nothing(mask):
    """Numbers of nodes would give the sets of some nodes under the ids of others."""
    sets = ClassSets(["a", "b", "c"], torch.eye(3, dtype=torch.bool))
    decisions = Decisions(["a", "b", "c"], *torch.rand(2, 3), torch.ones(3, dtype=torch.bool), None, None)
    for table in (sets, decisions):
        with pytest.raises(InputError, match=r"^'mask' must be a "):
            table.of(mask)
        assert table.of(torch.zeros(3, dtype=torch.bool)).ids == []


class TestResult:
    def test_by_hand(self):
        members = torch.tensor([[True, False, True], [False] * 3, [False, True, False]])
        sets = ClassSets(["a", "b", "c"], members, ("red", "green", "blue"))
        assert sets.sizes.tolist() == [2, 0, 1]
        assert sets.empty.tolist() == [False, True, False]
        assert [sets.names(node) for node in range(3)] == [("red", "blue"), (), ("green",)]
        assert ClassSets(range(3), members).names(0) == (0, 2)
        assert sets.of(torch.tensor([False, True, True])).ids == ["b", "c"]
        table = sets.to_arrow()
        assert table.to_pydict() == {"id": ["a", "b", "c"], "set": [["red", "blue"], [], ["green"]]}
        assert sets.to_pandas().to_dict("list") == table.to_pydict()
        with pytest.raises(InputError, match="'node' must be a node's number"):
            sets.names(3)

    def test_names_are_as_they_were_given(self):
        """In an array of numpy's 2**63 + 1 beside a smaller number would be 2.0**63, and 3 beside a text "3"."""
        members = torch.tensor([[True, True], [False, True]])
        large = ClassSets(range(2), members, (2**63 + 1, 3))
        assert large.names(0) == (2**63 + 1, 3)
        assert large.to_arrow()["set"].to_pylist() == large.to_pandas()["set"].to_list() == [[2**63 + 1, 3], [3]]
        assert [*map(type, ClassSets(range(2), members, ("a", 3)).names(0))] == [str, int]
        for name in (2**70, "a\ud800"):
            with pytest.raises(InputError, match=r"^'set' must be what a column can hold .*data.class_names$"):
                ClassSets(range(2), members, (name, "b" if isinstance(name, str) else 3)).to_arrow()

    def test_no_set_at_all_is_still_a_column_of_names(self):
        column = ClassSets(range(2), torch.zeros(2, 2, dtype=torch.bool), ("red", "green")).to_arrow()["set"]
        assert str(column.type) == "large_list<item: string>"
        assert column.to_pylist() == [[], []]

    def test_what_a_table_needs(self, monkeypatch):
        sets = ClassSets(range(1), torch.ones(1, 2, dtype=torch.bool))
        for package in ("pyarrow", "pandas"):
            monkeypatch.setitem(sys.modules, package, None)
        for table in (sets.to_arrow, sets.to_pandas):
            with pytest.raises(MissingExtraError, match="needs p"):
                table()


def test_the_share_of_empty_sets_is_what_the_score_leaves_out():
    """With a model that is always right all of the error is the score's: p_c is P and the node given away."""
    scores = torch.randn(300, generator=torch.Generator().manual_seed(0))
    y = torch.arange(300) % 3
    members = sets_of(scores, 9.0 * nn.functional.one_hot(y, 3), y, torch.arange(300) < 101, error=0.1)
    p = conformal_p_values(scores[:101], scores[101:])
    assert torch.equal(members.any(dim=1), p + 1 / 200 > 0.1)
