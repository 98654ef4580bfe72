"""The records of a run, for its certificate: every rewrite in text, when it is about to be applied, its check, and
whether it pays.  That of a rewrite that is applied travels with it; what was turned down stays here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from onnxrewrite.checks.site_record import CheckRecord, SiteRecord
from onnxrewrite.reference.tolerance import finite
from onnxrewrite.rewrite.trace import Key, Site
from onnxrewrite.runtime.settings import Level

if TYPE_CHECKING:
    from onnxrewrite.checks.rewrites import SiteChecker
    from onnxrewrite.checks.site import SiteCheck

Sides: TypeAlias = tuple[Key, tuple[str, ...], tuple[str, ...]]
"""A rewrite by the rule and the value, and what it looks like: the lines before and after."""


Loss: TypeAlias = tuple[Key, SiteRecord, str]
"""A rewrite that is wrong or does not pay, what it looks like, and why."""


@dataclass(frozen=True)
class Verdicts:
    """The verdicts of an earlier run's checks, so that a later run does the same without them.

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
    level: Level = "all"


@dataclass
class RewriteLog:
    """Checks sites and weighs them, and keeps what was turned down; to be called by the driver.

    Args:
        check: Says what is wrong with a rewrite; None where nothing is to be run.
        loss: Says why a rewrite does not pay; None where that is not asked.
        verdicts: Known verdicts, which are not computed again.

    Attributes:
        failed: The rewrites that did not pass, and why; in earlier rounds, too, if it is handed in.
        declined: Those that passed and did not pay, and why; likewise.
    """

    check: SiteChecker | None
    loss: Callable[[Site], str | None] | None = None
    verdicts: Verdicts = field(default_factory=Verdicts)
    failed: list[Loss] = field(default_factory=list)
    declined: list[Loss] = field(default_factory=list)
    _last: SiteRecord = field(default_factory=lambda: SiteRecord([], [], None))

    def __call__(self, site: Site) -> str | None:
        """None if the rewrite may be applied, else what is wrong with it."""
        before, after = site.text
        wrong = self.verdicts.sites.get((site.key, tuple(before), tuple(after)))
        if wrong is None and self.check is not None:
            wrong = self.check(site)
        found = _record(self.check.last) if self.check is not None else None
        proof = self.check.proof if self.check is not None else None
        self._last = SiteRecord(before, after, found, proof)
        if wrong is not None:
            self.failed.append((site.key, self._last, wrong))
        return wrong

    def weigh(self, site: Site) -> str | None:
        """None if the rewrite, which has just passed, pays; else why it does not."""
        record, known = self._last, self.verdicts.losses
        if known is not None:
            loss = known.get((site.key, tuple(record.before), tuple(record.after)))
        else:
            loss = self.loss(site) if self.loss is not None else None
        if loss is not None:
            self.declined.append((site.key, record, loss))
        return loss

    def record(self, site: Site) -> SiteRecord:
        """The record of the rewrite that has just passed."""
        return self._last


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
