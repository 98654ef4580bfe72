"""Every reason for which a replacement may not stand where the old nodes stood."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from driving import drive, printed, reason, renaming, rule, valid, x

from onnxrewrite.rules import AnyNode, Stage, Var, op

z = Var("z")
RELU = "float[2,3] x; y = Relu(x)"


def why(rewrite: Any, graph: str = RELU, pattern: Any = None, *, opset: int = 17, **options: Any) -> str:
    """Why the rewrite of ``Relu(x)`` is refused; that the graph is as before."""
    before = printed(drive(graph, []))
    pattern = op.Relu(x) if pattern is None else pattern
    driver = drive(graph, [rule("tried", pattern, rewrite, options.pop("stage", Stage.LOWER), **options)], opset=opset)
    assert printed(driver) == before
    assert driver.trace.applied == []
    return reason(driver, "tried")


# -- schema, opset, kernel ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda m, b: b.Relu(m[x], m[x]), "Relu of opset 14 does not take 2 inputs"),
        (lambda m, b: b.Conv(m[x]), "Conv of opset 11 does not take 1 inputs"),
        (lambda m, b: b.node("Neg", [])[0], "Neg of opset 13 does not take 0 inputs"),
        (lambda m, b: b.Where(None, m[x], m[x]), "Where lacks its input condition"),
        (lambda m, b: b.Relu(m[x], outputs=2)[0], "Relu of opset 14 does not have 2 outputs"),
        (lambda m, b: b.Relu(m[x], alpha=1.0), "Relu of opset 14 has no attribute alpha"),
        (lambda m, b: b.ReduceMean(m[x], axis=(0,)), "ReduceMean of opset 13 has no attribute axis"),
        (lambda m, b: b.Cast(m[x]), "Cast lacks its attribute to"),
        (lambda m, b: b.Softmax(m[x], axis="last"), "the rule raised RuleError: Softmax: attribute axis='last'"),
        (lambda m, b: b.LeakyRelu(m[x], alpha=[0.1]), "the rule raised RuleError: LeakyRelu: attribute alpha="),
        (lambda m, b: b.Mul(m[x], b.const(2.0, like=ir.DataType.DOUBLE)), "Mul mixes float and double"),
        (lambda m, b: b.Max(m[x], m[x], b.const(2)), "Max mixes float and int64"),
        (lambda m, b: b.Gelu(m[x]), "Gelu needs opset 20, model has 17"),
        (lambda m, b: b.NoSuch(m[x]), "NoSuch is no operator of opset 17 (ai.onnx)"),
        (lambda m, b: b.microsoft.NoSuch(m[x]), "com.microsoft.NoSuch is no operator of opset 1 (com.microsoft)"),
        (lambda m, b: b.domain("my.own").F(m[x]), "my.own.F is no operator of opset 1 (my.own)"),
        (lambda m, b: b.BitwiseNot(m[x]), "needs opset 18, model has 17"),
        (lambda m, b: b.Not(m[x]), "Not of opset 1 does not take T = float"),
        (lambda m, b: b.microsoft.FusedMatMulActivation(m[x], m[x], activation="Relu"), "no CPU kernel"),
    ],
)  # fmt: skip
def test_nodes_that_the_target_cannot_run(build: Any, expected: str) -> None:
    assert expected in why(build)


def test_dtypes_without_a_kernel() -> None:
    graph = "bfloat16[2,3] x; y = Relu(x)"
    assert why(lambda m, b: b.microsoft.Gelu(m[x]), graph).startswith("no CPU kernel of com.microsoft.Gelu")


def test_the_target_onnx_has_no_contrib_operators() -> None:
    gelu = rule("tried", op.Relu(x), lambda m, b: b.microsoft.Gelu(m[x]))
    driver = drive(RELU, [gelu], runs_on="onnx")
    assert reason(driver, "tried") == "target onnx has standard operators only"


def test_a_size_that_shape_inference_would_take_for_zero() -> None:
    def heads(m: Any, b: Any) -> Any:
        return b.Attention(m[x], m[x], m[x], q_num_heads=1, kv_num_heads=1)

    expected = "the last size of an operand of Attention is not known, and shape inference takes it for 0"
    assert why(heads, "float[2,3,n] x; y = Relu(x)", opset=23) == expected
    assert len(drive("float[2,n,3] x; y = Relu(x)", [rule("t", op.Relu(x), heads)], opset=23).trace.applied) == 1


def test_operators_of_the_models_own_functions_are_legal() -> None:
    graph = '(float[2] x) => (float[2] y) { a = own.F(x)  y = Relu(a) } <domain: "own"> F (p) => (q) { q = Neg(p) }'
    driver = drive(graph, [rule("again", op.Relu(x), lambda m, b: b.domain("own").F(m[x]))])
    # Nothing is known of the function's result, and that it is float has to be shown.
    assert reason(driver, "again") == "the result has dtype unknown, not float"
    driver = drive(graph, [rule("first", op.Relu(x), lambda m, b: b.Neg(b.Relu(b.domain("own").F(m[x]))))])
    assert reason(driver, "first").endswith("of Relu unknown")


# -- raising ------------------------------------------------------------------------------------------------------

RAISE = rule("raise", op.Relu(x), lambda m, b: b.Gelu(m[x]), Stage.RAISE)


def test_what_is_too_new_is_raised_only_if_it_can_be_lowered() -> None:
    assert reason(drive(RELU, [RAISE]), "raise") == "Gelu needs opset 20, model has 17"
    lower = rule("lower", op.Gelu(x), lambda m, b: b.microsoft.Gelu(m[x]), Stage.LOWER)
    driver = drive(RELU, [RAISE, lower])
    assert [a.rule for a in driver.trace.applied] == ["raise", "lower"]
    assert printed(driver) == "[Relu] y = com.microsoft.Gelu(x)"
    assert [n.op_type for n in drive(RELU, [RAISE], opset=20).model.graph] == ["Gelu"]


def test_a_lowering_that_refuses_does_not_count() -> None:
    def never(m: Any, b: Any) -> Any:
        m.refuse("not today")

    driver = drive(RELU, [RAISE, rule("lower", op.Gelu(x), never, Stage.LOWER)])
    assert reason(driver, "raise") == "Gelu needs opset 20, model has 17, and to lower it: not today"
    assert "lower" not in driver.trace.refused


def test_a_lowering_to_something_as_illegal_does_not_count() -> None:
    lower = rule("lower", op.Gelu(x), lambda m, b: b.Swish(m[x]), Stage.LOWER)
    told = reason(drive(RELU, [RAISE, lower]), "raise")
    assert told == "Gelu needs opset 20, model has 17, and to lower it: Swish needs opset 24, model has 17"


def test_trying_to_lower_leaves_nothing_behind() -> None:
    lower = rule("lower", op.Gelu(x), lambda m, b: b.Swish(b.Neg(m[x])), Stage.LOWER)
    driver = drive(RELU, [RAISE, lower])
    (given,) = driver.model.graph.inputs
    assert [u.op_type for u in given.consumers()] == ["Relu"]


# -- results ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda m, b: b.Cast(m[x], to=ir.DataType.DOUBLE), "the result has dtype double, not float"),
        (lambda m, b: b.Shape(m[x]), "the result has dtype int64, not float"),
        (lambda m, b: b.Unsqueeze(m[x], axes=(0,)), "the result has rank 3, not 2"),
        (lambda m, b: b.ReduceMean(m[x], axes=(0,), keepdims=0), "the result has rank 1, not 2"),
        (lambda m, b: b.Transpose(m[x], perm=(1, 0)), "dimension 0 of the result is 3, which is not shown to equal 2"),
        (lambda m, b: b.Add(m[x], np.zeros((2, 1, 1))), "the result has rank 3, not 2"),
        (lambda m, b: b.Concat(m[x], m[x], axis=0), "dimension 0 of the result is 4"),
    ],
)
def test_results_of_another_type(build: Any, expected: str) -> None:
    assert expected in why(build)


def test_symbolic_dimensions_must_be_shown_to_be_equal() -> None:
    graph = "float[n,m] x; float[k,m] w; y = Relu(x)  v = Neg(w)"
    swap = rule("swap", (op.Relu(x), op.Neg(z)), lambda m, b: [b.Neg(m[z]), b.Relu(m[x])])
    assert why(lambda m, b: b.Transpose(m[x], perm=(1, 0)), graph) == (
        "dimension 0 of the result is m, which is not shown to equal n"
    )
    driver = drive(graph, [swap])
    assert driver.trace.applied == []
    same = rule("same", op.Relu(x), lambda m, b: b.Transpose(b.Transpose(m[x], perm=(1, 0)), perm=(1, 0)))
    assert len(drive(graph, [same], quarantine=[("same", "v")]).trace.applied) > 0


def test_sequences_of_another_type() -> None:
    graph = "float[2] x; int64[2] i; s = SequenceConstruct(x)  t = SequenceConstruct(i)  y = SequenceAt(s, 0)  v = SequenceAt(t, 0)"
    sequences = AnyNode(op_types=("SequenceConstruct",))

    def other(m: Any, b: Any) -> Any:
        node = m.node(sequences)
        return next(n for n in node.graph if n.op_type == "SequenceConstruct" and n is not node).outputs[0]

    driver = drive(graph, [rule("other", sequences, other)])
    assert driver.trace.applied == []
    assert "the result has type" in reason(driver, "other")


def test_a_number_of_shape_one_may_raise_the_rank() -> None:
    graph = "a = Mul(x, {2.0})  y = Relu(a)"
    double = rule("double", 2.0 * x, lambda m, b: b.Add(m[x], m[x]))
    driver = drive(graph, [double])
    assert reason(driver, "double") == "constant `c0` of rank 1 may raise the rank at `Mul`"
    for known in ("float[n] x; a = Mul(x, {2.0})  y = Relu(a)", "a = Mul(x, 2.0)  y = Relu(a)"):
        assert len(drive(known, [double]).trace.applied) == 1


def test_to_be_written_again_is_not_to_be_lowered() -> None:
    """A rule of the lower stage that writes an illegal operator once more does not make it legal."""
    again = rule("again", op.Gemm(x, z), lambda m, b: b.Gemm(m[x], m[z]), Stage.LOWER)
    mixing = rule("mixing", op.Relu(x), lambda m, b: b.Gemm(m[x], b.const([[1.0]])), Stage.CANONICALIZE)
    driver = drive("double[1,1] x; y = Relu(x)", [mixing, again])
    assert driver.trace.applied == []
    assert reason(driver, "mixing").startswith("Gemm mixes double and float")


def test_operands_that_are_not_shown_to_fit() -> None:
    """The sum of [3,3] and [n,3] is inferred to be [3,3], which holds only where n is 3 or 1."""
    graph = "float[3,3] z; float[n,3] x; t = Transpose<perm=[1,0]>(x)  p = MatMul(t, x)  y = MatMul(z, p)"
    pattern = op.MatMul(z, op.MatMul(op.Transpose(x, perm=(1, 0)), x))
    refused = why(lambda m, b: b.Add(m[z], m[x]), graph, pattern)
    assert refused == "Add takes sizes that are not shown to fit: 3 and n"


# -- inner values -------------------------------------------------------------------------------------------------

PAIR = op.Neg(op.Relu(x))


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        ("(float[2] x) => (y, a) { a = Relu(x)  y = Neg(a) }", "`a` inside the match is a graph output"),
        ("float[2] x; a = Relu(x)  y = Neg(a)  v = Exp(a)", "`a` inside the match is also used by Exp `Exp`"),
        (
            "float[2] x; bool c; a = Relu(x)  y = Neg(a)  v = If<then_branch = () => (p) { p = Sin(a) }, "
            "else_branch = () => (q) { q = Abs(x) }>(c)",
            "`a` inside the match is also used by Sin `Sin`",
        ),
    ],
)
def test_inner_values_that_are_needed(graph: str, expected: str) -> None:
    assert why(lambda m, b: b.Sigmoid(m[x]), graph, PAIR) == expected
    driver = drive(graph, [rule("fuse", PAIR, lambda m, b: b.Sigmoid(m[x]), allow_shared=True)])
    assert len(driver.trace.applied) == 1
    assert "Relu" in printed(driver)
    valid(driver)


def test_the_same_operand_twice_is_no_other_use() -> None:
    square = op.Mul(z, z)
    driver = drive("float[2] x; a = Relu(x)  y = Mul(a, a)", [rule("square", square, lambda m, b: b.Pow(m[z], 2.0))])
    assert printed(driver).splitlines()[-1] == "[Mul] y = Pow(a, 2.0)"


def test_nodes_that_the_rewrite_covers_may_be_shared_no_more() -> None:
    def cover(m: Any, b: Any) -> Any:
        producer = m[x].producer()
        m.cover(producer)
        return b.Sigmoid(producer.inputs[0])

    assert why(cover, "float[2] x; a = Relu(x)  y = Neg(a)  v = Exp(a)", op.Neg(x)) == (
        "`a` inside the match is also used by Exp `Exp`"
    )


# -- attributes ---------------------------------------------------------------------------------------------------


def test_attributes_that_nobody_looked_at() -> None:
    soft = op.Softmax(x)
    graph = "float[2,3] x; y = Softmax<axis=0>(x)"
    assert why(lambda m, b: b.Sigmoid(m[x]), graph, soft) == ("the rule does not consider axis=0 of Softmax `Softmax`")
    for graph in ("float[2,3] x; y = Softmax<axis=-1>(x)", "float[2,3] x; y = Softmax(x)"):
        assert len(drive(graph, [rule("r", soft, lambda m, b: b.Sigmoid(m[x]))]).trace.applied) == 1


# -- cycles and what is out of sight ------------------------------------------------------------------------------


def test_a_replacement_that_reads_what_it_replaces() -> None:
    cycle = "the replacement depends on what it replaces"
    assert why(lambda m, b: b.Neg(m.anchor)) == cycle
    graph = "float[2] x; a = Relu(x)  b = Exp(a)  y = Neg(b)"

    def downstream(m: Any, b: Any) -> Any:
        (reader,) = m.anchor.consumers()
        return b.Sin(reader.outputs[0])

    assert why(downstream, graph) == cycle


def test_covering_what_lies_below_does_not_hide_a_cycle() -> None:
    graph = "float[2] x; a = Relu(x)  b = Exp(a)  c = Sin(b)  y = Neg(c)"

    def below(m: Any, b: Any) -> Any:
        (exp,) = m.anchor.consumers()
        (sin,) = exp.outputs[0].consumers()
        m.cover(sin)
        return b.Neg(exp.outputs[0])

    assert why(below, graph, allow_shared=True) == "the replacement depends on what it replaces"


def test_nothing_to_change() -> None:
    assert why(lambda m, b: m.anchor) == "there is nothing to change"


def test_values_of_no_graph() -> None:
    def stray(m: Any, b: Any) -> Any:
        made = ir.Node("", "Neg", [m[x]])
        made.outputs[0].type, made.outputs[0].shape = m[x].type, m[x].shape
        made.outputs[0].name = "stray"
        try:
            return b.Exp(made.outputs[0])
        finally:
            made.replace_input_with(0, None)

    assert why(stray) == "the replacement reads `stray`, which is not there"


def test_values_of_nodes_that_were_removed() -> None:
    kept: list[ir.Value] = []

    def remember(m: Any, b: Any) -> Any:
        if kept:
            return b.Exp(kept[0])
        kept.append(m.anchor)
        return b.Sin(m[x])

    driver = drive("float[2] x; a = Relu(x)  b = Relu(x)  y = Add(a, b)", [rule("r", op.Relu(x), remember)])
    assert reason(driver, "r") == "the replacement reads `a/replaced`, which is not there"
    valid(driver)


def test_values_of_a_subgraph() -> None:
    graph = (
        "float[2] x; bool c; y = If<then_branch = () => (float[2] p) { p = Sin(x) }, "
        "else_branch = () => (float[2] q) { q = Abs(x) }>(c)"
    )
    branching = AnyNode(op_types=("If",))

    def inner(m: Any, b: Any) -> Any:
        return b.Neg(m.node(branching).attributes["then_branch"].as_graph().outputs[0])

    assert why(inner, graph, branching) == "the replacement reads `p`, which is not there"


def test_subgraphs_may_read_from_outside() -> None:
    graph = (
        "float[2] x; bool c; a = Exp(x)  y = If<then_branch = () => (float[2] p) { p = Relu(x) }, "
        "else_branch = () => (float[2] q) { q = Abs(a) }>(c)"
    )

    def outer(m: Any, b: Any) -> Any:
        exp = next(n for n in m[x].consumers() if n.op_type == "Exp")
        return b.Neg(exp.outputs[0])

    driver = drive(graph, [rule("r", op.Relu(x), outer)])
    assert "p = Neg(a)" in printed(driver)
    valid(driver)


# -- several outputs ----------------------------------------------------------------------------------------------


def pair(first: Any, second: Any) -> Any:
    return rule("pair", (op.Relu(x), op.Neg(x)), lambda m, b: [first(m, b), second(m, b)])


def test_one_output_may_depend_on_the_other() -> None:
    graph = "float[2] x; a = Relu(x)  b = Neg(x)  y = Add(a, b)"
    chained = pair(lambda m, b: b.Sin(m[x]), lambda m, b: b.Cos(b.nodes[0].outputs[0]))
    driver = drive(graph, [chained])
    assert [a.rule for a in driver.trace.applied] == ["pair"]
    assert printed(driver) == '[Relu] a = Sin(x)\n["Relu/Cos"] b = Cos(a)\n[Add] y = Add(a, b)'
    valid(driver)


def test_outputs_that_depend_on_each_other_through_the_graph() -> None:
    graph = "float[2] x; a = Relu(x)  b = Neg(x)  c = Exp(a)  d = Log(b)  y = Add(c, d)"

    def reading(op_type: str) -> Any:
        def read(m: Any, b: Any) -> Any:
            node = next(n for n in m.nodes[0].graph if n.op_type == op_type)
            return b.Sin(node.outputs[0])

        return read

    driver = drive(graph, [pair(reading("Log"), reading("Exp"))])
    assert reason(driver, "pair") == "the replacement depends on what it replaces"
    one_way = drive(graph, [pair(lambda m, b: b.Sin(m[x]), reading("Exp"))])
    assert len(one_way.trace.applied) == 1
    valid(one_way)


def test_too_few_or_too_many_results() -> None:
    for results in (lambda m, b: b.Sin(m[x]), lambda m, b: [b.Sin(m[x])] * 3, lambda m, b: [], lambda m, b: None):
        driver = drive(
            "float[2] x; a = Relu(x)  b = Neg(x)  y = Add(a, b)", [rule("pair", (op.Relu(x), op.Neg(x)), results)]
        )
        assert reason(driver, "pair").startswith("the rule must return 2 values, it returned")


@pytest.mark.parametrize("result", [3, "y", np.ones(3), {"a": 1}, [None], object()])
def test_results_that_are_no_values(result: Any) -> None:
    said = why(lambda m, b: result)
    assert said.startswith(("the rule must return 1 values", "the rule raised TypeError"))


def test_where_nothing_speaks_against_it_the_rule_applies() -> None:
    assert printed(drive(RELU, [renaming("Relu", "Abs")])) == "[Relu] y = Abs(x)"
