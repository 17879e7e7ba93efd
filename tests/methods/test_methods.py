from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from gnnsafe import Outputs, energy, propagate
from gnnsafe.methods import MSP, Energy, GNNSafe

LOGITS = torch.tensor([[math.log(2.0), math.log(6.0)], [math.log(1.0), math.log(1.0)]])  # Σ exp = 8 and 2
OUTPUTS = Outputs(LOGITS, SimpleNamespace(x=torch.zeros(2, 1), edge_index=torch.tensor([[0], [1]])))


def test_msp_by_hand():
    assert MSP().score(OUTPUTS).tolist() == pytest.approx([-0.75, -0.5])


def test_energy_by_hand():
    assert Energy().score(OUTPUTS).tolist() == pytest.approx([-math.log(8), -math.log(2)])
    assert Energy(temperature=0.5).score(OUTPUTS)[0].item() == pytest.approx(-0.5 * math.log(40))


def test_gnnsafe_by_hand():
    # 1 hears 0, nobody speaks to 0; log 8 = 3 log 2: after one step −(½ + ½·3) log 2, after two −(1 + 1.5) log 2
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
    ],
)
def test_settings_are_checked_when_they_are_given(make, message):
    with pytest.raises(ValueError, match=message):
        make()
