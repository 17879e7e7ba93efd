"""ODIN: temperature and a small step towards the prediction."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gnnsafe.methods.base import Method, fitted
from gnnsafe.methods.perturbation import check_epsilon, perturbed
from gnnsafe.methods.rows import entries_by_row
from gnnsafe.outputs import Outputs
from gnnsafe.scores import check_temperature, log_probabilities, max_softmax

__all__ = ["ODIN"]

STEP = 0.0014  # the original's ε, for inputs of unit variance


@dataclass
class ODIN(Method):
    """MSP at a temperature after a step: −max_c softmax(z(x')/T), x' = x − ε sign ∇(−log max p) (Liang et al., 2018).

    Every node's features take the step, each node is scored. ε is absolute; by default it is the original's 0.0014 in
    units of the training nodes' feature scale (the root of their mean square), since the original's inputs had unit
    variance: bags of words with rows that sum to 1 have entries a hundred times smaller.

    Args:
        temperature: T, above 0.
        epsilon: ε, the size of the step; None: by the scale of the training nodes' features.

    Raises:
        InputError: An argument breaks its rule.
    """

    temperature: float = 1000.0
    epsilon: float | None = None
    epsilon_: float = fitted()

    def __post_init__(self) -> None:
        check_temperature(self.temperature)
        if self.epsilon is not None:
            check_epsilon(self.epsilon)

    def fit(self, outputs: Outputs, y: Tensor, mask: Tensor) -> ODIN:
        """Learn the scale of the features."""
        super().fit(outputs, y, mask)
        self.epsilon_ = STEP * _root_mean_square(outputs.graph.x, mask) if self.epsilon is None else self.epsilon
        return self

    @property
    def base_reach(self) -> int | None:
        """Any, once features move: a node's step depends on the loss of all whose receptive field it is in."""
        return 0 if self.epsilon == 0 else None

    def base_scores(self, outputs: Outputs) -> Tensor:
        """−max_c softmax(z/T)_c of the model on the features after the step."""
        logits = perturbed(outputs, self.epsilon_, self._doubt).logits
        # At T = 1000 probabilities differ in their last float32 digits only.
        return max_softmax(logits.double() / float(self.temperature), task=outputs.task).float()

    def _doubt(self, outputs: Outputs) -> Tensor:
        """Σ −log max_c softmax(z/T)_c, the cross-entropy to the model's own predictions."""
        log_p = log_probabilities(outputs.logits.double() / float(self.temperature), task=outputs.task)
        heads = log_p.view(len(log_p), -1, 2) if outputs.task == "multilabel" else log_p
        return -heads.amax(dim=-1).sum()


def _root_mean_square(x: Tensor, mask: Tensor) -> float:
    if x.layout == torch.sparse_csr:
        rows, _, entries = entries_by_row(x)
        entries = entries[mask[rows]]
    else:
        entries = x[mask].double()
    return math.sqrt(float(entries.square().sum()) / (int(mask.sum()) * x.shape[1]))
