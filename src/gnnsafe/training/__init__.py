"""Training: objectives say what is minimised, the loop minimises it. `OBJECTIVES` is their table."""

from gnnsafe.arguments import check_configuration
from gnnsafe.errors import require
from gnnsafe.registry import Registry
from gnnsafe.training.dirichlet_margin import DirichletMargin
from gnnsafe.training.kernel_dirichlet import KernelDirichlet
from gnnsafe.training.loop import History, train
from gnnsafe.training.members import MemberCrossEntropy
from gnnsafe.training.objectives import (
    BoundedEnergy,
    CrossEntropy,
    EnergyMargin,
    Objective,
    OutlierExposure,
)
from gnnsafe.training.posterior import UncertainCrossEntropy
from gnnsafe.training.synthetic_exposure import SyntheticExposure

__all__ = [
    "OBJECTIVES",
    "BoundedEnergy",
    "CrossEntropy",
    "DirichletMargin",
    "EnergyMargin",
    "History",
    "KernelDirichlet",
    "MemberCrossEntropy",
    "Objective",
    "OutlierExposure",
    "SyntheticExposure",
    "UncertainCrossEntropy",
    "train",
]

_OWN: dict[str, type[Objective]] = {
    "cross-entropy": CrossEntropy,
    "outlier-exposure": OutlierExposure,
    "energy-margin": EnergyMargin,
    "bounded-energy": BoundedEnergy,
    "kernel-dirichlet": KernelDirichlet,
    "uncertain-cross-entropy": UncertainCrossEntropy,
    "member-cross-entropy": MemberCrossEntropy,
    "synthetic-exposure": SyntheticExposure,
    "dirichlet-margin": DirichletMargin,
}


def _check(objective: type[Objective]) -> None:
    check_configuration(objective)
    frozen = objective.__hash__ is not None
    require(
        frozen, objective.__name__, "be a frozen dataclass", "one that can be changed", "use @dataclass(frozen=True)"
    )


OBJECTIVES = Registry("objective", Objective, _OWN, _check)
