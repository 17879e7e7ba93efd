"""Tensors stay on their device: what is computed there is what the CPU gives, and comes back there."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.second_device import other_devices
from torch_geometric.data import HeteroData

from gnnsafe import metrics, prepare
from gnnsafe.calibration import Calibration, CalibrationCheck
from gnnsafe.checks import check_nodes
from gnnsafe.datasets import shifts
from gnnsafe.devices import on_device
from gnnsafe.held_out import UsedNodes
from gnnsafe.hetero import node_type_graph
from gnnsafe.homophily import label_homophily, score_homophily
from gnnsafe.regions import region
from gnnsafe.scaling import FeatureScaling

pytestmark = other_devices


def moved(value: Any, device: str) -> Any:
    """All tensors in it on the device."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {name: moved(one, device) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [moved(one, device) for one in value]
    if isinstance(value, SimpleNamespace):
        return SimpleNamespace(**moved(vars(value), device))
    return copy.copy(value).to(device) if hasattr(value, "to_dict") else value  # PyG moves in place


def assert_same(ours: Any, expected: Any, device: str) -> None:
    """The same numbers, and all tensors on the device."""
    if isinstance(expected, torch.Tensor):
        assert ours.device.type == device
        assert ours.layout == expected.layout
        torch.testing.assert_close(ours.cpu().to_dense(), expected.to_dense(), rtol=1e-5, atol=1e-5, equal_nan=True)
    elif isinstance(expected, dict | list | tuple):
        pairs = expected.items() if isinstance(expected, dict) else enumerate(expected)
        assert len(ours) == len(expected)
        for key, one in pairs:
            assert_same(ours[key], one, device)
    elif hasattr(expected, "to_dict") and hasattr(expected, "edge_index"):
        assert_same(ours.to_dict(), expected.to_dict(), device)
    else:
        assert ours == pytest.approx(expected)


SHIFTS = {
    "feature": lambda data: shifts.feature(data, 0),
    "gaussian": lambda data: shifts.feature_noise(data, 0, test_nodes="id-test"),
    "bernoulli": lambda data: shifts.feature_noise(words(data), 0, kind="bernoulli"),
    "sparse": lambda data: shifts.feature(sparse(data), 0),
    "structure": lambda data: shifts.structure(data, 0),
    "rewire": lambda data: shifts.rewire(data, 0),
    "perturb": lambda data: shifts.perturb_edges(data, 0, rate=0.5),
    "planted": lambda data: shifts.planted(data, 0),
    "planted, sparse": lambda data: shifts.planted(sparse(data), 0),
    "planted edges": lambda data: shifts.planted(data, 0, kind="structure", clustered=True),
    "label": lambda data: shifts.label(data, ood={1}, exposure={2}),
    "domain": lambda data: shifts.domain(data, data, {"other": data}),
    "time": lambda data: shifts.time(data, 2000 + data.y, id=2000, exposure=(2001, 2001), ood=[(2002, 2002)]),
}


def words(data: Any) -> Any:
    data = copy.copy(data)
    data.x = (data.x > 0.7).float()
    return data


def sparse(data: Any) -> Any:
    data = copy.copy(data)
    data.x = (data.x * (data.x > 0.7)).to_sparse_csr()
    return data


@pytest.mark.parametrize("name", SHIFTS)
def test_shifts(name, blocks, device):
    assert_same(SHIFTS[name](moved(blocks, device)), SHIFTS[name](blocks), device)


@pytest.mark.parametrize("by_class", [False, True])
def test_p_values_and_flags_are_where_the_scores_are(by_class, device):
    torch.manual_seed(0)
    known, new, classes = torch.randn(300), 2 * torch.randn(80), torch.arange(300) % 2
    cpu = Calibration(known, classes, 2) if by_class else Calibration(known)
    ours = Calibration(known.to(device), classes.to(device), 2) if by_class else Calibration(known.to(device))
    assert ours.scores.device.type == "cpu"
    own = classes[:80] if by_class else None
    for options in ({}, {"seed": 1}, {"tail": "extrapolated"}):
        expected = cpu.p_values(new, own, **options)
        p = ours.p_values(new.to(device), None if own is None else own.to(device), **options)
        assert_same(p, expected, device)
    mask = torch.arange(80) < 50
    for options in ({"false_alarm": 0.2}, {"fdr": 0.2}, {"fdr": 0.2, "storey": True}, {"fdr": 0.2, "mask": mask}):
        assert_same(ours.decisions(p, **options), cpu.decisions(expected, **options), device)
    assert str(CalibrationCheck.of(p, ours)) == str(CalibrationCheck.of(expected, cpu))


def test_what_was_fitted_is_brought_there_from_dictionaries_too(device):
    held = {"by class": [torch.ones(2)], "name": "mean"}
    there = on_device(held, torch.device(device))
    assert there["by class"][0].device.type == device
    assert there["name"] == "mean"
    assert on_device(held, torch.device("cpu")) is held


def test_metrics_take_any_device(blocks, device):
    torch.manual_seed(0)
    logits, (a, b) = torch.randn(120, 3), torch.randn(2, 50)
    assert metrics.detection(a.to(device), b) == metrics.detection(a, b)
    groups, others = torch.arange(len(a)) % 3, torch.arange(len(b)) % 3
    found = metrics.auroc_within(a.to(device), b.to(device), groups.to(device), others.to(device))
    assert found == metrics.auroc_within(a, b, groups, others)
    for measure in (metrics.accuracy, metrics.balanced_accuracy):
        expected = measure(logits, blocks.y, blocks.test_mask)
        assert measure(logits.to(device), blocks.y, blocks.test_mask) == pytest.approx(expected)
        assert measure(logits.to(device), blocks.y.to(device), blocks.test_mask.to(device)) == pytest.approx(expected)
    rate = metrics.majority_rate(blocks.y, blocks.train_mask, blocks.val_mask)
    assert metrics.majority_rate(blocks.y.to(device), blocks.train_mask, blocks.val_mask) == rate


@pytest.mark.parametrize("scale", ["standard", "rows"])
@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_features_are_scaled_where_they_are(scale, layout, blocks, device):
    data = sparse(blocks) if layout == "sparse" else blocks
    expected = FeatureScaling.fit(data.x, data.train_mask, scale)(data.x)
    scaling = FeatureScaling.fit(data.x.to(device), data.train_mask, scale)
    assert scaling.factor.device.type == "cpu"
    assert_same(scaling(data.x.to(device)), expected, device)


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_parts_of_a_graph(layout, blocks, device):
    data = sparse(blocks) if layout == "sparse" else blocks
    nodes = check_nodes("nodes", [5, 7], 120)
    expected = region(prepare(data), nodes, 2)
    ours = region(prepare(moved(data, device)), nodes.to(device), 2)
    assert_same(list(ours), list(expected), device)


def test_homophily(blocks, device):
    ours, scores = moved(blocks, device), blocks.x[:, 0]
    expected = label_homophily(blocks.y, blocks.train_mask, blocks.edge_index)
    assert label_homophily(ours.y, blocks.train_mask, ours.edge_index) == pytest.approx(expected)
    expected = score_homophily(scores, blocks.edge_index)
    assert score_homophily(scores.to(device), ours.edge_index) == pytest.approx(expected)


def test_nodes_are_known_again_on_another_device(blocks, device):
    blocks, ours = prepare(blocks), prepare(moved(blocks, device))
    used = UsedNodes.of(blocks, blocks.train_mask, blocks.val_mask)
    assert used.not_trained_on("mask", ours, ours.test_mask).among(used.taught) == 0
    with pytest.raises(ValueError, match="30 training nodes"):
        used.unseen("mask", ours, ours.train_mask)
    assert all(mask.device.type == "cpu" for mask in UsedNodes.of(ours, ours.train_mask, None).masks.values())


@pytest.mark.parametrize("edges", [[("a", "to", "a")], []])
def test_a_node_type_as_a_graph(edges, device):
    whole = HeteroData({"a": {"x": torch.ones(3, 2)}, ("a", "to", "a"): {"edge_index": torch.tensor([[0, 1], [1, 2]])}})
    expected = node_type_graph(whole, "a", edges).edge_index
    assert_same(node_type_graph(whole.to(device), "a", edges).edge_index, expected, device)
