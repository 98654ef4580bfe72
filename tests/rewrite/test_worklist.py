"""What is visited, in which order, and how loops are found."""

from __future__ import annotations

import onnx_ir as ir
from hypothesis import given
from hypothesis import strategies as st

from onnxrewrite.ir import text
from onnxrewrite.rewrite.worklist import LoopGuard, Worklist


def nodes(source: str) -> dict[str, ir.Node]:
    """By the name of their first output."""
    model = text.parse(source)
    return {n.outputs[0].name or "": n for n in model.graph.all_nodes()}


def test_each_node_waits_once_and_in_order() -> None:
    found = nodes("float x; a = Relu(x)  b = Neg(a)  c = Abs(b)")
    a, b, c = found.values()
    queue = Worklist([a, b])
    queue.extend([a, c, b])
    assert len(queue) == 3
    assert queue.pop() == (a, True)
    queue.extend([a, b])
    assert [queue.pop(), queue.pop(), queue.pop()] == [(b, True), (c, True), (a, True)]
    assert len(queue) == 0


def test_what_waits_from_the_start_has_not_changed() -> None:
    found = nodes("float x; a = Relu(x)  b = Neg(a)  c = Abs(b)")
    a, b, c = found.values()
    queue = Worklist([a, b, c])
    assert queue.pop() == (a, False)
    queue.extend([a, c])
    assert [queue.pop(), queue.pop(), queue.pop()] == [(b, False), (c, True), (a, True)]


def test_nodes_of_no_graph_do_not_wait() -> None:
    assert len(Worklist([ir.Node("", "Relu", [ir.Value(name="x")])])) == 0


@given(st.lists(st.one_of(st.none(), st.lists(st.integers(0, 7), max_size=5)), max_size=30))
def test_worklist_is_a_queue_of_distinct_nodes(steps: list[list[int] | None]) -> None:
    graph = text.parse("float x; " + " ".join(f"v{i} = Neg(x)" for i in range(8))).graph
    members = list(graph)
    queue, model = Worklist([]), list[ir.Node]()
    for step in steps:
        if step is not None:
            queue.extend(members[i] for i in step)
            model += [members[i] for i in dict.fromkeys(step) if members[i] not in model]
        elif model:
            assert queue.pop()[0] is model.pop(0)
        assert len(queue) == len(model)


# -- loops --------------------------------------------------------------------------------------------------------


def counted(guard: LoopGuard, key: tuple[str, str], times: int, growth: int = 0) -> None:
    for _ in range(times):
        guard.count(key, growth)


def test_one_rule_in_a_circle() -> None:
    guard = LoopGuard(10)
    counted(guard, ("a", "y"), 32)
    assert not guard.has_stopped(("a", "y"))
    guard.count(("a", "y"), 0)
    assert guard.has_stopped(("a", "y"))
    assert not guard.has_stopped(("a", "z"))
    assert not guard.has_stopped(("b", "y"))
    assert guard.warnings == ["a goes in circles at `y`: stopped after 32 rounds"]


def test_two_rules_that_undo_each_other_are_both_named() -> None:
    guard = LoopGuard(10)
    for _ in range(33):
        guard.count(("there", "y"), 1)
        guard.count(("back", "y"), -1)
        guard.count(("innocent", "z"), 0)
    assert guard.has_stopped(("there", "y"))
    assert guard.has_stopped(("back", "y"))
    assert not guard.has_stopped(("innocent", "z"))
    assert guard.warnings[0] == "back and there undo each other at `y`: stopped after 32 rounds"


def test_progress_is_no_loop() -> None:
    guard = LoopGuard(1000)
    counted(guard, ("shrink", "y"), 999, growth=-1)
    assert guard.warnings == []
    assert not guard.has_stopped(("shrink", "y"))


def test_growth_and_shrinking_back_is_no_progress() -> None:
    guard = LoopGuard(10)
    for _ in range(40):
        guard.count(("grow", "y"), 3)
        guard.count(("shrink", "y"), -3)
    assert guard.has_stopped(("grow", "y"))


def test_a_rule_that_never_comes_back_to_a_value_is_stopped_everywhere() -> None:
    guard = LoopGuard(10)
    for i in range(104):
        guard.count(("grow", f"v{i}"), 1)
    assert not guard.has_stopped(("grow", "v0"))
    guard.count(("grow", "v104"), 1)
    assert guard.has_stopped(("grow", "anything"))
    assert not guard.has_stopped(("other", "anything"))
    assert guard.warnings == ["grow applies to what it makes, without end: stopped after 104 rewrites"]


def test_a_rule_may_apply_at_every_node_of_a_graph() -> None:
    guard = LoopGuard(500)
    for i in range(500):
        guard.count(("tidy", f"v{i}"), 0)
    assert guard.warnings == []
