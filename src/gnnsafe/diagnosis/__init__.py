"""Which detector suits which trouble on this graph? Judged without any OOD data.

Trouble of four kinds is planted into the user's own ID graph, new classes among them, and every candidate has to
find it. The verdict is given for each kind by itself, with how sure it is.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from gnnsafe.diagnosis.candidates import CANDIDATES, contenders
from gnnsafe.diagnosis.result import HETEROPHILY, Candidate, Diagnosis, Verdict
from gnnsafe.diagnosis.trials import Ask, ready, tried
from gnnsafe.diagnosis.verdict import judge, overall
from gnnsafe.errors import HeterophilyWarning, require_seed, require_whole
from gnnsafe.graph import Data, node_labels
from gnnsafe.homophily import label_homophily, mean_homophily, score_homophily
from gnnsafe.methods import Method
from gnnsafe.methods.scored import base_scores_of
from gnnsafe.outputs import Outputs

__all__ = ["CANDIDATES", "Candidate", "Diagnosis", "Verdict", "diagnose"]


def diagnose(
    method: Method,
    ask: Ask,
    data: Data,
    *,
    candidates: Sequence[Method | str] = CANDIDATES,
    draws: int = 3,
    seed: int = 0,
) -> Diagnosis:
    """Of a fitted method, on the outputs that `ask` gives for a graph, and the ID graph that it was fitted on."""
    require_whole("draws", draws, 1)
    require_seed(seed)
    data = ready(data)
    outputs = ask(data)
    tries, left_out = contenders(method, candidates, outputs)
    figures, trials, untried = tried(tries, ask, data, outputs, draws=draws, seed=seed)
    found = {name: Candidate(name, made, figures[name]) for name, made in tries.methods().items()}
    everyone, default = tuple(found.values()), found[tries.default]
    advised, closest = overall(everyone, default, list(trials))
    result = Diagnosis(
        verdicts={trouble: judge(everyone, default, trouble) for trouble in trials},
        overall=advised,
        closest=closest,
        candidates=everyone,
        default=default,
        trials=trials,
        left_out=left_out | untried,
        prediction_homophily=_prediction_homophily(outputs),
        label_homophily=_label_homophily(data, outputs),
        score_homophily=score_homophily(_before_propagation(method, outputs), data.edge_index),
    )
    if result.heterophilic:
        warnings.warn(HETEROPHILY, HeterophilyWarning, stacklevel=3)
    return result


def _before_propagation(method: Method, outputs: Outputs) -> Tensor:
    """The base scores, weighed by this graph and not by the one that was seen last."""
    return base_scores_of(method, outputs) if method.propagation.steps else method.score(outputs)


def _prediction_homophily(outputs: Outputs) -> tuple[float, float]:
    if outputs.logits.shape[1] == 0:
        return math.nan, math.nan
    single = outputs.task == "multiclass"
    predicted = outputs.logits.argmax(dim=1, keepdim=True) if single else (outputs.logits > 0).long()
    return mean_homophily(predicted, outputs.graph.edge_index)


def _label_homophily(data: Data, outputs: Outputs) -> tuple[float, float] | None:
    masks = [getattr(data, name, None) for name in ("train_mask", "val_mask")]
    known = torch.stack([mask for mask in masks if mask is not None]).any(dim=0)
    return label_homophily(node_labels(data, outputs.task), known, data.edge_index)
