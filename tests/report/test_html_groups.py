"""Nodes in groups: by module, none too large to be drawn, none lost."""

import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxrewrite.report.html.groups import MAX_CHILDREN, Group, module


def node(name="", **metadata):
    made = ir.node("Relu", [ir.Value(name="x")], name=name)
    made.metadata_props.update(metadata)
    return made


@pytest.mark.parametrize(
    ("given", "path"),
    [
        (node("/encoder/layer.0/attention/MatMul_1"), ("encoder", "layer.0", "attention")),
        (node("encoder/layer.0/MatMul"), ("encoder", "layer.0")),
        (node("//a///b/Relu"), ("a", "b")),
        (node("Relu_7"), ()),
        (node("/Relu"), ()),
        (node(""), ()),
        (node("n", **{"pkg.torch.onnx.name_scopes": "['', 'm', 'm.encoder', 'm.encoder.layer.0', 'view_3']"}),
         ("m", "encoder", "layer.0")),
        (node("n", **{"pkg.torch.onnx.name_scopes": "['', \"it's\", 'odd', 'view']"}), ("it's", "odd")),
        (node("a/b/Relu", **{"pkg.torch.onnx.name_scopes": "['', 'view_3']"}), ()),
        (node("n", namespace=": some.Model/m.encoder: some.Encoder/m.encoder.layer.1: some.Layer/view: aten.view"),
         ("m.encoder", "layer.1")),
        (node("a/b", **{"pkg.torch.onnx.name_scopes": "[broken"}), ()),
        (node("x/" * 500 + "Relu"), ("x",) * 16),
    ],
)  # fmt: skip
def test_module(given, path):
    assert module(given) == path


def shown(group: Group):
    return {"nodes": group.nodes, **{g.label: shown(g) for g in group.groups.values()}}


def test_groups_of_paths():
    group = Group.of([("a",), ("a", "b"), ("a", "b"), (), ("c",)])
    assert shown(group) == {"nodes": [3], "a": {"nodes": [0], "b": {"nodes": [1, 2]}}, "c": {"nodes": [4]}}
    assert group.paths() == {0: ("a",), 1: ("a", "b"), 2: ("a", "b"), 3: (), 4: ("c",)}


def test_a_group_of_one_node_is_that_node():
    group = Group.of([("a",), ("a", "b"), ("a", "b"), (), ("c",)])
    group.simplify()
    assert shown(group) == {"nodes": [3, 4], "a": {"nodes": [0], "b": {"nodes": [1, 2]}}}


def test_a_group_of_one_group_is_that_group():
    group = Group.of([("model", "encoder", "layer.0")] * 2 + [("model", "encoder", "layer.1")] * 2 + [()])
    group.simplify()
    assert shown(group) == {
        "nodes": [4],
        "model/encoder": {"nodes": [], "layer.0": {"nodes": [0, 1]}, "layer.1": {"nodes": [2, 3]}},
    }
    assert [g.path for g in group.below()][1:] == [
        ("model", "encoder"),
        ("model", "encoder", "layer.0"),
        ("model", "encoder", "layer.1"),
    ]


def test_the_group_of_everything_is_left_out():
    paths = [("inputs",), ("inputs",), (), *[("model", "a")] * 2, *[("model", "b")] * 2]
    group = Group.of(paths)
    group.simplify()
    group.unwrap({0, 1, 2})
    assert shown(group) == {
        "nodes": [2], "inputs": {"nodes": [0, 1]}, "a": {"nodes": [3, 4]}, "b": {"nodes": [5, 6]},
    }  # fmt: skip
    group.unwrap(set())
    assert sorted(group.groups) == ["a", "b", "inputs"]
    clash = Group.of([("a",), ("a",), *[("model", "a")] * 2, *[("model", "b")] * 2])
    clash.unwrap({0, 1})
    assert sorted(clash.paths()) == list(range(6))


def test_a_model_that_says_nothing_is_divided_in_order():
    group = Group.of([()] * 5000)
    assert group.nodes == []
    assert list(group.groups) == [f"nodes {1 + 125 * i}–{125 * (i + 1)}" for i in range(40)]
    assert list(group.groups["nodes 1–125"].groups)[:2] == ["nodes 1–31", "nodes 32–62"]
    assert group.groups["nodes 1–125"].groups["nodes 32–62"].nodes == list(range(31, 62))


def test_many_groups_are_divided_too():
    group = Group.of([(f"layer.{i}",) for i in range(100) for _ in range(2)])
    assert [len(g.groups) for g in group.groups.values()] == [33, 33, 34]
    assert next(iter(group.groups)) == "layer.0 … layer.32"


def test_names_like_ours_do_not_collide():
    group = Group.of([("nodes 1–41",), ("nodes 1–41",), *[()] * 82])
    assert sorted(group.paths()) == list(range(84))
    assert list(group.groups)[:2] == ["nodes 1–41", "nodes 1–27"]
    twice = Group.of([("nodes 1–27",), *[()] * 82])
    assert "nodes 1–27 (1)" in twice.groups


@given(st.lists(st.lists(st.sampled_from("ab"), max_size=4).map(tuple), max_size=300))
def test_no_node_is_lost_and_no_group_is_large(paths):
    group = Group.of(paths)
    assert sorted(group.paths()) == list(range(len(paths)))
    for each in group.below():
        assert len(each.nodes) <= MAX_CHILDREN
        assert len(each.groups) <= 2 * MAX_CHILDREN
    group.simplify()
    assert sorted(n for g in group.below() for n in g.nodes) == list(range(len(paths)))
    assert all(len(g.nodes) + len(g.groups) > 1 for g in list(group.below())[1:])
