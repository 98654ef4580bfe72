"""Laws of operators: two nodes that are written differently and compute the same, whatever they are fed.

A mistake that leaves a node's meaning alone is none.  Each law is about an operator, never about a rule, and its reason
is the proof.  Where something that a law asks for is not known, the nodes are taken to differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from benchmarks.mutants.tape import Emission
from onnxrewrite.errors import OnnxRewriteError
from onnxrewrite.ir import schema, views
from onnxrewrite.ir.facts import Facts, same_dim, same_shape
from onnxrewrite.ir.operators import operators
from onnxrewrite.pattern.match import Refused
from onnxrewrite.pattern.paths import made_by
from onnxrewrite.rewrite.build import Builder

Holds: TypeAlias = Callable[[ir.Node, ir.Node, Facts], bool]
"""True if a law applies to the node as it should be, and the one in its place."""

_NOTHING = (
    "it changes nothing: an operator that only views, cuts, joins, repeats or reduces is the identity where it keeps a "
    "shape"
)
_VIEWS = "views keep all elements in their order, so that the shape of the result says all"
_AXIS = "it is the same axis, counted from the other end"
_REVERSED = "without a permutation the axes are reversed"
_SPANS = "it cuts the same elements, in the same order"
_DEFAULT = "that is its default"
_SUM = "a sum of two is the same either way, to the last bit"
_EQUAL = "it is the very node that is asked for"

_FLOAT8 = frozenset(d for d in ir.DataType if d.name.startswith("FLOAT8"))


def same(asked: Emission, wrong: Emission | ir.Value, outputs: int, build: Builder) -> str:
    """The law by which a node computes what the one that is ``asked`` for computes; empty if there is none.

    Both are built on a tape of their own, which is thrown away, so that their shapes are inferred.
    """
    tape = Builder(build._facts, build._match, build._imports, asked.domain)
    try:
        (one, *_) = tape.node(asked.op_type, asked.inputs, asked.parameters, outputs)
        if isinstance(wrong, ir.Value):
            return _NOTHING if _kept(_producer(one), build._facts) is wrong else ""
        (other, *_) = tape.domain(wrong.domain).node(wrong.op_type, wrong.inputs, wrong.parameters, outputs)
        return law(_producer(one), _producer(other), build._facts)
    except (OnnxRewriteError, Refused, ValueError, TypeError):
        return ""
    finally:
        tape.discard()


def unread(node: ir.Node, name: str, facts: Facts) -> str:
    """The law by which a node does not look at an attribute, whatever its value; empty if there is none."""
    laws = (law for law in _UNREAD.get((node.op_type, name), ()) if law[1] not in _COMPARING)
    return next((reason for reason, holds in laws if holds(node, node, facts)), "")


def _producer(value: ir.Value) -> ir.Node:
    node = value.producer()
    assert node is not None
    return node


def law(one: ir.Node, other: ir.Node, facts: Facts) -> str:
    """The law by which two nodes compute the same; empty if there is none."""
    kept = _kept(one, facts)
    if kept is not None and _kept(other, facts) is kept:
        return _NOTHING
    if _is_view(one) and _is_view(other) and one.inputs[0] is other.inputs[0] and _same_results(one, other, facts):
        return _VIEWS
    if (one.domain, one.op_type) != (other.domain, other.op_type):
        return ""
    if (one.domain, one.op_type) in _ADDS_TWO and _is_exchanged(one, other, facts):
        return _SUM
    laws = {_excuse(one, other, name, facts) for name in _differing(one, other, facts)}
    return "; ".join(sorted(laws)) or _EQUAL if "" not in laws else ""


# -- identities ----------------------------------------------------------------------------------------------

_JOINS_ONE = frozenset({"ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"})
"""Where one of these gives its operand's shape, every element that it gives is of one alone, and is that."""

_KEEP_ORDER = frozenset({"Expand", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Tile", "Concat", "Split"})
"""Where one of these gives its first operand's shape, it gives the operand: broadcast to its own shape, viewed in it,
repeated once, joined with what is empty, cut into one piece."""


def _kept(node: ir.Node, facts: Facts) -> ir.Value | None:
    """The first operand, if that is what a node computes."""
    first, result = node.inputs[0] if node.inputs else None, node.outputs[0]
    if first is None or node.domain or not same_shape(facts.shape(first), facts.shape(result)):
        return None
    if node.op_type in _KEEP_ORDER | _JOINS_ONE:
        return first if len(node.outputs) == 1 else None
    if node.op_type == "Slice":
        cut = views.slice_of(facts, node)
        return first if not isinstance(cut, str) and all(s.step > 0 for s in cut.spans) else None
    if node.op_type == "Pad":
        pads = views.parameter(facts, node, "pads")
        return first if isinstance(pads, tuple) and not any(pads) else None
    return None


def _is_view(node: ir.Node) -> bool:
    return not node.domain and node.op_type in ("Reshape", "Flatten", "Squeeze", "Unsqueeze")


def _same_results(one: ir.Node, other: ir.Node, facts: Facts) -> bool:
    return same_shape(facts.shape(one.outputs[0]), facts.shape(other.outputs[0]))


# -- parameters and operands ---------------------------------------------------------------------------------


def _differing(one: ir.Node, other: ir.Node, facts: Facts) -> set[str]:
    """The names of the attributes and operands in which two nodes of one operator differ."""
    found = schema.schema(one.domain, one.op_type, facts.version(one))
    names = set[str]()
    for name in {*one.attributes, *other.attributes}:
        mine, theirs = (schema.attribute(n, name, facts.version(n)) for n in (one, other))
        if name not in one.attributes or name not in other.attributes or mine != theirs:
            names.add(name)
    for place in range(max(len(one.inputs), len(other.inputs))):
        mine, theirs = views.input_of(one, place), views.input_of(other, place)
        if mine is not theirs and not _is_same_constant(mine, theirs, facts):
            formals = found.inputs if found is not None else ()
            names.add(formals[place].name if place < len(formals) else f"operand {place}")
    return names


def _excuse(one: ir.Node, other: ir.Node, name: str, facts: Facts) -> str:
    """The law by which two nodes of one operator may differ in a parameter; empty if there is none."""
    laws = [(_AXIS, _same_axis), (_SPANS, _same_spans), (_REVERSED, _same_order), (_DEFAULT, _same_default)]
    told = next((reason for reason, holds in laws if holds(one, other, name, facts)), "")
    if told:
        return told
    for reason, holds in _UNREAD.get((one.op_type, name), ()):
        if holds(one, other, facts):
            return reason
    return ""


_BESIDE = frozenset({"Concat", "Split", "Gather", "GatherElements", "Softmax", "LogSoftmax", "ArgMax", "ArgMin"})
"""Operators whose ``axis`` is counted among those of the first operand."""


def _same_axis(one: ir.Node, other: ir.Node, name: str, facts: Facts) -> bool:
    if name == "axis" and one.op_type in _BESIDE and one.inputs[0] is not None:
        joined = one.inputs if one.op_type == "Concat" else one.inputs[:1]  # which all have one rank
        rank = next((r for v in joined if v is not None and (r := facts.rank(v)) is not None), None)
        mine, theirs = (views.axis_of(facts, n, rank) for n in (one, other))
        return rank is not None and isinstance(mine, int) and mine == theirs
    if name == "axes" and one.op_type in ("Squeeze", "Unsqueeze"):
        put, instead = (views.unit_axes(facts, n) for n in (one, other))
        return isinstance(put, tuple) and put == instead
    if name == "axes" and one.op_type.startswith("Reduce"):
        reduced = [views.reduce_of(facts, n) for n in (one, other)]
        along = [frozenset(r.axes) for r in reduced if not isinstance(r, str)]
        return len(along) == 2 and along[0] == along[1]
    return False


def _same_order(one: ir.Node, other: ir.Node, name: str, facts: Facts) -> bool:
    if name != "perm" or one.op_type != "Transpose":
        return False
    given = [tuple(p.as_ints()) for n in (one, other) if (p := n.attributes.get("perm")) is not None]
    if len(given) == 1 and given[0] == tuple(range(len(given[0])))[::-1]:  # it tells the rank
        return True
    mine, theirs = (views.permutation(facts, n) for n in (one, other))
    return isinstance(mine, tuple) and mine == theirs


def _same_spans(one: ir.Node, other: ir.Node, name: str, facts: Facts) -> bool:
    if one.op_type != "Slice":
        return False
    mine, theirs = (_elements(facts, n) for n in (one, other))
    return mine is not None and mine == theirs


def _elements(facts: Facts, node: ir.Node) -> set[tuple[int, range | views.Span]] | None:
    """What a Slice takes of each axis that it cuts: its elements where they are known, or else by the bounds."""
    cut = views.slice_of(facts, node)
    if isinstance(cut, str):
        return None
    shape = facts.shape(cut.source)
    taken = ((s, s.of(None if shape is None else shape[s.axis])) for s in cut.spans)
    return {(span.axis, span if isinstance(elements, str) else elements) for span, elements in taken}


def _is_same_constant(mine: ir.Value | None, theirs: ir.Value | None, facts: Facts) -> bool:
    if mine is None or theirs is None or facts.dtype(mine) != facts.dtype(theirs):
        return False
    arrays = facts.constant(mine), facts.constant(theirs)
    return arrays[0] is not None and arrays[1] is not None and np.array_equal(arrays[0], arrays[1])


def _same_default(one: ir.Node, other: ir.Node, name: str, facts: Facts) -> bool:
    found = schema.schema(one.domain, one.op_type, facts.version(one))
    if found is None or name not in found.attributes or found.attributes[name].default is None:
        return False
    mine, theirs = (schema.attribute(n, name, facts.version(n)) for n in (one, other))
    return bool(mine == theirs)


def _is_exchanged(one: ir.Node, other: ir.Node, facts: Facts) -> bool:
    """True if two operands of one shape stand in each other's place."""
    mine, theirs = list(one.inputs), list(other.inputs)
    return (
        len(mine) == 2
        and mine == theirs[::-1]
        and not _differing_attributes(one, other)
        and (one.op_type == "Sum" or _have_one_shape(mine, facts))
    )


def _have_one_shape(values: list[ir.Value | None], facts: Facts) -> bool:
    shapes = [facts.shape(v) if v is not None else None for v in values]
    return same_shape(*shapes)


def _differing_attributes(one: ir.Node, other: ir.Node) -> bool:
    return {n: a.value for n, a in one.attributes.items()} != {n: a.value for n, a in other.attributes.items()}


_ADDS_TWO = frozenset({("", "Sum"), ("com.microsoft", "FastGelu"), ("com.microsoft", "BiasGelu")})
"""Operators that begin by adding their two operands."""


# -- what is not read ----------------------------------------------------------------------------------------


def _is_number(node: ir.Node, place: int, facts: Facts) -> bool:
    value = views.input_of(node, place)
    return value is not None and facts.shape(value) in ((), (1,))


def _no_zero(one: ir.Node, other: ir.Node, facts: Facts) -> bool:
    """True if no size that a Reshape asks for is zero, or such a size is that of its operand at the same place."""
    source, target = views.input_of(one, 0), views.input_of(one, 1)
    elements = facts.elements(target) if target is not None else None
    shape = facts.shape(source) if source is not None else None
    if made_by(target, "Shape") is not None:  # zero is a size there: where the operand has another one, it is empty
        return True
    if elements is None:
        return False
    positive = [isinstance(e, int) and e > 0 for e in elements]
    if all(positive) or [e for e in elements if not isinstance(e, int) or e <= 0] == [-1]:
        return True
    if shape is None or any(e == -1 for e in elements if isinstance(e, int)) or len(shape) < len(elements):
        return False
    return all(p or same_dim(e, d) for p, e, d in zip(positive, elements, shape, strict=False))


def _anywhere(one: ir.Node, other: ir.Node, facts: Facts) -> bool:
    return True


def _not_float8(one: ir.Node, other: ir.Node, facts: Facts) -> bool:
    return facts.dtype(one.outputs[0]) is not None and facts.dtype(one.outputs[0]) not in _FLOAT8


def _by_mode(attribute: str, *reading: str | int) -> Holds:
    """True unless an attribute is one of those that read another one."""

    def holds(one: ir.Node, other: ir.Node, facts: Facts) -> bool:
        return schema.attribute(one, attribute, facts.version(one)) not in reading

    return holds


def _zero_padding(one: ir.Node, other: ir.Node, facts: Facts) -> bool:
    """True if one value of the padding is a constant zero and the other absent."""
    numbers = [v for n in (one, other) if (v := views.input_of(n, 2)) is not None]
    arrays = [None if (a := facts.constant(v)) is None else a.astype(np.float64) for v in numbers]
    return all(a is not None and not a.any() and not np.signbit(a).any() for a in arrays)


def _bias_of_zeros(one: ir.Node, other: ir.Node, facts: Facts) -> bool:
    """True if one bias is all zeros and the other absent: comparisons take -0 for 0."""
    numbers = [v for n in (one, other) if (v := views.input_of(n, 2)) is not None]
    arrays = [None if (a := facts.constant(v)) is None else a.astype(np.float64) for v in numbers]
    return all(a is not None and not a.any() for a in arrays)


def _no_zero_point(one: ir.Node, other: ir.Node, facts: Facts) -> bool:
    """True if one zero point is a constant zero and the other absent, and the result has one dtype."""
    points = [v for n in (one, other) if (v := views.input_of(n, 2)) is not None]
    arrays = [facts.constant(v) for v in points]
    is_zero = all(a is not None and not a.any() for a in arrays)
    return is_zero and facts.dtype(one.outputs[0]) == facts.dtype(other.outputs[0])


def _dilates_ones(one: ir.Node, other: ir.Node, facts: Facts) -> bool:
    """True if dilations differ only along axes on which the kernel has one element."""
    weight = views.input_of(one, 1)
    shape = facts.shape(weight) if weight is not None else None
    mine, theirs = (schema.attribute(n, "dilations", facts.version(n)) for n in (one, other))
    if shape is None or mine is None or theirs is None:
        return False
    return all(a == b or d == 1 for a, b, d in zip(mine, theirs, shape[2:], strict=True))


def _is_vector(place: int) -> Holds:
    def holds(one: ir.Node, other: ir.Node, facts: Facts) -> bool:
        value = views.input_of(one, place)
        return value is not None and facts.rank(value) == 1

    return holds


def _pads_nothing(one: ir.Node, other: ir.Node, facts: Facts) -> bool:
    """True if a kernel of one element goes from one element to the next: there is nothing to pad for it."""
    weight = views.input_of(one, 1)
    shape = facts.shape(weight) if weight is not None else None
    strides, pads = (schema.attribute(one, name, facts.version(one)) for name in ("strides", "pads"))
    steps = all(s == 1 for s in strides or ()) and not any(pads or ())
    return shape is not None and len(shape) > 2 and all(d == 1 for d in shape[2:]) and steps


def _has_axes(one: ir.Node, other: ir.Node, facts: Facts) -> bool:
    """True if both are told axes, at least one."""
    given = [views.parameter(facts, n, "axes") for n in (one, other)]
    return all(isinstance(axes, tuple) and axes for axes in given)


_NO_BIAS = "adding zeros changes nothing"
_VECTOR = "a vector has nothing to transpose"
_PER_TENSOR = "there is one scale, which has no axis"
_SATURATES = "only float8 is saturated"
_STASH = "no kernel of ONNX Runtime looks at it"
_ALONE: Holds = lambda one, other, facts: _is_number(one, 1, facts)  # noqa: E731

_UNREAD: dict[tuple[str, str], tuple[tuple[str, Holds], ...]] = {
    ("BatchNormalization", "momentum"): (("only training moves the averages", _by_mode("training_mode", 1)),),
    ("Gemm", "beta"): (("there is no bias for it to scale", lambda one, other, facts: views.input_of(one, 2) is None),),
    ("Resize", "extrapolation_value"): (
        ("only tf_crop_and_resize leaves the image", _by_mode("coordinate_transformation_mode", "tf_crop_and_resize")),
    ),
    ("Resize", "cubic_coeff_a"): (("only cubic weights have it", _by_mode("mode", "cubic")),),
    ("Resize", "nearest_mode"): (("only nearest elements are rounded to", _by_mode("mode", "nearest")),),
    ("QuantizeLinear", "axis"): ((_PER_TENSOR, _ALONE),),
    ("DequantizeLinear", "axis"): ((_PER_TENSOR, _ALONE),),
    ("QuantizeLinear", "block_size"): ((_PER_TENSOR, _ALONE),),
    ("DequantizeLinear", "block_size"): ((_PER_TENSOR, _ALONE),),
    ("QuantizeLinear", "saturate"): ((_SATURATES, _not_float8),),
    ("Cast", "saturate"): ((_SATURATES, _not_float8),),
    ("QuantizeLinear", "y_zero_point"): (("without one it is zero", _no_zero_point),),
    ("DequantizeLinear", "x_zero_point"): (("without one it is zero", _no_zero_point),),
    ("Attention", "qk_matmul_output_mode"): (
        ("it is about an output that is not there", lambda one, other, facts: len(one.outputs) < 4),
    ),
    ("LayerNormalization", "stash_type"): ((_STASH, _anywhere),),
    ("RMSNormalization", "stash_type"): ((_STASH, _anywhere),),
    ("Reshape", "allowzero"): (("no size that it asks for means another one than it says", _no_zero),),
    ("Pad", "constant_value"): (
        ("no constant is padded with in this mode", _by_mode("mode", "constant")),
        ("without one it is zero", _zero_padding),
    ),
    ("MaxPool", "ceil_mode"): (("as many windows are the same windows", _same_results),),
    **{
        ("FusedMatMul", f"trans{batch}{name}"): ((_VECTOR, _is_vector(place)),)
        for batch in ("", "Batch")
        for place, name in enumerate("AB")
    },
    **{
        (reduce, "noop_with_empty_axes"): (("it is about no axes, and there are some", _has_axes),)
        for reduce in operators("reduce")
    },
    **{(conv, "B"): ((_NO_BIAS, _bias_of_zeros),) for conv in ("Conv", "ConvTranspose", "FusedConv")},
    ("ConvTranspose", "auto_pad"): (("there is nothing to pad for", _pads_nothing),),
    ("Conv", "auto_pad"): (("there is nothing to pad for", _pads_nothing),),
    ("FusedConv", "dilations"): (("a kernel of one element is not dilated", _dilates_ones),),
    ("Conv", "dilations"): (("a kernel of one element is not dilated", _dilates_ones),),
}
"""Operator and parameter to what is said of it, and where."""

_COMPARING = frozenset({_bias_of_zeros, _same_results, _dilates_ones, _zero_padding, _no_zero_point})
"""Laws that say what two nodes have in common, and nothing about one alone."""
