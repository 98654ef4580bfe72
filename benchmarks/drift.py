"""Exporter drift: whether every export of one network is raised to the same graph.

    python -m benchmarks.drift [NETWORK ...] [--check fast] [--json FILE]

Without a NETWORK: all of ``golden_models/drift``.  Only the rules that canonicalize and raise are applied.
``portraits.py`` says when two graphs are the same.

What is computed from sizes that are known becomes a constant, a mask for instance.  So exports with static axes are
compared with each other, and those with dynamic axes.  For each class the table says how it differs from that of the
larger ones which is most like it: in the number of operators, and in the first node of either that the other has not.
"""

from __future__ import annotations

import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnx_ir as ir

import onnxrewrite as rw
from benchmarks import report
from benchmarks.portraits import Portrait, Studio
from onnxrewrite.compiler.request import CheckLevel
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
                    "nodes": members[number].operators.total(),
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
