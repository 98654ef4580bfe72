"""``onnxrewrite rules``."""

import io

import pytest
from rich.console import Console

from onnxrewrite.report.rules_report import rule_pages
from onnxrewrite.rewrite import registry


@pytest.fixture
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")


def test_list(cli):
    done = cli("rules")
    assert done.code == 0
    assert done.err == ""
    first = [line.split(" ")[0] for line in done.out.splitlines()]
    for rule in registry.load():
        assert first.count(rule.name) == 1
    assert done.out.endswith(f"{len(registry.load())} rules; onnxrewrite rules NAME shows one of them, or a rule set\n")


def test_list_of_sets(cli, wide):
    lines = [line.split(None, 2) for line in cli("rules").out.partition("\nrule set ")[2].splitlines()]
    assert ["gelu", "4", "GELU, x·Φ(x), the Gaussian error linear unit, and its approximation by tanh"] in lines
    names = [line[0] for line in lines if len(line) > 1 and line[1].isdecimal()]
    library = registry.load()
    assert names == sorted(library.sets.keys() - {r.name for r in library})


def test_list_says_what_a_rule_does_and_where_it_is_from(cli, wide):
    (line,) = [line for line in cli("rules").out.splitlines() if line.startswith("gelu-erf ")]
    assert line.split() == [
        "gelu-erf",
        "raise",
        "½·x·(1",
        "+",
        "erf(x/√2))",
        "⟶",
        "Gelu(x)",
        "onnxrewrite_patterns",
    ]


def test_one(cli, wide):
    done = cli("rules", "gelu-erf")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[:2] == ["gelu-erf", "  ½·x·(1 + erf(x/√2)) ⟶ Gelu(x)."]
    assert any(line.startswith("  Pattern  any_of(") for line in lines)
    assert "           p1 = Erf((x / 1.41421))" in lines
    assert any(line.startswith("  From     onnxrewrite_patterns, ") and line.endswith("gelu.py") for line in lines)
    assert "  Rewritten (opset 17)\n      d = Div(x, 1.41421356)\n      e = Erf(d)\n" in done.out
    assert "  to\n      y = Gelu(x)\n" in done.out
    assert "  Kept (opset 17), because: expected constant 1.41421, found 1.5\n" in done.out


def test_a_set_begins_with_what_its_file_says(cli):
    done = cli("rules", "gelu")
    assert done.code == 0
    assert done.out.startswith("GELU, ")
    for name in ("gelu-erf", "gelu-tanh", "gelu-lower"):
        assert f"\n{name}\n" in done.out


@pytest.mark.slow
def test_every_rule_and_every_set_has_a_page():
    library = registry.load()
    for name in [*(rule.name for rule in library), *library.sets]:
        page = Console(file=io.StringIO(), width=100)
        page.print(rule_pages(library.named(name)))
        assert all(rule.name in page.file.getvalue() for rule in library.named(name))


def test_a_set_of_ones_own(cli, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from onnxrewrite.rules import *\nfrom onnxrewrite_patterns import gelu, swish\n"
        'SMOOTH = RuleSet("smooth", [rules_of(gelu), swish.SWISH], doc="Smooth activations.\\n\\nAll of them.")\n'
    )
    done = cli("rules", "smooth", "--rules", tmp_path / "mine.py")
    assert done.code == 0
    assert done.out.startswith("Smooth activations.\n\nAll of them.\n\ngelu-erf\n")
    assert "\nswish\n" in done.out
    assert ["smooth", "5", "Smooth", "activations"] in [
        line.split() for line in cli("rules", "--rules", tmp_path / "mine.py").out.splitlines()
    ]


def test_unknown(refused):
    line = refused("rules", "gelu-ref")
    assert "no rule or rule set is called 'gelu-ref'" in line
    assert "gelu-erf" in line


def test_a_rule_without_documentation(cli, tmp_path):
    rule = tmp_path / "bare.py"
    rule.write_text(
        "import functools\n"
        "from onnxrewrite.rules import Rule, Stage, Var, op\n"
        'x = Var("x")\n'
        "def f(extra, m, build):\n"
        "    return build.Abs(m[x])\n"
        'A = Rule("bare-lambda", Stage.RAISE, op.Relu(x), lambda m, build: build.Abs(m[x]))\n'
        'B = Rule("bare-partial", Stage.RAISE, op.Relu(x), functools.partial(f, 1))\n'
    )
    for arguments in (["rules"], ["rules", "bare-lambda"], ["rules", "bare-partial"]):
        done = cli(*arguments, "--rules", rule)
        assert done.code == 0, done
        assert "bare-" in done.out
