"""Methods: how to score a model's outputs. One file each; `METHODS` is their table.

Every method has `fit(outputs, y, mask)` and `score(outputs)`, and every score is float32, one per node, higher =
more out-of-distribution.
"""

from gnnsafe.methods.base import Method
from gnnsafe.methods.energy import Energy
from gnnsafe.methods.gkde import GKDE
from gnnsafe.methods.gnnsafe import GNNSafe
from gnnsafe.methods.gpn import GPN
from gnnsafe.methods.msp import MSP
from gnnsafe.methods.propagated import Propagated

__all__ = ["GKDE", "GPN", "METHODS", "MSP", "Energy", "GNNSafe", "Method", "Propagated"]

METHODS: dict[str, type[Method]] = {
    "msp": MSP,
    "energy": Energy,
    "gnnsafe": GNNSafe,
    "gkde": GKDE,
    "gpn": GPN,
}
