from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy.integrate import quad

from gnnsafe.monitoring import Martingale
from gnnsafe.monitoring.martingale import BETS, log_bets


@pytest.mark.parametrize("bet", range(BETS))
def test_every_bet_is_a_density(bet):
    """E f(p) = 1 for a uniform p: else what the gambler owns were no martingale."""

    def at(p: float) -> float:
        return math.exp(log_bets(np.array([p]))[0, bet])

    low, _ = quad(lambda t: at(math.exp(-t)) * math.exp(-t), math.log(2), 34, limit=200)  # p = e^−t, or 1 − e^−t
    high, _ = quad(lambda t: at(1 - math.exp(-t)) * math.exp(-t), math.log(2), 34, limit=200)
    assert 0.99 < low + high < 1 + 1e-6  # below 1e-15 it is cut off


def test_the_first_run_by_hand():
    """Half of the wealth is staked, on all bets alike: M = ½ + ½ · mean_f f(p)."""
    p = 0.2
    small = [e * p ** (e - 1) for e in (0.15, 0.3, 0.5, 0.7, 0.85)]
    large = [e * (1 - p) ** (e - 1) for e in (0.5, 0.85)]
    waves = [1 + c * math.cos(math.pi * p) for c in (0.3, 0.6, 0.95, -0.3, -0.6, -0.95)]
    waves += [1 + c * math.cos(2 * math.pi * p) for c in (0.3, 0.8, -0.3, -0.8)]
    first = Martingale().after(np.array([p]))
    assert math.exp(first.log_value) == pytest.approx(0.5 + 0.5 * np.mean(small + large + waves))
    assert math.exp(first.log_cash) == pytest.approx(1 / 2)
    second = first.after(np.array([p]))
    assert math.exp(second.log_cash) == pytest.approx(1 / 3)
    stakes = np.exp(first.log_stakes) + (1 / 2 - 1 / 3) / BETS
    assert math.exp(second.log_value) == pytest.approx(1 / 3 + float((stakes * np.array(small + large + waves)).sum()))


def test_a_block_counts_as_one_by_its_mean():
    p = np.array([0.1, 0.3, 0.9])
    block = Martingale().after(p, block=True)
    each = [math.exp(Martingale().after(p[[k]]).log_value) for k in range(3)]
    assert math.exp(block.log_value) == pytest.approx(np.mean(each))


def test_the_peak_is_of_every_moment_not_only_of_the_end_of_a_run():
    found = Martingale().after(np.concatenate([np.full(20, 0.001), np.linspace(0.02, 0.98, 300)]))
    assert found.log_peak > 30
    assert found.log_value < found.log_peak - 5


def test_runs_one_after_another_or_continued_from_json_are_the_same():
    rng = np.random.default_rng(0)
    runs = [rng.random(size) for size in (5, 0, 30)]
    through, kept = Martingale(), Martingale()
    for run in runs:
        through = through.after(run)
        kept = Martingale.from_dict(json.loads(json.dumps(kept.after(run).to_dict())))
    assert kept == through
    assert through.runs == 2  # one without nodes is none
    assert through.nodes == 35


def test_calm_streams_hardly_ever_exceed_one_over_alpha():
    """Ville: P(sup M ≥ 20) ≤ 0.05; of 2,000 streams, at most what chance allows."""
    rng = np.random.default_rng(1)
    peaks = []
    for _ in range(2000):
        gambler = Martingale()
        for _ in range(6):
            gambler = gambler.after(rng.random(40))
        peaks.append(gambler.log_peak)
    peaks = np.array(peaks)
    assert np.mean(peaks >= math.log(20)) < 0.05
    assert np.mean(peaks >= math.log(100)) < 0.0125
    assert np.mean(peaks >= math.log(2)) > 0.2  # it is no gambler who never bets


@pytest.mark.parametrize("shift", [lambda p: p**2, lambda p: 1 - (1 - p) ** 2, lambda p: 0.25 + p / 2])
def test_a_late_change_of_any_shape_is_found(shift):
    """Smaller, larger, or nearer to the middle: after 200 calm runs."""
    rng = np.random.default_rng(2)
    gambler = Martingale()
    for _ in range(200):
        gambler = gambler.after(rng.random(50))
    assert gambler.log_peak < math.log(100)
    for _ in range(4):
        gambler = gambler.after(shift(rng.random(50)))
    assert gambler.log_peak > math.log(100)


def test_p_values_of_0_and_1_are_no_end_of_the_world():
    assert math.isfinite(Martingale().after(np.array([0.0, 1.0])).log_value)
