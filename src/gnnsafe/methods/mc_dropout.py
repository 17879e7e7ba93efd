"""Monte Carlo dropout: the classifier run many times, each time without some of its channels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gnnsafe.errors import is_number, require, require_known, require_seed, require_whole
from gnnsafe.methods.base import Method, fitted
from gnnsafe.methods.members import MEASURES, Measure, disagreement
from gnnsafe.outputs import Outputs
from gnnsafe.scores import log_probabilities

__all__ = ["MCDropout", "dropped"]

ROOM = 30  # by which embeddings stay below the largest number: a last layer multiplies them


@dataclass
class MCDropout(Method):
    """Entropy of the mean prediction of networks with dropped channels, or their mutual information (Gal, 2016).

    Each of `samples` networks lacks channels of the penultimate embedding, drawn at `rate` from `seed` and the same for
    all nodes: one draw of the last layer's weights, as the variational reading of dropout has it. A model that was
    trained without dropout is run so all the same. The mutual information, entropy of the mean less the mean entropy,
    is what the networks disagree about.

    Args:
        measure: "entropy" or "mutual-information".
        samples: How many networks are drawn.
        rate: The share of channels that each lacks, below 1.
        seed: Of the draws.

    Raises:
        InputError: An argument breaks its rule.
    """

    measure: Measure = "entropy"
    samples: int = 20
    rate: float = 0.5
    seed: int = 0
    kept_: Tensor = fitted()
    """Which channels each network has, [samples, channels], of zeros and 1 / (1 − rate)."""

    base_reach = 0
    says = "networks with dropped channels are unsure"

    def __post_init__(self) -> None:
        require_known("measure", self.measure, MEASURES)
        require_whole("samples", self.samples, 1)
        require(is_number(self.rate) and 0 <= self.rate < 1, "rate", "lie in [0, 1)", self.rate)
        require_seed(self.seed)

    def fit(self, outputs: Outputs, y: Tensor, mask: Tensor) -> MCDropout:
        """Draw the channels that each network lacks."""
        super().fit(outputs, y, mask)
        random = torch.Generator(device="cpu").manual_seed(self.seed)
        size = (self.samples, outputs.embeddings.shape[1])
        kept = torch.rand(size, generator=random, dtype=torch.float64, device="cpu") >= self.rate
        self.kept_ = kept / (1 - self.rate)
        return self

    def base_scores(self, outputs: Outputs) -> Tensor:
        """The measure, over all networks."""
        width = self.kept_.shape[1]
        require(outputs.embeddings.shape[1] == width, "embeddings", f"have {width} channels", outputs.embeddings.shape)
        answers = (self._asked(outputs, row) for row in self.kept_)
        return disagreement(answers, self.measure)

    @staticmethod
    def _asked(outputs: Outputs, kept: Tensor) -> Tensor:
        logits = outputs.again(edit=lambda embeddings: dropped(embeddings, kept)).logits
        return log_probabilities(logits.double(), task=outputs.task)


def dropped(embeddings: Tensor, kept: Tensor) -> Tensor:
    """Embeddings without the channels whose factor is 0, the others times theirs, less where that nears the range."""
    most = min(torch.finfo(embeddings.dtype).max, torch.finfo(torch.float32).max) / ROOM
    factor = (most / embeddings.abs().amax(dim=1, keepdim=True).double()).clamp(min=1)
    return embeddings * torch.minimum(kept, factor).to(embeddings.dtype)
