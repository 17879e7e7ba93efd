from __future__ import annotations

import copy

import pytest
import torch

from gnnsafe import CrossEntropy, Outputs, train
from gnnsafe.models import GCN, Ensemble
from gnnsafe.training import MemberCrossEntropy


def members_of(model: Ensemble, width: int, classes: int) -> list[GCN]:
    """The GCNs that it is made of."""
    found = []
    for number in range(model.members):
        one = GCN(model.in_channels, width, classes)
        hidden, out = slice(number * width, (number + 1) * width), slice(number * classes, (number + 1) * classes)
        one.weights[0].data, one.weights[1].data = model.weights[0].data[:, hidden], model.weights[1].data[:, out]
        one.biases[-1].data = model.biases[-1].data[out]
        for name in ("weight", "bias", "running_mean", "running_var"):
            getattr(one.norms[0], name).data = getattr(model.norms[0], name).data[hidden].clone()
        found.append(copy.deepcopy(one))
    return found


@pytest.mark.parametrize("training", [True, False])
def test_it_is_the_mean_of_gcns(graph, training):
    torch.manual_seed(0)
    model = Ensemble(graph.x.shape[1], 8, 3, members=4).train(training)
    for bias in model.biases:
        bias.data = torch.randn_like(bias)
    answers = [one.train(training)(graph.x, graph.edge_index) for one in members_of(model, 8, 3)]
    mean = torch.stack([logits.softmax(dim=1) for logits in answers]).mean(dim=0)
    torch.testing.assert_close(model(graph.x, graph.edge_index), mean.log())
    if not training:
        seen = Outputs.of(model, graph).embeddings
        torch.testing.assert_close(seen, torch.cat(answers, dim=1).detach())


def test_each_member_learns_as_if_it_were_alone(blocks):
    torch.manual_seed(0)
    model = Ensemble(8, 16, 3, members=3)
    alone = members_of(model, 16, 3)
    losses = []
    settings = {"epochs": 5, "seed": None, "lr": 0.003}  # so few that the last epoch is the best
    history = train(model, blocks, objective=MemberCrossEntropy(), **settings)
    for one in alone:
        losses.append(train(one, blocks, objective=CrossEntropy(), **settings).loss)
    assert history.loss == pytest.approx([sum(column) for column in zip(*losses, strict=True)], rel=1e-4)
    assert history.best_epoch == 4
    for one, expected in zip(members_of(model, 16, 3), alone, strict=True):
        torch.testing.assert_close(
            dict(one.named_parameters()), dict(expected.named_parameters()), rtol=1e-3, atol=1e-5
        )


def test_members_are_drawn_as_gcns_are():
    torch.manual_seed(0)
    model, one = Ensemble(40, 64, 3, members=5), GCN(40, 64, 3)
    for wide, narrow in zip(model.weights, one.weights, strict=True):
        assert wide.abs().max().item() == pytest.approx(narrow.abs().max().item(), rel=0.05)
        assert not torch.equal(*wide.chunk(5, dim=1)[:2])


def test_another_model_is_no_ensemble(blocks):
    with pytest.raises(
        ValueError, match=r"'embeddings' must be logits of members, 3 each \(got 16\); train an Ensemble"
    ):
        train(GCN(8, 16, 3), blocks, objective=MemberCrossEntropy(), epochs=1)
