"""What is believed of shapes and dtypes is so: of the standard's tests of each operator, and of all values of models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from corpus import GOLDEN_FILES, SHARED_FILES
from onnx import helper
from test_standard import cases

from onnxrewrite import io
from onnxrewrite.inputs.sample import Sampler, usable
from onnxrewrite.ir.dims import Dim
from onnxrewrite.ir.facts import Facts
from onnxrewrite.runtime.session import Session, open_session
from onnxrewrite.system.arrays import Outputs


def size(dim: Dim, binding: Mapping[str, int]) -> int | None:
    """The size of a dimension; None where that is not known."""
    if isinstance(dim, int):
        return dim
    if dim.value is None or not {s.name for s in dim._expr.free_symbols} <= binding.keys():
        return None
    return int(dim._expr.subs({s: binding[s.name] for s in dim._expr.free_symbols}))


def computed(model: ir.Model, feeds: Mapping[str, object]) -> Outputs:
    """All values of the main graph; nothing where the model does not run."""
    proto = io.to_proto(model)
    given = {o.name for o in proto.graph.output}
    names = [o for n in proto.graph.node for o in n.output if o and o not in given]
    proto.graph.output.extend(map(helper.make_empty_tensor_value_info, names))
    session = open_session(proto, threads=1)
    found = session.run(feeds) if isinstance(session, Session) else {}
    return found if isinstance(found, dict) else {}


def wrong(model: ir.Model, values: Outputs, binding: Mapping[str, int]) -> Iterator[str]:
    """The values of which something is believed that is not so."""
    facts = Facts(model.graph, dict(model.opset_imports))
    for value in (o for n in model.graph for o in n.outputs if o.name in values):
        array, shape, dtype = values[value.name or ""], facts.shape(value), facts.dtype(value)
        if not isinstance(array, np.ndarray):
            continue
        sizes = None if shape is None else [size(d, binding) for d in shape]
        if sizes is not None and (
            len(sizes) != array.ndim or any(s not in (None, a) for s, a in zip(sizes, array.shape, strict=True))
        ):
            yield f"{value.producer().op_type} `{value.name}`: {shape} at {dict(binding)} is {array.shape}"
        if dtype is not None and array.dtype.kind in "fiub" and dtype.numpy() != array.dtype:
            yield f"{value.producer().op_type} `{value.name}`: {dtype} is {array.dtype}"


def undeclared(model: onnx.ModelProto, feeds: Mapping[str, object], *, named: bool) -> onnx.ModelProto:
    """A model whose file says nothing of shapes but for its inputs; equal sizes have one name, or are numbers."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    del made.graph.value_info[:]
    for output in (o for o in made.graph.output if o.type.HasField("tensor_type")):
        output.type.tensor_type.ClearField("shape")
    for value in (v for v in made.graph.input if isinstance(feeds.get(v.name), np.ndarray)):
        shape = value.type.tensor_type.shape
        del shape.dim[:]
        shape.SetInParent()
        for number in feeds[value.name].shape:
            dim = shape.dim.add()
            if named:
                dim.dim_param = f"s{number}"
            else:
                dim.dim_value = number
    return made


@pytest.mark.slow
def test_shapes_of_every_operator():
    found, count = [], 0
    for case in cases():
        name, model, data = case.name, case.model, case.data_sets
        feeds = dict(zip((i.name for i in model.graph.input), data[0][0], strict=True))
        values = computed(io.load(undeclared(model, feeds, named=False)), feeds)
        sizes = {s for v in feeds.values() if isinstance(v, np.ndarray) for s in v.shape}
        for named in (False, True) if values else ():
            loaded = io.load(undeclared(model, feeds, named=named))
            found += [f"{name}: {each}" for each in wrong(loaded, values, {f"s{s}": s for s in sizes})]
            count += 1
    assert not found
    assert count > 2000


@pytest.mark.slow
@pytest.mark.parametrize("path", [*GOLDEN_FILES, *SHARED_FILES], ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_shapes_of_all_values_of_a_model(path: Path):
    model = io.load(path)
    session = open_session(model, threads=1)
    assert isinstance(session, Session)
    trials, _ = usable(Sampler(io.to_proto(model)), session, wanted=2)
    for trial in trials:
        assert not [*wrong(model, computed(model, trial.feeds), trial.binding)]


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        ("float[n,6] x; int64[2] s; a, b = Split<axis=1>(x, s)  y = Relu(a)", ["n", None]),
        ("float[n,6] x; a, b = Split<axis=1>(x, {2, 4})  y = Relu(a)", ["n", 2]),
        ("float[n,6] x; float[4,6] w; p = com.microsoft.FusedGemm<transB=1, activation=\"Relu\">(x, w)  y = Relu(p)", ["n", 4]),
        ("int8[n,6] x; p = com.microsoft.DequantizeLinear(x, 0.5, int8 3)  y = Relu(p)", ["n", 6]),
        ("float[n,6] x; p = com.microsoft.QuantizeLinear(x, 0.5)  y = DequantizeLinear(p, 0.5)", ["n", 6]),
        ("float[n,6,8,8] x; float[4,6,3,3] w; p = com.microsoft.FusedConv<activation=\"Relu\">(x, w)  y = Relu(p)", ["n", 4, 6, 6]),
        ("float[1,1,n,m] x; p = MaxPool<kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1>(x)  y = Relu(p)", [1, 1, None, None]),
        ("float[2,n,4] x; u = Unique<axis=1>(x)  y = Relu(u)", [2, None, 4]),
        ("int64[n,3] i; f = ai.onnx.ml.ArrayFeatureExtractor(float[80] {...}, i)  y = Relu(f)", [1, "3*n"]),
    ],
    ids="pieces-computed pieces fused-gemm dequantized quantized fused-conv rounded-up different-slices features".split(),
)  # fmt: skip
def test_what_the_library_gets_wrong(graph: str, expected: list[object]):
    from onnxrewrite.ir import text

    elements = ", ".join(f"{n}.0" for n in range(80))
    model = text.parse(graph.replace("...", elements), opset=18)
    facts = Facts(model.graph, dict(model.opset_imports))
    shape = facts.shape(next(v for v in model.graph.outputs if v.name == "y"))
    assert shape is not None
    told = [
        d if isinstance(d, int) else None if d.value is None or d.value.startswith("_d") else d.value for d in shape
    ]
    assert told == expected
