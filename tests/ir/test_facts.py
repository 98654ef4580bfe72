"""Facts never lie: what is inferred holds when the model is run, whatever the sizes of its inputs."""

from __future__ import annotations

import importlib.util
import math
import re
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from corpus import SHARED_MODELS
from hypothesis import given
from hypothesis import strategies as st

from onnxrewrite import io
from onnxrewrite.ir import text
from onnxrewrite.ir.dims import (
    at_least,
    between,
    broadcast,
    is_cut_to,
    is_known,
    is_one_of,
    is_size,
    is_window_to,
    maximum,
    minimum,
    plain,
    same_shape,
)
from onnxrewrite.ir.facts import Dim, Facts
from onnxrewrite.ir.symbolic_elements import sliced

CORPUS = SHARED_MODELS
PATHS = sorted(CORPUS.glob("*/*.onnx"))
BATCH = 96
"""So many inner values are made outputs at once."""

BINDINGS: tuple[dict[str, int], ...] = ({"batch": 1, "seq": 5}, {"batch": 3, "seq": 8})


def _inputs_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("corpus_inputs", CORPUS / "inputs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_all(model: ir.Model, inputs: dict[str, Any]) -> dict[str, Any]:
    """Every tensor of the main graph by name, as ONNX Runtime computes it."""
    proto = ir.to_proto(model)
    constant = {i.name for i in proto.graph.initializer}
    values = [v for n in model.graph for v in n.outputs if v.name and isinstance(v.type, ir.TensorType)]
    values = [v for v in values if v.dtype is not None and v.name not in constant]
    del proto.graph.value_info[:]
    results: dict[str, Any] = {}
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    for start in range(0, len(values), BATCH):
        wanted = values[start : start + BATCH]
        del proto.graph.output[:]
        for value in wanted:
            assert value.dtype is not None
            proto.graph.output.append(onnx.helper.make_tensor_value_info(value.name, int(value.dtype), None))
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])
        fed = {i.name: inputs[i.name] for i in session.get_inputs() if i.name in inputs}
        results.update(zip([v.name for v in wanted], session.run(None, fed), strict=True))
    return results


class Truth:
    """What symbols stand for in one run; one that inference made up takes the value it is first seen with."""

    def __init__(self, facts: Facts, bindings: dict[str, int]):
        self.facts = facts
        self.bindings = bindings

    def check(self, dim: Dim, actual: int) -> bool:
        """Whether ``dim`` is ``actual``, as far as it is known."""
        if isinstance(dim, int):
            return dim == actual
        if dim.value is None:
            return True
        free = dim.free_symbols()
        if free == {dim.value} and dim.value not in self.bindings:
            self.bindings[dim.value] = actual
        if not free <= self.bindings.keys():
            return True
        return int(dim.evaluate(self.bindings)) == actual


def lies(model: ir.Model, inputs: dict[str, Any], bindings: dict[str, int]) -> list[str]:
    """Every inferred dtype, dimension or element that a run of the model contradicts."""
    truth_of = run_all(model, inputs)
    for name in inputs:
        truth_of[name] = inputs[name]
    facts = Facts(model.graph, dict(model.opset_imports))
    truth = Truth(facts, dict(bindings))
    wrong = []
    for value in [*model.graph.inputs, *(v for n in model.graph for v in n.outputs)]:
        actual = truth_of.get(value.name or "")
        if actual is None or isinstance(actual, list):
            continue
        where = f"{value.producer().op_type if value.producer() else 'input'} `{value.name}`"
        if facts.dtype(value) is not None and facts.dtype(value) != ir.DataType.from_numpy(actual.dtype):
            wrong.append(f"{where}: dtype {facts.dtype(value)} is {actual.dtype}")
        shape = facts.shape(value)
        if shape is not None and (
            len(shape) != actual.ndim or not all(truth.check(d, a) for d, a in zip(shape, actual.shape, strict=True))
        ):
            wrong.append(f"{where}: shape {list(map(str, shape))} is {actual.shape}")
        known = facts.elements(value)
        if known is not None and (
            len(known) != actual.size
            or actual.ndim > 1
            or not all(truth.check(e, a) for e, a in zip(known, actual.ravel().tolist(), strict=True))
        ):
            wrong.append(f"{where}: elements {list(map(str, known))} are {actual.tolist()}")
    return wrong


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
def test_facts_never_lie_on_real_models(path: Path) -> None:
    module = _inputs_module()
    key = str(path.relative_to(CORPUS))
    entry = module.load_index()[key]
    named = {str(d) for v in ir.load(path).graph.inputs for d in v.shape or () if not isinstance(d, int)}
    for binding in BINDINGS:
        dims = {**entry["dims"], **{k: v for k, v in binding.items() if k in entry["dims"] and k in named}}
        inputs = module.gen_inputs(entry["inputs"], dims)
        symbols = {"past_plus_seq": dims["past"] + dims["seq"]} if {"past", "seq"} <= dims.keys() else {}
        assert lies(ir.load(path), inputs, {**dims, **symbols}) == []
        if not named:
            break


# -- where inference is tempted to guess ---------------------------------------------------------------------

GUESSES = [
    "y = Add(x, z)",
    "y = MatMul(p, q)",
    "y = Where(b, x, z)",
    'y = Einsum<equation="ij,ij->ij">(x, z)',
    'y = Einsum<equation="bij,bjk->bik">(p, q)',
    'y = Einsum<equation="ba">(x)',
    'y = Einsum<equation="...jk,k...->j...">(p, p)',
    'y = Einsum<equation="...ij,...jk">(p, q)',
    'y = Einsum<equation="...j,j->...">(p, {1.0, 2.0, 3.0})',
    "y = com.microsoft.FusedMatMul<transA=1>(p, p)",
    "y = com.microsoft.FusedMatMul<transA=1, transBatchA=1, transBatchB=1>(p, p)",
    "y = com.microsoft.FusedMatMul<transB=1, transBatchA=1, transBatchB=1>(p, p)",
    "t = uint8[4,3] ~  i = Cast<to=7>(b)  y = com.microsoft.GatherBlockQuantized"
    "<bits=8, block_size=16, quantize_axis=1>(t, i, float[4,1] {1.0, 2.0, 3.0, 4.0})",
    "w = int8[3,2] {1, 2, 3, 4, 5, 6}  y = com.microsoft.DynamicQuantizeMatMul(p, w, 0.5)",
    "w = int8[3,2] {1, 2, 3, 4, 5, 6}  q8, s8, z8 = DynamicQuantizeLinear(p)"
    "  y = com.microsoft.MatMulIntegerToFloat(q8, w, s8, 0.5, z8)",
    "h = Shape(z)  y = Expand(x, h)",
    "y = Slice(x, {0}, {5}, {0})",
    "y = Slice(x, {2}, {9223372036854775807}, {0})",
    "y = Slice(x, {0}, {-1}, {0})",
    "y = Slice(x, {-2}, {9223372036854775807}, {0})",
    "y = Slice(x, {-1}, {-9223372036854775807}, {0}, {-2})",
    "h = Shape(z)  a = Gather(h, {0})  y = Slice(x, {0}, a, {0})",
    "h = Shape(z)  a = Gather(h, {0})  y = Slice(x, a, {9223372036854775807}, {0})",
    "h = Shape(x)  a = Gather(h, {0})  d = Neg(a)  y = Slice(x, d, {9223372036854775807}, {0})",
    "c = Concat<axis=0>(x, z)  h = Shape(z)  a = Gather(h, {0})  y = Slice(c, a, {1000000000}, {0})",
    "h = Shape(z)  a = Gather(h, {0})  d = Neg(a)  y = Slice(x, d, {1000000000}, {0})",
    "h = Shape(x)  a = Gather(h, {0})  c = Concat<axis=0>(x, z)  g = Shape(c)  e = Gather(g, {0})"
    "  t = ConstantOfShape({7, 7})  w = Slice(t, a, e, {0})  y = Slice(w, {0}, e, {1})",
    "h = Shape(x)  a = Gather(h, {0})  c = Concat<axis=0>(x, z)  g = Shape(c)  e = Gather(g, {0})"
    "  t = ConstantOfShape({12, 12})  w = Slice(t, a, e, {0})  v = Slice(w, {0}, e, {1})  u = ConstantOfShape(e)"
    "  y = Add(v, u)",
    "a = Concat<axis=0>(x, x)  y = Slice(a, {1}, {-1}, {0}, {2})",
    "y = Squeeze(x)",
    "s = Shape(x)  y = Slice(s, {-1}, {-9}, {0}, {-1})",
    "s = Shape(x)  u = Unsqueeze(s, {0})  y = Gather(u, {0})",
    "s = Shape(x)  u = Unsqueeze(s, {0})  v = Unsqueeze(s, {1})  y = Mul(u, v)",
    "s = Shape(x)  f = Cast<to=1>(s)  g = Div(f, 2.0)  y = Cast<to=7>(g)",
    "s = Shape(x)  c = Cast<to=3>(s)  y = Mul(c, int8 100)",
    "s = Shape(x)  y = Div(s, {2})",
    "s = Shape(x)  m = Sub(s, {5})  y = Div(m, {2})",
    "s = Shape(x)  y = Mod(s, {3})",
    "s = Shape(x)  y = Max(s, {2})",
    "s = Shape(x)  y = Min(s, {2})",
    "s = Shape(x)  e = Less(s, {2})  w = Where(e, {7}, s)  y = ConstantOfShape(w)",
    "s = Shape(x)  e = Greater({0}, s)  y = Not(e)",
    "s = Shape(x)  y = ReduceProd(s)",
    "s = Shape(x)  a = Gather(s, 0)  y = Range(0, a, 1)",
    "s = Shape(x)  a = Gather(s, 0)  y = Range(2, a, 3)",
    "s = Shape(x)  t = Shape(z)  y = Concat<axis=0>(s, t, k)",
    "u = Concat<axis=0>(k, {4})  e = Equal(u, {-1})  y = Where(e, {1}, u)",
    "u = Concat<axis=0>(k, {4})  r = Reshape(x, u)  y = Shape(r)",
    "r = Reshape(x, {0, 2, -1})  y = Shape(r)",
    "s = Shape(x)  g = Gather(s, {0})  t = Concat<axis=0>(g, {-1, 2})  r = Reshape(x, t)  y = Shape(r)",
    "r = Flatten<axis=0>(x)  y = Reshape(r, {-1, 4})",
    "y = Tile(x, {2, 3})",
    "y = Tile(x, r2)",
    "y = Pad(x, {1, 0, -1, 2})",
    "y = Resize(w4, , {1.0, 1.0, 1.5, 0.3})",
    "y = NonZero(x)",
    "h = Shape(x)  o = ConstantOfShape<value=int64[1] {2}>(h)  y = NonZero(o)",
    "h = Shape(x)  o = ConstantOfShape(h)  y = NonZero(o)",
    "h = Shape(x)  o = Expand(true, h)  y = NonZero(o)",
    "h = Shape(x)  a = Gather(h, {1})  o = Expand({0, 1, 1, 1}, a)  y = NonZero(o)",
    "y, i = TopK(x, {1})",
    "y = Gather(x, k)",
    "y = OneHot(k, 5, {0.0, 1.0})",
    "a, c = Split<axis=1>(x, {1, 3})  y = Concat<axis=0>(c, c)",
    "a, c = Split<num_outputs=2>(x)  y = Shape(c)",
    "s = Shape(p)  a, y = Split<axis=0>(s, {2, 1})  u = ConstantOfShape(a)",
    "s = Shape(w4)  a, b1 = Split<num_outputs=2>(s)  u = Unsqueeze(a, {0})  b2, y = Split<axis=1>(u, {1, 1})",
    "y = MaxPool<kernel_shape=[2,2], strides=[2,2], ceil_mode=1>(w4)",
    'y = AveragePool<kernel_shape=[3,3], strides=[2,2], auto_pad="SAME_UPPER">(w4)',
    "y = Conv<strides=[2,2], dilations=[2,2], pads=[2,1,2,1]>(w4, float[2,3,3,3] ~)",
    "y = ConvTranspose<strides=[2,2], output_padding=[1,1]>(w4, float[3,2,3,3] ~)",
    "y = If<then_branch = () => (t) { t = Relu(x) }, else_branch = () => (e) { e = Relu(z) }>(true)",
    "s = ReduceSum(x)  c = Less(s, 0.0)"
    "  y = If<then_branch = () => (t) { t = Relu(x) }, else_branch = () => (e) { e = Concat<axis=0>(x, x)"
    " }>(c)",
    "y = Loop<body = (int64 i, bool c, float[l,4] v) => (d, w) { d = Identity(c)"
    "  w = Concat<axis=0>(v, v) }>(2, true, x)",
    "y = Loop<body = (int64 i, bool c, float[l,4] v) => (d, w) { d = Identity(c)"
    "  w = Concat<axis=0>(v, v) }>(0, true, x)",
]
DECLARED = (
    "float[n,4] x; float[m,4] z; bool[m,1] b; float[n,2,3] p; float[m,3,2] q; int64[1] k; int64[2] r2; "
    "float[n,3,h,w] w4"
)


@pytest.mark.parametrize("sizes", [(3, 3), (1, 3), (3, 1), (1, 1), (6, 6), (2, 2)])
@pytest.mark.parametrize("graph", GUESSES)
def test_facts_never_guess(graph: str, sizes: tuple[int, int]) -> None:
    n, m = sizes
    rng = np.random.default_rng(0)
    if "num_outputs" in graph and n == 1:
        pytest.skip("this Split does not run")
    opset = 18 if "num_outputs" in graph else 17
    names = [d.split()[1] for d in DECLARED.split("; ")]
    used = [n for n in names if f" {n}" in graph.replace("(", "( ").replace(",", ", ")]
    declared = "; ".join(d for d in DECLARED.split("; ") if d.split()[1] in used)
    model = text.parse(f"{declared}; {graph}", opset=opset)
    everything: dict[str, Any] = {
        "x": rng.standard_normal((n, 4)).astype(np.float32),
        "z": rng.standard_normal((m, 4)).astype(np.float32),
        "b": np.ones((m, 1), bool),
        "p": rng.standard_normal((n, 2, 3)).astype(np.float32),
        "q": rng.standard_normal((m, 3, 2)).astype(np.float32),
        "k": np.array([-1 if "Concat<axis=0>(k" in graph else 0]),
        "r2": np.array([2, 1]),
        "w4": rng.standard_normal((n, 3, 5, 8)).astype(np.float32),
    }
    inputs = {name: everything[name] for name in used}
    assert lies(model, inputs, {"n": n, "m": m, "h": 5, "w": 8}) == []


_S, _P = ir.SymbolicDim("s"), ir.SymbolicDim("p")
SIZES: list[Dim] = [
    _S,
    _S + 2,
    _S * 2,
    _S * _P,
    plain(_P + _S),
    minimum(_S, 4),
    between(_S, 2, 2**63 - 1),
    between(_S, 1, 4),
    7,
]
bounds = st.one_of(st.integers(-5, 9), st.sampled_from([2**63 - 1, -(2**63), _P, plain(_P + _S), _S * _P]))


def number_of(dim: Dim, s: int, p: int) -> int:
    """A size where names stand for numbers; sympy takes names for positive while it puts in one after the other."""
    names: dict[str, object] = {"s": s, "p": p, "_d_of_s": min(1, s), "Min": min, "floor": math.floor, "F": Fraction}

    def number(of: Dim) -> int:
        return int(eval(re.sub(r"(?<!\w)\d+", r"F(\g<0>)", str(of)), names))

    names |= {one: min(1, number(of)) for one, of in {str(minimum(each, 1)): each for each in SIZES}.items()}
    return number(dim)


@given(st.sampled_from(SIZES), bounds, bounds, st.integers(1, 3), st.integers(0, 6), st.integers(0, 6))
def test_the_size_of_a_slice_is_what_it_takes(size: Dim, start: Dim, end: Dim, step: int, s: int, p: int) -> None:
    found = sliced(size, start, end, step)
    if is_known(found):
        taken = range(*slice(number_of(start, s, p), number_of(end, s, p), step).indices(number_of(size, s, p)))
        assert number_of(found, s, p) == len(taken)
        assert is_size(found) or step > 1, "sympy takes whole numbers out of a rounded quotient"
        assert at_least(found) <= len(taken)


@given(st.sampled_from(SIZES[:-1]), st.integers(-3, 9), st.integers(0, 9), st.integers(0, 6), st.integers(0, 6))
def test_what_a_size_lacks_is_written_down(size: Dim, most: int, table: int, s: int, p: int) -> None:
    """The last rows of a table, as ALiBi takes them: ``table[max(0, 256 - s):]``."""
    start = maximum(plain(most - size), 0)
    if is_known(start):
        first = max(0, most - number_of(size, s, p))
        assert number_of(start, s, p) == first
        rest = sliced(table, start, 2**63 - 1, 1)
        assert not is_known(rest) or number_of(rest, s, p) == len(range(*slice(first, None).indices(table)))


def test_the_last_rows_of_a_table_are_as_many_as_they_are_added_to() -> None:
    model = text.parse(
        "float[n,s,s] x; float[1,256] t; h = Shape<start=1, end=2>(x)  d = Sub({256}, h)  b = Max(d, {0})"
        "  r = Slice(t, b, {256}, {1})  y = Add(x, r)"
    )
    facts = Facts(model.graph, {"": 17})
    (node,) = (n for n in model.graph if n.op_type == "Slice")
    assert is_cut_to((facts.shape(node.outputs[0]) or ())[1], ir.SymbolicDim("s"))
    assert same_shape(facts.shape(model.graph.outputs[0]), [ir.SymbolicDim("n"), *[ir.SymbolicDim("s")] * 2])
    assert broadcast([[minimum(_S, 1)], [_S]]) == [_S]
    assert not is_known(broadcast([[minimum(_S, 1)], [_P]])[0])
    assert is_one_of(minimum(_S, 1))


@pytest.mark.parametrize(
    ("graph", "is_known"),
    [
        ("a = Slice(x, {8}, {16}, {0})  b = Slice(x, {8}, {16}, {0})  y = Add(a, b)", True),
        ("a = Slice(x, {1}, {9223372036854775807}, {0})  b = Slice(x, {0}, {-1}, {0})  y = Add(a, b)", True),
        ("a = Slice(x, {8}, {16}, {0})  b = Slice(x, {8}, {17}, {0})  y = Add(a, b)", False),
        (
            "c = Slice(x, {5}, {19}, {0})  a = Slice(c, {3}, {11}, {0})  b = Slice(x, {8}, {16}, {0})  y = Add(a, b)",
            True,
        ),
        ("c = Slice(x, {0}, {9}, {0})  a = Slice(c, {1}, {4}, {0})  b = Slice(x, {1}, {4}, {0})  y = Add(a, b)", True),
        ("a = Slice(x, {0}, {8}, {0})  b = Slice(x, {8}, {9223372036854775807}, {0})  y = Concat<axis=0>(a, b)", True),
    ],
)
def test_slices_at_the_same_bounds_are_equally_long(graph: str, is_known: bool) -> None:
    model = text.parse(f"float[n,4] x; {graph}")
    facts = Facts(model.graph, {"": 17})
    shape = facts.shape(model.graph.outputs[0])
    assert shape is not None
    assert is_known != facts.is_made_up(shape[0])
    if "Concat" in graph:
        assert str(shape[0]) == "n"


def test_the_size_of_a_slice_is_read_again() -> None:
    """As the inputs of a site have it."""
    model = text.parse("float[a,4] x; float[b,4] z; y = Add(x, z)")
    rest = between(ir.SymbolicDim("n"), 1, 2**63 - 1)
    for each in model.graph.inputs:
        each.shape = ir.Shape([str(rest), 4])
    shape = Facts(model.graph, {"": 17}).shape(model.graph.outputs[0])
    assert same_shape(shape, [rest, 4])
    assert is_size(rest)


def test_rows_of_a_table_are_all_there_where_its_columns_are() -> None:
    p, s = ir.SymbolicDim("p"), ir.SymbolicDim("s")
    window = [between(16, p, p + s), minimum(16, p + s)]
    assert is_window_to(window, [s, p + s])
    assert not is_window_to(window, [s, s])
    assert not is_window_to(window, [1, p + s])
    assert not is_window_to([window[0], p + s], [s, p + s])
    assert is_cut_to(minimum(16, p + s), ir.SymbolicDim("s+p"))
    assert not is_cut_to(minimum(16, minimum(p, s)), s)


def test_symbols_that_meet_in_a_broadcast_are_not_taken_for_equal() -> None:
    model = text.parse("float[n,4] x; float[m,4] z; a = Add(x, z)  y = Add(a, x)")
    facts = Facts(model.graph, {"": 17})
    shape = facts.shape(model.graph[1].outputs[0])
    assert shape is not None
    assert str(shape[0]) not in ("n", "m")
    assert shape[1] == 4


@pytest.mark.parametrize("name", ["?", "None", "", "unk"])
def test_dimensions_without_a_name_are_not_equal(name: str) -> None:
    model = text.parse("float[a,b] x; y = Relu(x)")
    model.graph.inputs[0].shape = ir.Shape([name, name])
    shape = Facts(model.graph, {"": 17}).shape(model.graph[0].outputs[0])
    assert shape is not None
    assert shape[0] != shape[1]


@pytest.mark.parametrize("name", ["batch size", "enc::seq", "1st"])
def test_a_dimension_may_have_any_name(name: str) -> None:
    model = text.parse("float[a,4] x; h = Concat<axis=0>(x, x)  y = Flatten<axis=2>(h)")
    model.graph.inputs[0].shape = ir.Shape([name, 4])
    shape = Facts(model.graph, {"": 17}).shape(model.graph[1].outputs[0])
    assert shape is not None
    assert name in str(shape[0])


@pytest.mark.parametrize(
    ("graph", "is_constant"),
    [
        ("y = Identity({1.0, 2.0})", True),
        ("i = Identity({1.0, 2.0})  y = Cast<to = 1>(i)", True),
        ("c = Constant<value = float {3.0}>()  y = Identity(c)", True),
        ("y = Cast<to = 7>({1.0, 2.0})", False),
        ("float[2] x; y = Identity(x)", False),
        ("input w = float[2] {1, 2}  y = Identity(w)", False),
    ],
)
def test_what_passes_a_constant_on_is_constant(graph: str, is_constant: bool) -> None:
    model = io.load(text.parse(graph))
    facts = Facts(model.graph, dict(model.opset_imports))
    assert (facts.tensor(model.graph.outputs[0]) is not None) == is_constant


def test_what_passes_on_a_value_that_becomes_constant_is_news() -> None:
    model = text.parse("float[2] x; i = Identity(x)  y = Relu(i)")
    facts = Facts(model.graph, dict(model.opset_imports))
    identity, relu = model.graph
    identity.replace_input_with(
        0, ir.Value(name="c", const_value=ir.tensor(np.ones(2, np.float32)), type=relu.inputs[0].type)
    )
    assert facts.refresh([identity]) == [identity]
    assert facts.tensor(relu.inputs[0]) is not None


@pytest.mark.parametrize("name", ["9**9**9**9", "(" * 400 + "n" + ")" * 400, "n*" * 300 + "n", "n/0", "sqrt()", "n%0"])
def test_the_name_of_a_dimension_may_be_any_text(name: str) -> None:
    """What is not worth parsing, or would take forever, is a name."""
    model = text.parse("float[n] x; y = Relu(x)")
    model.graph.inputs[0].shape = ir.Shape([name])
    Facts(model.graph, model.opset_imports)
    assert same_shape(model.graph.inputs[0].shape, model.graph.outputs[0].shape)


def test_what_is_filled_is_constant() -> None:
    model = text.parse("float[2,3] x; w = ConstantOfShape<value=float[1] {0.5}>({2, 3})  y = Add(x, w)")
    facts = Facts(model.graph, model.opset_imports)
    known = facts.constant(model.graph[0].outputs[0])
    assert known is not None
    np.testing.assert_array_equal(known, np.full((2, 3), 0.5, np.float32))


def test_what_is_filled_without_end_is_not_made() -> None:
    model = text.parse("float x; w = ConstantOfShape({100000, 100000})  y = Add(x, w)")
    assert Facts(model.graph, model.opset_imports).tensor(model.graph[0].outputs[0]) is None
