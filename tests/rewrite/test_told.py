"""What an author is told of a rule that is wrong by itself: in one line, with the place."""

from __future__ import annotations

import pytest

import onnxrewrite as rw
from onnxrewrite.ir import text
from onnxrewrite.report.summary import summary

x = rw.rules.Var("x")
GRAPH = "float[n,8] x; a = Relu(x)  b = Relu(a)  y = Neg(b)"


def unknown_attribute(m: rw.rules.Match, build: rw.rules.Builder) -> rw.rules.Value:
    """Relu(x) ⟶ Softmax(x, axi=1)."""
    return build.Softmax(m[x], axi=1)


def key_error(m: rw.rules.Match, build: rw.rules.Builder) -> rw.rules.Value:
    """Relu(x) ⟶ ?."""
    return build.Relu({}["no"])


def in_a_guard(m: rw.rules.Match, build: rw.rules.Builder) -> rw.rules.Value:
    """Relu(x) ⟶ ?."""
    m.require((m.shape(x) or ())[7] == 3, "seven")
    return build.Relu(m[x])


@pytest.mark.parametrize("stage", list(rw.rules.Stage))
@pytest.mark.parametrize(
    ("rewrite", "told"),
    [
        (unknown_attribute, "the rule builds what no model can have: Softmax of opset 13 has no attribute axi"),
        (key_error, "the rule raised KeyError: 'no' at test_told.py:"),
        (in_a_guard, "the rule raised IndexError: tuple index out of range at test_told.py:"),
    ],
)
def test_once_and_in_the_notes(stage: rw.rules.Stage, rewrite: object, told: str) -> None:
    rule = rw.rules.Rule("wrong", stage, rw.rules.op.Relu(x), rewrite)  # type: ignore[arg-type]
    done = rw.apply(text.parse(GRAPH, opset=17), rules=[rule], only=["wrong"])
    assert len([note for note in done.notes if note.startswith(f"wrong: {told}")]) == 1, done.notes
    (row,) = [r for r in summary(done)["rules"] if r["rule"] == "wrong"]
    assert row["asked"], "it is never among the others of the table"
    found = rw.explain(text.parse(GRAPH, opset=17), rule, check=False)
    assert told in found.groups[0].first.reason


def test_a_result_is_a_few_lines() -> None:
    done = rw.apply(
        text.parse(
            "float[n,8] x; d = Div(x, 1.41421356)  e = Erf(d)  a = Add(e, 1.0)  m = Mul(x, a)  y = Mul(m, 0.5)",
            opset=17,
        )
    )
    head, applied, checked, *_ = str(done).splitlines()
    assert head == "2 rewrites, 5 → 1 nodes, for onnxruntime-cpu, opset 17"
    assert applied == "applied: gelu-erf 1×, gelu-lower 1×"
    assert checked.startswith("checked: equal as a whole in ")
    assert len(repr(done)) < 600
