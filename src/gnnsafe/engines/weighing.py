"""What a graph as a whole says of evidence (`TwoScale`), from aggregates: shares of rare nodes, and quantiles."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gnnsafe.calibration import Calibration
from gnnsafe.engines.engine import Block, Column, Engine, Step
from gnnsafe.engines.formulas import mean
from gnnsafe.engines.parts import part
from gnnsafe.engines.quantiles import order_statistics
from gnnsafe.engines.stages import Stage
from gnnsafe.engines.texts import double
from gnnsafe.methods import TwoScale
from gnnsafe.methods.weighing import counted

__all__ = ["evidence", "weighed"]

NUMBER, EVIDENCE = "number", "evidence"  # columns


@dataclass(frozen=True)
class TableSpread:
    """How the numbers in a column of a table are spread: exactly, see `gnnsafe.methods.spread`."""

    engine: Engine
    table: str
    count: int

    def __len__(self) -> int:
        return self.count

    def below(self, value: float) -> float:
        """The share of them below a value."""
        found = self.engine.rows(f"SELECT count(*) FROM {self.table} WHERE {NUMBER} < {double(value)}")
        return float(found[0][0]) / self.count

    def quantile(self, share: float) -> float:
        """The lower one."""
        place = math.floor(share * (self.count - 1))
        return float(order_statistics(self.engine, self.table, NUMBER, [place])[0])


def evidence(method: TwoScale) -> Stage:
    """E of every part at every node, from the parts' scores."""
    names = [part(number) for number in range(len(method.parts()))]
    return Stage(partial(_evidence, method, names), {"value": Column(len(names), "float64")}, names)


def weighed(calibration: Calibration, beside: Sequence[str], method: TwoScale, engine: Engine, table: Any) -> Any:
    """From evidence to decisions, by the weights that all nodes together give it."""
    counts, names = engine.total(table, _counted).reshape(2, -1), (f"spread{number}" for number in itertools.count())

    def spread(numbers: Callable[[Tensor], Tensor]) -> TableSpread:
        nonlocal table
        step = Step(partial(_numbers, numbers), {NUMBER: Column(1, "float64")}, ("value", *beside))
        table = engine.after(table, step)
        name = next(names)
        engine.name_rows(name, table)
        return TableSpread(engine, name, engine.rows(f"SELECT count(*) FROM {name}")[0][0])

    seen = method.for_counts(counts, spread)
    makes = {"score": Column(1), "p_value": Column(1, "float64"), "own": Column(1, "float64")}
    telling = bool(seen.explaining_ > 0)
    if telling:
        rows = {"value": Column(1, "float64"), EVIDENCE: Column(len(method.parts()), "float64")}
        table = engine.after(table, Step(partial(_told, seen), rows, tuple(beside)))
    return engine.after(table, Step(partial(_decided, seen, calibration), makes, tuple(beside), aggregates=telling))


def _evidence(method: TwoScale, names: Sequence[str], block: Block) -> dict[str, Tensor]:
    scores = torch.cat([block[name] for name in names], dim=1)
    return {"value": method.evidence(scores, (block["count"] + block["loops"])[:, 0].double())}


def _counted(block: Block) -> dict[str, Tensor]:
    return {"total": counted(block["value"]).flatten()}


def _numbers(numbers: Callable[[Tensor], Tensor], block: Block) -> dict[str, Tensor]:
    return {NUMBER: numbers(block["value"])[:, None]}


def _told(method: TwoScale, block: Block) -> dict[str, Tensor]:
    odd = method.told(block["value"])
    assert odd is not None  # it is a step only where something is told
    return {"value": odd[:, None], EVIDENCE: block["value"]}


def _decided(method: TwoScale, calibration: Calibration, block: Block) -> dict[str, Tensor]:
    rows, around = block["value"], None
    if EVIDENCE in block:
        rows, around = block[EVIDENCE], mean(block, "decay")[:, 0]
    scores, compared = method.weighed(rows), method.comparable(rows, around)
    classes = None if calibration.classes is None else block["predicted"][:, 0]
    p = calibration.p_values(compared, classes)
    return {"score": scores[:, None], "p_value": p[:, None], "own": method.watched(rows)[:, :1]}
