"""onnxscript's own rules in our driver: what they do to real models and to graphs on which they are wrong.

    python -m benchmarks.interop [MODEL ...] [--only PART ...] [--beside] [--json FILE]

Without a MODEL: every one below ``../shared/models``.  Each set of onnxscript's rules, ``default`` and ``ort_fusions``,
is run without ours (with ``--beside``: with them), with all checks.  Parts, each with its goals:

- ``models``: per model how many rewrites were applied, how many were refused where their pattern matches, and how many
  of them a check refuted; no result may differ from its original, none may fail;
- ``traps``: small graphs on which onnxscript is known to be wrong or to be tempted; what it does alone, and here: no
  result may differ, and what it does wrong alone is refuted or refused here.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx
import onnxscript.rewriter
from onnxscript.rewriter import RewriteRuleSet

import onnxrewrite as rw
from benchmarks import report
from benchmarks.checking import CORPUS, models
from onnxrewrite import io
from onnxrewrite.checks.rewrites import UNCHECKED
from onnxrewrite.interop.onnxscript import Adapted, load
from onnxrewrite.ir import text
from onnxrewrite.runtime.session import one_line

SETS = ("default", "ort_fusions")
PARTS = ("models", "traps")
OURS = "onnxrewrite-patterns"

_CONV = "float[n,2,5,5] x; c = Conv(x, float[2,2,3,3] ~)"
_FOUR = "{1.5, 0.5}, {0.25, -1.0}, {0.5, 0.0}, {1.0, 2.0}"
_GELU = "d = Div(x, {root})  e = Erf(d)  a = Add(e, {one})  m = Mul(x, a)  y = Mul(m, {half})"

TRAPS: Mapping[str, str] = {
    "Clip(Clip), ranges that do not meet": "float[n,3] x; a = Clip(x, 0.0, 1.0)  y = Clip(a, 2.0, 3.0)",
    "Clip(Clip), the other way round": "float[n,3] x; a = Clip(x, 2.0, 3.0)  y = Clip(a, 0.0, 1.0)",
    "Relu(Clip) below zero": "float[n,3] x; a = Clip(x, -3.0, -1.0)  y = Relu(a)",
    "Clip(Relu) below zero": "float[n,3] x; a = Relu(x)  y = Clip(a, -3.0, -1.0)",
    "Min(Max), bounds that cross": "float[n,3] x; a = Max(x, 2.0)  y = Min(a, 1.0)",
    "Max(Min), bounds that cross": "float[n,3] x; a = Min(x, 1.0)  y = Max(a, 2.0)",
    "Min(Max), a bound that raises the rank": "float[n] x; a = Max(x, float[1,1] {0})  y = Min(a, 6.0)",
    "Min(Min) of lists": "float[n,3] x; a = Min(x, {1.0, 2.0, 3.0})  y = Min(a, float[2,3] {3,2,1,1,2,3})",
    "x · 1.000009 in double": "double[n,3] x; m = Mul(x, double {1.000009})  y = Tanh(m)",
    "x + 1e-9 in double": "double[n,3] x; m = Add(x, double {1e-9})  d = Sub(m, x)  y = Mul(d, double {1e9})",
    "x / 1.000009 in double": "double[n,3] x; m = Div(x, double {1.000009})  y = Tanh(m)",
    "1 that callers may override": "input o = float {1}  float[n,3] x; m = Mul(x, o)  y = Tanh(m)",
    "0 that callers may override": "input o = float {0}  float[n,3] x; m = Add(x, o)  y = Tanh(m)",
    "a bound that callers may override": "input o = float {6}  float[n,3] x; a = Max(x, 0.0)  y = Min(a, o)",
    "½ that callers may override": "input h = float {0.5}  float[n,3] x; "
    + _GELU.format(root=1.4142135, one=1.0, half="h"),
    "weights that callers may override": "input w = float[2,2,3,3] ~  float[n,2,5,5] x; c = Conv(x, w)"
    f"  y = BatchNormalization(c, {_FOUR})",
    "BatchNormalization in training": "(float[n,2,5,5] x) => (y) { c = Conv(x, float[2,2,3,3] ~)"
    f"  y, m, v = BatchNormalization(c, {_FOUR}, training_mode=1) }}",
    "BatchNormalization, another epsilon": f"{_CONV}  y = BatchNormalization(c, {_FOUR}, epsilon=0.5)",
    "BatchNormalization of a shared Conv": f"{_CONV}  y = BatchNormalization(c, {_FOUR})  z = Relu(c)",
    "Gemm with factors into BatchNormalization": "float[n,3] x; g = Gemm(x, float[3,2] ~, {1.0, 2.0}, alpha=0.5,"
    f" beta=2.0)  y = BatchNormalization(g, {_FOUR})",
    "int64 through float to float16": "int64[n,3] x; a = Cast(x, to=1)  y = Cast(a, to=10)",
    "double through float to float16": "double[n,3] x; a = Cast(x, to=1)  y = Cast(a, to=10)",
    "Reshape(Reshape) with 0": "float[2,3,4] x; a = Reshape(x, {6,4})  y = Reshape(a, {0,2,2})",
    "Reshape(Reshape) of a batch of none": "float[n,3,4] x; a = Reshape(x, {-1,12})  y = Reshape(a, {-1,3,4})",
    "Flatten of an unknown rank": "float x; y = Flatten(x, axis=1)",
    "Slices of an odd size": "float[2,5] x; a = Slice(x, {0}, {2}, {-1})  b = Slice(x, {2}, {5}, {-1})",
    "Slice backwards": "float[2,5] x; a = Slice(x, {-1}, {-6}, {1}, {-1})  y = Relu(a)",
    "Transposes that do not cancel": "float[2,3,4] x; a = Transpose(x, perm=[1,2,0])  y = Transpose(a, perm=[1,2,0])",
    "Unsqueeze(Unsqueeze) at the same place": "float[2,3] x; a = Unsqueeze(x, {1})  y = Unsqueeze(a, {1})",
    "Pad by -∞ into MaxPool": "float[n,2,5,5] x; p = Pad(x, {0,0,1,1,0,0,1,1}, -1.0)"
    "  y = MaxPool(p, kernel_shape=[2,2])",
    "Pad by 1 into Conv": "float[n,2,5,5] x; p = Pad(x, {0,0,1,1,0,0,1,1}, 1.0)  y = Conv(p, float[2,2,3,3] ~)",
    "Pad of channels into Conv": "float[n,2,5,5] x; p = Pad(x, {0,1,1,1,0,1,1,1})  y = Conv(p, float[2,4,3,3] ~)",
    "Dropout in training": "float[n,3] x; d = Dropout(x, 0.5, true)  y = Relu(d)",
    "GELU whose √2 is 1.41": f"float[n,3] x; {_GELU.format(root=1.41, one=1.0, half=0.5)}",
    "GELU whose 1 is 1.000009, in double": "double[n,3] x; d = Div(x, double {1.4142135623730951})  e = Erf(d)"
    "  a = Add(e, double {1.000009})  m = Mul(x, a)  y = Mul(m, double {0.5})",
    "softmax that is cast up": "float16[n,3] x; a = Cast(x, to=1)  s = Softmax(a, axis=-1)  y = Cast(s, to=10)",
    "MatMul of a Transpose of batches": "float[2,3,4] x; float[2,3,5] w; t = Transpose(x, perm=[0,2,1])"
    "  y = MatMul(t, w)",
    "MatMul scaled by a list": "float[n,3] x; float[3,2] w; m = MatMul(x, w)  y = Mul(m, {2.0, 3.0})",
    "ScatterND of everything, added": "float[2,3] x; float[2,3] u; y = ScatterND(x, int64[2,1] {0,1}, u,"
    ' reduction="add")',
}
"""The name of each trap to its graph."""


@dataclass
class Seen:
    """The outcome of one model under one set of rules.

    Attributes:
        applied, refused, refuted: Rule to number of sites; refuted are those at which the numbers differ, refused those
            that cannot be checked, too.
        status: ``equal``, or what else is the matter.
        seconds: The CPU time that it took.
    """

    applied: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    refuted: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, Counter[str]] = field(default_factory=dict)
    status: str = "equal"
    seconds: float = 0.0


def seen(model: io.Source, name: str, *, beside: bool = False) -> Seen:
    """One model rewritten by onnxscript's rules, with all checks."""
    made = Seen()
    start = time.process_time()
    try:
        result = rw.apply(
            model, rules=[f"onnxscript:{name}"], without=() if beside else (OURS,), lower="fused", check="full"
        )
    except rw.OnnxRewriteError as error:
        made.status = one_line(error)
        return made
    made.seconds = time.process_time() - start
    known = {rule.name for rule in load(name)}
    made.applied.update({r: n for r, n in result.trace.counts().items() if r in known})
    undone = set(result.checks.undone)
    for rule, sites in result.trace.refused.items():
        for value, reason in sites.items() if rule in known else ():
            is_refuted = (rule, value) in undone and UNCHECKED not in reason
            (made.refuted if is_refuted else made.refused)[rule] += 1
            made.reasons.setdefault(rule, Counter())[reason.partition(" (at `")[0]] += 1
    check = result.checks.model
    if check is None or check.skipped:
        made.status = f"not compared: {check.skipped if check is not None else 'not asked'}"[:80]
    elif not check.ok:
        made.status = f"differs: {check.failures[0]}"
    return made


# -- what is shown -------------------------------------------------------------------------------------------------


def tell_models(paths: Sequence[Path], out: report.Report, beside: bool) -> None:
    """A line for each model and set, and one for each rule."""
    rows, of_rules = list[report.Row](), dict[str, list[Seen]]()
    for path in paths:
        for name in SETS:
            found = seen(path, name, beside=beside)
            of_rules.setdefault(name, []).append(found)
            rows.append(_row(path.stem, name, found))
            print(*rows[-1].values(), file=sys.stderr, flush=True)
    out.table("Models", rows)
    for name, each in of_rules.items():
        out.table(f"Rules of {name} that matched", list(_rules(each)) or [{"rule": "none"}])
    out.goal("models that differ, or fail", _bad(rows), 0, unit="results")


def _row(model: str, name: str, found: Seen) -> report.Row:
    return {
        "model": model,
        "rules": name,
        "applied": found.applied.total(),
        "refused": found.refused.total(),
        "refuted": found.refuted.total(),
        "took (s)": found.seconds,
        "result": found.status,
    }


def _bad(rows: Sequence[report.Row]) -> int:
    return sum(not str(row["result"]).startswith(("equal", "not compared")) for row in rows)


def _rules(found: Sequence[Seen]) -> Iterator[report.Row]:
    names = dict.fromkeys(r for f in found for r in (*f.applied, *f.refused, *f.refuted))
    for name in sorted(names):
        reasons = sum((f.reasons.get(name, Counter()) for f in found), Counter[str]())
        often = reasons.most_common(1)[0][0] if reasons else ""
        yield {
            "rule": name,
            "applied": sum(f.applied[name] for f in found),
            "refused": sum(f.refused[name] for f in found),
            "refuted": sum(f.refuted[name] for f in found),
            "most often because": often[:60],
        }


def tell_traps(out: report.Report, beside: bool) -> None:
    """Report the result of each trap, by onnxscript alone and here."""
    rows, wrong, caught = list[report.Row](), 0, 0
    for name, graph in TRAPS.items():
        model = io.to_proto(text.parse(graph, opset=17))
        for rules in SETS:
            there, here = alone(model, rules), seen(model, rules, beside=beside)
            if there == "unchanged" and not (here.applied or here.refuted):
                continue
            is_wrong = not there.startswith(("equal", "unchanged", "not compared"))
            wrong += is_wrong
            caught += is_wrong and here.status.startswith(("equal", "not compared"))
            rows.append(
                {
                    "trap": name,
                    "rules": rules,
                    "onnxscript alone": there[:40],
                    "applied": here.applied.total(),
                    "refused": here.refused.total(),
                    "refuted": here.refuted.total(),
                    "here": here.status,
                }
            )
    out.table("Traps", rows, "those of which nothing comes anywhere are left out")
    out.goal(
        "traps whose result differs here", sum(str(r["here"]).startswith("differs") for r in rows), 0, unit="traps"
    )
    out.goal("traps that onnxscript alone gets wrong, and here are right", caught, wrong, unit="traps", least=True)
    out.goal("traps that onnxscript alone gets wrong", wrong, 5, unit="traps", least=True)


def alone(model: onnx.ModelProto, name: str) -> str:
    """The result of onnxscript's own driver: ``unchanged``, ``equal``, ``not compared``, or what is wrong with it."""
    rules = [rule.theirs for rule in load(name) if isinstance(rule, Adapted)]
    try:
        typed = onnx.shape_inference.infer_shapes(model)  # some of its rules raise without
        result = onnxscript.rewriter.rewrite(typed, RewriteRuleSet([r for r in rules if r is not None]))
        if [n.op_type for n in result.graph.node] == [n.op_type for n in model.graph.node]:
            return "unchanged"
        inputs = {i.name for i in model.graph.input} - {i.name for i in result.graph.input}
        if inputs:
            return f"lost the input {', '.join(sorted(inputs))}"
        return _compared(model, result)
    except Exception as error:  # it is theirs, and may fail in any way
        return f"fails: {one_line(error)}"


def _compared(model: onnx.ModelProto, result: onnx.ModelProto) -> str:
    """Both models compared; what callers may override is an input to be fed."""
    check = rw.check(_without_defaults(model), _without_defaults(result))
    if check.skipped:
        return "not compared"
    return "equal" if check.ok else f"differs: {check.failures[0]}"


def _without_defaults(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    names = {i.name for i in copy.graph.input}
    kept = [t for t in copy.graph.initializer if t.name not in names]
    del copy.graph.initializer[:]
    copy.graph.initializer.extend(kept)
    return copy


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit code."""
    options = report.parser(__doc__)
    options.add_argument("models", nargs="*", type=Path, metavar="MODEL", help="default: all shared models")
    options.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    options.add_argument("--beside", action="store_true", help="beside our own rules, which come first")
    given = options.parse_args(argv)
    paths = given.models or (models()[:3] if given.quick else models())
    if "models" in given.only and not paths:
        options.error(f"there are no models below {CORPUS}; give some")
    out = report.Report("interop")
    if "models" in given.only:
        tell_models(paths, out, given.beside)
    if "traps" in given.only:
        tell_traps(out, given.beside)
    return out.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
