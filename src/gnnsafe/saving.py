"""Methods and models in files: tensors as safetensors, all else as JSON, no pickle.

A folder has `detector.json`, which says what is saved and names its tensors' file by the hash of its content,
`tensors-<hash>.safetensors`. The tensors are written first and the JSON last, each beside and then renamed: whatever
happens in between, the folder holds the detector that was there before or the new one. Files of others are left alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import xxhash
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from gnnsafe.calibration import Calibration
from gnnsafe.errors import InputError, SavedFileError, require
from gnnsafe.explanation import TrainingClasses
from gnnsafe.files import replacing
from gnnsafe.methods import METHODS, Propagated
from gnnsafe.methods.grasp import GraphNodes
from gnnsafe.models import MODELS

__all__ = [
    "FILE",
    "FORMAT",
    "check_model",
    "described_model",
    "packed",
    "read",
    "rebuilt_model",
    "understood",
    "unpacked",
    "write",
]

FORMAT = 1  # to be raised when what is written changes
FILE = "detector.json"

PARTS: dict[str, type[Any]] = {method.__name__: method for method in METHODS.values()}
PARTS |= {part.__name__: part for part in (Propagated, GraphNodes, Calibration, TrainingClasses)}


def write(folder: Path, description: dict[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """The description and its tensors, in `folder`."""
    content = save({name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()})
    digest = xxhash.xxh3_128_hexdigest(content)
    record = {"format": FORMAT, "gnnsafe": version("gnnsafe"), **description, "tensors": digest}
    record["checksum"] = _checksum(record)
    text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    require(not folder.exists() or folder.is_dir(), "folder", "be a folder", f"the file '{folder}'")
    new, old = _tensors_file(folder, digest), set(folder.glob("tensors-*.safetensors"))
    try:
        with replacing(new) as part:
            part.write_bytes(content)
        with replacing(folder / FILE) as part:
            part.write_text(text, encoding="utf-8")
    except BaseException:
        if new not in old:
            new.unlink(missing_ok=True)
        raise
    for path in old - {new}:
        path.unlink()


def read(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What `write` wrote, once it is known to be whole and of this format."""
    try:
        record = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise SavedFileError(f"'folder' must hold a saved detector, {FILE} (got '{folder}', which has none)") from None
    except (ValueError, RecursionError) as error:
        raise _damaged(folder / FILE, "no JSON") from error
    if not isinstance(record, dict) or not isinstance(record.get("format"), int):
        raise _damaged(folder / FILE, "no 'format'")
    if record["format"] != FORMAT:
        raise SavedFileError(
            f"'folder' must hold a detector of format {FORMAT} (got format {record['format']}, saved by gnnsafe "
            f"{record.get('gnnsafe', 'unknown')}); load it with that version, or fit and save the detector anew"
        )
    if record.pop("checksum", None) != _checksum(record):
        raise _damaged(folder / FILE, "its checksum differs")
    return record, _read_tensors(_tensors_file(folder, record["tensors"]), record["tensors"])


@contextmanager
def understood(folder: Path) -> Iterator[None]:
    """Says in one line that the files are whole but not what `write` wrote, as when others wrote them."""
    try:
        yield
    except (KeyError, TypeError, StopIteration, RuntimeError) as error:
        text = str(error).splitlines()[0] if str(error) else ""
        raise _damaged(folder / FILE, f"{type(error).__name__} {text}") from error


def _read_tensors(path: Path, digest: str) -> dict[str, Tensor]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise SavedFileError(f"'folder' must hold {path.name}, which {FILE} names (got none)") from None
    if xxhash.xxh3_128_hexdigest(content) != digest:
        raise _damaged(path, "its content is not what was written")
    try:
        # A copy lies where torch wants it: what BLAS computes may depend on that in its last bit.
        return {name: tensor.clone() for name, tensor in load(content).items()}
    except SafetensorError as error:
        raise _damaged(path, str(error)) from error


def _tensors_file(folder: Path, digest: str) -> Path:
    return folder / f"tensors-{digest[:16]}.safetensors"


def _damaged(path: Path, reason: str) -> SavedFileError:
    return SavedFileError(f"'folder' must hold whole files (got a damaged '{path}': {reason}); save the detector anew")


def _checksum(record: Mapping[str, Any]) -> str:
    return xxhash.xxh3_128_hexdigest(json.dumps(record, sort_keys=True).encode())


def packed(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """`value` as JSON: a method or a part of one as its fields, a tensor as its name in `tensors`, where it is put."""
    if isinstance(value, Tensor):
        # A matrix stored by columns stays so: what BLAS computes may depend on that in its last bit.
        columns = value.dim() == 2 and not value.is_contiguous() and value.T.is_contiguous()
        tensors[name] = value.T if columns else value
        return {"tensor": name, "columns": columns}
    if is_dataclass(value):
        known = PARTS.get(type(value).__name__) is type(value)
        require(known, "method", "be one of gnnsafe.methods to be saved", repr(value))
        kept = [field.name for field in fields(value) if field.name in vars(value)]  # but for what was never fitted
        return {
            "is": type(value).__name__,
            **{field: packed(getattr(value, field), f"{name}.{field}", tensors) for field in kept},
        }
    if isinstance(value, tuple):
        return [packed(item, f"{name}.{place}", tensors) for place, item in enumerate(value)]
    return value.item() if hasattr(value, "item") else value  # numpy's numbers


def unpacked(record: Any, tensors: Mapping[str, Tensor]) -> Any:
    """What `packed` packed."""
    if isinstance(record, list):
        return tuple(unpacked(item, tensors) for item in record)
    if not isinstance(record, dict):
        return record
    if "tensor" in record:
        tensor = tensors[record["tensor"]]
        return tensor.T if record["columns"] else tensor
    values = {name: unpacked(value, tensors) for name, value in record.items() if name != "is"}
    part = PARTS[record["is"]]
    given = {field.name for field in fields(part) if field.init}
    made = part(**{name: value for name, value in values.items() if name in given})
    for name in values.keys() - given:
        setattr(made, name, values[name])
    return made


def described_model(model: nn.Module, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """What tells this model from any other; with its weights and arguments where it is one of gnnsafe.models."""
    state = _state(model)
    ours = type(model) in MODELS.values()
    if ours:
        tensors.update({f"model.{name}": tensor for name, tensor in state.items()})
    return {
        "class": type(model).__name__,
        "state": {name: f"{tensor.dtype} {list(tensor.shape)}" for name, tensor in state.items()},
        "weights": _digest(state),
        "arguments": _arguments(model) if ours else None,
    }


def _arguments(model: nn.Module) -> dict[str, Any]:
    """The arguments that a model of ours was constructed with."""
    arguments: Any = model.arguments
    return {name: packed(value, name, {}) for name, value in arguments.items()}


def rebuilt_model(record: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> nn.Module:
    """The model of ours that was saved, in evaluation mode."""
    if record["arguments"] is None:
        raise InputError(
            f"'model' must be given: the detector was saved with a {record['class']}, which is none of gnnsafe.models "
            "(got none); use gnnsafe.load(folder, model)"
        )
    model_class = next(model for model in MODELS.values() if model.__name__ == record["class"])
    with torch.device("meta"):  # no weights are drawn: they are all in the file
        model = model_class(**record["arguments"])
    state = {name.removeprefix("model."): tensor for name, tensor in tensors.items() if name.startswith("model.")}
    model.load_state_dict(state, assign=True)
    return model.eval()


def check_model(model: nn.Module, record: Mapping[str, Any]) -> None:
    """`model` is the one that was saved: its class, its arguments if it is ours, its shapes, and every weight."""
    name, state = type(model).__name__, _state(model)
    _require_same(name == record["class"], record, f"a {name}")
    shapes = {name: f"{tensor.dtype} {list(tensor.shape)}" for name, tensor in state.items()}
    arguments = _arguments(model) if record["arguments"] is not None and type(model) in MODELS.values() else {}
    for have, want in ((shapes, record["state"]), (arguments, record["arguments"] or {})):
        for key in sorted({*have, *want}):
            found, right = have.get(key, "none"), want.get(key, "none")
            _require_same(found == right, record, f"one whose {key} is {found}, not {right}")
    _require_same(_digest(state) == record["weights"], record, "one with other weights")


def _require_same(holds: bool, record: Mapping[str, Any], got: str) -> None:
    if not holds:
        raise SavedFileError(f"'model' must be the {record['class']} that the detector was saved with (got {got})")


def _state(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().cpu() for name, value in model.state_dict().items() if isinstance(value, Tensor)}


def _digest(state: Mapping[str, Tensor]) -> str:
    digest = xxhash.xxh3_128()
    for name, tensor in sorted(state.items()):
        digest.update(name.encode())
        content: Any = tensor.contiguous().flatten().view(torch.uint8).numpy()
        digest.update(content)
    return digest.hexdigest()
