"""The graphs on which a model is compared with the same network of another library's layers."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from gnnsafe import Outputs

# Of logits and of gradients. BatchNorm over five nodes makes rounding of 1e-5 in float32 gradients, PyG's as ours.
LIMITS = {torch.float32: (1e-5, 1e-4), torch.float64: (1e-10, 1e-10)}

Reference = Callable[[nn.Module, Tensor, Tensor], tuple[Tensor, Tensor]]


@pytest.fixture
def words() -> SimpleNamespace:
    """A directed graph of bags of three words: 1.5 % of the features are not 0; some nodes have no in-neighbours."""
    generator = torch.Generator().manual_seed(0)
    x = torch.zeros(40, 200)
    x.scatter_(1, torch.randint(200, (40, 3), generator=generator), 1.0)
    return SimpleNamespace(x=x, edge_index=torch.randint(40, (2, 90), generator=generator), num_nodes=40)


@pytest.fixture(params=["directed", "words"])
def graph(request) -> SimpleNamespace:
    return request.getfixturevalue(request.param)


@pytest.fixture(params=[torch.float32, torch.float64], ids=["float32", "float64"])
def same(request, graph) -> Callable[[Callable[[int], nn.Module], Reference], None]:
    """Asserts that logits, embeddings and gradients are those of `reference(model, x, edge_index)`."""
    dtype = request.param
    close, gradients_close = ({"atol": limit, "rtol": limit} for limit in LIMITS[dtype])

    def assert_same(make: Callable[[int], nn.Module], reference: Reference) -> None:
        torch.manual_seed(1)
        x, edge_index = graph.x.to(dtype), graph.edge_index
        model = make(x.shape[1]).to(dtype)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))  # a bias of 0 would hide where it is added
        for training, asks in [(True, False), (False, False), (True, True), (False, True)]:
            model.train(training)
            features = x.clone().requires_grad_(asks)
            leaves = [*model.parameters(), *([features] if asks else [])]
            logits, (embeddings, expected) = model(features, edge_index), reference(model, features, edge_index)
            torch.testing.assert_close(logits, expected, **close)
            direction = torch.randn_like(logits)
            actual_gradients = torch.autograd.grad((logits * direction).sum(), leaves)
            expected_gradients = torch.autograd.grad((expected * direction).sum(), leaves)
            for actual, right in zip(actual_gradients, expected_gradients, strict=True):
                torch.testing.assert_close(actual, right, **gradients_close)
        outputs = Outputs.of(model, SimpleNamespace(x=x, edge_index=edge_index))
        torch.testing.assert_close(outputs.embeddings, embeddings.detach(), **close)

    return assert_same


@pytest.fixture
def layer() -> Callable[..., Tensor]:
    """`layer(conv, x, edge_index, {name: parameter})`: another library's layer with parameters of ours."""

    def call(conv: nn.Module, *inputs: Tensor, parameters: dict[str, Tensor]) -> Tensor:
        return functional_call(conv, parameters, inputs)

    return call
