"""Tests of rules and models, for whoever writes rules.

    from onnxrewrite.testing import assert_rewrites, golden_tests, rule_tests

    TestRules = rule_tests("my_rules")
    TestModels = golden_tests("golden_models")

The pytest plugin beside it, which comes with the package, adds ``--update-golden``.
"""

from onnxrewrite.testing.assertions import (
    assert_rejects,
    assert_rewrites,
    check_counterexample,
    check_example,
    check_golden,
    check_ladder,
)
from onnxrewrite.testing.cases import golden_tests, rule_tests

__all__ = [
    "assert_rejects",
    "assert_rewrites",
    "check_counterexample",
    "check_example",
    "check_golden",
    "check_ladder",
    "golden_tests",
    "rule_tests",
]
