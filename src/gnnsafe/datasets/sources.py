"""Where a data set's files come from: a data root, a package that carries them, or the data set's own download."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gnnsafe.datasets.cache import cache_folder, cached_graph
from gnnsafe.errors import DataNotFoundError, GnnsafeWarning, InputError
from gnnsafe.graph import Data

__all__ = ["Files", "data_root", "raw_download"]

log = logging.getLogger(__name__)

COUNTED = ("nodes", "edges", "features", "classes")


def data_root(root: str | os.PathLike[str] | None) -> Path | None:
    """The folder given, or `$GNNSAFE_DATA`, or none; an `InputError` where it is no folder."""
    given = root or os.environ.get("GNNSAFE_DATA")
    if not given:
        return None
    if not Path(given).is_dir():
        raise InputError(f"'root' must be a folder (got {str(given)!r}); see --data and GNNSAFE_DATA")
    return Path(given)


def raw_download(kind: str, path: str, files: tuple[str, ...]) -> Callable[[Path], None]:
    """What fetches the files of PyG's data set of that kind, and reads none: PyG would go on and run their pickles."""

    def download(root: Path) -> None:
        import torch_geometric.datasets
        from torch_geometric.data import download_url

        url = getattr(torch_geometric.datasets, kind).url.removesuffix("{}.npz").rstrip("/")
        for file in files:
            download_url(f"{url}/{file}", str(root / path))

    return download


@dataclass(frozen=True)
class Files:
    """The raw files of one graph: where they lie under a data root, who reads them and who downloads them.

    `download(folder)` lays out `path` under a folder as a data root has it; `remedy` is what else there is to do.
    A download is compared with `counts`, the published numbers of nodes and of edges, before it is kept, and, where it
    is known, with `sha256`, that of the SHA-256 of each file, one after the other; their publishers say none. Of files
    that are there already, another one is warned of. Where
    `counts` go on with the numbers of features and of classes, files that are there are compared with all four, too.
    """

    name: str
    path: str
    files: tuple[str, ...]
    read: Callable[[Path], Data]
    download: Callable[[Path], object]
    counts: tuple[int, ...]
    remedy: str = ""
    sha256: str | None = None

    def available(self, root: str | os.PathLike[str] | None) -> Path | None:
        """The folder with all of the files, in the data root or as downloaded before; or none."""
        for base in (data_root(root), cache_folder()):
            if base is not None and all((base / self.path / name).is_file() for name in self.files):
                return base / self.path
        return None

    def load(
        self, root: str | os.PathLike[str] | None, *, otherwise: Callable[[], tuple[Data, str]] | None = None
    ) -> tuple[Data, str]:
        """The graph and a line on where it came from; `otherwise` is tried before a download.

        What is in the data root is never written to; the graph as read is kept in the cache folder.
        """
        tried = [f"{base / self.path}" for base in (data_root(root), cache_folder()) if base is not None]
        folder = self.available(root)
        if folder is None and otherwise is not None:
            try:
                return otherwise()
            except (OSError, ImportError) as reason:
                tried.append(str(reason))
        if folder is None:
            try:
                folder = self._downloaded()
            except Exception as reason:  # whatever a network, a proxy or a library makes of it
                raise DataNotFoundError(
                    f"{self.name} was not found. Tried: {', '.join(tried)}, a download ({reason}). "
                    f"Pass root= (--data, GNNSAFE_DATA) a folder with {self.path}/{self.files[0]}"
                    f"{' and its siblings' if len(self.files) > 1 else ''}, or allow the download"
                    + (f", or {self.remedy}." if self.remedy else ".")
                ) from None
        elif self.sha256 not in (None, self.digest(folder)):  # a mirror may have written them anew: that is no error
            message = f"the files of {self.name} in {folder} are not the published ones, by their SHA-256"
            warnings.warn(f"{message}: they may be damaged; download them again", GnnsafeWarning, stacklevel=2)
        data = cached_graph(self.name, [folder / name for name in self.files], lambda: self._read_checked(folder))
        if len(self.counts) == len(COUNTED):
            self._check_counts(data, folder)
        log.info("%s is in %s", self.name, folder)
        return data, str(folder)

    def _read_checked(self, folder: Path) -> Data:
        try:
            return self.read(folder)
        except InputError:
            raise
        except Exception as reason:  # whatever a reader makes of a damaged file
            raise InputError(
                f"the files of {self.name} in {folder} must be whole (got {type(reason).__name__}: {reason}); "
                "download them again"
            ) from reason

    def _check_counts(self, data: Data, place: Path | str) -> None:
        found = (data.num_nodes, data.num_edges, data.num_features, int(data.y.max()) + 1)[: len(self.counts)]
        if found != self.counts:
            raise InputError(
                f"'{self.name}' must have {_counted(self.counts)} (got {_counted(found)} in {place}); "
                "download its files again, or read a graph of your own with gnnsafe.read_graph"
            )

    def digest(self, folder: Path) -> str:
        """The SHA-256 of the SHA-256 of each file, one after the other."""
        each = (hashlib.sha256((folder / name).read_bytes()).digest() for name in self.files)
        return hashlib.sha256(b"".join(each)).hexdigest()

    def _downloaded(self) -> Path:
        cache = cache_folder()
        if cache is None:
            raise OSError("there is no folder for it: set HOME or XDG_CACHE_HOME")
        folder = cache / self.path
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as part:  # a broken download leaves nothing behind
            log.info("downloading %s to %s", self.name, folder)
            self.download(Path(part))
            if self.sha256 not in (None, found := self.digest(Path(part) / self.path)):
                raise OSError(f"its SHA-256 is {found}, not {self.sha256}: it was not kept")
            data = self._read_checked(Path(part) / self.path)
            self._check_counts(data, "a download, not kept")
            shutil.move(Path(part) / self.path, folder)
        return folder


def _counted(counts: tuple[int, ...]) -> str:
    return ", ".join(f"{count:,} {name}" for count, name in zip(counts, COUNTED, strict=False))
