from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.stats import kstest

from gnnsafe.errors import InputError
from gnnsafe.monitoring import Ranks
from gnnsafe.monitoring.ranks import SLOTS


class Fixed:
    """Random numbers that are always one half, so that values can be worked out by hand."""

    def random(self, count: int) -> np.ndarray:
        return np.full(count, 0.5)


def test_ranks_by_hand():
    """Calibration 1, 2, 3 leaves gaps 1, 1, 1, 1. 2.5 has one gap above: p = (1 + ½) / 4; it then joins them."""
    ranks = Ranks.among(np.array([2.0, 1.0, 3.0]), Fixed())
    p, after = ranks.after(np.array([2.5, 2.6, 9.0]), Fixed())
    assert p.tolist() == [(1 + 0.5 * 1) / 4, (1 + 0.5 * 2) / 5, 0.5 * 1 / 6]
    assert after.gaps.tolist() == [1, 1, 3, 2]
    assert ranks.gaps.tolist() == [1, 1, 1, 1]  # which is left as it was


def test_one_batch_or_many_are_the_same():
    rng = np.random.default_rng(0)
    known, scores = rng.standard_normal(50), rng.standard_normal(1500)  # more than a block
    whole, end = Ranks.among(known, Fixed()).after(scores, Fixed())
    ranks, parts = Ranks.among(known, Fixed()), []
    for part in np.split(scores, [1, 400, 1100]):
        p, ranks = ranks.after(part, Fixed())
        parts.append(p)
        ranks = Ranks.from_dict(json.loads(json.dumps(ranks.to_dict())))
    assert np.concatenate(parts).tolist() == pytest.approx(whole.tolist())
    assert ranks.gaps.tolist() == end.gaps.tolist()


def test_many_calibration_nodes_are_kept_in_few_slots():
    known = np.arange(10_000.0)
    ranks = Ranks.among(known, np.random.default_rng(0))
    assert len(ranks.gaps) <= SLOTS
    assert ranks.gaps.sum() == 10_001
    p, _ = ranks.after(np.array([-1.0, 5000.0, 1e9]), Fixed())
    assert p.tolist() == pytest.approx([1, 0.5, 0], abs=2 / SLOTS)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("count", [10, 3000])
def test_p_values_are_uniform_and_independent_for_all_time(ties, count):
    """Among 10 calibration nodes or 3,000 in 500 slots; the first p-value of a stream and those much later."""
    rng = np.random.default_rng(3)
    draw = (lambda size: rng.integers(0, 3, size).astype(float)) if ties else rng.standard_normal
    streams = []
    for _ in range(400):
        p, _ = Ranks.among(draw(count), rng).after(draw(60), rng)
        streams.append(p)
    streams = np.array(streams)
    assert kstest(streams[:, 0], "uniform").pvalue > 1e-3
    assert kstest(streams[:, -1], "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(streams[:, 0], streams[:, -1])[0, 1]) < 0.2
    assert abs(np.corrcoef(streams.mean(axis=1), streams[:, -1])[0, 1] - 60**-0.5) < 0.2
    # Their means vary as those of independent ones: among a fixed set of 10 nodes they would vary far more.
    assert streams.mean(axis=1).std() == pytest.approx(np.sqrt(1 / 12 / 60), rel=0.15)


def test_a_block_is_not_compared_with_itself_and_one_of_it_joins():
    ranks = Ranks.among(np.array([1.0, 2.0, 3.0]), Fixed())
    p, after = ranks.after(np.array([9.0, 9.1, 0.0]), Fixed(), block=True)
    assert p.tolist() == [0.125, 0.125, 0.875]
    assert after.gaps.tolist() == [1, 1, 1, 2]


def test_scores_that_say_nothing_are_left_out_of_the_calibration():
    assert len(Ranks.among(np.array([1.0, np.nan]), Fixed()).gaps) == 2
    with pytest.raises(InputError, match="at least one score"):
        Ranks.among(np.array([np.nan]), Fixed())
