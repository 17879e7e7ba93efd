"""Training: objectives say what is minimised, the loop minimises it."""

from gnnsafe.training.loop import History, train
from gnnsafe.training.objectives import OBJECTIVES, CrossEntropy, EnergyMargin, Objective

__all__ = ["OBJECTIVES", "CrossEntropy", "EnergyMargin", "History", "Objective", "train"]
