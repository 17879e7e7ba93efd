"""Models: node classifiers called `(x, edge_index)` like PyG's. One file each; `MODELS` is their table."""

from torch import nn

from gnnsafe.models.gat import GAT
from gnnsafe.models.gcn import GCN
from gnnsafe.models.jknet import JKNet
from gnnsafe.models.mixhop import MixHop
from gnnsafe.models.mlp import MLP

__all__ = ["GAT", "GCN", "MLP", "MODELS", "JKNet", "MixHop"]

MODELS: dict[str, type[nn.Module]] = {
    "gcn": GCN,
    "mlp": MLP,
    "gat": GAT,
    "jknet": JKNet,
    "mixhop": MixHop,
}
