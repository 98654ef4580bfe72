"""The graphs before and after as plain data for a page to draw: nodes, edges, groups.

Constants are left out, as they are in all counts.  A node of the result lies where that lay which it stands for, so
that the groups of both sides are the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from onnxrewrite.io.statistics import operator_name
from onnxrewrite.ir import text
from onnxrewrite.report.html.groups import Group, Path, module
from onnxrewrite.rewrite.trace import FROM_KEY, RULE_KEY
from onnxrewrite.system.plain import Json

_MANY_ENDS = 6
_MAX_TEXT = 300
"""Longer lines tell nobody more."""


@dataclass(frozen=True)
class Vertex:
    """A node, or an input or output of the model.

    Attributes:
        name: Of the node, or of the value.
        operator: ``Add``, ``com.microsoft.FusedConv``; empty for inputs and outputs, which no operator's name is.
        text: The node as a line of text; ``input`` or ``output``.
        path: The groups that it lies in by what the model says.
        values: The values that it computes.
        is_made: True if a rule made it.
        origin: The original nodes that it stands for, if a rule made it.
    """

    name: str
    operator: str
    text: str = ""
    path: Path = ()
    values: tuple[str, ...] = ()
    is_made: bool = False
    origin: tuple[str, ...] = ()

    @property
    def is_node(self) -> bool:
        """True if it is neither an input nor an output of the model."""
        return self.operator != ""


@dataclass
class Drawing:
    """One model as it is drawn: vertices in computing order, and from which to which there is an edge.

    Attributes:
        by_name: The number of the node of a name, the first where functions have the same names.
        by_value: The number of the node that computes a value.
    """

    vertices: list[Vertex] = field(default_factory=list)
    edges: dict[tuple[int, int], None] = field(default_factory=dict)
    by_name: dict[str, int] = field(default_factory=dict)
    by_value: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, model: ir.Model) -> Drawing:
        """The drawing of a model, its subgraphs and functions."""
        drawing = cls()
        known: dict[ir.Value, int] = {}
        for value in model.graph.inputs:
            known[value] = drawing._add(Vertex(value.name or "", "", "input", _end("inputs", model.graph.inputs)))
        drawing._draw(model.graph, None, known)
        for function in model.functions.values():
            drawing._draw(function.graph, (f"function {function.domain}.{function.name}",), known)
        for value in model.graph.outputs:
            vertex = Vertex(value.name or "", "", "output", _end("outputs", model.graph.outputs))
            drawing._connect([value], drawing._add(vertex), known)
        return drawing

    def _draw(self, graph: ir.Graph, within: Path | None, known: dict[ir.Value, int]) -> None:
        """The nodes of a graph; inside ``within``, or where they themselves say."""
        for node in graph:
            if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
                continue
            path = module(node) if within is None else within
            number = self._add(_vertex(node, path))
            self._connect(node.inputs, number, known)
            known.update(dict.fromkeys(node.outputs, number))
            for inner, label in _bodies(node):
                self._draw(inner, (*path, label), known)
                self._connect(inner.outputs, number, known)

    def _add(self, vertex: Vertex) -> int:
        number = len(self.vertices)
        self.vertices.append(vertex)
        if vertex.is_node:
            self.by_name.setdefault(vertex.name, number)
            for value in vertex.values:
                self.by_value.setdefault(value, number)
        return number

    def _connect(self, values: Iterable[ir.Value | None], reader: int, known: dict[ir.Value, int]) -> None:
        self.edges.update({(known[v], reader): None for v in values if v is not None and v in known})


def _end(kind: str, values: Sequence[ir.Value]) -> Path:
    """The group of an input or output of the model: one for all where there are many, as with cached keys."""
    return (f"model {kind}",) if len(values) > _MANY_ENDS else ()


def _vertex(node: ir.Node, path: Path) -> Vertex:
    props = node.metadata_props
    is_made = RULE_KEY in props
    return Vertex(
        name=node.name or "",
        operator=operator_name(node),
        text=_cut(text.print_node(node)),
        path=path,
        values=tuple(o.name or "" for o in node.outputs),
        is_made=is_made,
        origin=tuple(json.loads(props.get(FROM_KEY, "[]"))) if is_made else (),
    )


def _cut(line: str) -> str:
    first, newline, _ = line.partition("\n")
    return f"{first[:_MAX_TEXT]} …" if newline or len(first) > _MAX_TEXT else first


def _bodies(node: ir.Node) -> Iterator[tuple[ir.Graph, str]]:
    """The graphs inside a node, and what each is called."""
    short = (node.name or node.op_type).rpartition("/")[2]
    for attribute in node.attributes.values():
        if not attribute.is_ref() and attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph(), f"{short} {attribute.name}"
        elif not attribute.is_ref() and attribute.type == ir.AttributeType.GRAPHS:
            yield from ((g, f"{short} {attribute.name} {i}") for i, g in enumerate(attribute.as_graphs()))


def twins(before: Drawing, after: Drawing) -> dict[int, int]:
    """Each vertex of the result that no rule made, to what it was: by its name, else by its first value."""
    ends = {(v.text, v.name): n for n, v in enumerate(before.vertices) if not v.is_node}
    found: dict[int, int] = {}
    for number, vertex in enumerate(after.vertices):
        if vertex.is_made:
            continue
        then = ends.get((vertex.text, vertex.name)) if not vertex.is_node else _counterpart(vertex, before)
        if then is not None:
            found[number] = then
    return found


def _counterpart(vertex: Vertex, before: Drawing) -> int | None:
    numbers = (before.by_name.get(vertex.name), before.by_value.get(vertex.values[0]) if vertex.values else None)
    return next((n for n in numbers if n is not None and before.vertices[n].operator == vertex.operator), None)


def sides(before: Drawing, after: Drawing, same: dict[int, int]) -> tuple[dict[str, Json], dict[str, Json]]:
    """Both graphs as plain data, the result's nodes in the groups of the original's.

    - ``nodes``: ``[name, operator, group, twin, text]`` each; ``twin`` is the number of the same node on the other
      side, or -1 for one that is gone, or new;
    - ``edges``: the numbers of the two nodes, one after the other for all edges;
    - ``groups``: ``[label, group around it, path]`` each; the first is the whole graph, in no other (-1).
    """
    old = Group.of([v.path for v in before.vertices])
    places = old.paths()
    homes = []
    for number, vertex in enumerate(after.vertices):
        then = same.get(number, next((before.by_name[n] for n in vertex.origin if n in before.by_name), None))
        homes.append(vertex.path if then is None else places[then])
    new = Group.of(homes)
    return _side(before, old, {then: now for now, then in same.items()}), _side(after, new, same)


def _side(drawing: Drawing, top: Group, twin: dict[int, int]) -> dict[str, Json]:
    top.simplify()
    top.unwrap({number for number, vertex in enumerate(drawing.vertices) if not vertex.is_node})
    groups = list(top.below())
    parents = {id(inner): place for place, group in enumerate(groups) for inner in group.groups.values()}
    home = {number: place for place, group in enumerate(groups) for number in group.nodes}
    return {
        "nodes": [[v.name, v.operator, home[n], twin.get(n, -1), v.text] for n, v in enumerate(drawing.vertices)],
        "edges": [number for edge in drawing.edges for number in edge],
        "groups": [[g.label, parents.get(id(g), -1), "/".join(g.path)] for g in groups],
    }
