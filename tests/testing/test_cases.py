"""Classes of tests that one line makes: they pass where rules and models are right, and fail where they are not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from onnxrewrite.errors import RuleError, UsageError
from onnxrewrite.rewrite import registry
from onnxrewrite.testing import assert_rejects, assert_rewrites, golden_tests, rule_tests

ROOT = Path(__file__).resolve().parents[2]

RULE = '''"""A rule, right or wrong."""
from onnxrewrite.rules import FLOATS, Rewrites, Rule, Stage, Var, op

x = Var("x", dtype=FLOATS)


def positive(m, build):
    """|x| ⟶ {to}."""
    return build.{to}(m[x])


RULE = Rule(
    "absolute", Stage.CANONICALIZE, op.Abs(x), positive, examples=(Rewrites("y = Abs(x)", to="y = {to}(x)"),)
)
'''


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    variables = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)


@pytest.mark.slow
def test_a_wrong_rule_fails(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(RULE.format(to="Relu"))
    (tmp_path / "test_wrong.py").write_text(
        "from onnxrewrite.testing import rule_tests\nTestRules = rule_tests('wrong.py')\n"
    )
    done = run(tmp_path)
    assert "1 failed, 2 passed" in done.stdout, done.stdout
    assert "test_ladder[absolute]" in done.stdout


@pytest.mark.slow
def test_golden_models_are_renewed(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "golden_models" / "resnet", tmp_path / "models" / "resnet")
    expected = tmp_path / "models" / "resnet" / "expected.toml"
    (tmp_path / "test_models.py").write_text(
        "from onnxrewrite.testing import golden_tests\nTestModels = golden_tests('models')\n"
    )
    expected.write_text("")
    assert "no expectation yet" in run(tmp_path).stdout
    assert "1 passed" in run(tmp_path, "--update-golden").stdout
    renewed = expected.read_text()
    assert "[expected.operators]" in renewed
    assert "1 passed" in run(tmp_path).stdout
    expected.write_text(renewed.replace('"Conv" = ', '"Conv" = 1'))
    assert "other operators than expected" in run(tmp_path).stdout


def test_what_is_not_there() -> None:
    with pytest.raises(RuleError):
        rule_tests("no_such_rules")
    with pytest.raises(UsageError):
        golden_tests(ROOT / "docs")


def test_the_two_assertions() -> None:
    (rule,) = registry.load().named("double-negation")
    assert_rewrites(rule, "a = Neg(x)  b = Neg(a)  y = Relu(b)", to="y = Relu(x)")
    with pytest.raises(AssertionError, match="does not apply"):
        assert_rewrites(rule, "a = Neg(x)  y = Relu(a)", to="y = Relu(x)")
    assert_rejects(rule, "a = Neg(x)  y = Relu(a)", because="expected BitwiseNot|Neg|Not")
    with pytest.raises(AssertionError, match="must reject"):
        assert_rejects(rule, "a = Neg(x)  b = Neg(a)  y = Relu(b)", because="")
