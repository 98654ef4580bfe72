"""Exporter drift: whether every export of one network is raised to the same graph.

    python -m benchmarks.drift [NETWORK ...] [--check fast] [--json FILE]

Without a NETWORK: all of ``golden_models/drift``.  Only the rules that canonicalize and raise are applied.  Two graphs
are the same where they are isomorphic: operators, attributes, wiring, names of inputs, and constants but for rounding.
Opset versions, names of what is inside, metadata, and the order of the operands of ``+`` do not count.

What is computed from sizes that are known becomes a constant, a mask for instance.  So exports with static axes are
compared with each other, and those with dynamic axes.  For each class the table says how it differs from that of the
larger ones which is most like it: in the number of operators, and in the first node of either that the other has not.
"""

from __future__ import annotations

import sys
import tarfile
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnx_ir as ir

import onnxrewrite as rw
from benchmarks import report
from onnxrewrite.compiler.request import CheckLevel
from onnxrewrite.io.statistics import operator_name
from onnxrewrite.ir.graph import constant_tensor
from onnxrewrite.ir.schema import attribute, schema
from onnxrewrite.pattern.look import COMMUTATIVE
from onnxrewrite.rewrite import registry

Array: TypeAlias = np.ndarray[Any, Any]

ARCHIVES = Path(__file__).resolve().parents[1] / "golden_models" / "drift"
AXES = ("static", "dynamic")

_ROUNDING = 1e-5
"""Constants may differ by so much of the largest element: factors are folded into them in one order or another."""

_SHOWN = 6
"""So many numbers of a constant are shown."""


def networks() -> list[str]:
    """The networks that there are exports of."""
    return sorted(path.name.partition(".")[0] for path in ARCHIVES.glob("*.tar.xz"))


def exports(network: str) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Each export of a network, called by exporter, opset, implementation of attention, and axes."""
    with tarfile.open(ARCHIVES / f"{network}.tar.xz") as archive:
        for entry in archive:
            file = archive.extractfile(entry)
            assert file is not None
            yield entry.name.removesuffix(".onnx"), onnx.load_model_from_string(file.read())


def raised(model: onnx.ModelProto, check: CheckLevel = "off") -> ir.Model:
    """A model, rewritten by the rules that canonicalize and raise."""
    lowering = [rule.name for rule in registry.load() if rule.stage == rw.rules.Stage.LOWER]
    return rw.apply(model, without=lowering, check=check, lower="fused").model


@dataclass(eq=False)
class Portrait:
    """A graph as it is compared with others.

    Two graphs of equal ``shades`` and ``outputs`` are isomorphic, as long as no shade occurs twice: a node is found in
    the other graph by its shade.  ``merge-equal-nodes`` sees to that.

    Attributes:
        shades: Of each node, a number that is shared by all nodes that compute the same from the same.
        outputs: The shade of each output.
        nodes: A node in words, by shade, in the order in which they are computed.
        operators: The number of times that each operator occurs.
    """

    shades: Counter[int]
    outputs: tuple[int, ...]
    nodes: dict[int, str]
    operators: Counter[str]

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Portrait) and self.shades == other.shades and self.outputs == other.outputs

    def distance(self, other: Portrait) -> int:
        """By how many operators they differ."""
        return ((self.operators - other.operators) + (other.operators - self.operators)).total()

    def difference(self, other: Portrait) -> str:
        """The operators that the other has more and less, and the first node of each that is not in the other."""
        more, less = other.operators - self.operators, self.operators - other.operators
        counts = [f"{sign}{n} {name}" for sign, each in (("+", more), ("-", less)) for name, n in sorted(each.items())]
        here, there = self._beyond(other), other._beyond(self)
        return f"{' '.join(counts) or 'operators equal'}; {there} for {here}"

    def _beyond(self, other: Portrait) -> str:
        return next((text for shade, text in self.nodes.items() if shade not in other.shades), "nothing")


@dataclass
class Studio:
    """Makes portraits that can be compared with each other."""

    _numbers: dict[Hashable, int] = field(default_factory=dict)
    _constants: defaultdict[Hashable, list[Array]] = field(default_factory=lambda: defaultdict(list))

    def portrait(self, model: ir.Model) -> Portrait:
        """The portrait of ``model``, node by node; a node with a subgraph equals no other."""
        shades: dict[ir.Value | None, int] = {None: self._number(None)}
        found = Portrait(Counter(), (), {}, Counter())

        def shade(value: ir.Value | None) -> int:
            if value not in shades:
                assert value is not None
                tensor = constant_tensor(value)
                label = (
                    ("input", value.name)
                    if tensor is None
                    else ("constant", tensor.dtype, self._constant(tensor.numpy()))
                )
                shades[value] = self._number(label)
            return shades[value]

        for node in model.graph:
            if node.op_type == "Constant":
                continue
            operands = [shade(v) for v in node.inputs]
            name = operator_name(node)
            settings = tuple((name, self._setting(value)) for name, value in _attributes(node, model))
            made = self._number((name, settings, *(sorted(operands) if name in COMMUTATIVE else operands)))
            shades |= {o: self._number((made, place)) for place, o in enumerate(node.outputs)}
            found.shades[made] += 1
            found.operators[name] += 1
            found.nodes.setdefault(made, _described(node))
        found.outputs = tuple(shade(v) for v in model.graph.outputs)
        return found

    def _number(self, label: Hashable) -> int:
        return self._numbers.setdefault(label, len(self._numbers))

    def _setting(self, value: Any) -> Hashable:
        return self._constant(np.array(value, np.float32)) if isinstance(value, float) else str(value)

    def _constant(self, array: Array) -> Hashable:
        """A key of a constant, the same for constants of its kind that differ by rounding only."""
        kind = array.dtype, array.shape
        known = self._constants[kind]
        place = next((i for i, each in enumerate(known) if _close(each, array)), len(known))
        if place == len(known):
            known.append(array)
        return *kind, place


def _close(a: Array, b: Array) -> bool:
    if a.dtype.kind != "f" or not a.size:
        return np.array_equal(a, b)
    return np.allclose(a, b, rtol=0, atol=_ROUNDING * float(np.abs(a[np.isfinite(a)]).max(initial=0)), equal_nan=True)


def _attributes(node: ir.Node, model: ir.Model) -> Iterator[tuple[str, Any]]:
    """Names and values of attributes, defaults among them."""
    version = node.version or model.opset_imports.get(node.domain)
    found = schema(node.domain, node.op_type, version)
    for name in sorted({*node.attributes, *(found.attributes if found is not None else ())}):
        value = attribute(node, name, version)
        if value is not None:
            yield name, value


def _described(node: ir.Node) -> str:
    operands = (("" if v is None else _value(v)) for v in node.inputs)
    settings = "".join(f" {a.name}={a.value}" for a in node.attributes.values())
    return f"{operator_name(node)}({', '.join(operands)}{settings})"


def _value(value: ir.Value) -> str:
    producer, tensor = value.producer(), constant_tensor(value)
    if tensor is not None:
        numbers = ", ".join(f"{x:g}" for x in tensor.numpy().ravel()[:_SHOWN])
        return f"{{{numbers}}}" if tensor.size <= _SHOWN else f"{tensor.dtype.name.lower()}{list(tensor.shape)}"
    return f"{operator_name(producer)}(…)" if producer is not None else f"{value.name}"


def classes(portraits: Mapping[str, Portrait]) -> list[list[str]]:
    """The names of portraits that are equal, the largest class first."""
    found: list[list[str]] = []
    for name, portrait in portraits.items():
        equal = next((each for each in found if portraits[each[0]] == portrait), None)
        if equal is None:
            found.append([name])
        else:
            equal.append(name)
    return sorted(found, key=len, reverse=True)


def rows(portraits: Mapping[str, Portrait]) -> list[report.Row]:
    """The classes of a network's exports, a row each, static and dynamic ones apart."""
    made: list[report.Row] = []
    for axes in AXES:
        found = classes({name: p for name, p in portraits.items() if name.endswith(axes)})
        members = [portraits[names[0]] for names in found]
        for number, names in enumerate(found):
            made.append(
                {
                    "class": f"{axes} {number + 1}",
                    "exports": len(names),
                    "nodes": members[number].shades.total(),
                    "which": " ".join(n.removesuffix(f"-{axes}") for n in names),
                    "difference": _from_nearest(members, number),
                }
            )
    return made


def _from_nearest(members: Sequence[Portrait], number: int) -> str:
    """The difference of the numbered class from the most similar of the larger ones; empty for the first."""
    if not number:
        return ""
    nearest = min(range(number), key=lambda i: members[i].distance(members[number]))
    return f"from {nearest + 1}: {members[nearest].difference(members[number])}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit code."""
    options = report.parser(__doc__)
    options.add_argument("networks", nargs="*", metavar="NETWORK", help="default: all")
    options.add_argument("--check", choices=("off", "fast", "full"), default="off", help="of each result (default off)")
    given = options.parse_args(argv)
    tell, studio = report.Report("drift"), Studio()
    for network in given.networks or networks():
        found = {name: studio.portrait(raised(model, given.check)) for name, model in exports(network)}
        made = rows(found)
        tell.table(network, made)
        for axes in AXES:
            of = sum(str(row["class"]).startswith(axes) for row in made)
            tell.goal(f"{network}, {axes} axes: different graphs", of, 1, unit="graphs")
    return tell.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
