from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import xxhash

from gnnsafe.bench.paper import COMMON, PAPER_SHIFTS
from gnnsafe.bench.recipes import backbones, demo_recipes, recipes
from gnnsafe.errors import InputError, RegistrationWarning
from gnnsafe.methods import METHODS, MSP, Energy, GNNSafe, MaxLogit, Propagated
from gnnsafe.training import (
    BoundedEnergy,
    CrossEntropy,
    EnergyMargin,
    KernelDirichlet,
    OutlierExposure,
    UncertainCrossEntropy,
)


def by_name(*arguments, **options):
    table = recipes(*arguments, **options)
    names = {recipe.name: recipe for recipe in table}
    assert len(names) == len(table)
    return names


@dataclass
class Newcomer(MSP):
    """A method of somebody's own."""


class Prior(Newcomer):
    objective = "outlier-exposure"


class Posterior(Newcomer):
    objective, model = "bounded-energy", "gpn"


@pytest.mark.parametrize("shift", PAPER_SHIFTS)
def test_recipes_are_those_of_the_published_runs(shift):
    table = by_name("cora", shift)
    margins = {"structure": (-5, -1, 0.01), "feature": (-5, -1, 0.01), "label": (-5, -4, 1.0)}
    assert table["GNNSafe++"].objective == EnergyMargin(*margins[shift], steps=2, alpha=0.5, isolated="decay")
    assert table["GNNSafe++"].method == table["GNNSafe"].method == GNNSafe(2, 0.5, 1.0, "decay")
    assert (table["Energy FT"].objective, table["Energy FT"].method) == (
        EnergyMargin(*margins[shift], steps=0),
        Energy(),
    )
    assert {table[name].objective for name in ("MSP", "Energy", "GNNSafe", "GNNSafe, keep")} == {CrossEntropy()}
    assert table["GNNSafe, keep"].method == GNNSafe()
    assert table["NODESafe"].objective == BoundedEnergy()
    assert (table["OE"].objective, table["OE"].method) == (OutlierExposure(), MaxLogit())
    assert {recipe.model for recipe in table.values()} == {"gcn", "gpn", "ensemble"}


def test_each_of_two_margins_has_its_place():
    table = by_name("amazon-photo", "structure")
    assert table["Energy FT"].objective.weight == 0.01
    assert table["GNNSafe++"].objective.weight == 0.1


def test_the_rigorous_protocol_has_one_setting_for_all_shifts():
    tables = [by_name(name, shift, protocol="rigorous") for name, shift in (("cora", "label"), ("twitch", "domain"))]
    assert tables[0] == tables[1]
    assert tables[0]["GNNSafe"].method.isolated == tables[0]["MSP K=2"].method.isolated == "keep"
    assert tables[0]["GNNSafe++"].objective == EnergyMargin(*COMMON)
    assert "GNNSafe, keep" not in tables[0]


def test_a_recipe_says_how_its_values_were_chosen():
    published = {"lr": "0.01, as in the published runs"}
    table = by_name("amazon-photo", "structure")
    assert table["MSP"].chosen == table["GNNSafe"].chosen == table["OE"].chosen == published
    assert table["GNNSafe++"].chosen == {**published, "margins": "t_in -9, t_out -1, λ 0.1, as in the published runs"}
    assert table["Energy FT"].chosen["margins"].startswith("t_in -9, t_out -1, λ 0.01, as in")
    # those of the published runs here, though they are the common ones too
    assert by_name("coauthor-cs", "structure")["GNNSafe++"].chosen["margins"].endswith("as in the published runs")
    assert by_name("cora", "planted-feature")["GNNSafe++"].chosen["margins"].endswith("as in the published runs")
    common = "t_in -5, t_out -1, λ 0.1, common to all shifts, chosen by no figure"
    for arguments, protocol in ((("cora", "label"), "rigorous"), (("pubmed", "structure"), "paper")):
        assert by_name(*arguments, protocol=protocol)["GNNSafe++"].chosen == {**published, "margins": common}


@pytest.mark.usefixtures("registries")
def test_a_registered_method_is_a_recipe_alone_and_propagated():
    assert {f"{method.__name__}" for method in METHODS.values()} <= set(by_name("cora", "label"))
    METHODS.register("newcomer")(Newcomer)
    table = by_name("cora", "label")
    assert table["Newcomer"].method == Newcomer()
    assert table["Newcomer K=2"].method == Propagated(Newcomer())
    assert table["Newcomer"].objective == table["Newcomer K=2"].objective == CrossEntropy()
    assert table["Newcomer"].code == xxhash.xxh3_64_hexdigest(Path(__file__).read_bytes())
    assert table["MSP"].code == ""


@pytest.mark.usefixtures("registries")
def test_a_method_registered_under_another_word_is_called_by_it():
    METHODS.register("my-msp")(Newcomer)
    table = by_name("cora", "label")
    assert table["my-msp"].method == Newcomer()
    assert "Newcomer" not in table
    METHODS.register("nodesafe")(Prior)
    with pytest.raises(InputError, match=r"'name' must be one that no recipe has \(got 'NODESafe' twice\); register"):
        recipes("cora", "label")


@pytest.mark.usefixtures("registries")
def test_a_method_with_a_model_of_its_own_is_trained_by_its_own_objective():
    gkde, gpn = (by_name("cora", "label")[name] for name in ("GKDE K=2", "GPN"))
    assert (gkde.objective, gkde.model) == (KernelDirichlet(), "gcn")
    assert (gpn.objective, gpn.model) == (UncertainCrossEntropy(), "gpn")
    METHODS.register("posterior")(Posterior)
    METHODS.register("prior")(Prior)
    table = by_name("cora", "label")
    assert (table["Posterior"].objective, table["Posterior"].model) == (BoundedEnergy(), "gpn")
    assert (table["Prior K=2"].objective, table["Prior K=2"].model) == (OutlierExposure(), "gcn")
    table = by_name("cora", "label", backbone="gat")
    assert "Posterior" not in table
    assert {recipe.model for recipe in table.values()} == {"gat"}
    paper = ("gcn", "mlp", "gat", "jknet", "mixhop")
    assert backbones() == (*paper, "graphsage", "gin", "sgc", "appnp", "dual-filter", "sgformer", "gps")


@pytest.mark.usefixtures("registries")
def test_a_method_of_ones_own_may_be_trained_by_the_energy_margin():
    @METHODS.register("tuned")
    @dataclass
    class Tuned(MSP):
        objective = "energy-margin"

    table = by_name("cora", "feature")
    for name in ("Tuned", "Tuned K=2"):
        assert table[name].objective == EnergyMargin(*COMMON)
        assert table[name].chosen["margins"].endswith("chosen by no figure")


@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize("needs", ["objective", "model"])
def test_a_method_whose_needs_are_nowhere_leaves_the_others_alone(needs):
    usual = list(by_name("cora", "label"))
    kind = dataclass(type("Lost", (MSP,), {needs: "nowhere", "__module__": __name__}))
    METHODS.register("lost")(kind)
    with pytest.warns(RegistrationWarning, match=rf"the method 'lost' is left out \('Lost.{needs}' must be one of"):
        assert list(by_name("cora", "label")) == usual


def test_nothing_is_exposed_where_no_class_is_left_for_it():
    assert not any(recipe.objective.needs_exposure for recipe in recipes("pubmed", "label"))
    assert "GNNSafe++" in by_name("pubmed", "structure")


def test_the_demo_has_few():
    names = [recipe.name for recipe in demo_recipes("label")]
    assert names == ["MSP", "Energy", "GNNSafe", "GNNSafe++", "TwoScale"]
    assert [recipe.name for recipe in demo_recipes("structure")] == [*names[:3], "GNNSafe, keep", *names[3:]]
