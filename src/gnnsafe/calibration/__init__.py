"""Decisions with a stated error rate: conformal p-values among held-out ID nodes, false alarms and false discoveries.

The guarantee, p ≤ α for at most a share α of ID nodes, holds where the calibration nodes and the ID nodes to come are
exchangeable: drawn at random from one pool, and scored by a model and a method that have learnt from neither. It is a
guarantee on average over calibration sets; with one set of n nodes the rate is one draw from Beta(k, n+1−k), where
k = ⌊α(n+1)⌋, about α ± √(α(1−α)/n). It says nothing about OOD nodes. An ID node whose neighbours have shifted is scored
with them, by the model and by propagation, and is no longer exchangeable with one whose neighbours have not: it raises
more false alarms than stated.

By how much (benchmarks/beside.md, GCN on four graphs, 5 % asked, 1 to 20 % of the nodes planted among ID nodes, with
other features or edges): GNNSafe flags up to 82 % of the ID nodes, TwoScale up to 6.7 %, as its p-values go by a node's
own evidence, less what all nodes of the graph share and most of what odder in-neighbours may explain. These are nodes
with odd neighbours: where fewer than half of the in-neighbours are planted TwoScale flags at most 5.3 %, where half or
more are, up to 41 %. Beside classes that were left out of training 5 % asked became 4.0 to 10 % by GNNSafe, 2.9 to
5.8 % by TwoScale (benchmarks/calibration.md), and 38 % and 71 % by GNNSafe on two dense social graphs. In a graph that
is odd as a whole ID nodes are flagged with the rest. ID nodes that are known in the graph in question make it exact:
`calibrate(new_data, mask=known)`.

Sets of classes (`Detector.predict_sets`) promise likewise: an ID node's set lacks its class with a probability of at
most `error`, on average over calibration sets and where nodes are exchangeable. The error is shared by the OOD score,
which alone can leave a set empty, and the logits; `gnnsafe.calibration.sets` has the formula and why it holds. The
promise is over all classes together unless calibration is by class. Beside OOD nodes it holds no better than
false-alarm rates do.
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
from gnnsafe.calibration.sets import KnownClasses, class_margins, shared_p_values

__all__ = [
    "LEVELS",
    "Calibration",
    "CalibrationCheck",
    "KnownClasses",
    "LevelCheck",
    "Tail",
    "check_level",
    "class_margins",
    "conformal_p_values",
    "extrapolated_p_values",
    "false_alarms",
    "false_discoveries",
    "id_share",
    "nodes_needed",
    "shared_p_values",
]
