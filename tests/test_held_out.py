"""Nodes that a detector was trained or calibrated on are never taken for held-out ones, nor after a load."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

import gnnsafe
from gnnsafe import Detector
from gnnsafe.errors import CalibrationWarning, NotFittedError
from gnnsafe.graph import changed
from gnnsafe.held_out import KnownNodes
from gnnsafe.models import GCN


@pytest.fixture
def detector(blocks) -> Detector:
    torch.manual_seed(0)
    return Detector(GCN(8, 4, 3)).fit(blocks)


def first(mask: torch.Tensor, count: int) -> torch.Tensor:
    chosen = torch.zeros_like(mask)
    chosen[mask.nonzero().flatten()[:count]] = True
    return chosen


@pytest.mark.parametrize("reloaded", [False, True])
def test_what_is_refused(detector, blocks, tmp_path, reloaded):
    training = blocks.train_mask
    for mask, got in (
        (training, "30 training nodes among 30"),
        (blocks.val_mask | first(training, 3), "3 training nodes among 43"),
    ):
        with pytest.raises(ValueError, match=rf"'mask' must hold held-out nodes alone \(got {got}\)"):
            detector.calibrate(blocks, mask=mask)
    detector.calibrate(blocks)
    if reloaded:
        detector.save(tmp_path)
        detector = gnnsafe.load(tmp_path)
        del blocks.train_mask  # it knows them by itself
    with pytest.raises(ValueError, match=r"got 40 calibration nodes among 40\)"):
        detector.check_calibration(blocks, blocks.val_mask)
    with pytest.raises(ValueError, match=r"got 5 calibration nodes among 55\)"):
        detector.check_calibration(blocks, blocks.test_mask | first(blocks.val_mask, 5))
    with pytest.raises(ValueError, match=r"got 30 training nodes among 30\)"):
        detector.check_calibration(blocks, training)
    with pytest.raises(ValueError, match=r"got 30 training nodes among 30\)"):
        detector.calibrate(blocks, mask=training)
    assert str(detector.check_calibration(blocks, blocks.test_mask)).startswith("50 held-out ID nodes against 40 ")


@pytest.mark.parametrize("reloaded", [False, True])
def test_rates_are_not_checked_on_nodes_that_the_method_has_learnt_from(blocks, tmp_path, reloaded):
    checked, others = first(blocks.test_mask, 25), blocks.test_mask & ~first(blocks.test_mask, 25)
    for method, learns in ((None, True), ("react", True), ("energy", False)):
        detector = Detector(GCN(8, 4, 3), method).fit(blocks).calibrate(blocks, mask=others)
        if reloaded:
            detector.save(tmp_path)
            detector = gnnsafe.load(tmp_path)
        assert detector.check_calibration(blocks, checked).nodes == 25
        if not learns:
            assert detector.check_calibration(blocks, blocks.val_mask).nodes == 40
            continue
        with pytest.raises(ValueError, match=r"alone \(got 40 validation nodes among 40\); give a mask of other"):
            detector.check_calibration(blocks, blocks.val_mask)
        with pytest.raises(ValueError, match=r"got 5 validation nodes among 30\)"):
            detector.check_calibration(blocks, checked | first(blocks.val_mask, 5))


def test_one_mask_for_all(blocks):
    blocks.val_mask = blocks.test_mask = blocks.train_mask
    with pytest.raises(ValueError, match=r"'val_mask' must hold held-out nodes alone \(got 30 training nodes among 30"):
        Detector(GCN(8, 4, 3), "gnnsafe").fit(blocks).calibrate(blocks)
    with pytest.raises(ValueError, match=r"'val_mask' must hold held-out nodes alone"):
        Detector(GCN(8, 4, 3), "react").fit(blocks)  # which learns from them


def test_another_graph_is_judged_by_its_own_training_nodes(detector, blocks):
    new = blocks.clone()
    new.x = blocks.x + 0.01
    detector.calibrate(new, mask=blocks.val_mask)
    with pytest.raises(ValueError, match="30 training nodes"):
        detector.calibrate(new, mask=blocks.train_mask)
    del new.train_mask
    detector.calibrate(new, mask=blocks.train_mask)  # numbers of other nodes, for all that is known


def test_the_nodes_are_remembered_and_not_the_mask(detector, blocks):
    mask = blocks.val_mask.clone()
    detector.calibrate(blocks, mask=mask)
    mask[:] = False
    with pytest.raises(ValueError, match="40 calibration nodes"):
        detector.check_calibration(blocks, blocks.val_mask)


def test_a_graph_is_known_again_in_another_layout_or_precision(detector, blocks):
    plain = Data(x=blocks.x, edge_index=blocks.edge_index)
    for x in (blocks.x.to_sparse_csr(), blocks.x.double().to_sparse_csr(), blocks.x):
        same = Data(x=x.float(), edge_index=blocks.edge_index.int())
        with pytest.raises(ValueError, match=r"'mask' must hold held-out nodes alone \(got \d+ training nodes among"):
            detector.calibrate(same, mask=blocks.train_mask)
    other = Data(x=plain.x + (torch.arange(8) == 5) * 1e-3, edge_index=plain.edge_index)
    assert not KnownNodes.of(other, blocks.train_mask).same_graph(KnownNodes.of(plain, blocks.train_mask))


def test_a_graph_is_known_again_in_another_order_and_with_other_edges(detector, blocks):
    detector.calibrate(blocks)
    order, edges = torch.randperm(len(blocks.x)), blocks.edge_index
    numbers = torch.argsort(order)
    loops = torch.arange(len(blocks.x)).repeat(2, 1)
    graphs = {
        "edges in another order": (blocks.x, edges[:, torch.randperm(edges.shape[1])], slice(None)),
        "with reverse edges": (blocks.x, torch.cat([edges, edges.flip(0)], dim=1), slice(None)),
        "with self-loops": (blocks.x, torch.cat([edges, loops], dim=1), slice(None)),
        "nodes in another order": (blocks.x[order], numbers[edges], order),
    }
    for name, (x, edge_index, places) in graphs.items():
        same = Data(x=x, edge_index=edge_index)
        with pytest.raises(ValueError, match="training nodes among"):
            detector.calibrate(same, mask=blocks.train_mask[places])
        with pytest.raises(ValueError, match="calibration nodes among"):
            detector.check_calibration(same, blocks.val_mask[places])
        assert detector.check_calibration(same, blocks.test_mask[places]).nodes == int(blocks.test_mask.sum()), name


def test_nodes_are_known_again_in_a_graph_that_grew_and_in_a_part_of_it(detector, blocks):
    detector.calibrate(blocks)
    kept = torch.arange(len(blocks.x)) % 3 > 0
    part = blocks.subgraph(kept)
    grown = Data(x=torch.cat([blocks.x, torch.rand(70, 8)]), edge_index=blocks.edge_index)
    for graph, masked in (
        (Data(x=part.x, edge_index=part.edge_index), lambda mask: mask[kept]),
        (grown, lambda mask: nn.functional.pad(mask, (0, 70))),
    ):
        with pytest.raises(ValueError, match="training nodes among"):
            detector.calibrate(graph, mask=masked(blocks.train_mask))
        with pytest.raises(ValueError, match="calibration nodes among"):
            detector.check_calibration(graph, masked(blocks.val_mask))
        test = masked(blocks.test_mask)
        assert detector.check_calibration(graph, test).nodes == int(test.sum())
    fresh = Data(x=torch.rand(70, 8), edge_index=torch.empty(2, 0, dtype=torch.int64))
    assert detector.check_calibration(fresh, torch.ones(70, dtype=torch.bool)).nodes == 70


def test_nodes_are_known_again_where_features_of_others_have_changed(detector, blocks):
    twin, taught = blocks.test_mask.nonzero()[0], blocks.train_mask.nonzero()[1]
    blocks.x[twin] = blocks.x[taught]  # alike, but each in its place
    detector.fit(blocks).calibrate(blocks)
    edited = Data(x=blocks.x.clone(), edge_index=blocks.edge_index)
    edited.x[blocks.train_mask.nonzero()[0]] += 1
    with pytest.raises(ValueError, match="got 29 training nodes among 30"):
        detector.calibrate(edited, mask=blocks.train_mask)
    with pytest.raises(ValueError, match="40 calibration nodes among 90"):
        detector.check_calibration(edited, ~blocks.train_mask)
    assert detector.check_calibration(edited, blocks.test_mask).nodes == 50
    grown = Data(x=torch.cat([blocks.x, torch.rand(70, 8)]), edge_index=blocks.edge_index)
    assert detector.check_calibration(grown, nn.functional.pad(blocks.test_mask, (0, 70))).nodes == 50


def test_graphs_whose_nodes_are_all_alike_are_told_apart_by_their_edges():
    ones, half = torch.ones(4, 2), torch.tensor([True, True, False, False])
    path, star = torch.tensor([[0, 1, 2], [1, 2, 3]]), torch.tensor([[0, 0, 0], [1, 2, 3]])
    known = KnownNodes.of(Data(x=ones, edge_index=path), half)
    assert known.among(KnownNodes.of(Data(x=ones, edge_index=path.flip(1)), half)) == 2
    assert known.among(KnownNodes.of(Data(x=ones, edge_index=star), half)) == 0


def test_how_many_the_method_has_learnt_from(blocks):
    detector = Detector(GCN(8, 4, 3), "react").fit(blocks)
    with pytest.warns(CalibrationWarning, match=r"has learnt from 7 of these 57 nodes"):
        detector.calibrate(blocks, mask=blocks.test_mask | first(blocks.val_mask, 7))


def test_a_fit_that_fails_leaves_nothing_fitted(detector, blocks):
    detector.calibrate(blocks)
    blocks.feature_names = ["one", "two"]
    with pytest.raises(ValueError, match=r"'feature_names' must have 8 names \(got 2\)"):
        detector.fit(blocks)
    del blocks.feature_names
    with pytest.raises(NotFittedError):
        detector.score(blocks)
    with pytest.raises(NotFittedError):
        detector.calibrated()


@pytest.mark.parametrize("label", [-1, 3])
def test_training_nodes_of_a_class_that_the_model_has_not(blocks, label):
    y = blocks.y.where(~first(blocks.train_mask, 1), label)
    with pytest.raises(ValueError, match=r"'y' must lie in 0\.\.2 for training nodes"):
        Detector(GCN(8, 4, 3)).fit(changed(blocks, y=y))


def test_multilabel_without_a_single_one(blocks):
    blocks.y = torch.zeros(120, 3)
    detector = Detector(GCN(8, 4, 3), "energy", task="multilabel").fit(blocks)
    assert detector.explain(blocks, node=0).nearest == ()


class Own(gnnsafe.methods.Energy):
    """A method of your own, which gives what it is told to."""

    base_reach = 0

    def base_scores(self, outputs):
        return self.given(super().base_scores(outputs))


class Edges(nn.Module):
    def forward(self, x, edge_index):
        return x.index_add(0, edge_index[1], x[edge_index[0]])


@pytest.mark.parametrize(("given", "message"), [
    (lambda scores: scores.where(torch.arange(120) != 7, torch.nan), r"must be finite \(got 1 NaN .*first at \[7\]"),
    (lambda scores: scores.double() * 1e300, r"must be finite \(got 120 NaN or infinite"),
    (lambda scores: scores.bfloat16(), r"must be float32 numbers of shape \[120\] \(got torch.bfloat16 \[120\]\)"),
    (lambda scores: scores[:, None], r"\(got torch.float32 \[120, 1\]\)"),
    (lambda scores: scores[1:], r"\(got torch.float32 \[119\]\)"),
    (lambda scores: scores.long(), r"\(got torch.int64 \[120\]\)"),
    (lambda scores: scores.numpy(), r"must be a torch.Tensor \(got ndarray\)"),
    (lambda scores: scores.to_sparse(), r"must be dense \(got torch.sparse_coo\)"),
    (lambda scores: None, r"must be a torch.Tensor \(got NoneType\)"),
])  # fmt: skip
def test_every_score_is_checked_where_it_leaves(blocks, given, message):
    detector = Detector(Edges(), Own()).fit(blocks)
    detector.method.given = lambda scores: scores
    detector.calibrate(blocks)
    detector.method.given = given
    outputs = detector.outputs(blocks)
    method = Own()
    method.given = given
    for use in (
        lambda: detector.score(blocks),
        lambda: detector.calibrate(blocks),
        lambda: detector.p_values(blocks),
        lambda: detector.predict(blocks, false_alarm=0.1),
        lambda: detector.explain(blocks, node=0),
        lambda: detector.score_new(blocks, range(120), hops=1),
        lambda: detector.diagnose(blocks),
        lambda: gnnsafe.methods.Propagated(method).score(outputs),
        lambda: detector.decide(blocks, false_alarm=0.1),
        lambda: gnnsafe.score_logits(outputs.logits, blocks.edge_index, method=method),
    ):
        with pytest.raises(ValueError, match=r"'Own\(temperature=1.0\)\.\w+\(outputs\)' .*" + message):
            use()


def test_double_precision_becomes_float32(blocks):
    detector = Detector(Edges(), Own()).fit(blocks)
    detector.method.given = lambda scores: scores.double().requires_grad_()
    scores = detector.score(blocks)
    assert (scores.dtype, scores.requires_grad) == (torch.float32, False)


@pytest.mark.parametrize("change", ["first node gone", "other order"])
def test_twins_of_training_nodes_in_a_shifted_graph_are_taken_for_them(change):
    """Forty nodes without features, half of them training nodes: places say nothing once all have moved."""
    torch.manual_seed(0)
    node, x, edges = torch.arange(100), torch.rand(100, 8), torch.randint(0, 100, (2, 300))
    x[20:60] = 0
    data = Data(x=x, edge_index=edges, y=node % 3, train_mask=(node < 59) & (node % 2 == 0), val_mask=node >= 80)
    detector = gnnsafe.Detector(GCN(8, 8, 3), "gnnsafe").fit(data).calibrate(data)
    order = node[1:] if change == "first node gone" else torch.randperm(100)
    place = torch.full((100,), -1).scatter(0, order, torch.arange(len(order)))
    kept = (place[edges] >= 0).all(dim=0)
    new = Data(x=x[order], edge_index=place[edges[:, kept]])
    with pytest.raises(ValueError, match="training nodes among"):
        detector.check_calibration(new, (data.train_mask & (x == 0).all(dim=1))[order])
