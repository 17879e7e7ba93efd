"""Training: objectives say what is minimised, the loop minimises it. `OBJECTIVES` is their table."""

from gnnsafe.training.kernel_dirichlet import KernelDirichlet
from gnnsafe.training.loop import History, train
from gnnsafe.training.objectives import (
    BoundedEnergy,
    CrossEntropy,
    EnergyMargin,
    Objective,
    OutlierExposure,
)
from gnnsafe.training.posterior import UncertainCrossEntropy

__all__ = [
    "OBJECTIVES",
    "BoundedEnergy",
    "CrossEntropy",
    "EnergyMargin",
    "History",
    "KernelDirichlet",
    "Objective",
    "OutlierExposure",
    "UncertainCrossEntropy",
    "train",
]

OBJECTIVES: dict[str, type[Objective]] = {
    "cross-entropy": CrossEntropy,
    "outlier-exposure": OutlierExposure,
    "energy-margin": EnergyMargin,
    "bounded-energy": BoundedEnergy,
    "kernel-dirichlet": KernelDirichlet,
    "uncertain-cross-entropy": UncertainCrossEntropy,
}
