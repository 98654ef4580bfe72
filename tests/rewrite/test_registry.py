"""Where rules come from, and how they are chosen by the names of rules and of sets."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from driving import rule, x

from onnxrewrite.errors import RuleError, UsageError
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.registry import Registry, load_module, rules_of, sets_of
from onnxrewrite.rules import Rule, RuleSet, Stage, op

FILES = sorted((Path(__file__).resolve().parents[2] / "patterns" / "onnxrewrite_patterns").glob("[a-z]*.py"))

FILE = '''
from onnxrewrite.rules import Rule, Stage, Var, op
x = Var("x")
def drop(m, build):
    """Identity(x) ⟶ x."""
    return m[x]
'''
RULE = 'R = Rule(name="my-rule", stage=Stage.RAISE, pattern=op.Identity(x), rewrite=drop)\n'


def keep(m: Any, build: Any) -> Any:
    return m[x]


def named(name: str, stage: Stage = Stage.RAISE) -> Rule:
    return rule(name, op.Relu(x), keep, stage)


@pytest.fixture
def small() -> Registry:
    gelu = [named("gelu-erf"), named("gelu-tanh"), named("gelu-lower", Stage.LOWER)]
    attention = [named("attention"), named("attention-lower", Stage.LOWER)]
    tidy = [named("tidy", Stage.CANONICALIZE), named("tidy-more", Stage.CANONICALIZE)]
    made = Registry()
    made.add([RuleSet("gelu", gelu), RuleSet("attention", attention), *tidy, RuleSet("empty", ())])
    return made


def names(rules: Iterable[Rule]) -> list[str]:
    return [r.name for r in rules]


HELPING = ["gelu-lower", "attention-lower", "tidy", "tidy-more"]
EVERYTHING = ["gelu-erf", "gelu-tanh", "gelu-lower", "attention", "attention-lower", "tidy", "tidy-more"]


@pytest.mark.parametrize(
    ("only", "without", "expected"),
    [
        ([], [], EVERYTHING),
        (["gelu-erf"], [], ["gelu-erf", *HELPING]),
        (["gelu"], [], ["gelu-erf", "gelu-tanh", *HELPING]),
        (["attention"], [], ["attention", *HELPING]),
        (["attention-lower"], [], HELPING),
        (["tidy"], [], ["gelu-lower", "attention-lower", "tidy"]),
        (["tidy", "gelu-tanh"], [], ["gelu-tanh", *HELPING]),
        ([], ["gelu"], ["attention", "attention-lower", "tidy", "tidy-more"]),
        (["gelu"], ["gelu-tanh", "tidy", "tidy-more"], ["gelu-erf", "gelu-lower", "attention-lower"]),
        (["gelu-erf"], ["gelu-erf"], HELPING),
        (["empty"], [], ["gelu-lower", "attention-lower"]),
    ],
)
def test_select(small: Registry, only: list[str], without: list[str], expected: list[str]) -> None:
    assert sorted(names(small.select(only, without))) == sorted(expected)


def test_selection_keeps_the_order_of_the_registry(small: Registry) -> None:
    chosen = names(small.select(["tidy-more", "gelu-tanh"]))
    assert chosen == [r.name for r in small if r.name in chosen]


def test_the_name_of_a_rule_goes_before_that_of_a_set(small: Registry) -> None:
    assert names(small.named("attention")) == ["attention"]
    assert small.named("gelu") is small.sets["gelu"]


def test_sets_of_one_name_are_one(small: Registry) -> None:
    small.add([RuleSet("gelu", [named("gelu-more")], doc="More of it."), RuleSet("", [named("without-a-set")])])
    assert names(small.named("gelu")) == ["gelu-erf", "gelu-tanh", "gelu-more", "gelu-lower"]
    assert small.named("gelu").doc == "More of it."
    assert "" not in small.sets
    assert "without-a-set" in small.rules


def test_every_file_of_the_library_is_a_set() -> None:
    library = registry.load(plugins=False)
    for path in FILES:
        module = sys.modules[f"onnxrewrite_patterns.{path.stem}"]
        name = path.stem.replace("_", "-")
        declared = [v for v in vars(module).values() if isinstance(v, Rule) and v.place.module == module.__name__]
        if declared:
            assert set(library.sets[name]) == set(declared)
            assert library.sets[name].doc.partition("\n")[0] == (module.__doc__ or "").partition("\n")[0]
        else:
            assert name not in library.sets
    assert library.sets["onnxrewrite-patterns"] == RuleSet("onnxrewrite-patterns", library)
    assert library.named("conv_batchnorm") is library.sets["conv-batchnorm"]


def test_every_rule_of_the_library_is_in_one_family() -> None:
    library = registry.load(plugins=False)
    families = [each for name, each in library.sets.items() if name != "onnxrewrite-patterns"]
    assert [r.name for r in library if sum(r in family for family in families) != 1] == []


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package whose second module uses a rule of its first; the first defines them against the alphabet."""
    here = tmp_path / "my_families"
    here.mkdir()
    (here / "__init__.py").write_text("from my_families import second, helper, first\n")
    (here / "helper.py").write_text("from onnxrewrite.rules import *\n")
    other = RULE.replace("my-rule", "a-rule").replace("R =", "A =")
    (here / "first.py").write_text(FILE + RULE + other)
    (here / "second.py").write_text(
        "from onnxrewrite.rules import *\nfrom my_families.first import R, x\n"
        'TWICE = rule("second", R.stage, op.Tanh(x), R.rewrite)\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield here
    for name in [n for n in sys.modules if n.startswith("my_families")]:
        del sys.modules[name]


def test_a_package_without_rules_has_those_of_its_modules(package: Path) -> None:
    sets = sets_of(load_module("my_families"))
    assert [(s.name, names(s)) for s in sets] == [
        ("my-families", ["my-rule", "a-rule", "second"]),
        ("first", ["my-rule", "a-rule"]),
        ("second", ["second"]),
    ]


def test_a_package_that_offers_some_rules_has_only_these(package: Path) -> None:
    (package / "__init__.py").write_text("from my_families import second\nfrom my_families.first import A, R\n")
    sets = [(s.name, names(s)) for s in sets_of(load_module("my_families"))]
    assert sets == [("my-families", ["a-rule", "my-rule"]), ("first", ["my-rule", "a-rule"])]


def test_a_module_that_names_its_rules_has_these_wherever_they_are_from(package: Path) -> None:
    (package / "second.py").write_text("from my_families.first import A, R\nRULES = (R,)\n")
    sets = {s.name: names(s) for s in sets_of(load_module("my_families"))}
    assert sets["second"] == ["my-rule"]
    assert names(rules_of(load_module("my_families.second"))) == ["my-rule"]


@pytest.mark.parametrize("asked", ["gelu-erff", "gelue", "", "nothing-like-it"])
def test_unknown_names(small: Registry, asked: str) -> None:
    for ask in (small.named, lambda n: small.select(only=[n]), lambda n: small.select(without=[n])):
        with pytest.raises(UsageError) as raised:
            ask(asked)
        message = str(raised.value)
        assert message.startswith(f"no rule or rule set is called {asked!r}; ")
        assert ("did you mean gelu" in message) == asked.startswith("gelu")
        assert "\n" not in message


def test_two_rules_of_one_name(small: Registry) -> None:
    before = list(small)
    with pytest.raises(RuleError, match=rf"two rules are called 'tidy': one in {__file__}, one in {__file__}"):
        small.add([named("fresh"), named("tidy")])
    assert list(small) == before
    small.add([small.rules["tidy"]])
    assert len(small) == len(before)


# -- modules ------------------------------------------------------------------------------------------------------


def test_a_file_is_loaded_once_however_it_is_spelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.py"
    path.write_text(FILE + RULE)
    (tmp_path / "sub").mkdir()
    (tmp_path / "link.py").symlink_to(path)
    monkeypatch.chdir(tmp_path)
    spellings = [str(path), "mine.py", "./mine.py", "sub/../mine.py", "link.py", os.path.relpath(path, "/work")]
    modules = [load_module(s) for s in spellings[:5]]
    assert all(m is modules[0] for m in modules)
    library = registry.load([str(path), "mine.py", "link.py"], plugins=False)
    assert [r.name for r in library].count("my-rule") == 1
    assert library.rules["my-rule"].source == str(path)


def test_two_files_of_one_name_are_two_modules(tmp_path: Path) -> None:
    for folder, name in (("a", "rule-a"), ("b", "rule-b")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same.py").write_text(FILE + RULE.replace("my-rule", name))
    library = registry.load([str(tmp_path / f / "same.py") for f in ("a", "b")], plugins=False)
    assert {"rule-a", "rule-b"} <= {r.name for r in library}


def test_a_file_that_repeats_a_name_of_the_library(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(FILE + RULE.replace("my-rule", "gelu-erf"))
    with pytest.raises(RuleError, match=r"two rules are called 'gelu-erf': one in .*gelu\.py, one in .*mine\.py"):
        registry.load([str(path)], plugins=False)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x = 1", "defines no Rule"),
        ("RULES = ()", "defines no Rule"),
        ("RULES = 3", "RULES"),
        ("RULES = [3]", "holds 3, which is no Rule"),
        ("RULES = [[]]", "holds [], which is no Rule"),
        ("def f(:", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError"),
        ("import no_such_module_anywhere", "ModuleNotFoundError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        (FILE + RULE.replace('"my-rule"', '"My rule"'), "lower case, with hyphens"),
        (FILE + RULE.replace("Stage.RAISE", '"raise"'), "stage must be a Stage"),
    ],
)
def test_broken_files(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "broken.py"
    path.write_text(content)
    loaded = set(sys.modules)
    with pytest.raises(RuleError) as raised:
        registry.load([str(path)], plugins=False)
    assert message in str(raised.value)
    assert "broken" in str(raised.value)
    assert "\n" not in str(raised.value)
    if "RULES" not in content and content != "x = 1":
        assert not [m for m in set(sys.modules) - loaded if m.startswith("onnxrewrite_rules_")]


def test_a_file_can_be_mended_after_it_failed(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("1 / 0")
    with pytest.raises(RuleError):
        load_module(str(path))
    path.write_text(FILE + RULE)
    assert names(rules_of(load_module(str(path)))) == ["my-rule"]


def test_rules_without_a_list_are_all_rules_of_the_module(tmp_path: Path) -> None:
    path = tmp_path / "several.py"
    path.write_text(FILE + RULE + RULE.replace("R =", "S =").replace("my", "your") + "ALIAS = R\n")
    assert names(rules_of(load_module(str(path)))) == ["my-rule", "your-rule"]
    path = tmp_path / "listed.py"
    path.write_text(FILE + RULE + RULE.replace("R =", "S =").replace("my", "your") + "RULES = (S,)\n")
    assert names(rules_of(load_module(str(path)))) == ["your-rule"]


SET = 'S = RuleSet("my-set", [R])\n'


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (RULE, {"my-file": ["my-rule"]}),
        (RULE + SET, {"my-file": ["my-rule"], "my-set": ["my-rule"]}),
        (RULE + SET + "del R\n", {"my-file": ["my-rule"], "my-set": ["my-rule"]}),
        (RULE + SET + "RULES = S\n", {"my-file": ["my-rule"], "my-set": ["my-rule"]}),
        (RULE + SET + "RULES = (S,)\ndel S\n", {"my-file": ["my-rule"], "my-set": ["my-rule"]}),
        (
            RULE + SET + RULE.replace("my-", "your-") + "RULES = (R,)\n",
            {"my-file": ["your-rule", "my-rule"], "my-set": ["my-rule"]},
        ),
        (RULE + SET.replace('"my-set"', '""'), {"my-file": ["my-rule"]}),
        (RULE + SET.replace("my-set", "my-file"), {"my-file": ["my-rule"]}),
    ],
)
def test_the_sets_of_a_file(tmp_path: Path, content: str, expected: dict[str, list[str]]) -> None:
    path = tmp_path / "my_file.py"
    path.write_text('"""What it is about."""\n' + FILE + "from onnxrewrite.rules import RuleSet\n" + content)
    made = Registry()
    made.add(sets_of(load_module(str(path))))
    assert {name: names(rules) for name, rules in made.sets.items()} == expected
    assert made.sets["my-file"].doc == "What it is about."


@pytest.mark.parametrize(("stem", "name"), [("My Rules_2", "my-rules-2"), ("__", ""), ("_private", "private")])
def test_a_set_has_a_name_whatever_its_file_has(tmp_path: Path, stem: str, name: str) -> None:
    path = tmp_path / f"{stem}.py"
    path.write_text(FILE + RULE)
    assert rules_of(load_module(str(path))).name == name


def test_the_sets_of_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each submodule that it imports is a set; what the package does not offer is in none."""
    package = tmp_path / "my_sets"
    package.mkdir()
    (package / "__init__.py").write_text("from my_sets import first, helper, only_hidden\nRULES = (first.R,)\n")
    (package / "first.py").write_text(FILE + RULE + RULE.replace("R =", "H =").replace("my-rule", "hidden"))
    (package / "only_hidden.py").write_text(FILE + RULE.replace("my-rule", "hidden-too"))
    (package / "helper.py").write_text("RULES = {'of': 'another kind'}\n")
    (package / "not_imported.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    library = registry.load(["my_sets"], plugins=False)
    assert names(library.sets["my-sets"]) == names(library.sets["first"]) == ["my-rule"]
    assert not {"hidden", "hidden-too"} & set(names(library))
    assert not {"only-hidden", "helper", "not-imported"} & library.sets.keys()


@pytest.mark.parametrize("name", ["no_such_package", "onnxrewrite.no_such", "no/such/file.py", "no/such", "..", ""])
def test_what_is_not_there(name: str) -> None:
    with pytest.raises(RuleError) as raised:
        load_module(name)
    assert "\n" not in str(raised.value)


def test_a_module_without_rules() -> None:
    with pytest.raises(RuleError, match="defines no Rule"):
        registry.load(["onnxrewrite.errors"], plugins=False)


def test_a_rule_that_is_to_precede_one_that_does_not_exist(small: Registry) -> None:
    small.add([dataclasses.replace(named("mine"), before=("gelu-erv",))])
    with pytest.raises(
        RuleError, match=r"rule mine: it is to go before 'gelu-erv', which is no rule; did you mean gelu-erf"
    ):
        small.select()
    with pytest.raises(RuleError, match="before must be a tuple of names, not 'gelu-erf'"):
        dataclasses.replace(named("mine"), before="gelu-erf")  # type: ignore[arg-type]
