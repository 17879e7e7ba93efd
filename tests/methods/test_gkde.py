from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from gnnsafe import Outputs
from gnnsafe.methods import GKDE

GRAPH = SimpleNamespace(x=torch.zeros(2, 1), edge_index=torch.empty(2, 0, dtype=torch.int64))
OUTPUTS = Outputs(torch.tensor([[0.0, math.log(5.0)], [0.0, 0.0]]), GRAPH)  # α = (2, 6) and (2, 2)


def test_by_hand():
    assert GKDE().score(OUTPUTS).tolist() == pytest.approx([-0.75, -0.5])
    assert GKDE("vacuity").score(OUTPUTS).tolist() == pytest.approx([2 / 8, 2 / 4])


@pytest.mark.parametrize("measure", ["confidence", "vacuity"])
def test_extreme_logits(measure):
    logits = torch.tensor([[1e4, -1e4], [-1e4, -1e4]])
    surely, hardly = GKDE(measure).score(Outputs(logits, GRAPH)).tolist()
    assert surely == {"confidence": -1.0, "vacuity": 0.0}[measure]
    assert hardly == {"confidence": -0.5, "vacuity": 1.0}[measure]


def test_it_says_what_is_wrong():
    with pytest.raises(ValueError, match="'measure' must be one of confidence, vacuity"):
        GKDE("energy")
    with pytest.raises(ValueError, match="'task' must be 'multiclass' for GKDE"):
        GKDE().score(Outputs(OUTPUTS.logits, GRAPH, "multilabel"))
