"""A part of a model that still shows a fault: nodes are left out as long as it does.

Every value of one run is known, so any nodes make a model: what they read and nobody of them computes becomes an input.
Zeller and Hildebrandt, *Simplifying and isolating failure-inducing input*, IEEE TSE 28(2), 2002.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import onnx
from onnx import helper

from onnxrewrite.system.arrays import Array

Shows = Callable[[onnx.ModelProto, Mapping[str, Array]], bool]
"""Tells whether a model shows the fault on its inputs."""


def reduced(
    model: onnx.ModelProto, values: Mapping[str, Array], shows: Shows, *, seconds: float
) -> tuple[onnx.ModelProto, dict[str, Array]] | None:
    """A part of the model of as few nodes as were found in so many seconds, and its inputs; None if no part shows it.

    Args:
        model: The model, weights included.
        values: The values of one run by name, those of inputs too; what is not among them cannot become an input.
        shows: Asked of parts.
        seconds: No part is tried after these.
    """
    end = time.monotonic() + seconds
    kept = list(range(len(model.graph.node)))

    def attempt(nodes: Sequence[int]) -> bool:
        made = _part(model, values, nodes)
        return made is not None and shows(*made)

    if not attempt(kept):
        return None
    size = max(1, len(kept) // 2)
    while time.monotonic() < end:
        progress, at = False, 0
        while at < len(kept) and time.monotonic() < end:
            rest = kept[:at] + kept[at + size :]
            if rest and attempt(rest):
                kept, progress = rest, True
            else:
                at += size
        if size == 1 and not progress:
            break
        size = max(1, size // 2)
    return _part(model, values, kept)


def with_all_values(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with every value of its graph as an output, after its own."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    there = {value.name for value in made.graph.output}
    for node in made.graph.node:
        for name in node.output:
            if name and name not in there:
                there.add(name)
                made.graph.output.add(name=name)
    return made


def operators_of(path: Path) -> dict[str, int]:
    """Nodes of a model by operator, in its main graph; none where it cannot be read."""
    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception:  # what a version writes may be what another cannot read
        return {}
    names = (f"{n.domain}.{n.op_type}" if n.domain not in ("", "ai.onnx") else n.op_type for n in model.graph.node)
    return dict(sorted(Counter(names).items()))


def _part(
    model: onnx.ModelProto, values: Mapping[str, Array], nodes: Sequence[int]
) -> tuple[onnx.ModelProto, dict[str, Array]] | None:
    """The model of some nodes; None where one of its inputs is not known."""
    chosen = [model.graph.node[n] for n in nodes]
    computed = {name for node in chosen for name in node.output if name}
    read = list(dict.fromkeys(name for node in chosen for name in _reads(node) if name and name not in computed))
    weights = {each.name: each for each in model.graph.initializer}
    declared = {each.name: each for each in model.graph.input}
    inputs = [name for name in read if name not in weights or name in declared]
    if any(name not in values and name not in weights for name in inputs):
        return None
    inside = {name for node in chosen for name in _reads(node)}
    wanted = {value.name for value in model.graph.output}
    outputs = [name for node in chosen for name in node.output if name and (name in wanted or name not in inside)]
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    for name in (
        "node",
        "initializer",
        "input",
        "output",
        "value_info",
        "sparse_initializer",
        "quantization_annotation",
    ):
        graph.ClearField(name)
    graph.node.extend(chosen)
    graph.initializer.extend(weights[name] for name in read if name in weights)
    graph.input.extend(_input(name, declared, values) for name in inputs if name in values or name in declared)
    for name in outputs:
        graph.output.add(name=name)
    return made, {name: values[name] for name in inputs if name in values}


def _input(name: str, declared: Mapping[str, onnx.ValueInfoProto], values: Mapping[str, Array]) -> onnx.ValueInfoProto:
    if name in declared:
        return declared[name]
    value = values[name]
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), list(value.shape))


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    """The values that a node reads, those of its subgraphs from outside included."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs) if attribute.HasField("g") or attribute.graphs else ():
            own = {each.name for each in (*graph.input, *graph.initializer)}
            own |= {name for inner in graph.node for name in inner.output}
            yield from (name for inner in graph.node for name in _reads(inner) if name not in own)
            yield from (each.name for each in graph.output if each.name not in own)
