"""The report of ``inspect`` on a model: as plain data, and as a table."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict

import onnx
import onnx_ir as ir
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from onnxrewrite.io import external, preserved
from onnxrewrite.io.statistics import file_bytes, operator_counts
from onnxrewrite.ir.graph import scopes
from onnxrewrite.report import human
from onnxrewrite.report.table import facts_grid, plain_table

_MAX_OPERATORS = 12
_MAX_VALUES = 20


class ValueRow(TypedDict):
    """An input or output; ``overridable``: the file has a default for it."""

    name: str
    type: str
    overridable: bool


class WeightsRow(TypedDict):
    """The weights: number and bytes, bytes by dtype, and what lies outside of the file."""

    tensors: int
    bytes: int
    dtypes: dict[str, int]
    external_bytes: int
    external_files: list[str]


class Inspection(TypedDict):
    """The contents of a model.

    ``opsets``: domain to version; ``dims``: the names of symbolic sizes of the inputs; ``operators``: to count;
    ``nodes``: their sum; ``constants``: Constant nodes; ``functions``: to number of nodes; ``size``: bytes, external
    weights included; ``repairs``: what had to be repaired to read it.
    """

    model: str | None
    producer: str
    ir_version: int | None
    opsets: dict[str, int]
    graph: str | None
    metadata: dict[str, str]
    inputs: list[ValueRow]
    outputs: list[ValueRow]
    dims: list[str]
    operators: dict[str, int]
    nodes: int
    constants: int
    subgraphs: int
    functions: dict[str, int]
    size: int
    weights: WeightsRow
    repairs: list[str]


def inspection(model: ir.Model, path: str | os.PathLike[str] | None = None) -> Inspection:
    """The contents of a model that ``io.load`` read."""
    known = preserved.origin(model)
    assert known is not None, "io.load returns models with an origin"
    operators = operator_counts(model)
    all_scopes = scopes(model)
    main = (model.graph, *model.functions.values())
    weights = _weights(model)
    return {
        "model": os.fspath(path) if path is not None else known.path,
        "producer": " ".join(p for p in (model.producer_name, model.producer_version) if p),
        "ir_version": model.ir_version,
        "opsets": {
            name: version for name, version in model.opset_imports.items() if not name.startswith(preserved.OWN)
        },
        "graph": model.graph.name,
        "metadata": dict(sorted(model.metadata_props.items())),
        "inputs": _interface(known.inputs, _defaults(model)),
        "outputs": _interface(known.outputs, set()),
        "dims": _symbols(known.inputs),
        "operators": operators,
        "nodes": sum(operators.values()),
        "constants": sum(len(g) for g in all_scopes) - sum(operators.values()),
        "subgraphs": len(all_scopes) - len(main),
        "functions": {f"{f.domain}.{f.name}": len(f) for f in model.functions.values()},
        "size": file_bytes(model),
        "weights": weights,
        "repairs": list(known.repairs),
    }


def _interface(values: Iterable[onnx.ValueInfoProto], defaults: set[str]) -> list[ValueRow]:
    return [{"name": v.name, "type": type_text(v.type), "overridable": v.name in defaults} for v in values]


def _defaults(model: ir.Model) -> set[str]:
    return {v.name or "" for v in model.graph.inputs if preserved.default_of(v) is not None}


def type_text(proto: onnx.TypeProto) -> str:
    """``float32[batch, 3, ?]``; ``[...]`` where not even the rank is known."""
    kind = proto.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        tensor = getattr(proto, kind)
        dtype = ir.DataType(tensor.elem_type).name.lower() if tensor.elem_type else "unknown"
        name = {"float": "float32", "double": "float64"}.get(dtype, dtype)
        dims = ", ".join(map(_dim, tensor.shape.dim)) if tensor.HasField("shape") else "..."
        return f"{'sparse ' if kind.startswith('sparse') else ''}{name}[{dims}]"
    if kind in ("sequence_type", "optional_type"):
        return f"{kind.partition('_')[0]}({type_text(getattr(proto, kind).elem_type)})"
    if kind == "map_type":
        key = ir.DataType(proto.map_type.key_type).name.lower()
        return f"map({key}, {type_text(proto.map_type.value_type)})"
    return "unknown"


def _dim(dim: onnx.TensorShapeProto.Dimension) -> str:
    return str(dim.dim_value) if dim.HasField("dim_value") else dim.dim_param or "?"


def _symbols(inputs: Iterable[onnx.ValueInfoProto]) -> list[str]:
    dims = (d for v in inputs if v.type.HasField("tensor_type") for d in v.type.tensor_type.shape.dim)
    return list(dict.fromkeys(d.dim_param for d in dims if d.dim_param))


def _weights(model: ir.Model) -> WeightsRow:
    with preserved.completed(model):
        tensors = [s.tensor for s in external.slots(model)]
    outside = [t for t in tensors if isinstance(t, ir.ExternalTensor)]
    dtypes: Counter[str] = Counter()
    for tensor in tensors:
        dtypes[tensor.dtype.name.lower()] += tensor.nbytes
    largest_first = sorted(dtypes.items(), key=lambda item: (-item[1], item[0]))
    return {
        "tensors": len(tensors),
        "bytes": sum(t.nbytes for t in tensors),
        "dtypes": dict(largest_first),
        "external_bytes": sum(t.nbytes for t in outside),
        "external_files": sorted({os.fspath(t.location) for t in outside}),
    }


def inspection_report(data: Inspection, *, verbose: bool = False) -> RenderableType:
    """The same for people."""
    opsets = [f"{domain or 'ai.onnx'} {version}" for domain, version in data["opsets"].items()]
    head = Text.assemble((str(data["model"]), "bold"), f": opset {', '.join(opsets)}; IR version {data['ir_version']}")
    if data["producer"]:
        head.append(f"; by {data['producer']}")
    parts: list[RenderableType] = [head, ""]
    for kind, values in (("input", data["inputs"]), ("output", data["outputs"])):
        if values:
            parts += [_values(kind, values, None if verbose else _MAX_VALUES), ""]
    if data["operators"]:
        parts += [_operators(data["operators"], None if verbose else _MAX_OPERATORS), ""]
    return Group(*parts, facts_grid(_facts(data)))


def _values(kind: str, values: Sequence[ValueRow], limit: int | None) -> RenderableType:
    table = plain_table(kind, "type", *([""] if any(v["overridable"] for v in values) else []))
    for value in values[:limit]:
        default = ["has a default, can be overridden" if value["overridable"] else ""] if len(table.columns) > 2 else []
        table.add_row(Text(value["name"]), Text(value["type"]), *default)
    if limit is not None and len(values) > limit:
        table.add_row(Text(f"{len(values) - limit} more (-v lists them)", "dim"), "")
    return Padding(table, (0, 0, 0, 2))


def _operators(operators: Mapping[str, int], limit: int | None) -> RenderableType:
    table = plain_table("operator", "nodes>")
    ranked = sorted(operators.items(), key=lambda item: (-item[1], item[0]))
    for name, count in ranked[:limit]:
        table.add_row(Text(name), str(count))
    if limit is not None and len(ranked) > limit:
        rest = ranked[limit:]
        table.add_row(Text(f"{len(rest)} other operators (-v lists them)", "dim"), str(sum(n for _, n in rest)))
    return Padding(table, (0, 0, 0, 2))


def _facts(data: Inspection) -> list[tuple[str, str]]:
    weights = data["weights"]
    nodes = human.plural(data["nodes"], "node")
    if data["constants"]:
        nodes += f" and {human.plural(data['constants'], 'Constant')}"
    if data["subgraphs"]:
        nodes += f", in {human.plural(data['subgraphs'], 'subgraph')} too"
    tensors = f"{human.plural(weights['tensors'], 'tensor')}, {human.size(weights['bytes'])}"
    dtypes = human.listed(f"{name} {human.size(count)}" for name, count in weights["dtypes"].items())
    facts = [
        ("Nodes", nodes),
        ("Size", human.size(data["size"])),
        ("Weights", f"{tensors}: {dtypes}" if dtypes else tensors),
    ]
    if weights["external_files"]:
        files = human.listed(weights["external_files"], 5)
        facts.append(("External", f"{human.size(weights['external_bytes'])} in {files}"))
    if data["dims"]:
        facts.append(("Sizes", f"symbolic: {', '.join(data['dims'])}"))
    if data["functions"]:
        functions = (f"{name} ({human.plural(count, 'node')})" for name, count in data["functions"].items())
        facts.append(("Functions", human.listed(functions, 10)))
    if data["metadata"]:
        facts.append(("Metadata", human.listed(data["metadata"], 10)))
    return facts + [("Repaired", line) for line in data["repairs"]]
