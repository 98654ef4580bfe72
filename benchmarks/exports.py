"""What networks have, counted from their definitions, and what is found of it in what exporters made of them.

    python -m benchmarks.exports [PATH ...] [--only NAME ...] [--nodes] [--json FILE]

A PATH is a folder of ``NAME.onnx`` files with a ``NAME.toml`` beside each, or an archive of such files
(``golden_models/exporters`` makes both).  Without one: the archives there.

Each model is rewritten for opset 24, with standard operators alone.  A row each, with what was found of what there is:
attentions, normalizations and activations by kind, rotary embeddings.  Of what is known not to be found,
``golden_models/exporters/missing.toml`` gives the reason; it counts as missing all the same.  What an exporter left
out, or wrote as another function, is not in its file, and does not count.
"""

from __future__ import annotations

import sys
import tarfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx
import onnx_ir as ir

import onnxrewrite as rw
from benchmarks import report
from onnxrewrite.compiler.request import Lowering
from onnxrewrite.ir.graph import scopes
from onnxrewrite.pattern.paths import made_by
from onnxrewrite.runtime.session import one_line

EXPORTS = Path(__file__).resolve().parents[1] / "golden_models" / "exporters"

OPERATORS = {
    "attention": ("Attention", "MultiHeadAttention", "GroupQueryAttention"),
    "rotary": ("RotaryEmbedding",),
    "layer": ("LayerNormalization", "SkipLayerNormalization"),
    "rms": ("RMSNormalization", "SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization"),
    "group": ("GroupNormalization",),
    "instance": ("InstanceNormalization",),
    "gelu": ("Gelu", "FastGelu", "BiasGelu"),
    "swish": ("Swish", "QuickGelu"),
    "hardswish": ("HardSwish",),
    "mish": ("Mish",),
}
"""Kind of part to the operators that are it: ours, and those that an exporter has written itself."""


@dataclass(frozen=True)
class Export:
    """A network as an exporter wrote it.

    Attributes:
        name: ``exporter/network``.
        model: The file's content.
        parts: What the network has, by kind.
    """

    name: str
    model: bytes
    parts: Counter[str]


@dataclass
class Found:
    """What became of an export.

    Attributes:
        parts: How many of each kind are one operator.
        nodes: How many of each operator there are.
        before: The number of nodes of the export.
        failure: The reason why there is no result.
    """

    parts: Counter[str] = field(default_factory=Counter)
    nodes: Counter[str] = field(default_factory=Counter)
    before: int = 0
    failure: str = ""


def exports(path: Path) -> Iterator[Export]:
    """The exports of a folder and of those below it, or of an archive."""
    if path.is_dir():
        for model in sorted(path.rglob("*.onnx")):
            yield _export(model.parent.name, model.stem, model.read_bytes(), model.with_suffix(".toml").read_bytes())
        return
    with tarfile.open(path) as archive:
        files = {entry.name: file.read() for entry in archive if (file := archive.extractfile(entry)) is not None}
    for name in (n.removesuffix(".onnx") for n in files if n.endswith(".onnx")):
        yield _export(path.name.partition(".")[0], name, files[f"{name}.onnx"], files[f"{name}.toml"])


def committed() -> list[Path]:
    """The archives that are in the repository."""
    return sorted(EXPORTS.glob("*.tar.xz"))


def stated() -> dict[str, dict[str, dict[str, int]]]:
    """What ``missing.toml`` says, by export."""
    return tomllib.loads((EXPORTS / "missing.toml").read_text(encoding="utf-8"))


def known(name: str, what: str = "missing") -> dict[str, int]:
    """What is said of an export: how many parts of each kind."""
    return dict(stated().get(name, {}).get(what, {}))


def _export(exporter: str, name: str, model: bytes, facts: bytes) -> Export:
    said = tomllib.loads(facts.decode("utf-8"))
    parts = Counter(said["normalizations"]) + Counter(said["activations"])
    parts += Counter(attention=said["attentions"], rotary=said["rotary"])
    full = f"{exporter}/{name}"
    return Export(full, model, parts - Counter(known(full, "absent")) + Counter(known(full, "instead")))


def found(export: Export) -> Found:
    """What is found in an export, in the operators of the standard or in those that ONNX Runtime has kernels for.

    The standard's newest opset has an operator for more, but its Attention does not take each mask that a kernel takes.
    """
    ways: tuple[tuple[Lowering, int | None], ...] = (("portable", 24), ("fused", None))
    forms: list[Found] = []
    for lower, opset in ways:
        try:
            forms.append(_in_form(export, lower, opset))
        except Exception as error:  # whatever a model does to us
            return Found(failure=one_line(error))
    standard, fused = forms
    return Found(standard.parts | fused.parts, standard.nodes, standard.before)


def _in_form(export: Export, lower: Lowering, opset: int | None) -> Found:
    result = rw.apply(onnx.load_model_from_string(export.model), check="fast", lower=lower, opset=opset)
    nodes = _operators(result.model)
    parts = Counter({kind: sum(nodes[each] for each in operators) for kind, operators in OPERATORS.items()})
    by_groups = sum(map(_is_by_groups, (n for scope in scopes(result.model) for n in scope)))
    parts += Counter(group=by_groups)
    parts["instance"] -= by_groups
    parts["rotary"] += 2 * sum(n.attributes.get_int("do_rotary", 0) for scope in scopes(result.model) for n in scope)
    return Found(parts, nodes, _operators(result.original).total())


def _is_by_groups(node: ir.Node) -> bool:
    """True for a normalization of groups of channels: ONNX Runtime has one for channels, which is given views."""
    if node.op_type != "InstanceNormalization":
        return False
    before, after = node.inputs[0], {n.op_type for n in node.outputs[0].consumers()}
    return made_by(before, "Reshape") is not None and after == {"Reshape"}


def missing(export: Export, result: Found) -> Counter[str]:
    """How many parts of each kind are not one operator."""
    return export.parts - result.parts


def _operators(model: ir.Model) -> Counter[str]:
    return Counter(n.op_type for scope in scopes(model) for n in scope if n.op_type != "Constant")


def row(export: Export, result: Found, nodes: bool = False) -> report.Row:
    """The table's row of an export; with the operators that it has now, if asked for."""
    lost = missing(export, result)
    made: report.Row = {
        "network": export.name,
        "nodes": result.before,
        "after": result.nodes.total(),
        "has": _said(export.parts),
        "missing": result.failure or _said(lost),
    }
    if nodes:
        made["left"] = _said(Counter(dict(result.nodes.most_common()))) if lost else ""
    return made


def _said(parts: Mapping[str, int]) -> str:
    return " ".join(f"{kind} {count}" for kind, count in parts.items() if count)


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit code."""
    options = report.parser(__doc__)
    options.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="folders and archives (default: ours)")
    options.add_argument("--only", nargs="+", metavar="NAME", help="networks, as EXPORTER/NETWORK")
    options.add_argument("--nodes", action="store_true", help="tell the operators left where something is missing")
    given = options.parse_args(argv)
    tell = report.Report("exports")
    for path in given.paths or committed():
        rows, lost, there = [], Counter[str](), 0
        for export in exports(path):
            if given.only and export.name not in given.only:
                continue
            result = found(export)
            rows.append(row(export, result, given.nodes))
            lost += missing(export, result)
            there += export.parts.total()
        if rows:
            tell.table(path.name.partition(".")[0], rows)
            share = 100 * (1 - lost.total() / there) if there else 100.0
            tell.goal(f"{path.name.partition('.')[0]}: parts found", share, 100, unit="%", least=True)
    return tell.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
