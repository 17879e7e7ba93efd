"""Which code made a record: edits that can change a figure are another version, others are not."""

from __future__ import annotations

import pytest

from gnnsafe.bench import code
from gnnsafe.bench.code import code_version, method_version, training_version
from gnnsafe.methods import KNN, MSP, Consensus, Energy, Method, Propagated

FILES = {
    "bench/run.py": "from gnnsafe.methods import METHODS\nfrom gnnsafe.training.loop import train\n",
    "methods/energy.py": "from gnnsafe import once, scores\n",
    "once.py": "",
    "scores.py": "",
    "training/loop.py": "def train():\n    from gnnsafe.sparse import product\n",
    "datasets/cora.py": "",
    "sparse.py": "",
    "cli/score.py": "from gnnsafe.bench.run import run\n",
}


@pytest.fixture
def package(monkeypatch):
    return given(monkeypatch, FILES)


def given(monkeypatch, files: dict[str, str]) -> dict[str, bytes]:
    """A package of these files, of which any may be edited."""
    package = {name: text.encode() for name, text in files.items()}
    monkeypatch.setattr(code, "SOURCES", package)
    return package


@pytest.mark.parametrize(
    ("file", "figures", "models"),
    [
        ("bench/run.py", True, False),
        ("methods/energy.py", False, False),  # its own records' alone, below
        ("once.py", True, False),
        ("scores.py", True, False),
        ("training/loop.py", True, True),
        ("datasets/cora.py", False, True),  # here nothing of bench reads it
        ("sparse.py", True, True),
        ("cli/score.py", False, False),
    ],
)
def test_an_edit_is_another_version_of_what_it_can_change(package, file, figures, models):
    before = code_version("0.1.0"), training_version("0.1.0")
    assert before == (code_version("0.1.0"), training_version("0.1.0"))
    assert before[0].startswith("0.1.0+")
    package[file] += b"# edited"
    assert (code_version("0.1.0") != before[0], training_version("0.1.0") != before[1]) == (figures, models)


def test_methods_are_among_what_figures_come_from_and_not_among_what_models_come_from():
    assert {"methods", "training", "datasets", "propagation", "scaling"} <= code._with_imports("bench")
    assert not {"cli", "report", "service", "detector"} & code._with_imports("bench")
    assert not {"methods", "bench"} & code._with_imports("training", "datasets")


METHOD_FILES = {
    "methods/base.py": "",
    "methods/propagated.py": "from gnnsafe.methods.base import Method\n",
    "methods/consensus.py": "from gnnsafe.methods.base import Method\n",
    "methods/energy.py": "from gnnsafe.methods.base import Method\n",
    "methods/msp.py": "from gnnsafe.methods.base import Method\n",
    "methods/knn.py": "from gnnsafe.methods.rows import unit_rows\n",
    "methods/rows.py": "",
}


class TheirMethod(Method):
    """One that a user wrote: it may read any of ours."""

    def base_scores(self, outputs):
        return outputs.logits.sum(dim=1)


@pytest.mark.parametrize(
    ("method", "files"),
    [
        (Energy(), {"energy", "base"}),
        (KNN(), {"knn", "rows"}),
        (Propagated(KNN()), {"propagated", "knn", "rows", "base"}),
        (Propagated(Propagated(MSP())), {"propagated", "msp", "base"}),
        (Consensus((Energy(), Propagated(KNN()))), {"consensus", "energy", "propagated", "knn", "rows", "base"}),
        (Propagated(TheirMethod()), {"base", "propagated", "consensus", "energy", "msp", "knn", "rows"}),
    ],
)
def test_an_edited_method_is_another_version_of_its_own_records_alone(monkeypatch, method, files):
    package = given(monkeypatch, METHOD_FILES)
    before, changed = method_version(method), set()
    for name, text in package.items():
        monkeypatch.setitem(package, name, text + b"# edited")
        changed |= {name} if method_version(method) != before else set()
        monkeypatch.setitem(package, name, text)
    assert changed == {f"methods/{name}.py" for name in files}


def test_an_edit_while_a_process_runs_is_not_what_it_runs(monkeypatch):
    monkeypatch.setattr(code.Path, "read_bytes", lambda path: b"edited")
    assert method_version(Energy()) != code._digest(["methods"])
    assert code.SOURCES["methods/energy.py"] != code._sources()["methods/energy.py"]


def test_every_method_of_gnnsafe_has_its_files():
    assert method_version(Energy()) != method_version(MSP()) != method_version(Propagated(MSP()))
    assert method_version(Energy()) == method_version(Energy(temperature=2.0))
