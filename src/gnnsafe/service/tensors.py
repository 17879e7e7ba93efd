"""Tensors of the Open Inference Protocol, version 2: as JSON, or as bytes after it (the binary data extension).

https://github.com/kserve/open-inference-protocol; the extension is Triton's, whose clients use it by default.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gnnsafe.errors import InputError, require, require_known

__all__ = ["DATATYPES", "Inference", "read_inference", "write_answer"]

DATATYPES: dict[str, Any] = {
    "BOOL": np.bool_, "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64, "UINT8": np.uint8,
    "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64, "FP16": np.float16, "FP32": np.float32,
    "FP64": np.float64,
}  # fmt: skip
DATATYPE_NAMES = {np.dtype(kind): name for name, kind in DATATYPES.items()}


class Inference:
    """A request: its tensors by name, its id, and which outputs it wants in which form."""

    def __init__(self, record: Mapping[str, Any], binary: memoryview) -> None:
        self.id = record.get("id")
        require(self.id is None or isinstance(self.id, str), "id", "be a text", repr(self.id)[:60])
        self.parameters = _parameters(record)
        self.outputs = _outputs(record)
        self.tensors: dict[str, Any] = {}
        inputs = record.get("inputs")
        require(isinstance(inputs, list), "inputs", "be a list of tensors", type(inputs).__name__)
        assert isinstance(inputs, list)
        for place, given in enumerate(inputs):
            name, tensor, binary = _tensor(place, given, binary)
            require(name not in self.tensors, "inputs", "name each tensor once", repr(name)[:60])
            self.tensors[name] = tensor
        require(len(binary) == 0, "inputs", "account for all bytes after the JSON", f"{len(binary)} too many")

    def wants(self, name: str) -> tuple[bool, bool]:
        """Whether an output is wanted, and whether as bytes."""
        usual = bool(self.parameters.get("binary_data_output", False))
        if not self.outputs:
            return True, usual
        return name in self.outputs, bool(self.outputs.get(name, {}).get("binary_data", usual))


def read_inference(content: bytes, header_length: str | None) -> Inference:
    """A request, of which so many bytes are JSON; None: all of it."""
    length = len(content)
    if header_length is not None:
        fits = header_length.isdecimal() and len(header_length) < 20 and int(header_length) <= len(content)
        rule = "be how many bytes of the body are JSON"
        require(fits, "Inference-Header-Content-Length", rule, repr(header_length)[:40])
        length = int(header_length)
    record = parsed(content[:length])
    require(isinstance(record, Mapping), "request", "be an object", type(record).__name__)
    return Inference(record, memoryview(content)[length:])


def parsed(content: bytes) -> Any:
    """JSON; its numbers are finite and no larger than a computer's."""
    try:
        return json.loads(content, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:  # also of bytes that are not UTF-8, and of numbers without end
        raise InputError(f"the body must be JSON ({str(error)[:120]})") from error


def write_answer(asked: Inference, name: str, version: str, columns: Mapping[str, Any]) -> tuple[bytes, int | None]:
    """The answer's bytes, and how many of them are JSON where not all are."""
    unknown = next((output for output in asked.outputs if output not in columns), None)
    require(unknown is None, "outputs", f"be among {', '.join(columns)}", repr(unknown)[:60])
    described, pieces = [], list[bytes]()
    for column, values in columns.items():
        wanted, binary = asked.wants(column)
        if not wanted:
            continue
        tensor = {"name": column, "shape": list(values.shape), "datatype": DATATYPE_NAMES[values.dtype]}
        if binary:
            pieces.append(values.tobytes())
            described.append({**tensor, "parameters": {"binary_data_size": len(pieces[-1])}})
        else:
            described.append({**tensor, "data": values.ravel().tolist()})
    record = {"model_name": name, "model_version": version, "outputs": described}
    head = json.dumps({**record, **({"id": asked.id} if asked.id is not None else {})}, allow_nan=False).encode()
    return b"".join([head, *pieces]), len(head) if pieces else None


def _tensor(place: int, given: Any, binary: memoryview) -> tuple[str, Any, memoryview]:
    where = f"inputs[{place}]"
    known = isinstance(given, Mapping) and all(isinstance(given.get(key), str) for key in ("name", "datatype"))
    require(known, where, "be an object with name, shape, datatype and data", type(given).__name__)
    name, shape = given["name"][:100], given.get("shape")
    require_known(f"{where}.datatype", given["datatype"], DATATYPES)
    whole = isinstance(shape, list) and all(type(size) is int and 0 <= size < 2**31 for size in shape)
    require(whole and len(shape) <= 4, f"{where}.shape", "be a list of at most 4 sizes", repr(shape)[:60])
    assert isinstance(shape, list)
    kind, count = np.dtype(DATATYPES[given["datatype"]]), int(np.prod([float(size) for size in shape]))
    size = _parameters(given).get("binary_data_size")
    if size is None:
        return name, _numbers(where, given.get("data"), kind, shape), binary
    needed = count * kind.itemsize
    require(
        type(size) is int and size == needed, f"{where}.parameters.binary_data_size", f"be {needed}", repr(size)[:40]
    )
    require(len(binary) >= needed, where, f"have {needed} bytes after the JSON", len(binary))
    return name, np.frombuffer(binary[:needed], kind).reshape(shape), binary[needed:]


def _numbers(where: str, data: Any, kind: Any, shape: Sequence[int]) -> Any:
    require(isinstance(data, list), f"{where}.data", "be a list of numbers", type(data).__name__)
    try:
        values = np.asarray(data)
        numeric = values.dtype.kind in ("bi" if kind.kind in "biu" else "bif") or values.size == 0
        require(numeric, f"{where}.data", "be numbers as its datatype has them, all rows as long", str(values.dtype))
        with np.errstate(over="raise", invalid="raise"):
            return values.astype(kind).reshape(shape)
    except InputError:
        raise
    except (ValueError, OverflowError, FloatingPointError, TypeError) as error:
        raise InputError(f"'{where}.data' must be {list(shape)} numbers of its datatype ({str(error)[:80]})") from error


def _parameters(record: Mapping[str, Any]) -> Mapping[str, Any]:
    given = record.get("parameters") or {}
    require(isinstance(given, Mapping), "parameters", "be an object", type(given).__name__)
    return given


def _outputs(record: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    given = record.get("outputs") or []
    usable = isinstance(given, list) and all(
        isinstance(one, Mapping) and isinstance(one.get("name"), str) for one in given
    )
    require(usable, "outputs", "be a list of objects with a name", type(given).__name__)
    return {one["name"]: _parameters(one) for one in given}


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number")
