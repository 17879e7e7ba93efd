"""Sets of classes that nodes conform to: as a tensor, and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from gnnsafe.checks import check_node
from gnnsafe.detector.tables import arrow_array, arrow_table, data_frame, selection

__all__ = ["ClassSets"]


@dataclass(frozen=True, eq=False)
class ClassSets:
    """What `Detector.predict_sets` says: for each node the classes that it conforms to; an empty set: none of them."""

    ids: Sequence[Any]
    """What the user calls the nodes, `data.node_id`; their numbers where the graph has none."""
    members: Tensor
    """Boolean, [nodes, classes]: whether the class is in the node's set."""
    class_names: tuple[Any, ...] | None = None
    """What the classes are called, in the order of their numbers."""

    def __len__(self) -> int:
        return len(self.members)

    @property
    def sizes(self) -> Tensor:
        """How many classes each set holds."""
        return self.members.sum(dim=1)

    @property
    def empty(self) -> Tensor:
        """Which nodes conform to none of the known classes: a boolean tensor."""
        return ~self.members.any(dim=1)

    def names(self, node: int) -> tuple[Any, ...]:
        """The classes in the set of a node, given by its number: their names, or numbers where they have none.

        Args:
            node: Its number.

        Returns:
            The classes in its set; none where it is empty.

        Raises:
            InputError: There is no such node.
        """
        return tuple(self._classes()[self.members[check_node(node, len(self))].cpu().numpy()].tolist())

    def of(self, mask: Tensor) -> ClassSets:
        """Those of the nodes in `mask`, a boolean tensor.

        Args:
            mask: True for each node that stays.

        Returns:
            The same fields with fewer entries.

        Raises:
            InputError: The mask is not boolean, or not of one entry per node.
        """
        mask = selection(mask, len(self))
        ids = [self.ids[node] for node in mask.nonzero().flatten().tolist()]
        return replace(self, ids=ids, members=self.members[mask.to(self.members.device)])

    def to_arrow(self) -> Any:
        """A table with a row per node.

        Returns:
            A `pyarrow.Table` with the columns id and set, a list of classes.

        Raises:
            MissingExtraError: pyarrow is not installed.
        """
        table = arrow_table({"id": list(self.ids)})
        import pyarrow as pa

        classes, sizes = self.members.cpu().numpy().nonzero()[1], self.sizes.cpu().numpy()
        ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        named = arrow_array("set", self._classes()[classes])
        return table.append_column("set", pa.LargeListArray.from_arrays(ends, named))

    def to_pandas(self) -> Any:
        """The same as a data frame.

        Returns:
            A `pandas.DataFrame` with the columns of `to_arrow`.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        return data_frame({"id": list(self.ids), "set": [list(self.names(node)) for node in range(len(self))]})

    def _classes(self) -> Any:
        """What each class is called, as an array."""
        return np.arange(self.members.shape[1]) if self.class_names is None else np.array(self.class_names)
