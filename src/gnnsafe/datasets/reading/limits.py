"""How much memory a file may ask for: in proportion to its size, so that a small one cannot take all there is."""

from __future__ import annotations

from pathlib import Path

from gnnsafe.datasets.reading.refusal import refusal

__all__ = ["check_memory"]

FREE = 2**29  # bytes that any file may take
EXPANSION = 400  # times its own size that a larger one may take: zeros compress well, but hardly better


def check_memory(file: Path, nbytes: int, *, key: str | None = None) -> None:
    """Refuse, before it is taken, more memory than 512 MiB and 400 times the file's size.

    Args:
        file: The file that is read.
        nbytes: What its content, or the entry `key` of it, says that it will take.
        key: The entry as Python writes it.

    Raises:
        GraphFileError: The file says that it holds more.
    """
    size = file.stat().st_size
    if nbytes > max(FREE, EXPANSION * size):
        raise refusal(
            file,
            f"must take at most {FREE // 2**20} MiB of memory, or {EXPANSION} times the file's {size:,} bytes "
            f"(got {nbytes:,} bytes)",
            "if they are meant, write them dense and without compression (np.savez)",
            key=key,
        )
