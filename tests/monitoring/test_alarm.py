from __future__ import annotations

import json
import math

import numpy as np
import pytest

from gnnsafe.errors import InputError
from gnnsafe.monitoring import Alarm


def test_half_of_the_error_rate_is_for_the_whole_and_half_for_its_pieces():
    alarm = Alarm.watching(["all", "a", "b"], np.random.default_rng(0).standard_normal((50, 3)))
    assert [channel.weight for channel in alarm.channels] == [0.5, 0.25, 0.25]
    assert alarm.log_peak == pytest.approx(math.log(0.5))
    assert Alarm.watching(["score"], np.ones((50, 1))).log_value == 0


def test_what_says_nothing_about_known_nodes_is_not_watched():
    known = np.random.default_rng(0).standard_normal((50, 3))
    known[:, 1] = np.nan
    alarm = Alarm.watching(["all", "silent", "b"], known)
    assert [channel.name for channel in alarm.channels] == ["all", "b"]
    later = np.full((30, 3), 9.0)
    assert alarm.after(later).loudest.martingale.nodes == 30


def test_a_piece_alone_raises_it_and_is_named():
    rng = np.random.default_rng(0)
    alarm = Alarm.watching(["all", "a", "b"], rng.standard_normal((300, 3)))
    calm = alarm.after(rng.standard_normal((200, 3)))
    assert not calm.raised(0.01)
    odd = rng.standard_normal((100, 3)) + np.array([0, 0, 2])
    found = calm.after(odd)
    assert found.raised(0.01)
    assert found.loudest.name == "b"
    assert found.nodes == 300


def test_nodes_about_which_a_piece_says_nothing_are_not_counted_by_it():
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((20, 2))
    scores[:5, 1] = np.nan
    found = Alarm.watching(["all", "a"], rng.standard_normal((30, 2))).after(scores)
    assert [channel.martingale.nodes for channel in found.channels] == [20, 15]


def test_the_same_stream_gives_the_same_values_also_continued_from_json():
    rng = np.random.default_rng(0)
    known, runs = rng.standard_normal((40, 2)), [rng.standard_normal((size, 2)) for size in (7, 30, 12)]
    through = kept = Alarm.watching(["all", "a"], known, seed=5)
    for run in runs:
        through = through.after(run)
        kept = Alarm.from_dict(json.loads(json.dumps(kept.to_dict()))).after(run)
    assert kept.to_dict() == through.to_dict()
    other = Alarm.watching(["all", "a"], known, seed=6).after(runs[0])
    assert other.log_value != Alarm.watching(["all", "a"], known, seed=5).after(runs[0]).log_value


def test_calm_streams_of_several_scores_hardly_ever_raise_it():
    """Scores that depend on each other, few calibration nodes, few levels of scores: α = 10 % of 300 streams."""
    rng = np.random.default_rng(4)
    raised = 0
    for _ in range(300):
        alarm = Alarm.watching(["all", "a"], np.repeat(rng.integers(0, 9, (20, 1)), 2, axis=1))
        for _ in range(4):
            alarm = alarm.after(np.repeat(rng.integers(0, 9, (25, 1)), 2, axis=1))
        raised += alarm.raised(0.1)
    assert raised < 0.1 * 300


def test_a_damaged_state_is_refused():
    with pytest.raises(InputError, match="state of an alarm"):
        Alarm.from_dict({"channels": [{}], "seed": 0})
    with pytest.raises(InputError, match="'alpha' must lie in"):
        Alarm.watching(["all"], np.ones((5, 1))).raised(1.0)
