"""One trap: a small graph through the whole pipeline, at every level of checks, compared with itself.

``check="off"`` is as important as ``check="full"``: the rules must be right by themselves, so a check that has to undo a
rewrite of the built-in library fails the test as well.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.checker
import onnx.compose
import onnx.reference
import onnx_ir as ir
import onnxruntime as ort

import onnxrewrite
from onnxrewrite.ir import text
from onnxrewrite.reference.evaluation import build_reference

Feeds = Mapping[str, Any]

LEVELS = ("full", "off")
INF, NAN = float("inf"), float("nan")
EDGES = (0.0, -0.0, NAN, INF, -INF, 1e-40, -1e-40, 1.0, -1.0, 0.5, -3.0, 6.5, 1e30, -1e30, 1e-8, -1e-8)
"""Values at which simplifications go wrong; 1e-40 is a denormal number of float32."""


def gelu(x: str = "x", y: str = "y", tag: str = "") -> str:
    """The exporter's spelling of GELU; ``tag`` goes to the names d, e, a and m of its inner values."""
    d, e, a, m = (f"{name}{tag}" for name in "deam")
    return f"{d} = Div({x}, 1.41421356)  {e} = Erf({d})  {a} = Add({e}, 1.0)  {m} = Mul({x}, {a})  {y} = Mul({m}, 0.5)"


def proto(graph: str | onnx.ModelProto, opset: int = 17, ir_version: int = 10) -> onnx.ModelProto:
    """The model of a graph in text form; a bool input of which nothing is said is a scalar."""
    if isinstance(graph, onnx.ModelProto):
        return graph
    model = ir.to_proto(text.parse(graph, opset=opset, ir_version=ir_version))
    for each in model.graph.input:  # a condition; the text form cannot say that it is a scalar
        if each.type.tensor_type.elem_type == onnx.TensorProto.BOOL and not each.type.tensor_type.HasField("shape"):
            each.type.tensor_type.shape.SetInParent()
    return model


def beside(*graphs: str, opset: int = 17) -> onnx.ModelProto:
    """Several graphs in one model, each with inputs and outputs of its own: many siblings for the price of one."""
    models = [onnx.compose.add_prefix(proto(g, opset), f"s{i}_") for i, g in enumerate(graphs)]
    first = models[0]
    for model in models[1:]:
        for field in ("node", "input", "output", "initializer"):
            getattr(first.graph, field).extend(getattr(model.graph, field))
    return first


@dataclasses.dataclass
class Seen:
    """What came out: the results by level of checks, and the operators of the graphs, inner ones included."""

    original: onnx.ModelProto
    results: dict[str, onnxrewrite.Result]
    models: dict[str, onnx.ModelProto]

    @property
    def result(self) -> onnxrewrite.Result:
        return next(iter(self.results.values()))

    @property
    def last(self) -> onnxrewrite.Result:
        return next(reversed(self.results.values()))

    @property
    def model(self) -> onnx.ModelProto:
        return next(reversed(self.models.values()))

    @property
    def ops(self) -> Counter[str]:
        return operators(self.model)

    @property
    def before(self) -> Counter[str]:
        return operators(self.original)

    @property
    def rules(self) -> Counter[str]:
        return self.last.trace.counts()

    def text(self) -> str:
        return text.print_model(self.last.model)

    def keeps(self, *op_types: str) -> Seen:
        """As many of these operators as before; without arguments, of all."""
        for op_type in op_types or self.before | self.ops:
            assert self.ops[op_type] == self.before[op_type], f"{op_type} is not kept:\n{self.text()}"
        return self

    def has(self, **counts: int) -> Seen:
        """Exactly so many of these operators."""
        for op_type, count in counts.items():
            assert self.ops[op_type] == count, f"{self.ops[op_type]} {op_type}, not {count}:\n{self.text()}"
        return self

    def lacks(self, *op_types: str) -> Seen:
        """None of these operators."""
        return self.has(**dict.fromkeys(op_types, 0))

    def only(self, *op_types: str) -> Seen:
        """These operators and no others."""
        assert self.ops == Counter(op_types), f"{dict(self.ops)}, not {op_types}:\n{self.text()}"
        return self


def trap(
    graph: str | onnx.ModelProto,
    *,
    opset: int = 17,
    ir_version: int = 10,
    dims: Sequence[Mapping[str, int]] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    feeds: Iterable[Feeds] | None = None,
    inputs: Feeds | None = None,
    overrides: Iterable[Feeds] | None = None,
    edges: bool = False,
    exact: bool = False,
    signs: bool = True,
    tolerance: float = 1.0,
    random: bool = False,
    twin: onnx.ModelProto | None = None,
    levels: Sequence[str] = LEVELS,
    undone: bool = False,
    **options: Any,
) -> Seen:
    """Run the pipeline and compare.

    Args:
        graph: In text form, or a model.
        opset, ir_version: Of a text.
        dims: Sizes of symbolic dimensions; without it, a few.
        shapes: Of inputs whose rank the model does not say.
        feeds: Inputs in full; without it, they are made.
        inputs: Some inputs, always the same.
        overrides: What is fed for overridable initializers; without it, every float one is overridden.
        edges: Feed NaN, infinities, both zeros and denormal numbers too.
        exact: Outputs must be equal to the bit, the sign of zero included; else up to rounding.
        signs: Whether ``exact`` includes the sign of zero.
        tolerance: How many times the usual rounding error is allowed.
        random: The outputs are random, so only their types and shapes are compared.
        twin: A model that computes what is right, where ONNX Runtime gets the original wrong.
        undone: Checks may undo rewrites, for the rules are wrong on purpose.
        options: For ``apply``.
    """
    original = proto(graph, opset, ir_version)
    before = original.SerializeToString(deterministic=True)
    made = list(feeds) if feeds is not None else list(make_feeds(original, dims, shapes or {}, inputs or {}, edges))
    made += [{**made[0], **each} for each in (make_overrides(original) if overrides is None else overrides)]
    expected = run(twin or original, made)
    results, models = {}, {}
    for level in levels:
        result = onnxrewrite.apply(original, check=level, **options)
        assert original.SerializeToString(deterministic=True) == before, "the caller's model was changed"
        model = result.to_proto()
        is_known = model in models.values()
        results[level], models[level] = result, model
        if not undone:
            assert not result.checks.undone, f"a rule is wrong: {result.checks.undone}"
        if is_known:  # to the last byte of it: all that follows has been asked
            continue
        assert_same_interface(original, model)
        assert_valid(model, original)
        for given, old, new in zip(made, expected, run(model, made), strict=True):
            try:
                assert_equal(old, new, exact=exact, signs=signs, tolerance=tolerance, random=random, note=level)
            except AssertionError as error:
                error.add_note(f"at {given}")  # to print arrays takes longer than to compare them
                raise
    seen = Seen(original, results, models)
    if not undone and len(levels) > 1:
        found = [operators(m) for m in models.values()]
        assert all(f == found[0] for f in found), f"the level of checks changes the result: {found}"
    return seen


# -- comparing -------------------------------------------------------------------------------------------------


def assert_same_interface(old: onnx.ModelProto, new: onnx.ModelProto) -> None:
    """The inputs and outputs, to the last detail, and the defaults of overridable initializers."""
    for kind in ("input", "output"):
        assert list(getattr(old.graph, kind)) == list(getattr(new.graph, kind)), f"the {kind}s changed"
    inputs = {i.name for i in old.graph.input}
    defaults = [
        {i.name: onnx.numpy_helper.to_array(i).tolist() for i in m.graph.initializer if i.name in inputs}
        for m in (old, new)
    ]
    np.testing.assert_equal(*defaults)


def assert_valid(model: onnx.ModelProto, original: onnx.ModelProto) -> None:
    """What onnx's own checker accepts, it accepts afterwards; in full where it knows all operators."""
    full = all(n.domain in ("", "ai.onnx", "ai.onnx.ml") for n in nodes(model))
    for thorough in (False, True) if full else (False,):
        try:
            onnx.checker.check_model(original, full_check=thorough)
        except Exception:  # whatever the checker raises
            return
        onnx.checker.check_model(model, full_check=thorough)


def assert_equal(
    old: Sequence[Any],
    new: Sequence[Any],
    *,
    exact: bool,
    signs: bool,
    tolerance: float,
    random: bool,
    note: str,
) -> None:
    """Outputs of the original and of the result."""
    assert len(old) == len(new)
    for index, (a, b) in enumerate(zip(old, new, strict=True)):
        where = f"output {index}: {note}"
        if isinstance(a, list) or a is None:
            assert (a is None) == (b is None), where
            if a is not None:
                assert_equal(a, b, exact=exact, signs=signs, tolerance=tolerance, random=random, note=where)
            continue
        a, b = np.asarray(a), np.asarray(b)
        assert a.dtype == b.dtype, where
        assert a.shape == b.shape, f"{a.shape} became {b.shape}: {where}"
        if random or a.dtype.kind in "OSU":
            assert random or a.tolist() == b.tolist(), where
            continue
        is_float = a.dtype.kind == "f" or a.dtype in (ml_dtypes.bfloat16,)
        if not is_float:
            np.testing.assert_array_equal(a, b, err_msg=where)
            continue
        eps = float(ml_dtypes.finfo(a.dtype).eps)
        x, y = a.astype(np.float64), b.astype(np.float64)
        if exact:
            np.testing.assert_array_equal(x, y, err_msg=where)
            if signs:
                np.testing.assert_array_equal(np.signbit(x[x == 0]), np.signbit(y[x == 0]), err_msg=f"-0.0: {where}")
            continue
        largest = np.abs(x[np.isfinite(x)]).max(initial=0.0)
        np.testing.assert_allclose(
            y, x, rtol=32 * eps * tolerance, atol=8 * eps * tolerance * min(largest, 1e6), err_msg=where
        )


# -- running ---------------------------------------------------------------------------------------------------


def session(model: onnx.ModelProto | str) -> ort.InferenceSession:
    """ONNX Runtime without its own optimizations."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    source = model if isinstance(model, str) else model.SerializeToString()
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def run(model: onnx.ModelProto, feeds: Sequence[Feeds]) -> list[list[Any]]:
    """The outputs for each of ``feeds``; by the reference implementation where ONNX Runtime has no kernel."""
    try:
        opened = session(model)
    except Exception as error:
        if "NOT_IMPLEMENTED" not in str(error) and "implementation" not in str(error):
            raise
        return [_by_reference(model, f) for f in feeds]
    return [opened.run(None, dict(f)) for f in feeds]


def _by_reference(model: onnx.ModelProto, feeds: Feeds) -> list[Any]:
    """The outputs, as computed in double precision where that is possible: ONNX knows no operators of ONNX Runtime."""
    found = build_reference(model).run(feeds)
    if found is None:
        with np.errstate(all="ignore"):
            return onnx.reference.ReferenceEvaluator(model).run(None, dict(feeds))
    declared = {o.name: onnx.helper.tensor_dtype_to_np_dtype(o.type.tensor_type.elem_type) for o in model.graph.output}
    return [found[name].astype(dtype) for name, dtype in declared.items()]


def make_feeds(
    model: onnx.ModelProto,
    dims: Sequence[Mapping[str, int]] | None,
    shapes: Mapping[str, Sequence[int]],
    inputs: Feeds,
    edges: bool,
) -> Iterator[Feeds]:
    """Inputs of several kinds at several sizes."""
    defaults = {i.name for i in model.graph.initializer} | {s.values.name for s in model.graph.sparse_initializer}
    specs = [i for i in model.graph.input if i.name not in defaults and i.name not in inputs]
    names = list(
        dict.fromkeys(d.dim_param for s in specs for d in s.type.tensor_type.shape.dim if not d.HasField("dim_value"))
    )
    sizes = dims or (
        [dict.fromkeys(names, 2), dict.fromkeys(names, 1), {n: i + 2 for i, n in enumerate(names)}] if names else [{}]
    )
    for place, size in enumerate(sizes):
        for kind in ("normal", "large", "zeros", "rows", *(("edges",) if edges else ())):
            generator = np.random.default_rng([place, len(kind)])
            yield {**inputs, **{s.name: _array(s, size, shapes, kind, generator) for s in specs}}


def _array(
    spec: onnx.ValueInfoProto,
    size: Mapping[str, int],
    shapes: Mapping[str, Sequence[int]],
    kind: str,
    generator: np.random.Generator,
) -> Any:
    tensor = spec.type.tensor_type
    if spec.name in shapes:
        shape = tuple(shapes[spec.name])
    elif tensor.HasField("shape"):
        shape = tuple(d.dim_value if d.HasField("dim_value") else size[d.dim_param] for d in tensor.shape.dim)
    else:
        shape = (2, 3)
    if tensor.elem_type == onnx.TensorProto.STRING:
        return np.array([f"s{i}" for i in range(int(np.prod(shape)))], dtype=object).reshape(shape)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    if dtype == np.bool_:
        return generator.integers(0, 2, shape).astype(bool)
    if np.issubdtype(dtype, np.integer):
        high = {"large": 100, "zeros": 1}.get(kind, 7)
        return generator.integers(0 if kind == "zeros" or dtype.kind == "u" else -high, high, shape).astype(dtype)
    values = generator.standard_normal(shape)
    match kind:
        case "large":
            values = values * 50
        case "zeros":
            values = values * 0
        case "rows":
            values = np.broadcast_to(values.mean(axis=-1, keepdims=True), shape) if shape and shape[-1] else values
        case "edges":
            start = generator.integers(0, len(EDGES))
            values = np.resize(np.roll(EDGES, start), shape)
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(dtype)


def make_overrides(model: onnx.ModelProto) -> Iterator[Feeds]:
    """Every overridable float initializer with other values, one by one and all at once."""
    inputs = {i.name for i in model.graph.input}
    if model.ir_version < 4:
        return
    other = {}
    for initializer in model.graph.initializer:
        if initializer.name in inputs:
            array = onnx.numpy_helper.to_array(initializer)
            if array.dtype.kind == "f":
                other[initializer.name] = np.asarray(array * 1.25 + 0.375, array.dtype)
    yield from ({name: array} for name, array in other.items())
    if len(other) > 1:
        yield other


# -- looking ---------------------------------------------------------------------------------------------------


def nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """All nodes, those of inner graphs and functions included."""

    def of(graph: Any) -> Iterator[onnx.NodeProto]:
        for node in graph.node:
            yield node
            for attribute in node.attribute:
                for inner in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
                    yield from of(inner)

    return [n for graph in (model.graph, *model.functions) for n in of(graph)]


def operators(model: onnx.ModelProto) -> Counter[str]:
    """How many nodes of each operator there are."""
    return Counter(n.op_type for n in nodes(model))


def one_line(message: str) -> bool:
    """Whether a message is one line that says something."""
    return bool(re.fullmatch(r"[^\n]{10,500}", message.strip()))
