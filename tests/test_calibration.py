from __future__ import annotations

import json
import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gnnsafe.calibration import (
    Calibration,
    CalibrationCheck,
    conformal_p_values,
    extrapolated_p_values,
    false_alarms,
    false_discoveries,
    id_share,
    nodes_needed,
)
from gnnsafe.errors import CalibrationWarning

whole_scores = st.lists(st.integers(-3, 3), min_size=1, max_size=30).map(lambda values: torch.tensor(values).float())


def test_p_values_by_hand():
    calibration = torch.tensor([3.0, 1.0, 2.0, 2.0])
    # ≥ 0: all four; ≥ 1: four; ≥ 2: three; ≥ 2.5: one; ≥ 3: one; ≥ 9: none
    p = conformal_p_values(torch.tensor([0.0, 1.0, 2.0, 2.5, 3.0, 9.0]), calibration)
    assert p.dtype == torch.float64
    assert p.tolist() == [1.0, 1.0, 0.8, 0.4, 0.4, 0.2]


@given(whole_scores, whole_scores, st.integers(-2, 2), st.one_of(st.none(), st.integers(0, 9)))
def test_the_last_bits_decide_nothing(scores, calibration, bits, seed):
    """Nodes that are all alike had other p-values in another batch: 0.03 where they were 0.3."""
    other, far = scores, torch.tensor(math.copysign(math.inf, bits))
    for _ in range(abs(bits)):
        other = torch.nextafter(other, far)
    other = torch.where(scores == 0, scores, other)
    expected = conformal_p_values(scores, calibration, seed=seed)
    assert torch.equal(conformal_p_values(other, calibration, seed=seed), expected)


@given(whole_scores, whole_scores)
def test_p_values_are_counts(scores, calibration):
    expected = [(1 + sum(c >= s for c in calibration.tolist())) / (len(calibration) + 1) for s in scores.tolist()]
    assert conformal_p_values(scores, calibration).tolist() == expected


@given(whole_scores, whole_scores, st.integers(0, 9))
def test_ties_broken_at_random_lie_between_the_counts(scores, calibration, seed):
    p = conformal_p_values(scores, calibration, seed=seed)
    above = torch.tensor([float((calibration > s).sum()) for s in scores]).double()
    assert (p <= conformal_p_values(scores, calibration)).all()
    assert (p * (len(calibration) + 1) >= above).all()
    assert torch.equal(p, conformal_p_values(scores, calibration, seed=seed))


def test_randomised_p_values_of_exchangeable_nodes_are_uniform_even_with_ties():
    rng = np.random.default_rng(0)
    p = []
    for seed in range(400):
        scores = torch.from_numpy(rng.integers(3, size=20).astype(np.float32))
        p.append(float(conformal_p_values(scores[:1], scores[1:], seed=seed)))
    assert stats.kstest(p, "uniform").pvalue > 0.01


def test_exactly_the_stated_share_of_exchangeable_nodes_is_flagged():
    """Without ties each of n + 1 nodes in turn is the new one: exactly ⌊α(n+1)⌋ of them are flagged."""
    scores = torch.randperm(20).float()
    for level, expected in ((0.05, 1), (0.1, 2), (0.049, 0), (0.149, 2), (0.15, 3)):
        others = [torch.cat([scores[:i], scores[i + 1 :]]) for i in range(20)]
        flags = [bool(false_alarms(conformal_p_values(scores[i : i + 1], others[i]), level)) for i in range(20)]
        assert sum(flags) == expected


@given(whole_scores, whole_scores, st.sampled_from([0.01, 0.05, 0.1, 0.25, 0.29, 0.5, 0.9]))
def test_thresholds_say_what_p_values_say(scores, calibration, level):
    flags = false_alarms(conformal_p_values(scores, calibration), level)
    assert torch.equal(flags, scores > Calibration(calibration).thresholds(level))


def test_thresholds_by_hand():
    calibration = Calibration(torch.arange(1.0, 20.0))  # 19 nodes
    assert calibration.thresholds(0.05).tolist() == [19.0]
    assert calibration.thresholds(0.1).tolist() == [18.0]
    assert calibration.thresholds(0.04).tolist() == [math.inf]


def test_benjamini_and_hochberg_by_hand():
    p = torch.tensor([0.001, 0.008, 0.039, 0.041, 0.042, 0.06, 0.074, 0.205, 0.212, 0.216], dtype=torch.float64)
    # p_(i) ≤ 0.05 i / 10 for the largest i: 0.001 ≤ 0.005, 0.008 ≤ 0.01, 0.039 > 0.015, …
    assert false_discoveries(p, 0.05).tolist() == [True, True] + [False] * 8
    assert false_discoveries(p.flip(0), 0.05).tolist() == [False] * 8 + [True, True]
    # a later one lifts those before it: 0.074 ≤ 0.11 · 7 / 10
    assert false_discoveries(p, 0.11).sum() == 7


def test_false_discoveries_are_as_few_as_stated():
    rng = np.random.default_rng(0)
    shares = []
    for _ in range(200):
        calibration = torch.from_numpy(rng.normal(size=500))
        scores = torch.from_numpy(np.concatenate([rng.normal(size=160), rng.normal(4, 1, size=40)]))
        flags = false_discoveries(conformal_p_values(scores, calibration), 0.1)
        shares.append(float(flags[:160].sum() / flags.sum().clamp(min=1)))
    error = np.std(shares) / np.sqrt(len(shares))
    assert np.mean(shares) == pytest.approx(0.08, abs=4 * error)  # π₀ · 10 %, and more than none


def test_by_class_each_class_has_its_own_calibration():
    calibration = Calibration(torch.tensor([1.0, 2.0, 10.0]), torch.tensor([0, 0, 1]), num_classes=3)
    p = calibration.p_values(torch.tensor([5.0, 5.0, 5.0]), torch.tensor([0, 1, 2]))
    assert p.tolist() == [1 / 3, 1.0, 1.0]  # class 2 has no calibration node: nothing is rare there
    assert calibration.counts().tolist() == [2, 1, 0]
    assert calibration.thresholds(0.5).tolist() == [2.0, 10.0, math.inf]
    random = calibration.p_values(torch.tensor([5.0, 5.0, 5.0]), torch.tensor([0, 1, 2]), seed=0)
    assert (random <= p).all()
    assert len(set(random.tolist())) == 3


@pytest.mark.parametrize(("level", "needed"), [(0.05, 19), (0.01, 99), (0.1, 9), (0.5, 1), (0.03, 33), (0.07, 14)])
def test_nodes_needed(level, needed):
    assert nodes_needed(level) == needed
    assert 1 / (needed + 1) <= level < 1 / needed


def test_too_few_calibration_nodes():
    p = torch.full((50,), 0.1, dtype=torch.float64)
    small = Calibration(torch.arange(9.0))
    with pytest.warns(CalibrationWarning, match=r"^9 calibration nodes are too few .*=0.05: at least 19 are needed$"):
        assert not small.decisions(p, false_alarm=0.05).any()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert small.decisions(torch.cat([p[:5], torch.ones(45).double()]), false_alarm=0.1).sum() == 5
        Calibration(torch.arange(19.0)).decisions(p, false_alarm=0.05)


def test_too_few_calibration_nodes_of_a_class():
    calibration = Calibration(torch.arange(30.0), torch.tensor([0] * 20 + [1] * 10), num_classes=3)
    with pytest.warns(CalibrationWarning, match=r"^the calibration nodes of class 1 \(10\), 2 \(0\) are too few"):
        calibration.decisions(torch.ones(3, dtype=torch.float64), false_alarm=0.05)


def test_too_few_calibration_nodes_for_discoveries():
    calibration = Calibration(torch.arange(99.0))
    p = calibration.p_values(torch.cat([torch.zeros(990), torch.full((10,), 100.0)]))  # ten beyond them all
    # each of them has p = 1/100; 10 of 1,000 at 10 % need p ≤ 0.001
    with pytest.warns(
        CalibrationWarning, match=r"99 .* any of 1000 nodes at fdr=0.1, though 10 .* at least 999 are"
    ) as said:
        assert not calibration.decisions(p, fdr=0.1).any()
    assert "extend the tail" not in str(said[0].message)  # from which 99 are too few
    larger = Calibration(torch.arange(999.0))
    scores = torch.cat([torch.zeros(990), torch.full((10,), 1000.0)])
    assert larger.decisions(larger.p_values(scores), fdr=0.1).sum() == 10
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # none lies beyond: nothing to tell
        assert not calibration.decisions(torch.ones(1000, dtype=torch.float64), fdr=0.1).any()


@pytest.mark.parametrize("levels", [{}, {"false_alarm": 0.1, "fdr": 0.1}])
def test_one_level(levels):
    with pytest.raises(ValueError, match="'false_alarm' must be given, or fdr, but not both"):
        Calibration(torch.ones(3)).decisions(torch.ones(3).double(), **levels)


@pytest.mark.parametrize("level", [0, 1, -0.1, "a", True, math.nan])
def test_levels_are_shares(level):
    for name in ("false_alarm", "fdr"):
        with pytest.raises(ValueError, match=rf"'{name}' must lie in \(0, 1\)"):
            Calibration(torch.ones(3)).decisions(torch.ones(3).double(), **{name: level})
    for levels in ((), level, (level,)):
        with pytest.raises(ValueError, match="'levels' must"):
            CalibrationCheck.of(torch.ones(3).double(), Calibration(torch.ones(3)), levels)


@pytest.mark.parametrize("classes", [None, torch.tensor([0, 1, 1])])
def test_seeds_are_whole_numbers_of_64_bits(classes):
    calibration = Calibration(torch.ones(3), classes, 2)
    assert len(calibration.p_values(torch.ones(3), classes, seed=2**64 - 1)) == 3
    for seed in (True, 2**64, -1, 0.5):
        with pytest.raises(ValueError, match=rf"'seed' must .*\(got {seed}\)"):
            calibration.p_values(torch.ones(3), classes, seed=seed)


class TestExtrapolated:
    def test_by_hand(self):
        # 100 nodes: 0 up to 89, and ten excesses of 1, 2, …, 10 over u = 89
        calibration = torch.cat([torch.arange(90.0), 89 + torch.arange(1.0, 11.0)])
        p = extrapolated_p_values(torch.tensor([89.0, 89.0 + 5.5, 89.0 + 55.0]), calibration)
        # their mean is 5.5; weighted it is 5.5 − (385 − 0.35 · 55) / 100 = 1.8425, and ξ = 2 − 5.5 / 1.815 < 0
        assert p.tolist() == pytest.approx([12 / 101, 11 / 101 * math.exp(-1), 11 / 101 * math.exp(-10)])

    def test_a_heavier_tail_by_hand(self):
        excess = torch.tensor([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 21.0])
        calibration = torch.cat([torch.zeros(90), excess])
        weighted = sum((1 - (i - 0.35) / 10) * x for i, x in enumerate(excess.tolist(), 1)) / 10
        shape = 2 - 3 / (3 - 2 * weighted)
        scale = 2 * 3 * weighted / (3 - 2 * weighted)
        assert shape == pytest.approx(0.4127, abs=1e-4)
        (p,) = extrapolated_p_values(torch.tensor([100.0]), calibration).tolist()
        assert p == pytest.approx(11 / 101 * (1 + shape * 100 / scale) ** (-1 / shape))

    @given(whole_scores, whole_scores)
    def test_few_nodes_are_left_exact(self, scores, calibration):
        assert torch.equal(extrapolated_p_values(scores, calibration), conformal_p_values(scores, calibration))

    @given(st.integers(0, 9), st.integers(100, 300), st.sampled_from([1.0, 3.0, 1e-3]))
    def test_order_is_kept_and_nothing_is_beyond_a_p_value(self, seed, count, width):
        rng = np.random.default_rng(seed)
        calibration = torch.from_numpy((rng.standard_t(3, count) * width).round(1).astype(np.float32))
        scores = torch.linspace(-30, 1e6, 200)
        p = extrapolated_p_values(scores, calibration)
        assert (p.diff() <= 1e-12).all()
        assert ((p >= 0) & (p <= 1)).all()
        assert not extrapolated_p_values(scores, torch.ones(count)).isnan().any()

    @pytest.mark.parametrize(
        ("draw", "low", "high"),
        [
            ("normal", 0.0, 0.0012),
            ("exponential", 0.0005, 0.0015),
            ("lognormal", 0.0, 0.0025),
            ("standard_cauchy", 0.0012, 0.006),
        ],
    )
    def test_error_rates_of_known_distributions(self, draw, low, high):
        """0.001 asked: kept by light tails, nearly by heavier ones, broken by Cauchy's, which has no mean."""
        rng = np.random.default_rng(0)
        rates = []
        for _ in range(40):
            calibration, scores = (torch.from_numpy(getattr(rng, draw)(size=size)) for size in (500, 5000))
            rates.append(float((extrapolated_p_values(scores, calibration) <= 0.001).double().mean()))
        assert low <= np.mean(rates) <= high

    def test_it_finds_what_exact_p_values_cannot(self):
        rng = np.random.default_rng(0)
        calibration = Calibration(torch.from_numpy(rng.normal(size=500)))
        scores = torch.from_numpy(np.concatenate([rng.normal(size=4980), np.full(20, 9.0)]))
        with pytest.warns(CalibrationWarning, match="decide about fewer nodes .* extend the tail .* or estimate"):
            assert not calibration.decisions(calibration.p_values(scores), fdr=0.1).any()
        with pytest.warns(
            CalibrationWarning, match=r"extend the tail .* extrapolated\)$"
        ):  # what is done is not advised
            assert not calibration.decisions(calibration.p_values(scores), fdr=0.1, storey=True).any()
        flags = calibration.decisions(calibration.p_values(scores, tail="extrapolated"), fdr=0.1)
        assert flags[4980:].all()
        assert flags.sum() <= 24

    def test_no_count_of_calibration_nodes_is_too_small_for_an_extended_tail(self):
        """Nothing is flagged, and no warning (an error in the tests) asks for more nodes or for what was done."""
        calibration = Calibration(torch.arange(100.0))
        p = calibration.p_values(torch.cat([torch.arange(99.0).repeat(20), torch.tensor([106.0])]), tail="extrapolated")
        assert 0.001 < float(p[-1]) < 1 / 101
        assert not calibration.decisions(p, fdr=0.01).any()
        assert not calibration.decisions(p, false_alarm=0.001).any()

    def test_no_seed_with_it(self):
        calibration = Calibration(torch.arange(100.0))
        with pytest.raises(ValueError, match="'seed' must be left out with tail='extrapolated'"):
            calibration.p_values(torch.ones(3), seed=0, tail="extrapolated")
        with pytest.raises(ValueError, match="'tail' must be one of exact, extrapolated"):
            calibration.p_values(torch.ones(3), tail="long")


class TestStorey:
    def test_share_by_hand(self):
        p = torch.tensor([0.01] * 6 + [0.6, 0.7, 0.8] + [0.2]).double()
        assert id_share(p) == pytest.approx((1 + 3) / 5)
        assert id_share(torch.ones(10).double()) == 1.0

    def test_flags_by_hand(self):
        p = torch.tensor([0.02, 0.03, 0.04, 0.06, 0.07, 0.08, 0.1, 0.3, 0.6, 0.9]).double()
        # adjusted p of the seventh: 0.1 · 10 / 7 = 0.143; of the eighth 0.375; ID share (1 + 2) / 5 = 0.6
        assert false_discoveries(p, 0.1).sum() == 0
        assert false_discoveries(p, 0.1, storey=True).sum() == 7
        assert false_discoveries(torch.full((50,), 0.49).double(), 0.5, storey=True).all()
        assert not false_discoveries(
            torch.cat([torch.full((99,), 1e-4), torch.tensor([0.9])]).double(), 0.9, storey=True
        )[-1]

    def test_false_discoveries_are_as_few_as_stated(self):
        rng = np.random.default_rng(0)
        shares, found = [], []
        for _ in range(200):
            calibration = torch.from_numpy(rng.normal(size=500))
            scores = torch.from_numpy(np.concatenate([rng.normal(size=80), rng.normal(3, 1, size=120)]))
            flags = false_discoveries(conformal_p_values(scores, calibration), 0.1, storey=True)
            shares.append(float(flags[:80].sum() / flags.sum().clamp(min=1)))
            found.append(int(flags.sum()))
        assert 0.06 < np.mean(shares) < 0.105  # nearly all of the 10 %; without the estimate it would be 4 %


class TestSubset:
    def test_only_those_asked_about_count(self):
        calibration = Calibration(torch.arange(99.0))
        p = calibration.p_values(torch.cat([torch.zeros(990), torch.full((10,), 100.0)]))
        mask = torch.arange(1000) >= 900  # ten of a hundred: p ≤ 0.01 is enough
        flags = calibration.decisions(p, fdr=0.1, mask=mask)
        assert flags.nonzero().flatten().tolist() == list(range(990, 1000))
        assert not calibration.decisions(p, false_alarm=0.05, mask=torch.arange(1000) < 900).any()
        with pytest.raises(ValueError, match="'mask' must be a boolean tensor"):
            calibration.decisions(p, fdr=0.1, mask=mask[:5])

    def test_a_promise_that_is_hard_to_believe(self):
        calibration = Calibration(torch.arange(99.0))
        p = torch.cat([torch.full((40,), 0.01), torch.ones(60)]).double()
        with pytest.warns(CalibrationWarning, match=r"^40% of 100 nodes are flagged: if OOD .* than stated .5%."):
            calibration.decisions(p, false_alarm=0.05)
        with pytest.warns(CalibrationWarning, match=r"\(check_calibration, gnnsafe check\)$"):
            calibration.decisions(p[30:50], false_alarm=0.05)  # 10 of 20
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert calibration.decisions(p[31:50], false_alarm=0.05).sum() == 9  # a share of so few says little
            assert calibration.decisions(p, fdr=0.05).sum() == 40  # whose level is no share of nodes
        p[15:] = 1
        assert calibration.decisions(p, false_alarm=0.05).sum() == 15  # nothing to tell

    def test_storey_is_for_discoveries(self):
        with pytest.raises(ValueError, match="'storey' must be given only with fdr"):
            Calibration(torch.ones(3)).decisions(torch.ones(3).double(), false_alarm=0.1, storey=True)


class TestCheck:
    def test_by_hand(self):
        calibration = Calibration(torch.arange(99.0))
        p = (torch.arange(200) + 0.5).double() / 200  # 2 below 1 %, 10 below 5 %, 20 below 10 %
        check = CalibrationCheck.of(p, calibration)
        assert [level.flagged for level in check.levels] == [2, 10, 20]
        assert check.levels[1].rate == 0.05
        low, high = check.levels[1].interval  # by the beta distribution: Clopper and Pearson's definition
        assert low == pytest.approx(stats.beta.ppf(0.025, 10, 191))
        assert high == pytest.approx(stats.beta.ppf(0.975, 11, 190))
        assert check.histogram == (20,) * 10
        assert check.holds
        assert json.loads(json.dumps(check.to_dict())) == check.to_dict()
        assert "false alarms at   5%:  5.00% (95 % interval 2.42% to 9.00%; chance gives" in str(check)
        assert "████" in str(check)

    @pytest.mark.parametrize("classes", [None, torch.arange(120) % 3])
    def test_a_level_at_which_none_can_be_flagged(self, classes):
        """20 nodes are enough at 5 % (1/21 < 0.05), and at 1 % neither 20 of all nor 40 of each class are."""
        calibration = Calibration(torch.arange(20.0 if classes is None else 120.0), classes, 3)
        check = CalibrationCheck.of(torch.linspace(0.06, 1, 50).double(), calibration, (0.01, 0.05))
        assert [level.possible for level in check.levels] == [False, True]
        assert check.levels[0].expected == (0.0, 0.0)
        assert check.holds
        first, second = str(check).split("\n")[1:3]
        assert first == "false alarms at   1%: too few calibration nodes to flag any"
        assert "chance gives" in second

    def test_more_alarms_than_chance_allows(self):
        p = torch.full((200,), 0.04, dtype=torch.float64)
        check = CalibrationCheck.of(p, Calibration(torch.arange(99.0)), (0.01, 0.05))
        assert [level.holds for level in check.levels] == [True, False]
        assert not check.holds
        assert str(check).count("more than chance allows") == 1

    def test_where_the_observed_rate_lies_by_chance(self):
        """The beta-binomial holds both sets' chance: 95 of 100 draws of both lie within."""
        rng = np.random.default_rng(0)
        inside = 0
        for _ in range(200):
            scores = torch.from_numpy(rng.normal(size=250))
            calibration = Calibration(scores[:50])
            level = CalibrationCheck.of(calibration.p_values(scores[50:]), calibration, (0.1,)).levels[0]
            inside += level.expected[0] <= level.rate <= level.expected[1]
        assert 0.91 < inside / 200 < 0.99

    def test_a_level_that_no_p_value_reaches(self):
        check = CalibrationCheck.of(torch.ones(5).double(), Calibration(torch.arange(9.0)), (0.05,))
        assert check.levels[0].expected == (0.0, 0.0)
        assert check.holds
        assert check.histogram == (0,) * 9 + (5,)
