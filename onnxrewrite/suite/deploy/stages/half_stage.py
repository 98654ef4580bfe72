"""Convert the model to half precision, where its values fit and the target runs it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from onnxrewrite.ir.target import target_on
from onnxrewrite.suite.deploy.artifact import Artifact
from onnxrewrite.suite.deploy.stage import Context, Stage
from onnxrewrite.suite.precision.half_precision import to_half
from onnxrewrite.suite.quality.gate import Gate


@dataclass(frozen=True, kw_only=True)
class Half(Stage):
    """Conversion to half precision, as by ``onnxrewrite half``.  On a CPU it saves size, and hardly any time.

    Attributes:
        dtype: ``float16`` or ``bfloat16``.
        keep: Nodes that stay in float32: names, operators, module scopes, with wildcards.
    """

    name: ClassVar[str] = "half"
    lossy: ClassVar[bool] = True
    default: ClassVar[bool] = False
    dtype: Literal["float16", "bfloat16"] = "float16"
    keep: tuple[str, ...] = ()

    def run(self, given: Artifact, context: Context) -> Iterator[Artifact]:
        """One artifact."""
        made = to_half(
            given.path,
            self.dtype,
            keep=self.keep,
            data=context.data,
            seed=context.seed,
            target=target_on(given.setting.provider),
            gate=Gate(max_drop=float("inf")),  # the pipeline judges
        )
        path = context.file("half")
        made.save(path)
        how = f"{self.dtype}, {len(made.kept)} nodes in float32"
        yield replace(given, path=path, source=path, how=how, facts={"kept": dict(made.kept), "notes": [*made.notes]})
