"""A kept graph as it was after so many changes, in a file: from where a journal that was compacted begins."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xxhash

from gnnsafe.errors import require
from gnnsafe.graph import Data

__all__ = ["Snapshot", "snapshots", "sync_folder"]

PIECE = 2**20  # bytes that are hashed at a time


@dataclass(frozen=True)
class Snapshot:
    """Which file it is, how many sets of changes are in it, and what it hashes to; no file where there is none."""

    file: str | None
    version: int
    digest: str

    @classmethod
    def none(cls) -> Snapshot:
        """The graph as it was read."""
        return cls(None, 0, "")

    @classmethod
    def of(cls, record: Any) -> Snapshot:
        """Out of a journal's first line, whose checksum was right."""
        return cls.none() if record is None else cls(**record)

    def to_record(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    @classmethod
    def written(cls, journal: Path, data: Data, version: int) -> Snapshot:
        """The graph, its ids among it, once it is on the disk beside the journal; where that fails, nothing is left."""
        path = journal.with_name(f"{journal.name}.{version}.npz")
        path.unlink(missing_ok=True)
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(file, "wb") as whole:
                ids = np.frombuffer(json.dumps(data.node_id, default=str).encode(), np.uint8)
                np.savez(whole, x=data.x.numpy(), edge_index=data.edge_index.numpy(), node_id=ids)
                whole.flush()
                os.fsync(whole.fileno())
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        sync_folder(path)
        return cls(path.name, version, _digest(path))

    def data(self, journal: Path) -> Data:
        """The graph again."""
        from torch_geometric.data import Data as Graph  # seconds to import

        assert self.file is not None
        path = journal.with_name(self.file)
        remedy = "put back the file that was written, or move the journal away to start from the graph"
        whole = path.is_file() and _digest(path) == self.digest
        require(whole, "journal", "have the snapshot that it begins from beside it", f"'{path}'", remedy)
        with np.load(path, allow_pickle=False) as arrays:
            x, edge_index = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["edge_index"])
            return Graph(x=x, edge_index=edge_index, node_id=json.loads(arrays["node_id"].tobytes()))


def snapshots(journal: Path) -> list[Path]:
    """All beside a journal that are its own."""
    name = re.compile(re.escape(journal.name) + r"\.\d+\.npz")
    return [path for path in journal.parent.iterdir() if name.fullmatch(path.name)]


def sync_folder(path: Path) -> None:
    """What was made, renamed or taken away in the folder of a file is on the disk."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _digest(path: Path) -> str:
    hashed = xxhash.xxh3_128()
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            hashed.update(piece)
    return hashed.hexdigest()
