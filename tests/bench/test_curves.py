from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import auc, roc_curve

from gnnsafe.bench.curves import KEPT, ROC, Curves
from gnnsafe.metrics import detection


def curves(inside, outside, right=None) -> Curves:
    inside, outside = np.asarray(inside, "f4"), np.asarray(outside, "f4")
    return Curves.of(inside, outside, np.ones(len(inside), bool) if right is None else np.asarray(right))


def test_by_hand():
    """ID 1 2 3 4, OOD 3 5: no OOD node is accepted up to score 2, one at 3 (tied with an ID node), both at 5."""
    found = curves([1, 2, 3, 4], [3, 5], [True, True, False, True])
    at = dict(zip(ROC.round(2), found.roc, strict=True))
    assert (at[0.0], at[0.24], at[0.5], at[1.0]) == (0.5, 0.62, 1.0, 1.0)
    kept = dict(zip(KEPT.round(2), found.accuracy, strict=True))
    assert (kept[0.05], kept[0.25], kept[0.5], kept[0.55], kept[0.75], kept[1.0]) == (1, 1, 1, 0.6667, 0.6667, 0.75)
    assert found.threshold == 4.0


def test_equal_scores_are_kept_together():
    found = curves([0, 0, 0, 1], [2], [True, False, False, True])
    assert found.accuracy[0] == pytest.approx(1 / 3, abs=1e-4)
    assert found.accuracy[-1] == 0.5


@pytest.mark.parametrize("values", [400, 7])
def test_roc_is_that_of_scikit_learn(values):
    rng = np.random.default_rng(values)
    inside, outside = rng.integers(0, values, 300), rng.integers(values // 4, values + values // 4, 200)
    found = curves(inside, outside)
    accepted, detected, _ = roc_curve(
        [1] * 300 + [0] * 200, -np.concatenate([inside, outside]), drop_intermediate=False
    )
    assert found.roc == pytest.approx(np.interp(ROC, accepted, detected), abs=1e-4)
    assert auc(ROC, found.roc) == pytest.approx(detection(inside, outside).auroc, abs=0.01)


def test_histogram_shares_sum_to_one_and_beyond_the_span_lies_in_the_last_bins():
    found = curves([*range(1000), 10**6], [*range(500)])
    assert sum(found.id_shares) == pytest.approx(1, abs=5e-3)
    assert sum(found.ood_shares) == pytest.approx(1, abs=5e-3)
    assert found.span[1] < 1000
    same = curves([1, 1], [1])
    assert sum(same.id_shares) == sum(same.ood_shares) == 1.0
