"""What every model must keep; it runs over the MODELS table."""

from __future__ import annotations

import pytest
import torch

from gnnsafe.models import MODELS
from gnnsafe.models.staged import Staged, Whole, staged

everyone = pytest.mark.parametrize("name", MODELS)


@everyone
def test_logits_of_the_right_shape_and_dtype(name, directed):
    logits = MODELS[name](6, 8, 3)(directed.x, directed.edge_index)
    assert logits.shape == (5, 3)
    assert logits.dtype == torch.float32


@everyone
def test_the_order_of_nodes_does_not_matter(name, directed):
    model = MODELS[name](6, 8, 3).eval()
    order = torch.tensor([3, 0, 4, 2, 1])
    place = torch.argsort(order)
    shuffled = model(directed.x[order], place[directed.edge_index].flip(1))
    torch.testing.assert_close(shuffled, model(directed.x, directed.edge_index)[order])


@everyone
def test_a_node_hears_those_that_point_to_it(name):
    model = MODELS[name](2, 8, 2).eval()
    x, edges = torch.rand(2, 2), torch.tensor([[0], [1]])
    changed = x.clone()
    changed[1] += 1.0
    assert torch.equal(model(x, edges)[0], model(changed, edges)[0])  # nothing flows back from 1 to 0
    changed = x.clone()
    changed[0] += 1.0
    assert not torch.equal(model(x, edges)[1], model(changed, edges)[1])


@everyone
@pytest.mark.parametrize("training", [True, False])
def test_stages_are_the_forward(name, directed, training):
    model = MODELS[name](6, 8, 3).train(training)
    stages = staged(model)
    inputs = stages.prepare(directed.x, directed.edge_index)
    torch.manual_seed(1)  # dropout
    parts = stages.tail(stages.stem(inputs), inputs)
    torch.manual_seed(1)
    torch.testing.assert_close(parts, model(directed.x, directed.edge_index))


@everyone
def test_another_forward_is_not_passed_over(name):
    plain = MODELS[name](6, 8, 3)
    assert staged(plain) is plain

    class Louder(MODELS[name]):
        def forward(self, x, edge_index):
            return 2 * super().forward(x, edge_index)

    assert isinstance(staged(Louder(6, 8, 3)), Whole)
    plain.forward = lambda x, edge_index: x
    assert isinstance(staged(plain), Whole)
    hooked = MODELS[name](6, 8, 3)
    hooked.register_forward_hook(lambda *_: None)
    assert isinstance(staged(hooked), Whole)


def test_a_model_without_stages_is_all_tail(directed):
    model = torch.nn.Module()
    model.forward = lambda x, edge_index: x * len(edge_index[0])
    stages = staged(model)
    assert isinstance(stages, Whole)
    assert isinstance(stages, Staged)
    inputs = stages.prepare(directed.x, directed.edge_index)
    assert torch.equal(stages.tail(stages.stem(inputs), inputs), 7 * directed.x)
