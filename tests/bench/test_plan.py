from __future__ import annotations

from pathlib import Path

import pytest

from gnnsafe.bench import paper
from gnnsafe.bench.plan import Cell, Plan, available_datasets, read_plan
from gnnsafe.bench.run import attempts
from gnnsafe.datasets import DATASETS, load_benchmark
from gnnsafe.errors import InputError

PLANTED = ["planted-feature", "planted-structure"]
CONTROLS = ["control-nothing", "control-half"]


def test_all_shifts_of_the_protocol_seed_by_seed():
    cells = [cell for cell, _ in Plan(("cora", "twitch"), seeds=2, protocol="paper").cells()]
    assert [cell.shift for cell in cells] == 2 * ["structure", "feature", "label", *CONTROLS, "domain", *CONTROLS]
    assert [cell.seed for cell in cells] == 8 * [0] + 8 * [1]
    assert cells[-3] == Cell("twitch", "domain", 1, "gcn", "paper", 200)
    rigorous = [cell for cell, _ in Plan(("cora",), seeds=1, protocol="rigorous").cells()]
    assert [cell.shift for cell in rigorous] == ["structure", "feature", "label", "rewire", *PLANTED, *CONTROLS]


def test_where_the_papers_protocol_is_named_so_are_its_methods():
    (_, recipes), *_ = Plan(("cora",), ("structure",), seeds=1, protocol="paper").cells()
    assert {recipe.name for recipe in recipes} == {*paper.PAPER_METHODS, "GNNSafe, keep"}
    (_, recipes), *_ = Plan(("cora",), ("structure",), seeds=1).cells()
    assert len(recipes) > 40
    (_, recipes), *_ = Plan(("cora",), ("structure",), ("knn",), seeds=1, protocol="paper").cells()
    assert [recipe.name for recipe in recipes] == ["KNN"]


def test_the_protocol_is_the_papers_for_its_tables_and_rigorous_for_all_else():
    cells = [cell for cell, _ in Plan(("cora", "citeseer", "twitch"), seeds=1).cells()]
    shifts = ["structure", "feature", "label", "rewire", *PLANTED]
    assert [cell.shift for cell in cells if cell.shift not in CONTROLS] == [*shifts, *shifts, "domain"]
    papers = [(cell.dataset, cell.shift) for cell in cells if cell.protocol == "paper" and cell.shift not in CONTROLS]
    controls = [(cell.dataset, cell.protocol) for cell in cells if cell.shift == "control-half"]
    both = [("cora", "paper"), ("cora", "rigorous"), ("citeseer", "rigorous")]
    assert controls == [*both, ("twitch", "paper"), ("twitch", "rigorous")]
    assert papers == [("cora", "structure"), ("cora", "feature"), ("cora", "label"), ("twitch", "domain")]
    for protocol in ("paper", "rigorous"):
        cells = Plan(("cora",), ("label", "rewire"), seeds=1, protocol=protocol).cells()
        assert {cell.protocol for cell, _ in cells} == {protocol}


def test_the_plans_of_the_readme_say_their_protocol():
    for path in (Path(__file__).parents[2] / "plans").glob("*.toml"):
        plan = Plan(**read_plan(path))
        assert plan.protocol == ("rigorous" if path.stem in ("field", "backbones", "arxiv") else "paper")
        assert plan.selection == ("test" if path.stem == "audit" else "validation")


def test_a_data_set_is_under_those_named_shifts_that_it_has():
    cells = [cell for cell, _ in Plan(("twitch", "cora", "cora"), shifts=("label", "feature-noise"), seeds=1).cells()]
    assert [(cell.dataset, cell.shift) for cell in cells] == [("cora", "label"), ("cora", "feature-noise")]


def test_methods_are_named_as_people_type_them():
    ((_, recipes),) = Plan(("cora",), ("label",), ("energy-ft", "GNNSAFE++", "msp-k2", "gnnsafe keep"), seeds=1).cells()
    assert {recipe.name for recipe in recipes} == {"Energy FT", "GNNSafe++", "MSP K=2", "GNNSafe, keep"}
    ((_, recipes),) = Plan(("pubmed",), ("label",), ("MSP",), seeds=1).cells()
    assert [recipe.name for recipe in recipes] == ["MSP"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"datasets": ("coar",)}, "'datasets' must be one of .* did you mean 'cora'"),
        ({"datasets": ()}, r"'datasets' must name at least one \(got none\); see --data"),
        ({"datasets": "cora"}, "'datasets' must be a list of names"),
        ({"shifts": ("domain",)}, r"'shifts' must be one of structure, .* \(got 'domain'\)"),
        ({"methods": ("mps",)}, "'methods' must be one of .* gnnsafe-keep, .* did you mean 'msp'"),
        ({"backbones": ("gnc",)}, "'backbones' must be one of .*gcn"),
        ({"protocol": "strict"}, "'protocol' must be one of paper, rigorous"),
        ({"seeds": 0}, "'seeds' must be a whole number >= 1"),
        ({"epochs": "many"}, "'epochs' must be a whole number >= 1"),
        ({"search": 3}, "'search' must be true or false"),
    ],
)
def test_a_plan_that_cannot_be(settings, message):
    with pytest.raises(InputError, match=message):
        Plan(**{"datasets": ("cora",), **settings})


def test_a_plan_in_a_file(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text('datasets = ["cora"]\nshifts = ["label"]\nseeds = 3\nprotocol = "rigorous"\n')
    assert Plan(**read_plan(path)) == Plan(("cora",), ("label",), seeds=3, protocol="rigorous")
    path.write_text("seedz = 3")
    with pytest.raises(InputError, match=r"plan.toml' must be one of datasets, .* did you mean 'seeds'"):
        read_plan(path)
    path.write_text("seeds: 3")
    with pytest.raises(InputError, match=r"'--plan' must be a TOML file \(got '.*plan.toml': "):
        read_plan(path)


def test_the_rigorous_protocol_tells_test_nodes_from_what_became_of_them():
    benchmark = Cell("synthetic", "feature", 0, protocol="rigorous").benchmark(None)
    assert (benchmark.ood["feature"].mask == benchmark.id.test_mask).all()
    assert Cell("synthetic", "feature", 0).benchmark(None).ood["feature"].mask.all()


def test_a_seed_of_the_rigorous_protocol_draws_the_split_too(data_root):
    first, second = (Cell("cora", "label", seed, protocol="rigorous").benchmark(str(data_root)) for seed in (0, 1))
    assert (first.id.train_mask != second.id.train_mask).any()
    assert first.source.endswith("a random split drawn from the seed, 20 per class/500/1000")
    assert first.id.train_mask.sum() == 3 * 20
    assert first.num_classes == 3  # 4, 5 and 6
    first, second = (Cell("cora", "label", seed).benchmark(str(data_root)) for seed in (0, 1))
    assert (first.id.train_mask == second.id.train_mask).all()
    assert first.num_classes == 7


def test_every_recipe_does_with_the_id_classes_only():
    benchmark = load_benchmark("synthetic", shift="label", head="id", nodes=400, edges=2000, features=60)
    recipes = Cell("synthetic", "label", 0, protocol="rigorous").recipes()
    outcomes = {recipe.name: outcome for recipe, outcome in attempts(benchmark, recipes, epochs=2)}
    assert not {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, Exception)}


def test_the_papers_data_sets_at_hand(data_root):
    """Arxiv is not, so that its substitute is; and PubMed by year is in every order."""
    found = available_datasets(str(data_root))
    assert found[:4] == ("cora", "amazon-photo", "coauthor-cs", "twitch")
    assert found[4:] == tuple(name for name in ("arxiv-topics", "pubmed-years") if DATASETS[name].available(data_root))
    cells = [cell for cell, _ in Plan(("pubmed-years", "arxiv-topics"), ("time",), seeds=1).cells()]
    assert [(cell.dataset, cell.protocol) for cell in cells] == [
        ("pubmed-years", "paper"), ("pubmed-years", "rigorous"), ("arxiv-topics", "paper"),
    ]  # fmt: skip


def test_controls_are_exposed_to_nothing():
    ((_, recipes),) = Plan(("synthetic",), ("control-half",), seeds=1).cells()
    assert not any(recipe.objective.needs_exposure for recipe in recipes)
    assert {"GRASP", "TwoScale", "GNNSafe"} <= {recipe.name for recipe in recipes}


def test_a_search_beside_selection_by_test_data():
    assert Plan(("cora",), selection="test").selection == "test"
    with pytest.raises(InputError, match="'search' must be left out where selection is 'test'"):
        Plan(("cora",), selection="test", search=True)
    with pytest.raises(InputError, match="'selection' must be one of validation, test"):
        Plan(("cora",), selection="best")
