"""Legality of a replacement in place of the old nodes: schema, opset, kernel, dtype, shape, cycles, names."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from typing import TypeAlias

import onnx_ir as ir

from onnxrewrite.io import preserved
from onnxrewrite.ir import custom, schema
from onnxrewrite.ir.dims import names_in
from onnxrewrite.ir.facts import Dim, Facts, same_dim
from onnxrewrite.ir.graph import is_circular, outer_values
from onnxrewrite.ir.operators import TRAITS, operators
from onnxrewrite.ir.target import Target
from onnxrewrite.ir.topological_rank import Order
from onnxrewrite.pattern.look import resolve
from onnxrewrite.pattern.match import Match
from onnxrewrite.pattern.paths import leaks

Lowerable: TypeAlias = Callable[[ir.Node], bool]
"""True for a node that is not legal itself and that the lower stage can make legal."""

_BROADCAST = frozenset(operators("broadcast"))


def illegal_node(
    node: ir.Node, facts: Facts, target: Target, imports: Mapping[str, int], functions: Iterable[tuple[str, str]]
) -> str | None:
    """The reason why the target cannot run ``node`` in a model with these opset imports, or None."""
    if (node.domain, node.op_type) in functions:
        return None
    if preserved.shadowed(node.domain, node.op_type) in functions:
        return f"the model has a function of its own that is called {node.op_type}, and is another one"
    own = custom.declared(node.domain, node.op_type)
    if own is not None:  # its body runs where it has no kernel
        found = schema.schema(node.domain, node.op_type, None)
        operands = [None if v is None else facts.dtype(v) for v in node.inputs]
        return (_misuses(node, found) if found is not None else None) or own.refuses(imports, operands)
    version = node.version if node.version is not None else imports.get(node.domain, 1)
    found = schema.schema(node.domain, node.op_type, version)
    if found is not None:
        problem = _misuses(node, found)
        if problem is not None:
            return problem
        if node.version is not None and node.version > imports.get(node.domain, node.version):
            return f"{node.op_type} needs opset {node.version}, model has {imports.get(node.domain)}"
        mixed = _mixed(node, found, facts)
        if mixed is not None:
            return mixed
    if _is_open(node, facts):
        return f"the last size of an operand of {node.op_type} is not known, and shape inference takes it for 0"
    dtypes = type_variables(node, found, facts) if found is not None else {}
    indirect = node.domain == "" and not schema.has_body(found)
    return target.refuses(node.domain, node.op_type, version, dtypes, indirect=indirect)


def kind(node: ir.Node, facts: Facts, imports: Mapping[str, int]) -> Hashable:
    """All of a node that ``illegal_node`` looks at, for one target and the functions of one model."""
    return (
        node.domain,
        node.op_type,
        node.version,
        tuple(imports.items()),
        tuple([(name, a.type, a.is_ref()) for name, a in node.attributes.data.items()]),
        tuple([v is not None and facts.dtype(v) for v in node.inputs]),
        tuple([facts.dtype(o) for o in node.outputs]),
        _is_open(node, facts),
    )


def never_legal(node: ir.Node) -> bool:
    """True if no version of an operator fits a node, or a known domain lacks the operator: the rule is wrong."""
    found = schema.versions(node.domain, node.op_type)
    if not found:
        known = schema.known_operators(node.domain)
        return bool(known) and custom.declared(node.domain, node.op_type) is None
    return all(_misuses(node, each) is not None for each in found)


def type_variables(node: ir.Node, found: schema.Schema, facts: Facts) -> dict[str, ir.DataType | None]:
    """Type variable to dtype, for the operands and results of ``node``."""
    result: dict[str, ir.DataType | None] = {}
    for values, formals in ((node.inputs, found.inputs), (node.outputs, found.outputs)):
        for index, value in enumerate(values):
            formal = formals[min(index, len(formals) - 1)]
            if value is not None and result.get(formal.type_var) is None:
                result[formal.type_var] = facts.dtype(value)
    return result


def _mixed(node: ir.Node, found: schema.Schema, facts: Facts) -> str | None:
    """Operands of different dtypes where the schema asks for one, told as a reason."""
    met: dict[str, ir.DataType] = {}
    for index, value in enumerate(node.inputs):
        formal = found.inputs[min(index, len(found.inputs) - 1)]
        dtype = facts.dtype(value) if value is not None else None
        if dtype is not None and not formal.mixed and met.setdefault(formal.type_var, dtype) != dtype:
            return f"{node.op_type} mixes {_dtype(met[formal.type_var])} and {_dtype(dtype)}"
    return None


def sized(node: ir.Node) -> ir.Value | None:
    """The operand whose last size must be known to who opens the model: ``Traits.sized``."""
    index = TRAITS[node.op_type].sized if not node.domain and node.op_type in TRAITS else None
    return node.inputs[index] if index is not None and index < len(node.inputs) else None


def _is_open(node: ir.Node, facts: Facts) -> bool:
    operand = sized(node)
    shape = facts.shape(operand) if operand is not None else None
    return shape is not None and len(shape) == 3 and not isinstance(shape[-1], int)


def _misuses(node: ir.Node, found: schema.Schema) -> str | None:
    """The reason why ``node`` does not fit the schema of its operator, or None."""
    if not found.min_inputs <= len(node.inputs) <= found.max_inputs:
        return f"{node.op_type} of opset {found.since_version} does not take {len(node.inputs)} inputs"
    if not found.min_outputs <= len(node.outputs) <= found.max_outputs:
        return f"{node.op_type} of opset {found.since_version} does not have {len(node.outputs)} outputs"
    for formal, value in zip(found.inputs, node.inputs, strict=False):
        if value is None and not formal.optional and not formal.variadic:
            return f"{node.op_type} lacks its input {formal.name}"
    for name, attribute in node.attributes.data.items():
        if name not in found.attributes:
            return f"{node.op_type} of opset {found.since_version} has no attribute {name}"
        if not attribute.is_ref() and attribute.type != found.attributes[name].type:
            return f"{node.op_type}: attribute {name} must be {found.attributes[name].type.name}"
    missing = [a.name for a in found.attributes.values() if a.required and a.name not in node.attributes]
    return f"{node.op_type} lacks its attribute {missing[0]}" if missing else None


def wrong_result(facts: Facts, old: ir.Value, new: ir.Value, minted: frozenset[str]) -> str | None:
    """The reason why ``new`` cannot stand for ``old``, or None: dtype, rank or a dimension is not shown to be equal.

    ``minted`` names dimensions of which nothing is known, because inference gave up on them: these are let through
    where it did on those of ``old``, too.
    """
    if facts.dtype(old) != facts.dtype(new):
        return f"the result has dtype {_dtype(facts.dtype(new))}, not {_dtype(facts.dtype(old))}"
    if facts.dtype(old) is None and old.type is not None and old.type != new.type:
        return f"the result has type {new.type}, not {old.type}"
    before, after = facts.shape(old), facts.shape(new)
    if before is None or after is None:
        return None
    if len(before) != len(after):
        return f"the result has rank {len(after)}, not {len(before)}"
    for axis, (a, b) in enumerate(zip(before, after, strict=True)):
        if not same_dim(a, b) and not (_unknown(b, minted) and _is_made_up(a, facts)):
            return f"dimension {axis} of the result is {b}, which is not shown to equal {a}"
    return None


def raises_rank(match: Match) -> str | None:
    """A number of shape ``[1]`` that may raise the rank of an operand of unknown rank, told as a reason."""
    for node in match.nodes:
        if node.op_type not in _BROADCAST or match.facts.rank(node.outputs[0]) is not None:
            continue
        for value in node.inputs:
            tensor = match.facts.tensor(value) if value is not None else None
            if value is not None and tensor is not None and tensor.size == 1 and len(tensor.shape) > 0:
                return f"constant `{value.name}` of rank {len(tensor.shape)} may raise the rank at `{node.name}`"
    return None


def _unknown(dim: Dim, minted: frozenset[str]) -> bool:
    return isinstance(dim, ir.SymbolicDim) and (dim.value is None or bool(names_in(dim) & minted))


def _is_made_up(dim: Dim, facts: Facts) -> bool:
    return isinstance(dim, ir.SymbolicDim) and (dim.value is None or facts.is_made_up(dim))


def makes_cycle(match: Match, nodes: Sequence[ir.Node], results: Sequence[ir.Value], order: Order) -> bool:
    """True if the replacement would depend on what it replaces.

    A single output is safe when the replacement reads only what the covered nodes read on the way up from it.  Of
    several outputs, one may depend on another, as long as that goes one way only.
    """
    outside = [v for v in read_outside(nodes, results) if v.producer() is not None]
    if any(v in match.outputs for v in outside):
        return True
    if len(match.outputs) == 1:
        above = _above(match)
        if all(v in above for v in outside):
            return False
    if not order.depends_on(outside, match.outputs):
        return False
    return len(match.outputs) == 1 or is_circular(results, dict(zip(match.outputs, results, strict=True)))


def read_outside(nodes: Sequence[ir.Node], results: Sequence[ir.Value]) -> list[ir.Value]:
    """The values that a replacement takes from the graph: those that it reads or returns and has not built."""
    built = {o for n in nodes for o in n.outputs}
    read = [*(v for n in nodes for v in (*n.inputs, *outer_values(n)) if v is not None), *results]
    return [v for v in dict.fromkeys(read) if v not in built]


def out_of_sight(values: Iterable[ir.Value], visible: Container[ir.Graph | None]) -> str | None:
    """A value that is not in one of the ``visible`` graphs: of a node that was removed, or was not built on the tape,
    or of a subgraph; told as a reason."""
    hidden = next((v for v in values if v.graph not in visible), None)
    return None if hidden is None else f"the replacement reads `{hidden.name}`, which is not there"


def _above(match: Match) -> set[ir.Value]:
    """Every value that the covered nodes read on the way up from the outputs, also behind Identities."""
    covered = set(match.nodes)
    stack = [o.producer() for o in match.outputs]
    seen: set[ir.Node] = set()
    found: set[ir.Value] = set()
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        for value in (v for v in node.inputs if v is not None):
            found.update((value, resolve(value)))
            stack.extend(p for p in (value.producer(), resolve(value).producer()) if p in covered)
    return found


def shared_inside(match: Match, built: Iterable[ir.Node] = ()) -> str | None:
    """An inner value of the match that is needed elsewhere too, by other nodes than those ``built`` to replace it,
    told as a reason; None where there is none."""
    covered = {*match.nodes, *built}
    found = ((v, need) for v, need in leaks(match.nodes, covered) if v not in match.outputs)
    return next((f"`{value.name}` inside the match is {need}" for value, need in found), None)


def _dtype(dtype: ir.DataType | None) -> str:
    return "unknown" if dtype is None else dtype.name.lower()
