"""The detectors that are served, by name; another takes the place of one between two requests."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xxhash

from gnnsafe.detector import Decisions, Detector, load
from gnnsafe.errors import InputError, require, require_known
from gnnsafe.files import locked
from gnnsafe.graph import Data
from gnnsafe.logits import logits_outputs
from gnnsafe.saving import FILE
from gnnsafe.service.refusal import UnknownModelError

__all__ = ["Models", "ServedModel"]


@dataclass(frozen=True)
class ServedModel:
    """A detector under a name, as it was loaded."""

    name: str
    detector: Detector
    folder: Path | None
    version: str
    """A hash of what was saved."""
    loaded_at: float

    @classmethod
    def of(cls, name: str, detector: Detector, folder: Path | None = None) -> ServedModel:
        """A detector that is fitted and calibrated."""
        detector.calibrated()
        version = xxhash.xxh3_64_hexdigest((folder / FILE).read_bytes()) if folder else "1"
        return cls(name, detector, folder, version, time.time())

    @classmethod
    def loaded(cls, name: str, folder: Path, device: str = "cpu") -> ServedModel:
        """The one that was saved in a folder."""
        require(folder.is_dir(), "detector", "be the folder of a detector", f"'{folder}'")
        with locked(folder):
            return cls.of(name, load(folder, device=device), folder)

    def decide(self, data: Data, *, false_alarm: float | None, fdr: float | None = None) -> Decisions:
        """All about every node of a graph; by a copy, so that requests leave no trace on each other."""
        return copy.copy(self.detector).decide(data, false_alarm=false_alarm, fdr=fdr)

    def decide_logits(self, logits: torch.Tensor, edge_index: torch.Tensor, *, false_alarm: float) -> Decisions:
        """The same from logits that no model here has given, for a method that reads nothing else."""
        detector = self.detector
        outputs = logits_outputs(logits, edge_index, method=detector.method)
        scored = detector.method.scored(outputs)
        known = detector.classes_
        width = logits.shape[1] if known is None else known.means.shape[1]
        names = detector.class_names_
        require(names is None or len(names) == logits.shape[1], "logits", f"have {len(names or ())} columns", width)
        predicted = logits.argmax(dim=1)
        calibration = detector.calibrated()
        p = calibration.p_values(scored.compared, predicted)
        flags = calibration.decisions(p, false_alarm=false_alarm)
        probabilities = torch.softmax(logits.double(), dim=1).amax(dim=1).float()
        return Decisions(range(len(logits)), scored.scores, p, flags, predicted, probabilities, names)


class Models:
    """The models by name; the first is the one that is meant where none is named."""

    def __init__(self, models: Mapping[str, ServedModel]) -> None:
        require(len(models) > 0, "detectors", "be at least one", "none")
        self._models = dict(models)
        self.first = next(iter(models))

    def __iter__(self) -> Any:
        return iter(list(self._models.values()))

    def __getitem__(self, name: str | None) -> ServedModel:
        try:
            require_known("model", name or self.first, self._models)
        except InputError as error:
            raise UnknownModelError(str(error)) from error
        return self._models[name or self.first]

    def put(self, model: ServedModel) -> None:
        """This model under its name from the next request on."""
        self._models[model.name] = model


def columns(decisions: Decisions) -> dict[str, Any]:
    """What was decided, as arrays by name."""
    found: dict[str, Any] = {
        "score": decisions.scores.cpu().numpy(),
        "p_value": decisions.p_values.cpu().numpy(),
        "flag": decisions.flags.cpu().numpy(),
    }
    if decisions.predicted is not None and decisions.probabilities is not None:
        found["predicted"] = decisions.predicted.cpu().numpy().astype(np.int64)
        found["probability"] = decisions.probabilities.cpu().numpy()
    return found
