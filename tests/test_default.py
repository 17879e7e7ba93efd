"""The method of a detector for which none was named: TwoScale, or the most of it that can be fitted."""

from __future__ import annotations

import copy
import re
import warnings
from dataclasses import replace

import pytest
import torch
from tests.conftest import block_graph
from torch import nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import GraphSAGE

import gnnsafe
from gnnsafe import Detector
from gnnsafe.errors import InputError, MethodWarning
from gnnsafe.methods import (
    CentredCosine,
    DegreeBalance,
    DiffusedKNN,
    Energy,
    FeatureDistance,
    GNNSafe,
    Mahalanobis,
    OutOfPlace,
    Propagated,
    TwoScale,
)
from gnnsafe.models import GCN

WITHOUT_A_SECOND_FORWARD = TwoScale(unlike=(CentredCosine(), DegreeBalance(), FeatureDistance()))


class NeedsEdges(nn.Module):
    """Cannot be asked about nodes that stand alone, and says so in its own way."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.conv, self.error = GraphSAGE(8, 16, num_layers=2, out_channels=3), error

    def forward(self, x, edge_index):
        if edge_index.shape[1] == 0:
            raise self.error
        return self.conv(x, edge_index)


def left_over(detector: Detector, data) -> str:
    """What the one warning says."""
    with pytest.warns(MethodWarning) as warned:
        detector.fit(data)
    assert len(warned) == 1
    assert warned[0].filename == __file__
    return str(warned[0].message)


@pytest.mark.parametrize("model", [lambda: GCN(8, 16, 3), lambda: GraphSAGE(8, 16, num_layers=2, out_channels=3)])
def test_two_scale_unless_told(model, blocks, tmp_path):
    """No warning at all, with calibration on the validation nodes that it has learnt from."""
    model = model()
    detector = Detector(model).fit(blocks).calibrate(blocks)
    assert detector.method == TwoScale()
    named = Detector(model, "two-scale").fit(blocks)
    assert torch.equal(detector.score(blocks), named.score(blocks))
    assert torch.equal(detector.calibration_.scores, named.method.known_scores().float())
    detector.save(tmp_path)
    again = gnnsafe.load(tmp_path, model)
    assert again.method == TwoScale()
    assert torch.equal(again.score(blocks), detector.score(blocks))


def test_calibration_does_not_ask_what_was_scored_before(blocks):
    """Each validation node's score by the weights of the graph that calibrates, which sets of classes compare with."""
    model, other = GCN(8, 16, 3), block_graph(seed=5)
    other.x += 2
    at_once, later = Detector(model).fit(blocks), Detector(model).fit(blocks)
    later.score(other)
    assert not torch.equal(later.method.deciding_, at_once.method.deciding_)
    for detector in (at_once, later):
        detector.calibrate(blocks)
    assert torch.equal(later.calibration_.scores, at_once.calibration_.scores)


@pytest.mark.parametrize("method", ["two-scale", "gnnsafe"])
@pytest.mark.parametrize(
    "ask",
    [
        lambda detector, data: detector.p_values(data),
        lambda detector, data: detector.predict(data, false_alarm=0.05),
        lambda detector, data: detector.decide(data, fdr=0.5, batch_size=30),
        lambda detector, data: detector.predict_sets(data),
    ],
)
def test_p_values_that_leave_out_what_makes_a_graph_odd_say_so(blocks, ask, method):
    """A graph of which half was odd by itself to a detector that knows calmer nodes; GNNSafe's compare scores."""
    detector = Detector(GCN(8, 16, 3), method).fit(blocks).calibrate(blocks)
    known = detector.calibration_
    calmer = known if known.watched is None else replace(known, watched=known.watched - 100)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for detector.calibration_ in (known, calmer):
            ask(detector, blocks)
    said = [one for one in caught if "odder by their own evidence" in str(one.message)]
    assert [one.filename for one in said] == [__file__] * (method == "two-scale")


def test_batches_and_new_nodes(blocks):
    """In batches by the same weights; parts of a graph by those of the graph that was scored last as a whole."""
    detector = Detector(GCN(8, 16, 3)).fit(blocks).calibrate(blocks)
    whole = detector.score(blocks)
    torch.testing.assert_close(detector.score(blocks, batch_size=50), whole)
    nodes, scores = detector.score_new(blocks, [3, 7], touched=False)
    torch.testing.assert_close(scores, whole[nodes])
    other = block_graph(seed=5)
    other.x += 2
    detector.score(other)
    assert not torch.allclose(detector.score_new(blocks, [3, 7], touched=False).scores, whole[nodes])


def mask(blocks, count: int) -> torch.Tensor:
    held_out = torch.zeros(120, dtype=torch.bool)
    held_out[blocks.val_mask.nonzero().flatten()[:count]] = True
    return held_out


@pytest.mark.parametrize(("val_mask", "reason"), [
    (lambda blocks: None, r"'val_mask' must be given \(got none\); set data.val_mask"),
    (lambda blocks: mask(blocks, 0), r"'val_mask' must (select|hold|contain|have).* at least one node"),
    (lambda blocks: mask(blocks, 19), r"hold at least 20 nodes, no training node among them \(got 19 nodes, 0 of"),
    (lambda blocks: blocks.train_mask, r"hold at least 20 nodes, no training .* \(got 30 nodes, 30 of training\)"),
    (lambda blocks: blocks.val_mask[:, None].repeat(1, 10), r"'val_mask' must be one mask \(got 10 splits\)"),
])  # fmt: skip
def test_without_validation_nodes_the_papers(val_mask, reason, blocks, tmp_path):
    blocks.val_mask = val_mask(blocks)
    detector = Detector(GCN(8, 16, 3))
    said = left_over(detector, blocks)
    assert re.search(reason, said)
    assert said.startswith("TwoScale, the default method, cannot be fitted ('val_mask' must ")
    assert said.endswith("): GNNSafe takes its place; to choose one yourself, name it, such as 'gnnsafe'")
    assert repr(detector) == f"Detector(GCN, {GNNSafe()!r})"
    assert torch.equal(detector.score(blocks), Detector(detector.classifier.model, "gnnsafe").fit(blocks).score(blocks))
    detector.save(tmp_path)
    assert gnnsafe.load(tmp_path).method == GNNSafe()


def test_twenty_validation_nodes_are_enough(blocks):
    blocks.val_mask = mask(blocks, 20)
    assert Detector(GCN(8, 16, 3)).fit(blocks).method == TwoScale()


@pytest.mark.parametrize(("error", "reason"), [
    (RuntimeError("no\nedges"), r"RuntimeError: no\nedges"), (InputError("'x' must …"), "'x' must …"),
    (KeyError(3), "KeyError: 3"), (ZeroDivisionError(), "ZeroDivisionError: "),
])  # fmt: skip
def test_a_model_that_needs_edges(error, reason, blocks, tmp_path):
    detector = Detector(NeedsEdges(error))
    assert f"({reason}): TwoScale without OutOfPlace takes its place; " in left_over(detector, blocks)
    assert detector.method == WITHOUT_A_SECOND_FORWARD
    scores = detector.calibrate(blocks).score(blocks)
    detector.save(tmp_path)
    assert torch.equal(gnnsafe.load(tmp_path, detector.classifier.model).score(blocks), scores)


def test_a_forward_that_needs_edges(blocks):
    def forward(model, data):
        assert data.edge_index.max() > 0  # an error of torch's own where there are none
        return model(data.x, data.edge_index)

    detector = Detector(GCN(8, 16, 3), forward=forward)
    assert "TwoScale without OutOfPlace takes" in left_over(detector, blocks)
    assert detector.method == WITHOUT_A_SECOND_FORWARD


def test_features_without_cosines(blocks, monkeypatch):
    def refuse(self, outputs, y, mask):
        raise TypeError("no numbers")

    monkeypatch.setattr(CentredCosine, "fit", refuse)
    detector = Detector(GCN(8, 16, 3))
    assert "(TypeError: no numbers): TwoScale without CentredCosine takes" in left_over(detector, blocks)
    assert detector.method.unlike == (OutOfPlace(), OutOfPlace("embedding"), DegreeBalance(), FeatureDistance())
    detector = Detector(NeedsEdges(RuntimeError("no edges")))
    assert "(RuntimeError: no edges): TwoScale without OutOfPlace and CentredCosine" in left_over(detector, blocks)
    assert torch.isfinite(detector.score(blocks)).all()


def test_log_probabilities_have_no_energy(blocks):
    model = GCN(8, 16, 3)
    detector = Detector(model, forward=lambda model, data: model(data.x, data.edge_index).log_softmax(dim=1))
    assert "or use MSP): TwoScale without Energy and Propagated(Energy) takes its" in left_over(detector, blocks)
    assert Energy() not in detector.method.parts()
    assert detector.method.surroundings[0] == Propagated(Mahalanobis(), 16)
    assert torch.isfinite(detector.score(blocks)).all()


def test_the_papers_where_a_kind_of_evidence_has_no_part_left(blocks, monkeypatch):
    def refuse(self, *_):
        raise RuntimeError("none")

    for part in (DiffusedKNN, Energy):
        monkeypatch.setattr(part, "fit", refuse)
    detector = Detector(GCN(8, 16, 3))
    assert "(RuntimeError: none): GNNSafe takes" in left_over(detector, blocks)
    assert detector.method == GNNSafe()


def test_the_papers_where_no_part_is_to_blame(blocks, monkeypatch):
    def refuse(self, *_):
        raise MemoryError

    monkeypatch.setattr(TwoScale, "for_graph", refuse)
    detector = Detector(GCN(8, 16, 3))
    assert "(MemoryError: ): GNNSafe takes" in left_over(detector, blocks)


def test_what_is_named_is_an_error_in_one_line(blocks):
    with pytest.raises(RuntimeError, match="no edges"):
        Detector(NeedsEdges(RuntimeError("no edges")), "two-scale").fit(blocks)
    del blocks.val_mask
    for method in ("two-scale", TwoScale()):
        with pytest.raises(InputError, match=r"^'val_mask' must be given \(got none\); set data.val_mask.*$"):
            Detector(GCN(8, 16, 3), method).fit(blocks)


def test_what_is_wrong_for_every_method_is_an_error_and_no_warning(blocks):
    blocks.y = blocks.y + 1
    with pytest.raises(InputError, match="'y' must"):
        Detector(GCN(8, 16, 3)).fit(blocks)


def test_the_next_fit_decides_anew_and_what_is_set_stays(blocks):
    bare = copy.copy(blocks)
    del bare.val_mask
    detector = Detector(GCN(8, 16, 3))
    left_over(detector, bare)
    assert detector.fit(blocks).method == TwoScale()
    left_over(detector, bare)
    assert detector.method == GNNSafe()
    detector.method = GNNSafe(steps=3)
    assert detector.fit(blocks).method == GNNSafe(steps=3)


def test_warnings_as_errors_stop_it(blocks):
    """They do not make it fall back further."""
    with pytest.raises(MethodWarning, match="TwoScale without OutOfPlace"):
        Detector(NeedsEdges(RuntimeError("no edges"))).fit(blocks)


def test_multilabel(blocks):
    blocks.y = nn.functional.one_hot(blocks.y)
    detector = Detector(GCN(8, 16, 3), task="multilabel").fit(blocks).calibrate(blocks)
    assert detector.method == TwoScale()
    assert torch.isfinite(detector.score(blocks)).all()


def test_one_type_of_nodes(blocks):
    library = HeteroData()
    for name in ("x", "y", "train_mask", "val_mask"):
        library["paper"][name] = blocks[name]
    library["paper", "cites", "paper"].edge_index = blocks.edge_index
    model = GCN(8, 16, 3)

    def forward(model, data):
        return model(data["paper"].x, data["paper", "cites", "paper"].edge_index)

    detector = Detector(model, forward=forward, node_type="paper").fit(library).calibrate(library)
    assert detector.method == TwoScale()
    alone = Detector(model, forward=lambda model, data: model(data.x, data.edge_index)).fit(blocks)
    torch.testing.assert_close(detector.score(library), alone.score(blocks))


def test_no_model_no_default(blocks):
    with pytest.raises(InputError, match=r"'model' must be a torch.nn.Module \(got NoneType\)"):
        Detector(None)
