"""The kernel horizon: standard operators whose newest version has no CPU kernel in ONNX Runtime, and what they become.

    python -m benchmarks.horizon [--write] [--json FILE]

Made from the registries of the installed onnx and ONNX Runtime; ``--write`` renews ``docs/horizon.md``.  What becomes
of an operator:

- *opset N*: the model is lowered to the newest opset in which there is a kernel;
- *function body*: ONNX Runtime runs the body that the standard gives the operator;
- *parts*: that body does not run either, and its parts do;
- *nothing*: no version has a kernel or a body, and a model with it does not run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

from benchmarks import report
from onnxrewrite.ir import schema
from onnxrewrite.ir.target import Target, target

PAGE = Path(__file__).resolve().parents[1] / "docs" / "horizon.md"

_HEAD = """# The kernel horizon

ONNX Runtime has kernels for some versions of an operator only. A model of a newer opset can contain operators that it
cannot load. `apply` makes such a model runnable, and compares the result with the form that runs. The report says what
was done. `--opset N` keeps the opset.

- *opset N*: the model is lowered to the newest opset that has a kernel.
- *function body*: ONNX Runtime runs the body that the standard gives the operator. Where it has an operator of its own
  (`LinearAttention`, `CausalConvWithState`, `MultiHeadAttention`), `apply` writes that if it is measured to be faster.
- *parts*: ONNX Runtime does not run the body either. `apply` replaces the operator by its parts.
- *nothing*: no version has a kernel or a body.

This table is made by `python -m benchmarks.horizon --write` for onnx {onnx} and ONNX Runtime {ort}, for operators of
opset {opset} on a CPU.

| operator | newest version | newest kernel | becomes |
|---|---|---|---|
"""


def rows() -> Iterator[report.Row]:
    """Operators without a kernel of their newest version."""
    cpu, newest = target("onnxruntime-cpu"), target("onnxruntime-cpu").opset_max
    for name in sorted(schema.operator_names()):
        found = schema.schema("", name, newest)
        if found is None or name == "Constant" or cpu.kernel_version(name, newest) == found.since_version:
            continue
        known = cpu.kernel_version(name, newest)
        yield {
            "operator": name,
            "newest version": found.since_version,
            "newest kernel": known,
            "becomes": _becomes(cpu, name, newest),
        }


def _becomes(cpu: Target, name: str, opset: int) -> str:
    lowered = cpu.newest_opset(name, opset)
    if lowered < opset:
        return f"opset {lowered}"
    if not schema.has_body(schema.schema("", name, opset)):
        return "nothing"
    return "function body" if cpu.runs_body(name, opset) else "parts"


def page(found: Sequence[report.Row]) -> str:
    """The page with the table."""
    head = _HEAD.format(onnx=version("onnx"), ort=version("onnxruntime"), opset=target("onnxruntime-cpu").opset_max)
    lines = [
        f"| `{r['operator']}` | {r['newest version']} | {r['newest kernel'] or '-'} | {r['becomes']} |" for r in found
    ]
    return head + "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit code."""
    options = report.parser(__doc__)
    options.add_argument("--write", action="store_true", help="renew the page in docs/")
    given = options.parse_args(argv)
    tell, found = report.Report("horizon"), list(rows())
    tell.table("Operators without a kernel of their newest version", found)
    if given.write:
        PAGE.write_text(page(found), encoding="utf-8")
    return tell.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
