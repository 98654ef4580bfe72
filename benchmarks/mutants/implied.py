"""Dtypes that a pattern asks for and would get without asking: nothing else fits what it takes and gives."""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from onnxrewrite.ir import schema
from onnxrewrite.pattern.terms import (
    FLOATS,
    AnyOf,
    Call,
    Capture,
    Literal,
    Power,
    Product,
    Scalar,
    Sum,
    Term,
    children,
    walk,
)


def implied(root: Term, term: Term, dtypes: Collection[ir.DataType]) -> bool:
    """True if every match of ``root`` has one of ``dtypes`` at ``term``, even if the pattern does not require it."""
    match root:
        case AnyOf(alternatives=alternatives):
            return all(implied(each, term, dtypes) for each in alternatives)
        case Call():
            forced = all(_takes_only(op_type, root, term, dtypes) for op_type in root.op_types)
        case Sum() | Product():
            is_fraction = any(isinstance(c, Scalar) or _is_fraction(c) for c in children(root))
            forced = is_fraction and _has_dtype_of(root, term) and set(FLOATS) <= set(dtypes)
        case _:
            forced = False
    return forced or any(implied(each, term, dtypes) for each in children(root))


def _is_fraction(term: Term) -> bool:
    return isinstance(term, Literal) and term.value != round(term.value)


def _takes_only(op_type: str, call: Call, term: Term, dtypes: Collection[ir.DataType]) -> bool:
    """True if an operator takes no other dtypes for ``term``: by its schema, or to match another operand."""
    known = schema.schema(call.domain, op_type, None)
    places = [(o, f) for o, f in zip(call.inputs, known.inputs, strict=False) if isinstance(o, Term)] if known else []
    mine = [f for o, f in places if _has_dtype_of(o, term)]
    names, variables = {f"tensor({d.name.lower()})" for d in dtypes}, {f.type_var for f in mine}
    beside = (o for o, f in places if f.type_var in variables and not _has_dtype_of(o, term))
    return any(f.types <= names for f in mine) or any(_has_one_of(o, dtypes) for o in beside)


def _has_one_of(term: Term, dtypes: Collection[ir.DataType]) -> bool:
    """True if a capture in ``term`` that is restricted to ``dtypes`` decides the dtype of ``term``."""
    asked = (t for t in walk(term) if isinstance(t, Capture) and t.dtypes is not None and t.dtypes <= set(dtypes))
    return any(_has_dtype_of(term, each) for each in asked)


def _has_dtype_of(root: Term, term: Term) -> bool:
    """True if ``root`` has the dtype of ``term``, because its operators preserve it."""
    if root is term:
        return True
    match root:
        case AnyOf(alternatives=alternatives):
            return all(_has_dtype_of(each, term) for each in alternatives)
        case Sum() | Product() | Power():
            return any(_has_dtype_of(each, term) for each in children(root))
        case Call():
            known = [schema.schema(root.domain, op_type, None) for op_type in root.op_types]
            return all(k is not None and _hands_on(k, root, term) for k in known)
    return False


def _hands_on(known: schema.Schema, call: Call, term: Term) -> bool:
    places = zip(call.inputs, known.inputs, strict=False)
    result = known.outputs[0].type_var
    return any(f.type_var == result and isinstance(o, Term) and _has_dtype_of(o, term) for o, f in places)
