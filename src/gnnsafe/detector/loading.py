"""A detector out of the folder that it was saved in."""

from __future__ import annotations

import copy
import os
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from gnnsafe.borrowed import eager
from gnnsafe.detector.detector import Detector
from gnnsafe.devices import chosen_device
from gnnsafe.errors import GnnsafeError, SavedFileError, require
from gnnsafe.files import given_path
from gnnsafe.new_scores import is_builtin
from gnnsafe.outputs import Forward
from gnnsafe.saving import Saved, read

__all__ = ["load"]


def load(
    folder: str | os.PathLike[str],
    model: nn.Module | None = None,
    *,
    forward: Forward | None = None,
    device: torch.device | str | None = None,
) -> Detector:
    """The detector that was saved in `folder`, for the same `model`; one of gnnsafe.models comes out of the folder.

    Scores are the same to the last bit on the same device. Another model, other weights, a damaged file or another
    format are refused.

    Args:
        folder: What `Detector.save` has written.
        model: The model that it was saved with; left out for one of gnnsafe.models.
        forward: How to call the model, where it was saved with such; it is code, which no file holds.
        device: Where the model is to be, such as "cuda" or "auto" (CUDA's where there is a GPU); by default where
            the given model is, else on the CPU.

    Returns:
        The detector, fitted and calibrated as it was.

    Raises:
        SavedFileError: The files are damaged, of another format or made for another model.
        InputError: The model or `forward` is missing, or there is no such device.

    >>> import tempfile
    >>> from types import SimpleNamespace
    >>> from gnnsafe.models import GCN
    >>> labels, mask = torch.tensor([0, 1]), torch.tensor([True, True])
    >>> data = SimpleNamespace(x=torch.eye(2), edge_index=torch.tensor([[0], [1]]), y=labels, train_mask=mask)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Detector(GCN(2, 4, 2), "energy").fit(data).save(folder)
    ...     load(folder)
    Detector(GCN, Energy(temperature=1.0))
    """
    saved, tensors = read(given_path("folder", folder))
    model = _model(saved, tensors, model)
    if model is not None and device is not None:
        model = model.to(chosen_device(device))
    rule = "be given again, as the detector was saved with one" if saved.forward else "be left out, as it was"
    require((forward is not None) == saved.forward, "forward", rule, "none" if forward is None else "one")
    detector = Detector(
        model,
        saved.method,
        embedding=saved.embedding,
        forward=forward,
        task=saved.task,
        node_type=saved.node_type,
        edge_types=saved.edge_types,
        scaling=saved.scaling,
        undirected=saved.undirected,
    )
    detector.notes, detector.num_features_ = saved.notes, saved.num_features
    detector.feature_names_, detector.class_names_ = saved.feature_names, saved.class_names
    detector.classes_, detector.calibration_ = saved.classes, saved.calibration
    detector.weights_, detector.passed_ = saved.model.weights if saved.model else None, saved.passed
    detector.used_, detector.calibrated_by_ = saved.used, repr(detector.method)
    asked = detector.classifier if is_builtin(detector.method) and detector.node_type is None else None
    if asked is not None and asked.as_made:  # a user's forward may read of a graph what only they know of
        arguments: Any = asked.model.arguments
        columns = arguments["in_channels"]
        if saved.num_features != columns:
            raise SavedFileError(f"'num_features' must be the model's {columns} (got {saved.num_features})")
        _try(detector, next(asked.model.parameters()).new_zeros(2, saved.num_features))
    return detector


def _try(detector: Detector, x: Tensor) -> None:
    """Two nodes are scored: tensors of a forged file may be of the right names, and not fit together."""
    tried = copy.copy(detector)  # with a method of its own, which keeps nothing of this graph
    data = SimpleNamespace(x=x, edge_index=torch.tensor([[0], [1]], device=x.device))
    try:
        str(tried.explain(data, node=0))
        if tried.calibration_ is not None:
            tried.p_values(data)
    except GnnsafeError:  # what it refuses, it refuses when it is asked
        pass
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise SavedFileError(f"'folder' must hold tensors that fit together (got {reason}); save it again") from error


def _model(saved: Saved, tensors: dict[str, Tensor], given: nn.Module | None) -> nn.Module | None:
    """The model that is given, or the one of gnnsafe.models that was saved, checked to be the right one."""
    if saved.model is None:
        require(given is None, "model", "be left out, as the detector was saved without one", type(given).__name__)
        return None
    model = saved.model.built(tensors) if given is None else eager(given)
    require(isinstance(model, nn.Module), "model", "be a torch.nn.Module", type(model).__name__)
    saved.model.check(model)
    return model
