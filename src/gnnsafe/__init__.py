"""Which nodes of a graph lie outside what its classifier was trained on.

detector = gnnsafe.Detector(model).fit(data)   # any module called (x, edge_index)
scores = detector.score(new_data)              # float32, one per node, higher = more out-of-distribution
flags = detector.calibrate(data).predict(new_data, false_alarm=0.05)
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from gnnsafe import methods, metrics, models
    from gnnsafe.datasets import load_benchmark, read_graph, shifts
    from gnnsafe.detector import Decisions, Detector, load
    from gnnsafe.errors import GnnsafeError
    from gnnsafe.logits import score_logits
    from gnnsafe.outputs import Outputs
    from gnnsafe.prepared import prepare
    from gnnsafe.propagation import propagate
    from gnnsafe.scores import energy, entropy, generalized_entropy, max_logit, max_softmax
    from gnnsafe.training import (
        BoundedEnergy,
        CrossEntropy,
        EnergyMargin,
        KernelDirichlet,
        OutlierExposure,
        UncertainCrossEntropy,
        train,
    )

__all__ = [
    "BoundedEnergy",
    "CrossEntropy",
    "Decisions",
    "Detector",
    "EnergyMargin",
    "GnnsafeError",
    "KernelDirichlet",
    "OutlierExposure",
    "Outputs",
    "UncertainCrossEntropy",
    "energy",
    "entropy",
    "generalized_entropy",
    "load",
    "load_benchmark",
    "max_logit",
    "max_softmax",
    "methods",
    "metrics",
    "models",
    "prepare",
    "propagate",
    "read_graph",
    "score_logits",
    "shifts",
    "train",
]

# Imported when first asked for: `gnnsafe --help` needs no torch. The block above tells type checkers the same.
_HOMES = {
    "datasets": ("load_benchmark", "read_graph", "shifts"),
    "detector": ("Decisions", "Detector", "load"),
    "errors": ("GnnsafeError",),
    "logits": ("score_logits",),
    "outputs": ("Outputs",),
    "prepared": ("prepare",),
    "propagation": ("propagate",),
    "scores": ("energy", "entropy", "generalized_entropy", "max_logit", "max_softmax"),
    "training": (
        "BoundedEnergy",
        "CrossEntropy",
        "EnergyMargin",
        "KernelDirichlet",
        "OutlierExposure",
        "UncertainCrossEntropy",
        "train",
    ),
}


def __getattr__(name: str) -> Any:
    """A public name, or a module of the package."""
    home = next((module for module, names in _HOMES.items() if name in names), None)
    if home is not None:
        value = getattr(import_module(f"gnnsafe.{home}"), name)
    elif not name.startswith("_") and find_spec(f"gnnsafe.{name}") is not None:
        value = import_module(f"gnnsafe.{name}")
    else:
        raise AttributeError(f"module 'gnnsafe' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
