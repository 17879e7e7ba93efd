"""Which code made a record: edits that can change a figure are another version, others are not."""

from __future__ import annotations

import pytest

from gnnsafe.bench import code
from gnnsafe.bench.code import code_version, training_version

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
        ("methods/energy.py", True, False),
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
