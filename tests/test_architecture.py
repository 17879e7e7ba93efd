"""The shape of the house: which way imports point, what is public, and that the pages say what the code says."""

from __future__ import annotations

import ast
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import gnnsafe

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "gnnsafe"

# Each room may look at those above it. `__init__`, `cli` and `__main__` stand at the end: they may look at all.
ROOMS = [
    "display", "progress", "errors", "once", "arguments", "registry", "typed", "files", "hashing", "devices", "modes",
    "checks", "threads", "sparse", "attention", "tiles", "edges", "graph", "prepared", "scaling", "regions", "hetero",
    "scores", "propagation", "homophily", "metrics", "calibration", "borrowed", "calling", "staged", "outputs",
    "held_out", "probing", "methods", "logits", "new_scores", "batches", "randomness", "models", "training", "datasets",
    "bench", "report", "explanation", "diagnosis", "saving", "detector", "engines", "fitting", "monitoring",
    "evolving", "service", "mlflow", "__init__", "cli", "__main__",
]  # fmt: skip


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "gnnsafe":
                rooms.add(parts[1] if parts[1] in ROOMS else "__init__")
    return rooms


def test_imports_point_up_only():
    apart = {"training": {"methods"}, "methods": {"models", "training"}}
    for path in SOURCE.rglob("*.py"):
        here = room(path)
        allowed = {*ROOMS[: ROOMS.index(here)], here} - apart.get(here, set())
        assert imported_rooms(path) <= allowed, path


def test_every_room_is_on_the_list():
    assert {room(path) for path in SOURCE.rglob("*.py")} == set(ROOMS)
    files = {path.stem for path in SOURCE.glob("*.py")}
    assert not [name for name in files if (SOURCE / name).is_dir()], "a folder hides the file of its name"


def test_the_public_names():
    assert sorted(gnnsafe.__all__) == [
        "BoundedEnergy", "CrossEntropy", "Decisions", "Detector", "EnergyMargin", "GnnsafeError", "KernelDirichlet",
        "OutlierExposure", "Outputs", "UncertainCrossEntropy", "energy", "entropy", "generalized_entropy",
        "load", "load_benchmark", "max_logit", "max_softmax", "methods", "metrics", "models", "prepare", "propagate",
        "read_graph", "score_logits", "shifts", "train",
    ]  # fmt: skip
    for name in gnnsafe.__all__:
        assert getattr(gnnsafe, name).__doc__
    assert set(gnnsafe.__all__) <= set(dir(gnnsafe))


def test_type_checkers_and_python_find_the_same_public_names():
    """The names are imported when first asked for; a block that only type checkers read says where they are."""
    (block,) = (node for node in ast.parse((SOURCE / "__init__.py").read_text()).body if isinstance(node, ast.If))
    homes = {alias.name: node.module for node in block.body for alias in node.names}
    assert sorted(homes) == sorted(gnnsafe.__all__)
    for name, home in homes.items():
        assert getattr(gnnsafe, name) is getattr(import_module(home), name)
    assert gnnsafe.calibration.__name__ == "gnnsafe.calibration"
    with pytest.raises(AttributeError, match="no attribute 'detektor'"):
        gnnsafe.detektor  # noqa: B018


def test_the_version_is_said_once():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == gnnsafe.__version__
    assert f"## {gnnsafe.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_constraints_pin_every_dependency_exactly():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(line.count("==") == 1 for line in pins)
    assert "torch==2.13.0" in pins
