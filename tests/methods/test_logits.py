from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from gnnsafe import Outputs, energy, propagate
from gnnsafe.methods import GEN, MSP, Energy, Entropy, GNNSafe, MaxLogit, Propagated

LOGITS = torch.tensor([[math.log(2.0), math.log(6.0)], [math.log(1.0), math.log(1.0)]])  # Σ exp = 8 and 2
OUTPUTS = Outputs(LOGITS, SimpleNamespace(x=torch.zeros(2, 1), edge_index=torch.tensor([[0], [1]])))


def test_msp_by_hand():
    assert MSP().score(OUTPUTS).tolist() == pytest.approx([-0.75, -0.5])


def test_energy_by_hand():
    assert Energy().score(OUTPUTS).tolist() == pytest.approx([-math.log(8), -math.log(2)])
    assert Energy(temperature=0.5).score(OUTPUTS)[0].item() == pytest.approx(-0.5 * math.log(40))


def test_max_logit_by_hand():
    assert MaxLogit().score(OUTPUTS).tolist() == pytest.approx([-math.log(6), 0.0])


def test_entropy_by_hand():
    # p = (¼, ¾) and (½, ½)
    first = 0.25 * math.log(4) + 0.75 * math.log(4 / 3)
    assert Entropy().score(OUTPUTS).tolist() == pytest.approx([first, math.log(2)])


def test_gen_by_hand():
    # Σ √(p(1−p)) = 2 √(3/16) and 2 · ½
    assert GEN(gamma=0.5).score(OUTPUTS).tolist() == pytest.approx([math.sqrt(3) / 2, 1.0])
    assert GEN().score(OUTPUTS)[1].item() == pytest.approx(2 * 0.25**0.1)


def test_gen_of_a_sure_prediction_is_zero_and_finite():
    sure = Outputs(torch.tensor([[500.0, 0.0, 0.0]]), OUTPUTS.graph)
    assert GEN().score(sure).item() == pytest.approx(0.0, abs=1e-20)


def test_a_sigmoid_head_is_a_softmax_over_the_logit_and_zero():
    z = torch.randn(6, 1)
    graph = SimpleNamespace(x=torch.zeros(6, 1), edge_index=torch.empty(2, 0, dtype=torch.int64))
    sigmoid, softmax = Outputs(z, graph, "multilabel"), Outputs(torch.cat([z, torch.zeros(6, 1)], dim=1), graph)
    for method in (MSP(), Energy(), Energy(temperature=3.0), Entropy(), GEN(), GNNSafe()):
        torch.testing.assert_close(method.score(sigmoid), method.score(softmax))


def test_multilabel_by_hand():
    # σ(log 3) = ¾, σ(0) = ½
    outputs = Outputs(torch.tensor([[math.log(3.0), 0.0]]), OUTPUTS.graph, "multilabel")
    assert Energy().score(outputs).tolist() == pytest.approx([-math.log(4) - math.log(2)])
    assert MSP().score(outputs).tolist() == pytest.approx([-1.25])
    assert MaxLogit().score(outputs).tolist() == pytest.approx([-math.log(3)])
    assert Entropy().score(outputs).tolist() == pytest.approx(
        [0.75 * math.log(4 / 3) + 0.25 * math.log(4) + math.log(2)]
    )
    assert GEN(gamma=0.5).score(outputs).tolist() == pytest.approx([2 * math.sqrt(3 / 16) + 1.0])


def test_propagated_wraps_any_method(directed):
    outputs = Outputs(torch.randn(5, 3), directed)
    settings = {"steps": 3, "alpha": 0.2, "isolated": "decay"}
    expected = propagate(MSP().score(outputs), directed.edge_index, **settings)
    assert torch.equal(Propagated(MSP(), **settings).score(outputs), expected)
    assert torch.equal(Propagated(Energy()).score(outputs), GNNSafe().score(outputs))


def test_log_probabilities_have_no_energy():
    outputs = Outputs(torch.log_softmax(torch.randn(5, 3), dim=1), OUTPUTS.graph)
    for method in (Energy(), Propagated(Energy())):
        with pytest.raises(ValueError, match=r"'logits' must be unnormalised .* before log_softmax, or use MSP"):
            method.score(outputs)
    assert MSP().score(outputs).shape == (5,)


def test_gnnsafe_by_hand():
    # 1 hears 0, no edges lead to 0; log 8 = 3 log 2: after one step −(½ + ½·3) log 2, after two −(1 + 1.5) log 2
    own, heard = -math.log(8), -2.5 * math.log(2)
    assert GNNSafe().score(OUTPUTS).tolist() == pytest.approx([own, heard])
    assert GNNSafe(steps=1).score(OUTPUTS)[1].item() == pytest.approx(-2 * math.log(2))
    assert GNNSafe(isolated="decay").score(OUTPUTS)[0].item() == pytest.approx(own / 4)


def test_gnnsafe_is_propagated_energy(directed):
    logits = torch.randn(5, 3)
    method = GNNSafe(steps=3, alpha=0.2, temperature=2.0, isolated="decay")
    expected = propagate(energy(logits, temperature=2.0), directed.edge_index, steps=3, alpha=0.2, isolated="decay")
    assert torch.equal(method.score(Outputs(logits, directed)), expected)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Energy(temperature=0), "'temperature' must be > 0"),
        (lambda: GNNSafe(temperature=-1), "'temperature' must be > 0"),
        (lambda: GNNSafe(alpha=1.1), r"'alpha' must lie in \[0, 1\]"),
        (lambda: GNNSafe(steps=-1), "'steps' must be a whole number >= 0"),
        (lambda: GNNSafe(isolated="drop"), "'isolated' must be one of keep, decay"),
        (lambda: GEN(gamma=1), r"'gamma' must lie in \(0, 1\)"),
        (lambda: Propagated("energy"), "'method' must be a method such as Energy"),
        (lambda: Propagated(MSP(), steps=-1), "'steps' must be a whole number >= 0"),
    ],
)
def test_settings_are_checked_when_they_are_given(make, message):
    with pytest.raises(ValueError, match=message):
        make()
