"""``onnxrewrite rules``."""

import pytest

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
    assert done.out.endswith(f"{len(registry.load())} rules; onnxrewrite rules NAME shows one of them\n")


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
    assert any(line.startswith("  Pattern  ") and "Erf(" in line for line in lines)
    assert any(line.startswith("  From     onnxrewrite_patterns, ") and line.endswith("gelu.py") for line in lines)
    assert "  Rewritten (opset 17)\n      d = Div(x, 1.41421356)\n      e = Erf(d)\n" in done.out
    assert "  to\n      y = Gelu(x)\n" in done.out
    assert "  Kept (opset 17), because: expected constant 1.41421, found 1.5\n" in done.out


def test_family_begins_with_its_file(cli):
    done = cli("rules", "gelu")
    assert done.code == 0
    assert done.out.startswith("GELU, ")
    for name in ("gelu-erf", "gelu-tanh", "gelu-lower"):
        assert f"\n{name}\n" in done.out


def test_every_rule_has_a_page(cli):
    for rule in registry.load():
        assert cli("rules", rule.name).code == 0


def test_unknown(refused):
    line = refused("rules", "gelu-ref")
    assert "no rule is called 'gelu-ref'" in line
    assert "gelu-erf" in line


def test_a_rule_without_documentation(cli, tmp_path):
    rule = tmp_path / "bare.py"
    rule.write_text(
        "import functools\n"
        "from onnxrewrite import Rule, Stage, Var, op\n"
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
