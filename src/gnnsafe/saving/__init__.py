"""Detectors in files: tensors as safetensors, all else as JSON, no pickle.

A folder has `detector.json`, which says what is saved and names its tensors' file by the hash of its content,
`tensors-<hash>.safetensors`. The tensors are written first and the JSON last, each beside and then renamed: whatever
happens in between, the folder holds the detector that was there before or the new one. Writers wait for each other;
a reader who comes meanwhile gets the old detector or the new one. Files of others are left alone.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import xxhash
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from gnnsafe.calibration import Calibration
from gnnsafe.checks import Task
from gnnsafe.display import shown
from gnnsafe.errors import InputError, SavedFileError, require
from gnnsafe.explanation import TrainingClasses
from gnnsafe.files import locked, replacing
from gnnsafe.held_out import UsedNodes
from gnnsafe.hetero import EdgeType
from gnnsafe.methods import Method
from gnnsafe.saving.models import SavedModel
from gnnsafe.saving.parts import Unpacking, UnregisteredError, packed
from gnnsafe.scaling import FeatureScaling

__all__ = ["FILE", "FORMAT", "Saved", "SavedModel", "read", "write"]

log = logging.getLogger(__name__)

FORMAT = 8  # to be raised when what is written changes
FILE = "detector.json"
DEEPEST = 50  # levels of lists and tables within each other

Name = str | int | float | bool


@dataclass(frozen=True, eq=False)
class Saved:
    """What is saved of a detector, field by field as `detector.json` has it; a file is checked against these types."""

    task: Task
    num_features: int
    feature_names: tuple[Name, ...] | None
    class_names: tuple[Name, ...] | None
    notes: dict[str, Any]
    method: Method
    model: SavedModel | None
    embedding: str | None
    forward: bool
    node_type: str | None
    edge_types: tuple[EdgeType, ...] | None
    scaling: FeatureScaling | None
    undirected: bool
    """Whether each edge is read in both directions."""
    classes: TrainingClasses | None
    calibration: Calibration | None
    passed: tuple[str, ...] | None
    """What the model's forward takes of a graph besides x and edge_index."""
    used: UsedNodes
    gnnsafe: str = version("gnnsafe")
    """The version that it was saved by."""

    def __post_init__(self) -> None:
        sizes = {"feature_names": self.num_features, "class_names": self.num_classes}
        for name, size in sizes.items():
            names = getattr(self, name)
            if names is not None and size is not None and len(names) != size:
                raise SavedFileError(f"'{name}' must have {size} names (got {len(names)})")
        columns = self.num_features if self.scaling is None or self.scaling.center is None else len(self.scaling.center)
        if columns != self.num_features:
            raise SavedFileError(f"'scaling' must have {self.num_features} columns (got {columns})")

    @property
    def num_classes(self) -> int | None:
        """Of a model of gnnsafe.models; another's are not known."""
        arguments = self.model.arguments if self.model else None
        return None if arguments is None else arguments.get("out_channels")


def write(folder: Path, saved: Saved, tensors: dict[str, Tensor]) -> None:
    """What is saved, and the weights of its model in `tensors`, in `folder`; nothing that `read` would refuse."""
    parts = {field.name: packed(getattr(saved, field.name), field.name, tensors) for field in fields(saved)}
    record = {"format": FORMAT, **parts}
    content = save({name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()})
    record["tensors"] = digest = xxhash.xxh3_128_hexdigest(content)
    record["checksum"] = _checksum(record)
    text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    _saved(json.loads(text), tensors)
    whole = text.encode(errors="ignore").decode() == text
    require(whole, "detector", "have names that UTF-8 can hold to be saved", "a lone surrogate in one")
    require(not folder.exists() or folder.is_dir(), "folder", "be a folder", f"the file '{folder}'")
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        _put(folder, _tensors_file(folder, digest), content, text)


def _put(folder: Path, new: Path, content: bytes, text: str) -> None:
    old = set(folder.glob("tensors-*.safetensors"))
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
        with suppress(OSError):  # it is being read, and the system refuses
            path.unlink()


def read(folder: Path) -> tuple[Saved, dict[str, Tensor]]:
    """What `write` wrote, checked to be whole, of this format and of the right types; and all tensors."""
    try:
        record, content = _record_and_content(folder)
    except FileNotFoundError:
        with locked(folder):  # it was replaced just now, or is lost
            try:
                record, content = _record_and_content(folder)
            except FileNotFoundError as error:
                name = Path(error.filename).name
                raise SavedFileError(f"'folder' must hold {name}, which {FILE} names (got none)") from None
    tensors = _tensors(_tensors_file(folder, record["tensors"]), content, record["tensors"])
    log.info("read %s", folder / FILE)
    try:
        return _saved(record, tensors), tensors
    except UnregisteredError:
        raise
    except InputError as error:  # what it says, or a rule of what it names
        raise _damaged(folder / FILE, str(error)) from error


def _record_and_content(folder: Path) -> tuple[dict[str, Any], bytes]:
    record = _record(folder)
    return record, _tensors_file(folder, record["tensors"]).read_bytes()


def _record(folder: Path) -> dict[str, Any]:
    """The JSON, if its checksum is right."""
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
            f"{shown(record.get('gnnsafe', 'unknown'))}); load it with that version, or fit and save the detector again"
        )
    if record.pop("checksum", None) != _checksum(record):
        raise _damaged(folder / FILE, "its checksum differs")
    if not isinstance(record.get("tensors"), str) or not record["tensors"].isalnum():
        raise _damaged(folder / FILE, "no 'tensors'")
    return record


def _saved(record: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Saved:
    names = [field.name for field in fields(Saved)]
    if not _shallow(record, DEEPEST):
        raise SavedFileError("nested too deeply")
    return Saved(**Unpacking(tensors).fields(Saved, {name: record[name] for name in names if name in record}, ""))


def _shallow(value: Any, levels: int) -> bool:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels > 0 and all(_shallow(item, levels - 1) for item in inside)


def _tensors(path: Path, content: bytes, digest: str) -> dict[str, Tensor]:
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
    return SavedFileError(f"'folder' must hold whole files (got a damaged '{path}': {reason}); save the detector again")


def _checksum(record: Mapping[str, Any]) -> str:
    return xxhash.xxh3_128_hexdigest(json.dumps(record, sort_keys=True).encode())
