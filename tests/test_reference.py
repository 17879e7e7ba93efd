"""The reference says of every public name what each parameter means and what comes back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe
import pytest
import yaml

ROOT = Path(__file__).parents[1]
DIRECTIVE = re.compile(r"^::: (\S+)\n((?:    .*\n|\n(?=    ))*)", re.MULTILINE)
DEFAULTS = {"filters": ["!^_"], "inherited_members": True}  # as in mkdocs.yml
REFUSES = re.compile(r"\b(raise \w|require(_\w+)?\(|check_\w+\()")
EXTENSIONS = ("dataclasses", f"{ROOT / 'docs' / 'build' / 'fitted.py'}:WithoutFitted")


def target(named: Any) -> Any:
    return named.final_target if named.is_alias else named


def shown(name: str, options: dict[str, Any]) -> bool:
    return not any(re.search(one[1:], name) for one in options["filters"])


def sections(documented: Any) -> list[Any]:
    """Those of the docstring and, of a class, of its constructor's, which may be that of a class above it."""
    constructor = documented.all_members.get("__init__") if documented.is_class else None
    described = [one.docstring for one in (documented, constructor) if one is not None and one.docstring]
    return [section for docstring in described for section in docstring.parsed]


def listed(documented: Any, *kinds: str) -> set[str]:
    """The names in these sections of a docstring."""
    found = (section for section in sections(documented) if section.kind.value in kinds)
    return {one.name.lstrip("*") for section in found for one in section.value}


def has(documented: Any, *kinds: str) -> bool:
    return any(section.kind.value in kinds for section in sections(documented))


def members(owner: Any, options: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Of a module what the page lists; of a class its functions, except for those that a class above it describes."""
    if owner.is_module:
        wanted = options.get("members") or [str(one) for one in owner.exports or owner.members]
        yield from ((name, owner[name]) for name in wanted if options.get("members") or shown(name, options))
        return
    above = {name for base in owner.mro() for name in base.members}
    for name, member in (owner.all_members if options["inherited_members"] else owner.members).items():
        repeated = name in owner.members and name in above
        if shown(name, options) and target(member).is_function and not repeated:
            yield name, member


def named_on_pages(named: Any, path: str, options: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    found = target(named)
    if not found.is_module:
        yield path, found
    if found.is_module or found.is_class:
        for name, member in members(found, options):
            yield from named_on_pages(member, f"{path}.{name}", options)


@pytest.fixture(scope="module")
def public() -> dict[str, Any]:
    """Every function, class and method on the pages of the reference, by the path that it has there."""
    extensions = griffe.load_extensions(*EXTENSIONS)
    settings: dict[str, Any] = {"docstring_parser": "google", "extensions": extensions}
    package = griffe.load("gnnsafe", search_paths=[str(ROOT / "src")], **settings)
    found: dict[str, Any] = {}
    for page in sorted((ROOT / "docs" / "reference").glob("*.md")):
        for path, indented in DIRECTIVE.findall(page.read_text("utf-8")):
            options = DEFAULTS | (yaml.safe_load(indented) or {}).get("options", {})
            found |= dict(named_on_pages(package[path.removeprefix("gnnsafe.")], path, options))
    return found


def test_the_pages_name_what_is_public(public):
    assert {"gnnsafe.detector.Detector.decide", "gnnsafe.methods.GNNSafe", "gnnsafe.metrics.detection"} <= set(public)
    assert len(public) > 150


def undescribed(documented: Any) -> list[str]:
    """The parameters that neither the docstring nor, of a dataclass, the field itself describes."""
    fields = documented.all_members if documented.is_class else {}
    known = listed(documented, "parameters", "attributes")
    return [
        one.name
        for one in documented.parameters
        if one.name not in ("self", "cls") and one.name.lstrip("*") not in known
        if not (one.name in fields and fields[one.name].docstring)
    ]


def test_every_parameter_is_described(public):
    lacking = {path: undescribed(one) for path, one in public.items() if one.is_class or one.is_function}
    assert not {path: names for path, names in lacking.items() if names}


def test_what_comes_back_is_described(public):
    functions = {path: one for path, one in public.items() if one.is_function}
    lacking = [path for path, one in functions.items() if not has(one, "returns", "yields")]
    assert not [path for path in lacking if str(functions[path].returns) not in ("None", "NoReturn")]


def checks(documented: Any) -> bool:
    """Whether a function, or the constructor of a class, refuses arguments in its own lines."""
    made = [documented.members[name] for name in ("__init__", "__post_init__") if name in documented.members]
    written = [documented] if documented.is_function else [one for one in made if not one.is_alias]
    return any(REFUSES.search("\n".join(one.lines).rpartition('"""')[2]) for one in written)


def test_what_is_raised_on_purpose_is_described(public):
    documented = {path: one for path, one in public.items() if one.is_class or one.is_function}
    assert not [path for path, one in documented.items() if checks(one) and not has(one, "raises")]


def shared() -> str:
    """The examples at the head of the reference's pages, which tests/test_pages.py runs."""
    pages = (page.read_text("utf-8") for page in (ROOT / "docs" / "reference").glob("*.md"))
    return "\n".join(code for page in pages for code in re.findall(r"^```python\n(.*?)^```\n", page, re.M | re.S))


def test_every_name_has_an_example_that_runs(public):
    """Of its own or on its page; what a class has is seen with the class, and errors are all caught alike."""
    classes = {path for path, one in public.items() if one.is_class}
    names = [path for path, one in public.items() if one.is_class or one.is_function]
    names = [path for path in names if path.rpartition(".")[0] not in classes and ".errors." not in path]
    own = {path for path in names if ">>> " in public[path].docstring.value}
    code = shared()
    assert not [path for path in names if path not in own and not re.search(rf"\b{path.rpartition('.')[2]}\b", code)]


MAIN = (
    "calibration.Calibration", "calibration.conformal_p_values", "datasets.load_benchmark", "datasets.read_graph",
    "datasets.shifts.planted", "detector.Detector", "detector.load", "logits.score_logits", "methods.GNNSafe",
    "methods.KNN", "methods.Propagated", "metrics.detection", "models.GCN", "outputs.Outputs", "prepared.prepare",
    "training.train",
)  # fmt: skip


@pytest.mark.parametrize("name", MAIN)
def test_the_main_names_have_an_example_that_runs(public, name):
    assert ">>> " in public[f"gnnsafe.{name}"].docstring.value
