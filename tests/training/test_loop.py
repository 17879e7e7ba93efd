from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, linear
from torch_geometric.nn import GraphSAGE

from gnnsafe import CrossEntropy, EnergyMargin, Outputs, energy, metrics, train
from gnnsafe.errors import TrainingError, TrainingWarning
from gnnsafe.methods import GNNSafe
from gnnsafe.models import GCN, MLP

MARGIN = EnergyMargin(t_in=-5.0, t_out=-1.0, weight=0.1)


def gcn() -> GCN:
    return GCN(8, 16, 3)


def weights(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(a: dict, b: dict) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("objective", [CrossEntropy(), MARGIN])
def test_it_learns(blocks, exposure, objective):
    model = gcn()
    history = train(model, blocks, objective=objective, exposure=exposure, epochs=60)
    outputs = Outputs.of(model, blocks)
    assert metrics.accuracy(outputs.logits, blocks.y, blocks.test_mask) > 0.8  # chance: 0.33
    assert history.loss[-1] < history.loss[0]
    assert len(history.loss) == len(history.val_loss) == 60
    assert not model.training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_best_epoch_by_validation_is_restored(blocks):
    model = gcn()
    history = train(model, blocks, objective=CrossEntropy(), epochs=40, lr=0.3)
    assert history.best_epoch == min(range(40), key=history.val_loss.__getitem__)
    assert history.best_epoch < 39  # else this test shows nothing
    logits = Outputs.of(model, blocks).logits
    restored = cross_entropy(logits[blocks.val_mask], blocks.y[blocks.val_mask]).item()
    assert restored == pytest.approx(history.val_loss[history.best_epoch], rel=1e-5)


def test_only_validation_nodes_choose_the_epoch(blocks):
    first = train(gcn(), blocks, objective=CrossEntropy(), epochs=40, lr=0.3)
    blocks.y = blocks.y.where(~blocks.test_mask, (blocks.y + 1) % 3)
    second = train(gcn(), blocks, objective=CrossEntropy(), epochs=40, lr=0.3)
    assert first == second
    blocks.y = blocks.y.where(~blocks.val_mask, (blocks.y + 1) % 3)
    third = train(gcn(), blocks, objective=CrossEntropy(), epochs=40, lr=0.3)
    assert third.loss == first.loss
    assert third.val_loss != first.val_loss


@pytest.mark.parametrize("objective", [CrossEntropy(), MARGIN])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_the_same_seed_gives_the_same_weights(blocks, exposure, objective, dropout):
    results = []
    for seed in (1, 1, 2):
        model = GCN(8, 16, 3, dropout=dropout)  # drawn from another state of the generator each time
        train(model, blocks, objective=objective, exposure=exposure, epochs=8, seed=seed)
        results.append(weights(model))
    assert same(results[0], results[1])
    assert not same(results[0], results[2])


def test_the_callers_random_numbers_are_left_alone(blocks):
    model = gcn()
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    train(model, blocks, objective=CrossEntropy(), epochs=2, seed=7)
    assert torch.equal(torch.rand(1), expected)


def test_without_a_seed_it_goes_on_from_where_the_model_is(blocks):
    model = gcn()
    first = train(model, blocks, objective=CrossEntropy(), epochs=60)
    second = train(model, blocks, objective=CrossEntropy(), epochs=1, lr=1e-6, seed=None)
    assert second.loss[0] < first.loss[0] / 2


def test_a_reference_loop_gives_the_same_weights(blocks, exposure):
    """The plain way: forward both graphs, step, evaluate. Sharing the first layer must change nothing."""
    fast, plain = gcn(), gcn()
    train(fast, blocks, objective=MARGIN, exposure=exposure, epochs=10, seed=5)
    torch.manual_seed(5)
    plain.reset_parameters()
    optimizer = torch.optim.Adam(plain.parameters(), lr=0.01, weight_decay=0.01)
    best, best_loss = None, float("inf")
    for _ in range(10):
        plain.train()
        inside = Outputs(plain(blocks.x, blocks.edge_index), blocks)
        loss = MARGIN.loss(inside, Outputs(plain(exposure.x, exposure.edge_index), exposure))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        plain.eval()
        with torch.no_grad():
            logits = plain(blocks.x, blocks.edge_index)
        val_loss = cross_entropy(logits[blocks.val_mask], blocks.y[blocks.val_mask]).item()
        if val_loss < best_loss:
            best, best_loss = weights(plain), val_loss
    for name, value in weights(fast).items():
        torch.testing.assert_close(value, best[name], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_it_learns_where_gradients_are_off(blocks, exposure, mode):
    expected, model = GCN(8, 4, 3), GCN(8, 4, 3)
    train(expected, blocks, exposure=exposure, objective=MARGIN, epochs=3)
    with mode():
        train(model, blocks, exposure=exposure, objective=MARGIN, epochs=3)
        assert not torch.is_grad_enabled()
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), expected.parameters(), strict=True))


def test_an_objective_without_exposure_never_sees_it(blocks, exposure):
    """Else exposure statistics leak into BatchNorm, as in the paper's published runs."""
    without, with_exposure = gcn(), gcn()
    train(without, blocks, objective=CrossEntropy(), epochs=5)
    train(with_exposure, blocks, objective=CrossEntropy(), exposure=exposure, epochs=5)
    assert same(weights(without), weights(with_exposure))


def test_only_exposure_nodes_in_the_mask_count(blocks, exposure):
    exposure.edge_index = torch.empty(2, 0, dtype=torch.int64)
    objective, model = EnergyMargin(-5.0, -1.0, 1.0), nn.Linear(8, 3)
    model.forward = lambda x, edge_index: linear(x, model.weight, model.bias)
    first = train(model, blocks, objective=objective, exposure=exposure, epochs=3)
    exposure.x = exposure.x.where(exposure.mask[:, None], 100.0)
    assert train(model, blocks, objective=objective, exposure=exposure, epochs=3).loss == first.loss


def test_the_energy_margin_parts_the_energies(blocks, exposure):
    gaps = []
    for objective in (CrossEntropy(), EnergyMargin(-5.0, -1.0, 1.0)):
        model = gcn()
        train(model, blocks, objective=objective, exposure=exposure, epochs=60)
        inside, outside = (GNNSafe().score(Outputs.of(model, graph)) for graph in (blocks, exposure))
        gaps.append((outside[exposure.mask].mean() - inside[blocks.test_mask].mean()).item())
    assert gaps[1] > gaps[0]


def test_proposition_1_training_lowers_the_energy_of_training_nodes(blocks):
    model = gcn()
    torch.manual_seed(0)
    model.reset_parameters()
    before = energy(Outputs.of(model, blocks).logits)[blocks.train_mask].mean()
    train(model, blocks, objective=CrossEntropy(), epochs=50, seed=None)
    after = energy(Outputs.of(model, blocks).logits)[blocks.train_mask].mean()
    assert after < before


@pytest.mark.parametrize("objective", [CrossEntropy(), MARGIN])
def test_somebodys_own_model(blocks, exposure, objective):
    results = []
    for _ in range(2):
        model = GraphSAGE(8, 16, num_layers=2, out_channels=3)
        train(model, blocks, objective=objective, exposure=exposure, epochs=30)
        assert metrics.accuracy(Outputs.of(model, blocks).logits, blocks.y, blocks.test_mask) > 0.8  # chance: 0.33
        results.append(weights(model))
    assert same(*results)


def test_a_model_of_submodules_is_drawn_anew_too(blocks):
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 3))

        def forward(self, x, edge_index):
            return self.layers(x)

    models = [Own(), Own()]
    for model in models:
        train(model, blocks, objective=CrossEntropy(), epochs=2)
    assert same(*map(weights, models))


def test_interrupted_the_model_has_the_best_weights_so_far(blocks):
    class Interrupted(CrossEntropy):
        calls = 0

        def loss(self, outputs, exposure=None, *, epoch=0):
            type(self).calls += 1
            if self.calls == 6:
                raise KeyboardInterrupt
            return super().loss(outputs)

        def reach(self):
            return 0  # so that it takes the same way as its reference, to the last digit

    model, reference = gcn(), gcn()
    with pytest.raises(KeyboardInterrupt):
        train(model, blocks, objective=Interrupted(), epochs=50)
    train(reference, blocks, objective=CrossEntropy(), epochs=5)
    assert same(weights(model), weights(reference))
    assert not model.training


def test_a_lazy_model_learns_its_size_first(blocks):
    model = GraphSAGE(-1, 16, num_layers=2, out_channels=3)
    assert train(model, blocks, objective=CrossEntropy(), epochs=2).best_epoch >= 0


def test_another_forward_is_the_one_that_is_trained(blocks):
    class Silent(GCN):
        def forward(self, x, edge_index):
            return 0 * super().forward(x, edge_index)

    assert train(Silent(8, 16, 3), blocks, objective=CrossEntropy(), epochs=1).loss == [pytest.approx(1.0986, abs=1e-3)]


def test_divergence_at_once_leaves_the_weights_that_the_model_came_with(blocks):
    class Broken(CrossEntropy):
        def loss(self, outputs, exposure=None, *, epoch=0):
            return super().loss(outputs) * torch.nan

    model = gcn()
    before = weights(model)
    with pytest.raises(TrainingError, match="diverged at epoch 0"):
        train(model, blocks, objective=Broken(), epochs=3)
    assert same(weights(model), before)


def test_divergence_is_said(blocks):
    with pytest.raises(TrainingError, match=r"training diverged at epoch \d+ .*; lower 'lr'"):
        train(GCN(8, 16, 3, batch_norm=False), blocks, objective=CrossEntropy(), epochs=50, lr=1e30)


class TestBadInput:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"epochs": 0}, r"'epochs' must be a whole number >= 1 \(got 0\)"),
            ({"seed": -1}, r"'seed' must be a whole number >= 0 \(got -1\)"),
            ({"lr": "fast"}, r"'lr' must be > 0 \(got fast\)"),
            ({"objective": CrossEntropy}, r"'objective' must be an objective such as CrossEntropy\(\)"),
            ({"objective": "cross-entropy"}, r"'objective' must be an objective such as CrossEntropy\(\)"),
            ({"lr": 0}, r"'lr' must be > 0 \(got 0\)"),
            ({"weight_decay": -1}, r"'weight_decay' must be >= 0 \(got -1\)"),
            ({"objective": MARGIN}, r"'exposure' must be given for EnergyMargin\(.*or train with CrossEntropy\(\)"),
        ],
    )
    def test_settings(self, blocks, options, message):
        model = gcn()
        before = weights(model)
        with pytest.raises(ValueError, match=message):
            train(model, blocks, **{"objective": CrossEntropy(), **options})
        assert same(weights(model), before)  # a mistake costs nothing

    @pytest.mark.parametrize("name", ["train_mask", "val_mask"])
    def test_masks(self, blocks, name):
        blocks[name] = torch.zeros(120, dtype=torch.bool)
        with pytest.raises(ValueError, match=f"'{name}' must hold at least one node"):
            train(gcn(), blocks, objective=CrossEntropy())
        del blocks[name]
        with pytest.raises(ValueError, match=f"'{name}' must be given"):
            train(gcn(), blocks, objective=CrossEntropy())

    def test_training_nodes_that_choose_the_epoch_are_said(self, blocks):
        blocks.val_mask |= blocks.train_mask
        with pytest.warns(TrainingWarning, match="30 nodes are in train_mask and in val_mask: the epoch is chosen by"):
            train(gcn(), blocks, objective=CrossEntropy(), epochs=1)

    def test_labels(self, blocks):
        model = gcn()
        before = weights(model)
        blocks.y = blocks.y.where(~blocks.train_mask, -100)
        with pytest.raises(ValueError, match=r"'y' must be a class >= 0 for every node of train_mask \(got -100\)"):
            train(gcn(), blocks, objective=CrossEntropy())
        for name in ("train_mask", "val_mask"):
            blocks.y = (torch.arange(120) % 3).where(~blocks[name], 3)
            with pytest.raises(ValueError, match=rf"'y' must be < 3, .* number of classes, in {name} \(got 3\)"):
                train(model, blocks, objective=CrossEntropy())
        assert same(weights(model), before)

    def test_nodes_outside_the_masks_need_no_label(self, blocks):
        blocks.y = blocks.y.where(~blocks.test_mask, -1)
        assert train(gcn(), blocks, objective=CrossEntropy(), epochs=1).best_epoch == 0

    def test_exposure(self, blocks, exposure):
        exposure.mask = torch.zeros(120, dtype=torch.bool)
        with pytest.raises(ValueError, match="'mask' must hold at least one node"):
            train(gcn(), blocks, objective=MARGIN, exposure=exposure)
        exposure.x = torch.rand(120, 5)
        with pytest.raises(ValueError, match=r"'x' must have 8 features \(got 5\)"):
            train(gcn(), blocks, objective=MARGIN, exposure=exposure)

    def test_models(self, blocks):
        class Flat(nn.Linear):
            def forward(self, x, edge_index):
                return x.sum(dim=1)

        with pytest.raises(ValueError, match="'logits' must be a floating tensor of shape"):
            train(Flat(8, 3), blocks, objective=CrossEntropy())
        with pytest.raises(ValueError, match=r"'model' must be a torch.nn.Module \(got function\)"):
            train(gcn, blocks, objective=CrossEntropy())
        frozen = gcn().requires_grad_(False)
        with pytest.raises(ValueError, match=r"'model' must have parameters to train \(got none\)"):
            train(frozen, blocks, objective=CrossEntropy())

    def test_a_graph_that_does_not_fit_costs_nothing(self, blocks):
        model = gcn()
        before = weights(model)
        blocks.x = torch.rand(120, 7)
        with pytest.raises(ValueError, match=r"'x' must have 8 features \(got 7\)"):
            train(model, blocks, objective=CrossEntropy())
        assert same(weights(model), before)

    def test_features(self, blocks):
        blocks.x[3, 1] = torch.inf
        with pytest.raises(ValueError, match=r"'x' must be finite .*first at \[3, 1\]"):
            train(gcn(), blocks, objective=CrossEntropy())


@pytest.mark.parametrize("model", [GCN, MLP])
@pytest.mark.parametrize("training", [True, False])
def test_between_epochs_the_model_evaluates(blocks, model, training):
    """Whoever runs it then neither moves BatchNorm's statistics nor the training."""
    quiet, watched = model(8, 16, 3).train(training), model(8, 16, 3).train(training)
    modes = []
    first = train(quiet, blocks, objective=CrossEntropy(), epochs=4)

    def watch(_: object) -> None:
        modes.append(watched.training)
        watched(blocks.x, blocks.edge_index)

    second = train(watched, blocks, objective=CrossEntropy(), epochs=4, each_epoch=watch)
    assert modes == [False] * 4
    assert first.val_loss == second.val_loss
    assert watched.norms[0].num_batches_tracked == quiet.norms[0].num_batches_tracked
