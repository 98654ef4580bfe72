"""Assumptions that no rule makes unasked: off, on, told, offered, and recorded."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import onnxrewrite as rw
from onnxrewrite import io
from onnxrewrite.certificate.repetition import Original
from onnxrewrite.checks.assumed import classes
from onnxrewrite.cli.options import Assumed
from onnxrewrite.errors import UsageError
from onnxrewrite.explanation.offers import offers
from onnxrewrite.io import statistics
from onnxrewrite.ir import text
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.rule import ON_REQUEST, Assumption, withheld

OPTION = "scores-above-10000"
HEAD = "float[b,3,s,8] q; float[b,3,l,8] k; float[b,3,l,8] v; bool[s,l] keep; kt = Transpose<perm=[0,1,3,2]>(k)"
BODY = "s = MatMul(q, kt)  d = Div(s, 4.0)  a = Where(keep, d, -10000.0)  p = Softmax(a)  y = MatMul(p, v)"
RULES = list(registry.load(plugins=False))


@pytest.fixture
def model() -> onnx.ModelProto:
    return ir.to_proto(text.parse(f"{HEAD} {BODY}", opset=17))


def fused(result: rw.Result) -> int:
    return statistics.operator_counts(result.model).get("com.microsoft.MultiHeadAttention", 0)


def test_nobody_makes_it_unasked(model: onnx.ModelProto):
    result = rw.apply(model, lower="fused")
    assert fused(result) == 0
    assert f"--assume {OPTION}" in result.trace.refused["masked-scores"]["p"]
    assert not any("10000" in told for told in result.assumes)


@pytest.mark.parametrize("asked", [OPTION, Assumption.SCORES_ABOVE_10000])
def test_it_is_made_and_told_where_it_is_asked_for(model: onnx.ModelProto, asked: str | Assumption):
    result = rw.apply(model, lower="fused", assume=[asked])
    assert fused(result) == 1
    assert result.assumes[str(Assumption.SCORES_ABOVE_10000)] == ["masked-scores"]
    assert result.checks.undone == {}


def test_what_is_masked_by_a_mask_besides_is_fused_too():
    body = BODY.replace("p = Softmax(a)", "w = Add(a, m)  p = Softmax(w)")
    made = ir.to_proto(text.parse(f"{HEAD} float[b,1,1,l] m; {body}", opset=17))
    assert fused(rw.apply(made, lower="fused", assume=[OPTION])) == 1


def test_what_is_made_of_it_holds_as_long_as_it_does(model: onnx.ModelProto):
    """Where a score is less, the results differ, which is why nobody makes it unasked."""
    made = rw.apply(model, lower="fused", assume=[OPTION], check="off").to_proto()
    rng = np.random.default_rng(0)
    feeds = {n: rng.standard_normal((1, 3, 5, 8), np.float32) for n in "qkv"} | {"keep": np.tri(5, dtype=bool)}
    assert rw.check(model, made, inputs=feeds).ok
    low = feeds | {"q": np.full((1, 3, 5, 8), -1e3, np.float32), "k": np.full((1, 3, 5, 8), 1e3, np.float32)}
    assert not rw.check(model, made, inputs=low).ok


def test_it_is_recorded_and_repeated(model: onnx.ModelProto, tmp_path: Path):
    io.save(io.load(model), tmp_path / "model.onnx")
    rw.apply(tmp_path / "model.onnx", lower="fused", assume=[OPTION]).save(tmp_path / "out.onnx", certificate=True)
    written = json.loads((tmp_path / "out.onnx.certificate.json").read_text(encoding="utf-8"))
    assert written["options"]["assume"] == [OPTION]
    again = Original(tmp_path / "out.onnx.certificate.json").replay()
    assert again.now.options.assume == [OPTION]


def test_an_unknown_one_is_refused(model: onnx.ModelProto):
    for asked in ("scores", "finite"):  # the latter is made by whom it concerns, asked or not
        with pytest.raises(UsageError, match=OPTION):
            rw.apply(model, assume=[asked])


def test_it_is_offered_with_what_it_would_bring(model: onnx.ModelProto):
    (offer,) = offers(io.load(model), RULES, "onnxruntime-cpu", ON_REQUEST)
    assert offer.assumption is Assumption.SCORES_ABOVE_10000
    assert {"masked-scores": 1, "attention": 1}.items() <= offer.rules.items()
    assert (offer.before, offer.after) == (4, 7)
    attention, gelu = (next(r for r in RULES if r.name == name) for name in ("attention", "gelu-erf"))
    assert list(offers(io.load(model), RULES, "onnxruntime-cpu", ON_REQUEST, attention)) == [offer]
    assert not list(offers(io.load(model), RULES, "onnxruntime-cpu", ON_REQUEST, gelu))
    assert not list(offers(io.load(model), RULES, "onnxruntime-cpu", ()))


def test_explain_tells_what_would_come_of_it(model: onnx.ModelProto):
    (group,) = rw.explain(model, "masked-scores").groups
    assert f"--assume {OPTION}" in group.first.reason
    assert group.first.otherwise == "it would be equal"
    assert rw.explain(model, "masked-scores", assume=[OPTION]).applied == ("p",)


def test_the_command_line_knows_all_of_them():
    assert [each.value for each in Assumed] == [each.option for each in ON_REQUEST]
    assert withheld([each.value for each in Assumed]) == ()


def test_rows_that_contradict_it_are_not_fed():
    assert {"large", "huge", "marks"}.isdisjoint(classes([Assumption.SCORES_ABOVE_10000]))
    assert {"large", "huge", "marks"} <= set(classes([]))
