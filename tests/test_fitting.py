from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from tests.conftest import block_graph
from torch_geometric.data import Data

import gnnsafe
from gnnsafe import cli
from gnnsafe.errors import CalibrationWarning, HeterophilyWarning, TrainingWarning
from gnnsafe.fitting import fit_detector
from gnnsafe.fitting.advice import _majority, one_way
from gnnsafe.fitting.classes import known_classes


def texts(fitted, kind) -> list[str]:
    return [str(warning) for warning in fitted.warnings if type(warning) is kind]


def large(**changes) -> Data:
    """A graph of 600 nodes that nothing speaks against."""
    data = block_graph(600)
    for name, value in changes.items():
        setattr(data, name, value)
    return data


class TestAdvice:
    def test_nothing_speaks_against_a_good_detector(self):
        fitted = fit_detector(large(), epochs=150)
        assert [text for text in map(str, fitted.warnings) if "best epoch" not in text] == []
        assert fitted.rates["test"].accuracy > 0.9

    def test_no_better_than_the_majority(self):
        generator = torch.Generator().manual_seed(0)
        y = (torch.rand(600, generator=generator) < 0.2).long()  # labels that nothing tells
        fitted = fit_detector(large(y=y), epochs=20, backbone="mlp")
        (text,) = [text for text in texts(fitted, TrainingWarning) if "always saying" in text]
        rate = float((y == 0)[fitted.data.val_mask].double().mean())
        assert f"no better than always saying '0' ({rate:.1%}): its scores say little;" in text
        assert fitted.rates["val"].majority == pytest.approx(rate)
        assert 0.3 < fitted.rates["test"].balanced < 0.7

    def test_still_learning(self):
        assert "the best epoch is the last of 2: the model was still learning; try --epochs 4" in texts(
            fit_detector(large(), epochs=2), TrainingWarning
        )

    def test_one_way_edges(self):
        data = large()
        data.edge_index = data.edge_index[:, data.edge_index[0] < data.edge_index[1]]
        data.edge_index = data.edge_index[:, data.edge_index[1] % 3 > 0]
        (text,) = [text for text in texts(fit_detector(data, epochs=2), TrainingWarning) if "one-way" in text]
        assert text.startswith("edges look one-way: 0% have a reverse, and 28% of the nodes point")
        assert text.endswith("where a link means the same both ways, use --undirected")

    def test_too_few_calibration_nodes(self):
        data = large()
        for count, told in ((18, "at 5% of false alarms (19 are needed) or at 1%"), (19, "at 1% of"), (99, None)):
            data.val_mask = torch.zeros(600, dtype=torch.bool)
            data.val_mask[(~data.train_mask & ~data.test_mask).nonzero().flatten()[:count]] = True
            found = texts(fit_detector(data, method="gnnsafe", epochs=1), CalibrationWarning)
            assert len(found) == (told is not None)
            assert told is None or f"{count} calibration nodes are too few to ever flag a node {told}" in found[0]

    def test_a_heterophilous_graph_is_told_what_suits_it(self):
        data = large()
        others = torch.randint(600, (2, 3000), generator=torch.Generator().manual_seed(0))
        data.edge_index = others[:, data.y[others[0]] != data.y[others[1]]]
        fitted = fit_detector(data, epochs=40)
        (text,) = texts(fitted, HeterophilyWarning)
        assert "(0% of edges join nodes of one class, -0." in text
        assert {one.backbone for one in fitted.tried} == {"gcn", "graphsage", "mlp"}
        best = max(fitted.tried, key=lambda one: one.accuracy)
        assert best.backbone != "gcn"
        assert text.endswith(f"use --backbone {best.backbone}")
        chosen = fit_detector(data, epochs=40, backbone="auto")
        assert chosen.trained.backbone == best.backbone
        assert texts(chosen, HeterophilyWarning)[0].endswith(f"{best.backbone} suits it best")

    def test_masks_that_share_nodes_are_refused_before_training(self):
        for one, other in (("train_mask", "val_mask"), ("train_mask", "test_mask"), ("val_mask", "test_mask")):
            data = large()
            data[other][data[one].nonzero()[:3]] = True
            with pytest.raises(ValueError, match=rf"'{other}' must share no node with {one} \(got 3 in both\)"):
                fit_detector(data, begin=pytest.fail)

    def test_backbones_that_tie_are_not_told_apart(self):
        y = (torch.rand(600, generator=torch.Generator().manual_seed(0)) < 0.2).long()  # labels that nothing tells
        for backbone in ("gcn", "mlp"):
            fitted = fit_detector(large(x=torch.ones(600, 8), y=y), epochs=5, method="gnnsafe", backbone=backbone)
            assert len({one.accuracy for one in fitted.tried}) == 1
            assert texts(fitted, HeterophilyWarning)[0].endswith(f": none is better than {backbone}")


def test_shares_of_one_way_edges_by_hand():
    # 0→1 twice and 1→0, 2→0, 3→3: of 0→1, 1→0, 2→0 two have a reverse; of four nodes 2 has no in-neighbours, 3 is alone
    reciprocal, without_incoming = one_way(torch.tensor([[0, 0, 1, 2, 3], [1, 1, 0, 0, 3]]), 4)
    assert (reciprocal, without_incoming) == (pytest.approx(2 / 3), 0.25)
    assert one_way(torch.empty(2, 0, dtype=torch.int64), 4) == (1.0, 0.0)


class TestScales:
    """Issue 13: a CSV with 98 % accuracy fell to chance by one column times 1e6 and another plus 1e9."""

    def test_accuracy_does_not_hang_on_the_columns_units(self):
        data = large()
        data.x[:, 4:] = torch.rand(600, 4, generator=torch.Generator().manual_seed(1))
        before = fit_detector(data, epochs=40, backbone="mlp").rates["test"].accuracy
        moved = data.clone()
        moved.x[:, 5] *= 1e6
        moved.x[:, 6] += 1e9
        after = fit_detector(moved, epochs=40, backbone="mlp").rates["test"].accuracy
        unscaled = fit_detector(moved, epochs=40, backbone="mlp", scale="none")
        assert before > 0.85
        assert after > before - 0.03
        assert unscaled.rates["test"].accuracy < 0.5
        assert any("no better than always" in str(warning) for warning in unscaled.warnings)


class TestSplits:
    def test_by_time_the_oldest_train_and_the_latest_test(self):
        data = block_graph()
        data.timestamp = torch.arange(120).flip(0) // 10
        data.y[:20] = -1
        split = known_classes(data, 0, by_time=True)
        assert [int(split[name].sum()) for name in ("train_mask", "val_mask", "test_mask")] == [60, 20, 20]
        times = [data.timestamp[split[name]] for name in ("train_mask", "val_mask", "test_mask")]
        assert times[0].max() <= times[1].min()
        assert times[1].max() <= times[2].min()
        assert not split.train_mask[:20].any()

    def test_time_is_needed_for_it(self):
        with pytest.raises(ValueError, match=r"'timestamp' must be given to split by time \(got none\); add a column"):
            known_classes(block_graph(), 0, by_time=True)

    def test_without_test_nodes_nothing_is_checked(self, tmp_path, capsys):
        data = block_graph()
        del data.test_mask
        torch.save(data.to_dict(), tmp_path / "graph.pt")
        assert cli.main(["train", str(tmp_path / "graph.pt"), "--out", str(tmp_path / "d"), "--epochs", "2"]) == 0
        out = capsys.readouterr().out
        assert "split: 30 train, 40 val, 0 test\n" in out
        assert "no held-out test nodes: whether stated false-alarm rates hold was not checked\n" in out
        assert gnnsafe.load(tmp_path / "d").calibrated()

    def test_a_method_that_needs_test_nodes_says_so(self):
        data = block_graph()
        del data.test_mask
        with pytest.raises(
            ValueError, match=r"'test_mask' must hold nodes to fit or calibrate Consensus.* with \(got none\)"
        ):
            fit_detector(data, method="consensus", epochs=1)


def test_few_validation_nodes_tell_little():
    """Five of six right where the largest class is one of them: it was said to be no better than that."""
    y = torch.tensor([0, 1, 2, 1, 2, 0, 0, 1, 2, 1, 2, 1])
    train = torch.arange(12) < 6
    data = SimpleNamespace(y=y, train_mask=train, val_mask=~train, class_names=("a", "b", "c"))
    predicted = torch.where(torch.arange(12) == 7, 0, y)
    (warning,) = _majority(predicted, data)
    assert str(warning).startswith(
        "the model is right on 83.3% of 6 validation nodes: too few to tell that it is better"
    )
