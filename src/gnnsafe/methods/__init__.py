"""Methods: how to score a model's outputs. One file each; `METHODS` is their table.

Every method has `fit(outputs, y, mask)` and `score(outputs)`, and every score is float32, one per node, higher =
more out-of-distribution.
"""

import copy

from gnnsafe.arguments import check_configuration
from gnnsafe.errors import require, require_known
from gnnsafe.methods.agreement import Agreement
from gnnsafe.methods.base import Method
from gnnsafe.methods.centred_cosine import CentredCosine
from gnnsafe.methods.consensus import Consensus
from gnnsafe.methods.deep_ensemble import DeepEnsemble
from gnnsafe.methods.degree import Degree
from gnnsafe.methods.degree_balance import DegreeBalance
from gnnsafe.methods.diffused_knn import DiffusedKNN
from gnnsafe.methods.dirichlet_energy import DirichletEnergy
from gnnsafe.methods.edge_disagreement import EdgeDisagreement
from gnnsafe.methods.energy import Energy
from gnnsafe.methods.energy_head import EnergyHead
from gnnsafe.methods.entropy import Entropy
from gnnsafe.methods.evidential_probe import EvidentialProbe
from gnnsafe.methods.feature_distance import FeatureDistance
from gnnsafe.methods.feature_norm import FeatureNorm
from gnnsafe.methods.gebm import GEBM
from gnnsafe.methods.gen import GEN
from gnnsafe.methods.gkde import GKDE
from gnnsafe.methods.gnnsafe import GNNSafe
from gnnsafe.methods.gpn import GPN
from gnnsafe.methods.grasp import GRASP
from gnnsafe.methods.in_degree import InDegree
from gnnsafe.methods.knn import KNN
from gnnsafe.methods.mahalanobis import Mahalanobis
from gnnsafe.methods.max_logit import MaxLogit
from gnnsafe.methods.mc_dropout import MCDropout
from gnnsafe.methods.mean_cosine import MeanCosine
from gnnsafe.methods.msp import MSP
from gnnsafe.methods.nonzero_features import NonzeroFeatures
from gnnsafe.methods.odin import ODIN
from gnnsafe.methods.out_degree import OutDegree
from gnnsafe.methods.out_of_place import OutOfPlace
from gnnsafe.methods.propagated import Propagated
from gnnsafe.methods.react import ReAct
from gnnsafe.methods.two_scale import TwoScale
from gnnsafe.methods.vim import ViM
from gnnsafe.registry import Registry

__all__ = [
    "GEBM",
    "GEN",
    "GKDE",
    "GPN",
    "GRASP",
    "KNN",
    "METHODS",
    "MSP",
    "ODIN",
    "Agreement",
    "CentredCosine",
    "Consensus",
    "DeepEnsemble",
    "Degree",
    "DegreeBalance",
    "DiffusedKNN",
    "DirichletEnergy",
    "EdgeDisagreement",
    "Energy",
    "EnergyHead",
    "Entropy",
    "EvidentialProbe",
    "FeatureDistance",
    "FeatureNorm",
    "GNNSafe",
    "InDegree",
    "MCDropout",
    "Mahalanobis",
    "MaxLogit",
    "MeanCosine",
    "Method",
    "NonzeroFeatures",
    "OutDegree",
    "OutOfPlace",
    "Propagated",
    "ReAct",
    "TwoScale",
    "ViM",
    "own_method",
]

_OWN: dict[str, type[Method]] = {
    "msp": MSP,
    "max-logit": MaxLogit,
    "entropy": Entropy,
    "gen": GEN,
    "energy": Energy,
    "gnnsafe": GNNSafe,
    "odin": ODIN,
    "mahalanobis": Mahalanobis,
    "gkde": GKDE,
    "gpn": GPN,
    "deep-ensemble": DeepEnsemble,
    "mc-dropout": MCDropout,
    "evidential-probe": EvidentialProbe,
    "energy-head": EnergyHead,
    "knn": KNN,
    "react": ReAct,
    "vim": ViM,
    "dirichlet-energy": DirichletEnergy,
    "agreement": Agreement,
    "edge-disagreement": EdgeDisagreement,
    "out-of-place": OutOfPlace,
    "diffused-knn": DiffusedKNN,
    "consensus": Consensus,
    "two-scale": TwoScale,
    "grasp": GRASP,
    "gebm": GEBM,
    "mean-cosine": MeanCosine,
    "centred-cosine": CentredCosine,
    "feature-distance": FeatureDistance,
    "feature-norm": FeatureNorm,
    "nonzero-features": NonzeroFeatures,
    "degree": Degree,
    "in-degree": InDegree,
    "out-degree": OutDegree,
    "degree-balance": DegreeBalance,
}

METHODS = Registry("method", Method, _OWN, check_configuration)


def own_method(method: Method | str | None) -> Method:
    """A method of that name, a copy of the one given, or the default: to be fitted here, nowhere else."""
    if isinstance(method, str):
        require_known("method", method, METHODS)
        return METHODS[method]()
    rule = "be a method such as gnnsafe.methods.GNNSafe()"
    require(method is None or isinstance(method, Method), "method", rule, repr(method))
    return TwoScale() if method is None else copy.deepcopy(method)
