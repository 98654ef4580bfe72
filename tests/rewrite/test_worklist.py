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


def waiting(source: str, *names: str) -> tuple[dict[str, ir.Node], Worklist]:
    """The nodes by name, and a list in which some of them wait, ranked as they stand."""
    found = nodes(source)
    return found, Worklist([found[name] for name in names], list(found.values()).index)


ABC = "float x; a = Relu(x)  b = Neg(a)  c = Abs(b)"


def popped(found: dict[str, ir.Node], queue: Worklist, times: int) -> str:
    """The names of the next nodes, those that have changed in capitals."""
    names = {node: name for name, node in found.items()}
    made = (queue.pop() for _ in range(times))
    return " ".join(names[node].upper() if has_changed else names[node] for node, has_changed in made)


def test_each_node_waits_once_and_in_the_order_in_which_they_are_computed() -> None:
    found, queue = waiting(ABC)
    queue.extend([found["c"], found["a"], found["c"], found["b"]])
    assert len(queue) == 3
    assert popped(found, queue, 3) == "A B C"
    assert len(queue) == 0


def test_what_waits_from_the_start_has_not_changed() -> None:
    found, queue = waiting(ABC, "a", "b", "c")
    assert popped(found, queue, 1) == "a"
    queue.extend([found["c"]])
    assert popped(found, queue, 2) == "b C"


def test_what_is_above_waits_for_the_next_round() -> None:
    found, queue = waiting(ABC, "b", "c")
    assert popped(found, queue, 1) == "b"
    queue.extend([found["a"], found["b"]])
    assert popped(found, queue, 3) == "B c A"
    queue.extend(found.values())
    assert popped(found, queue, 3) == "A B C"


def test_nodes_of_no_graph_do_not_wait() -> None:
    assert len(Worklist([ir.Node("", "Relu", [ir.Value(name="x")])], lambda node: 0)) == 0


@given(st.lists(st.one_of(st.none(), st.lists(st.integers(0, 7), max_size=5)), max_size=30))
def test_worklist_holds_distinct_nodes_and_gives_each_a_turn(steps: list[list[int] | None]) -> None:
    members = list(text.parse("float x; " + " ".join(f"v{i} = Neg(x)" for i in range(8))).graph)
    queue, model = Worklist([], members.index), set[ir.Node]()
    here = 0
    for step in steps:
        if step is not None:
            queue.extend(members[i] for i in step)
            model.update(members[i] for i in step)
        elif model:
            node, _ = queue.pop()
            below = [n for n in model if members.index(n) >= here]
            assert node in (below or model)
            model.remove(node)
            here = members.index(node)
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
