"""Whatever a public call is given, it answers, or it says in one line which value breaks which rule."""

from __future__ import annotations

import inspect
import warnings

import numpy as np
import pytest
import torch

import gnnsafe
from gnnsafe.errors import GnnsafeError
from gnnsafe.models import GCN, MODELS

ODD = [
    True, None, "x", "0.5", -1, 0, 1.5, float("nan"), float("inf"), 2**40, 2**70, -(2**70), [], [1], {}, b"1",
    np.int64(2), np.float32(0.5), torch.tensor(1), torch.tensor([0.5, 0.5]), object(), 1j, (), "\x00",
]  # fmt: skip
CALLS = {
    "score": {}, "score_new": {"nodes": [1]}, "predict": {"false_alarm": 0.1}, "decide": {"false_alarm": 0.1},
    "predict_new": {"nodes": [1], "false_alarm": 0.1}, "p_values": {}, "predict_sets": {}, "check_calibration": {},
    "explain": {"node": 1}, "calibrate": {}, "fit": {}, "outputs": {},
}  # fmt: skip


def refuse_or_answer(call, arguments, **given):
    """Each argument in turn is odd; any error is ours and one line."""
    for name in arguments:
        for odd in ODD:
            said = ""
            try:
                call(**{**given, name: odd})
            except GnnsafeError as error:
                said = str(error)
            assert "\n" not in said, (name, odd)


def named(function):
    return [name for name in inspect.signature(function).parameters if name != "self"]


@pytest.fixture
def detector(blocks):
    torch.manual_seed(0)
    return gnnsafe.Detector(GCN(8, 16, 3), "gnnsafe").fit(blocks).calibrate(blocks)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CALLS)
def test_the_detectors_calls(detector, blocks, name):
    call = getattr(detector, name)
    refuse_or_answer(call, named(call), data=blocks, **CALLS[name])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_the_models(name):
    kind = MODELS[name]
    refuse_or_answer(kind, named(kind), in_channels=3, hidden_channels=4, out_channels=2)


def test_files_and_functions(detector, blocks):
    logits, edges = torch.randn(4, 3), torch.tensor([[0, 1], [1, 2]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for function in (gnnsafe.energy, gnnsafe.entropy, gnnsafe.max_logit, gnnsafe.max_softmax):
            refuse_or_answer(function, named(function), logits=logits)
        refuse_or_answer(gnnsafe.propagate, named(gnnsafe.propagate), scores=logits[:, 0], edge_index=edges)
        refuse_or_answer(gnnsafe.score_logits, named(gnnsafe.score_logits), logits=logits, edge_index=edges)
        refuse_or_answer(gnnsafe.prepare, ["data"])
        refuse_or_answer(gnnsafe.read_graph, named(gnnsafe.read_graph), path="/nowhere")
        refuse_or_answer(gnnsafe.load, named(gnnsafe.load), folder="/nowhere")
    for odd in (3, None, b"a", object()):
        with pytest.raises(GnnsafeError, match="'folder' must be a path"):
            detector.save(odd)
