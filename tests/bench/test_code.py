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
def package(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(code, "PACKAGE", tmp_path)
    return tmp_path


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
    (package / file).write_text(FILES[file] + "# edited\n")
    assert (code_version("0.1.0") != before[0], training_version("0.1.0") != before[1]) == (figures, models)


def test_methods_are_among_what_figures_come_from_and_not_among_what_models_come_from():
    assert {"methods", "training", "datasets", "propagation", "scaling"} <= code._with_imports("bench")
    assert not {"cli", "report", "service", "detector"} & code._with_imports("bench")
    assert not {"methods", "bench"} & code._with_imports("training", "datasets")


METHOD_FILES = {
    "base.py": "",
    "propagated.py": "from gnnsafe.methods.base import Method\n",
    "consensus.py": "from gnnsafe.methods.base import Method\n",
    "energy.py": "from gnnsafe.methods.base import Method\n",
    "msp.py": "from gnnsafe.methods.base import Method\n",
    "knn.py": "from gnnsafe.methods.rows import unit_rows\n",
    "rows.py": "",
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
        (TheirMethod(), {path.removesuffix(".py") for path in METHOD_FILES}),
    ],
)
def test_an_edited_method_is_another_version_of_its_own_records_alone(tmp_path, monkeypatch, method, files):
    (tmp_path / "methods").mkdir()
    for name, text in METHOD_FILES.items():
        (tmp_path / "methods" / name).write_text(text)
    monkeypatch.setattr(code, "PACKAGE", tmp_path)

    def version() -> str:
        code._methods_digest.cache_clear()
        return method_version(method)

    before, changed = version(), set()
    for name, text in METHOD_FILES.items():
        (tmp_path / "methods" / name).write_text(text + "# edited\n")
        changed |= {name.removesuffix(".py")} if version() != before else set()
        (tmp_path / "methods" / name).write_text(text)
    code._methods_digest.cache_clear()
    assert changed == files


def test_every_method_of_gnnsafe_has_its_files():
    assert method_version(Energy()) != method_version(MSP()) != method_version(Propagated(MSP()))
    assert method_version(Energy()) == method_version(Energy(temperature=2.0))
