"""Is the choice of kernels right?  What was chosen as `apply` chooses, against a longer measurement.

    python -m benchmarks.choice [--seconds N] [--threads N ...] [--json FILE]

Rewrites of the lower stage at sizes of real models are weighed as ``apply`` weighs them, with a memory of their own.
Then both sides are timed for much longer, in fresh sessions.  A choice is right if what it takes is not slower than
what it leaves by more than the margin that the choice itself allows.  The goal: at least 95 of 100 choices are right.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from benchmarks import report
from onnxrewrite.ir import schema, text
from onnxrewrite.ir.target import target
from onnxrewrite.measure.choice import MARGIN, Weighed
from onnxrewrite.measure.database.known import Database
from onnxrewrite.measure.database.store import Store
from onnxrewrite.measure.region_timing import RegionTiming
from onnxrewrite.measure.site_benchmark import subject
from onnxrewrite.measure.timing import Allowance, interleave, ratio
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.driver import Driver
from onnxrewrite.rewrite.rule import Rule, Stage
from onnxrewrite.runtime.settings import Setting

GOAL = 95.0

SIZES = ((1, 1, 256), (1, 16, 256), (1, 128, 256), (1, 128, 768), (2, 64, 192), (4, 128, 512))
IMAGES = ((1, 32, 56, 56), (1, 128, 14, 14), (2, 64, 28, 28))


@dataclass(frozen=True)
class Case:
    """A rule, the graph that it is tried on, and what is told of the size."""

    rule: str
    graph: str
    size: str
    opset: int = 17


def cases() -> Iterator[Case]:
    """Each rule at each size."""
    for batch, rows, width in SIZES:
        shape, size = f"float[{batch},{rows},{width}]", f"{batch} x {rows} x {width}"
        vector = f"float[{width}]"
        norm = "a = Add(x, z)  y = LayerNormalization<axis=-1>(a, w, b)"
        yield Case("add-before-norm", f"{shape} x; {shape} z; {vector} w; {vector} b; {norm}", size)
        yield Case("add-before-gelu", f"{shape} x; {vector} b; a = Add(x, b)  y = com.microsoft.Gelu(a)", size)
        yield Case("gelu-lower", f"{shape} x; y = Gelu(x)", size)
        heads = width // 64
        split = "r{0} = Reshape({0}, {{0, 0, HEADS, 64}})  {0}4 = Transpose<perm=[0,2,1,3]>(r{0})"
        split = "  ".join(split.format(n) for n in "qkv").replace("HEADS", str(heads))
        given = "; ".join(f"{shape} {n}" for n in "qkv")
        yield Case("attention-lower", f"{given}; {split}  y = Attention<scale=0.125>(q4, k4, v4)", size)
    for image in IMAGES:
        shape, size = f"float[{','.join(map(str, image))}]", " x ".join(map(str, image))
        yield Case("swish-lower", f"{shape} x; y = Swish(x)", size)


def rewritten(rule: Rule, library: Sequence[Rule], case: Case) -> tuple[ir.Model, ir.Model]:
    """The graph without and with the rule."""
    before, after = (text.parse(case.graph, opset=case.opset) for _ in range(2))
    for model in (before, after):
        schema.date(model)
    before.opset_imports[""] = max(n.version or case.opset for n in before.graph if not n.domain)
    lowering = [r for r in library if r.stage == Stage.LOWER and not r.needs_speedup and r is not rule]
    driver = Driver(after, [rule, *lowering], target("onnxruntime-cpu"))
    driver.run_stage(rule.stage, [rule])
    if not any(a.rule == rule.name for a in driver.trace.applied):
        raise RuntimeError(f"{rule.name} does not apply at {case.size}: {driver.trace.refused.get(rule.name)}")
    return before, after


def row(case: Case, clock: RegionTiming, library: Sequence[Rule], seconds: float, seed: int) -> report.Row:
    """Choose, and measure for longer."""
    rule = next(rule for rule in library if rule.name == case.rule)
    before, after = rewritten(rule, library, case)
    imports = {"": case.opset, "com.microsoft": 1}
    with subject(before, after, imports, {}, as_it_is, seed) as found:
        weighed = clock.weigh(rule, found)
        assert isinstance(weighed, Weighed), weighed
        takes = weighed.is_faster if rule.needs_speedup else not weighed.is_slower
        timings = interleave(found.runners(clock.setting), seconds=seconds, most=10_000)
    longer = ratio(timings["after"], timings["before"])
    cost = longer.median if takes else 1 / longer.median
    return {
        "rule": case.rule,
        "size": case.size,
        "threads": clock.setting.threads,
        "at once": weighed.ratio.median,
        "longer": longer.median,
        "takes it": "yes" if takes else "no",
        "right": cost <= 1 + MARGIN,
    }


def as_it_is(model: ir.Model) -> None:
    """Lowers nothing: both sides are what runs."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit code."""
    options = report.parser(__doc__)
    options.add_argument("--seconds", type=float, default=3.0, help="for each longer measurement (default 3)")
    options.add_argument("--threads", type=int, nargs="+", default=[1], help="within an operator (default 1)")
    given = options.parse_args(argv)
    library = list(registry.load(plugins=False))
    wanted = list(cases())[:: 6 if given.quick else 1]
    found: list[report.Row] = []
    with tempfile.TemporaryDirectory(prefix="onnxrewrite-") as folder:
        for threads in given.threads:
            setting, known = Setting(threads=threads), Database(Store(Path(folder)))
            clock, seconds = RegionTiming(setting, Allowance(math.inf), known), 0.3 if given.quick else given.seconds
            found += [row(case, clock, library, seconds, given.seed) for case in wanted]
    tell = report.Report("choice")
    shown = [{**each, "right": "yes" if each["right"] else "NO"} for each in found]
    tell.table("Rewrites chosen at once, and measured for longer", shown, "time after to time before")
    right = 100 * sum(bool(each["right"]) for each in found) / len(found)
    tell.goal("choices that are right", right, GOAL, unit="%", least=True)
    return tell.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
