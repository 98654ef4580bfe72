"""Functions of a model's own, inlined: their bodies stand in place of the calls, by the standard's own inliner.

What an exporter wrote as a function is a part of the graph like any other then: rules see through its borders, and
every call has the types and shapes of its own operands.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

import onnx
import onnx.inliner
import onnx_ir as ir

from onnxrewrite import io
from onnxrewrite.ir import custom
from onnxrewrite.ir.bodies.conversion import CannotConvert, in_opset
from onnxrewrite.ir.names import Names
from onnxrewrite.ir.protos import nested
from onnxrewrite.ir.schema import normal_domain, schema, state_defaults

Name: TypeAlias = tuple[str, str, str]
"""The domain, the name and the overload of a function."""


class Inlined(NamedTuple):
    """A model without functions that need not be any.

    Attributes:
        model: The model itself where nothing was inlined, else a copy.
        functions: The functions that were inlined, in the order of the file.
    """

    model: ir.Model
    functions: tuple[str, ...]


def inlined(model: ir.Model, is_kept: Callable[[str, str], bool] = lambda domain, name: False) -> Inlined:
    """Inline all functions, nested ones and those of another opset too.

    Functions stay that ``is_kept`` names by domain and name, declared custom operators, those that are called like an
    operator that ONNX Runtime knows, which it runs instead, and what has no words in the opset of the model.
    """
    if not model.functions:
        return Inlined(model, ())
    proto, weights = io.to_weightless(model)
    functions = {_name(f): f for f in proto.functions}
    fitted = {
        name: _fitted(f, io.opset(model))
        for name, f in functions.items()
        if not is_kept(f.domain, f.name) and not custom.is_own(f) and schema(f.domain, f.name, None) is None
    }
    bodies = [body for body in fitted.values() if body is not None]
    gone = [name for name, body in fitted.items() if body is not None]
    if not bodies:
        return Inlined(model, ())
    del proto.functions[:]
    proto.functions.extend(bodies)
    _state_defaults(proto, functions)
    try:
        made = onnx.inliner.inline_local_functions(proto)
    except Exception:  # the inliner raises whatever its C++ code does: of a call that does not fit, for instance
        return Inlined(model, ())
    del made.functions[:]
    made.functions.extend(functions[name] for name in _called(functions.keys() - gone, functions))
    return Inlined(io.load_weightless(made, weights), tuple(f"{domain}.{name}" for domain, name, _ in gone))


def spelled_out(model: ir.Model, operators: Collection[str]) -> ir.Model:
    """A copy with operators of the standard replaced by the function bodies that it gives them."""
    proto, weights = io.to_weightless(model)
    opset = io.opset(model)
    for node in nested(proto.graph.node):
        if node.op_type in operators and not normal_domain(node.domain):
            state_defaults(node, opset)
    names = [("", name) for name in sorted(operators)]
    return io.load_weightless(
        onnx.inliner.inline_selected_functions(proto, names, inline_schema_functions=True), weights
    )


def _state_defaults(proto: onnx.ModelProto, functions: Mapping[Name, onnx.FunctionProto]) -> None:
    """Give calls of functions the attributes that they leave at their defaults, which the inliner forgets."""
    for node in (n for nodes in (proto.graph.node, *(f.node for f in proto.functions)) for n in nested(nodes)):
        called = functions.get((normal_domain(node.domain), node.op_type, node.overload))
        if called is not None:
            given = {a.name for a in node.attribute}
            node.attribute.extend(a for a in called.attribute_proto if a.name not in given)


def _fitted(function: onnx.FunctionProto, opset: int) -> onnx.FunctionProto | None:
    """A function as the inliner takes it: in the opset of the model, and with no operand as a result; None where that
    opset cannot say it."""
    try:
        made = in_opset(function, opset)
    except CannotConvert:
        return None
    names = Names([*made.input, *(name for node in nested(made.node) for name in node.output)])
    for place, name in enumerate(made.output):
        if name in made.input:
            made.output[place] = names.fresh(name)
            made.node.add(op_type="Identity", input=[name], output=[made.output[place]])
    return made


def _called(names: Iterable[Name], functions: dict[Name, onnx.FunctionProto]) -> Iterator[Name]:
    """These functions and all that they call, in the order of the file."""
    found, waiting = set[Name](), list(names)
    while waiting:
        name = waiting.pop()
        if name in functions and name not in found:
            found.add(name)
            waiting += [(normal_domain(n.domain), n.op_type, n.overload) for n in nested(functions[name].node)]
    return (name for name in functions if name in found)


def _name(function: onnx.FunctionProto) -> Name:
    return normal_domain(function.domain), function.name, function.overload
