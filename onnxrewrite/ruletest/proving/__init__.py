"""Proofs of rules: each distinct form of a rule's pattern, with names for its sizes, is proved like a site.

found = prove_rule(rule, library)
assert found.is_proved, found.reasons
"""

from onnxrewrite.ruletest.proving.rule_proof import FORMS, FormProof, RuleProof, prove_rule

__all__ = ["FORMS", "FormProof", "RuleProof", "prove_rule"]
