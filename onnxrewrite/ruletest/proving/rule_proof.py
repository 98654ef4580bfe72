"""The proof of a rule: a proof of each of its forms, or why there is none."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from onnxrewrite.proof import require_prover
from onnxrewrite.proof.validation import IN_VALUE, WITHIN_BOUND, Outcome, Proof, Refutation, prove
from onnxrewrite.rewrite.rule import Assumption, Rule
from onnxrewrite.ruletest.fuzz.judge import differs_at
from onnxrewrite.ruletest.proving.forms import Form, forms

FORMS = 48
"""The number of graphs that are staged for a rule; those that are alike are one form."""

SECONDS = 10.0
"""The time for all forms of a rule together."""


@dataclass(frozen=True)
class FormProof:
    """A form, and what came of the attempt to prove it."""

    form: Form
    outcome: Outcome

    @property
    def is_proved(self) -> bool:
        """True if there is a proof of it, in the most general form in which the rule takes it."""
        return isinstance(self.outcome, Proof)

    @property
    def reason(self) -> str:
        """The reason why it is not proved; empty if it is."""
        return "" if isinstance(self.outcome, Proof) else self.outcome.reason


@dataclass(frozen=True)
class RuleProof:
    """The forms of a rule.

    Attributes:
        rule: Its name.
        forms: Its forms, up to the first that is not proved.
        seconds: The time for the proofs, without the staging.
    """

    rule: str
    forms: tuple[FormProof, ...]
    seconds: float = field(default=0.0, compare=False)

    @property
    def is_proved(self) -> bool:
        """True if there are forms, and all are proved, some of them for sizes that have names."""
        return bool(self.forms) and all(f.is_proved for f in self.forms) and self.is_general

    @property
    def is_general(self) -> bool:
        """True if some form has names for sizes, or there are none."""
        return any(f.form.named for f in self.forms) or not any(f.form.numbers for f in self.forms)

    @property
    def refutation(self) -> tuple[Form, Refutation] | None:
        """The form that was refuted by running it; None if none was."""
        return next(((f.form, f.outcome) for f in self.forms if isinstance(f.outcome, Refutation)), None)

    @property
    def reason(self) -> str:
        """The reason why the rule is not proved; empty if it is."""
        if self.forms and not self.is_general:
            return "it fires at certain sizes alone, on none that has a name"
        return next((f.reason for f in self.forms if f.reason), "" if self.forms else "it fires on no form")

    @property
    def strength(self) -> str:
        """The weakest strength among the proofs."""
        found = {f.outcome.strength for f in self.forms if isinstance(f.outcome, Proof)}
        return next((s for s in (WITHIN_BOUND, IN_VALUE) if s in found), next(iter(found), ""))

    @property
    def extent(self) -> str:
        """The extent of the proof: the number of forms, ranks and dtypes, and whether numbers are left among sizes."""
        ranks = sorted({r for f in self.forms for r in f.form.ranks})
        dtypes = sorted({d for f in self.forms for d in f.form.dtypes})
        fixed = sum(f.form.numbers > 0 for f in self.forms)
        told = f"{len(self.forms)} forms of ranks {_listed(ranks)} in {_listed(dtypes)}"
        return told + (f"; in {fixed} of them some sizes are numbers, which the rule asks for" if fixed else "")

    @property
    def text(self) -> str:
        """All proofs as one script of SMT-LIB."""
        return "".join(f.outcome.text for f in self.forms if isinstance(f.outcome, Proof))


def _listed(items: Sequence[object]) -> str:
    return ", ".join(map(str, items)) or "none"


def prove_rule(
    rule: Rule,
    library: Sequence[Rule],
    *,
    seed: int = 0,
    count: int = FORMS,
    seconds: float = SECONDS,
    refute: bool = True,
) -> RuleProof:
    """Prove a rule, form by form, up to the first that is not proved.

    Args:
        rule: The rule.
        library: Rules of the lower stage, without which a raised operator may not be legal.
        seed: Of the staging.
        count: The number of graphs to stage.
        seconds: The time for all proofs.
        refute: True to run counterexamples.

    Raises:
        UsageError: z3 is not installed.
    """
    require_prover()
    found: list[FormProof] = []
    took = 0.0
    for form in forms(rule, library, seed=seed, count=count):
        start = time.process_time()
        outcome = prove(
            form.before,
            form.after,
            not_empty=Assumption.NOT_EMPTY in rule.assumes,
            seconds=max(seconds - took, 0.0),
            refute=refute,
            confirm=partial(differs_at, form.before, form.lowered, assumes=rule.assumes),
        )
        took += time.process_time() - start
        found.append(FormProof(form, outcome))
        if not found[-1].is_proved:
            break
    return RuleProof(rule.name, tuple(found), took)
