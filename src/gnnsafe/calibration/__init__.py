"""Decisions with a stated error rate: conformal p-values among held-out ID nodes, false alarms and false discoveries.

The guarantee, p ≤ α for at most a share α of ID nodes, holds where the calibration nodes and the ID nodes to come are
exchangeable: drawn at random from one pool, and scored by a model and a method that have learnt from neither. It is a
guarantee on average over calibration sets; with one set of n nodes the rate is one draw from Beta(k, n+1−k), where
k = ⌊α(n+1)⌋, about α ± √(α(1−α)/n). It says nothing about OOD nodes. An ID node whose neighbours have shifted is scored
with them, by the model and by propagation, and is no longer exchangeable with one whose neighbours have not: it raises
more false alarms than stated.

By how much: with a tenth of the nodes planted, 5 % asked became 5.6 % (Cora), 6.8 % (PubMed), 9.1 % (CS) and 11.2 %
(Photo) of the ID nodes by GNNSafe (benchmarks/calibration.md). Where classes that were left out of training stood
beside ID nodes it became 4.0 % (Cora), 5.0 % (PubMed), 8.9 % (CS) and 10.3 % (Photo), and 38 % and 71 % on two dense
social graphs.
"""

from __future__ import annotations

from gnnsafe.calibration.check import LEVELS, CalibrationCheck, LevelCheck
from gnnsafe.calibration.decisions import Calibration
from gnnsafe.calibration.p_values import (
    Tail,
    check_level,
    conformal_p_values,
    extrapolated_p_values,
    false_alarms,
    false_discoveries,
    id_share,
    nodes_needed,
)

__all__ = [
    "LEVELS",
    "Calibration",
    "CalibrationCheck",
    "LevelCheck",
    "Tail",
    "check_level",
    "conformal_p_values",
    "extrapolated_p_values",
    "false_alarms",
    "false_discoveries",
    "id_share",
    "nodes_needed",
]
