"""``apply`` and ``check``, and their result with what is convenient: files, reports, what a notebook shows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import onnx

from onnxrewrite import io
from onnxrewrite.certificate import writing
from onnxrewrite.certificate.record import Certificate
from onnxrewrite.checks.findings import ModelCheck
from onnxrewrite.compiler import result, run
from onnxrewrite.compiler.loop import Progress
from onnxrewrite.compiler.request import CheckLevel, Lowering, Request
from onnxrewrite.rewrite.rule import Assumption, Rule
from onnxrewrite.rewrite.ruleset import RuleSet
from onnxrewrite.runtime import limited
from onnxrewrite.system.arrays import Feeds

if TYPE_CHECKING:
    from onnxrewrite.measure.cost_models import Cost
    from onnxrewrite.report.summary import Summary


class Result(result.Result):
    """The result of ``apply``: a ``compiler.result.Result`` with methods to write and to show it."""

    def __repr__(self) -> str:
        """A few lines: what was applied, nodes before and after, what was checked."""
        from onnxrewrite.report.summary import brief

        return brief(self)

    def save(self, path: str | os.PathLike[str], *, certificate: bool = False) -> None:
        """Write the optimized model, with its ``certificate`` beside it if that is wanted; external data is chosen when
        it would pass 2 GB."""
        writing.save(self, path) if certificate else io.save(self.model, path)

    @cached_property
    def certificate(self) -> Certificate:
        """A record of the rewrites and checks, with the digests of all that they depend on; reads the input's file."""
        return writing.certificate(self)

    def to_proto(self) -> onnx.ModelProto:
        """The optimized model as a protobuf message."""
        return io.to_proto(self.model)

    def to_json(self) -> Summary:
        """Everything that the report shows, as plain data."""
        from onnxrewrite.report.summary import summary

        return summary(self)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write the report as one HTML page that needs nothing else: what changed, what was checked, what nearly
        matched, and the graph before and after.

        Raises:
            ModelError: The file cannot be written.
        """
        from onnxrewrite.report.html.page import write_page

        write_page(self, self.to_json(), path)

    def _repr_html_(self) -> str:
        """The HTML that a notebook shows."""
        from onnxrewrite.report.html.notebook import result_html

        return result_html(self.to_json())


def apply(
    source: io.Source,
    *,
    rules: Iterable[str | Rule | RuleSet] = (),
    only: Iterable[str] = (),
    without: Iterable[str] = (),
    target: str = "onnxruntime-cpu",
    opset: int | None = None,
    dims: Mapping[str, int] | None = None,
    inputs: Feeds | None = None,
    check: CheckLevel = "full",
    lower: Lowering | None = None,
    threads: int = 0,
    budget: float = 20.0,
    run_limit: float | None = None,
    named_sums: bool = True,
    assume: Iterable[str | Assumption] = (),
    seed: int = 0,
    progress: Progress | None = None,
    conflicts: bool = False,
    only_proved: bool = False,
    measurements: str | os.PathLike[str] | None = None,
    signed_by: Iterable[str | os.PathLike[str]] = (),
    cost: Cost | str | os.PathLike[str] | None = None,
) -> Result:
    """Rewrite a model and check the result.

    Args:
        source: A path, an ``onnx.ModelProto`` or an ``onnx_ir.Model``; it is not changed.
        rules: Rules beside the library: ``Rule`` and ``RuleSet`` objects, rule files, packages.
        only: Names of rules or rule sets; without it, all.
        without: Names of rules or rule sets to leave out.
        target: ``onnxruntime-cpu``, ``onnxruntime-cuda`` or ``onnx``.
        opset: Convert the model to this ai.onnx opset first, and leave it there; without it, a runtime's model is
            given a newer opset where a rule of the raise stage needs one.
        dims: Sizes of named dimensions for the checks.
        inputs: Arrays for the checks, by input name; the others are generated.
        check: ``full``: every site, and the whole model on three samples at each of two bindings; ``fast``: every
            site, and the whole model on one sample; ``off``: legality and structure only.
        lower: ``fastest``: what is measured to pay, each rewrite of the lower stage and the whole result against the
            original; ``fused``: the most fused form that is legal, nothing is measured; ``portable``: standard
            operators only.  Without it, what ONNXREWRITE_LOWER says, else ``fastest``.
        threads: Within an operator where it measures; 0 is ONNX Runtime's choice.
        budget: Seconds for all that is measured; what is met later is taken for granted.
        run_limit: Seconds for one run of a model; what takes longer is not checked, and not measured, and the result
            says so.  0 for no limit; without it, what ONNXREWRITE_RUN_LIMIT says, else 10 seconds, and one more for
            each 10 MB of weights.
        named_sums: True if an input's dimension that is called ``a + b`` is taken for the sum.  Where the original also
            runs at sizes at which it is none, and the result would differ there, it is not, and the notes say so.
        assume: Assumptions about the data that no rule makes unless asked, and that are not tested:
            ``scores-above-10000``.
        seed: Of the generated inputs.
        progress: Called with (phase, nodes visited, nodes waiting).
        conflicts: Find out which rules could have been applied where another one was, ``Result.trace.conflicts``; it
            takes longer and does not change the result.
        only_proved: Rewrite only where both sides are proved to compute the same, which needs z3 (the extra ``prove``);
            the proofs stand in the certificate.
        measurements: A file of signed measurements, as ``onnxrewrite tune export`` writes it: with it ``fastest``
            measures nothing, takes what is not there for granted, and gives the same result everywhere.  Without it,
            what ONNXREWRITE_MEASUREMENTS says, else the database of this machine is used.
        signed_by: Files of public keys, one of which must have signed a measurement of that file.  Without them, what
            ONNXREWRITE_SIGNED_BY says.
        cost: The cost by which ``fastest`` chooses: ``clock``, the default; ``bytes``; ``operations``; a file with a
            table of milliseconds; or a cost model, see ``onnxrewrite.costs``.  Without the clock nothing is measured,
            also with ``check="off"``, and the same model and cost model give the same bytes.

    Raises:
        UsageError, ModelError, RuleError: Bad arguments, model or rules.
        CheckError: The result is not equal to the original, and undoing rewrites does not mend it.
    """
    request = Request(
        rules=rules,
        only=only,
        without=without,
        target=target,
        opset=opset,
        dims=dims,
        inputs=inputs or {},
        check=check,
        lower=lower,
        threads=threads,
        budget=budget,
        run_limit=run_limit,
        named_sums=named_sums,
        assume=assume,
        seed=seed,
        conflicts=conflicts,
        only_proved=only_proved,
        measurements=os.fspath(measurements) if measurements is not None else None,
        signed_by=tuple(os.fspath(key) for key in signed_by),
        cost=cost,
    )
    return Result(**vars(run.apply(source, request, progress=progress)))


def check(
    a: io.Source,
    b: io.Source,
    *,
    dims: Mapping[str, int] | None = None,
    inputs: Feeds | None = None,
    run_limit: float | None = None,
    seed: int = 0,
    samples: int = 3,
) -> ModelCheck:
    """Compare what models ``a`` and ``b`` compute, at two bindings of every symbolic dimension."""
    from onnxrewrite.checks.model import compare_models
    from onnxrewrite.runtime.references import by_reference

    with limited.run_limit(run_limit), by_reference(io.load(a)) as first, by_reference(io.load(b)) as second:
        return compare_models(first, second, dims=dims, inputs=inputs, seed=seed, samples=samples)
