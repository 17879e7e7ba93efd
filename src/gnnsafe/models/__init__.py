"""Models: node classifiers called `(x, edge_index)` like PyG's. One file each; `MODELS` is their table."""

from gnnsafe.models.appnp import APPNP
from gnnsafe.models.base import Model, check_constructor
from gnnsafe.models.dual_filter import DualFilter
from gnnsafe.models.ensemble import Ensemble
from gnnsafe.models.gat import GAT
from gnnsafe.models.gcn import GCN
from gnnsafe.models.gin import GIN
from gnnsafe.models.gpn import GPN
from gnnsafe.models.gps import GPS
from gnnsafe.models.graphsage import GraphSAGE
from gnnsafe.models.jknet import JKNet
from gnnsafe.models.mixhop import MixHop
from gnnsafe.models.mlp import MLP
from gnnsafe.models.sgc import SGC
from gnnsafe.models.sgformer import SGFormer
from gnnsafe.registry import Registry

__all__ = [
    "APPNP",
    "GAT",
    "GCN",
    "GIN",
    "GPN",
    "GPS",
    "MLP",
    "MODELS",
    "SGC",
    "DualFilter",
    "Ensemble",
    "GraphSAGE",
    "JKNet",
    "MixHop",
    "Model",
    "SGFormer",
]

_OWN: dict[str, type[Model]] = {
    "gcn": GCN,
    "mlp": MLP,
    "gat": GAT,
    "jknet": JKNet,
    "mixhop": MixHop,
    "graphsage": GraphSAGE,
    "gin": GIN,
    "sgc": SGC,
    "appnp": APPNP,
    "dual-filter": DualFilter,
    "sgformer": SGFormer,
    "gps": GPS,
    "gpn": GPN,
    "ensemble": Ensemble,
}

MODELS = Registry("model", Model, _OWN, check_constructor)
