"""Exporter drift: whether every export of one network is raised to the same graph.

    python -m benchmarks.drift [NETWORK ...] [--check fast] [--json FILE]

Without a NETWORK: all of ``golden_models/drift``.  Only the rules that canonicalize and raise are applied.
``portraits.py`` says when two graphs are the same.

What is computed from sizes that are known becomes a constant, a mask for instance.  So exports with static axes are
compared with each other, and those with dynamic axes.  For each class the table says how it differs from that of the
larger ones which is most like it: in the number of operators, and in the first node of either that the other has not.

Exports of different functions are no one graph.  So the first of each class runs, as it was exported, beside the first
of that other one: at inputs as in use, and with a mask of zeros, which lets nothing count.  *apart* is the largest
difference of an output, of its largest element.  Goal: one graph for each function.
"""

from __future__ import annotations

import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir

import onnxrewrite as rw
from benchmarks import report
from benchmarks.portraits import Portrait, Studio
from onnxrewrite.compiler.request import CheckLevel
from onnxrewrite.errors import ModelError
from onnxrewrite.inputs.workload import workload
from onnxrewrite.rewrite import registry
from onnxrewrite.runtime.session import open_session
from onnxrewrite.system.arrays import Array, Feeds

ARCHIVES = Path(__file__).resolve().parents[1] / "golden_models" / "drift"
AXES = ("static", "dynamic")

_GAPS = ("apart, as used", "apart, masked")

_ROUNDING = 1e-5
"""Outputs of one function differ by less of the largest element: each export adds up in an order of its own."""


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


def rows(portraits: Mapping[str, Portrait], models: Mapping[str, onnx.ModelProto]) -> list[report.Row]:
    """The classes of a network's exports, a row each, static and dynamic ones apart."""
    made: list[report.Row] = []
    for axes in AXES:
        found = classes({name: p for name, p in portraits.items() if name.endswith(axes)})
        members = [portraits[names[0]] for names in found]
        for number, names in enumerate(found):
            row: report.Row = {
                "class": f"{axes} {number + 1}",
                "exports": len(names),
                "nodes": members[number].operators.total(),
                "which": " ".join(n.removesuffix(f"-{axes}") for n in names),
                "difference": "",
                **dict.fromkeys(_GAPS),
            }
            if number:
                nearest = _nearest(members, number)
                row["difference"] = f"from {nearest + 1}: {members[nearest].difference(members[number])}"
                row |= zip(_GAPS, gaps(models[found[nearest][0]], models[names[0]]), strict=True)
            made.append(row)
    return made


def _nearest(members: Sequence[Portrait], number: int) -> int:
    """Which of the larger classes is most similar to the numbered one."""
    return min(range(number), key=lambda i: members[i].distance(members[number]))


def gaps(one: onnx.ModelProto, other: onnx.ModelProto) -> tuple[float, float]:
    """The largest difference of outputs, of the largest element: at inputs as in use, and with masks of zeros."""
    feeds = workload(one).feeds
    tensors = {name: np.asarray(value) for name, value in feeds.items()}
    masks = {name: np.zeros_like(x) for name, x in tensors.items() if x.dtype.kind in "ib" and set(x.flat) <= {0, 1}}
    return _gap(one, other, feeds), _gap(one, other, tensors | masks)


def _gap(one: onnx.ModelProto, other: onnx.ModelProto, feeds: Feeds) -> float:
    found = [_outputs(model, feeds) for model in (one, other)]
    pairs = list(zip(*found, strict=True))
    return max(float(np.abs(a - b).max(initial=0.0) / max(np.abs(a).max(initial=0.0), 1e-30)) for a, b in pairs)


def _outputs(model: onnx.ModelProto, feeds: Feeds) -> list[Array]:
    session = open_session(model)
    outputs = session if isinstance(session, str) else session.run(feeds)
    if isinstance(outputs, str):
        raise ModelError(outputs)
    return [np.asarray(value, np.float64) for value in outputs.values()]


def _graphs_of_one_function(made: Sequence[report.Row]) -> int:
    """The number of graphs, but for those that are shown to compute something else than the one they are most like."""
    return sum(all(float(row[gap] or 0) <= _ROUNDING for gap in _GAPS) for row in made)


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit code."""
    options = report.parser(__doc__)
    options.add_argument("networks", nargs="*", metavar="NETWORK", help="default: all")
    options.add_argument("--check", choices=("off", "fast", "full"), default="off", help="of each result (default off)")
    given = options.parse_args(argv)
    tell, studio = report.Report("drift"), Studio()
    for network in given.networks or networks():
        models = dict(exports(network))
        found = {name: studio.portrait(raised(model, given.check)) for name, model in models.items()}
        made = rows(found, models)
        tell.table(network, made)
        for axes in AXES:
            of = _graphs_of_one_function([row for row in made if str(row["class"]).startswith(axes)])
            tell.goal(f"{network}, {axes} axes: different graphs of one function", of, 1, unit="graphs")
    return tell.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
