"""The text form of graphs: ``parse``, ``print_model``, ``print_graph``, ``print_node``,
``print_rewrite``, ``diff``.

The form is ONNX's own text syntax (``onnx.parser``) with constants written where they are used.  It is what
rules give as examples, what tests compare and what explanations show.  Must not know: rules, targets, facts.

What ``parse`` reads
--------------------

A model in full, a graph with its header, or a *snippet*: statements and nothing else. ::

    d = Div(x, 1.41421356)  e = Erf(d)  a = Add(e, 1.0)  m = Mul(x, a)  y = Mul(m, 0.5)

    model      = [ "<" key ":" value, ... ">" ] ( graph | statement* ) function*
    graph      = [ name ] [ "(" declaration, ... ")" ] "=>" [ "(" declaration, ... ")" ]
                 [ "<" declaration, ... ">" ] "{" statement* "}"
    statement  = node | declaration | name "=" literal | "input" declaration         (";" may stand between)
    node       = [ "[" name "]" ] name, ... "=" [ domain "." ] op [ ":" overload ] [ "<" attribute, ... ">" ]
                 "(" operand, ... attribute, ... ")" [ "<" attribute, ... ">" ]
    operand    = name | literal | nothing
    literal    = number | "{" number, ... "}" | type number | type "{" number, ... "}" | type "~"
               | type sha256:... | type external "[" "location" ":" string, ... "]"
    declaration = [ type ] name [ "=" literal ]
    attribute  = name [ ":" kind ] "=" ( number | string | literal | type | graph | "@" name | "[" ..., "]" )
    type       = dtype [ "[" dims "]" ] | seq(type) | optional(type) | sparse_tensor(dtype [ "[" dims "]" ])

Where a snippet leaves something out: a name that nothing defines is an input, float of unknown rank unless
declared, in order of first mention; the outputs are the values that no node reads.  A graph header with
inputs lists all of them.  ``input w = float[2] {1, 2}`` is an initializer that a caller may override.

A literal becomes an initializer ``c0``, ``c1``, ... (in a function, a Constant).  Its dtype, where none is
written, is that of another operand under the same type variable of the schema, else float, int64 or the first
that the schema allows.  ``float[64,64] ~`` is a dummy weight: standard normal values (integers: 0 to 7) that
depend on nothing but the name of the initializer, so on its number where it stands in operand position.

In a complete ONNX model text, ``float16[1] {15872}`` is a bit pattern, as ``onnx.printer`` writes it; with a
decimal point, and anywhere else, a number is the value.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

import onnx_ir as ir

from onnxrewrite.errors import ModelError
from onnxrewrite.ir.text import elaborate
from onnxrewrite.ir.text.printer import INLINE_ELEMENTS, LOAD_LIMIT, Printer, model_header
from onnxrewrite.ir.text.sides import print_rewrite
from onnxrewrite.system.arrays import Array

__all__ = [
    "INLINE_ELEMENTS",
    "LOAD_LIMIT",
    "diff",
    "parse",
    "print_graph",
    "print_model",
    "print_node",
    "print_rewrite",
]


def parse(
    text: str,
    *,
    opset: int = 17,
    domains: Mapping[str, int] | None = None,
    ir_version: int = 10,
    weights: Mapping[str, Array] | None = None,
) -> ir.Model:
    """Read a model, a graph or a snippet.

    Args:
        text: See the module's docstring.
        opset: Version of the default domain, where the text has no ``opset_import``.
        domains: Versions of other domains, 1 where not given.  Only those that the text uses are imported.
        ir_version: IR version, where the text gives none.
        weights: Arrays for constants of which the text has only a hash, by name or by that hash.

    Raises:
        ModelError: One line: what is wrong, at which line and column, and what stands there.

    """
    proto = elaborate.build(text, opset, domains or {}, ir_version, weights or {})
    try:
        return ir.from_proto(proto)
    except Exception as error:
        reason = str(error.__cause__ or error).strip().splitlines()
        raise ModelError(f"the text is no valid model: {reason[0] if reason else error!r}") from error


def print_model(model: ir.Model, *, canonical_names: bool = False) -> str:
    """The text of a model; the same for the same model, always.

    Args:
        model: Anything but its doc strings, node metadata and types of inner values is printed.
        canonical_names: Call the values ``v0``, ``v1``, ... in an order that follows from structure alone,
            put the nodes in it, leave out all other names and the producer: equal structures print equally.

    """
    printer = Printer(canonical_names, model.opset_imports)
    functions = list(model.functions.values())
    if canonical_names:
        functions.sort(key=lambda function: function.identifier())
    parts = [model_header(model, canonical_names), *printer.graph(model.graph)]
    for function in functions:
        parts += Printer(canonical_names, function.opset_imports).function(function)
    return "\n".join(parts) + "\n"


def print_graph(graph: ir.Graph | ir.GraphView | ir.Function, *, canonical_names: bool = False) -> str:
    """The text of one graph, with its header and without the model's; see ``print_model``."""
    printer = Printer(canonical_names, {} if isinstance(graph, ir.GraphView) else graph.opset_imports)
    lines = printer.function(graph) if isinstance(graph, ir.Function) else printer.graph(graph)
    return "\n".join(lines) + "\n"


def print_node(node: ir.Node) -> str:
    """The text of one node: one line, or several where it has inner graphs."""
    opsets = node.graph.opset_imports if node.graph is not None else {}
    return "\n".join(Printer(canonical=False, opsets=opsets).node(node))


def diff(
    before: ir.Model | ir.Graph | ir.Function,
    after: ir.Model | ir.Graph | ir.Function,
    *,
    context: int = 2,
    canonical_names: bool = False,
) -> str:
    """The changes, as a unified diff of the two texts with ``context`` lines around; empty if there are none.

    By default with the models' own names, so that a line that did not change reads the same on both sides.
    """
    old, new = (_print(each, canonical_names).splitlines() for each in (before, after))
    lines = difflib.unified_diff(old, new, "before", "after", n=context, lineterm="")
    return "".join(f"{line}\n" for line in lines)


def _print(what: ir.Model | ir.Graph | ir.Function, canonical_names: bool) -> str:
    if isinstance(what, ir.Model):
        return print_model(what, canonical_names=canonical_names)
    return print_graph(what, canonical_names=canonical_names)
