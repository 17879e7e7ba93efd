"""A method bound to a user's model: what users call."""

from __future__ import annotations

from gnnsafe.detector.decisions import Decisions
from gnnsafe.detector.detector import Detector
from gnnsafe.detector.loading import load
from gnnsafe.detector.sets import ClassSets
from gnnsafe.new_scores import NewScores

__all__ = ["ClassSets", "Decisions", "Detector", "NewScores", "load"]
