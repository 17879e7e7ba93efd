from __future__ import annotations

import pytest
import torch
from torch.nn.functional import linear, relu
from torch_geometric.nn import conv

from gnnsafe.models import APPNP


@pytest.mark.parametrize("batch_norm", [True, False])
@pytest.mark.parametrize(("num_layers", "steps", "alpha"), [(2, 10, 0.1), (3, 1, 0.5), (2, 0, 0.1)])
def test_equal_to_pyg(same, num_layers, steps, alpha, batch_norm):
    def reference(model, x, edge_index):
        for k, weight in enumerate(model.weights[:-1]):
            x = linear(x, weight.T, None if model.norms else model.biases[k])
            x = relu(model.norms[k](x) if model.norms else x)
        predictions = linear(x, model.weights[-1].T, model.biases[-1])
        return x, conv.APPNP(K=steps, alpha=alpha)(predictions, edge_index) if steps else predictions

    same(lambda features: APPNP(features, 8, 3, num_layers, batch_norm=batch_norm, steps=steps, alpha=alpha), reference)


def test_by_hand():
    """0 → 1: Â is 1, 0 | √½, ½; Z = 1, 3 becomes 1, (√½ + 3/2)/2 + 3/2 and so on."""
    model = APPNP(1, 1, 1, 1, steps=2, alpha=0.5)
    model.weights[0].data.fill_(1.0)
    logits = model(torch.tensor([[1.0], [3.0]]), torch.tensor([[0], [1]]))
    once = (0.5**0.5 + 1.5) / 2 + 1.5
    assert logits.flatten().tolist() == pytest.approx([1.0, (0.5**0.5 + once / 2) / 2 + 1.5])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": -1}, r"'steps' must be a whole number >= 0 \(got -1\)"),
        ({"alpha": 1.5}, r"'alpha' must lie in \[0, 1\] \(got 1.5\)"),
    ],
)
def test_bad_settings(options, message):
    with pytest.raises(ValueError, match=message):
        APPNP(6, 8, 3, **options)
