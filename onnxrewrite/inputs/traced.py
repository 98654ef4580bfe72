"""Sizes that a tracer has fixed in a model: what a symbolic dimension has to be for the model to run.

PyTorch's TorchScript exporter, for one, writes what it computed in Python as a number, also where the dimension is said
to be dynamic.  Each such number leaves an equation: a Reshape keeps the number of elements, dimensions that are
broadcast against each other are equal, and so are those that a matrix product sums over.  Here they are collected and
solved, one unknown at a time.  Whether the model runs at these sizes is for the caller to try.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import onnx
import onnx_ir as ir
import sympy  # type: ignore[import-untyped]

from onnxrewrite.inputs.bindings import InputSpec, role_of
from onnxrewrite.io import preserved
from onnxrewrite.ir import dims
from onnxrewrite.ir.dims import Dim
from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.operators import operators

_BROADCASTING = frozenset(operators("broadcast"))

_MOST = 2_000
"""Equations that are looked at."""

_Equation = tuple[Dim, Dim]


def traced_sizes(model: onnx.ModelProto, specs: Sequence[InputSpec]) -> dict[str, int]:
    """The symbolic sizes that the model's own numbers fix, by name; of contradictory ones the most frequent.

    Batches, which are equal wherever sizes are made up, are one unknown.

    Args:
        model: The model; its weights are not looked at.
        specs: Its inputs, whose dimensions have names.
    """
    graph = _named(preserved.deserialized(model), specs)
    names = {d for spec in specs for d in spec.dims or () if isinstance(d, str)}
    facts = Facts(graph, graph.opset_imports)
    batches = [n for n in sorted(names) if role_of(n, specs) == "batch"]
    found_differences = (_difference(a, b, batches) for a, b in _first(_equations(graph, facts)))
    differences = [d for d in found_differences if d is not None]
    found: dict[str, int] = {}
    for _ in names:
        votes = Counter(v for d in set(differences) if (v := _solved(d, names)) is not None)
        if not votes:
            break
        (name, size), _ = votes.most_common(1)[0]
        found |= dict.fromkeys(batches if name in batches else (name,), size)
        differences = [d.subs({s: size for s in d.free_symbols if str(s) == name}) for d in differences]
    return found


def _named(model: ir.Model, specs: Sequence[InputSpec]) -> ir.Graph:
    """The model's graph, with the names that the dimensions of its inputs have here."""
    by_name = {spec.name: spec.dims for spec in specs if spec.tensor and spec.dims is not None}
    for value in model.graph.inputs:
        if value.name in by_name:
            value.shape = ir.Shape(by_name[value.name])
    return model.graph


def _first(equations: Iterator[_Equation]) -> Iterable[_Equation]:
    return (equation for equation, _ in zip(equations, range(_MOST), strict=False))


def _equations(graph: ir.Graph, facts: Facts) -> Iterator[_Equation]:
    """Sizes that have to be equal, from all nodes that demand it."""
    for node in graph:
        shapes = [facts.shape(v) if v is not None else None for v in node.inputs]
        if node.domain:
            continue
        if node.op_type in _BROADCASTING:
            yield from _pairs([s for s in shapes if s is not None])
        elif node.op_type == "MatMul" and None not in shapes and all(shapes):
            a, b = shapes
            assert a is not None
            assert b is not None
            yield a[-1], b[-2] if len(b) > 1 else b[0]
            yield from _pairs([a[:-2], b[:-2]])
        elif node.op_type in ("Reshape", "Expand") and len(shapes) == 2 and node.inputs[1] is not None:
            target = facts.elements(node.inputs[1])
            if shapes[0] is not None and target is not None:
                yield from _of_view(node, shapes[0], target)


def _of_view(node: ir.Node, source: Sequence[Dim], target: Sequence[Dim]) -> Iterator[_Equation]:
    """That a Reshape keeps the number of elements, an Expand each dimension but those of size 1."""
    if node.op_type == "Expand":
        yield from _pairs([source, target])
        return
    copied = [source[i] if d == 0 and i < len(source) else d for i, d in enumerate(target)]
    if all(dims.is_known(d) and dims.at_least(d) >= 0 and d != -1 for d in (*source, *copied)):
        yield dims.product(source), dims.product(copied)


def _pairs(shapes: Sequence[Sequence[Dim]]) -> Iterator[_Equation]:
    """The dimensions that are broadcast against a number of two or more."""
    for axis in range(1, max(map(len, shapes), default=0) + 1):
        met = [s[-axis] for s in shapes if len(s) >= axis]
        number = next((d for d in met if isinstance(d, int) and d > 1), None)
        if number is not None:
            yield from ((number, d) for d in met if not isinstance(d, int))


def _difference(a: Dim, b: Dim, batches: Sequence[str]) -> sympy.Expr | None:
    """The expression that has to be zero, all batches being one; None where it is, or nobody can tell."""
    if not dims.is_known(a) or not dims.is_known(b) or dims.same_dim(a, b):
        return None
    one, other = (sympy.sympify(d if isinstance(d, int) else d._expr) for d in (a, b))
    difference = one - other
    same = sorted((s for s in difference.free_symbols if str(s) in batches), key=str)
    difference = sympy.expand(difference.subs(dict.fromkeys(same, sympy.Symbol(batches[0])) if same else {}))
    return difference if difference.is_polynomial() and difference.free_symbols else None


def _solved(difference: sympy.Expr, names: set[str]) -> tuple[str, int] | None:
    """The one unknown of an equation and its size; None where there are more, or no such size."""
    if len(difference.free_symbols) not in (1, 2, 3):
        return None  # what else there is may be a factor
    _, factors = sympy.factor_list(difference)
    unknown = [f for f, _ in factors if not f.is_symbol]  # a dimension of zero would fit, too
    if len(unknown) != 1 or len(unknown[0].free_symbols) != 1:
        return None
    (symbol,) = unknown[0].free_symbols
    sizes = [int(r) for r in sympy.solve(unknown[0], symbol) if r.is_integer and r > 0]
    return (str(symbol), sizes[0]) if len(sizes) == 1 and str(symbol) in names else None
