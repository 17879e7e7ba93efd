"""Training: objectives say what is minimised, the loop minimises it."""

from gnnsafe.training.loop import History, train
from gnnsafe.training.objectives import (
    OBJECTIVES,
    BoundedEnergy,
    CrossEntropy,
    EnergyMargin,
    Objective,
    OutlierExposure,
)

__all__ = [
    "OBJECTIVES",
    "BoundedEnergy",
    "CrossEntropy",
    "EnergyMargin",
    "History",
    "Objective",
    "OutlierExposure",
    "train",
]
