"""Methods that ask the neighbours: Agreement, EdgeDisagreement, GRASP; and Consensus of several."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from gnnsafe import Outputs
from gnnsafe.graph import changed
from gnnsafe.methods import GRASP, MSP, Agreement, Consensus, EdgeDisagreement, Energy


class Sum(nn.Module):
    """Logits x of a node plus those of the nodes that point to it."""

    def forward(self, x, edge_index):
        return x.index_add(0, edge_index[1], x[edge_index[0]])


def test_agreement_by_hand():
    # p = (¾, ¼), (¼, ¾), (½, ½); 0 → 2, 1 → 2; 0 has no in-neighbours and 1
    z = torch.tensor([[math.log(3.0), 0.0], [0.0, math.log(3.0)], [0.0, 0.0]])
    graph = SimpleNamespace(x=z, edge_index=torch.tensor([[0, 1], [2, 2]]))
    assert Agreement().score(Outputs(z, graph)).tolist() == pytest.approx([0.0, 0.0, -0.5])
    graph.edge_index = torch.tensor([[0, 0], [1, 2]])
    assert Agreement().score(Outputs(z, graph)).tolist() == pytest.approx([0.0, -3 / 8, -0.5])


def test_edge_disagreement_by_hand():
    # node 1 alone: p = (½, ½); hearing 0: (¾, ¼). KL = ½ log(2/3) + ½ log 2; node 0 has no in-neighbours
    x = torch.tensor([[math.log(3.0), 0.0], [0.0, 0.0]])
    outputs = Outputs.of(Sum(), SimpleNamespace(x=x, edge_index=torch.tensor([[0], [1]])))
    assert EdgeDisagreement().score(outputs).tolist() == pytest.approx([0.0, math.log(4 / 3) / 2])


def test_edge_disagreement_needs_the_model():
    graph = SimpleNamespace(x=torch.zeros(2, 2), edge_index=torch.tensor([[0], [1]]))
    with pytest.raises(ValueError, match=r"'outputs' must come from Outputs.of\(model, graph\)"):
        EdgeDisagreement().score(Outputs(torch.zeros(2, 2), graph))


class TestConsensus:
    def test_by_hand(self):
        # Validation energies −2, −1, 0 and MSPs likewise ordered; p = (1 + #{≥ s}) / 4
        z = torch.tensor([[2.0, -30.0], [1.0, -30.0], [0.0, -30.0], [-1.0, -30.0], [1.5, -30.0]])
        graph = SimpleNamespace(
            x=z, edge_index=torch.empty(2, 0, dtype=torch.int64), val_mask=torch.tensor([True] * 3 + [False] * 2)
        )
        method = Consensus(methods=(Energy(), Energy(temperature=2.0)))
        method.fit(Outputs(z, graph), torch.zeros(5, dtype=torch.int64), torch.ones(5, dtype=torch.bool))
        p = [1.0, 0.75, 0.5, 0.25, 0.75]
        assert method.score(Outputs(z, graph)).tolist() == pytest.approx(
            [-2 * math.log(value) for value in p], abs=1e-6
        )

    def test_validation_nodes_are_needed(self):
        graph = SimpleNamespace(x=torch.zeros(2, 2), edge_index=torch.empty(2, 0, dtype=torch.int64))
        outputs = Outputs(torch.zeros(2, 2), graph)
        with pytest.raises(ValueError, match="'val_mask' must be given"):
            Consensus((MSP(),)).fit(outputs, torch.zeros(2, dtype=torch.int64), torch.ones(2, dtype=torch.bool))

    @pytest.mark.parametrize("methods", [(), [MSP()], ("msp",)])
    def test_bad_settings(self, methods):
        with pytest.raises(ValueError, match="'methods' must be a tuple of methods"):
            Consensus(methods)


class TestGRASP:
    @staticmethod
    def graph(**masks):
        """Logits whose MSP is −(1 − k/20), say; nodes 0–3 are known, 4–9 test nodes, each pointing to a known node."""
        p = torch.tensor([0.9, 0.8, 0.7, 0.9, 0.99, 0.95, 0.7, 0.65, 0.6, 0.55])
        z = torch.stack([torch.log(p / (1 - p)), torch.zeros(10)], dim=1)
        edges = torch.tensor([[4, 9, 6, 9, 0, 1], [0, 1, 2, 3, 5, 7]])
        return p.double(), Outputs(z, SimpleNamespace(x=z, edge_index=edges, **masks))

    def test_against_the_dense_matrix(self):
        train = torch.arange(10) < 2
        p, outputs = self.graph(train_mask=train, val_mask=(torch.arange(10) >= 2) & (torch.arange(10) < 4))
        method = GRASP(steps=3).fit(outputs, torch.zeros(10, dtype=torch.int64), train)
        # S_id = {4}, S_ood = {9}: 5 % and 95 % quantiles of six test scores. Gains of 0..3: 1/1, 0/2, 0/1, 0/2;
        # above their median, 0, is node 0 alone
        matrix = torch.zeros(10, 10, dtype=torch.float64)
        matrix[outputs.graph.edge_index[1], outputs.graph.edge_index[0]] = 1.0
        matrix[0, 0] += 1.001
        total = matrix.sum(dim=1)
        scores = -p
        for _ in range(3):
            scores[train] = -0.99
            scores = torch.where(total > 0, matrix @ scores / total.clamp(min=1e-9), scores)
        torch.testing.assert_close(method.score(outputs).double(), scores, atol=1e-6, rtol=0)

    def test_only_the_better_half_is_joined(self):
        train = torch.arange(10) < 4
        _, outputs = self.graph(train_mask=train)
        outputs = Outputs(
            outputs.logits, changed(outputs.graph.data, edge_index=torch.tensor([[4, 4, 9, 9], [0, 1, 2, 3]]))
        )
        method = GRASP(steps=1).fit(outputs, torch.zeros(10, dtype=torch.int64), train)
        scores = method.score(outputs)
        # 0 and 1 hear node 4 and each other: (0.99·1 + 2·1.001·0.99) / (1 + 2.002); 2 hears node 9 alone
        assert scores[0].item() == pytest.approx(-0.99)
        assert scores[2].item() == pytest.approx(-0.55)

    def test_a_graph_of_its_own_is_scored_beside_the_training_graph(self):
        train = torch.arange(10) < 4
        _, training = self.graph(train_mask=train)
        method = GRASP().fit(training, torch.zeros(10, dtype=torch.int64), train)
        z = torch.tensor([[0.0, 0.0], [1.0, 0.0]])
        alone = Outputs(z, SimpleNamespace(x=z, edge_index=torch.tensor([[0], [1]])))
        assert method.score(alone).tolist() == pytest.approx([-0.5, -0.5])

    def test_where_none_stands_out_all_known_nodes_are_joined(self):
        train = torch.arange(10) < 4
        _, outputs = self.graph(train_mask=train)
        outputs = Outputs(outputs.logits, outputs.graph.without_edges())
        method = GRASP(steps=1).fit(outputs, torch.zeros(10, dtype=torch.int64), train)
        assert method.score(outputs)[:4].tolist() == pytest.approx([-0.99] * 4)

    def test_a_graph_of_known_nodes_alone(self):
        everyone = torch.ones(10, dtype=torch.bool)
        _, outputs = self.graph(train_mask=everyone)
        method = GRASP(steps=1).fit(outputs, torch.zeros(10, dtype=torch.int64), everyone)
        assert method.score(outputs).tolist() == pytest.approx([-0.99] * 10)

    def test_new_features_on_the_same_edges_are_another_graph(self):
        train = torch.arange(10) < 4
        _, training = self.graph(train_mask=train)
        method = GRASP(steps=1).fit(training, torch.zeros(10, dtype=torch.int64), train)
        _, new = self.graph()
        new.logits[1] = 0.0
        scores = method.score(new)
        assert scores[7].item() == pytest.approx(-0.5)  # hears node 1 as it is now, which is not held at the ID end

    def test_the_training_graph_without_its_masks_is_known_again(self):
        train = torch.arange(10) < 4
        _, training = self.graph(train_mask=train)
        method = GRASP().fit(training, torch.zeros(10, dtype=torch.int64), train)
        _, bare = self.graph()
        assert torch.equal(method.score(bare), method.score(training))

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"share": 0.5}, r"'share' must lie in \(0, 0.5\)"),
            ({"weight": 0}, "'weight' must be > 0"),
            ({"steps": -1}, "'steps'"),
        ],
    )
    def test_bad_settings(self, settings, message):
        with pytest.raises(ValueError, match=message):
            GRASP(**settings)
