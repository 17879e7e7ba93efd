"""The yardstick measures the same thing: with the same weights, plain and ours give the same. Nothing is timed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from benchmarks.cases import compact, generated
from benchmarks.timing import Machine, Work, in_turns

from benchmarks import measures, plain, timing
from gnnsafe import CrossEntropy, EnergyMargin, Outputs, metrics, train
from gnnsafe.methods import GNNSafe
from gnnsafe.models import GCN, MODELS


def with_own_biases(name: str) -> torch.nn.Module:
    model = MODELS[name](8, plain.HIDDEN, 3)
    with torch.no_grad():
        for bias in model.biases:
            bias.normal_()
    return model


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", plain.MODELS)
def test_the_same_logits(name, blocks, training):
    model, reference = with_own_biases(name).train(training), plain.MODELS[name](8, 3).train(training)
    plain.copied(model, reference)
    logits, expected = (network(blocks.x, blocks.edge_index) for network in (model, reference))
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-4)


def test_the_same_training_and_scores(blocks, exposure):
    margin = (-5.0, -1.0, 0.1)
    torch.manual_seed(0)
    blocks.x, exposure.x = blocks.x.double(), exposure.x.double()
    model, reference = GCN(8, plain.HIDDEN, 3).double(), plain.GCN(8, 3).double()
    plain.copied(model, reference)
    reference.first.bias.requires_grad_(False)  # before BatchNorm its gradient is rounding, of which Adam makes steps
    objective = EnergyMargin(*margin, isolated="decay")
    history = train(model, blocks, objective=objective, exposure=exposure, epochs=5, seed=None)
    _, losses = plain.trained(plain.Training(reference, blocks, exposure, margin), 5)
    assert losses == pytest.approx(history.val_loss, rel=1e-6)
    scores = GNNSafe(isolated="decay").score(Outputs.of(model, blocks))
    torch.testing.assert_close(scores, plain.scores(reference, blocks), atol=1e-5, rtol=1e-5, check_dtype=False)


def test_the_same_metrics():
    inside, outside = np.random.default_rng(0).normal(size=(2, 500))
    ours = metrics.detection(inside, outside + 1)
    assert plain.detection(inside, outside + 1) == pytest.approx((ours.auroc, ours.aupr_in, ours.fpr95))


def test_a_generated_graph_has_its_shape():
    graph = generated(200, 1000, 50, 0.05, 4, seed=0)
    assert graph.x.shape == (200, 50)
    assert graph.edge_index.shape == (2, 1000)
    assert int(graph.train_mask.sum()) == 20
    assert 0.02 < (graph.x != 0).float().mean() < 0.08
    assert torch.equal(compact(graph).x.to_dense(), graph.x)


def test_ways_take_turns_and_the_first_turn_does_not_count():
    calls = []
    ways = [lambda: calls.append("a") or [1.0, 1.0], lambda: calls.append("b") or [2.0, 4.0]]
    medians = in_turns(ways, budget=60, most=3)
    assert calls == ["a", "b"] * 4  # though one of them took six times
    assert medians == [1.0, 3.0]


def test_a_block_warms_up_unless_it_is_slow(monkeypatch):
    calls = []
    monkeypatch.setattr(timing, "seconds", lambda call: call() or durations[len(calls) - 1])
    durations = [9.0, 8.0, 0.2, 0.3]
    assert timing.several(lambda: calls.append(1), within=1.0)() == [8.0]
    calls.clear()
    durations = [0.5, 0.1, 0.2, 0.3, 9.0]
    assert timing.several(lambda: calls.append(1), within=1.0)() == [0.1, 0.2, 0.3]
    calls.clear()
    assert timing.several(lambda: calls.append(1), at_most=2, within=1.0)() == [0.1, 0.2]


@pytest.mark.parametrize("density", [0.02, 1.0])
def test_the_work_of_a_step_by_hand(density):
    graph = compact(generated(200, 400, 8, density, 3, seed=0))
    model = GCN(8, plain.HIDDEN, 3)
    passes = measures.both_passes(model, graph, "train_mask", CrossEntropy(), graph.val_mask)
    work = measures.step_work(passes, 3)
    layers = [(layer.adjacency.csr.values().numel(), *layer.adjacency.csr.shape)
              for layer in (passes.last, passes.last_in_validation)]  # fmt: skip
    assert all(layer.hears_first for layer in (passes.last, passes.last_in_validation))
    last = [2 * entries * 64 + 2 * kept * 64 * 3 for entries, kept, _ in layers]
    last = 2 * last[0] + 2 * layers[0][1] * 64 * 3 + last[1]  # there and back, where ∂W₂ is one product more
    if density == 1:
        first = 2 * 64 * 8 * (len(passes.rows.features) + layers[0][2] + 8)
    else:
        assert passes.rows.inputs.aggregated
        first = 2 * 2 * 64 * passes.rows.inputs.features.csr.values().numel()
    assert work.flops == first + last


def test_the_bound_is_the_slower_of_moving_and_multiplying():
    machine = Machine(bandwidth=10.0, flops=100.0)
    assert machine.bound(Work(50, 100) + Work(0, 200)) == 5.0
    assert machine.bound(Work(10, 300)) == 3.0
