"""Where every node came from, over chains of rewrites."""

from __future__ import annotations

import json

import onnx_ir as ir
from driving import drive, renaming, rule, valid, x

from onnxrewrite.ir import text
from onnxrewrite.rewrite.trace import FROM_KEY, RULE_KEY, Applied, Trace
from onnxrewrite.rules import Stage, op


def origin(node: ir.Node) -> tuple[str, list[str]]:
    return node.metadata_props[RULE_KEY], json.loads(node.metadata_props[FROM_KEY])


def only_node(driver: object) -> ir.Node:
    (node,) = driver.model.graph  # type: ignore[attr-defined]
    return node


def test_one_rewrite() -> None:
    both = rule("fuse", op.Neg(op.Relu(x)), lambda m, build: build.Abs(m[x]))
    node = only_node(drive("float[2] x; [first] a = Relu(x)  [second] y = Neg(a)", [both]))
    assert origin(node) == ("fuse", ["first", "second"])
    assert node.name == "second"
    assert node.outputs[0].name == "y"


def test_a_chain_of_rewrites_leads_back_to_the_original_nodes() -> None:
    rules = [
        renaming("Relu", "Abs"),
        rule("fuse", op.Neg(op.Abs(x)), lambda m, build: build.Exp(m[x]), Stage.RAISE),
        renaming("Exp", "Sin", stage=Stage.LOWER),
    ]
    node = only_node(drive("float[2] x; [first] a = Relu(x)  [second] y = Neg(a)", rules))
    assert origin(node) == ("relu-to-abs,fuse,exp-to-sin", ["first", "second"])


def test_a_rule_that_made_it_twice_is_told_once_and_last() -> None:
    rules = [
        renaming("Relu", "Abs"),
        renaming("Abs", "Exp"),
        rule("again", op.Exp(op.Abs(x)), lambda m, build: build.Sin(m[x])),
    ]
    driver = drive("float[2] x; [n] y = Relu(x)", [*rules[:2], renaming("Exp", "Neg")])
    assert origin(only_node(driver)) == ("relu-to-abs,abs-to-exp,exp-to-neg", ["n"])
    twice = [rule("peel", op.Relu(op.Relu(x)), lambda m, build: build.Relu(m[x]))]
    driver = drive("float[2] x; [a] p = Relu(x)  [b] q = Relu(p)  [c] y = Relu(q)", twice)
    assert origin(only_node(driver)) == ("peel", ["a", "b", "c"])


def test_what_the_exporter_said_is_kept() -> None:
    model = text.parse("float[2] x; a = Relu(x)  y = Neg(a)")
    relu, neg = model.graph
    relu.metadata_props["pkg.torch.name"] = "inner"
    neg.metadata_props["pkg.torch.name"] = "outer"
    neg.outputs[0].metadata_props["note"] = "kept"
    both = rule("fuse", op.Neg(op.Relu(x)), lambda m, build: build.Abs(build.Exp(m[x])))
    driver = drive(model, [both])
    for node in driver.model.graph:
        assert node.metadata_props["pkg.torch.name"] == "outer"
        assert origin(node)[0] == "fuse"
    assert driver.model.graph.outputs[0].metadata_props["note"] == "kept"
    proto = valid(driver)
    assert {p.key for p in proto.graph.node[0].metadata_props} == {"pkg.torch.name", RULE_KEY, FROM_KEY}


def test_nodes_that_no_rule_touched_have_no_provenance() -> None:
    driver = drive("float[2] x; a = Relu(x)  y = Neg(a)", [renaming("Relu", "Abs")])
    assert [RULE_KEY in n.metadata_props for n in driver.model.graph] == [True, False]


def test_names_with_commas_survive() -> None:
    both = rule("fuse", op.Neg(op.Relu(x)), lambda m, build: build.Abs(m[x]))
    model = text.parse("float[2] x; a = Relu(x)  y = Neg(a)")
    for node, name in zip(model.graph, ('a,"b', "c]"), strict=True):
        node.name = name
    assert origin(only_node(drive(model, [both])))[1] == ['a,"b', "c]"]


def test_the_trace_counts_and_keeps_the_last_reason() -> None:
    trace = Trace()
    for value in "ab":
        trace.applied.append(Applied("r", "raise", value, "g", ("n",), ("Neg",), ("v",), -1))
    trace.refuse("r", "c", "first")
    trace.refuse("r", "c", "second")
    assert trace.counts() == {"r": 2}
    assert trace.refused == {"r": {"c": "second"}}
    assert [a.key for a in trace.applied] == [("r", "a"), ("r", "b")]


def test_the_record_of_a_rewrite() -> None:
    both = rule("fuse", op.Neg(op.Relu(x)), lambda m, build: build.Abs(build.Exp(m[x])), Stage.RAISE)
    driver = drive("float[2] x; [first] a = Relu(x)  [second] y = Neg(a)", [both])
    (record,) = driver.trace.applied
    assert (record.rule, record.stage, record.value, record.growth) == ("fuse", "raise", "y", 0)
    assert record.before == ("second", "first")
    assert record.after == ("Exp", "Abs")
    assert record.values == ("y/Exp", "y")
