from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gnnsafe import CrossEntropy, EnergyMargin, Outputs, energy, propagate
from gnnsafe.edges import Edges
from gnnsafe.prepared import PreparedGraph, prepare
from gnnsafe.regions import excerpt
from gnnsafe.training import OBJECTIVES, BoundedEnergy, Objective, OutlierExposure


def graph(**attributes) -> SimpleNamespace:
    return SimpleNamespace(x=torch.zeros(2, 1), edge_index=torch.tensor([[0], [1]]), **attributes)


# Energies: ID nodes −log 8 and −log 2 (only node 0 is labelled), exposure nodes −log 4 and −log 100 (only 1 counts).
ID = Outputs(
    torch.tensor([[math.log(2.0), math.log(6.0)], [0.0, 0.0]]),
    graph(y=torch.tensor([1, 0]), train_mask=torch.tensor([True, False])),
)
EXPOSURE = Outputs(
    torch.tensor([[math.log(2.0), math.log(2.0)], [math.log(50.0), math.log(50.0)]]),
    graph(mask=torch.tensor([False, True])),
)


def test_cross_entropy_by_hand():
    assert CrossEntropy().loss(ID).item() == pytest.approx(-math.log(0.75))


def test_outlier_exposure_by_hand():
    # exposure node 1 has p = (½, ½): −mean log p = log 2
    assert OutlierExposure().loss(ID, EXPOSURE).item() == pytest.approx(-math.log(0.75) + 0.5 * math.log(2))
    surer = Outputs(torch.tensor([[0.0, 0.0], [math.log(3.0), 0.0]]), EXPOSURE.graph)
    uniform = (math.log(4 / 3) + math.log(4)) / 2
    assert OutlierExposure(weight=2.0).loss(ID, surer).item() == pytest.approx(-math.log(0.75) + 2 * uniform)


def test_bounded_energy_by_hand():
    # logits (3, 4) and (5, 12): norms 5 and 13 (mean 9, variance 16), sums 7 and 17 (mean 12, variance 25)
    outputs = Outputs(
        torch.tensor([[3.0, 4.0], [5.0, 12.0]]),
        graph(y=torch.tensor([1, 1]), train_mask=torch.tensor([True, True])),
    )
    plain = CrossEntropy().loss(outputs).item()
    objective = BoundedEnergy(weight=2.0, share=0.75, first_epoch=3)
    assert objective.loss(outputs, epoch=2).item() == pytest.approx(plain)
    expected = plain + 2 * (0.75 * 16 / 9 + 0.25 * 25 / 12)
    assert objective.loss(outputs, epoch=3).item() == pytest.approx(expected)


def test_multilabel_losses_by_hand():
    # σ(log 3) = ¾ with label 1, σ(0) = ½ with label 0, on node 0; the exposure node has σ = ½ and ¾
    inside = Outputs(
        torch.tensor([[math.log(3.0), 0.0], [9.0, 9.0]]),
        graph(y=torch.tensor([[1, 0], [0, 0]]), train_mask=torch.tensor([True, False])),
        "multilabel",
    )
    outside = Outputs(torch.tensor([[0.0, 0.0], [0.0, math.log(3.0)]]), EXPOSURE.graph, "multilabel")
    plain = (math.log(4 / 3) + math.log(2)) / 2
    assert CrossEntropy().loss(inside).item() == pytest.approx(plain)
    uniform = (2 * math.log(2) + math.log(4 / 3) + math.log(4)) / 4
    assert OutlierExposure().loss(inside, outside).item() == pytest.approx(plain + 0.5 * uniform)
    margin = EnergyMargin(t_in=-9.0, t_out=9.0, weight=1.0, steps=0).loss(inside, outside).item()
    # energies −log 4 − log 2 = −log 8 on both
    assert margin == pytest.approx(plain + (9 - math.log(8)) ** 2 + (9 + math.log(8)) ** 2, rel=1e-5)


def test_energy_margin_by_hand_without_propagation():
    loss = EnergyMargin(t_in=-3.0, t_out=-1.0, weight=0.1, steps=0).loss(ID, EXPOSURE).item()
    above = (-math.log(8) + 3.0) ** 2  # an ID node whose energy is above t_in
    below = (-1.0 + math.log(100)) ** 2  # an exposure node whose energy is below t_out
    assert loss == pytest.approx(-math.log(0.75) + 0.1 * (above + below), rel=1e-5)


def test_energy_margin_by_hand_with_propagation():
    loss = EnergyMargin(t_in=-3.0, t_out=-1.0, weight=0.1, steps=1, alpha=0.5).loss(ID, EXPOSURE).item()
    heard = -0.5 * math.log(100) - 0.5 * math.log(4)  # exposure node 1 hears node 0; ID node 0 has no in-neighbours
    margin = (-math.log(8) + 3.0) ** 2 + (-1.0 - heard) ** 2
    assert loss == pytest.approx(-math.log(0.75) + 0.1 * margin, rel=1e-5)
    decayed = EnergyMargin(-3.0, -1.0, 0.1, steps=1, isolated="decay").loss(ID, EXPOSURE).item()
    margin = (-0.5 * math.log(8) + 3.0) ** 2 + (-1.0 - heard) ** 2
    assert decayed == pytest.approx(-math.log(0.75) + 0.1 * margin, rel=1e-5)


def test_energies_beyond_the_margins_cost_nothing():
    loss = EnergyMargin(t_in=-1.0, t_out=-9.0, weight=1.0, steps=0).loss(ID, EXPOSURE)
    assert loss.item() == pytest.approx(CrossEntropy().loss(ID).item())


def test_each_mean_is_over_its_own_set(blocks):
    """One exposure node twice over changes nothing: neither set is cut to the other's length."""
    blocks.mask = torch.ones(120, dtype=torch.bool)
    logits = torch.randn(120, 3)
    once = Outputs(logits[:1], SimpleNamespace(x=torch.zeros(1, 1), edge_index=torch.empty(2, 0, dtype=torch.int64),
                                               mask=torch.ones(1, dtype=torch.bool)))  # fmt: skip
    often = Outputs(logits[:1].expand(500, -1), SimpleNamespace(
        x=torch.zeros(500, 1), edge_index=torch.empty(2, 0, dtype=torch.int64), mask=torch.ones(500, dtype=torch.bool)
    ))  # fmt: skip
    objective, outputs = EnergyMargin(-5.0, -0.1, 1.0), Outputs(logits, blocks)
    torch.testing.assert_close(objective.loss(outputs, often), objective.loss(outputs, once))


def test_gradients_flow_through_the_propagation(directed):
    """An exposure node that counts pulls at the logits of the node it hears."""
    logits = torch.zeros(5, 2, requires_grad=True)
    directed.mask = torch.tensor([True, False, False, False, False])  # 0 hears 2
    quiet = SimpleNamespace(**{**vars(directed), "y": torch.zeros(5, dtype=torch.int64), "train_mask": directed.mask})
    EnergyMargin(0.0, 5.0, 1.0, steps=1).loss(Outputs(torch.zeros(5, 2), quiet), Outputs(logits, directed)).backward()
    assert logits.grad[2].abs().sum() > 0
    assert logits.grad[3].abs().sum() == 0


@pytest.mark.parametrize("isolated", ["keep", "decay"])
@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
@pytest.mark.parametrize("mask", [[True] * 5, [True, False, True, False, True]])
def test_the_margin_has_the_gradient_of_its_formula(directed, task, isolated, mask):
    torch.manual_seed(0)
    directed.x = directed.x.double()
    directed.mask = directed.train_mask = torch.tensor(mask)
    directed.y = torch.tensor([0, 1, 2, 0, 1])
    directed.y = torch.nn.functional.one_hot(directed.y) if task == "multilabel" else directed.y
    inside, outside = (2 * torch.randn(5, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    objective = EnergyMargin(-4.0, -1.0, 0.7, steps=3, alpha=0.3, isolated=isolated)
    sides = Outputs(inside, directed, task), Outputs(outside, directed, task)
    loss = objective.loss(*sides)

    def excess(logits, sign, limit):
        scores = propagate(energy(logits, task=task), directed.edge_index, steps=3, alpha=0.3, isolated=isolated)
        return torch.relu(sign * (scores[directed.mask] - limit)).square().mean()

    expected = CrossEntropy().loss(sides[0]) + 0.7 * (excess(inside, 1, -4.0) + excess(outside, -1, -1.0))
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    pairs = zip(*(torch.autograd.grad(value, [inside, outside]) for value in (loss, expected)), strict=True)
    for actual, wanted in pairs:
        assert wanted.abs().max() > 0
        torch.testing.assert_close(actual, wanted, atol=1e-12, rtol=0)


def test_the_margins_gradient_has_none_and_says_so(directed):
    directed.mask = directed.train_mask = torch.ones(5, dtype=torch.bool)
    directed.y = torch.zeros(5, dtype=torch.int64)
    outputs = Outputs(torch.zeros(5, 3, requires_grad=True), directed)
    with pytest.raises(RuntimeError, match="leave out create_graph"):
        torch.autograd.grad(EnergyMargin(-9.0, 9.0, 1.0).loss(outputs, outputs), outputs.logits, create_graph=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened_for_energies(directed, dtype):
    directed.mask = directed.train_mask = torch.ones(5, dtype=torch.bool)
    directed.y = torch.zeros(5, dtype=torch.int64)
    narrow, full = (Outputs(torch.ones(5, 3, dtype=kind), directed) for kind in (dtype, torch.float32))
    objective = EnergyMargin(-9.0, 9.0, 1.0)
    assert objective.loss(narrow, narrow).item() == pytest.approx(objective.loss(full, full).item(), rel=1e-2)


def test_logits_and_mask_of_two_graphs(directed):
    directed.train_mask, directed.y = torch.ones(5, dtype=torch.bool), torch.zeros(5, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"'train_mask' must have one entry for each of 7 rows \(got 5\)"):
        CrossEntropy().loss(Outputs(torch.zeros(7, 2), directed))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"weight": -0.1}, r"'weight' must be >= 0 \(got -0.1\)"),
        ({"t_in": math.nan}, "'t_in' must be a finite number"),
        ({"t_out": math.inf}, "'t_out' must be a finite number"),
        ({"steps": -1}, "'steps' must be"),
        ({"alpha": 2}, "'alpha' must lie in"),
    ],
)
def test_bad_settings(arguments, message):
    with pytest.raises(ValueError, match=message):
        EnergyMargin(**{"t_in": -5.0, "t_out": -1.0, "weight": 0.1, **arguments})


def test_exposure_missing():
    with pytest.raises(ValueError, match=r"'exposure' must be given for EnergyMargin\(t_in=-5.0"):
        EnergyMargin(-5.0, -1.0, 0.1).loss(ID, None)


def test_the_table():
    assert {name: objective.needs_exposure for name, objective in OBJECTIVES.items()} == {
        "cross-entropy": False,
        "outlier-exposure": True,
        "energy-margin": True,
        "bounded-energy": False,
        "kernel-dirichlet": False,
        "uncertain-cross-entropy": False,
        "member-cross-entropy": False,
        "synthetic-exposure": False,
        "dirichlet-margin": True,
    }


LOGITS = hnp.arrays(np.float64, (4, 3), elements=st.floats(-8, 8))


@given(LOGITS, st.floats(0.01, 10))
def test_proposition_1_a_step_down_the_cross_entropy_lowers_the_energy(logits, lr):
    """For every node that is predicted right, by any step: energy is concave in the logits, its slope −(p_y − Σp²)."""
    z = torch.from_numpy(logits).requires_grad_()
    y = z.argmax(dim=1)
    torch.nn.functional.cross_entropy(z, y, reduction="sum").backward()
    assert (energy((z - lr * z.grad).detach()) <= energy(z.detach()) + 1e-9).all()


@given(LOGITS, st.floats(-9, -5), st.floats(-4, -1))
def test_proposition_3_margins_can_be_met_without_touching_the_softmax(logits, t_in, t_out):
    """Shift every node's logits by a constant until its energy is at the margin: same predictions, no margin loss."""
    z = torch.from_numpy(logits)

    def shifted(target: float) -> torch.Tensor:
        return z + (energy(z) - target)[:, None]

    torch.testing.assert_close(shifted(t_in).softmax(1), z.softmax(1))
    torch.testing.assert_close(energy(shifted(t_in)), torch.full((4,), t_in, dtype=torch.float64))
    ring = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    everyone = torch.ones(4, dtype=torch.bool)
    data = SimpleNamespace(
        x=torch.zeros(4, 1), edge_index=ring, y=torch.arange(4) % 3, train_mask=everyone, mask=everyone
    )
    loss = EnergyMargin(t_in, t_out, 1.0).loss(Outputs(shifted(t_in), data), Outputs(shifted(t_out), data))
    torch.testing.assert_close(loss, CrossEntropy().loss(Outputs(z, data)))
    assert torch.allclose(propagate(energy(shifted(t_in)), ring), torch.tensor(t_in, dtype=torch.float64))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OutlierExposure(weight=-1), "'weight' must be >= 0"),
        (lambda: BoundedEnergy(weight=math.nan), "'weight' must be >= 0"),
        (lambda: BoundedEnergy(share=2), r"'share' must lie in \[0, 1\]"),
        (lambda: BoundedEnergy(first_epoch=-1), "'first_epoch' must be a whole number >= 0"),
        (lambda: OutlierExposure().loss(ID), "'exposure' must be given for OutlierExposure"),
    ],
)
def test_what_other_objectives_refuse(make, message):
    with pytest.raises(ValueError, match=message):
        make()


class TestReach:
    """An objective is given the graph only as far as it reads it."""

    OBJECTIVES = (
        CrossEntropy(), OutlierExposure(), BoundedEnergy(first_epoch=0),
        *(EnergyMargin(-1.0, 1.0, 1.0, steps=k, isolated=isolated) for k in range(4) for isolated in ("keep", "decay")),
    )  # fmt: skip

    @pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
    def test_the_excerpt_gives_the_same_loss_and_gradients(self, objective):
        generator = torch.Generator().manual_seed(0)
        edges = torch.cat(
            [torch.randint(50, (2, 60), generator=generator), torch.tensor([[7, 7, 8], [7, 7, 9]])], dim=1
        )
        mask = torch.arange(60) % 20 == 7
        data = SimpleNamespace(
            x=torch.zeros(60, 1), edge_index=edges, y=torch.arange(60) % 3, train_mask=mask, mask=mask
        )
        logits = torch.randn(60, 3, generator=generator, dtype=torch.float64).requires_grad_()
        rows, part = excerpt(prepare(data), mask, objective.reach())
        assert len(rows) < 40  # else this test shows nothing
        part = PreparedGraph(part, Edges(part.edge_index, len(rows)))
        whole = objective.loss(Outputs(logits, data), Outputs(2 * logits, data))
        less = objective.loss(Outputs(logits[rows], part), Outputs(2 * logits[rows], part))
        torch.testing.assert_close(less, whole)
        torch.testing.assert_close(*(torch.autograd.grad(loss, logits, retain_graph=True) for loss in (less, whole)))

    def test_those_that_reach_nodes_against_the_edges(self, directed):
        """0→1, 0→1, 1→2, 2→0, 3→2, 2→2, 2→2; 4 is alone."""
        for node, hops, expected in [(1, 0, [1]), (1, 1, [0, 1]), (1, 2, [0, 1, 2]), (3, 5, [3]), (4, 2, [4])]:
            for edges in (directed.edge_index, directed.edge_index.int()):
                directed.edge_index = edges
                assert excerpt(prepare(directed), torch.arange(5) == node, hops)[0].tolist() == expected

    def test_an_excerpt_has_the_edges_between_its_nodes(self, directed):
        directed.y = torch.tensor([0, 1, 2, 3, 4])
        _, part = excerpt(prepare(directed), torch.tensor([False, True, True, True, False]), 0)
        assert part.edge_index.tolist() == [[0, 2, 1, 1], [1, 1, 1, 1]]
        assert part.y.tolist() == [1, 2, 3]
        assert part.x.shape == (3, 6)
        with pytest.raises(NotImplementedError):
            part.x.tolist()  # features are not there to be read

    def test_another_loss_reads_all_nodes_unless_it_says_otherwise(self):
        class Wider(CrossEntropy):
            def loss(self, outputs, exposure=None, *, epoch=0):
                return super().loss(outputs) + outputs.logits.square().mean()

        class Same(CrossEntropy):
            pass

        class Told(Wider):
            def reach(self):
                return 3

        assert [cls().reach() for cls in (Wider, Same, Told)] == [None, 0, 3]
        assert {name for name, objective in OBJECTIVES.items() if objective.reach is Objective.reach} == {
            "kernel-dirichlet",
            "member-cross-entropy",
            "synthetic-exposure",
            "dirichlet-margin",
        }
