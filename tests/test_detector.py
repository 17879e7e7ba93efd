from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch_geometric.nn import GraphSAGE

from gnnsafe import Detector
from gnnsafe.errors import NotFittedError
from gnnsafe.methods import MSP, GNNSafe


def test_somebodys_own_model(blocks):
    torch.manual_seed(0)
    model = GraphSAGE(8, 16, num_layers=2, out_channels=3)
    detector = Detector(model).fit(blocks)
    scores = detector.score(blocks)
    with torch.no_grad():
        logits = model.eval()(blocks.x, blocks.edge_index)
    expected = -torch.logsumexp(logits, dim=1)
    for _ in range(2):
        mean = torch.stack([expected[blocks.edge_index[0][blocks.edge_index[1] == i]].mean() for i in range(120)])
        expected = 0.5 * expected + 0.5 * mean.where(~mean.isnan(), expected)
    torch.testing.assert_close(scores, expected)


def test_default_method_and_repr():
    detector = Detector(nn.Identity())
    assert detector.method == GNNSafe()
    assert repr(Detector(nn.Identity(), MSP())) == "Detector(Identity, MSP())"


def test_a_method_by_its_name():
    assert Detector(nn.Identity(), "msp").method == MSP()
    with pytest.raises(ValueError, match=r"'method' must be one of msp, energy, gnnsafe .*did you mean 'gnnsafe'\?"):
        Detector(nn.Identity(), "gnnsaf")


@pytest.mark.parametrize(
    ("model", "method", "message"),
    [
        (nn.Identity(), GNNSafe, r"'method' must be a method such as gnnsafe.methods.GNNSafe\(\)"),
        (lambda x: x, None, r"'model' must be a torch.nn.Module \(got function\)"),
    ],
)
def test_what_is_no_model_and_no_method(model, method, message):
    with pytest.raises(ValueError, match=message):
        Detector(model, method)


def test_not_fitted(blocks):
    with pytest.raises(NotFittedError, match=r"Detector\(Identity, MSP\(\)\) is not fitted; call fit\(data\)"):
        Detector(nn.Identity(), MSP()).score(blocks)


class Logits(nn.Module):
    def forward(self, x, edge_index):
        return x


def test_the_graph_is_checked(blocks):
    detector = Detector(Logits()).fit(blocks)
    with pytest.raises(ValueError, match=r"'x' must have 8 features \(got 3\)"):
        detector.score(SimpleNamespace(x=torch.rand(4, 3), edge_index=blocks.edge_index))
    with pytest.raises(ValueError, match="'edge_index' must hold node ids < 4"):
        detector.score(SimpleNamespace(x=torch.rand(4, 8), edge_index=blocks.edge_index))
    with pytest.raises(ValueError, match="'x' must be finite"):
        detector.score(SimpleNamespace(x=torch.full((4, 8), torch.nan), edge_index=blocks.edge_index[:, :0]))


def test_fit_needs_labels_and_a_training_mask(blocks):
    del blocks.train_mask
    with pytest.raises(ValueError, match=r"'train_mask' must be given"):
        Detector(Logits()).fit(blocks)


def test_the_method_is_fitted_on_the_training_nodes(blocks):
    seen = {}

    class Spy(MSP):
        def fit(self, outputs, y, mask):
            seen.update(logits=outputs.logits, y=y, mask=mask)
            return self

    Detector(Logits(), Spy()).fit(blocks)
    assert torch.equal(seen["logits"], blocks.x)
    assert seen["y"] is blocks.y
    assert seen["mask"] is blocks.train_mask
