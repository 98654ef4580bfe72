"""``onnxrewrite inspect``."""

import json

import numpy as np
import onnx

from onnxrewrite.ir import text

RICH = """<ir_version: 8, opset_import: ["": 17, "local": 1], producer_name: "me", producer_version: "2",
           metadata_props: ["author": "somebody"]>
g (float[batch, seq] x, float[seq] w, bool c) => (float[batch, seq] y) <float[3] w = {1.0, 2.0, 3.0}> {
  k = Constant<value = float {2.0}>()
  s = local.twice(x)
  t = If (c) <then_branch = a () => (float[batch, seq] p) { p = Relu(s) },
              else_branch = b () => (float[batch, seq] q) { q = Abs(s) }>
  m = Mul(t, k)
  y = Add(m, w)
}
<domain: "local", opset_import: ["": 17]> twice (v) => (r) { r = Add(v, v) }"""


def test_everything(cli, model_of):
    model = model_of(RICH)
    done = cli("inspect", model)
    assert done.code == 0
    assert done.out.partition("  Repaired")[0] == (
        f"{model}: opset ai.onnx 17, local 1; IR version 8; by me 2\n"
        "\n"
        "  input  type\n"
        "  x      float32[batch, seq]\n"
        "  w      float32[seq]         has a default, can be overridden\n"
        "  c      bool[]\n"
        "\n"
        "  output  type\n"
        "  y       float32[batch, seq]\n"
        "\n"
        "  operator     nodes\n"
        "  Add              2\n"
        "  Abs              1\n"
        "  If               1\n"
        "  Mul              1\n"
        "  Relu             1\n"
        "  local.twice      1\n"
        "\n"
        "  Nodes      7 nodes and 1 Constant, in 2 subgraphs too\n"
        f"  Size       {model.stat().st_size} B\n"
        "  Weights    2 tensors, 16 B: float 16 B\n"
        "  Sizes      symbolic: batch, seq\n"
        "  Functions  local.twice (1 node)\n"
        "  Metadata   author\n"
    )


def test_json(cli, model_of, tmp_path):
    assert cli("inspect", model_of(RICH), "--json", tmp_path / "i.json").code == 0
    data = json.loads((tmp_path / "i.json").read_text())
    assert data["opsets"] == {"": 17, "local": 1}
    assert data["inputs"][1] == {"name": "w", "type": "float32[seq]", "overridable": True}
    assert data["operators"]["If"] == 1
    assert data["weights"]["external_files"] == []
    assert json.loads(cli("inspect", model_of(RICH), "--json", "-").out) == data


def test_text_can_be_read_back(cli, gelu):
    out = cli("inspect", gelu, "--text").out
    assert "Erf(" in out
    assert text.print_model(text.parse(out)) == out


def test_repairs(cli, gelu):
    model = onnx.load(gelu)
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend(reversed(nodes))
    onnx.save(model, gelu)
    assert "  Repaired  " in cli("inspect", gelu).out
    assert "  Note     " in cli("apply", gelu).out


def test_external_data(cli, gelu):
    model = onnx.load(gelu)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(2048, np.float32), "big"))
    onnx.save(model, gelu, save_as_external_data=True, location="weights.bin")
    assert "External  8.19 kB in weights.bin" in cli("inspect", gelu).out


def test_unusual_types(cli, tmp_path):
    kinds = onnx.helper
    float_ = kinds.make_tensor_type_proto(onnx.TensorProto.FLOAT, None)
    strings = kinds.make_tensor_type_proto(onnx.TensorProto.STRING, ["n", None, 3])
    inputs = [
        kinds.make_value_info("a", kinds.make_sequence_type_proto(float_)),
        kinds.make_value_info("b", kinds.make_optional_type_proto(strings)),
        kinds.make_value_info("d", strings),
    ]
    node = kinds.make_node("Identity", ["d"], ["y"])
    graph = kinds.make_graph([node], "g", inputs, [kinds.make_value_info("y", strings)])
    onnx.save(kinds.make_model(graph, ir_version=9), tmp_path / "types.onnx")
    out = cli("inspect", tmp_path / "types.onnx").out
    for line in (
        "a      sequence(float32[...])",
        "b      optional(string[n, ?, 3])",
        "d      string[n, ?, 3]",
    ):
        assert line in out


def test_long_lists_are_cut(cli, tmp_path):
    names = [f"x{i}" for i in range(30)]
    info = [onnx.helper.make_tensor_value_info(n, 1, [2]) for n in (*names, "y")]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Sum", names, ["y"])], "g", info[:-1], info[-1:])
    onnx.save(onnx.helper.make_model(graph, ir_version=8), tmp_path / "many.onnx")
    assert "10 more (-v lists them)" in cli("inspect", tmp_path / "many.onnx").out
    assert "x29" in cli("inspect", tmp_path / "many.onnx", "-v").out


def test_text_excludes_others(refused, gelu):
    assert "--text" in refused("inspect", gelu, "--text", "-v")
    assert "would overwrite a model" in refused("inspect", gelu, "--json", gelu)
