"""Numpy's numbers as constructor arguments: every method, model and objective behaves and prints as with Python's."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from gnnsafe.methods import KNN, METHODS, GNNSafe
from gnnsafe.models import MODELS
from gnnsafe.training import OBJECTIVES, EnergyMargin


def numbers(kind: type) -> dict[str, object]:
    """The constructor's arguments that are numbers, at their defaults."""
    parameters = inspect.signature(kind).parameters.values()
    return {p.name: p.default for p in parameters if type(p.default) in (int, float)}


def of_numpy(values: dict[str, object]) -> dict[str, object]:
    return {name: np.int64(value) if isinstance(value, int) else np.float64(value) for name, value in values.items()}


@pytest.mark.parametrize("kind", [*METHODS.values(), *OBJECTIVES.values()], ids=lambda kind: kind.__name__)
def test_methods_and_objectives(kind):
    given = {"t_in": -5.0, "t_out": -1.0, "weight": 0.1} if kind is EnergyMargin else {}
    given |= numbers(kind)
    made = kind(**of_numpy(given))
    assert repr(made) == repr(kind(**given))
    assert made == kind(**given)


@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    sizes = {"in_channels": 4, "hidden_channels": 8, "out_channels": 3}
    given = sizes | numbers(MODELS[name])
    made = MODELS[name](**of_numpy(given))
    assert made.arguments == MODELS[name](**given).arguments
    assert {type(value) for value in made.arguments.values()} <= {int, float, bool, str}


def test_whatever_number_it_is():
    from fractions import Fraction

    assert repr(GNNSafe(alpha=Fraction(1, 2), steps=np.uint8(3))) == repr(GNNSafe(alpha=0.5, steps=3))
    assert repr(GNNSafe(np.int32(1), np.float32(0.25))) == repr(GNNSafe(1, 0.25))
    with pytest.raises(ValueError, match=r"'k' must be a whole number >= 1 \(got True\)"):
        KNN(k=np.True_.item())


def test_who_asks_what_a_constructor_takes_is_told():
    assert list(inspect.signature(GNNSafe).parameters) == ["steps", "alpha", "temperature", "isolated"]
