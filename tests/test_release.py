"""What is released works where nothing of the repository is: the wheel in an environment of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import gnnsafe

ROOT = Path(__file__).parents[1]

CONSUMER = """\
from typing import Any

import torch
from typing_extensions import assert_type

import gnnsafe
from gnnsafe.models import GCN


def flagged(model: torch.nn.Module, data: Any, new: Any) -> torch.Tensor:
    detector = gnnsafe.Detector(model, "gnnsafe").fit(data).calibrate(data)
    assert_type(detector, gnnsafe.Detector)
    assert_type(detector.score(new), torch.Tensor)
    assert_type(gnnsafe.energy(torch.zeros(2, 3), temperature=2.0), torch.Tensor)
    assert_type(gnnsafe.metrics.detection([0.1], [0.2]).auroc, float)
    detector.decide(new, fdr=0.1).to_pandas()
    gnnsafe.load("folder", GCN(8, 8, 3)).predict(new, false_alarm=0.05)
    return detector.predict(new, false_alarm=0.05)


gnnsafe.energy(torch.zeros(2, 3), temperature="hot")
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel and a source archive, as `make dist` builds them."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (wheel,) = built.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel in it. What it depends on is lent by this one, except for gnnsafe itself: a .pth
    file adds a folder without the .pth files in it, by which the repository's source is found here."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    (packages / "lent.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin" / "python"


def run(python: Path, *arguments: str, folder: Path) -> str:
    """What it prints, outside of the repository and without its paths."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "GNNSAFE_DATA")}
    environment |= {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    result = subprocess.run(
        [str(python), *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_the_environment_has_the_wheel_and_not_the_repository(python, tmp_path):
    place = Path(run(python, "-c", "import gnnsafe; print(gnnsafe.__file__)", folder=tmp_path).strip())
    assert place.is_relative_to(python.parents[1])


def test_the_readmes_first_example_runs_by_the_wheel(python, tmp_path):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    code, output = re.search(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```\n", readme, re.M | re.S).groups()
    assert run(python, "-c", code, folder=tmp_path) == output


def test_the_demo_runs_by_the_wheel(python, tmp_path):
    printed = run(python, "-m", "gnnsafe", "demo", "--quick", folder=tmp_path)
    assert "GNNSafe++" in printed
    assert "<html" in (tmp_path / "gnnsafe-demo.html").read_text(encoding="utf-8")


def test_a_consumers_strict_type_check_reads_our_types(python, tmp_path):
    """`py.typed` is in the wheel, all public names have types, and a wrong argument is an error."""
    (tmp_path / "consumer.py").write_text(CONSUMER)
    known = tmp_path / "cache"  # what is known of torch from `make test`, which looks at our own types first
    if (ROOT / ".mypy_cache").is_dir():
        shutil.copytree(ROOT / ".mypy_cache", known)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(known), "--python-executable", str(python)]
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MYPYPATH")}
    result = subprocess.run(
        [*command, "consumer.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    errors = [line for line in result.stdout.splitlines() if ": error: " in line]
    assert len(errors) == 1, result.stdout
    assert re.match(
        r'consumer\.py:\d+: error: Argument "temperature" to "energy" has incompatible type "str"', errors[0]
    )


def test_what_the_wheel_says_of_itself(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = Parser().parsestr(archive.read(next(n for n in names if n.endswith("METADATA"))).decode())
    assert {name.split("/")[0] for name in names} == {"gnnsafe", f"gnnsafe-{gnnsafe.__version__}.dist-info"}
    assert "gnnsafe/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert metadata["Version"] == gnnsafe.__version__
    assert metadata["License-Expression"] == "MIT"
    assert "Typing :: Typed" in metadata.get_all("Classifier")
    assert {"report", "cora", "tables", "docs"} <= set(metadata.get_all("Provides-Extra"))


def test_the_source_archive_has_all_that_tests_and_pages_read(built):
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if tracked.returncode == 0:  # not where this is such an archive itself
        assert set(tracked.stdout.splitlines()) - names == {"plans/records.tar.xz"}  # which no test or page reads
    assert {"README.md", "CITATION.cff", "SECURITY.md", "mkdocs.yml", "tests/test_release.py"} <= names


def test_the_citation_says_the_version():
    assert f"\nversion: {gnnsafe.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
