"""Classes of tests, each made by one line: of all rules of a module, of all golden models of a folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from onnxrewrite.errors import UsageError
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.rule import Example, Rule
from onnxrewrite.testing import golden
from onnxrewrite.testing.assertions import check_example, check_golden, check_ladder

COUNT = 20
"""Fewer graphs for each rule than ``onnxrewrite verify`` tries, for tests are run often."""


def rule_tests(rules: str | Iterable[Rule], *, count: int = COUNT) -> type:
    """A class of tests, to be assigned to a name that begins with ``Test``.

    Every rule says what it does and shows it in an example, every example comes true, and on ``count`` graphs made
    from pattern and examples both sides compute the same.

    Args:
        rules: A file of rules, the name of a module, or rules.
        count: The number of graphs that each rule is tried on.

    Raises:
        RuleError: There is no such file or module, or it has no rules.
    """
    import pytest

    library = list(registry.load())
    wanted = list(registry.rules_of(registry.load_module(rules)) if isinstance(rules, str) else rules)
    names = {rule.name for rule in wanted}
    library = [*wanted, *(rule for rule in library if rule.name not in names)]
    examples = [pytest.param(r, e, id=f"{r.name}-{i}") for r in wanted for i, e in enumerate(r.examples)]

    class TestRules:
        """Made by ``rule_tests``."""

        @pytest.mark.parametrize("rule", wanted, ids=lambda rule: rule.name)
        def test_shows_what_it_does(self, rule: Rule) -> None:
            assert rule.summary, f"{rule.name}: the first line of the rewrite's docstring says lhs ⟶ rhs"
            assert rule.examples, f"{rule.name} has no example"

        @pytest.mark.parametrize(("rule", "example"), examples)
        def test_example(self, rule: Rule, example: Example) -> None:
            check_example(rule, example, library)

        @pytest.mark.parametrize("rule", wanted, ids=lambda rule: rule.name)
        def test_ladder(self, rule: Rule) -> None:
            check_ladder(rule, library, count=count)

    return TestRules


def golden_tests(folder: str | Path, *, rules: Sequence[str | Rule] = ()) -> type:
    """A class of tests, to be assigned to a name that begins with ``Test``: of every golden model below ``folder``.

    Args:
        folder: With a folder for each model, which holds ``model.onnx`` and ``expected.toml``, empty for a new one.
        rules: Rules beside the library's and those of installed plugins.

    Raises:
        UsageError: There is no golden model, or a file of one is broken.
    """
    import pytest

    models = golden.find(Path(folder))
    if not models:
        raise UsageError(f"no golden models in {folder}: each is a folder with model.onnx and expected.toml")

    class TestModels:
        """Made by ``golden_tests``."""

        @pytest.mark.parametrize("model", models, ids=lambda model: model.folder.name)
        def test_is_as_expected(self, model: golden.Golden, update_golden: bool) -> None:
            check_golden(model, rules=rules, renew=update_golden)

    return TestModels
