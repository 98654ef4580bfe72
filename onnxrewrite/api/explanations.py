"""``explain``, and its result with what a notebook shows."""

from __future__ import annotations

from collections.abc import Iterable

from onnxrewrite import io
from onnxrewrite.explanation import near_miss
from onnxrewrite.explanation.why_not import Explainer, only_rule
from onnxrewrite.ir.target import target as target_by_name
from onnxrewrite.report.html.notebook import explanation_html
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.preparation import prepared
from onnxrewrite.rewrite.rule import Assumption, Rule, withheld


class Explanation(near_miss.Explanation):
    """The result of ``explain``: an ``explanation.near_miss.Explanation`` with a representation for notebooks."""

    def _repr_html_(self) -> str:
        return explanation_html(self.to_json())


def explain(
    model: io.Source,
    rule: str | Rule,
    *,
    rules: Iterable[str] = (),
    target: str = "onnxruntime-cpu",
    opset: int | None = None,
    at: str | None = None,
    check: bool = True,
    assume: Iterable[str | Assumption] = (),
) -> Explanation:
    """The places where a rule applies in a model, and its near misses, with the reason of each.

    The rule sees the model as it does in ``apply``: after the stages before its own, beside the other rules.

    Args:
        model: A path, an ``onnx.ModelProto`` or an ``onnx_ir.Model``; it is not changed.
        rule: A rule, or its name.
        rules: Files or packages with rules beside the library's.
        target: The target that the result must run on.
        opset: Convert the model to this ai.onnx opset first.
        at: Only at this node, or the node that computes the value of this name.
        check: Also run what would come of it without the first requirement that fails.
        assume: Assumptions about the data that no rule makes unless asked, as for ``apply``.

    Raises:
        UsageError, ModelError, RuleError: Bad arguments, model or rules; no such node.
    """
    library = registry.load(rules)
    if isinstance(rule, Rule) and rule not in list(library):
        library.add([rule])
    subject = rule if isinstance(rule, Rule) else only_rule(library, rule)
    loaded = prepared(io.load(model), library, target_by_name(target), opset).model
    explainer = Explainer(loaded, list(library), target, check=check, withheld=withheld(assume))
    return Explanation(**vars(explainer.explain(subject, at)))
