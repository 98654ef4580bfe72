from __future__ import annotations

import errno
import os
import random
import time

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from corpus import SHARED_FILES, few
from onnx import TensorProto, helper, numpy_helper

import onnxrewrite as rw
from onnxrewrite import io
from onnxrewrite.errors import ModelError
from onnxrewrite.io import external

FLOAT = TensorProto.FLOAT


def info(name, shape=(2, 3), dtype=FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def node(op_type, inputs, outputs, name="auto", **attributes):
    name = f"{op_type}_{'_'.join(outputs)}" if name == "auto" else name
    return helper.make_node(op_type, inputs.split(), outputs.split(), name=name, **attributes)


def weight(name, *shape, value=1.0):
    return numpy_helper.from_array(np.full(shape, value, np.float32), name)


def proto(nodes, inputs=("x",), outputs=("y",), weights=(), opset=17, ir_version=8, **graph):
    inputs = [info(i) if isinstance(i, str) else i for i in inputs]
    outputs = [info(o) if isinstance(o, str) else o for o in outputs]
    made = helper.make_graph(list(nodes), "g", inputs, outputs, list(weights), **graph)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)


def relu():
    return proto([node("Relu", "x", "y")])


def written(path, model):
    path.write_bytes(model.SerializeToString())
    return path


def run(model, **feeds):
    data = model if isinstance(model, (str, bytes)) else model.SerializeToString()
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(data, options, ["CPUExecutionProvider"]).run(None, feeds)


def refused(source, *parts, **how):
    with pytest.raises(ModelError) as caught:
        io.load(source, **how)
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message, message
    return message


X = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)


# ------------------------------------------------------------------------------------------------ bad files


def test_missing_file(tmp_path):
    refused(tmp_path / "no.onnx", "no.onnx", "no such file")


def test_directory(tmp_path):
    refused(tmp_path, "is a folder")


def test_empty(tmp_path):
    (tmp_path / "m.onnx").touch()
    refused(tmp_path / "m.onnx", "is empty")


@pytest.mark.parametrize(
    "text", ["hello", '{"ir_version": 8}', "ir_version: 8\ngraph {\n}\n", "<!DOCTYPE html>\n" * 99]
)
def test_text(tmp_path, text):
    (tmp_path / "m.onnx").write_text(text)
    refused(tmp_path / "m.onnx", "is a text file")


def test_git_lfs_pointer(tmp_path):
    (tmp_path / "m.onnx").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    refused(tmp_path / "m.onnx", "git lfs pull")


def test_random_bytes(tmp_path):
    for seed in range(300):
        (tmp_path / "m.onnx").write_bytes(random.Random(seed).randbytes(1 + seed * 7))
        refused(tmp_path / "m.onnx")


def test_truncated_anywhere(tmp_path):
    data = proto([node("Add", "x w", "y")], weights=[weight("w", 3)]).SerializeToString()
    for length in range(1, len(data)):
        (tmp_path / "m.onnx").write_bytes(data[:length])
        refused(tmp_path / "m.onnx")


def test_damaged_anywhere(tmp_path):
    """A flipped byte is either harmless or refused; it never crashes."""
    data = bytearray(proto([node("Add", "x w", "y")], weights=[weight("w", 3)]).SerializeToString())
    messages = []
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0x55
        (tmp_path / "m.onnx").write_bytes(damaged)
        try:
            io.load(tmp_path / "m.onnx")
        except ModelError as error:
            messages.append(str(error))
    assert messages
    assert not any("\n" in message for message in messages)


def test_no_graph():
    refused(onnx.ModelProto(ir_version=8), "has no graph")


def test_no_graph_in_file(tmp_path):
    refused(written(tmp_path / "m.onnx", onnx.ModelProto(ir_version=8, producer_name="\0p")), "has no graph")


def test_no_outputs():
    refused(proto([node("Relu", "x", "y")], outputs=[]), "no outputs")


def test_cycle():
    refused(proto([node("Add", "x b", "a"), node("Relu", "a", "b"), node("Relu", "b", "y")]), "cycle through node")


def test_cycle_through_a_subgraph():
    branch = helper.make_graph([node("Relu", "y", "t")], "b", [], [info("t")])
    other = helper.make_graph([node("Relu", "x", "e")], "e", [], [info("e")])
    branches = node("If", "c", "z", then_branch=branch, else_branch=other)
    model = proto([branches, node("Relu", "z", "y")], inputs=["x", info("c", (), TensorProto.BOOL)])
    refused(model, "cycle through node")


def test_undefined_input():
    refused(proto([node("Add", "x nowhere", "y", "n")]), "input 'nowhere' of node 'n' (Add)")


def test_undefined_input_in_a_subgraph():
    branch = helper.make_graph([node("Relu", "nowhere", "t")], "b", [], [info("t")])
    model = proto([node("If", "c", "y", then_branch=branch, else_branch=branch)], inputs=[info("c", (), 9)])
    refused(model, "'nowhere'")


def test_inner_values_are_not_seen_outside():
    branch = helper.make_graph([node("Relu", "x", "t")], "b", [], [info("t")])
    model = proto(
        [node("If", "c", "z", then_branch=branch, else_branch=branch), node("Add", "z t", "y")],
        inputs=["x", info("c", (), 9)],
    )
    refused(model, "'t'", "not produced")


def test_one_of_many_operands_is_left_out():
    concat = helper.make_node("Concat", ["x", "", "x"], ["y"], name="c", axis=0)
    refused(proto([concat]), "node 'c' (Concat) leaves out an operand")


def test_what_is_optional_depends_on_the_opset():
    body = helper.make_graph(
        [node("Add", "total next", "sum"), node("Identity", "sum", "each")],
        "body",
        [info("total", (2,)), info("next", (2,))],
        [info("sum", (2,)), info("each", (2,))],
    )
    scan = helper.make_node("Scan", ["", "x", "xs"], ["y", "ys"], num_scan_inputs=1, body=body)
    graph = [info("x", (1, 2)), info("xs", (1, 3, 2))], [info("y", (1, 2)), info("ys", (1, 3, 2))]
    assert io.load(proto([scan], *graph, opset=8, ir_version=3))
    refused(proto([scan], *graph, opset=9, ir_version=4), "leaves out an operand")


def test_maps_stay_what_they_are():
    kind = helper.make_sequence_type_proto(
        helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(FLOAT, []))
    )
    nodes = [
        node("Softmax", "x", "p"),
        helper.make_node("ZipMap", ["p"], ["y"], domain="ai.onnx.ml", classlabels_int64s=[4, 2, 7]),
    ]
    model = proto(nodes, outputs=[onnx.ValueInfoProto(name="y", type=kind)])
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    assert io.to_proto(io.load(model)).graph.output[0].type == kind
    assert io.load(io.load(model)).graph.outputs[0].type is None
    result = rw.apply(model, lower="fused")
    assert result.checks.model.ok
    assert result.checks.model.skipped is None
    assert result.to_proto().graph.output[0].type == kind


@pytest.mark.parametrize("labels", [[4, 2, 7], [4, 2, 8]])
def test_maps_are_compared(labels):
    def model(given):
        zipped = helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_int64s=given)
        kind = helper.make_sequence_type_proto(
            helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(FLOAT, []))
        )
        made = proto([zipped], outputs=[onnx.ValueInfoProto(name="y", type=kind)])
        made.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
        return made

    assert rw.check(model([4, 2, 7]), model(labels)).ok == (labels == [4, 2, 7])


def test_undefined_output():
    refused(proto([node("Relu", "x", "z")]), "graph output 'y'")


def test_output_defined_twice():
    model = proto([node("Relu", "x", "y", "first"), node("Abs", "x", "y", "second")])
    refused(model, "'y' is defined twice", "'first'", "'second'")


@pytest.mark.parametrize("weights", [[weight("y", 3)], []])
def test_output_defined_by_initializer_or_input_too(weights):
    refused(proto([node("Relu", "x", "y" if weights else "x")], weights=weights, outputs=["x"]), "defined twice")


def test_initializer_defined_twice():
    refused(proto([node("Add", "x w", "y")], weights=[weight("w", 3), weight("w", 3)]), "initializer 'w'")


def test_input_listed_twice():
    refused(proto([node("Relu", "x", "y")], inputs=["x", "x"]), "graph input 'x' is listed twice")


def test_opset_too_new():
    refused(proto([node("Relu", "x", "y")], opset=999), "opset 999 of ai.onnx is newer than", "upgrade")


def test_opset_of_another_standard_domain_too_new():
    model = relu()
    model.opset_import.add(domain="ai.onnx.ml", version=99)
    refused(model, "opset 99 of ai.onnx.ml")


@pytest.mark.parametrize("version", [0, -1])
def test_opset_that_never_was(version):
    refused(proto([node("Relu", "x", "y")], opset=version), f"opset {version}")


def test_no_opset_import():
    model = relu()
    del model.opset_import[:]
    refused(model, "no opset")


def test_opset_of_a_used_domain_is_missing():
    model = relu()
    model.opset_import[0].domain = "ai.onnx.ml"
    model.opset_import[0].version = 1
    refused(model, "uses Relu of ai.onnx")


def test_contradicting_opsets():
    model = relu()
    model.opset_import.add(domain="ai.onnx", version=13)
    refused(model, "two opsets of ai.onnx: 17 and 13")


def test_ir_version_missing_or_too_new():
    model = relu()
    model.ir_version = 999
    refused(model, "IR version 999")
    model.ClearField("ir_version")
    refused(model, "no IR version")


def test_initializer_shorter_than_its_shape():
    model = proto([node("Add", "x w", "y")], weights=[weight("w", 3)])
    model.graph.initializer[0].dims[0] = 5
    refused(model, "initializer 'w': has 12 bytes, its type and shape need 20")


def test_nesting_that_protobuf_refuses(tmp_path):
    """200 graphs deep, spelled by hand: 7 is model.graph, 1 graph.node, 5 node.attribute, 6 attribute.g."""

    def field(number, data):
        length, size = b"", len(data)
        while True:
            length += bytes([size & 0x7F | (0x80 if size > 0x7F else 0)])
            size >>= 7
            if not size:
                return bytes([number << 3 | 2]) + length + data

    graph = b""
    for _ in range(200):
        graph = field(1, field(5, field(6, graph)))
    (tmp_path / "m.onnx").write_bytes(b"\x08\x08" + field(7, graph))
    refused(tmp_path / "m.onnx")


@pytest.mark.parametrize("depth", [30, 300, 3000])
def test_nesting_in_memory(depth):
    """``If`` in ``If``: either loads or is refused; it never crashes."""
    model = proto([node("Identity", "x", "y")], inputs=["x", info("c", (), TensorProto.BOOL)])
    graph = model.graph
    for i in range(depth):
        inner = graph.node.add(op_type="If", name=f"if{i}", input=["c"], output=[f"o{i}"])
        graph = inner.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH).g
        graph.name = "branch"
    if depth < 100:
        assert len(list(io.load(model).graphs())) == depth + 1
    else:
        refused(model, "nested too deeply")


def test_larger_than_protobuf(tmp_path):
    with open(tmp_path / "m.onnx", "wb") as file:
        file.truncate(2**31)
    start = time.monotonic()
    refused(tmp_path / "m.onnx", "2 GB")
    assert time.monotonic() - start < 1


# ------------------------------------------------------------------------------------------- external data


def with_data(folder, location="w.bin", offset=0, length=None, data=None, shape=(512, 4), name="m.onnx"):
    """y = x + w, with w outside the file."""
    tensor = TensorProto(name="w", data_type=FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, "offset": offset, "length": length}.items():
        if value is not None:
            tensor.external_data.add(key=key, value=str(value))
    content = np.arange(np.prod(shape), dtype=np.float32).tobytes() if data is None else data
    if data is not False:
        (folder / os.path.basename(location)).write_bytes(content)
    model = proto([node("Add", "x w", "y")], [info("x", shape)], [info("y", shape)], [tensor])
    return written(folder / name, model)


def test_external_data_are_read_lazily(tmp_path):
    model = io.load(with_data(tmp_path))
    tensor = model.graph.initializers["w"].const_value
    assert isinstance(tensor, ir.ExternalTensor)
    assert tensor.raw is None
    assert tensor.numpy()[-1, -1] == 2047


def test_external_data_from_another_working_directory(tmp_path, monkeypatch):
    with_data(tmp_path)
    monkeypatch.chdir(tmp_path)
    model = io.load("m.onnx")
    monkeypatch.chdir("/")
    assert model.graph.initializers["w"].const_value.numpy()[0, 1] == 1


def test_external_data_missing(tmp_path):
    refused(with_data(tmp_path, data=False), "initializer 'w'", "w.bin is missing")


def test_external_data_is_a_folder(tmp_path):
    (tmp_path / "w.bin").mkdir()
    refused(with_data(tmp_path, data=False), "is not a file")


@pytest.mark.parametrize(("offset", "length"), [(0, None), (4, 8192), (8192, None), (1 << 40, 8192)])
def test_external_data_too_short(tmp_path, offset, length):
    refused(with_data(tmp_path, offset=offset, length=length, data=b"\0" * 8191), "too short")


@pytest.mark.parametrize(("offset", "length"), [(0, 4), (-4, 8192), ("zero", 8192), (0, "all")])
def test_external_data_with_wrong_offset_or_length(tmp_path, offset, length):
    refused(with_data(tmp_path, offset=offset, length=length), "initializer 'w'")


@pytest.mark.parametrize("location", ["../w.bin", "a/../../w.bin", "/etc/passwd", "", ".", "..", "a\0b"])
def test_external_data_that_leave_the_folder(tmp_path, location):
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "w.bin").write_bytes(b"\0" * 8192)
    refused(with_data(inner, location=location, data=False), "leaves the model's folder")


def test_external_data_behind_a_symlink(tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "secret").write_bytes(b"\0" * 8192)
    (inner / "w.bin").symlink_to(tmp_path / "secret")
    refused(with_data(inner, data=False), "leaves the model's folder")


def test_external_data_behind_a_hard_link(tmp_path):
    (tmp_path / "secret").write_bytes(b"\0" * 8192)
    (tmp_path / "w.bin").hardlink_to(tmp_path / "secret")
    refused(with_data(tmp_path, data=False), "hard links")


def test_external_data_of_a_proto_need_a_folder(tmp_path):
    model = onnx.load(with_data(tmp_path), load_external_data=False)
    refused(model, "give the path")
    assert io.load(model, folder=tmp_path).graph.initializers["w"].const_value.numpy()[0, 1] == 1


def test_external_data_in_an_attribute_and_a_subgraph(tmp_path):
    with_data(tmp_path)
    tensor = onnx.load(tmp_path / "m.onnx", load_external_data=False).graph.initializer[0]
    branch = helper.make_graph([node("Constant", "", "t", value=tensor)], "b", [], [info("t", None)])
    model = proto([node("If", "c", "y", then_branch=branch, else_branch=branch)], [info("c", (), 9)], [info("y", None)])
    path = written(tmp_path / "n.onnx", model)
    assert run(io.to_proto(io.load(path)), c=np.array(True))[0][-1, -1] == 2047
    io.save(io.load(path), tmp_path / "out.onnx", external_data=True)
    assert run(str(tmp_path / "out.onnx"), c=np.array(True))[0][-1, -1] == 2047
    os.remove(tmp_path / "w.bin")
    refused(path, "attribute 'value'", "missing")


# -------------------------------------------------------------------------------------------------- repairs


def test_a_good_model_needs_no_repair():
    assert io.repairs(io.load(relu())) == ()


def test_unsorted_nodes_are_sorted():
    model = io.load(proto([node("Relu", "a", "y"), node("Abs", "x", "a")]))
    assert [n.op_type for n in model.graph] == ["Abs", "Relu"]
    assert any("sorted" in line for line in io.repairs(model))


def test_unsorted_because_of_a_subgraph():
    branch = helper.make_graph([node("Relu", "late", "t")], "b", [], [info("t")])
    other = helper.make_graph([node("Relu", "x", "e")], "e", [], [info("e")])
    branches = node("If", "c", "y", then_branch=branch, else_branch=other)
    model = io.load(proto([branches, node("Abs", "x", "late")], inputs=["x", info("c", (), 9)]))
    assert [n.op_type for n in model.graph] == ["Abs", "If"]
    assert (run(io.to_proto(model), x=X, c=np.array(True))[0] == abs(X)).all()


def test_node_names():
    model = io.load(proto([node("Relu", "x", "a", "n"), node("Abs", "a", "b", "n"), node("Neg", "b", "y", "")]))
    assert [n.name for n in model.graph] == ["n", "n_1", "Neg"]
    assert len(io.repairs(model)) == 2


def nested_twins():
    """Both branches have an initializer ``w`` and a value ``t``; ``x`` is shadowed."""
    branches = {}
    for value, branch in ((10, "then_branch"), (20, "else_branch")):
        nodes = [node("Add", "x w", "t", "n"), node("Neg", "t", "a", "m")]
        branches[branch] = helper.make_graph(nodes, branch, [], [info("a")], [weight("w", 3, value=value)])
    nodes = [node("Relu", "x", "a"), node("If", "c", "z", **branches), node("Add", "a z", "y")]
    return proto(nodes, inputs=["x", info("c", (), TensorProto.BOOL)])


def test_inner_names_become_unique():
    source = nested_twins()
    model = io.load(source)
    values = [v.name for g in model.graphs() for v in (*g.inputs, *g.initializers.values())]
    values += [v.name for n in model.graph.all_nodes() for v in n.outputs]
    assert len(values) == len(set(values))
    names = [n.name for n in model.graph.all_nodes()]
    assert len(names) == len(set(names))
    for c, w in ((True, 10), (False, 20)):
        expected = np.maximum(X, 0) - (X + w)
        assert (run(io.to_proto(model), x=X, c=np.array(c))[0] == expected).all()
    assert all("\n" not in line for line in io.repairs(model))


def test_ai_onnx_is_the_default_domain():
    source = relu()
    source.opset_import[0].domain = "ai.onnx"
    source.graph.node[0].domain = "ai.onnx"
    model = io.load(source)
    assert io.opset(model) == 17
    assert model.graph.node(0).domain == ""
    assert io.repairs(model)


def test_missing_import_of_a_foreign_domain_is_added():
    source = proto([helper.make_node("QuickGelu", ["x"], ["y"], domain="com.microsoft", name="q")])
    model = io.load(source)
    assert model.opset_imports["com.microsoft"] == 1
    assert "com.microsoft" in io.repairs(model)[0]


def test_a_model_of_foreign_operators_alone_gets_an_opset_that_rules_can_write_in():
    source = helper.make_node("DequantizeLinear", ["x", "s", "z"], ["y"], domain="com.microsoft", name="d")
    scale, zero = weight("s"), numpy_helper.from_array(np.int8(3), "z")
    given = proto(
        [source], inputs=[info("x", (2,), TensorProto.INT8)], outputs=[info("y", (2,))], weights=[scale, zero]
    )
    del given.opset_import[:]
    given.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    model = io.load(given)
    assert io.opset(model) == 18
    assert io.repairs(model) == ("no opset of ai.onnx is imported: 18 taken, for IR version 8",)
    result = rw.apply(model)
    assert result.trace.counts() == {"contrib-operator": 1}
    assert result.checks.undone == {}


def test_negative_sizes_are_unknown():
    model = io.load(proto([node("Relu", "x", "y")], [info("x", (2, -1))], [info("y", (-1, 3))]))
    (given,), (made,) = model.graph.inputs, model.graph.outputs
    assert [str(d) for d in made.shape][1] == "3"
    assert not any(isinstance(d, int) and d < 0 for value in (given, made) for d in value.shape)
    assert io.repairs(model) == ("negative size of x is unknown", "negative size of y is unknown")


def test_permutations_are_counted_from_the_front():
    model = io.load(proto([node("Transpose", "x", "y", perm=[0, -1])], [info("x", (2, 3))], [info("y", (2, 3))]))
    assert model.graph.node(0).attributes["perm"].as_ints() == (0, 1)
    assert io.repairs(model) == ("perm of node 'Transpose_y' (Transpose), [0, -1], counts from the end: [0, 1] taken",)
    twice = [node("Transpose", "x", "t", perm=[-1, 0]), node("Transpose", "t", "y", perm=[-1, 0])]
    (told,) = io.repairs(io.load(proto(twice, [info("x", (2, 3))], [info("y", (2, 3))])))
    assert told.endswith("counts from the end: [1, 0] taken, and likewise of 1 more")
    wrong = io.load(proto([node("Transpose", "x", "y", perm=[0, -2])], [info("x", (2, 3))], [info("y", (2, 3))]))
    assert io.repairs(wrong) == ()


def test_attribute_types_of_the_first_files():
    source = proto([node("Selu", "x", "y", alpha=2.0)])
    source.graph.node[0].attribute[0].ClearField("type")
    assert io.load(source).graph.node(0).attributes["alpha"].as_float() == 2.0


# --------------------------------------------------------------------------------------------------- sources


def test_a_proto_is_not_changed():
    source = nested_twins()
    before = source.SerializeToString(deterministic=True)
    model = io.load(source)
    for graph in model.graphs():
        for value in list(graph.initializers.values()):
            value.name = f"{value.name}_renamed"
    io.to_proto(model)
    assert source.SerializeToString(deterministic=True) == before


def test_an_ir_model_is_not_changed_and_shares_its_tensors():
    source = ir.from_proto(nested_twins())
    before = ir.to_proto(source).SerializeToString(deterministic=True)
    model = io.load(source)
    io.to_proto(model)
    assert ir.to_proto(source).SerializeToString(deterministic=True) == before
    own = [t.const_value for g in source.graphs() for t in g.initializers.values()]
    copied = [t.const_value for g in model.graphs() for t in g.initializers.values()]
    assert all(a is b for a, b in zip(own, copied, strict=True))


def test_an_unsorted_ir_model():
    source = ir.from_proto(proto([node("Relu", "a", "y"), node("Abs", "x", "a")]))
    assert [n.op_type for n in io.load(source).graph] == ["Abs", "Relu"]
    assert [n.op_type for n in source.graph] == ["Relu", "Abs"]


def test_a_bad_ir_model():
    source = ir.from_proto(relu())
    source.graph.node(0).replace_input_with(0, ir.Value(name="nowhere"))
    refused(source, "'nowhere'")
    source = ir.from_proto(relu())
    source.opset_imports[""] = 999
    refused(source, "opset 999")


def test_a_loaded_model_loads_again():
    source = overridable()
    model = io.load(io.load(source))
    assert io.to_bytes(model) == io.to_bytes(io.load(source))


def test_loading_is_quick():
    nodes = [node("Relu", f"v{i}", f"v{i + 1}") for i in range(10_000)]
    source = proto(nodes, inputs=["v0"], outputs=["v10000"])
    start = time.monotonic()
    io.load(source)
    assert time.monotonic() - start < 5


# ----------------------------------------------------------------------------- initializers and the interface


def overridable(ir_version=8):
    return proto(
        [node("Add", "x w", "a"), node("Mul", "a k", "y")],
        inputs=["x", info("w", (3,))],
        weights=[weight("w", 3, value=5), weight("k", 3, value=2)],
        ir_version=ir_version,
    )


def test_an_overridable_initializer_is_no_constant():
    model = io.load(overridable())
    value = model.graph.inputs[1]
    assert set(model.graph.initializers) == {"k"}
    assert value.const_value is None
    assert not value.is_initializer()


def test_an_overridable_initializer_is_written_and_still_overridable():
    result = io.to_proto(io.load(overridable()))
    assert {t.name for t in result.graph.initializer} == {"w", "k"}
    assert [i.name for i in result.graph.input] == ["x", "w"]
    assert (run(result, x=X)[0] == (X + 5) * 2).all()
    assert (run(result, x=X, w=np.ones(3, np.float32))[0] == (X + 1) * 2).all()


def test_writing_leaves_the_working_model_as_it_was():
    model = io.load(overridable())
    first = io.to_bytes(model)
    assert model.graph.inputs[1].const_value is None
    assert set(model.graph.initializers) == {"k"}
    assert io.to_bytes(model) == first == io.to_bytes(model.clone())


def test_an_overridable_initializer_of_a_loop_body():
    body = helper.make_graph(
        [node("Identity", "c", "c_out"), node("Add", "v x", "v_out")],
        "body",
        [info("i", (), TensorProto.INT64), info("c", (), TensorProto.BOOL), info("v")],
        [info("c_out", (), TensorProto.BOOL), info("v_out")],
        [weight("v", 2, 3)],
    )
    trips = numpy_helper.from_array(np.array(3), "trips")
    source = proto([helper.make_node("Loop", ["trips", "", "x"], ["y"], body=body)], weights=[trips])
    model = io.load(source)
    inner = list(model.graphs())[1]
    assert not inner.initializers
    assert len(io.to_proto(model).graph.node[0].attribute[0].g.initializer) == 1


def test_ir_version_3_initializers_are_constants():
    source = proto([node("Add", "x w", "y")], ["x", info("w", (3,))], weights=[weight("w", 3)], ir_version=3)
    model = io.load(source)
    assert set(model.graph.initializers) == {"w"}
    result = io.to_proto(model)
    assert [i.name for i in result.graph.input] == ["x", "w"]
    onnx.checker.check_model(result)


def test_ir_version_3_new_initializers_become_constant_nodes():
    source = proto([node("Add", "x w", "y")], ["x", info("w", (3,))], weights=[weight("w", 3)], ir_version=3)
    model = io.load(source)
    new = ir.Value(name="new", const_value=ir.tensor(np.full(3, 7, np.float32), name="new"))
    model.graph.register_initializer(new)
    model.graph.node(0).replace_input_with(1, new)
    model.graph.initializers.pop("w")
    result = io.to_proto(model)
    onnx.checker.check_model(result)
    assert [t.name for t in result.graph.initializer] == ["w"]
    assert [n.op_type for n in result.graph.node] == ["Constant", "Add"]
    assert [i.name for i in result.graph.input] == ["x", "w"]
    assert (run(result, x=X)[0] == X + 7).all()


def odd_interface():
    model = proto(
        [node("Relu", "x", "y")],
        inputs=["x", info("unused", ("N", 4)), info("through", None)],
        outputs=["y", "y", info("through", None), info("w", (3,))],
        weights=[weight("w", 3)],
    )
    model.graph.input[0].doc_string = "the input"
    model.graph.input[1].metadata_props.add(key="k", value="v")
    model.graph.output[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    return model


def test_the_interface_is_written_as_it_was_read():
    source = odd_interface()
    model = io.load(source)
    for value in (*model.graph.inputs, *model.graph.outputs):
        value.shape, value.doc_string = ir.Shape([7]), "changed while working"
    result = io.to_proto(model)
    assert list(result.graph.input) == list(source.graph.input)
    assert list(result.graph.output) == list(source.graph.output)


def test_a_changed_interface_is_not_saved(tmp_path):
    model = io.load(relu())
    model.graph.outputs[0].name = "other"
    with pytest.raises(ModelError, match="outputs changed"):
        io.save(model, tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------------------------------------ round trips


def everything():
    """A model with all that a file can carry besides its nodes."""
    model = proto(
        [node("Add", "x w", "a"), node("Relu", "a", "b"), node("F", "b", "y", domain="my.own")],
        weights=[weight("w", 3)],
        doc_string="graph doc",
        value_info=[info("w", (3,)), info("a")],
    )
    model.doc_string, model.producer_name, model.producer_version = "model doc", "me", "1.2"
    model.domain, model.model_version = "org.example", 7
    helper.set_model_props(model, {"author": "someone", "license": "none"})
    model.graph.metadata_props.add(key="g", value="h")
    model.graph.node[1].doc_string = "node doc"
    model.graph.node[1].metadata_props.add(key="namespace", value="layer/0")
    model.graph.initializer[0].doc_string = "weights"
    model.graph.value_info[1].doc_string = "intermediate"
    annotation = model.graph.quantization_annotation.add(tensor_name="a")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="w")
    model.opset_import.add(domain="my.own", version=3)
    model.opset_import.add(domain="never.used", version=5)
    function = helper.make_function(
        "my.own", "F", ["p"], ["q"], [node("Neg", "p", "q")], [helper.make_opsetid("", 17)], ["attr"]
    )
    function.doc_string = "function doc"
    model.functions.append(function)
    return model


def test_everything_is_kept():
    source = everything()
    assert io.to_proto(io.load(source)) == source


def test_everything_is_kept_in_a_file(tmp_path):
    path = written(tmp_path / "m.onnx", everything())
    io.save(io.load(path), tmp_path / "out.onnx")
    assert onnx.load(tmp_path / "out.onnx") == everything()


def test_training_information_is_kept():
    source = relu()
    source.training_info.add().algorithm.CopyFrom(
        helper.make_graph([node("Neg", "x", "d")], "algorithm", [info("x")], [info("d")])
    )
    assert io.to_proto(io.load(source)) == source


def sparse(name, value=3.0):
    values = helper.make_tensor(name, FLOAT, [1], [value])
    indices = helper.make_tensor(f"{name}_at", TensorProto.INT64, [1], [1])
    return helper.make_sparse_tensor(values, indices, [3])


def test_sparse_initializers_and_attributes_are_kept():
    source = proto(
        [
            helper.make_node("Constant", [], ["c"], name="c", sparse_value=sparse("inner")),
            node("Add", "x s", "a"),
            node("Add", "a c", "y"),
        ],
        sparse_initializer=[sparse("s", 4.0)],
    )
    model = io.load(source)
    result = io.to_proto(model)
    assert result == source
    assert (run(result, x=X)[0] == X + np.float32([0, 7, 0])).all()


def test_a_sparse_initializer_that_is_an_input_is_kept():
    source = proto([node("Add", "x s", "y")], ["x", info("s", (3,))], sparse_initializer=[sparse("s")])
    model = io.load(source)
    assert not model.graph.initializers
    assert io.to_proto(model) == source


def test_sequences_optionals_and_strings_are_kept():
    strings = helper.make_tensor("words", TensorProto.STRING, [2], [b"a", b"\xc3\xa9"])
    source = proto(
        [
            node("SequenceConstruct", "x x", "s"),
            node("SequenceAt", "s at", "y"),
            node("Identity", "words", "z"),
        ],
        outputs=["y", info("z", (2,), TensorProto.STRING)],
        weights=[strings, numpy_helper.from_array(np.array(0), "at")],
        value_info=[helper.make_tensor_sequence_value_info("s", FLOAT, None)],
    )
    assert io.to_proto(io.load(source)) == source


@pytest.mark.parametrize(
    "dtype",
    [
        FLOAT,
        TensorProto.FLOAT16,
        TensorProto.BFLOAT16,
        TensorProto.INT4,
        TensorProto.UINT4,
        TensorProto.FLOAT8E4M3FN,
        TensorProto.BOOL,
    ],
)
@pytest.mark.parametrize("is_raw", [True, False])
def test_tensors_are_kept_as_they_are_stored(dtype, is_raw):
    tensor = helper.make_tensor("w", dtype, [3], [1, 0, 1])
    if is_raw:
        tensor = numpy_helper.from_array(numpy_helper.to_array(tensor), "w")
    source = proto([node("Identity", "w", "y")], outputs=[info("y", (3,), dtype)], weights=[tensor], opset=21)
    source.ir_version = 10
    assert io.to_proto(io.load(source)) == source


def test_new_domain_is_imported_at_save():
    model = io.load(relu())
    gelu = ir.node("Gelu", [model.graph.inputs[0]], domain="com.microsoft")
    gelu.outputs[0].name = "unused"
    model.graph.append(gelu)
    result = io.to_proto(model)
    assert [(o.domain, o.version) for o in result.opset_import] == [("", 17), ("com.microsoft", 1)]
    assert len(io.to_proto(io.load(relu())).opset_import) == 1


def test_bytes_are_deterministic():
    assert io.to_bytes(io.load(everything())) == io.to_bytes(io.load(everything()))


def comparable(model):
    """Without empty fields, names of nodes, and descriptions of values that do not exist."""
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    nodes = copied.graph.node
    names = {name for n in nodes for name in n.output} | {t.name for t in copied.graph.initializer}
    value_info = {v.name: v for v in copied.graph.value_info if v.name in names}
    del copied.graph.value_info[:]
    for each in (copied, *copied.opset_import, *nodes):
        for field, value in each.ListFields():
            if not value:
                each.ClearField(field.name)
    for each in nodes:
        each.ClearField("name")
    return copied, value_info


@pytest.mark.skipif(not SHARED_FILES, reason="no shared models")
@pytest.mark.parametrize("path", few(SHARED_FILES))
def test_real_models_stay_what_they_are(path):
    source, result = comparable(onnx.load(path)), comparable(io.to_proto(io.load(path)))
    assert result == source
    assert io.to_bytes(io.load(path)) == io.to_bytes(io.load(path))


# ---------------------------------------------------------------------------------------------------- saving


def huge(nbytes, name="huge"):
    """A tensor that has a size and no data."""

    def never():
        raise AssertionError("loaded")

    return ir.LazyTensor(never, ir.DataType.UINT8, shape=ir.Shape([nbytes]), name=name)


def model_of(tensor):
    value = ir.Value(name="w", const_value=tensor)
    size = ir.node("Size", [value])
    size.outputs[0].name = "y"
    return ir.Model(
        ir.Graph([], size.outputs, nodes=[size], initializers=[value], opset_imports={"": 17}, name="g"),
        ir_version=8,
    )


def test_external_data_are_chosen_by_nominal_size():
    assert not io.needs_external_data(io.load(model_of(huge(external.INLINE_LIMIT))))
    assert io.needs_external_data(io.load(model_of(huge(external.INLINE_LIMIT + 1))))
    assert external.INLINE_LIMIT < 2**31


def test_defaults_count_for_the_size():
    model = io.load(overridable())
    model.graph.initializers["k"].const_value = huge(external.INLINE_LIMIT - 11)
    assert io.needs_external_data(model)


def test_a_huge_model_is_no_proto():
    with pytest.raises(ModelError, match="external data"):
        io.to_proto(io.load(model_of(huge(2**31))))


def test_large_weights_are_written_one_at_a_time(tmp_path):
    """Each tensor is made when it is written; at most one is alive."""
    alive, most = [0], [0]

    class Counted(ir.Tensor):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            alive[0] += 1
            most[0] = max(most[0], alive[0])

        def __del__(self):
            alive[0] -= 1

    model = io.load(proto([node("Relu", "x", "y")]))
    for i in range(5):
        lazy = ir.LazyTensor(
            lambda i=i: Counted(np.full((1000,), i, np.float32)),
            ir.DataType.FLOAT,
            ir.Shape([1000]),
            name=f"w{i}",
        )
        model.graph.register_initializer(ir.Value(name=f"w{i}", const_value=lazy))
    io.save(model, tmp_path / "m.onnx", external_data=True)
    assert most[0] == 1
    result = onnx.load(tmp_path / "m.onnx")
    assert [numpy_helper.to_array(t)[999] for t in result.graph.initializer] == [0, 1, 2, 3, 4]


def test_saved_with_external_data(tmp_path):
    source = overridable()
    source.graph.initializer.append(weight("big", 512, 4))
    source.graph.node.append(node("Identity", "big", "z"))
    source.graph.output.append(info("z", (512, 4)))
    model = io.load(source)
    before = io.to_bytes(model)
    io.save(model, tmp_path / "m.onnx", external_data=True)
    assert sorted(os.listdir(tmp_path)) == ["m.onnx", "m.onnx.data"]
    onnx.checker.check_model(str(tmp_path / "m.onnx"))
    small = {
        t.name: t.data_location for t in onnx.load(tmp_path / "m.onnx", load_external_data=False).graph.initializer
    }
    assert small == {"w": 0, "k": 0, "big": TensorProto.EXTERNAL}
    assert (run(str(tmp_path / "m.onnx"), x=X)[0] == (X + 5) * 2).all()
    assert io.to_bytes(model) == before
    data = [(tmp_path / name).read_bytes() for name in ("m.onnx", "m.onnx.data")]
    io.save(io.load(source), tmp_path / "m.onnx", external_data=True)
    assert data == [(tmp_path / name).read_bytes() for name in ("m.onnx", "m.onnx.data")]


def test_a_shared_tensor_is_written_once(tmp_path):
    model = io.load(proto([node("Relu", "x", "y")]))
    tensor = ir.tensor(np.ones(1000, np.float32))
    for name in ("a", "b"):
        model.graph.register_initializer(ir.Value(name=name, const_value=tensor))
    io.save(model, tmp_path / "m.onnx", external_data=True)
    assert (tmp_path / "m.onnx.data").stat().st_size == 4000
    assert len(onnx.load(tmp_path / "m.onnx").graph.initializer) == 2
    assert tensor.name is None or tensor.name == "b"


def test_inline_save_takes_external_data_in(tmp_path):
    path = with_data(tmp_path)
    io.save(io.load(path), tmp_path / "out.onnx")
    os.remove(tmp_path / "w.bin")
    assert numpy_helper.to_array(onnx.load(tmp_path / "out.onnx").graph.initializer[0])[-1, -1] == 2047


def test_output_is_input(tmp_path):
    path = written(tmp_path / "m.onnx", relu())
    io.save(io.load(path), path)
    assert onnx.load(path) == relu()
    assert os.listdir(tmp_path) == ["m.onnx"]


@pytest.mark.parametrize("external_data", [True, False])
def test_output_is_input_with_external_data(tmp_path, external_data):
    path = with_data(tmp_path, location="m.onnx.data")
    model = io.load(path)
    for _ in range(2):  # the second time, the model reads what the first has written
        new = ir.tensor(np.full(4096, 9, np.float32))
        name = f"new{len(model.graph.initializers)}"
        added = ir.Value(name=name, const_value=new)
        others = list(model.graph.initializers.values())
        for value in others:
            model.graph.initializers.pop(value.name)
        for value in (added, *others):  # so that offsets move
            model.graph.register_initializer(value)
        io.save(model, path, external_data=external_data)
        saved = {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
        assert saved["w"][-1, -1] == 2047
        assert (saved[name] == 9).all()
        assert model.graph.initializers["w"].const_value.numpy()[-1, -1] == 2047
    assert sorted(os.listdir(tmp_path)) == ["m.onnx", "m.onnx.data"]


def test_an_older_clone_cannot_read_an_overwritten_file(tmp_path):
    path = with_data(tmp_path, location="m.onnx.data")
    model = io.load(path)
    old = model.clone()
    io.save(model, path, external_data=True)
    with pytest.raises(ValueError, match="invalidated"):
        old.graph.initializers["w"].const_value.numpy()


def test_data_of_an_input_that_is_kept_are_not_overwritten(tmp_path):
    path = with_data(tmp_path, location="out.onnx.data")
    before = (tmp_path / "out.onnx.data").read_bytes()
    io.save(io.load(path), tmp_path / "out.onnx", external_data=True)
    assert (tmp_path / "out.onnx.data").read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["m.onnx", "out.onnx", "out.onnx.1.data", "out.onnx.data"]
    assert numpy_helper.to_array(onnx.load(tmp_path / "out.onnx").graph.initializer[0])[-1, -1] == 2047


def contents(folder):
    return {name: (folder / name).read_bytes() for name in os.listdir(folder)}


def not_saved(model, path, *parts, **how):
    with pytest.raises(ModelError) as caught:
        io.save(model, path, **how)
    assert "\n" not in str(caught.value)
    for part in parts:
        assert part in str(caught.value)


def test_unwritable_targets(tmp_path):
    model = io.load(relu())
    (tmp_path / "file").write_text("")
    not_saved(model, tmp_path / "file" / "m.onnx", "cannot be written")
    not_saved(model, tmp_path / "no" / "m.onnx", "there is no folder")
    not_saved(model, tmp_path, "is a folder")
    assert os.listdir(tmp_path) == ["file"]


def test_permission_denied(tmp_path, monkeypatch):
    def denied(*args, **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied")

    model = io.load(relu())
    monkeypatch.setattr("builtins.open", denied)
    not_saved(model, tmp_path / "m.onnx", "Permission denied")


@pytest.mark.parametrize("external_data", [True, False])
@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_disk_full(tmp_path, monkeypatch, external_data, failing):
    path = with_data(tmp_path, location="m.onnx.data")
    model, before = io.load(path), contents(tmp_path)

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, failing, full)
        not_saved(model, path, "No space left on device", external_data=external_data)
    assert contents(tmp_path) == before
    assert model.graph.initializers["w"].const_value.numpy()[-1, -1] == 2047


def test_the_second_file_cannot_be_moved(tmp_path, monkeypatch):
    """The data file is in place already when the model fails: it goes back."""
    path = with_data(tmp_path, location="m.onnx.data")
    model, before, replace = io.load(path), contents(tmp_path), os.replace
    value = ir.Value(name="a", const_value=ir.tensor(np.full(4096, 9, np.float32)))
    model.graph.register_initializer(value)

    def failing(source, target):
        if os.fspath(target).endswith("m.onnx"):
            raise OSError(errno.EIO, "Input/output error")
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", failing)
        not_saved(model, path, "Input/output error", external_data=True)
    assert contents(tmp_path) == before
    assert model.graph.initializers["w"].const_value.numpy()[-1, -1] == 2047


@pytest.mark.parametrize("external_data", [True, False])
def test_interrupted(tmp_path, monkeypatch, external_data):
    path = with_data(tmp_path, location="m.onnx.data")
    model, before = io.load(path), contents(tmp_path)

    def interrupted(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            io.save(model, path, external_data=external_data)
    assert contents(tmp_path) == before


def test_a_tensor_that_lies_about_its_size(tmp_path):
    model = io.load(relu())
    lazy = ir.LazyTensor(lambda: ir.tensor(np.ones(3, np.float32)), ir.DataType.FLOAT, ir.Shape([3000]), name="w")
    model.graph.register_initializer(ir.Value(name="w", const_value=lazy))
    not_saved(model, tmp_path / "m.onnx", "tensor 'w'", external_data=True)
    assert not list(tmp_path.iterdir())


def test_mode_of_the_overwritten_file_is_kept(tmp_path):
    path = written(tmp_path / "m.onnx", relu())
    path.chmod(0o640)
    io.save(io.load(path), path)
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("exists", [True, False], ids=["a file", "nowhere yet"])
@pytest.mark.parametrize("weights", [False, True], ids=["alone", "with data"])
def test_a_link_stays_one_and_its_file_is_written(tmp_path, exists, weights):
    (tmp_path / "real").mkdir()
    real = tmp_path / "real" / "m.onnx"
    if exists:
        written(real, relu())
    (tmp_path / "link.onnx").symlink_to("real/m.onnx")
    io.save(io.load(everything()), tmp_path / "link.onnx", external_data=weights)
    assert (tmp_path / "link.onnx").is_symlink()
    assert io.load(real).producer_name == io.load(tmp_path / "real" / ".." / "real" / "m.onnx").producer_name == "me"
    assert sorted(p.name for p in real.parent.iterdir()) == ["m.onnx", "m.onnx.data"][: 1 + weights]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.onnx", "real"]


def test_other_hard_links_keep_what_they_were(tmp_path):
    real = written(tmp_path / "real.onnx", relu())
    before = real.read_bytes()
    os.link(real, tmp_path / "other.onnx")
    io.save(io.load(everything()), tmp_path / "other.onnx")
    assert real.read_bytes() == before


@pytest.mark.parametrize(
    ("target", "part"),
    [
        ("link.onnx", "Too many levels of symbolic links"),
        (".", "is a folder"),
        ("no/such/m.onnx", "there is no folder"),
        ("/dev/null", "not a regular file"),
        ("fifo", "not a regular file"),
    ],
)
def test_a_link_to_what_cannot_be_written(tmp_path, target, part):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link.onnx").symlink_to(target)
    with pytest.raises(ModelError, match=part):
        io.save(io.load(relu()), tmp_path / "link.onnx")
    assert (tmp_path / "link.onnx").is_symlink()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fifo", "link.onnx"]


def test_opset():
    assert io.opset(io.load(relu())) == 17
    model = relu()
    model.opset_import[0].domain = "my.own"
    model.graph.node[0].domain = "my.own"
    assert io.opset(io.load(model)) == 18  # the last that came with IR version 8
