"""Regions of large operands are looked at at smaller sizes, unless they count to a size themselves."""

from __future__ import annotations

import numpy as np
import pytest
from discovery_models import HEADS, hits, regions

from onnxrewrite.suite.discovery.sampled_region import SampledRegion


def whole(graph: str) -> SampledRegion:
    """The region of all nodes of a model."""
    _, found = regions(graph)
    return max(found, key=lambda r: len(r.region.nodes))


def shapes(graph: str) -> list[tuple[int, ...]]:
    """The shapes of the operands of the region of all nodes, but those of constants."""
    return [o.array.shape for o in whole(graph).operands if o.is_required]


@pytest.mark.parametrize(
    ("graph", "wanted"),
    [
        ("float[2,1500] x; float[1500] z; float[2,900] v; a = Add(x, z)  y = Concat<axis=1>(a, v)", [20, 20, 18]),
        ("float[2,3,225,224] x; float[4,3,3,3] w; c = Conv(x, w)  y = Relu(c)", [18, 3]),
        ("float[2,64,99,99] x; float[64,1,3,3] w; c = Conv<group=64>(x, w)  y = Relu(c)", [17, 3]),
        ("float[2,3,112,112] x; p = MaxPool<kernel_shape=[56,56]>(x)  y = Relu(p)", [112]),
        ("float[2,100] x; s = Slice(x, {0}, {64}, {1})  y = Relu(s)", [100]),
        ("float[2,100] x; s = Slice(x, {3}, {9223372036854775807}, {1})  y = Relu(s)", [18]),
        ("float[2,20,33] x; float[2,33] z; r = ReduceSum<keepdims=0>(x, {1})  y = Add(r, z)", [17, 17]),
    ],
)
def test_the_last_axis_of_operands(graph: str, wanted: list[int]):
    assert [s[-1] for s in shapes(graph)] == wanted


def test_a_named_axis_that_is_large_is_smaller_too():
    (shape,) = shapes("float[batch,3,height,width] x; a = Relu(x)  y = Sqrt(a)")
    assert max(shape) <= 32


def test_a_constant_speaks_of_the_smaller_size():
    found = whole(f"float[b,500,192] x; r = Reshape(x, {{0, 500, 6, 32}})  t = {HEADS}(r)  y = Relu(t)")
    (x, shape) = found.operands
    assert x.array.shape[1:] == (18, 192)  # 192 is six times 32, which stays
    np.testing.assert_array_equal(shape.array, [0, 18, 6, 32])
    assert found.results[0].shape[1:] == (6, 18, 32)


def test_what_is_joined_has_the_sum_of_smaller_sizes():
    graph = """float[1,64,55,55] x; float[1,48,55,55] z; float[16,112,1,1] w; float[9,176,1,1] v;
        c = Concat<axis=1>(x, z)  d = Concat<axis=-3>(c, x)  a = Conv(c, w)  b = Conv(d, v)  y = Concat<axis=1>(a, b)"""
    x, z, w, v = shapes(graph)
    assert (x, z, w, v) == ((1, 20, 19, 19), (1, 18, 19, 19), (16, 38, 1, 1), (9, 58, 1, 1))


def test_where_sizes_multiply_another_one_is_smaller():
    graph = "float[2,64,9,9] x; float[5184,100] w; f = Flatten(x)  p = MatMul(f, w)  y = Relu(p)"
    assert shapes(graph) == [(2, 64, 9, 9), (5184, 18)]


def test_weights_that_are_integers_are_cut():
    found = whole("int8[40,500] w; uint8[2,40] x; a = MatMulInteger(x, w)  y = Cast<to=1>(a)")
    assert [o.array.shape for o in found.operands] == [(2, 18), (18, 20)]


def test_what_is_found_at_smaller_sizes_is_written_for_all():
    graph = "float[b,1500,400] x; w = float[400,300] ~; p = MatMul(x, w)  y = Mul(p, 0.3)"
    _, found = hits(graph)
    assert "FusedMatMul" in {h.substitute.work[0].op_type for h in found}
