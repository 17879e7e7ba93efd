from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from gnnsafe import metrics
from gnnsafe.metrics import Detection, accuracy, detection, threshold

SCORES = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, 1e-9, -3.0, 7.5]), min_size=1, max_size=60)


def scikit_learn(id_scores, ood_scores) -> Detection:
    scores = np.concatenate([id_scores, ood_scores])
    is_ood = np.arange(len(scores)) >= len(id_scores)

    def fpr95(positive, score):
        fpr, tpr, _ = roc_curve(positive, score, drop_intermediate=False)
        return fpr[np.argmax(tpr >= 0.95)]

    return Detection(
        auroc=roc_auc_score(is_ood, scores),
        aupr_in=average_precision_score(~is_ood, -scores),
        aupr_out=average_precision_score(is_ood, scores),
        fpr95=fpr95(~is_ood, -scores),
        fpr95_out=fpr95(is_ood, scores),
    )


@given(SCORES, SCORES)
def test_equal_to_scikit_learn_with_ties(id_scores, ood_scores):
    actual, expected = detection(id_scores, ood_scores), scikit_learn(id_scores, ood_scores)
    np.testing.assert_allclose(actual, expected, atol=1e-9, rtol=0)


@pytest.mark.parametrize("size", [20, 1000, 2708])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equal_to_scikit_learn_at_size(size, dtype):
    rng = np.random.default_rng(size)
    id_scores = rng.normal(size=size).astype(dtype)
    ood_scores = rng.normal(0.7, 2, size=2 * size + 1).astype(dtype).round(2)
    np.testing.assert_allclose(detection(id_scores, ood_scores), scikit_learn(id_scores, ood_scores), atol=1e-9, rtol=0)


def test_by_hand():
    # ID 1 2 3 | OOD 2 4: of six pairs OOD wins 4, ties 1 → 4.5/6
    result = detection([1.0, 2.0, 3.0], [2.0, 4.0])
    assert result.auroc == pytest.approx(0.75)
    # accepting from below: at 1 precision 1/1, at 2 2/3, at 3 3/4, each for a third of ID
    assert result.aupr_in == pytest.approx((1 + 2 / 3 + 3 / 4) / 3)
    # flagging from above: at 4 precision 1/1, at 2 2/4, each for half of OOD
    assert result.aupr_out == pytest.approx((1 + 1 / 2) / 2)
    assert result.fpr95 == 0.5  # all ID are accepted at 3, which accepts one OOD node of two
    assert result.fpr95_out == pytest.approx(2 / 3)  # both OOD are flagged at 2, with two of three ID nodes


def test_perfect_and_reversed_scores():
    assert detection([0.0, 1.0], [2.0, 3.0]) == (1.0, 1.0, 1.0, 0.0, 0.0)
    assert detection([2.0, 3.0], [0.0, 1.0]).auroc == 0.0
    assert detection([1.0], [1.0]) == (0.5, 0.5, 0.5, 1.0, 1.0)


def test_tensors_arrays_and_lists_are_the_same():
    id_scores, ood_scores = torch.tensor([0.1, 0.5], requires_grad=True), torch.tensor([0.3, 0.9])
    expected = detection(id_scores, ood_scores)
    assert detection(id_scores.detach().numpy(), ood_scores.numpy()) == expected
    assert detection(id_scores.tolist(), ood_scores.double()) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("id_scores", "ood_scores", "message"),
    [
        ([], [1.0], r"'id_scores' must hold at least one score \(got none\)"),
        ([1.0], torch.empty(0), r"'ood_scores' must hold at least one score \(got none\)"),
        ([1.0, float("nan")], [1.0], r"'id_scores' must be finite \(got 1 NaN or infinite\)"),
        ([1.0], [float("inf")], r"'ood_scores' must be finite"),
        ([[1.0]], [1.0], r"'id_scores' must be one score per node, of shape \[nodes\] \(got \[1, 1\]\)"),
        ([True], [1.0], r"'id_scores' must be real numbers \(got bool\)"),
        (["a"], [1.0], r"'id_scores' must be real numbers"),
        ([[1.0], [1.0, 2.0]], [1.0], r"'id_scores' must be one score per node"),
        (torch.ones(3).to_sparse(), [1.0], r"'id_scores' must be dense"),
    ],
)
def test_bad_scores(id_scores, ood_scores, message):
    with pytest.raises(ValueError, match=message):
        detection(id_scores, ood_scores)


@given(SCORES, st.floats(0.01, 1))
def test_threshold_accepts_the_share_and_no_lower_score_does(scores, recall):
    tau = threshold(scores, recall=recall)
    assert np.mean(np.array(scores) <= tau) >= recall
    assert np.mean(np.array(scores) < tau) < recall


def test_threshold_is_where_fpr95_is_read():
    rng = np.random.default_rng(0)
    id_scores, ood_scores = rng.normal(size=200), rng.normal(1, 1, size=300)
    assert np.mean(ood_scores <= threshold(id_scores)) == detection(id_scores, ood_scores).fpr95


def test_bad_recall():
    with pytest.raises(ValueError, match=r"'recall' must lie in \(0, 1\] \(got 0\)"):
        threshold([1.0], recall=0)


def test_bfloat16_scores():
    assert detection(torch.tensor([0.0], dtype=torch.bfloat16), torch.tensor([1.0], dtype=torch.bfloat16)).auroc == 1.0


@pytest.mark.parametrize("y", [torch.zeros(4, 1, dtype=torch.int64), torch.zeros(3, dtype=torch.int64), torch.eye(4)])
def test_accuracy_refuses_labels_that_would_broadcast(y):
    with pytest.raises(ValueError, match=r"'y' must be an int64 tensor of shape \[4\]"):
        accuracy(torch.rand(4, 2), y, torch.ones(4, dtype=torch.bool))


def test_accuracy_counts_masked_nodes_only():
    logits = torch.tensor([[2.0, 1.0], [0.0, 3.0], [5.0, 0.0], [0.0, 1.0]])
    y = torch.tensor([0, 1, 1, -1])
    assert accuracy(logits, y, torch.tensor([True, True, True, False])) == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="'mask' must hold at least one node"):
        accuracy(logits, y, torch.zeros(4, dtype=torch.bool))


FLOATS = st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-40, -1e-40, -3.0, -3.0000002, 7.5]) | st.floats(-9, 9, width=32)


@given(st.lists(FLOATS, min_size=1, max_size=40), st.lists(FLOATS, min_size=1, max_size=40))
def test_float32_scores_are_ordered_as_the_same_in_float64(id_scores, ood_scores):
    """They take another way: ties, negative scores and both zeros included."""
    parts = np.array(id_scores, dtype=np.float32), np.array(ood_scores, dtype=np.float32)
    assert detection(*parts) == detection(*(part.astype(np.float64) for part in parts))


class TestWithinGroups:
    """AUROC among pairs of one group."""

    def test_by_hand(self):
        # group 0: 2 > 1; group 1: 6 > 5 and 0 < 5; group 2 has no ID node
        found = metrics.auroc_within([1.0, 5.0], [2.0, 6.0, 0.0, 9.0], [0, 1], [0, 1, 1, 2])
        assert found == pytest.approx(2 / 3)
        assert metrics.auroc_within([1.0, 1.0], [1.0], [0, 0], [0]) == 0.5
        assert metrics.auroc_within([1.0], [2.0], [0], [1]) is None

    def test_it_is_the_mean_over_groups_by_their_pairs(self):
        rng = np.random.default_rng(0)
        scores, groups = rng.integers(0, 5, 300) / 5, rng.integers(0, 7, 300)
        outside = rng.random(300) < 0.3
        wins = pairs = 0.0
        for group in range(7):
            inside, beyond = (scores[(groups == group) & kind] for kind in (~outside, outside))
            wins += metrics.detection(inside, beyond).auroc * len(inside) * len(beyond)
            pairs += len(inside) * len(beyond)
        found = metrics.auroc_within(scores[~outside], scores[outside], groups[~outside], groups[outside])
        assert found == pytest.approx(wins / pairs)
        alone = metrics.auroc_within(
            scores[~outside], scores[outside], np.zeros((~outside).sum()), np.zeros(outside.sum())
        )
        assert alone == pytest.approx(metrics.detection(scores[~outside], scores[outside]).auroc)

    def test_a_group_for_each_score(self):
        for groups in (([0], [0, 1]), ([0, 1], [0]), ([0, 1, 0], [0]), ([[0], [0]], [0, 1])):
            with pytest.raises(ValueError, match="_groups' must be one for each of 2 scores"):
                metrics.auroc_within([1.0, 3.0], [2.0, 4.0], *groups)
