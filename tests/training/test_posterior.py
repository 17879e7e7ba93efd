from __future__ import annotations

import math
from statistics import fmean
from types import SimpleNamespace

import pytest
import torch
from scipy import stats
from scipy.special import digamma
from torch_geometric.data import Data

from gnnsafe import CrossEntropy, Outputs, metrics, prepare, train
from gnnsafe.models import GCN, GPN
from gnnsafe.models.passes import StagedPasses, choose_passes
from gnnsafe.training import UncertainCrossEntropy


def outputs(alpha, y, task="multiclass") -> Outputs:
    logits = torch.tensor(alpha, requires_grad=True)
    nodes = len(alpha)
    data = SimpleNamespace(
        x=torch.zeros(nodes, 1), edge_index=torch.empty(2, 0, dtype=torch.int64), y=torch.tensor(y),
        train_mask=torch.arange(nodes) < nodes - 1,
    )  # fmt: skip
    return Outputs(logits.log(), data, task)


class TestLoss:
    def test_by_hand(self):
        """ψ(n + 1) = ψ(n) + 1/n: ψ(3) − ψ(2) = 1/2 and ψ(3) − ψ(1) = 3/2; the last node is not labelled."""
        loss = UncertainCrossEntropy(weight=0.0).loss(outputs([[1.0, 2.0], [1.0, 2.0], [9.0, 9.0]], [1, 0, 0]))
        assert loss.item() == pytest.approx(2.0)

    def test_the_entropy_is_a_dirichlets(self):
        alpha, y = [[1.5, 2.0, 40.0], [3.0, 1.0, 1.0], [1.0, 1.0, 1.0]], [2, 1, 0]
        rows = list(zip(alpha, y, strict=True))[:2]
        expected = sum(digamma(sum(a)) - digamma(a[c]) - 0.1 * stats.dirichlet(a).entropy() for a, c in rows)
        assert UncertainCrossEntropy(weight=0.1).loss(outputs(alpha, y)).item() == pytest.approx(expected, rel=1e-6)

    def test_extreme_evidence_has_finite_gradients_that_are_no_rounding_error(self):
        """Where α is large, d entropy / d log α is of order one: single precision would give millions."""
        log_alpha = torch.tensor([[30.0, 30.0, 0.0], [30.0, 0.0, 0.0], [0.0, 0.0, 0.0]], requires_grad=True)
        inside = outputs([[1.0] * 3] * 3, [0, 1, 0])
        UncertainCrossEntropy(weight=1.0).loss(Outputs(log_alpha, inside.graph)).backward()
        assert torch.isfinite(log_alpha.grad).all()
        assert log_alpha.grad.abs().max() < 5

    def test_validation_is_the_cross_entropy_of_the_mean(self):
        value = UncertainCrossEntropy().validation(torch.tensor([[1.0, 3.0]]).log(), torch.tensor([1]), "multiclass")
        assert value.item() == pytest.approx(-math.log(0.75))


class TestTraining:
    def test_it_learns(self, blocks):
        losses = []
        for seed in range(3):  # dropout moves a single one by a tenth
            model = GPN(8, 16, 3)
            history = train(model, blocks, objective=UncertainCrossEntropy(), epochs=100, seed=seed)
            assert metrics.accuracy(Outputs.of(model, blocks).logits, blocks.y, blocks.test_mask) > 0.8
            losses.append(history.val_loss[history.best_epoch])
        assert fmean(losses) < math.log(3) / 2

    def test_only_nodes_that_the_loss_or_validation_reads_are_computed(self):
        torch.manual_seed(0)
        edges = torch.tensor([[0, 1, 2, 5, 6, 7], [1, 2, 3, 4, 5, 9]])  # nodes 0 to 3 are a path, 5 to 4 leads 6 along
        data = Data(x=torch.randn(10, 8), edge_index=edges, y=torch.arange(10) % 3)
        training, validation = torch.tensor([3]), torch.tensor([1, 4])
        model = GPN(8, 16, 3, dropout=0.0, steps=2)
        seen = []
        model.penultimate.register_forward_hook(lambda module, given, z: seen.append(len(z)))
        part = choose_passes(model, prepare(data), training, validation)
        whole = StagedPasses(model, prepare(data), training, validation)
        results = []
        for passes in (part, whole):
            logits = passes.training()
            logits.sum().backward()
            gradients = [parameter.grad.clone() for parameter in model.parameters()]
            model.zero_grad()
            results.append([logits.detach(), passes.validation(), *gradients])
        for ours, theirs in zip(*results, strict=True):
            torch.testing.assert_close(ours, theirs)
        assert seen == [7, 7, 10, 10]  # 1, 3 and 4, what leads to them in two edges, and the in-neighbours of all these

    def test_first_the_flows_alone_then_all_of_it_at_once(self, blocks):
        def moved(epochs: int) -> tuple[set[str], int]:
            model = GPN(8, 16, 3, dropout=0.0)
            history = train(model, blocks, objective=UncertainCrossEntropy(warmup=2), epochs=epochs, seed=1)
            torch.manual_seed(1)
            fresh = GPN(8, 16, 3)
            torch.manual_seed(1)
            fresh.reset_parameters()
            assert all(parameter.requires_grad for parameter in model.parameters())
            pairs = zip(model.named_parameters(), fresh.parameters(), strict=True)
            return {name for (name, value), start in pairs if not torch.equal(value, start)}, history.best_epoch

        flows = {"flows.centers", "flows.radii", "flows.strengths"}
        assert moved(2)[0] == flows
        everything, best = moved(3)
        assert best == 2  # else this test shows nothing
        assert everything == flows | {"weight", "bias", "latent.weight", "latent.bias"}

    def test_the_model_learns_the_classes_shares_from_training_labels_only(self, blocks):
        blocks.y = blocks.y.where(~blocks.train_mask, blocks.y.clamp(max=1))  # class 2 is never seen in training
        model = GPN(8, 16, 4)
        train(model, blocks, objective=UncertainCrossEntropy(), epochs=3)
        counts = blocks.y[blocks.train_mask].bincount(minlength=4)
        torch.testing.assert_close(model.class_shares, counts / 30)
        assert model.class_shares[2] == model.class_shares[3] == 0
        assert torch.isfinite(Outputs.of(model, blocks).logits).all()
        train(model, blocks, objective=CrossEntropy(), epochs=1)
        assert model.class_shares.tolist() == [0.25] * 4

    def test_parts_that_were_frozen_stay_as_they_are(self, blocks):
        model = GPN(8, 16, 3)
        model.latent.weight.requires_grad_(False)
        train(model, blocks, objective=UncertainCrossEntropy(warmup=0), epochs=2, seed=None)
        assert not model.latent.weight.requires_grad
        assert model.latent.weight.grad is None

    def test_it_says_what_is_wrong(self, blocks):
        with pytest.raises(ValueError, match=r"'model' must be a GPN for UncertainCrossEntropy\(.*\) \(got GCN\)"):
            train(GCN(8, 16, 3), blocks, objective=UncertainCrossEntropy())
        with pytest.raises(ValueError, match="'task' must be 'multiclass' for UncertainCrossEntropy"):
            UncertainCrossEntropy().loss(outputs([[1.0, 1.0]] * 2, [0, 0], "multilabel"))

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"weight": -1}, r"'weight' must be >= 0 \(got -1\)"),
            ({"warmup": -1}, "'warmup' must be a whole number >= 0"),
        ],
    )
    def test_bad_settings(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            UncertainCrossEntropy(**arguments)

    def test_binding_leaves_the_record_as_it_is(self, blocks):
        bound = UncertainCrossEntropy().bound(blocks, lambda _: torch.empty(0))
        assert bound == UncertainCrossEntropy()
        assert hash(bound) == hash(UncertainCrossEntropy())
        assert repr(bound) == "UncertainCrossEntropy(weight=0.0001, warmup=5)"
