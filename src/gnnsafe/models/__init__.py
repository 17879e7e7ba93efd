"""Models: node classifiers called `(x, edge_index)` like PyG's. One file each; `MODELS` is their table."""

from torch import nn

from gnnsafe.models.gcn import GCN
from gnnsafe.models.gpn import GPN

__all__ = ["GCN", "GPN", "MODELS"]

MODELS: dict[str, type[nn.Module]] = {
    "gcn": GCN,
    "gpn": GPN,
}
