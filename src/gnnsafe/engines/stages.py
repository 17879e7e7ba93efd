"""Stages of a plan, which say what they read: steps are made of them, each keeping what a later one reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from gnnsafe.engines.engine import Block, Column, Function, Step
from gnnsafe.modes import without_modes

__all__ = ["Stage", "merged", "run", "steps_of"]


@dataclass(frozen=True)
class Stage:
    """A function of rows, the columns that it makes, and those that it reads; see `Step`."""

    function: Function
    makes: Mapping[str, Column]
    reads: Collection[str]
    aggregates: bool = False


def steps_of(stages: Sequence[Stage], wanted: Collection[str]) -> list[Step]:
    """The steps that lead to the columns `wanted`: each keeps what is read after it, and nothing else."""
    steps: list[Step] = []
    later = {*wanted}
    for stage in reversed(stages):
        makes = {name: column for name, column in stage.makes.items() if name in later}
        kept = later - {*makes}
        steps.append(Step(stage.function, makes, tuple(sorted(kept)), stage.aggregates))
        later = kept | {*stage.reads}
    return steps[::-1]


def merged(steps: Sequence[Step]) -> list[Step]:
    """Steps that aggregate nothing, done together with the one before them: nothing is stored in between."""
    result: list[Step] = []
    for step in steps:
        if result and not step.aggregates:
            result[-1] = _joined(result[-1], step)
        else:
            result.append(step)
    return result


def _joined(one: Step, two: Step) -> Step:
    through = [name for name in two.keeps if name in one.makes]
    makes = {**{name: one.makes[name] for name in through}, **two.makes}
    keeps = tuple(name for name in two.keeps if name not in one.makes)
    return Step(partial(_one_after_other, one.function, two.function, tuple(through)), makes, keeps, one.aggregates)


def _one_after_other(one: Function, two: Function, through: tuple[str, ...], block: Block) -> dict[str, Tensor]:
    between = one(block)
    passed = {name: value for name, value in block.items() if name != "aggregated"}
    return {**{name: between[name] for name in through}, **two({**passed, **between})}


def run(function: Function, block: Block) -> dict[str, Tensor]:
    """The function of some rows, without gradients."""
    with without_modes(), torch.no_grad():
        return function(block)
