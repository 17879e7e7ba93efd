"""The yardstick: the paper's training, scoring and metrics as PyG's layers and scikit-learn give them.

Dense features, `edge_index`, nothing remembered from one pass to the next: what most code, the published runs included,
does. Written for the comparison; each network has the weights of one of ours by `copied`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own idiom
from torch_geometric import nn as pyg
from torch_geometric.nn import GCNConv, JumpingKnowledge, MixHopConv, SGConv
from torch_geometric.utils import scatter

HIDDEN = 64


class GCN(nn.Module):
    """Two `GCNConv`, BatchNorm and ReLU between them."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.first, self.norm, self.last = GCNConv(features, HIDDEN), nn.BatchNorm1d(HIDDEN), GCNConv(HIDDEN, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits."""
        return self.last(F.relu(self.norm(self.first(x, edge_index))), edge_index)


class JKNet(nn.Module):
    """Two `GCNConv`, their outputs' maximum, a linear layer."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.first, self.norm, self.last = GCNConv(features, HIDDEN), nn.BatchNorm1d(HIDDEN), GCNConv(HIDDEN, HIDDEN)
        self.pool, self.head = JumpingKnowledge("max"), nn.Linear(HIDDEN, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits."""
        hidden = F.relu(self.norm(self.first(x, edge_index)))
        return self.head(self.pool([hidden, self.last(hidden, edge_index)]))


class MixHop(nn.Module):
    """Two `MixHopConv` of powers 0, 1 and 2, BatchNorm and ReLU between them, a linear layer."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.first, self.norm = MixHopConv(features, HIDDEN, [0, 1, 2]), nn.BatchNorm1d(3 * HIDDEN)
        self.last, self.head = MixHopConv(3 * HIDDEN, classes, [0, 1, 2]), nn.Linear(3 * classes, classes, bias=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits."""
        return self.head(self.last(F.relu(self.norm(self.first(x, edge_index))), edge_index))


class SGC(nn.Module):
    """`SGConv` of two hops."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.only = SGConv(features, classes, K=2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits."""
        return self.only(x, edge_index)


class APPNP(nn.Module):
    """Two linear layers, BatchNorm and ReLU between them, then ten steps of `APPNP`."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.first, self.norm, self.last = (
            nn.Linear(features, HIDDEN),
            nn.BatchNorm1d(HIDDEN),
            nn.Linear(HIDDEN, classes),
        )
        self.diffusion = pyg.APPNP(K=10, alpha=0.1)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits."""
        return self.diffusion(self.last(F.relu(self.norm(self.first(x)))), edge_index)


MODELS: dict[str, type[nn.Module]] = {"gcn": GCN, "jknet": JKNet, "mixhop": MixHop, "sgc": SGC, "appnp": APPNP}


def copied(ours: Any, plain: Any) -> None:
    """Give a plain network the weights of ours."""
    weights: dict[str, Tensor] = {}
    name = {GCN: "gcn", JKNet: "jknet", MixHop: "mixhop", SGC: "sgc", APPNP: "appnp"}[type(plain)]
    layers = {"gcn": ("first.lin", "last.lin"), "jknet": ("first.lin", "last.lin", "head"), "sgc": ("only.lin",),
              "appnp": ("first", "last"), "mixhop": ()}[name]  # fmt: skip
    for layer, weight in zip(layers, ours.weights, strict=False):
        weights[f"{layer}.weight"] = weight.T
    if name == "mixhop":
        for layer, weight in zip(("first", "last"), ours.weights, strict=True):
            weights |= {f"{layer}.lins.{hop}.weight": part.T for hop, part in enumerate(weight.chunk(3, dim=1))}
        weights |= {"last.bias": ours.biases[0], "head.weight": ours.head.T}
    else:
        bias = {"gcn": ["last.bias"], "jknet": ["last.bias", "head.bias"], "sgc": ["only.lin.bias"]}.get(
            name, ["last.bias"]
        )
        weights |= dict(zip(bias, ours.biases, strict=True))
    for key, value in (ours.norms[0].state_dict() if ours.norms else {}).items():
        weights[f"norm.{key}"] = value
    unmatched = plain.load_state_dict({key: value.detach().clone() for key, value in weights.items()}, strict=False)
    assert not unmatched.unexpected_keys
    with torch.no_grad():  # biases before BatchNorm, which ours have not
        for key in unmatched.missing_keys:
            plain.get_parameter(key).zero_()


def energy(logits: Tensor) -> Tensor:
    """−log Σ exp z."""
    return -torch.logsumexp(logits, dim=1)


def propagated(scores: Tensor, edge_index: Tensor, steps: int = 2, alpha: float = 0.5) -> Tensor:
    """`steps` times s ← α s + (1−α) D⁻¹A s, by gathering along the edges; a node without in-neighbours decays."""
    for _ in range(steps):
        averaged = scatter(scores[edge_index[0]], edge_index[1], dim_size=len(scores), reduce="mean")
        scores = alpha * scores + (1 - alpha) * averaged
    return scores


def summed(scores: Tensor, edge_index: Tensor, steps: int, alpha: float = 0.5) -> Tensor:
    """The same in plain torch: `bincount`, a gather along the edges and `index_add_`."""
    source, target = edge_index
    degree = torch.bincount(target, minlength=len(scores)).clamp(min=1).to(scores.dtype)
    for _ in range(steps):
        averaged = torch.zeros_like(scores).index_add_(0, target, scores[source]) / degree
        scores = alpha * scores + (1 - alpha) * averaged
    return scores


class Training:
    """A model under training: `step()` is one epoch's training step and the validation loss after it."""

    def __init__(
        self, model: nn.Module, data: Any, exposure: Any = None, margin: tuple[float, float, float] | None = None
    ) -> None:
        self.model, self.data, self.exposure, self.margin = model, data, exposure, margin
        self.optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=0.01)

    def step(self) -> float:
        """Cross-entropy, with the margin loss on propagated energies where there is one."""
        data = self.data
        self.model.train()
        self.optimizer.zero_grad()
        logits = self.model(data.x, data.edge_index)
        loss = F.cross_entropy(logits[data.train_mask], data.y[data.train_mask])
        if self.margin is not None:
            loss = loss + self._margin(logits)
        loss.backward()
        self.optimizer.step()
        self.model.eval()
        with torch.no_grad():
            logits = self.model(data.x, data.edge_index)
            return F.cross_entropy(logits[data.val_mask], data.y[data.val_mask]).item()

    def _margin(self, logits: Tensor) -> Tensor:
        t_in, t_out, weight = self.margin
        outside = self.model(self.exposure.x, self.exposure.edge_index)
        inside = propagated(energy(logits), self.data.edge_index)[self.data.train_mask]
        outside = propagated(energy(outside), self.exposure.edge_index)[self.exposure.mask]
        return weight * (F.relu(inside - t_in).square().mean() + F.relu(t_out - outside).square().mean())


@torch.no_grad()
def scores(model: nn.Module, graph: Any) -> Tensor:
    """GNNSafe's score of every node."""
    model.eval()
    return propagated(energy(model(graph.x, graph.edge_index)), graph.edge_index)


def detection(id_scores: Any, ood_scores: Any) -> tuple[float, float, float]:
    """AUROC, AUPR and FPR95 with ID as the positive class, from scikit-learn's three functions."""
    score = -np.concatenate([id_scores, ood_scores])
    label = np.concatenate([np.ones(len(id_scores)), np.zeros(len(ood_scores))])
    false, true, _ = roc_curve(label, score, drop_intermediate=False)
    return roc_auc_score(label, score), average_precision_score(label, score), float(false[np.argmax(true >= 0.95)])


def trained(
    training: Training, epochs: int, after: Callable[[], object] = lambda: None
) -> tuple[dict[str, Tensor], list[float]]:
    """The weights of the epoch with the lowest validation loss, and every epoch's; `after` is called after each."""
    losses: list[float] = []
    best: dict[str, Tensor] = {}
    for _ in range(epochs):
        losses.append(training.step())
        after()
        if losses[-1] <= min(losses):
            best = {key: value.clone() for key, value in training.model.state_dict().items()}
    training.model.load_state_dict(best)
    return best, losses
