"""The record of a run, for its certificate: every rewrite in text, when it is about to be applied, its check, and
whether it pays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from onnxrewrite.ir.text import print_rewrite
from onnxrewrite.rewrite.trace import Key, Site
from onnxrewrite.verify.certificate import CheckRecord, SiteRecord
from onnxrewrite.verify.numeric import finite

if TYPE_CHECKING:
    from onnxrewrite.verify.rewrites import SiteChecker
    from onnxrewrite.verify.site import SiteCheck

Sides: TypeAlias = tuple[Key, tuple[str, ...], tuple[str, ...]]
"""A rewrite by the rule and the value, and what it looks like: the lines before and after."""


Loss: TypeAlias = tuple[Key, SiteRecord, str]
"""A rewrite that is wrong or does not pay, what it looks like, and why."""


@dataclass(frozen=True)
class Verdicts:
    """What the checks of an earlier run said, so that a later one does the same without them.

    Attributes:
        sites: The rewrites that were turned down at their sites, and why.
        model: The rewrites that were found guilty of what was wrong with the whole model, and why.
        losses: The rewrites that did not pay at their sites, and why; None where that is to be found out.
        slow: The rules that made the whole model slower, and why.
        level: That of ONNX Runtime's optimizations at which the result was fastest.
    """

    sites: Mapping[Sides, str] = field(default_factory=dict)
    model: Mapping[Key, str] = field(default_factory=dict)
    losses: Mapping[Sides, str] | None = None
    slow: Mapping[str, str] = field(default_factory=dict)
    level: str = "all"


@dataclass
class Ledger:
    """Checks sites and weighs them, and keeps what came of it; to be called by the driver.

    Args:
        check: Says what is wrong with a rewrite; None where nothing is to be run.
        cost: Says why a rewrite does not pay; None where that is not asked.
        verdicts: What is known to be wrong, and is not asked again.

    Attributes:
        applied: The rewrites that passed, in the order in which they are applied.
        failed: Those that did not, and why; in earlier rounds, too, if it is handed in.
        declined: Those that passed and did not pay, and why; likewise.
    """

    check: SiteChecker | None
    cost: Callable[[Site], str | None] | None = None
    verdicts: Verdicts = field(default_factory=Verdicts)
    applied: list[SiteRecord] = field(default_factory=list)
    failed: list[Loss] = field(default_factory=list)
    declined: list[Loss] = field(default_factory=list)

    def __call__(self, site: Site) -> str | None:
        """None if the rewrite may be applied, else what is wrong with it."""
        replaced = tuple(zip(site.outputs, site.results, strict=True))
        before, after = print_rewrite(site.before, site.after, replaced, site.opset_imports)
        wrong = self.verdicts.sites.get((site.key, tuple(before), tuple(after)))
        if wrong is None and self.check is not None:
            wrong = self.check(site)
        found = _record(self.check.last) if self.check is not None else None
        record = SiteRecord(before, after, found)
        if wrong is None:
            self.applied.append(record)
        else:
            self.failed.append((site.key, record, wrong))
        return wrong

    def weigh(self, site: Site) -> str | None:
        """None if the rewrite, which has just passed, pays; else why it does not."""
        record, known = self.applied[-1], self.verdicts.losses
        if known is not None:
            loss = known.get((site.key, tuple(record.before), tuple(record.after)))
        else:
            loss = self.cost(site) if self.cost is not None else None
        if loss is not None:
            self.declined.append((site.key, self.applied.pop(), loss))
        return loss


def _record(check: SiteCheck) -> CheckRecord:
    return CheckRecord(
        status=check.status,
        reason=check.reason,
        reference=check.reference,
        error_original=finite(check.error_original),
        error_rewritten=finite(check.error_rewritten),
        bound=finite(check.bound),
        runs=check.runs,
    )
