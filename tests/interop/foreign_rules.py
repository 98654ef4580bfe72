"""Rules as researchers write them for onnxscript: right ones, wrong ones, and some that misbehave."""

from __future__ import annotations

from onnxscript.rewriter import MatchResult, RewriteRule, RewriteRuleClassBase, RewriteRuleSet


def log_of_softmax(op, x):
    return op.Log(op.Softmax(x, axis=1))


def log_softmax(op, x):
    return op.LogSoftmax(x, axis=1)


log_softmax_rule = RewriteRule(log_of_softmax, log_softmax)


class NegNeg(RewriteRuleClassBase):
    """Replaces ``Neg(Neg(x))`` by ``x``."""

    def pattern(self, op, x):
        return op.Neg(op.Neg(x))

    def check(self, context, x) -> MatchResult:
        result = MatchResult()
        return result if x.dtype is not None else result.fail("The dtype is not known", x)

    def rewrite(self, op, x):
        return op.Identity(x)


class HalfTwice(RewriteRuleClassBase):
    """Wrong: ``x / 2`` is no ``x * 2``."""

    def __init__(self):
        super().__init__("HalfTwice")

    def pattern(self, op, x):
        return op.Div(x, 2.0)

    def rewrite(self, op, x):
        return x_times_two(op, x)


def x_times_two(op, x):
    return op.Mul(x, op.Constant(value_float=2.0))


def relu_of(op, x):
    return op.Relu(x)


def sigmoid_of(op, x):
    return op.Sigmoid(x)


wrong = RewriteRuleSet([HalfTwice.rule()])
both = [log_softmax_rule, NegNeg]


def made():
    return RewriteRuleSet([log_softmax_rule])


def failing():
    raise ValueError("no rules today")


class NeedsArguments(NegNeg):
    def __init__(self, depth):
        super().__init__()
        self.depth = depth


# -- that misbehave ------------------------------------------------------------------------------------------------


def _raises(op, x):
    op.Sigmoid(x)  # built, and then given up
    raise KeyError("nothing there")


def _gives_up(op, x):
    op.Sigmoid(x)
    return MatchResult().fail("It is Tuesday.", x)


def _nothing(op, x):
    return None


def _renames(op, x):
    x.producer().outputs[0].name = "renamed"
    return op.Sigmoid(x)


def _unhooks(op, x):
    x.producer().replace_input_with(0, None)
    return op.Sigmoid(x)


def _two(op, x):
    return op.Sigmoid(x), op.Tanh(x)


def _unknown(op, x):
    return op.NoSuchOperator(x, _domain="nowhere")


def _too_new(op, x):
    return op.Swish(x, _version=24)


raises, gives_up, nothing, renames, unhooks, two, unknown, too_new = (
    RewriteRule(relu_of, function, name=function.__name__.strip("_"))
    for function in (_raises, _gives_up, _nothing, _renames, _unhooks, _two, _unknown, _too_new)
)
as_function = RewriteRule(relu_of, sigmoid_of, name="as-function", as_function=True)


def _broken_condition(context, x):
    raise RuntimeError("no condition")


broken_condition = RewriteRule(relu_of, sigmoid_of, _broken_condition, name="broken-condition")
right = RewriteRule(relu_of, lambda op, x: op.Max(x, op.Constant(value_float=0.0)), name="relu-as-max")
