"""Where a user's tables are: Parquet files, folders of parts, globs, Delta tables; and sizes as people write them."""

from __future__ import annotations

import re
from pathlib import Path

from gnnsafe.errors import InputError, require

__all__ = ["available", "check_there", "is_delta", "is_remote", "parquet_files", "scan", "sized", "table_in"]

SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?b?)", re.IGNORECASE)
UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def sized(memory: str | int | None) -> int:
    """Bytes; by default half of what is free.

    >>> sized("4GB") == sized("4096 MiB") == 4 * 2**30
    True
    """
    if memory is None:
        return available() // 2
    found = SIZE.fullmatch(str(memory).strip())
    require(found is not None, "memory", "be a size such as 4GB", repr(memory))
    assert found is not None
    size = int(float(found[1]) * UNITS[found[2].lower().rstrip("ib")])
    require(size >= 2**29, "memory", "be at least 512MB", repr(memory))
    return size


def available() -> int:
    """Bytes of memory that this process may still take: what is free, within what its container allows."""
    lines = Path("/proc/meminfo")
    try:
        entry = next(line for line in lines.read_text(encoding="ascii").splitlines() if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return 2**33  # no Linux: a guess
    free = 1024 * int(entry.split()[1])
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            free = min(free, int(Path(limit).read_text()) - int(Path(used).read_text()))
        except (OSError, ValueError):
            continue
    return max(free, 0)


def is_remote(path: str) -> bool:
    """Whether a path is an address such as s3://bucket/nodes/."""
    return "://" in path


def table_in(graph: str, name: str) -> str:
    """The table `name` of a graph's folder: nodes.parquet, or the folder nodes/ of parts."""
    if is_remote(graph):
        return f"{graph.rstrip('/')}/{name}"
    for place in (Path(graph) / f"{name}.parquet", Path(graph) / name):
        if place.exists():
            return str(place)
    rule = f"must hold {name}.parquet or a folder {name}/ of Parquet parts (found neither)"
    raise InputError(f"'{graph}' {rule}; if it is the table of nodes, name that of edges by --edges")


def check_there(path: str) -> None:
    """There are files: Parquet, which engines read."""
    if is_remote(path) or is_delta(path):
        return
    found = (
        [Path(path)]
        if Path(path).exists()
        else list(Path().glob(path))
        if not Path(path).is_absolute()
        else (list(Path(Path(path).anchor).glob(str(Path(path).relative_to(Path(path).anchor)))))
    )
    require(bool(found), "table", "be Parquet files that are there", f"'{path}'", f"check the path, from {Path.cwd()}")
    wrong = next((one for one in found if one.is_file() and one.suffix.lower() != ".parquet"), None)
    rule = "be Parquet for an engine other than memory"
    require(wrong is None, "table", rule, f"'{wrong}'", "convert it, or take --engine memory")
    empty = next((one for one in found if one.is_dir() and not _parts(one)), None)
    require(empty is None, "table", "hold Parquet parts", f"the folder '{empty}'")


def is_delta(path: str) -> bool:
    """Whether a folder is a Delta table."""
    return not is_remote(path) and (Path(path) / "_delta_log").is_dir()


def scan(path: str) -> str:
    """What DuckDB reads a path by."""
    check_there(path)
    if is_delta(path):
        return f"delta_scan({_quoted(path)})"
    return f"read_parquet({parquet_files(path)}, hive_partitioning=false)"


def parquet_files(path: str) -> str:
    """The Parquet files of a path, as a list in DuckDB's SQL."""
    files = _parts(Path(path)) if Path(path).is_dir() else [f"{path}**/*.parquet" if path.endswith("/") else path]
    return f"[{', '.join(map(_quoted, files))}]"


def _parts(folder: Path) -> list[str]:
    """The files of a table in a folder: as Spark does, without what a name with _ or . in front hides."""
    found = (file.relative_to(folder) for file in sorted(folder.rglob("*.parquet")))
    return [str(folder / file) for file in found if not any(name.startswith(("_", ".")) for name in file.parts)]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
