"""Dtypes that a pattern asks for and would get without asking: nothing else fits what it takes and gives, or runs."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Sequence

import onnx_ir as ir

from onnxrewrite.ir import schema
from onnxrewrite.ir.target import target
from onnxrewrite.pattern.terms import (
    FLOATS,
    AnyOf,
    Call,
    Capture,
    Literal,
    Output,
    Power,
    Product,
    Scalar,
    Sum,
    Term,
    children,
    walk,
)


def implied(outputs: Sequence[Term], term: Capture, dtypes: Collection[ir.DataType]) -> bool:
    """True if every match of a pattern that binds ``term`` has one of ``dtypes`` there, even if nothing requires it."""
    known = _Known(outputs, term, frozenset(dtypes))
    return any(map(known.forces, outputs))


class _Known:
    """What the operators of a pattern say about the dtype of one of its terms.

    Args:
        outputs: The pattern.
        term: The term.
        dtypes: The dtypes that are in question.
    """

    def __init__(self, outputs: Sequence[Term], term: Capture, dtypes: frozenset[ir.DataType]):
        self._term = term
        self._dtypes = dtypes
        self._alternatives = {
            item: tuple(a for a in item.alternatives if not _leads(outputs, term, item) or term in walk(a))
            for item in dict.fromkeys(t for output in outputs for t in walk(output))
            if isinstance(item, AnyOf)
        }

    def forces(self, root: Term) -> bool:
        """True if every match of ``root`` has one of the dtypes at the term."""
        match root:
            case AnyOf():
                return all(map(self.forces, self._alternatives[root]))
            case Call():
                forced = all(self._takes_only(op_type, root) for op_type in root.op_types)
            case Sum() | Product():
                beside = any(self._is_certain(c) for c in children(root) if not self._has_dtype(c))
                forced = self._has_dtype(root) and (beside or (_is_fraction(root) and self._dtypes >= FLOATS))
            case _:
                forced = False
        return forced or any(map(self.forces, children(root)))

    def _takes_only(self, op_type: str, call: Call) -> bool:
        """True if an operator takes no other dtypes for the term: by its kernels, or to match another operand."""
        known = schema.schema(call.domain, op_type, None)
        found = places(known, call) if known is not None else []
        variables = {f.type_var for o, f in found if self._has_dtype(o)}
        beside = (o for o, f in found if f.type_var in variables and not self._has_dtype(o))
        others = [d for d in ir.DataType if d not in self._dtypes]
        refused = any(all(not _runs(call.domain, op_type, v, d) for d in others) for v in variables)
        return refused or any(map(self._is_certain, beside))

    def _has_dtype(self, root: Term) -> bool:
        """True if ``root`` has the dtype of the term, because its operators preserve it."""
        return self._follows(root, lambda item: item is self._term)

    def _is_certain(self, root: Term) -> bool:
        """True if ``root`` has one of the dtypes, because something that the pattern restricts decides it."""
        return self._follows(root, self._is_restricted)

    def _is_restricted(self, item: Term) -> bool:
        if isinstance(item, Capture):
            return item is not self._term and item.dtypes is not None and item.dtypes <= self._dtypes
        return isinstance(item, Call) and all(self._gives_only(op_type, item) for op_type in item.op_types)

    def _gives_only(self, op_type: str, call: Call) -> bool:
        """True if the first result has one of the dtypes: of a Cast that says so, or where it takes no others."""
        known = schema.schema(call.domain, op_type, None)
        if known is None:
            return False
        to = call.parameters.get("to")
        if op_type == "Cast" and isinstance(to, int):
            return ir.DataType(to) in self._dtypes
        result = known.outputs[0].type_var
        takes = any(f.type_var == result for f in known.inputs)
        return takes and all(not _runs(call.domain, op_type, result, d) for d in ir.DataType if d not in self._dtypes)

    def _follows(self, root: Term, holds: Callable[[Term], bool]) -> bool:
        """True if a term for which something holds decides the dtype of ``root``."""
        if holds(root):
            return True
        match root:
            case AnyOf():
                return all(self._follows(each, holds) for each in self._alternatives[root])
            case Sum() | Product() | Power():
                return any(self._follows(each, holds) for each in children(root))
            case Call() | Output():
                call, index = (root.call, root.index) if isinstance(root, Output) else (root, 0)
                known = [schema.schema(call.domain, op_type, None) for op_type in call.op_types]
                return all(k is not None and self._hands_on(k, call, index, holds) for k in known)
        return False

    def _hands_on(self, known: schema.Schema, call: Call, index: int, holds: Callable[[Term], bool]) -> bool:
        result = known.outputs[min(index, len(known.outputs) - 1)].type_var
        return any(f.type_var == result and self._follows(o, holds) for o, f in places(known, call))


def _leads(outputs: Sequence[Term], term: Term, choice: AnyOf) -> bool:
    """True if a pattern has the term below ``choice`` alone: where it is bound, an alternative that has it matches."""
    stack, seen = list(outputs), set[Term]()
    while stack:
        item = stack.pop()
        if item is choice or item in seen:
            continue
        if item is term:
            return False
        seen.add(item)
        stack.extend(children(item))
    return True


def _is_fraction(term: Sum | Product) -> bool:
    """True for what no integers make up: a number that is none, or a quotient, for dividing integers is not multiplying
    by a reciprocal, so that no quotient matches it."""
    divides = isinstance(term, Product) and any(sign < 0 for _, sign in term.operands)
    below = children(term)
    return divides or any(isinstance(c, Scalar) or (isinstance(c, Literal) and c.value % 1 != 0) for c in below)


@functools.cache
def _runs(domain: str, op_type: str, variable: str, dtype: ir.DataType) -> bool:
    """True if ONNX Runtime has a kernel in some opset that takes this dtype for a type variable: where it has none, no
    model in which the pattern matches runs.  What has a body, or runs in float32 between Casts, may run without one."""
    found = [s for s in schema.versions(domain, op_type) if any(v.type_var == variable for v in s.inputs)]
    name = f"tensor({dtype.name.lower()})"
    takers = [s for s in found if any(name in v.types for v in s.inputs if v.type_var == variable)]
    if dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16) or any(map(schema.has_body, takers)):
        return bool(takers)
    runtime = target("onnxruntime-cpu")
    return any(runtime.refuses(domain, op_type, s.since_version, {variable: dtype}) is None for s in takers)


def places(known: schema.Schema, call: Call) -> list[tuple[Term, schema.Formal]]:
    """The operands of a call that are terms, each with what the schema says of it; the last says it of all the rest."""
    rest = itertools.repeat(known.inputs[-1]) if known.inputs and known.inputs[-1].variadic else ()
    formals = itertools.chain(known.inputs, rest)
    return [(o, f) for o, f in zip(call.inputs, formals, strict=False) if isinstance(o, Term)]
