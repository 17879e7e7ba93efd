"""Training draws random numbers of its own: alone, beside others, and with everything else left as it was."""

from __future__ import annotations

import copy
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from gnnsafe.errors import InputError
from gnnsafe.models import GCN
from gnnsafe.training import CrossEntropy, train


class Foreign(nn.Module):
    """A user's model: it drops units in evaluation mode, too."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 3)

    def forward(self, x, edge_index):
        return self.last(nn.functional.dropout(self.first(x).relu(), 0.3, training=True))


def trained(model: nn.Module, data, seed: int) -> dict[str, torch.Tensor]:
    train(model, data, objective=CrossEntropy(), epochs=8, seed=seed)
    return model.state_dict()


@pytest.mark.parametrize("make", [lambda: GCN(8, 16, 3, dropout=0.5), Foreign])
def test_threads_end_with_the_weights_of_one_after_the_other(blocks, make):
    seeds = [0, 1, 2, 0, 1, 2, 0, 1]
    expected = {seed: trained(make(), copy.copy(blocks), seed) for seed in set(seeds)}
    models = [make() for _ in seeds]
    with ThreadPoolExecutor(4) as pool:
        found = list(
            pool.map(lambda pair: trained(pair[0], copy.copy(blocks), pair[1]), zip(models, seeds, strict=True))
        )
    for seed, weights in zip(seeds, found, strict=True):
        assert all(torch.equal(weights[name], value) for name, value in expected[seed].items())


def test_models_that_are_constructed_meanwhile_disturb_no_training(blocks):
    expected = trained(GCN(8, 16, 3, dropout=0.5), blocks, 0)
    over = threading.Event()

    def construct() -> None:
        while not over.is_set():
            GCN(8, 16, 3)

    with ThreadPoolExecutor(2) as pool:
        constructing = pool.submit(construct)
        try:
            found = [trained(GCN(8, 16, 3, dropout=0.5), copy.copy(blocks), 0) for _ in range(8)]
        finally:
            over.set()
        constructing.result()
    for weights in found:
        assert all(torch.equal(weights[name], value) for name, value in expected.items())


def test_the_global_random_numbers_are_left_as_they_were(blocks):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    model = GCN(8, 16, 3, dropout=0.5)
    torch.manual_seed(5)
    trained(model, blocks, 0)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(("argument", "odd"), [
    ("seed", True), ("seed", 2**64), ("seed", -1), ("seed", 0.5), ("epochs", True), ("epochs", None), ("lr", "fast"),
    ("lr", float("nan")), ("weight_decay", None), ("objective", "cross-entropy"), ("objective", CrossEntropy),
    ("each_epoch", 3), ("task", None), ("model", None), ("data", None), ("exposure", "none"),
])  # fmt: skip
def test_odd_arguments_are_refused_in_one_line(blocks, argument, odd):
    from gnnsafe.training import OutlierExposure

    objective = OutlierExposure() if argument == "exposure" else CrossEntropy()
    given = {"model": GCN(8, 16, 3), "data": blocks, "objective": objective, "epochs": 2, argument: odd}
    with pytest.raises(InputError) as caught:
        train(given.pop("model"), given.pop("data"), **given)
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore:1 nodes are in train_mask and in val_mask")
def test_one_node_has_no_batch_to_be_normed_over():
    from types import SimpleNamespace

    alone = SimpleNamespace(x=torch.rand(1, 8), edge_index=torch.empty(2, 0, dtype=torch.int64), y=torch.tensor([0]))
    alone.train_mask = alone.val_mask = torch.tensor([True])
    with pytest.raises(InputError, match=r"'data' must have at least two nodes for a model with BatchNorm \(got 1\)"):
        train(GCN(8, 16, 3), alone, objective=CrossEntropy(), epochs=1)
    assert train(GCN(8, 16, 3, batch_norm=False), alone, objective=CrossEntropy(), epochs=1).best_epoch == 0
