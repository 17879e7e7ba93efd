"""Saved detectors that somebody has changed, with a right checksum: refused in one line, or they score."""

from __future__ import annotations

import copy
import json
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import xxhash
from safetensors.torch import load, save

import gnnsafe
from gnnsafe import Detector
from gnnsafe.errors import GnnsafeError, InputError, SavedFileError
from gnnsafe.methods import KNN, MSP, Consensus, Propagated
from gnnsafe.saving import _checksum, _saved, read

HOSTILE: list[Any] = [
    None, True, False, 0, -1, 3, 10**12, 10**400, 0.5, float("nan"), float("inf"), 1e308, "", "x", "GCN", "knn",
    "Calibration", "scores\x1b[31m", "\ud800", "a" * 300, [], {}, [[]], [1, 2], {"is": "knn"}, {"is": "__class__"},
    {"is": ["knn"]}, {"tensor": "x"}, {"tensor": "model.weights.0", "columns": False}, {"is": "Propagated"},
]  # fmt: skip


def edited(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """The folder's JSON with a change and the checksum that belongs to it."""
    path = folder / "detector.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    del record["checksum"]
    change(record)
    path.write_text(json.dumps({**record, "checksum": _checksum(record)}), encoding="utf-8")


def places(value: Any, *way: Any) -> Iterator[tuple[Any, ...]]:
    """The way to every value within."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        yield (*way, key)
        yield from places(item, *way, key)


def put(record: Any, way: tuple[Any, ...], value: Any) -> None:
    for key in way[:-1]:
        record = record[key]
    if value is HOSTILE:
        del record[way[-1]]
    else:
        record[way[-1]] = value


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """What takes longer has hung."""

    def hung(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, hung)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def saved(blocks, tmp_path) -> Path:
    """One with every kind of part: nested methods, a matrix by columns, classes, calibration by class, notes, names."""
    torch.manual_seed(0)
    blocks.class_names, blocks.feature_names = ["a", "b", "c"], [f"f{i}" for i in range(8)]
    method = Propagated(Consensus((KNN(k=3), MSP(), gnnsafe.methods.METHODS["mahalanobis"]())))
    detector = Detector(gnnsafe.models.GAT(8, 6, 3), method).fit(blocks)
    detector.calibrate(blocks, mask=blocks.test_mask, by_class=True)
    detector.notes = {"undirected": False, "accuracy": {"test": 0.5}, "edges": 12}
    detector.save(tmp_path)
    return tmp_path


def outcome(folder: Path, graph: Any) -> str:
    """What comes of a changed detector: 'refused' or 'scores'; anything else is raised."""
    try:
        with at_most(5):
            detector = gnnsafe.load(folder)
            detector.predict(graph, false_alarm=0.1)
            detector.predict_sets(graph)
            str(detector.explain(graph, node=0))
        return "scores"
    except GnnsafeError as error:
        return "refused" if "\n" not in str(error) and "\x1b" not in str(error) else repr(error)


@pytest.mark.filterwarnings("ignore::gnnsafe.errors.CalibrationWarning")
def test_every_value_changed_is_refused_or_scores(saved, blocks):
    """Each value in turn is replaced by hostile ones, drawn from a seed, or taken out."""
    draw, path = random.Random(0), saved / "detector.json"
    text = path.read_text()
    seen = {"refused": 0, "scores": 0}
    for way in places(json.loads(text)):
        for value in draw.sample([*HOSTILE, HOSTILE], 3):
            path.write_text(text)
            edited(saved, lambda record, way=way, value=value: put(record, way, copy.copy(value)))
            try:
                seen[outcome(saved, blocks)] += 1
            except Exception as error:
                raise AssertionError(f"{way} as {value!r}") from error
    assert seen["refused"] > 100
    assert seen["scores"] > 10


@pytest.mark.parametrize(
    ("way", "value", "message"),
    [
        (("tensors",), HOSTILE, "no 'tensors'"),
        (("tensors",), "../../secret", "no 'tensors'"),
        (("method",), HOSTILE, "'method' must be there"),
        (("method",), {"is": "Path"}, r"'method' must be a Method \(got \{'is': 'Path'\}\)"),
        (("method",), {"is": "Calibration"}, "'method' must be a Method"),
        (("method", "steps"), 10**12, r"'method.steps' must be at most 10000 \(got 1000000000000\)"),
        (("method", "steps"), 2.5, "'method.steps' must be a whole number"),
        (("method", "__class__"), "knn", "'method.__class__' must be left out"),
        (("method", "reach"), 1, "'method.reach' must be left out"),
        (("method", "alpha"), 7.0, r"'alpha' must lie in \[0, 1\]"),
        (("calibration", "scores"), {"tensor": "model.weights.0", "columns": False}, "the tensor of that name"),
        (("calibration", "known", "labels"), HOSTILE, "'calibration.known.labels' must be there"),
        (("calibration", "known", "is"), "Calibration", "'calibration.known' must be a KnownClasses"),
        (("calibration", "num_classes"), 10**12, "'calibration.num_classes' must be at most"),
        (("model", "arguments", "num_layers"), 10**12, "'model.arguments.num_layers' must be at most"),
        (("model", "arguments", "num_layers"), 4, "'model.biases.*' must have the shape|'model.norms"),
        (("model", "arguments", "hidden_channels"), 10**12, "'model.arguments.hidden_channels' must be at most"),
        (("model", "arguments", "hidden_channels"), 7, r"'model.*' must have the shape"),
        (("model", "arguments", "heads"), 0, "arguments of a GAT .got 'heads' must be a whole number >= 1"),
        (("method",), {"is": "os-path"}, r"^'method' must be a registered method \(got 'os-path'\); import or install"),
        (("model", "registered"), "module", r"^'model' must be a registered one \(got 'module', a GAT\); import or"),
        (("model", "registered"), "os.path", r"^'model' must be a registered one"),
        (("model", "name"), HOSTILE, "'model.name' must be there"),
        (("class_names",), ["a"], "'class_names' must have 3 names"),
        (("feature_names",), ["a"], "'feature_names' must have 8 names"),
        (("notes",), [], "'notes' must be a table"),
    ],
)
def test_what_is_wrong_is_named(saved, way, value, message):
    edited(saved, lambda record: put(record, way, value))
    start = time.perf_counter()
    with pytest.raises(SavedFileError, match=message):
        gnnsafe.load(saved)
    assert time.perf_counter() - start < 2


@pytest.mark.parametrize("number", [-1, 0, 7, 9, 10**7, 10**30])
def test_other_features_than_the_model_takes(saved, number):
    edited(saved, lambda record: record.update(num_features=number, feature_names=None))
    with pytest.raises(SavedFileError, match=rf"^'num_features' must be the model's 8 \(got {number}\)"):
        gnnsafe.load(saved)


def test_methods_within_methods_without_end(saved):
    nested: dict[str, Any] = {"is": "msp"}
    for _ in range(400):
        nested = {"is": "Propagated", "method": nested}
    edited(saved, lambda record: put(record, ("method",), nested))
    with pytest.raises(SavedFileError, match="nested too deeply"):
        gnnsafe.load(saved)


def test_notes_without_end(saved):
    nested: list[Any] = []
    for _ in range(300):
        nested = [nested]
    edited(saved, lambda record: put(record, ("notes", "accuracy"), nested))
    with pytest.raises(SavedFileError, match="nested too deeply"):
        gnnsafe.load(saved)


CHANGED_TENSORS: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda tensor: tensor.flatten(), lambda tensor: tensor[:-1], lambda tensor: torch.zeros(0), torch.Tensor.half,
    lambda tensor: torch.cat([tensor, tensor]), lambda tensor: tensor.double() * torch.nan, torch.Tensor.bool,
]  # fmt: skip


def forge(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Other tensors, and in the JSON their hash."""
    content = save({name: tensor.contiguous() for name, tensor in tensors.items()})
    digest = xxhash.xxh3_128_hexdigest(content)
    (folder / f"tensors-{digest[:16]}.safetensors").write_bytes(content)
    edited(folder, lambda record: record.update(tensors=digest))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_tensors_that_do_not_fit_together_are_found_in_every_precision(blocks, tmp_path, dtype):
    blocks.x = blocks.x.to(dtype)
    Detector(gnnsafe.models.GCN(8, 6, 3).to(dtype), KNN(k=3)).fit(blocks).save(tmp_path)
    (file,) = tmp_path.glob("tensors-*")
    tensors = load(file.read_bytes())
    forge(tmp_path, {**tensors, "method.bank_": tensors["method.bank_"][:, 1:]})
    with pytest.raises(SavedFileError, match=r"^'folder' must hold tensors that fit together"):
        gnnsafe.load(tmp_path)


@pytest.mark.parametrize("method", ["consensus", "two-scale", "vim", "gkde"])
@pytest.mark.filterwarnings("ignore::gnnsafe.errors.GnnsafeWarning")
def test_every_tensor_changed_is_refused_or_scores(blocks, tmp_path, method):
    """Whoever forges the JSON can forge the tensors that it names, and their hash."""
    torch.manual_seed(0)
    blocks.val_mask = blocks.test_mask
    detector = Detector(gnnsafe.models.GCN(8, 6, 3), gnnsafe.methods.METHODS[method]()).fit(blocks)
    detector.calibrate(blocks, by_class=True).save(tmp_path)
    (file,) = tmp_path.glob("tensors-*")
    tensors, text = load(file.read_bytes()), (tmp_path / "detector.json").read_text()
    seen = []
    for place, name in enumerate(tensors):
        for change in CHANGED_TENSORS[place % 2 :: 2]:
            (tmp_path / "detector.json").write_text(text)
            forge(tmp_path, {**tensors, name: change(tensors[name])} if tensors[name].dim() else tensors)
            try:
                seen.append(outcome(tmp_path, blocks))
            except Exception as error:
                raise AssertionError(f"{name} by {change}") from error
    assert set(seen) == {"refused", "scores"}


def test_a_name_that_utf8_cannot_hold_is_not_saved(blocks, tmp_path):
    blocks.feature_names = ["\ud800", *"bcdefgh"]
    detector = Detector(gnnsafe.models.GCN(8, 6, 3), "energy").fit(blocks)
    with pytest.raises(InputError, match=r"^'detector' must have names that UTF-8 can hold to be saved"):
        detector.save(tmp_path / "detector")
    assert not (tmp_path / "detector").exists()


def test_a_method_taken_out_of_a_consensus(saved, blocks):
    edited(saved, lambda record: record["method"]["method"]["methods"].pop())
    with pytest.raises(InputError, match=r"^'calibration_' must have a row for each of 2 methods \(got \[3, 40\]\)"):
        gnnsafe.load(saved).score(blocks)


def test_other_tensors_are_refused(saved):
    record = json.loads((saved / "detector.json").read_text())
    with pytest.raises(InputError, match=r"'method\.method\.methods\.0\.bank_' must be the tensor of that name"):
        _saved(record, {})
    assert read(saved)[0].num_features == 8
