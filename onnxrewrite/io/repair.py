"""Bad models are refused with one line; harmless faults are repaired, and each repair is said.

The checks read the protobuf before anything is built from it, because onnx_ir guesses where a file is wrong.
This module must not know how models are stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import onnx
import onnx_ir as ir

from onnxrewrite.errors import ModelError
from onnxrewrite.io import fields
from onnxrewrite.ir import protos
from onnxrewrite.ir.graph import subgraphs
from onnxrewrite.ir.names import Names, rename, repeated
from onnxrewrite.ir.protos import nested
from onnxrewrite.ir.schema import latest_version, newest_opset, normal_domain, schema, standard_domains

DEEPEST: Final = 64
"""Graphs inside graphs; a file that protobuf can read has no more than 33."""

MOST_NODES: Final = 2**18
"""Nodes of a model with functions when every call is written out: the libraries that read it do so at every step."""

Definers: TypeAlias = dict[str, str]
"""Value name → who defines it."""

_Called: TypeAlias = tuple[str, str, str]
"""Domain, name and overload of an operator or a function."""


def check(proto: onnx.ModelProto, folder: str | None, where: str, weights: Container[str] = ()) -> None:
    """ModelError unless every name is defined once, opsets are known and external data are there.

    ``weights``: initializers of the main graph whose data are known to be there.
    """
    _check_header(proto, where)
    _check_functions(proto, where)
    for graph in (proto.graph, *proto.functions):
        is_function = isinstance(graph, onnx.FunctionProto)
        _check_opsets(graph if is_function else proto, where)
        _Checker(folder, where, () if is_function else weights).body(graph, [])
    for info in proto.training_info:  # not looked at, but written as it is
        for graph in (info.initialization, info.algorithm):
            for tensor in graph.initializer:
                fields.check_tensor(tensor, folder, f"{where}: initializer '{tensor.name}' of the training information")


def _check_header(proto: onnx.ModelProto, where: str) -> None:
    if proto.ir_version <= 0:
        raise ModelError(f"{where}: has no IR version; it is not a complete ONNX model")
    if proto.ir_version > onnx.IR_VERSION:
        raise ModelError(
            f"{where}: IR version {proto.ir_version} is newer than {onnx.IR_VERSION}, the newest this onnx "
            "knows; upgrade onnx"
        )
    if not proto.graph.output:
        raise ModelError(f"{where}: its graph has no outputs; there is nothing to compute")


def _check_functions(proto: onnx.ModelProto, where: str) -> None:
    """ModelError for two functions of one name, for one that calls itself, and where calls of calls are too many."""
    functions = {(normal_domain(f.domain), f.name, f.overload): f for f in proto.functions}
    if len(functions) < len(proto.functions):
        twice = repeated(f"{normal_domain(f.domain)}.{f.name}" for f in proto.functions)
        raise ModelError(f"{where}: function {twice} is defined twice")
    calls = {key: _calls(f.node) for key, f in functions.items()}
    sizes: dict[_Called, int] = {}
    while left := functions.keys() - sizes:  # take away those that call nothing that is left
        leaves = [key for key in left if left.isdisjoint(calls[key])]
        if not leaves:
            domain, name, _ = min(left)
            raise ModelError(f"{where}: function {domain}.{name} calls itself")
        sizes.update({key: _expanded(calls[key], sizes) for key in leaves})
    total = _expanded(_calls(proto.graph.node), sizes)
    if functions and total > MOST_NODES:
        raise ModelError(f"{where}: its functions call one another so often that it has {total:.1e} nodes in all")


def _calls(nodes: Iterable[onnx.NodeProto]) -> Counter[_Called]:
    """The number of calls of each operator or function, in subgraphs too."""
    return Counter((normal_domain(n.domain), n.op_type, n.overload) for n in nested(nodes))


def _expanded(calls: Counter[_Called], sizes: Mapping[_Called, int]) -> int:
    """The number of nodes when the functions of known size are written out."""
    return sum(count * (1 + sizes.get(key, 0)) for key, count in calls.items())


def _check_opsets(proto: onnx.ModelProto | onnx.FunctionProto, where: str) -> None:
    if not proto.opset_import:
        raise ModelError(f"{where}: says no opset (no opset_import); export it again")
    versions = check_versions(((each.domain, each.version) for each in proto.opset_import), where)
    body = proto.graph.node if isinstance(proto, onnx.ModelProto) else proto.node
    for node in nested(body):
        domain = normal_domain(node.domain)
        if domain in standard_domains() and domain not in versions:
            raise ModelError(
                f"{where}: uses {node.op_type} of {domain or 'ai.onnx'}, but imports no opset of it; export it again"
            )
        fields.check_attributes(node, versions.get(domain), f"{where}: {_called(node)}")
        if "" in node.input and domain == "":
            _check_operands(node, versions.get(domain), where)


def _check_operands(node: onnx.NodeProto, version: int | None, where: str) -> None:
    """Refuse a node that leaves out one of any number of operands: none of these is optional, and ONNX Runtime reads
    it all the same, which stops the process."""
    found = schema("", node.op_type, version)
    many = found is not None and found.inputs and found.inputs[-1].variadic
    if found is not None and many and "" in node.input[len(found.inputs) - 1 :]:
        raise ModelError(f"{where}: {_called(node)} leaves out an operand, none of which is optional")


def check_versions(imports: Iterable[tuple[str, int]], where: str) -> dict[str, int]:
    """The opset of each domain; ModelError for one that contradicts another or is not known."""
    versions: dict[str, int] = {}
    for spelled, version in imports:
        domain = normal_domain(spelled)
        name = domain or "ai.onnx"
        if versions.setdefault(domain, version) != version:
            raise ModelError(f"{where}: imports two opsets of {name}: {versions[domain]} and {version}")
        if version <= 0:
            raise ModelError(f"{where}: opset {version} of {name} does not exist")
        if domain in standard_domains() and version > latest_version(domain):
            raise ModelError(
                f"{where}: opset {version} of {name} is newer than {latest_version(domain)}, the newest this "
                "onnx knows; upgrade onnx or convert the model"
            )
    return versions


def _called(node: onnx.NodeProto) -> str:
    return f"node '{node.name}' ({node.op_type})" if node.name else f"an unnamed {node.op_type}"


class _Checker:
    """Definitions and uses, scope by scope."""

    def __init__(self, folder: str | None, where: str, weights: Container[str]) -> None:
        self.folder = folder
        self.where = where
        self.weights = weights

    def body(self, graph: onnx.GraphProto | onnx.FunctionProto, outer: Sequence[Definers]) -> None:
        if len(outer) > DEEPEST:
            raise ModelError(f"{self.where}: its graphs are nested too deeply")
        own: Definers = {}
        is_function = isinstance(graph, onnx.FunctionProto)
        for name in graph.input if is_function else (each.name for each in graph.input):
            if name in own:
                raise ModelError(f"{self.where}: graph input '{name}' is listed twice")
            own[name] = "a graph input"
        if not is_function:
            self.initializers(graph, own, () if outer else self.weights)
        values = (graph.value_info,) if is_function else (graph.input, graph.output, graph.value_info)
        for info in (each for kind in values for each in kind):
            fields.check_type(info.type, f"{self.where}: value '{info.name}'")
        for node in graph.node:
            for name in node.output:
                if name in own:
                    raise ModelError(
                        f"{self.where}: value '{name}' is defined twice: by {own[name]} and by {_called(node)}"
                    )
                if name:
                    own[name] = _called(node)
        visible = [*outer, own]
        for node in graph.node:
            self.node(node, visible)
        for name in graph.output if is_function else (each.name for each in graph.output):
            if name not in own:
                raise ModelError(f"{self.where}: graph output '{name}' is not produced by anything")

    def initializers(self, graph: onnx.GraphProto, own: Definers, weights: Container[str]) -> None:
        seen: set[str] = set()
        for tensor in (t for t in graph.initializer if t.name not in weights):
            fields.check_tensor(tensor, self.folder, f"{self.where}: initializer '{tensor.name}'")
        for sparse in graph.sparse_initializer:
            fields.check_sparse(sparse, self.folder, f"{self.where}: initializer '{sparse.values.name}'")
        names = [t.name for t in graph.initializer] + [t.values.name for t in graph.sparse_initializer]
        for name in names:
            if not name:
                raise ModelError(f"{self.where}: an initializer has no name")
            if name in seen:
                raise ModelError(f"{self.where}: initializer '{name}' is defined twice")
            seen.add(name)
            own.setdefault(name, "an initializer")

    def node(self, node: onnx.NodeProto, visible: Sequence[Definers]) -> None:
        if not node.op_type:
            raise ModelError(f"{self.where}: {_called(node)}: has no operator")
        if not node.output and normal_domain(node.domain) in standard_domains():
            raise ModelError(f"{self.where}: {_called(node)}: has no output")
        for name in node.input:
            if name and not any(name in names for names in visible):
                raise ModelError(f"{self.where}: input '{name}' of {_called(node)} is not produced by anything")
        for attr in node.attribute:
            what = f"{self.where}: attribute '{attr.name}' of {_called(node)}"
            for tensor in (*([attr.t] if attr.HasField("t") else ()), *attr.tensors):
                fields.check_tensor(tensor, self.folder, what)
            for proto in (*([attr.tp] if attr.HasField("tp") else ()), *attr.type_protos):
                fields.check_type(proto, what)
            for sparse in (*([attr.sparse_tensor] if attr.HasField("sparse_tensor") else ()), *attr.sparse_tensors):
                fields.check_sparse(sparse, self.folder, what)
        for graph in protos.subgraphs(node):
            self.body(graph, visible)


def repair_header(proto: onnx.ModelProto) -> list[str]:
    """Spell ``ai.onnx`` as ``""``, import what is used, name attribute types, count axes of permutations from the
    front, leave negative sizes unknown."""
    said = _clear_negative_sizes(proto.graph)
    for owner, body in ((proto, proto.graph.node), *((f, f.node) for f in proto.functions)):
        imports = {normal_domain(each.domain): each.version for each in owner.opset_import}
        if len(imports) != len(owner.opset_import) or any(e.domain == "ai.onnx" for e in owner.opset_import):
            said.append('opset import "ai.onnx" written as ""')
        for node in nested(body):
            domain = normal_domain(node.domain)
            if domain not in imports:
                imports[domain] = 1
                said.append(f"opset import of {domain}, used by {_called(node)}, was missing: version 1 assumed")
            _name_attribute_types(node, said)
        said += _count_axes(nested(body))
        if owner is proto and "" not in imports:  # and so no node uses it, but what replaces one may
            imports[""] = newest_opset(proto.ir_version)
            said.append(f"no opset of ai.onnx is imported: {imports['']} taken, for IR version {proto.ir_version}")
        del owner.opset_import[:]
        owner.opset_import.extend(onnx.helper.make_opsetid(*each) for each in imports.items())
    return said


def _clear_negative_sizes(graph: onnx.GraphProto) -> list[str]:
    """Leave the sizes unknown that a file says to be negative: no shape that is inferred agrees with these."""
    said: list[str] = []
    for value in (*graph.input, *graph.output, *graph.value_info):
        sizes = [d for d in value.type.tensor_type.shape.dim if d.dim_value < 0]
        for size in sizes:
            size.ClearField("dim_value")
        if sizes:
            said.append(f"negative size of {value.name} is unknown")
    return said


def _name_attribute_types(node: onnx.NodeProto, said: list[str]) -> None:
    """Files of the first IR versions may leave an attribute's type to be seen from its value."""
    for attr in node.attribute:
        if attr.type == onnx.AttributeProto.UNDEFINED and not attr.ref_attr_name:
            found = fields.filled(attr)
            if len(found) == 1:
                attr.type = found[0]
                said.append(f"type of attribute '{attr.name}' of {_called(node)} was missing")


def _count_axes(nodes: Iterable[onnx.NodeProto]) -> list[str]:
    """TorchScript's ``movedim`` counts axes of a permutation from the end, which ONNX Runtime does not open."""
    found: list[str] = []
    turns = (n for n in nodes if n.op_type == "Transpose" and not normal_domain(n.domain))
    for node, attr in ((n, a) for n in turns for a in n.attribute if a.name == "perm"):
        counted = [axis % len(attr.ints) for axis in attr.ints]
        if counted != list(attr.ints) and sorted(counted) == list(range(len(counted))):
            found.append(f"perm of {_called(node)}, {list(attr.ints)}, counts from the end: {counted} taken")
            attr.ints[:] = counted
    more = f", and likewise of {len(found) - 1} more" if len(found) > 1 else ""
    return [found[0] + more] if found else []


def graph_tree(graph: ir.Graph) -> Iterator[ir.Graph]:
    """The graph, then its subgraphs: outer before inner, in the order of the nodes."""
    yield graph
    for node in graph:
        for inner in subgraphs(node):
            yield from graph_tree(inner)


def in_order(graph: ir.Graph, outer: Sequence[set[ir.Value]] = ()) -> bool:
    """True if every node comes after the producers of its inputs, in subgraphs too."""
    own = {*graph.inputs, *graph.initializers.values()}
    visible = [*outer, own]
    for node in graph:
        if any(v is not None and not any(v in values for values in visible) for v in node.inputs):
            return False
        if not all(in_order(inner, visible) for inner in subgraphs(node)):
            return False
        own.update(node.outputs)
    return True


def repair(model: ir.Model, where: str) -> list[str]:
    """Sort nodes and make names unique, in place; what was done, a line for each kind of repair."""
    said: list[str] = []
    roots = [model.graph, *(function.graph for function in model.functions.values())]
    for root in roots:
        if not in_order(root):
            try:
                root.sort()
            except ValueError:
                raise ModelError(f"{where}: the graph has a cycle through {_on_cycle(root)}") from None
            said.append(f"nodes of graph '{root.name or ''}' sorted: some came before what they read")
    for root in roots:
        graphs = list(graph_tree(root))
        said += _unique_values(graphs)
        said += _unique_nodes(graphs)
    return said


def _on_cycle(root: ir.Graph) -> str:
    """A node that depends on itself."""
    left = {node: 0 for graph in graph_tree(root) for node in graph}
    owner = {inner: node for node in left for graph in subgraphs(node) for inner in graph}
    after: dict[ir.Node, list[ir.Node]] = {node: [] for node in left}
    for node in left:
        before = [v.producer() for v in node.inputs if v is not None]
        for each in [n for n in before if n in left and n is not None]:
            after[each].append(node)
            left[node] += 1
        if node in owner:
            after[node].append(owner[node])
            left[owner[node]] += 1
    ready = [node for node, count in left.items() if count == 0]
    while ready:
        done = ready.pop()
        del left[done]
        for node in after[done]:
            left[node] -= 1
            ready += [node] if left[node] == 0 else []
    node = next(iter(left))
    return f"node '{node.name}' ({node.op_type})"


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    seen = dict.fromkeys((*graph.inputs, *graph.initializers.values()))
    yield from seen
    for node in graph:
        yield from node.outputs


def _unique_values(graphs: Sequence[ir.Graph]) -> list[str]:
    """Outer names stay; an inner value whose name is taken gets another one."""
    everywhere = Names(value.name for graph in graphs for value in _values(graph) if value.name)
    taken: set[str] = set()
    renamed: list[tuple[str, str]] = []
    for graph in graphs:
        for value in _values(graph):
            if not value.name:
                continue
            if value.name not in taken:
                taken.add(value.name)
                continue
            old, new = value.name, everywhere.fresh(value.name)
            rename(value, new)
            taken.add(new)
            renamed.append((old, new))
    return _told("value", renamed)


def _unique_nodes(graphs: Sequence[ir.Graph]) -> list[str]:
    everywhere = Names(node.name for graph in graphs for node in graph if node.name)
    taken: set[str] = set()
    renamed: list[tuple[str, str]] = []
    unnamed: list[str] = []
    for graph in graphs:
        for node in graph:
            if node.name and node.name not in taken:
                taken.add(node.name)
                continue
            old, node.name = node.name, everywhere.fresh(node.name or node.op_type)
            taken.add(node.name)
            if old:
                renamed.append((old, node.name))
            else:
                unnamed.append(node.name)
    if unnamed:
        count = f"{len(unnamed)} nodes without" if len(unnamed) > 1 else "1 node without"
        return [*_told("node", renamed), f"{count} a name: named, the first '{unnamed[0]}'"]
    return _told("node", renamed)


def _told(kind: str, renamed: Sequence[tuple[str, str]]) -> list[str]:
    if not renamed:
        return []
    old, new = renamed[0]
    rest = f", and {len(renamed) - 1} more" if len(renamed) > 1 else ""
    return [f"{kind} name '{old}' was used twice: one is now '{new}'{rest}"]
