"""Ensembles and MC dropout: what several networks say together."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from gnnsafe import Outputs, entropy
from gnnsafe.methods import DeepEnsemble, MCDropout
from gnnsafe.methods.members import disagreement
from gnnsafe.models import Ensemble
from gnnsafe.outputs import Penultimate

ALONE = torch.empty(2, 0, dtype=torch.int64)


def test_disagreement_by_hand():
    one, other = torch.tensor([[0.75, 0.25], [0.5, 0.5]]).log(), torch.tensor([[0.25, 0.75], [0.5, 0.5]]).log()
    # means (½, ½) and (½, ½); entropies of the first node's (¾, ¼): log 4 − ¾ log 3
    assert disagreement([one, other], "entropy").tolist() == pytest.approx([math.log(2)] * 2)
    apart = math.log(2) - (math.log(4) - 0.75 * math.log(3))
    assert disagreement([one, other], "mutual-information").tolist() == pytest.approx([apart, 0.0], abs=1e-7)


def test_probabilities_of_zero_have_no_entropy():
    sure = torch.tensor([[0.0, -1e38]])
    assert disagreement([sure, sure], "mutual-information").tolist() == [0.0]


class Linear(nn.Module):
    def __init__(self):
        super().__init__()
        self.penultimate, self.last = Penultimate(), nn.Linear(2, 2, bias=False)

    def forward(self, x, edge_index):
        return self.last(self.penultimate(x))


def fitted(method, x, model):
    data = SimpleNamespace(x=x, edge_index=ALONE)
    outputs, everyone = Outputs.of(model, data), torch.ones(len(x), dtype=torch.bool)
    return method.fit(outputs, torch.zeros(len(x), dtype=torch.int64), everyone), outputs


def test_dropout_by_hand():
    model = Linear()
    model.last.weight.data = torch.eye(2)
    method, outputs = fitted(MCDropout(samples=2, rate=0.5), torch.tensor([[math.log(3) / 2, 0.0]]), model)
    method.kept_ = torch.tensor([[2.0, 2.0], [0.0, 2.0]], dtype=torch.float64)
    # logits (log 3, 0) and (0, 0): p = (¾, ¼) and (½, ½), whose mean is (⅝, ⅜)
    expected = -(5 / 8 * math.log(5 / 8) + 3 / 8 * math.log(3 / 8))
    assert method.score(outputs).tolist() == pytest.approx([expected])


def test_nothing_dropped_is_the_models_own_entropy():
    method, outputs = fitted(MCDropout(rate=0.0, samples=3), torch.randn(5, 2), Linear())
    torch.testing.assert_close(method.score(outputs), entropy(outputs.logits))
    quiet, _ = fitted(MCDropout("mutual-information", rate=0.0), torch.randn(5, 2), Linear())
    assert quiet.score(outputs).abs().max() < 1e-7


def test_the_share_of_channels_that_are_kept():
    method, _ = fitted(MCDropout(samples=4000, rate=0.25), torch.randn(1, 2), Linear())
    assert float((method.kept_ > 0).double().mean()) == pytest.approx(0.75, abs=0.02)
    assert float(method.kept_.max()) == pytest.approx(4 / 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"samples": 0}, "'samples' must be"),
        ({"rate": 1.0}, r"'rate' must lie in \[0, 1\)"),
        ({"measure": "variance"}, "'measure' must be"),
        ({"seed": -1}, "'seed' must be"),
    ],
)
def test_what_dropout_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        MCDropout(**arguments)


def test_an_ensemble_says_both_by_its_members(directed):
    model = Ensemble(6, 8, 3, members=4).eval()
    outputs = Outputs.of(model, directed)
    members = [logits.log_softmax(dim=1) for logits in outputs.embeddings.split(3, dim=1)]
    for measure in ("entropy", "mutual-information"):
        torch.testing.assert_close(DeepEnsemble(measure).score(outputs), disagreement(members, measure))


def test_mutual_information_of_what_is_no_ensemble():
    method, outputs = fitted(DeepEnsemble("mutual-information"), torch.randn(4, 2), Linear())
    assert method.score(outputs).tolist() == pytest.approx([0.0] * 4, abs=1e-7)  # one member agrees with itself

    class Wide(Linear):
        def forward(self, x, edge_index):
            return self.last(self.penultimate(torch.cat([x, x[:, :1]], dim=1))[:, :2])

    with pytest.raises(
        ValueError, match=r"'embeddings' must be logits of members, 2 each \(got 3\); train an Ensemble"
    ):
        method.score(Outputs.of(Wide(), SimpleNamespace(x=torch.randn(4, 2), edge_index=ALONE)))
