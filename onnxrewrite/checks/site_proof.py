"""Proofs of rewrites at their places: both sides cut out as for a check, proved once for all sites that are alike."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnxrewrite.checks.likeness import structure
from onnxrewrite.checks.site_record import ProofRecord
from onnxrewrite.errors import OnnxRewriteError
from onnxrewrite.proof import require_prover
from onnxrewrite.rewrite.rule import Assumption

if TYPE_CHECKING:
    from onnxrewrite.proof.validation import Outcome


@dataclass
class SiteProver:
    """Proves sites.

    Attributes:
        scripts: SHA-256 of a script of SMT-LIB to the script, of all proofs that were found.
        seconds: The time that proofs took, all together.

    Raises:
        UsageError: z3 is not installed.
    """

    scripts: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    _known: dict[str, ProofRecord | str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_prover()

    def prove(self, before: ir.Model, after: ir.Model, assumes: Collection[Assumption]) -> ProofRecord | str:
        """The proof of two sides, or why there is none."""
        key = f"{structure(before, after)}\n{sorted(assumes)}"
        if key not in self._known:
            self._known[key] = self._proved(before, after, assumes)
        return self._known[key]

    def _proved(self, before: ir.Model, after: ir.Model, assumes: Collection[Assumption]) -> ProofRecord | str:
        from onnxrewrite.proof.validation import Proof, prove

        try:
            found: Outcome = prove(before, after, not_empty=Assumption.NOT_EMPTY in assumes, refute=False)
        except OnnxRewriteError as error:
            return str(error)
        self.seconds += found.seconds if hasattr(found, "seconds") else 0.0
        if not isinstance(found, Proof):
            return found.reason
        self.scripts[found.digest] = found.text
        return ProofRecord(found.domain, found.strength, len(found.goals), found.digest)
