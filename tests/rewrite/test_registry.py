"""Where rules come from, and how they are chosen by name and family."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from driving import rule, x

from onnxrewrite import Rule, Stage, op
from onnxrewrite.errors import RuleError, UsageError
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.registry import Registry, load_module, rules_of

FILE = '''
from onnxrewrite import Rule, Stage, Var, op
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
    made = Registry()
    made.add(
        [
            named("gelu-erf"),
            named("gelu-tanh"),
            named("gelu-lower", Stage.LOWER),
            named("attention"),
            named("attention-lower", Stage.LOWER),
            named("tidy", Stage.CANONICALIZE),
            named("tidy-more", Stage.CANONICALIZE),
        ]
    )
    return made


def names(rules: list[Rule]) -> list[str]:
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
    ],
)
def test_select(small: Registry, only: list[str], without: list[str], expected: list[str]) -> None:
    assert sorted(names(small.select(only, without))) == sorted(expected)


def test_selection_keeps_the_order_of_the_registry(small: Registry) -> None:
    chosen = names(small.select(["tidy-more", "gelu-tanh"]))
    assert chosen == [r.name for r in small if r.name in chosen]


def test_a_name_goes_before_a_family(small: Registry) -> None:
    assert names(small.family("attention")) == ["attention"]
    assert names(small.family("gelu")) == ["gelu-erf", "gelu-tanh", "gelu-lower"]


def test_a_family_is_a_file() -> None:
    library = registry.load(plugins=False)
    for r in library:
        family = Path(r.source).stem.replace("_", "-")
        if family not in {other.name for other in library}:
            assert r in library.family(family)
    assert {Path(r.source).name for r in library.family("gelu")} == {"gelu.py"}


@pytest.mark.parametrize("asked", ["gelu-erff", "gelue", "", "nothing-like-it"])
def test_unknown_names(small: Registry, asked: str) -> None:
    for ask in (small.family, small.__getitem__, lambda n: small.select(only=[n]), lambda n: small.select(without=[n])):
        with pytest.raises(UsageError) as raised:
            ask(asked)
        message = str(raised.value)
        assert message.startswith(f"no rule is called {asked!r}; ")
        assert ("did you mean gelu-" in message) == asked.startswith("gelu")
        assert "\n" not in message


def test_two_rules_of_one_name(small: Registry) -> None:
    before = list(small)
    with pytest.raises(RuleError, match=rf"two rules are called 'tidy': one in {__file__}, one in {__file__}"):
        small.add([named("fresh"), named("tidy")])
    assert list(small) == before
    small.add([small["tidy"]])
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
    assert library["my-rule"].source == str(path)


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
        ("RULES = [3]", "RULES holds 3, which is no Rule"),
        ("RULES = [[]]", "RULES holds [], which is no Rule"),
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


@pytest.mark.parametrize("name", ["no_such_package", "onnxrewrite.no_such", "no/such/file.py", "no/such", "..", ""])
def test_what_is_not_there(name: str) -> None:
    with pytest.raises(RuleError) as raised:
        load_module(name)
    assert "\n" not in str(raised.value)


def test_a_module_without_rules() -> None:
    with pytest.raises(RuleError, match="defines no Rule"):
        registry.load(["onnxrewrite.errors"], plugins=False)
