"""The rule ladder: what a rule does in general, tried on graphs that nobody has written down.

    verdict = fuzz(rule, library)
    assert not verdict.refuted, verdict.counterexample

Rung by rung: instances are made from the pattern and from the examples and varied (``instances``); both sides are
compared in exact arithmetic, then in their own dtype against float64 at the edges of their operators (``judge``); where
the rule refuses, its guards are asked whether they are too strict (``guards``); what differs is made small
(``minimise``) and can be saved (``counterexample``).

A verdict is never a proof: it says what was tried.
"""

from onnxrewrite.ruletest.fuzz.fuzzer import INSTANCES, fuzz
from onnxrewrite.ruletest.fuzz.verdict import Counterexample, Verdict

__all__ = ["INSTANCES", "Counterexample", "Verdict", "fuzz"]
