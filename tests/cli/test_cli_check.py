"""``onnxrewrite check``: equal, not equal, not comparable."""

import json

import numpy as np
import onnx
import pytest
from small_models import GELU, RELU, write

OTHER = GELU.replace("1.41421356", "1.5")


def test_equal_up_to_rounding(cli, gelu, tmp_path):
    assert cli("apply", gelu).code == 0
    done = cli("check", gelu, tmp_path / "gelu.opt.onnx")
    assert done.code == 0
    assert "Result    equal, as far as rounding goes" in done.out
    assert "Compared  6 runs, at batch=" in done.out
    (row,) = [line.split() for line in done.out.splitlines() if line.startswith("  y ")]
    name, error, allowed, against = row
    assert (name, against) == ("y", "original")
    assert 0 < float(error) <= float(allowed)


def test_identical(cli, gelu):
    done = cli("check", gelu, gelu)
    assert done.code == 0
    assert "bitwise equal" in done.out
    assert cli("check", gelu, gelu, "-q").out == "bitwise equal\n"


def test_not_equal(cli, gelu, tmp_path):
    other = write(tmp_path / "other.onnx", OTHER)
    done = cli("check", gelu, other, "--json", tmp_path / "r.json")
    assert (done.code, done.err) == (1, "")
    assert "Result    not equal" in done.out
    assert "Differs   output y, sample 0" in done.out
    data = json.loads((tmp_path / "r.json").read_text())
    assert data["ok"] is False
    assert data["largest"]["error"] > data["largest"]["allowed"]
    assert data["failures"]
    assert cli("check", gelu, other, "-q").out == "not equal\n"


@pytest.mark.parametrize(
    "text",
    [
        RELU.replace(") { y", ", float[batch, 8] z) { z = Abs(x) y"),
        RELU.replace("float[batch, 8] x", "double[batch, 8] x").replace("float[batch, 8] y", "double[batch, 8] y"),
        RELU.replace("x)", "input)"),
    ],
    ids=["another output", "another dtype", "another name"],
)
def test_other_interface_is_not_equal(cli, relu, tmp_path, text):
    done = cli("check", relu, write(tmp_path / "other.onnx", text))
    assert done.code == 1, done
    assert "changed" in done.out


def test_other_shape_is_not_equal(cli, relu, tmp_path):
    text = RELU.replace("y = Relu(x)", "r = Relu(x) y = Concat<axis = 0>(r, r)")
    assert cli("check", relu, write(tmp_path / "other.onnx", text)).code == 1


def test_json_on_stdout(cli, gelu, tmp_path):
    data = json.loads(cli("check", gelu, write(tmp_path / "other.onnx", OTHER), "--json", "-").out)
    assert (data["a"], data["ok"], data["samples"]) == (str(gelu), False, 3)


def test_json_holds_no_infinity(cli, relu, tmp_path):
    """An output that is suddenly not finite has an error that JSON has no number for."""
    other = RELU.replace("y = Relu(x)", "n = Neg(x) s = Sqrt(n) l = Log(s) y = Sub(l, l)")
    done = cli("check", relu, write(tmp_path / "other.onnx", other), "--json", "-")
    assert done.code == 1
    data = json.loads(done.out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert data["outputs"][0]["error"] is None


def test_options(cli, gelu, tmp_path):
    np.save(tmp_path / "x.npy", np.ones((5, 8), np.float32))
    done = cli("check", gelu, gelu, "--input", f"x={tmp_path}/x.npy", "--samples", 2, "--seed", 3)
    assert done.code == 0
    assert "2 runs, at batch=5" in done.out
    assert "at batch=4" in cli("check", gelu, gelu, "--dim", "batch=4").out


def test_what_cannot_be_run_was_not_compared(cli, tmp_path):
    text = '<ir_version: 8, opset_import: ["": 17, "my": 1]> g (float[2] x) => (float[2] y) { y = my.Secret(x) }'
    secret = write(tmp_path / "secret.onnx", text)
    done = cli("check", secret, secret)
    assert done.code == 2
    assert "not compared" in done.err or "does not open" in done.out


def test_random_operators_were_not_compared(cli, tmp_path):
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = RandomNormalLike(x) }'
    model = write(tmp_path / "random.onnx", text)
    done = cli("check", model, model)
    assert done.code == 2
    assert "the models were not compared: random operators" in done.err


def test_bad_arguments(refused, gelu, tmp_path):
    assert "no such dimension" in refused("check", gelu, gelu, "--dim", "z=1")
    assert "--samples" in refused("check", gelu, gelu, "--samples", "0")
    assert "would overwrite a model" in refused("check", gelu, gelu, "--json", gelu)
    assert "no such input" in refused("check", gelu, gelu, "--input", f"z={npy(tmp_path)}")


def npy(folder):
    np.save(folder / "z.npy", np.ones(1, np.float32))
    return folder / "z.npy"


def test_many_outputs_are_cut(cli, tmp_path):
    names = [f"y{i}" for i in range(30)]
    nodes = [onnx.helper.make_node("Mul", ["x", f"w{i}"], [n]) for i, n in enumerate(names)]
    weights = [onnx.numpy_helper.from_array(np.float32(i), f"w{i}") for i in range(30)]
    info = [onnx.helper.make_tensor_value_info(n, 1, [2]) for n in ("x", *names)]
    graph = onnx.helper.make_graph(nodes, "g", info[:1], info[1:], weights)
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8),
        tmp_path / "m.onnx",
    )
    assert "10 more" in cli("check", tmp_path / "m.onnx", tmp_path / "m.onnx").out
    assert "y29" in cli("check", tmp_path / "m.onnx", tmp_path / "m.onnx", "-v").out
