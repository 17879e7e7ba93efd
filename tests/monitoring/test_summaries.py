"""What is kept of one graph, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gnnsafe.calibration import Calibration, KnownClasses
from gnnsafe.detector import Decisions
from gnnsafe.monitoring import estimated_accuracy
from gnnsafe.monitoring.drift import changed_classes, changed_features, flagged_regions, stability, two_sample
from gnnsafe.monitoring.summaries import (
    FeatureMoments,
    FlaggedRegion,
    by_class,
    class_counts,
    degree_summary,
    feature_summary,
    regions,
)


def decisions(p: list[float], flags: list[bool], predicted: list[int] | None = None) -> Decisions:
    classes = None if predicted is None else torch.tensor(predicted)
    return Decisions(
        [f"n{k}" for k in range(len(p))], torch.zeros(len(p)), torch.tensor(p, dtype=torch.float64),
        torch.tensor(flags), classes, None if classes is None else torch.ones(len(p)),
        ("red", "blue") if predicted else None,
    )  # fmt: skip


def test_p_values_by_class():
    decided = decisions([0.05, 0.06, 1.0, 0.001], [True, False, False, True], [0, 0, 1, 1])
    found = by_class(decided)
    assert {name: [k for k, count in enumerate(counts) if count] for name, counts in found.items()} == {
        "red": [0, 1], "blue": [0, 19],
    }  # fmt: skip
    assert class_counts(decided) == {"blue": 2, "red": 2}
    assert class_counts(decisions([0.5], [False])) == {"all": 1}


def test_degrees_of_a_directed_graph_with_loops_and_a_lonely_node(directed):
    found = degree_summary(directed.edge_index, 5)
    assert found["mean"] == 7 / 5
    assert found["quantiles"][-1] == 4  # node 2 hears 1, 3 and itself twice
    assert found["isolated"] == 2  # 3 has no in-neighbours, 4 is alone


@pytest.mark.parametrize("sparse", [False, True])
def test_features(sparse):
    x = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 0.0]])
    found = feature_summary(x.to_sparse_csr() if sparse else x)
    assert found.mean.tolist() == pytest.approx([4 / 3, 0])
    assert found.deviation.tolist() == pytest.approx([np.std([1, 3, 0]), 0])
    assert feature_summary(torch.empty(0, 2)).mean.tolist() == [0, 0]


def test_regions_are_the_nodes_nearest_to_a_centre():
    """Two paths and a lonely node: each linked node is a centre where there are few, the lonely one is nowhere."""
    decided = decisions([0.5] * 5, [True, True, False, False, False])
    found = regions(decided, torch.tensor([[0, 2], [1, 3]]))
    assert sorted((one.centre, one.nodes, one.flagged) for one in found) == [
        ("n0", 1, 1), ("n1", 1, 1), ("n2", 1, 0), ("n3", 1, 0),
    ]  # fmt: skip
    long = torch.stack([torch.arange(99), torch.arange(1, 100)])
    found = regions(decisions([0.5] * 100, [k < 50 for k in range(100)]), long)
    assert len(found) == 24
    assert sum(one.nodes for one in found) == 100
    assert sum(one.flagged for one in found) == 50
    assert regions(decided, torch.empty(2, 0, dtype=torch.long)) == []


def test_what_changed_most():
    before = FeatureMoments(np.array([0.0, 1.0, 5.0], "f4"), np.array([1.0, 2.0, 0.0], "f4"))
    now = FeatureMoments(np.array([0.5, 5.0, 10.0], "f4"), np.array([1.0, 2.0, 0.0], "f4"))
    found = changed_features(before, now, ("a", "b", "c"))
    assert [(one.name, one.size) for one in found] == [("b", 2.0), ("c", 1.0), ("a", 0.5)]
    assert [one.name for one in changed_features(before, now, None, most=1)] == ["1"]
    found = changed_classes({"red": 2, "blue": 2}, {"red": 4, "green": 4})
    assert [(one.name, one.size) for one in found] == [("blue", 0.5), ("green", 0.5)]
    (only,) = flagged_regions([FlaggedRegion("x", 100, 50), FlaggedRegion("y", 100, 5), FlaggedRegion("z", 0, 0)], 0.05)
    assert only.name == "x"
    assert only.size == pytest.approx((50 - 5) / np.sqrt(100 * 0.05 * 0.95))


def test_stability_and_two_samples():
    assert stability([10, 10]) == 0
    a, b = np.array([30.5, 10.5]) / 41, np.array([0.5, 0.5])
    assert stability([30, 10]) == pytest.approx(float(((a - b) * np.log(a / b)).sum()))
    found = two_sample(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2.5, 3.5, 4.5, 5.5]))
    assert found.statistic == pytest.approx(3 / 4)  # at 3: all of three, one of four


def known(probabilities: list[float], right: list[bool]) -> Calibration:
    margins = torch.tensor([0.0 if one else 1.0 for one in right])
    labels = torch.zeros(len(right), dtype=torch.long)
    return Calibration(torch.zeros(len(right)), known=KnownClasses(labels, margins, torch.tensor(probabilities)))


def test_the_accuracy_of_like_confidence_by_hand():
    """20 calibration nodes at 0.5, half of them right, and 20 at 0.9, all right: 1 node at 0.4 and 3 at 0.95."""
    calibration = known([0.5] * 20 + [0.9] * 20, [True, False] * 10 + [True] * 20)
    found = estimated_accuracy(calibration, torch.tensor([0.4, 0.95, 0.95, 0.95, 0.1]), torch.arange(5) == 4)
    assert found.value == pytest.approx((0.5 + 3 * 1.0) / 4)
    assert found.error == pytest.approx(0.25 * np.sqrt(0.5 * 0.5 / 20))
    assert found.nodes == 4


def test_no_estimate_where_nothing_is_known():
    calibration = known([0.5] * 5, [True] * 5)
    nobody = torch.ones(3, dtype=torch.bool)
    assert estimated_accuracy(calibration, torch.ones(3), nobody) is None
    assert estimated_accuracy(calibration, None, ~nobody) is None
    assert estimated_accuracy(Calibration(torch.zeros(5)), torch.ones(3), ~nobody) is None
    assert estimated_accuracy(known([1.0] * 99, [True] * 99), torch.ones(3), ~nobody).value == 1  # all alike
