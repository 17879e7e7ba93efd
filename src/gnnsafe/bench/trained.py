"""Trained models kept beside the records: a method that comes later, or is edited, scores them without training."""

from __future__ import annotations

import json
import logging
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
import xxhash
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import nn

from gnnsafe.files import replacing

__all__ = ["TrainedModel", "TrainedModels"]

log = logging.getLogger(__name__)

NOTES = "gnnsafe"  # the name of what safetensors says beside the weights


class TrainedModel(NamedTuple):
    """A trained model, its ID validation loss and epoch, and what its training took."""

    model: nn.Module
    val_loss: float
    epoch: int
    duration: float
    epochs: int


@dataclass(frozen=True)
class TrainedModels:
    """A folder of them, made when the first is kept; it may be removed at any time, and what is asked for is trained.

    A file is named by what the model was trained on and how, and by its content: one that was changed since is not
    read.
    """

    folder: Path

    def find(self, key: Hashable, model: nn.Module) -> TrainedModel | None:
        """The model with the weights that were kept under this key; None where there are none that fit."""
        for path in sorted(self.folder.glob(f"{_name(key)}-*.safetensors")):
            try:
                content = path.read_bytes()
                if path.stem.rpartition("-")[2] != xxhash.xxh3_64_hexdigest(content):
                    continue
                model.load_state_dict({name: tensor.clone() for name, tensor in load(content).items()})
                return TrainedModel(model, **_notes(content))
            except (OSError, SafetensorError, RuntimeError) as error:  # gone by now, or of another model
                log.warning("%s is not read (%s), the model is trained again", path, error)
        return None

    def keep(self, key: Hashable, trained: TrainedModel) -> None:
        """Keep it; a disk that is full costs the next run a training, and this one nothing."""
        notes = json.dumps({name: value for name, value in trained._asdict().items() if name != "model"})
        weights = {
            name: tensor.cpu().clone(memory_format=torch.contiguous_format)
            for name, tensor in trained.model.state_dict().items()
        }
        content = save(weights, {NOTES: notes})
        try:
            with replacing(self.folder / f"{_name(key)}-{xxhash.xxh3_64_hexdigest(content)}.safetensors") as part:
                part.write_bytes(content)
        except OSError as error:
            log.warning("a trained model is not kept in %s (%s)", self.folder, error.strerror)


def _name(key: Hashable) -> str:
    return xxhash.xxh3_64_hexdigest(repr(key).encode())


def _notes(content: bytes) -> dict[str, Any]:
    """Of a file of safetensors: the length of its header, then that, JSON."""
    size = int.from_bytes(content[:8], "little")
    notes: dict[str, Any] = json.loads(json.loads(content[8 : 8 + size])["__metadata__"][NOTES])
    return notes
