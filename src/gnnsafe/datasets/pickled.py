"""Arrays, sparse matrices and lists out of a pickle, without running what is in it.

A few bytes of a pickle can ask for gigabytes, or hours: a length that the file does not have, a list that holds another
twice, which holds another twice, and so on. So nothing is done here that takes more than the file is long: of the codes
that a pickle is made of only those are known that such content needs, and what it holds is looked at, not converted.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gnnsafe.datasets.reading.npz import csr_matrix
from gnnsafe.errors import InputError

__all__ = ["Array", "Csr", "unpickled"]

TYPES = ("b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8")
ORDERS = ("<", ">", "|", "=")
CODES = (
    "PROTO", "FRAME", "MARK", "STOP", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1",
    "SHORT_BINSTRING", "BINSTRING", "SHORT_BINUNICODE", "BINUNICODE", "SHORT_BINBYTES", "BINBYTES", "EMPTY_LIST",
    "APPEND", "APPENDS", "EMPTY_DICT", "SETITEM", "SETITEMS", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3",
    "GLOBAL", "STACK_GLOBAL", "REDUCE", "NEWOBJ", "BUILD", "BINPUT", "LONG_BINPUT", "MEMOIZE", "BINGET", "LONG_BINGET",
)  # fmt: skip
"""Of protocols 2 to 4, as `pickle` calls them."""
LOADS: dict[int, Any] = pickle._Unpickler.dispatch


class _Stub:
    """What stands in for a class of numpy or scipy: it keeps what the file gives it, and does nothing with it."""

    def __init__(self, first: Any = None, *_: Any) -> None:  # a long argument, given many times, is not kept
        self.first = first
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Dtype(_Stub):
    def plain(self) -> np.dtype[Any]:
        code, order = self.first, self.state[1]
        if not isinstance(code, str) or code not in TYPES or not isinstance(order, str) or order not in ORDERS:
            raise ValueError("an array of no plain numbers")
        return np.dtype(order + code)


class Array(_Stub):
    """What a file says of an array."""

    def values(self) -> NDArray[Any]:
        """The array; a `TypeError`, `ValueError` or `AttributeError` where it is none of numbers."""
        _, shape, dtype, fortran, raw = self.state
        flat = np.frombuffer(raw.encode("latin1") if isinstance(raw, str) else raw, dtype=dtype.plain())
        return flat.reshape(_sizes(shape), order="F" if fortran else "C")


class Csr(_Stub):
    """What a file says of a sparse matrix."""

    def matrix(self) -> Any:
        """The matrix; a `KeyError` or what `Array.values` raises where it is none."""
        data, indices, indptr = (self.state[name].values() for name in ("data", "indices", "indptr"))
        return csr_matrix(data, indices, indptr, np.array(_sizes(self.state["_shape"])))


class _Lists(_Stub, dict[Any, Any]):
    """A defaultdict of lists, empty at first."""


def _sizes(shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, tuple) or not all(type(size) is int for size in shape):
        raise ValueError("a shape that is no tuple of whole numbers")
    return shape


KNOWN: dict[str, Any] = {
    "scipy.sparse.csr.csr_matrix": Csr,
    "scipy.sparse._csr.csr_matrix": Csr,
    "numpy.core.multiarray._reconstruct": Array,
    "numpy._core.multiarray._reconstruct": Array,
    "numpy.dtype": _Dtype,
    "numpy.ndarray": None,  # only ever an argument, as are lists
    "collections.defaultdict": _Lists,
    "builtins.list": None,
    "__builtin__.list": None,
}


def _refuse(_: Any) -> None:
    raise InputError("a code that these do not need")


def _set_item(unpickler: Any) -> None:
    _check_keys(unpickler.stack[-2:-1])
    LOADS[pickle.SETITEM[0]](unpickler)


def _set_items(unpickler: Any) -> None:
    _check_keys(unpickler.stack[::2])
    LOADS[pickle.SETITEMS[0]](unpickler)


def _check_keys(keys: list[Any]) -> None:
    """Keys have a hash at once: that of tuples within tuples may take for ever, or more of the stack than there is."""
    if not all(type(key) in (int, str) for key in keys):
        raise InputError("a key that is no whole number and no text")


class _Unpickler(pickle._Unpickler):
    """Knows the few codes and names in Planetoid's files, and for each name a stub.

    Python's own, not that in C: there a file of ten bytes that names the memo's entry 2**32 - 1 takes 64 GB.
    """

    dispatch: ClassVar[dict[int, Any]] = {
        **dict.fromkeys(range(256), _refuse),
        **{code: LOADS[code] for code in (getattr(pickle, name)[0] for name in CODES)},
        pickle.SETITEM[0]: _set_item,
        pickle.SETITEMS[0]: _set_items,
    }

    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        if full not in KNOWN:
            raise InputError(f"{full}, which was not run")
        return KNOWN[full]


def unpickled(file: Path) -> Any:
    """What a pickle holds: whole numbers, text, lists, tuples, dicts, `Array`, `Csr`.

    Raises:
        InputError: It holds anything else, or is damaged.
    """
    stream = io.BytesIO(file.read_bytes())  # asked for more bytes than there are, a file would make room for them first
    try:
        return _Unpickler(stream, encoding="latin1").load()
    except Exception as error:  # a damaged or hostile file fails in any way it likes
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{file} must hold arrays and lists alone (got {reason}); download it again") from None
