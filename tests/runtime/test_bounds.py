"""What is computed of constants, and what is refused before it is computed."""

from __future__ import annotations

import time

import numpy as np
import onnx_ir as ir
import pytest

from onnxrewrite import apply
from onnxrewrite.ir import text
from onnxrewrite.ir.facts import Facts
from onnxrewrite.runtime.bounds import refusal
from onnxrewrite.runtime.constants import evaluate

LOOP = """(float[1] x) => (float[1] y) <int64 n = {%d}, bool c = {true}, float[1] w = {1.0}> {
  v = Loop<body = (int64 i, bool go, float[1] a) => (bool on, float[1] b) { on = Identity(go)  b = Add(a, a) }>(n, c, w)
  y = Add(x, v) }"""

GROWING = """(float[1] x) => (float[m] y) <int64 n = {60}, bool c = {true}, float[1] w = {1.0}> {
  v = Loop<body = (int64 i, bool go, float[k] a) => (bool on, float[l] b)
    { on = Identity(go)  b = Concat<axis=0>(a, a) }>(n, c, w)
  y = Add(x, v) }"""


def refused(source: str) -> str | None:
    model = text.parse(source, opset=17)
    facts = Facts(model.graph, dict(model.opset_imports))
    *_, node = model.graph
    return refusal(node, facts)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("y = Range(int64 0, int64 1000000000000, int64 1)", "would take 8000000000000 bytes"),
        ("y = Expand(1.0, {100000, 100000})", "would take 40000000000 bytes"),
        ("y = Tile({1.0, 2.0}, {1000000000})", "would take 8000000000 bytes"),
        ("y = ConstantOfShape({1000000})", "would take 4000000 bytes"),
        ("y = Pad({1.0}, {0, 100000000000})", "would take 400000000004 bytes"),
        ("y = OneHot({1, 2}, int64 5000000000, {0.0, 1.0})", "would take 40000000000 bytes"),
        ('y = Resize<mode="nearest">(float[1,1,2,2] ~, , {1.0, 1.0, 1e5, 1e5})', "would take 160000000000 bytes"),
        ('w = ConstantOfShape({16000000})  y = Einsum<equation="i,j->">(w, w)', "would take 2.6e+14 operations"),
        (
            "a = ConstantOfShape({1, 1, 4000, 4000})  w = ConstantOfShape({1, 1, 3500, 3500})  y = Conv(a, w)",
            "would take 6.1e+12 operations",
        ),
        ("a = ConstantOfShape({4000, 4000})  b = MatMul(a, a)  c = ReduceSum<keepdims=0>(b)", None),
        (
            "y = RoiAlign<output_height=64, output_width=64, sampling_ratio=100000>(float[1,1,8,8] ~, "
            "float[1,4] {0, 0, 8, 8}, {0})",
            "would take 1.7e+12 operations",
        ),
        ("y = Add({1.0, 2.0}, 3.0)", None),
        ("y = Transpose(float[512,512] ~)", None),
    ],
)
def test_before_it_is_computed(source, reason):
    found = refused(source)
    assert found is None if reason is None else found is not None and reason in found, found


def test_a_value_that_is_read_twice_counts_once():
    """Else a chain of Concats of a value with itself doubles for ever."""
    assert (
        refused("w = ConstantOfShape({4000000})  y = Concat<axis=0>(w, w)") == "the constant would take 32000000 bytes"
    )


@pytest.mark.parametrize("source", [LOOP % 10**9, GROWING], ids=["endless", "growing"])
def test_a_loop_of_constants_ends(source):
    """Nothing is known of it beforehand: the time and the memory that it has end it."""
    model = text.parse(source, opset=17)
    node = next(n for n in model.graph if n.op_type == "Loop")
    start = time.monotonic()
    with pytest.raises(Exception, match=r"--run-limit|requested bytes|allocate"):
        evaluate(node, {"": 17})
    assert time.monotonic() - start < 30


def test_a_short_loop_of_constants_is_computed():
    model = text.parse(LOOP % 5, opset=17)
    node = next(n for n in model.graph if n.op_type == "Loop")
    (found,) = evaluate(node, {"": 17})
    assert found.tolist() == [32.0]


@pytest.mark.slow
def test_results_do_not_hold_the_memory_that_they_were_computed_in():
    """The arena of the computation has a gigabyte: results that stayed in it would fill it up."""
    model = text.parse("y = Expand(1.0, {1000, 1000})", opset=17)
    (node,) = model.graph
    found = [evaluate(node, {"": 17})[0] for _ in range(300)]
    assert sum(array.nbytes for array in found) > 2**30


@pytest.mark.slow
def test_all_rewrites_together_add_no_more_than_so_much():
    """Each constant is small enough, and there are many."""
    lines = [f"c{i} = Expand({i}.5, {{1000, 1000}})  a{i} = Add({f'a{i - 1}' if i else 'x'}, c{i})" for i in range(80)]
    model = text.parse(f"float[1000,1000] x; {'  '.join(lines)}  y = Identity(a79)", opset=17)
    result = apply(model, check="off", lower="fused", only=["fold-constants"])
    folded = result.trace.counts()["fold-constants"]
    assert 50 < folded < 80
    assert any("all new constants together" in reason for reason in result.trace.refused["fold-constants"].values())


def test_one_number_throughout_takes_no_memory():
    model = text.parse("w = ConstantOfShape<value=float[1] {0.5}>({4000, 4000})  y = Add(x, w)", opset=17)
    facts = Facts(model.graph, dict(model.opset_imports))
    node = next(iter(model.graph))
    array = facts.constant(node.outputs[0])
    assert isinstance(node.outputs[0].const_value, ir.Tensor)
    assert array is not None
    assert array.shape == (4000, 4000)
    assert array.strides == (0, 0)
    assert np.all(array == 0.5)


@pytest.mark.parametrize("dims", ["-3", "3, -1", "0, -5"])
def test_a_shape_that_is_none_makes_no_constant(dims):
    model = text.parse(f"w = ConstantOfShape({{{dims}}})  y = Identity(w)", opset=17)
    Facts(model.graph, dict(model.opset_imports))
    assert next(iter(model.graph)).outputs[0].const_value is None
