"""Which nodes of a graph lie outside what its classifier was trained on.

detector = gnnsafe.Detector(model).fit(data)   # any module called (x, edge_index)
scores = detector.score(new_data)              # float32, one per node, higher = more out-of-distribution
flags = detector.calibrate(data).predict(new_data, false_alarm=0.05)
"""

__version__ = "0.1.0"

from gnnsafe import methods, metrics, models
from gnnsafe.datasets import load_benchmark, read_graph, shifts
from gnnsafe.detector import Detector, load
from gnnsafe.errors import GnnsafeError
from gnnsafe.logits import score_logits
from gnnsafe.outputs import Outputs
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
    "propagate",
    "read_graph",
    "score_logits",
    "shifts",
    "train",
]
