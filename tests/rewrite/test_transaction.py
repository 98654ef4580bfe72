"""What a rewrite does to the graph: names, outputs, constants, scopes, remainders."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from driving import drive, printed, reason, renaming, rule, valid, x

from onnxrewrite import io
from onnxrewrite.ir import text
from onnxrewrite.rules import AnyNode, Const, Var, op

z = Var("z")


def run(model: onnx.ModelProto, **feeds: Any) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def outputs(driver: Any) -> list[str]:
    return [o.name for o in driver.model.graph.outputs]


# -- names --------------------------------------------------------------------------------------------------------


def test_a_new_value_takes_the_name_of_the_old_one() -> None:
    grow = rule("grow", op.Relu(x), lambda m, b: b.Max(m[x], b.Mul(m[x], 0.0)))
    driver = drive("float[2] x; [act] a = Relu(x)  y = Neg(a)", [grow])
    assert printed(driver) == '["act/Mul"] "a/Mul" = Mul(x, 0.0)\n[act] a = Max(x, "a/Mul")\n[Neg] y = Neg(a)'
    valid(driver)


def test_an_existing_value_keeps_its_name() -> None:
    identity = AnyNode(op_types=("Identity",))
    drop = rule("drop", identity, lambda m, b: m.node(identity).inputs[0])
    driver = drive("float[2] x; a = Relu(x)  i = Identity(a)  y = Neg(i)", [drop])
    assert printed(driver) == "[Relu] a = Relu(x)\n[Neg] y = Neg(a)"


def test_an_existing_value_takes_the_name_of_an_output() -> None:
    drop = rule("drop", op.Neg(op.Neg(x)), lambda m, b: m[x])
    driver = drive("float[2] x; a = Relu(x)  n = Neg(a)  y = Neg(n)", [drop])
    assert printed(driver) == "[Relu] y = Relu(x)"
    valid(driver)


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        # the input itself, a constant, a value that is exported already, and one of an outer scope
        ("float[2] x; n = Neg(x)  y = Neg(n)", "[Neg_1] y = Identity(x)"),
        (
            "(float[2] x) => (y, v) <float[2] w = {1.0, 2.0}> { n = Neg(w)  y = Neg(n)  v = Abs(x) }",
            "Identity({1.0, 2.0})",
        ),
        ("(float[2] x) => (y, a) { a = Relu(x)  n = Neg(a)  y = Neg(n) }", "[Neg_1] y = Identity(a)"),
    ],
)
def test_what_cannot_bear_an_outputs_name_goes_through_an_identity(graph: str, expected: str) -> None:
    driver = drive(graph, [rule("drop", op.Neg(op.Neg(x)), lambda m, b: m[x])])
    assert len(driver.trace.applied) == 1
    assert expected in printed(driver)
    assert outputs(driver)[0] == "y"
    valid(driver)


def test_an_output_of_a_branch_from_outside_goes_through_an_identity() -> None:
    graph = (
        "float[2] x; bool c; a = Relu(x)  y = If<then_branch = () => (float[2] p) { n = Neg(a)  p = Neg(n) }, "
        "else_branch = () => (float[2] q) { q = Abs(x) }>(c)"
    )
    driver = drive(graph, [rule("drop", op.Neg(op.Neg(x)), lambda m, b: m[x], allow_shared=True)])
    assert "p = Identity(a)" in printed(driver)
    valid(driver)


def test_the_identity_that_names_an_output_stays() -> None:
    identity = AnyNode(op_types=("Identity",))
    drop = rule("drop", identity, lambda m, b: m.node(identity).inputs[0])
    for graph in (
        "float[2] x; y = Identity(x)",
        "(float[2] x) => (y, a) { a = Relu(x)  y = Identity(a) }",
        "(float[2] x) => (y) <float[2] w = {1.0, 2.0}> { y = Identity(w) }",
    ):
        driver = drive(graph, [drop])
        assert driver.trace.applied == []
        assert reason(driver, "drop") == "the Identity gives a graph output its name"
    driver = drive("float[2] x; a = Relu(x)  y = Identity(a)", [drop])
    assert printed(driver) == "[Relu] y = Relu(x)"


def test_a_value_exported_twice() -> None:
    graph = "(float[2] x) => (y, y) { a = Relu(x)  y = Neg(a) }"
    driver = drive(graph, [renaming("Neg", "Abs")])
    assert outputs(driver) == ["y", "y"]
    assert printed(driver) == "[Relu] a = Relu(x)\n[Neg] y = Abs(a)"


def test_two_outputs_that_become_one_value() -> None:
    graph = "(float[2] x) => (y, v) { y = Neg(x)  v = Relu(x) }"
    merge = rule("merge", (op.Neg(x), op.Relu(x)), lambda m, b: [b.Abs(m[x])] * 2)
    driver = drive(graph, [merge])
    assert outputs(driver) == ["y", "v"]
    proto = valid(driver)
    a, b = run(proto, x=np.array([-1, 2], np.float32))
    assert a.tolist() == b.tolist() == [1, 2]


def test_names_do_not_clash_with_those_in_subgraphs_and_functions() -> None:
    graph = (
        '(float[2] x, bool c) => (y) { a = Relu(x)  "a/Mul" = Exp(a)  y = If<then_branch = () => (float[2] "a/Mul_1")'
        ' { "a/Mul_1" = Sin("a/Mul") }, else_branch = () => (float[2] q) { q = Abs(a) }>(c) }'
    )
    grow = rule("grow", op.Relu(x), lambda m, b: b.Max(m[x], b.Mul(m[x], 0.0)))
    driver = drive(graph, [grow])
    assert '"a/Mul_2" = Mul(x, 0.0)' in printed(driver)
    valid(driver)


def test_dead_nodes_go_and_unused_initializers_with_them() -> None:
    graph = "(float[2] x) => (y) <float[2] w = {1.0, 2.0}> { d = Add(x, w)  e = Exp(d)  y = Relu(x) }"
    assert printed(drive(graph, [])) == "[Relu] y = Relu(x)"


# -- constants ----------------------------------------------------------------------------------------------------

ADD_TWO = rule("add-two", op.Relu(x), lambda m, b: b.Add(m[x], b.const([2.0, 3.0], like=x)))


def test_constants_become_initializers_of_their_scope() -> None:
    driver = drive("float[2] x; y = Relu(x)", [ADD_TWO])
    assert list(driver.model.graph.initializers) == ["y/const"]
    graph = (
        "float[2] x; bool c; y = If<then_branch = () => (float[2] p) { p = Relu(x) }, "
        "else_branch = () => (float[2] q) { q = Relu(x) }>(c)"
    )
    driver = drive(graph, [ADD_TWO])
    assert not driver.model.graph.initializers
    (branching,) = driver.model.graph
    inner = [a.as_graph() for a in branching.attributes.values()]
    assert sorted(n for g in inner for n in g.initializers) == ["p/const", "q/const"]
    valid(driver)


FUNCTION = (
    '(float[2] x) => (float[2] y) { y = own.F(x) } <domain: "own", opset_import: ["": 17]> F (p) => (q) { q = Relu(p) }'
)


def body(driver: Any) -> list[str]:
    (function,) = driver.model.functions.values()
    return [n.op_type for n in function]


def test_constants_in_functions_become_nodes() -> None:
    driver = drive(FUNCTION, [ADD_TWO])
    assert body(driver) == ["Constant", "Add"]
    proto = valid(driver)
    assert run(proto, x=np.zeros(2, np.float32))[0].tolist() == [2, 3]


def test_constants_in_functions_are_constants_for_the_next_rule() -> None:
    fold = rule("double", op.Add(x, Const("w")), lambda m, b: b.Mul(m[x], 2.0))
    driver = drive(FUNCTION, [ADD_TWO, fold])
    assert body(driver) == ["Constant", "Mul"]
    valid(driver)


def test_unused_constants_are_not_placed() -> None:
    def wasteful(m: Any, b: Any) -> Any:
        b.const(np.zeros(1000))
        return b.Neg(m[x])

    driver = drive("float[2] x; y = Relu(x)", [rule("r", op.Relu(x), wasteful)])
    assert not driver.model.graph.initializers


def test_a_constant_result() -> None:
    zero = rule("zero", op.Relu(x), lambda m, b: b.const([0.0, 0.0], like=x))
    assert printed(drive("float[2] x; a = Relu(x)  y = Neg(a)", [zero])) == "[Neg] y = Neg({0.0, 0.0})"
    driver = drive("float[2] x; y = Relu(x)", [zero])
    assert printed(driver) == "[Relu] y = Identity({0.0, 0.0})"
    valid(driver)


def test_constants_of_old_ir_versions() -> None:
    model = text.parse("float[2] x; y = Relu(x)", ir_version=3, opset=8)
    driver = drive(model, [ADD_TWO])
    proto = io.to_proto(driver.model)
    assert [n.op_type for n in proto.graph.node] == ["Constant", "Add"]
    assert not proto.graph.initializer


# -- chains -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("graph", "pattern", "expected"),
    [
        ("m = Mul(x, 2.0)  y = Mul(m, w)", 2.0 * op.Exp(z), ""),
        ("e = Exp(x)  m = Mul(e, w)  y = Mul(m, 2.0)", 2.0 * op.Exp(z), "Mul(Sin(x), w)"),
        ("e = Exp(x)  m = Mul(e, w)  y = Div(2.0, m)", 2.0 / op.Exp(z), "Div(Sin(x), w)"),
        ("e = Exp(x)  m = Add(e, w)  y = Add(m, 2.0)", 2.0 + op.Exp(z), "Add(Sin(x), w)"),
        ("e = Exp(x)  m = Sub(e, w)  y = Add(m, 2.0)", 2.0 + op.Exp(z), "Sub(Sin(x), w)"),
        ("e = Exp(x)  m = Sub(w, e)  y = Sub(2.0, m)", 2.0 + op.Exp(z), "Sub(Sin(x), w)"),
    ],
)
def test_what_a_longer_chain_leaves_over_is_put_back(graph: str, pattern: Any, expected: str) -> None:
    graph = f"float[2] x; float[2] w; {graph}"
    driver = drive(graph, [rule("chain", pattern, lambda m, b: b.Sin(m[z]))])
    if not expected:
        assert driver.trace.applied == []
        return
    by_output = {n.outputs[0].name: n for n in driver.model.graph}
    last = by_output["y"]

    def spelled(value: ir.Value) -> str:
        node = value.producer()
        return value.name or "" if node is None else f"{node.op_type}({', '.join(spelled(i) for i in node.inputs)})"

    assert spelled(last.outputs[0]) == expected
    valid(driver)


def test_the_remainder_is_part_of_the_result_and_is_checked_like_it() -> None:
    """What is put back may broadcast; the result has the shape of the whole chain."""
    graph = "float[3] x; float[2,3] w; e = Exp(x)  m = Mul(e, w)  y = Mul(m, 2.0)"
    driver = drive(graph, [rule("chain", 2.0 * op.Exp(z), lambda m, b: b.Sin(m[z]))])
    assert len(driver.trace.applied) == 1
    assert str(driver.model.graph.outputs[0].shape) == "[2,3]"
    valid(driver)


# -- order and several outputs ------------------------------------------------------------------------------------


def test_several_outputs_and_a_reader_in_between() -> None:
    """The replacement reads what comes after the first of the values that it replaces."""
    graph = "(float[2] x, float[2] w) => (y, v) { a = Neg(x)  y = Exp(a)  late = Sin(w)  v = Mul(late, x) }"

    def both(m: Any, b: Any) -> list[ir.Value]:
        made = b.Add(m[z], m[x])
        return [made, b.Sub(made, m[z])]

    pattern = (op.Neg(x), op.Mul(z, x))
    driver = drive(graph, [rule("both", pattern, both)])
    assert len(driver.trace.applied) == 1
    valid(driver)
    order = [n.outputs[0].name for n in driver.model.graph]
    assert order.index("late") < order.index("v")


def test_the_other_outputs_of_a_node_live_on() -> None:
    graph = "float[4] x; a, b = Split<axis=0>(x, {1, 3})  p = Relu(a)  y = Concat<axis=0>(p, b)"
    split = AnyNode(op_types=("Split",))

    def first(m: Any, b: Any) -> ir.Value:
        m.require(m[split].index() == 0, "only the first")
        return b.Slice(m.node(split).inputs[0], (0,), (1,), (0,))

    driver = drive(graph, [rule("first", split, first, allow_shared=True)])
    assert len(driver.trace.applied) == 1
    proto = valid(driver)
    assert run(proto, x=np.array([-1, 2, 3, 4], np.float32))[0].tolist() == [0, 2, 3, 4]
    assert len({o for n in proto.graph.node for o in n.output}) == sum(len(n.output) for n in proto.graph.node)


def test_all_outputs_of_a_node_at_once() -> None:
    graph = "float[4] x; a, b = Split<axis=0>(x, {2, 2})  y = Add(a, b)"
    pieces = op.Split(x, split=(2, 2))

    def slices(m: Any, b: Any) -> list[ir.Value]:
        m.attrs(pieces)
        return [b.Slice(m[x], (i,), (i + 2,), (0,)) for i in (0, 2)]

    driver = drive(graph, [rule("slices", (pieces[0], pieces[1]), slices)])
    assert [n.op_type for n in driver.model.graph] == ["Slice", "Slice", "Add"]
    proto = valid(driver)
    assert run(proto, x=np.array([1, 2, 3, 4], np.float32))[0].tolist() == [4, 6]


def test_a_long_match_does_not_exhaust_the_stack() -> None:
    """A rewrite may cover a region of any size."""
    length = 1500
    chain = "  ".join(f"v{i} = Neg(v{i - 1})" for i in range(1, length))
    graph = f"(float[2] x) => (float[2] y) {{ v0 = Neg(x)  {chain}  y = Relu(v{length - 1}) }}"
    seen = []

    def everything(m: Any, b: Any) -> ir.Value:
        node = m.anchor.producer()
        while node.inputs[0].producer() is not None:
            node = node.inputs[0].producer()
            m.cover(node)
        return b.Abs(node.inputs[0])

    driver = drive(graph, [rule("all", op.Relu(x), everything)], check=lambda site: seen.append(site))
    assert printed(driver) == "[Relu] y = Abs(x)"
    assert [n.outputs[0].name for n in seen[0].before[:3]] == ["v0", "v1", "v2"]
    assert len(seen[0].before) == length + 1


# -- subgraph borders ---------------------------------------------------------------------------------------------


def test_a_pattern_does_not_reach_across_the_border_of_a_subgraph() -> None:
    graph = (
        "float[2] x; bool c; a = Relu(x)  y = If<then_branch = () => (float[2] p) { p = Neg(a) }, "
        "else_branch = () => (float[2] q) { r = Relu(x)  q = Neg(r) }>(c)"
    )
    driver = drive(graph, [rule("fuse", op.Neg(op.Relu(x)), lambda m, b: b.Abs(m[x]))])
    assert [a.value for a in driver.trace.applied] == ["q"]
    assert "q = Abs(x)" in printed(driver)
    assert "p = Neg(a)" in printed(driver)
    valid(driver)


def test_nodes_inside_come_before_the_node_around_them() -> None:
    graph = (
        "float[2] x; bool c; a = Relu(x)  i = If<then_branch = () => (float[2] p) { p = Exp(a) }, "
        "else_branch = () => (float[2] q) { q = Exp(x) }>(c)  y = Neg(i)"
    )
    branching = AnyNode(op_types=("If",))
    drop = rule("drop", branching, lambda m, b: b.Sin(m.node(branching).graph.inputs[0]))
    driver = drive(graph, [drop, renaming("Exp", "Cos")])
    applied = [(a.rule, a.value) for a in driver.trace.applied]
    assert applied == [("exp-to-cos", "p"), ("exp-to-cos", "q"), ("drop", "i")]
    assert printed(driver) == "[If] i = Sin(x)\n[Neg] y = Neg(i)"
    valid(driver)
