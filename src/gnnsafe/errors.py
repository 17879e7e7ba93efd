"""What can go wrong, as a tree; who catches `GnnsafeError` catches all of it.

GnnsafeError
├── InputError            a value breaks a rule            (a ValueError too)
│   ├── UnknownNameError  a name that is not in the table
│   ├── GraphFileError    a graph's file breaks a rule, with its column and row
│   └── SavedFileError    a saved detector is damaged, of another version or made for another model
├── NotFittedError        scored before it was fitted      (a RuntimeError and an AttributeError too)
├── TrainingError         the loss is NaN or infinite   (a RuntimeError too)
├── WorkerError           a process was ended from outside (a RuntimeError too)
├── HistoryError          a history cannot be read or written (an OSError too)
├── MissingExtraError     an optional package is needed    (an ImportError too)
└── DataNotFoundError     a data set was not found  (a FileNotFoundError too)

Warnings, for what works but not as well as was asked:

GnnsafeWarning            (a UserWarning)
├── CalibrationWarning    calibration nodes are too few, or not fit to calibrate with
├── HeterophilyWarning    neighbours are hardly more alike than by chance
├── MethodWarning         the default method cannot be fitted, and another takes its place
├── ModelWarning          a model reads more or less of a graph than one may think, or gives random answers
├── PrecisionWarning      a column of features varies by less than float32 can tell
├── RegistrationWarning   an installed package announces what cannot be used
└── TrainingWarning       a model was trained that may be of little use
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Integral, Real

from gnnsafe.display import shown

__all__ = [
    "CalibrationWarning",
    "DataNotFoundError",
    "GnnsafeError",
    "GnnsafeWarning",
    "GraphFileError",
    "HeterophilyWarning",
    "HistoryError",
    "InputError",
    "MethodWarning",
    "MissingExtraError",
    "ModelWarning",
    "NotFittedError",
    "PrecisionWarning",
    "RegistrationWarning",
    "SavedFileError",
    "TrainingError",
    "TrainingWarning",
    "UnknownNameError",
    "WorkerError",
    "is_number",
    "require",
    "require_flag",
    "require_known",
    "require_seed",
    "require_whole",
]


class GnnsafeError(Exception):
    """Anything this package raises on purpose; its message is one line, whatever the value that it quotes."""

    def __str__(self) -> str:
        return shown(super().__str__())


class InputError(GnnsafeError, ValueError):
    """A value that the caller gave breaks a rule."""


class UnknownNameError(InputError):
    """A name that is not in the table it was looked up in."""


class GraphFileError(InputError):
    """A file does not hold the graph that it should; the message says file, column and row."""


class SavedFileError(InputError):
    """A folder does not hold the detector that it should, or not for this model."""


class NotFittedError(GnnsafeError, RuntimeError, AttributeError):
    """Something was scored before it was fitted."""


class TrainingError(GnnsafeError, RuntimeError):
    """Training became NaN or infinite."""


class WorkerError(GnnsafeError, RuntimeError):
    """A process that worked for this one was ended from outside."""


class HistoryError(GnnsafeError, OSError):
    """The history of a monitor is no such file, or its database cannot be reached or written."""


class MissingExtraError(GnnsafeError, ImportError):
    """An optional package is needed and not installed."""


class DataNotFoundError(GnnsafeError, FileNotFoundError):
    """A data set is in none of the places where it was looked for."""


class GnnsafeWarning(UserWarning):
    """Anything this package warns of, on one line."""

    def __str__(self) -> str:
        return shown(super().__str__())


class CalibrationWarning(GnnsafeWarning):
    """Calibration nodes are too few for what was asked of them, or not fit to calibrate with."""


class HeterophilyWarning(GnnsafeWarning):
    """Neighbours are hardly more alike than by chance."""


class MethodWarning(GnnsafeWarning):
    """No method was named, and the default one cannot be fitted: another takes its place."""


class ModelWarning(GnnsafeWarning):
    """A model reads more or less of a graph than one may think, or answers differently at each call."""


class PrecisionWarning(GnnsafeWarning):
    """A column of features varies by less than float32 can tell."""


class RegistrationWarning(GnnsafeWarning):
    """An installed package announces a method, a model or an objective that cannot be used."""


class TrainingWarning(GnnsafeWarning):
    """A model was trained that may be of little use."""


def require(holds: bool, name: str, rule: str, got: object, remedy: str = "") -> None:
    """Raise an `InputError` unless `holds`.

    >>> require(False, "alpha", "lie in [0, 1]", 2)
    Traceback (most recent call last):
    gnnsafe.errors.InputError: 'alpha' must lie in [0, 1] (got 2)
    """
    if not holds:
        raise InputError(f"'{name}' must {rule} (got {got})" + (f"; {remedy}" if remedy else ""))


def require_whole(name: str, value: object, least: int, most: int = 2**31 - 1) -> None:
    """Raise an `InputError` unless `value` is a whole number (Python's or numpy's, not a bool), `least` to `most`.

    >>> require_whole("steps", -1, 0)
    Traceback (most recent call last):
    gnnsafe.errors.InputError: 'steps' must be a whole number >= 0 (got -1)
    """
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    require(whole and value >= least, name, f"be a whole number >= {least}", repr(value))  # type: ignore[operator]
    require(value <= most, name, f"be <= {most}", value)  # type: ignore[operator]


def require_flag(name: str, value: object) -> None:
    """Raise an `InputError` unless `value` is True or False.

    >>> require_flag("touched", "no")
    Traceback (most recent call last):
    gnnsafe.errors.InputError: 'touched' must be True or False (got 'no')
    """
    require(isinstance(value, bool), name, "be True or False", repr(value))


def require_seed(seed: object) -> None:
    """Raise an `InputError` unless `seed` is a whole number of 64 bits, which every source of random numbers takes.

    >>> require_seed(True)
    Traceback (most recent call last):
    gnnsafe.errors.InputError: 'seed' must be a whole number >= 0 (got True)
    """
    require_whole("seed", seed, 0, 2**64 - 1)


def is_number(value: object) -> bool:
    """Whether `value` is a real number (Python's or numpy's, not a bool), so that it can be compared."""
    return isinstance(value, Real) and not isinstance(value, bool)


def require_known(name: str, value: object, known: Iterable[str]) -> None:
    """Raise an `UnknownNameError` that says the nearest known name unless `value` is `known`.

    >>> require_known("shift", "lable", ["feature", "label"])
    Traceback (most recent call last):
    gnnsafe.errors.UnknownNameError: 'shift' must be one of feature, label (got 'lable'); did you mean 'label'?
    """
    names = list(known)
    if isinstance(value, str) and value in names:
        return
    near = get_close_matches(str(value).lower(), names, n=1, cutoff=0.5)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    raise UnknownNameError(f"'{name}' must be one of {', '.join(names)} (got {value!r}){hint}")
