from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from gnnsafe import Outputs, models
from gnnsafe.methods import GPN

GRAPH = SimpleNamespace(x=torch.zeros(2, 1), edge_index=torch.tensor([[0], [1]]))
OUTPUTS = Outputs(torch.tensor([[2.0, 6.0], [1.0, 1.0]]).log(), GRAPH)


def test_by_hand():
    assert GPN("epistemic").score(OUTPUTS).tolist() == pytest.approx([1 / 8, 1 / 2])
    assert GPN().score(OUTPUTS).tolist() == pytest.approx([-0.75, -0.5])


def test_features_are_the_evidence_before_it_spreads(directed):
    model = models.GPN(6, 8, 3).eval()
    outputs = Outputs.of(model, directed)
    z = model.latent(torch.relu(directed.x @ model.weight + model.bias))
    alpha = 1 + (model.flows(z) + model.class_shares.log()).exp() * (4 * torch.pi) ** 8
    torch.testing.assert_close(GPN("features").score(outputs), 1 / alpha.sum(dim=1))
    assert not torch.allclose(GPN("epistemic").score(outputs), GPN("features").score(outputs))


def test_it_says_what_is_wrong():
    with pytest.raises(ValueError, match="'measure' must be one of confidence, epistemic, features"):
        GPN("aleatoric")
    with pytest.raises(ValueError, match="'task' must be 'multiclass' for GPN"):
        GPN().score(Outputs(OUTPUTS.logits, GRAPH, "multilabel"))
    with pytest.raises(ValueError, match=r"'outputs' must come from Outputs\.of"):
        GPN("features").score(OUTPUTS)
