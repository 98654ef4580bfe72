"""Every bad file in TRAPS.md, given to every command: one clear line, status 2, nothing written."""

import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

COMMANDS = ("apply {bad}", "inspect {bad}", "check {good} {bad}", "check {bad} {good}")


def info(name):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3])


def relu(inputs=("x",), outputs=("y",)):
    return helper.make_node("Relu", list(inputs), list(outputs))


def model(nodes, weights=(), opset=17):
    graph = helper.make_graph(nodes, "g", [info("x")], [info("y")], list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def data(made):
    return made.SerializeToString()


def external(path, location="weights.bin", size=24, length=None):
    """A model whose weights lie elsewhere."""
    tensor = numpy_helper.from_array(np.zeros((2, 3), np.float32), "w")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    if length is not None:
        tensor.external_data.add(key="length", value=str(length))
    if size is not None:
        (path.parent / "weights.bin").write_bytes(bytes(size))
    return data(model([helper.make_node("Add", ["x", "w"], ["y"])], [tensor]))


BAD = {
    "missing": (lambda path: None, "no such file"),
    "empty": (lambda path: b"", "is empty"),
    "truncated": (lambda path: data(model([relu()]))[:-20], ""),
    "text": (lambda path: b"hello, world\n", "text file"),
    "json": (lambda path: b'{"ir_version": 8}', "text file"),
    "random bytes": (lambda path: random.Random(0).randbytes(5000), ""),
    "zeros": (lambda path: bytes(1000), ""),
    "lfs pointer": (lambda path: b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
    "no graph": (lambda path: data(onnx.ModelProto(ir_version=8, producer_name="x")), "no graph"),
    "cyclic": (
        lambda path: data(model([relu(["b"], ["a"]), relu(["a"], ["b"]), relu(["b"], ["y"])])),
        "",
    ),
    "undefined input": (lambda path: data(model([relu(["nowhere"])])), "nowhere"),
    "doubly defined": (lambda path: data(model([relu(), relu()])), "'y'"),
    "missing weights": (lambda path: external(path, size=None), "missing"),
    "short weights": (lambda path: external(path, size=7), "too short"),
    "weights elsewhere": (lambda path: external(path, "../weights.bin"), "leaves the model's folder"),
    "absolute weights": (lambda path: external(path, "/etc/passwd"), "leaves the model's folder"),
    "unknown opset": (lambda path: data(model([relu()], opset=999)), "999"),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", BAD)
def test_bad_file(refused, tmp_path, kind, command):
    folder = tmp_path / "models"
    folder.mkdir()
    bad, good = folder / "bad.onnx", folder / "good.onnx"
    make, part = BAD[kind]
    content = make(bad)
    if content is not None:
        bad.write_bytes(content)
    good.write_bytes(data(model([relu()])))
    before = sorted(p.name for p in folder.iterdir())
    line = refused(*(word.format(bad=bad, good=good) for word in command.split()))
    assert part in line
    assert len(line) < 500
    assert sorted(p.name for p in folder.iterdir()) == before


@pytest.mark.parametrize("command", [("apply",), ("inspect",), ("check", "{good}")], ids=lambda c: c[0])
def test_folder(refused, tmp_path, gelu, command):
    assert "is a folder" in refused(*(word.format(good=gelu) for word in command), tmp_path)


def test_fuzzed_files(refused, cli, gelu):
    """Whatever a damaged file does, it is one line or a result."""
    original = gelu.read_bytes()
    rng = random.Random(1)
    for _ in range(30):
        damaged = bytearray(original)
        for _ in range(rng.randint(1, 6)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        gelu.write_bytes(damaged)
        done = cli("apply", gelu, "--check", "off")
        assert done.code in (0, 2), (done, bytes(damaged))
        assert "Traceback" not in done.err
        assert done.err.count("\n") == (done.code == 2)


def test_a_name_with_odd_characters(cli, gelu, tmp_path):
    odd = gelu.rename(tmp_path / "my [bold]model[dim] ünïcode.onnx")
    done = cli("apply", odd)
    assert done.code == 0
    assert f"{odd}: " in done.out
    assert (tmp_path / "my [bold]model[dim] ünïcode.opt.onnx").exists()


def test_relative_paths(cli, gelu, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli("apply", Path("gelu.onnx"), "-q").out == "gelu.opt.onnx\n"
    (tmp_path / "out").mkdir()
    assert cli("apply", "gelu.onnx", "-o", "out/x.onnx", "-q").out == "out/x.onnx\n"
