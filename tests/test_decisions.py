"""`Detector.decide`: all about every node from one forward pass, and as a table."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
import torch
from torch import nn

import gnnsafe
from gnnsafe import Detector
from gnnsafe.detector.decisions import Decisions
from gnnsafe.detector.sets import ClassSets
from gnnsafe.errors import InputError, MissingExtraError, NotFittedError
from gnnsafe.methods import Degree

pytestmark = pytest.mark.filterwarnings("ignore::gnnsafe.errors.CalibrationWarning")


@pytest.fixture
def detector(blocks):
    torch.manual_seed(0)
    blocks.class_names = ["red", "green", "blue"]
    return Detector(gnnsafe.models.GCN(8, 16, 3)).fit(blocks).calibrate(blocks)


@pytest.mark.parametrize(
    "options",
    [
        {"false_alarm": 0.1},
        {"fdr": 0.5, "storey": True},
        {"false_alarm": 0.1, "seed": 3},
        {"false_alarm": 0.1, "tail": "extrapolated"},
        {"fdr": 0.5, "mask": torch.arange(120) < 30},
    ],
    ids=str,
)
def test_all_is_what_each_call_says_alone(detector, blocks, options):
    decided = detector.decide(blocks, **options)
    assert torch.equal(decided.scores, detector.score(blocks))
    how = {name: value for name, value in options.items() if name in ("seed", "tail")}
    assert torch.equal(decided.p_values, detector.p_values(blocks, **how))
    assert torch.equal(decided.flags, detector.predict(blocks, **options))
    probabilities = detector.outputs(blocks).logits.softmax(dim=1)
    assert torch.equal(decided.predicted, probabilities.argmax(dim=1))
    torch.testing.assert_close(decided.probabilities, probabilities.amax(dim=1))
    assert len(decided) == 120


def test_the_model_runs_once(detector, blocks):
    detector = Detector(detector.classifier.model, "gnnsafe").fit(blocks).calibrate(blocks)
    calls = []
    handle = detector.classifier.model.register_forward_hook(lambda *_: calls.append(1))
    detector.decide(blocks, false_alarm=0.1)
    handle.remove()
    assert len(calls) == 1


def test_by_class_and_without_classes(detector, blocks):
    detector.calibrate(blocks, by_class=True)
    decided = detector.decide(blocks, false_alarm=0.2)
    assert torch.equal(decided.p_values, detector.p_values(blocks))
    trivial = Detector(None, Degree()).fit(blocks).calibrate(blocks).decide(blocks, false_alarm=0.2)
    assert (trivial.predicted, trivial.probabilities) == (None, None)
    assert trivial.to_arrow().column_names == ["id", "score", "p_value", "flag"]
    blocks.y = nn.functional.one_hot(blocks.y)
    labels = Detector(detector.classifier.model, "msp", task="multilabel").fit(blocks).calibrate(blocks)
    assert labels.decide(blocks, false_alarm=0.2).predicted is None


def test_a_table_has_the_users_ids_and_the_classes_names(detector, blocks):
    numbered = detector.decide(blocks, false_alarm=0.1).to_arrow()
    assert numbered["id"].to_pylist() == list(range(120))
    blocks.node_id = [f"n{node}" for node in range(120)]
    decided = detector.decide(blocks, false_alarm=0.1)
    table = decided.to_arrow()
    assert table.column_names == ["id", "predicted", "probability", "score", "p_value", "flag"]
    colours = ("red", "green", "blue")
    assert table["predicted"].to_pylist() == [colours[number] for number in decided.predicted.tolist()]
    assert table["score"].to_pylist() == decided.scores.tolist()
    frame = decided.to_pandas()
    assert list(frame.columns) == table.column_names
    assert frame.to_dict("list") == table.to_pydict()
    mask = torch.arange(120) % 40 == 7
    few = decided.of(mask)
    assert few.ids == ["n7", "n47", "n87"]
    assert few.to_pandas().to_dict("list") == {name: values[7::40] for name, values in table.to_pydict().items()}
    blocks.node_id[3] = 3
    with pytest.raises(InputError, match=r"^'id' must be of one type to be a column \(got .*\); correct data.node_id$"):
        detector.decide(blocks, false_alarm=0.1).to_arrow()


def test_names_of_classes_are_as_they_were_given(detector, blocks):
    decided = replace(detector.decide(blocks, false_alarm=0.1), class_names=(2**63 + 1, 3, 4))
    known = [decided.class_names[label] for label in decided.predicted.tolist()]
    assert decided.to_arrow()["predicted"].to_pylist() == decided.to_pandas()["predicted"].to_list() == known
    broken = replace(decided, class_names=("a\ud800", "b", "c"))
    for table in (broken.to_arrow, broken.to_pandas):
        with pytest.raises(InputError, match=r"correct data\..*class_names"):
            table()


@pytest.mark.parametrize("names", [("red", None, 2), (2**70, 1, 2)])
def test_names_of_classes_that_are_no_column(names):
    every, ones = torch.arange(3), torch.ones(3)
    decided = Decisions(range(3), ones, ones, ones > 0, every, ones, names)
    for said, column in ((decided, "predicted"), (ClassSets(range(3), torch.eye(3) > 0, names), "set")):
        with pytest.raises(
            InputError, match=rf"^'{column}' must be (of one type|what a column can hold) .*class_names$"
        ):
            said.to_arrow()


def test_what_a_table_needs_is_said_where_it_is_not_installed(detector, blocks, monkeypatch):
    decided = detector.decide(blocks, false_alarm=0.1)
    for package in ("pyarrow", "pandas"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=r"^an Arrow table needs pyarrow: pip install 'gnnsafe\[tables\]'$"):
        decided.to_arrow()
    with pytest.raises(MissingExtraError, match=r"^a data frame needs pandas: pip install pandas$"):
        decided.to_pandas()


def test_it_is_calibrated_first_and_told_one_level(blocks, detector):
    with pytest.raises(NotFittedError, match="is not calibrated"):
        Detector(detector.classifier.model).fit(blocks).decide(blocks, false_alarm=0.1)
    with pytest.raises(InputError, match="false_alarm"):
        detector.decide(blocks)
