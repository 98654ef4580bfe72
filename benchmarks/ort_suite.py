"""ONNX Runtime's own optimizer tests, put to us: is what they expect there, and is what must not happen left alone?

What is expected is an operator, as often as ONNX Runtime or its transformers optimizer makes it, or that fewer of some
are left.  Another operator that does the same counts too, if ``EQUIVALENTS`` says why; what nothing that runs on a CPU
could reach does not count, if a question about the model in ``ort_excuses.py`` says why.  Labels were read off the
tests by a script: where label and mathematics disagree, the mathematics wins.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import onnx

import onnxrewrite as rw
from benchmarks import ort_excuses, report
from benchmarks.checking import CORPUS
from benchmarks.ort_excuses import Asked
from onnxrewrite import io
from onnxrewrite.errors import ModelError
from onnxrewrite.io import statistics
from onnxrewrite.rewrite.trace import Trace
from onnxrewrite.runtime.session import one_line
from onnxrewrite.system.workers import Died, in_workers

SUITE = CORPUS.parent / "ort_suite"

POSITIVE, NEGATIVE, TRAP, OPTIONAL, EXCUSABLE, EQUAL = "positive", "negative", "trap", "optional", "excused", "equal"

Counts = Mapping[str, int]

EQUIVALENTS: dict[str, dict[str, str]] = {
    "com.microsoft.Gelu": {"Gelu": "the standard's own", "com.microsoft.BiasGelu": "a bias besides"},
    "Gelu": {"com.microsoft.Gelu": "the same kernel", "com.microsoft.BiasGelu": "a bias besides"},
    "com.microsoft.FastGelu": {"Gelu": "the standard's own, with approximate=tanh"},
    "com.microsoft.QuickGelu": {"Swish": "the standard's own"},
    "SimplifiedLayerNormalization": {
        "RMSNormalization": "the standard's name of it",
        "com.microsoft.SkipSimplifiedLayerNormalization": "an addition besides",
    },
    "LayerNormalization": {
        "com.microsoft.SkipLayerNormalization": "an addition besides",
        "com.microsoft.EmbedLayerNormalization": "an embedding besides",
    },
    "com.microsoft.SkipLayerNormalization": {"com.microsoft.EmbedLayerNormalization": "what is added is an embedding"},
    "com.microsoft.Attention": {
        "com.microsoft.MultiHeadAttention": "with the projections as Gemm before it",
        "com.microsoft.GroupQueryAttention": "with the projections before it",
        "Attention": "the standard's own, with the projections before it",
    },
    "com.microsoft.MultiHeadAttention": {
        "com.microsoft.Attention": "the projections besides",
        "com.microsoft.GroupQueryAttention": "of as many heads",
        "Attention": "the standard's own",
    },
    "com.microsoft.RotaryEmbedding": {"RotaryEmbedding": "the standard's own"},
    "com.microsoft.FusedMatMul": {
        "Gemm": "of matrices, with transA, transB and alpha",
        "com.microsoft.FusedGemm": "of matrices, an activation besides",
    },
    "Gemm": {"com.microsoft.FusedGemm": "an activation besides", "com.microsoft.FusedMatMul": "of more than matrices"},
    "com.microsoft.DynamicQuantizeMatMul": {"com.microsoft.MatMulIntegerToFloat": "after one DynamicQuantizeLinear"},
}
"""An expected operator to those that do the same or more, and why."""


@dataclass(frozen=True)
class Case:
    """A graph, and what ONNX Runtime's test says of it."""

    name: str
    told: Mapping[str, Any]

    @property
    def path(self) -> Path:
        """Its model."""
        return SUITE / "models" / f"{self.name}.onnx"

    @cached_property
    def expected(self) -> str:
        """The operators that should appear, or ``eliminate:`` those that should go; joined by ``+``."""
        return str(self.told.get("expected_fused_op", ""))

    @cached_property
    def model(self) -> onnx.ModelProto:
        """Its model, as it is."""
        return onnx.load(self.path)

    @cached_property
    def asked(self) -> Asked:
        """The model, and what is expected of it."""
        names = [o for o in self.expected.partition(":")[2 if self._eliminates else 0].split("+") if o]
        fused, gone = ([], names) if self._eliminates else (names, [])
        return Asked(self.model, fused, gone)

    @cached_property
    def excuse(self) -> str:
        """The reason why the expected operators are not required; empty if they are."""
        return ort_excuses.excuse(self.asked)

    @cached_property
    def kind(self) -> str:
        """The kind of requirement: ``positive``, ``negative``, ``trap``, ``optional``, ``excused`` or ``equal``."""
        if self.told.get("ort_unsound") or self.told.get("semantic_trap"):
            return TRAP
        if self.told.get("negative"):
            return NEGATIVE
        if not self.expected or not self.told.get("runnable"):
            return EQUAL
        if ort_excuses.moves_casts(self.asked):
            return OPTIONAL
        return EXCUSABLE if self.excuse else POSITIVE

    @property
    def _eliminates(self) -> bool:
        return self.expected.startswith("eliminate:")

    def missing(self, counts: Counts) -> list[str]:
        """The expectations that a graph with these counts of operators does not meet."""
        if not self._eliminates:
            return [
                f"{o}: {found} instead of {wanted}" if found else o
                for o in self.asked.fused
                if (found := _number(counts, o)) < (wanted := self._instances(o))
            ]
        before, removed = self.told["ops_before"], self.told.get("expected_removed", {})
        gone = self.expected.partition(":")[2].split("+")
        most = {o: removed[o][1] if o in removed else before[o] - 1 for o in gone}
        return [
            f"{o}: {counts.get(o, 0)} left instead of {limit}" for o, limit in most.items() if counts.get(o, 0) > limit
        ]

    def _instances(self, operator: str) -> int:
        """So many are asked for: as many as a variant of ONNX Runtime makes, or one."""
        return max(1, *(int(self.told.get(key, {}).get(operator, 0)) for key in ("ort_all", "transformers")))

    def reached_by(self, peer: str) -> bool:
        """True if a variant of ONNX Runtime meets the expectations: ``ort_all`` or ``transformers``."""
        if self.told.get({"ort_all": "ort_default_cpu_fuses", "transformers": "ort_transformers_fuses"}[peer]):
            return True
        return peer in self.told and not self.missing(self.told[peer])

    def unwanted(self, counts: Counts) -> list[str]:
        """Operators that must not be there: named, or in a negative case, fused where ONNX Runtime fuses nothing."""
        found = [o for o in self.told.get("must_not_contain", ()) if counts.get(o)]
        found = [o for o in found if o not in ort_excuses.allowed(self.asked)]
        if self.kind != NEGATIVE:
            return found
        known = {o for key in ("ops_before", "ort_all", "transformers") for o in self.told.get(key, ())}
        return found + [o for o in counts if o.startswith("com.microsoft.") and o not in known]


def cases(pattern: str = "*") -> list[Case]:
    """The cases of which the name matches; empty where the suite is not there."""
    listed = SUITE / "expected.json"
    told = json.loads(listed.read_text(encoding="utf-8")) if listed.is_file() else {}
    return [Case(name, each) for name, each in sorted(told.items()) if fnmatch.fnmatch(name, pattern)]


def _number(counts: Counts, operator: str) -> int:
    """The number of an operator and of those that do the same."""
    return sum(counts.get(o, 0) for o in (operator, *EQUIVALENTS.get(operator, ())))


@dataclass(frozen=True)
class Found:
    """Our result for a case.

    Attributes:
        counts: The operators of the result.
        wrong: The reason why it is not equal to the original; empty if it is.
        compared: The result of the comparison, or the reason why there was none.
        why: The refusals that concern the expected operators.
    """

    counts: dict[str, int]
    wrong: str = ""
    compared: str = ""
    why: str = ""


def run(case: Case) -> Found:
    """Rewrite a case, with its checks, and compare the result with other inputs besides."""
    try:
        result = rw.apply(case.path, lower="fused")
    except ModelError as error:  # nothing is written, which is safe
        return Found(dict(case.told["ops_before"]), compared="refused", why=one_line(error))
    except rw.OnnxRewriteError as error:
        return Found(dict(case.told["ops_before"]), one_line(error), "refused")
    counts = statistics.operator_counts(result.model)
    wrong, compared = _compared(case, result.to_proto())
    return Found(counts, wrong, compared, _reasons(case, result.trace))


def _compared(case: Case, made: onnx.ModelProto) -> tuple[str, str]:
    """The reason why the result differs, and the comparison; at the sizes that the case tells if others do not run."""
    if not case.told.get("runnable"):
        return "", "does not run"
    original = io.to_proto(io.load(case.path))
    found = rw.check(original, made, seed=1)
    if found.skipped and not found.failures:
        sizes = {d.dim_param for i in original.graph.input for d in i.type.tensor_type.shape.dim if d.dim_param}
        found = rw.check(original, made, seed=1, dims=dict.fromkeys(sorted(sizes), case.told.get("sym_dim", 2)))
    return (found.failures or [""])[0], found.skipped or ("identical" if found.identical else "equal")


_MOST_REASONS = 3


def _reasons(case: Case, trace: Trace) -> str:
    """The reasons that rules gave which make, or take away, what is expected."""
    names = [o.rpartition(".")[2] for o in case.expected.partition(":")[2 if ":" in case.expected else 0].split("+")]
    summaries = {r.name: r.summary for r in _library()}
    told = {
        f"{rule}: {reason}": None
        for rule, sites in trace.refused.items()
        for reason in sites.values()
        if any(name and name in summaries.get(rule, "") for name in names)
    }
    undone = {f"{rule}: undone, {reason}": None for (rule, _), reason in (trace.failed | trace.declined).items()}
    return "; ".join([*undone, *told][:_MOST_REASONS]) or "no rule matched"


def _library() -> Sequence[rw.rules.Rule]:
    from onnxrewrite.rewrite import registry

    return list(registry.load([]).rules)


def rows(chosen: Sequence[Case], workers: int = 1, limit: float = 300.0) -> Iterator[report.Row]:
    """A row for each case, as they come; a case that takes the process down is a row as well."""
    for case, found in in_workers(run, chosen, workers, limit=limit):
        if isinstance(found, Died):
            found = Found({}, f"its process {found.how}", "died")
        yield _row(case, found)


def _row(case: Case, found: Found) -> report.Row:
    missing = case.missing(found.counts) if case.expected and found.counts else []
    unwanted = case.unwanted(found.counts)
    by_ort = case.reached_by("ort_all") if case.expected else False
    by_transformers = case.reached_by("transformers") if case.expected else False
    trouble = found.wrong or (f"contains {', '.join(unwanted)}" if unwanted else "")
    why = case.excuse if case.kind == EXCUSABLE else f"missing {', '.join(missing)}: {found.why}" if missing else ""
    return {
        "case": case.name,
        "kind": case.kind,
        "expected": case.expected.replace("com.microsoft.", ""),
        "reached": int(bool(case.expected) and not missing),
        "ORT": int(by_ort),
        "transformers": int(by_transformers),
        "safe": int(not trouble),
        "compared": found.compared,
        "why": trouble or why,
    }


def tell(found: Sequence[report.Row], out: report.Report) -> None:
    """The tables and goals."""
    counted = list[report.Row]()
    for kind in (POSITIVE, OPTIONAL, EXCUSABLE, NEGATIVE, TRAP, EQUAL):
        of = [r for r in found if r["kind"] == kind]
        if of:
            together = sum(bool(r["ORT"] or r["transformers"]) for r in of)
            totals: report.Row = {name: _total(of, name) for name in ("reached", "ORT", "transformers")}
            totals |= {"either": together, "safe": _total(of, "safe")}
            counted.append({"kind": kind, "cases": len(of), **totals})
    out.table("ONNX Runtime's optimizer tests", counted, "ORT: all its levels; transformers: its Python optimizer")
    failing = [r for r in found if not r["safe"] or (r["kind"] == POSITIVE and not r["reached"])]
    if failing:
        shown = [{n: r[n] for n in ("case", "expected", "ORT", "transformers", "why")} for r in failing]
        out.table("Cases that are not as expected", shown)
    stale: list[report.Row] = [
        {"case": r["case"], "excuse": r["why"]} for r in found if r["kind"] == EXCUSABLE and r["reached"]
    ]
    if stale:
        out.table("Excused, and reached all the same", stale)
    positive = [r for r in found if r["kind"] == POSITIVE]
    if positive:
        ours, both = _total(positive, "reached"), sum(bool(r["ORT"] or r["transformers"]) for r in positive)
        out.goal("runnable positive cases reached", 100 * ours / len(positive), 95, unit="%", least=True)
        out.goal(
            "reached, beyond ONNX Runtime and its transformers optimizer together",
            ours - both,
            1,
            unit="cases",
            least=True,
        )
    unsafe = {k: sum(not r["safe"] for r in found if r["kind"] == k) for k in (NEGATIVE, TRAP)}
    out.goal("negative cases and traps that are not safe", sum(unsafe.values()), 0, unit="cases")
    out.goal(
        "results that are not equal, or hold what they must not", sum(not r["safe"] for r in found), 0, unit="cases"
    )


def _total(rows: Sequence[report.Row], column: str) -> int:
    return sum(int(r[column] or 0) for r in rows)
