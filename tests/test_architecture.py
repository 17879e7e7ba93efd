"""The shape of the package: which way imports point, what is public, and that the pages say what the code says."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

import gnnsafe

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "gnnsafe"


def test_imports_point_one_way(monkeypatch):
    """The layers that pyproject.toml lists, by import-linter; a module that is on no layer is an error, too."""
    monkeypatch.setattr(sys, "path", [*sys.path])  # which it adds to
    monkeypatch.setattr("importlinter.cli._configure_logging", lambda verbose: None)  # it silences all other loggers
    assert lint_imports(str(ROOT / "pyproject.toml"), no_cache=True, no_logo=True) == 0


def test_the_library_logs_and_never_prints():
    printing = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    }
    assert {path.split("/")[0] for path in printing} == {"cli"}


def test_no_folder_hides_a_file():
    files = {path.stem for path in SOURCE.glob("*.py")}
    assert not [name for name in files if (SOURCE / name).is_dir()]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="outside the repository nothing says which files are its own")
def test_no_file_holds_the_marks_of_a_merge():
    asked = ["git", "grep", "-lIE", "^(<{7}|>{7}) "]  # exits with 1 where there is none
    found = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (1, "")


def test_a_name_has_one_meaning():
    """No two modules define a class, or a public table such as METHODS, under the same name."""
    names: dict[str, list[str]] = {}
    for path in SOURCE.rglob("*.py"):
        module = ast.parse(path.read_text(encoding="utf-8"))
        for node in module.body:
            if isinstance(node, ast.ClassDef):
                names.setdefault(node.name, []).append(path.stem)
    twice = {name for name, modules in names.items() if len(modules) > 1}
    assert twice == {"GPN", "History"}  # a model and its method; of a training, and of a monitor
    tables = ("METHODS", "MODELS", "OBJECTIVES", "DATASETS")
    text = "\n".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
    assert [len(re.findall(rf"^{name}\b.* = ", text, re.MULTILINE)) for name in tables] == [1, 1, 1, 1]


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
