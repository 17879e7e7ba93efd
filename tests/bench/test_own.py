from __future__ import annotations

import pickle
import re
import sys
from pathlib import Path

import pytest

from gnnsafe import cli
from gnnsafe.bench.own import own_recipes
from gnnsafe.bench.plan import Plan
from gnnsafe.bench.store import read
from gnnsafe.errors import InputError
from gnnsafe.methods import Propagated
from gnnsafe.training import CrossEntropy

PAGE = Path(__file__).parents[2] / "docs" / "extend.md"
TINY = ["bench", "--datasets", "synthetic", "--shifts", "label", "--epochs", "2", "--seeds", "2"]
TWO = """
from dataclasses import dataclass
from gnnsafe.methods import MSP, Method

@dataclass
class Base(Method):
    pass

@dataclass
class Twice(Base):
    factor: float = 2.0
    def base_scores(self, outputs):
        return self.factor * MSP().score(outputs)

@dataclass
class Slow(Twice):
    steps: int = 3
"""


@pytest.fixture(autouse=True)
def _modules(monkeypatch, tmp_path):
    """No test leaves a module or a folder on the path behind."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", sys.path[:])
    yield
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "twice_own.py"
    path.write_text(TWO)
    return path


def test_every_method_of_a_file_is_a_recipe_alone_and_propagated(file):
    alone, propagated, slow = own_recipes(str(file), backbone="gat")
    assert [recipe.name for recipe in (alone, propagated, slow)] == ["Twice", "Twice K=2", "Slow"]
    assert repr(alone.method) == "Twice(factor=2.0)"
    assert propagated.method == Propagated(alone.method)
    assert {(r.objective, r.model) for r in (alone, propagated, slow)} == {(CrossEntropy(), "gat")}
    assert pickle.loads(pickle.dumps(propagated)) == propagated
    assert own_recipes(str(file))[0].method == alone.method  # the same class: a file is run once
    assert sys.path[-1] == str(file.parent)


def test_an_edited_file_is_another(file):
    before, *_ = own_recipes(str(file))
    stat = file.stat()
    file.write_text(TWO.replace("2.0", "3.0"))  # as long as before, in the same second: a compiled copy looks new
    after, *_ = own_recipes(str(file))
    assert file.stat().st_size == stat.st_size
    assert after.code != before.code
    assert repr(after.method) == "Twice(factor=3.0)"
    assert pickle.loads(pickle.dumps(after)) == after


def test_files_stand_beside_names(file):
    ((_, both),) = Plan(("cora",), ("label",), ("msp", str(file)), seeds=1).cells()
    assert [recipe.name for recipe in both] == ["MSP", "Twice", "Twice K=2", "Slow"]
    assert [bool(recipe.code) for recipe in both] == [False, True, True, True]
    cells = Plan(("cora",), ("label",), (str(file),), ("gcn", "gat"), seeds=1).cells()
    assert [(len(recipes), recipes[0].model) for _, recipes in cells] == [(3, "gcn"), (3, "gat")]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("torch", TWO, r"'methods' must name no file for a module that there is, torch \(got '.*torch.py'\); rename"),
        ("wave", TWO, "for a module that there is, wave"),  # importable, though nobody has yet
        ("my-own", TWO, "'methods' must name files of letters, digits and _"),
        ("a_own", "class Laplace(:\n", r"can be run \(got '.*a_own.py': SyntaxError: .*line 1\)\)$"),
        ("b_own", "\nimport nowhere_to_be_had\n", r"b_own.py': line 2, ModuleNotFoundError: No module named 'nowhere"),
        ("c_own", "raise ValueError('a\\nb')", r"c_own.py': line 1, ValueError: a b\)$"),
        ("h_own", "import sys\nsys.exit(0)", r"h_own.py': line 2, SystemExit: 0\)$"),
        ("i_own", "\nraise GeneratorExit", r"i_own.py': line 2, GeneratorExit:\)$"),
        (
            "j_own",
            TWO + "    def __post_init__(self):\n        raise SystemExit",
            r"j_own.py': line \d+, Slow\(\): SystemExit",
        ),
        (
            "d_own",
            "from gnnsafe.methods import MSP\nx = 1",
            r"define a Method with base_scores \(got none in '.*d_own.py'",
        ),
        (
            "k_own",
            TWO.replace("base_scores", "score"),
            r"k_own.py': line 10, InputError: 'Twice.score' must be left to",
        ),
        ("e_own", TWO.replace(" = 2.0", ""), r"e_own.py': Twice\(\): TypeError: .*missing 1 required.*'factor'"),
        ("f_own", TWO.replace("@dataclass\n", ""), r"be dataclasses: records tell them by their repr \(got Twice in"),
        ("g_own", TWO.replace("Twice", "MSP"), r"'methods' must have names of their own \(got MSP twice\)"),
    ],
)
def test_a_file_that_cannot_be_is_refused_in_one_line(tmp_path, name, text, message, capsys):
    path = tmp_path / f"{name}.py"
    path.write_text(text)
    assert cli.main([*TINY, "--methods", f"msp,{path}", "--out", str(tmp_path / "out")]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert re.search(message, err.strip())


def test_a_file_that_is_nowhere(capsys, tmp_path):
    assert cli.main([*TINY, "--methods", str(tmp_path / "nowhere.py"), "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("gnnsafe: 'methods' must name files that are there (got '")


def test_two_files_with_one_method(file):
    other = file.with_name("again_own.py")
    other.write_text(TWO)
    with pytest.raises(InputError, match="have names of their own"):
        Plan(("cora",), ("label",), (str(file), str(other)))


def test_the_pages_ten_lines_are_in_every_table(tmp_path, capsys, monkeypatch):
    """As the page tells it: a run without it, the file, a run of it alone; workers import it too."""
    blocks = PAGE.read_text(encoding="utf-8").split("```")
    (code,) = [
        block.removeprefix("python\n") for block in blocks if block.startswith("python\n") and "(Method)" in block
    ]
    assert len([line for line in code.splitlines() if line]) <= 10
    monkeypatch.chdir(tmp_path)
    Path("laplace.py").write_text(code, encoding="utf-8")
    assert cli.main([*TINY, "--methods", "gnnsafe", "--jobs", "1"]) == 0
    assert cli.main([*TINY, "--methods", "laplace.py", "--jobs", "2"]) == 0
    capsys.readouterr()
    assert cli.main(["report"]) == 0
    out, err = capsys.readouterr()
    for name in ("GNNSafe", "Laplace", "Laplace K=2"):
        assert re.search(rf"^\d {name} +\d+\.\d", out, re.M)
    assert err == ""
    records, _ = read(Path("results"))
    assert {(r.method, bool(r.code)) for r in records} == {("GNNSafe", False), ("Laplace", True), ("Laplace K=2", True)}
    assert cli.main([*TINY, "--methods", "gnnsafe,laplace.py"]) == 0
    assert "2 cells, 2 of them finished before" in capsys.readouterr().err
    Path("laplace.py").write_text(code.replace("alpha=0.0", "alpha=0.5"), encoding="utf-8")
    assert cli.main([*TINY, "--methods", "gnnsafe,laplace.py", "--jobs", "1"]) == 0
    out, err = capsys.readouterr()
    assert "2 cells, 0 of them finished before" in err
    assert "gnnsafe: 2 records of other settings for Laplace are left out\n" in err
    assert len(read(Path("results"))[0]) == 2 + 4 + 4
