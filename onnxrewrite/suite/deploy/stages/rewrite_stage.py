"""Rewrite the model by rules: exact, checked, and measured by itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from onnxrewrite.api import application
from onnxrewrite.compiler.request import Lowering
from onnxrewrite.suite.deploy.artifact import Artifact
from onnxrewrite.suite.deploy.stage import Context, Stage


@dataclass(frozen=True, kw_only=True)
class Rewrite(Stage):
    """Rewriting by rules, as by ``onnxrewrite apply``.

    Attributes:
        lower: The way of choosing kernels.
        rules: Rules beside the library.
        only: Names of rules or rule sets; without it, all.
        without: Those to leave out.
        opset: To bring the model to, and keep.
    """

    name: ClassVar[str] = "rewrite"
    lower: Lowering = "fastest"
    rules: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    opset: int | None = None

    def run(self, given: Artifact, context: Context) -> Iterator[Artifact]:
        """One artifact."""
        result = application.apply(
            given.path,
            rules=self.rules,
            only=self.only,
            without=self.without,
            opset=self.opset,
            dims=context.dims,
            inputs=context.meter.feeds if not context.data.generated else None,
            lower=self.lower,
            threads=given.setting.threads,
            seed=context.seed,
            progress=context.progress,
        )
        path = context.file("rewritten")
        result.save(path)
        applied = sum(result.trace.counts().values())
        made = replace(given, path=path, how=f"{applied} rewrites", source=given.plain)
        yield replace(made, facts={"rewrites": result.trace.counts(), "notes": result.notes})
