"""All that a detector says about the nodes of a graph: as tensors, and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from gnnsafe.detector.tables import arrow_table, data_frame, name_array, selection

__all__ = ["Decisions", "joined"]


@dataclass(frozen=True, eq=False)
class Decisions:
    """What `Detector.decide` says: one entry per node in each field, from one forward pass of the model."""

    ids: Sequence[Any]
    """What the user calls the nodes, `data.node_id`; their numbers where the graph has none."""
    scores: Tensor
    """Float32, higher = more out-of-distribution."""
    p_values: Tensor
    """How rare the score is among held-out ID nodes, float64; small = OOD."""
    flags: Tensor
    """True = OOD."""
    predicted: Tensor | None
    """The class; None where there is no model, or one with several labels per node."""
    probabilities: Tensor | None
    """Of the predicted class."""
    class_names: tuple[Any, ...] | None = None
    """What the classes are called, in the order of their numbers."""
    watched: Tensor | None = None
    """What a monitor of many graphs watches, [nodes, scores]; see `Detector.watching`."""

    def __len__(self) -> int:
        return len(self.scores)

    def of(self, mask: Tensor) -> Decisions:
        """Those about the nodes in `mask`, a boolean tensor.

        Args:
            mask: True for each node that stays.

        Returns:
            The same fields with fewer entries.

        Raises:
            InputError: The mask is not boolean, or not of one entry per node.
        """
        mask = selection(mask, len(self))
        each: dict[str, Any] = {
            name: value[mask.to(value.device)] if isinstance(value, Tensor) else value
            for name, value in vars(self).items()
        }
        return Decisions(**{**each, "ids": [self.ids[node] for node in mask.nonzero().flatten().tolist()]})

    def to_arrow(self) -> Any:
        """A table with a row per node, as `gnnsafe score` writes it.

        Returns:
            A `pyarrow.Table` with the columns id, predicted and probability (where there are classes), score, p_value
            and flag. Classes are called by their names.

        Raises:
            MissingExtraError: pyarrow is not installed.
        """
        return arrow_table(self.columns())

    def to_pandas(self) -> Any:
        """The same as a data frame.

        Returns:
            A `pandas.DataFrame` with the columns of `to_arrow`.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        return data_frame(self.columns())

    def columns(self) -> dict[str, Any]:
        """The table's columns by name: lists, or arrays of numpy's.

        Returns:
            A column for each name of `to_arrow`.
        """
        columns: dict[str, Any] = {"id": list(self.ids)}
        if self.predicted is not None and self.probabilities is not None:
            classes = self.predicted.cpu().numpy()
            named = classes if self.class_names is None else name_array(self.class_names)[classes]
            columns |= {"predicted": named, "probability": self.probabilities.cpu().numpy()}
        rest = {"score": self.scores, "p_value": self.p_values, "flag": self.flags}
        return columns | {name: values.cpu().numpy() for name, values in rest.items()}


def joined(parts: Sequence[Decisions]) -> Decisions:
    """Those about the nodes of several graphs, one after the other, by one detector."""

    def of_all(name: str) -> Any:
        values = [getattr(part, name) for part in parts]
        return torch.cat(values) if isinstance(values[0], Tensor) else values[0]

    ids = [one for part in parts for one in part.ids]
    return Decisions(ids, *(of_all(field.name) for field in fields(Decisions)[1:]))
