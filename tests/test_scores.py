from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import special, stats
from torch.autograd import forward_ad

import gnnsafe
from gnnsafe import scores
from gnnsafe.sparse import Sparse

LOGITS = hnp.arrays(np.float64, st.tuples(st.integers(1, 6), st.integers(1, 5)), elements=st.floats(-50, 50))


def test_values_worked_out_by_hand():
    logits = torch.tensor([[math.log(2.0), math.log(6.0)]])  # Σ exp = 8; p = ¼, ¾
    assert gnnsafe.energy(logits).item() == pytest.approx(-math.log(8.0))
    assert gnnsafe.max_softmax(logits).item() == pytest.approx(-0.75)
    assert gnnsafe.max_logit(logits).item() == pytest.approx(-math.log(6.0))
    assert gnnsafe.entropy(logits).item() == pytest.approx(-0.25 * math.log(0.25) - 0.75 * math.log(0.75))
    # T = ½: −½ log(2² + 6²)
    assert gnnsafe.energy(logits, temperature=0.5).item() == pytest.approx(-0.5 * math.log(40.0))


@given(LOGITS)
def test_equal_to_scipy(logits):
    tensor = torch.from_numpy(logits)
    np.testing.assert_allclose(gnnsafe.energy(tensor), -special.logsumexp(logits, axis=1), atol=1e-12)
    np.testing.assert_allclose(gnnsafe.max_softmax(tensor), -special.softmax(logits, axis=1).max(1), atol=1e-12)
    np.testing.assert_allclose(gnnsafe.max_logit(tensor), -logits.max(1))
    np.testing.assert_allclose(
        gnnsafe.entropy(tensor), stats.entropy(special.softmax(logits, axis=1), axis=1), atol=1e-9
    )


@pytest.mark.parametrize("score", [gnnsafe.energy, gnnsafe.max_softmax, gnnsafe.max_logit, gnnsafe.entropy])
def test_a_flat_prediction_scores_above_a_peaked_one(score):
    flat, peaked = score(torch.tensor([[0.1, 0.0, 0.0], [9.0, 0.0, 0.0]])).tolist()
    assert flat > peaked


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("score", [gnnsafe.energy, gnnsafe.max_softmax, gnnsafe.max_logit, gnnsafe.entropy])
def test_dtype_and_gradient_are_kept(score, dtype):
    logits = torch.randn(4, 3, dtype=dtype, requires_grad=True)
    result = score(logits)
    assert result.shape == (4,)
    assert result.dtype == dtype
    result.sum().backward()
    assert logits.grad is not None


def test_huge_logits_do_not_overflow():
    assert gnnsafe.energy(torch.tensor([[1e4, 0.0]])).item() == -1e4


@pytest.mark.parametrize(
    "score",
    [gnnsafe.energy, gnnsafe.max_softmax, gnnsafe.max_logit, gnnsafe.entropy, gnnsafe.generalized_entropy],
)
@pytest.mark.parametrize(
    ("logits", "message"),
    [
        (
            torch.tensor([[0.0, float("nan")]]),
            r"'logits' must be finite \(got 1 NaN or infinite of 2.*first at \[0, 1\]",
        ),
        (torch.tensor([[0.0], [float("-inf")]]), r"'logits' must be finite .*first at \[1, 0\]"),
        (torch.zeros(3), r"'logits' must be a floating tensor of shape \[nodes, classes\] \(got torch.float32 \[3\]\)"),
        (torch.zeros(3, 0), r"shape \[nodes, classes\] \(got torch.float32 \[3, 0\]\)"),
        (torch.zeros(3, 2, dtype=torch.int64), r"floating .*\(got torch.int64 \[3, 2\]\)"),
        ([[0.0, 1.0]], r"'logits' must be a torch.Tensor \(got list\)"),
    ],
)
def test_bad_logits(score, logits, message):
    with pytest.raises(gnnsafe.GnnsafeError, match=message):
        score(logits)


@pytest.mark.parametrize("temperature", [0, -1.0, float("nan"), float("inf"), "1", None, True])
def test_bad_temperature(temperature):
    with pytest.raises(ValueError, match="'temperature' must be > 0"):
        scores.energy(torch.zeros(1, 2), temperature=temperature)


def test_large_but_finite_logits_are_not_mistaken_for_infinite_ones():
    logits = torch.full((4, 2), 3e38)  # their sum overflows
    assert torch.isfinite(gnnsafe.max_logit(logits)).all()


def test_logits_are_checked_before_a_temperature_divides_them():
    sparse = Sparse(sp.csr_array(np.eye(2))).csr
    for logits in ([[0.0, 1.0]], torch.tensor([[0, 1]]), sparse):
        with pytest.raises(ValueError, match="'logits' must be"):
            scores.energy(logits, temperature=2.0)


def test_no_nodes_have_no_scores():
    assert gnnsafe.score_logits(torch.zeros(0, 3), torch.zeros(2, 0, dtype=torch.int64)).shape == (0,)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script. is deprecated")  # torch's own rules for them are written in it
def test_an_energy_is_followed_by_forward_derivatives_and_within_transforms():
    """Where numpy would be asked for it, and would answer with numbers that depend on nothing."""
    logits, ones = torch.tensor([[1.0, 2.0], [0.0, 4.0]]), torch.ones(2, 2)
    with forward_ad.dual_level():
        dual = gnnsafe.energy(forward_ad.make_dual(logits, ones))
        torch.testing.assert_close(forward_ad.unpack_dual(dual).tangent, -torch.ones(2))
    torch.testing.assert_close(torch.func.jvp(gnnsafe.energy, (logits,), (ones,))[1], -torch.ones(2))
    detached = torch.func.grad(lambda z: gnnsafe.energy(z.detach()).sum() + z.sum())(logits)
    assert torch.equal(detached, ones)


def test_an_energy_whatever_numpy_is_told_to_do_about_small_numbers():
    with np.errstate(all="raise"):
        assert gnnsafe.energy(torch.tensor([[500.0, 0.0], [90.0, 0.0]])).tolist() == [-500.0, -90.0]
