"""Patterns that nothing can match are refused when the rule is made."""

from __future__ import annotations

from pathlib import Path

import pytest

import onnxrewrite as rw
from onnxrewrite.errors import RuleError
from onnxrewrite.pattern.terms import AnyNode
from onnxrewrite.rewrite import registry
from onnxrewrite.rules import Attr, Call, Each, Rule, Stage, Term, Var, any_of, microsoft, op

x, y = Var("x"), Var("y", default=None)


def keep(m: rw.rules.Match, build: rw.rules.Builder) -> rw.rules.Value:
    """f(x) ⟶ x."""
    return m[x]


def made(pattern: Term) -> Rule:
    rule = Rule("tried", Stage.RAISE, pattern, keep)
    registry.Registry().add([rule])
    return rule


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        (lambda: op.SoftMax(x), "the pattern has SoftMax, and no operator is called so; did you mean Softmax?"),
        (lambda: 2 * op.Sigmoid(op.Reluu(x)), "the pattern has Reluu, .* did you mean Relu"),
        (lambda: any_of(op.Relu(x), op.Relux(x)), "Relux"),
        (lambda: op["Relu", "Selue"](x), "Selue.* did you mean Selu"),
        (lambda: AnyNode("n", op_types=["Sqeeze"]), "Sqeeze.* did you mean Squeeze"),
        (lambda: op.Softmax(x, axi=1), "Softmax has no attribute or input 'axi' in any opset; did you mean axis?"),
        (lambda: op.Relu(x, alpha=Attr("alpha")), "Relu has no attribute or input 'alpha' in any opset"),
        (lambda: op.Relu(x, x), "Relu takes 1 input, the pattern has 2"),
        (lambda: op.Div(x), "Div takes at least 2 inputs, the pattern has 1"),
        (lambda: op.Softmax(x, axis="last"), "axis of Softmax is int, the pattern has 'last'"),
        (lambda: op.Gelu(x, approximate=1), "approximate of Gelu is string, the pattern has 1"),
        (lambda: op.Relu(x)[1], "Relu has no output 1"),
        (lambda: microsoft.FastGelo(x), "com.microsoft.FastGelo, .* did you mean FastGelu"),
        (lambda: microsoft.QuickGelu(x, alfa=1.0), "QuickGelu has no .* 'alfa' in any opset; did you mean alpha?"),
    ],
)
def test_what_no_opset_has(pattern, told) -> None:
    with pytest.raises(RuleError, match=rf"^rule tried: .*{told}.* \(test_possible.py, line \d+\)$"):
        made(pattern())


@pytest.mark.parametrize(
    "pattern",
    [
        op.ReduceMean(x, axes=(1,)),  # an attribute to opset 17, an input from 18
        op.Upsample(x, scales=(1.0, 2.0)),  # deprecated
        op.Relu(x, y),  # the second input may be absent
        op.Concat(Each("all"), axis=1),
        op.Split(x, num_outputs=2)[7],
        op["Relu", "LeakyRelu"](x, alpha=Attr("alpha", default=0.0)),
        rw.rules.Operators("nobody.knows").Anything(x, x, whatever=1),
        op.SimplifiedLayerNormalization(x, x, epsilon=Attr("e"))[1],
        Call("Relu", [x, None]),
    ],
)
def test_what_some_opset_has(pattern: Term) -> None:
    assert made(pattern).name == "tried"


def test_an_operator_of_ones_own_is_known_by_its_function() -> None:
    rw.rules.CustomOp(
        "possible.domain", "Twice", '<opset_import: ["": 17], domain: "d"> Twice (x) => (y) { y = Add (x, x) }'
    )
    own = rw.rules.Operators("possible.domain")
    assert made(own.Twice(x))
    with pytest.raises(RuleError, match="Twice takes 1 input, the pattern has 2"):
        made(own.Twice(x, x))
    with pytest.raises(RuleError, match=r"possible.domain.Twise, .* did you mean Twice"):
        made(own.Twise(x))


def test_the_whole_library_is_possible() -> None:
    for rule in registry.load(plugins=False):
        rule.refuse_impossible()


def test_a_rule_file_is_named_with_the_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from onnxrewrite.rules import Rule, Stage, Var, op\n\nx = Var('x')\n"
        "def keep(m, build):\n    'f(x) ⟶ x'\n    return m[x]\n\n"
        "RULE = Rule('mine', Stage.RAISE, op.SoftMax(x), keep)\n"
    )
    with pytest.raises(RuleError, match=r"mine.py: rule mine: .*did you mean Softmax\? \(mine.py, line 8\)"):
        registry.load([str(file)], plugins=False)
