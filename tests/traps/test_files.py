"""TRAPS.md, "Files": what cannot be read is refused in one line, and what is written is written whole."""

from __future__ import annotations

import errno
import gzip
import itertools
import json
import os
import pickle
import resource
import signal
import socket
import subprocess
import sys
import textwrap
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxrewrite
from onnxrewrite import io
from onnxrewrite.cli import main
from onnxrewrite.io import external

from .helpers import gelu, operators, proto, run, session

ROOT = Path(__file__).resolve().parents[2]
Write = Callable[[Path], None]


@pytest.fixture(autouse=True)
def _signals() -> object:
    """The command line installs handlers of its own."""
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def good() -> onnx.ModelProto:
    return proto(f"float[n,4] x; w = float[4,4] ~  h = MatMul(x, w)  {gelu('h', 'y')}")


def command(*arguments: str | Path, **options) -> subprocess.CompletedProcess[str]:
    """``python -m onnxrewrite`` in a process of its own."""
    line = [sys.executable, "-m", "onnxrewrite", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False, **options)


def listing(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder, and what is in it."""
    found = sorted(folder.rglob("*"))
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in found}


def assert_refused(path: Path | str, folder: Path, capsys: pytest.CaptureFixture[str], status: int = 2) -> str:
    """One clear line, exit code ≠ 0, no output file, no traceback, whether on the command line or from Python."""
    before = listing(folder)
    for arguments in (["-o", str(folder / "out.onnx")], [], ["--check", "off"], ["--dry-run"]):
        code = main(["apply", str(path), *arguments])
        said = capsys.readouterr()
        assert code == status, (code, said)
        assert said.out == ""
        lines = said.err.splitlines()
        assert len(lines) == 1, said.err
        assert lines[0].startswith("onnxrewrite: ")
        assert "Traceback" not in said.err
        assert "internal error" not in said.err
        assert listing(folder) == before
    with pytest.raises(onnxrewrite.OnnxRewriteError) as caught:
        onnxrewrite.apply(str(path))
    assert "\n" not in str(caught.value)
    return lines[0]


# -- bad files ---------------------------------------------------------------------------------------------------


def changed(change: Callable[[onnx.ModelProto], object]) -> Write:
    """A good model, spoilt."""

    def write(path: Path) -> None:
        model = good()
        change(model)
        path.write_bytes(model.SerializeToString())

    return write


def truncated(part: float) -> Write:
    def write(path: Path) -> None:
        data = good().SerializeToString()
        path.write_bytes(data[: int(len(data) * part)])

    return write


def random_bytes(seed: int, size: int, start: bytes = b"") -> Write:
    return lambda path: path.write_bytes(start + np.random.default_rng(seed).bytes(size)) and None


def node(op_type: str, inputs: list[str], outputs: list[str], **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs, outputs, **attributes)


def cyclic(model: onnx.ModelProto) -> None:
    model.graph.node.extend([node("Neg", ["c2"], ["c1"]), node("Neg", ["c1"], ["c2"])])


def cycle_through_all(model: onnx.ModelProto) -> None:
    model.graph.node[0].input[0] = model.graph.output[0].name


def cycle_of_one(model: onnx.ModelProto) -> None:
    model.graph.node[0].input[0] = model.graph.node[0].output[0]


def cycle_through_a_body(model: onnx.ModelProto) -> None:
    branch = helper.make_graph([node("Neg", ["loop"], ["t"])], "b", [], [helper.make_tensor_value_info("t", 1, None)])
    model.graph.input.append(helper.make_tensor_value_info("g", TensorProto.BOOL, []))
    other = helper.make_graph([node("Neg", ["x"], ["u"])], "e", [], [helper.make_tensor_value_info("u", 1, None)])
    model.graph.node.append(node("If", ["g"], ["loop"], then_branch=branch, else_branch=other))


def undefined_in_a_body(model: onnx.ModelProto) -> None:
    cycle_through_a_body(model)
    model.graph.node[-1].attribute[0].g.node[0].input[0] = "nowhere"


def undefined_output_of_a_body(model: onnx.ModelProto) -> None:
    cycle_through_a_body(model)
    model.graph.node[-1].attribute[0].g.node[0].input[0] = "x"
    model.graph.node[-1].attribute[0].g.output[0].name = "nowhere"


def recursive_function(model: onnx.ModelProto) -> None:
    body = helper.make_function(
        "local",
        "F",
        ["a"],
        ["b"],
        [helper.make_node("F", ["a"], ["b"], domain="local")],
        [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)],
    )
    model.functions.append(body)
    model.opset_import.append(helper.make_opsetid("local", 1))
    model.graph.node.append(helper.make_node("F", ["x"], ["f"], domain="local"))


def undefined_in_a_function(model: onnx.ModelProto) -> None:
    body = helper.make_function(
        "local", "F", ["a"], ["b"], [node("Neg", ["nowhere"], ["b"])], [helper.make_opsetid("", 17)]
    )
    model.functions.append(body)
    model.opset_import.append(helper.make_opsetid("local", 1))
    model.graph.node.append(helper.make_node("F", ["x"], ["f"], domain="local"))


def two_functions_of_one_name(model: onnx.ModelProto) -> None:
    for _ in range(2):
        model.functions.append(
            helper.make_function("local", "F", ["a"], ["b"], [node("Neg", ["a"], ["b"])], [helper.make_opsetid("", 17)])
        )
    model.opset_import.append(helper.make_opsetid("local", 1))
    model.graph.node.append(helper.make_node("F", ["x"], ["f"], domain="local"))


def short_tensor(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].raw_data = model.graph.initializer[0].raw_data[:-4]


def short_float_data(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].ClearField("raw_data")
    model.graph.initializer[0].float_data.extend([1.0, 2.0])


def huge_tensor(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].dims[:] = [2**40, 2**20]


def empty_huge_tensor(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].ClearField("raw_data")
    model.graph.initializer[0].dims[:] = [2**40, 2**20]


def unknown_dtype(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].data_type = 99


def set_opset(version: int, domain: str = "") -> Write:
    def change(model: onnx.ModelProto) -> None:
        model.opset_import[0].version = version
        model.opset_import[0].domain = domain

    return changed(change)


def deep(path: Path) -> None:
    """Graphs inside graphs, more than protobuf reads; put together by hand, for it does not write them either."""

    def field(number: int, content: bytes) -> bytes:
        size, length = b"", len(content)
        while length > 127:
            size, length = size + bytes([length & 127 | 128]), length >> 7
        return bytes([number << 3 | 2]) + size + bytes([length]) + content

    graph = good().graph.SerializeToString()
    for _ in range(100):
        attribute = field(1, b"then_branch") + field(6, graph) + b"\xa0\x01\x05"
        graph = (
            field(1, field(1, b"x") + field(2, b"y") + field(4, b"If") + field(5, attribute))
            + good().graph.SerializeToString()
        )
    model = good()
    model.ClearField("graph")
    path.write_bytes(model.SerializeToString() + field(7, graph))


def zipped(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data.pkl", pickle.dumps({"weight": [1, 2, 3]}))


BAD: dict[str, Write] = {
    "missing": lambda path: None,
    "directory": lambda path: path.mkdir(),
    "empty": lambda path: path.write_bytes(b"") and None,
    "one byte": lambda path: path.write_bytes(b"\x08") and None,
    "zeros": lambda path: path.write_bytes(bytes(1000)) and None,
    "truncated, a tenth": truncated(0.1),
    "truncated, a third": truncated(0.34),
    "truncated, a half": truncated(0.5),
    "truncated, almost all": truncated(0.95),
    "truncated, one byte less": lambda path: path.write_bytes(good().SerializeToString()[:-1]) and None,
    "text": lambda path: path.write_text("This is no model.\n" * 50) and None,
    "text of an onnx model": lambda path: path.write_text(onnx.printer.to_text(good())) and None,
    "JSON": lambda path: path.write_text(json.dumps({"graph": {}})) and None,
    "HTML": lambda path: path.write_text("<!DOCTYPE html><html><body>404: not found</body></html>") and None,
    "a text in UTF-8": lambda path: path.write_text("größer, schöner, wärmer\n" * 20) and None,
    "Git LFS pointer": lambda path: (
        path.write_text(
            "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
        )
        and None
    ),
    "random bytes": random_bytes(0, 1000),
    "more random bytes": random_bytes(1, 100_000),
    "random bytes behind a header": random_bytes(2, 500, b"\x08\x08\x12\x07pytorch"),
    "zip": zipped,
    "pickle": lambda path: path.write_bytes(pickle.dumps({"w": np.zeros(5)})) and None,
    "gzip of a model": lambda path: path.write_bytes(gzip.compress(good().SerializeToString())) and None,
    "a tensor, not a model": lambda path: (
        path.write_bytes(onnx.numpy_helper.from_array(np.ones(3, np.float32)).SerializeToString()) and None
    ),
    "a graph, not a model": lambda path: path.write_bytes(good().graph.SerializeToString()) and None,
    "without graph": changed(lambda m: m.ClearField("graph")),
    "empty graph": changed(lambda m: m.graph.Clear()),
    "without outputs": changed(lambda m: m.graph.ClearField("output")),
    "cycle": changed(cyclic),
    "cycle through everything": changed(cycle_through_all),
    "cycle of one node": changed(cycle_of_one),
    "cycle through a branch": changed(cycle_through_a_body),
    "undefined input": changed(lambda m: m.graph.node[1].input.__setitem__(0, "nowhere")),
    "undefined input in a branch": changed(undefined_in_a_body),
    "undefined input in a function": changed(undefined_in_a_function),
    "undefined output": changed(lambda m: m.graph.output[0].__setattr__("name", "nowhere")),
    "undefined output of a branch": changed(undefined_output_of_a_body),
    "removed weight": changed(lambda m: m.graph.ClearField("initializer")),
    "defined twice": changed(lambda m: m.graph.node.append(node("Neg", ["x"], ["y"]))),
    "defined by one node twice": changed(lambda m: m.graph.node.append(node("Split", ["x"], ["s", "s"]))),
    "a node defines an input": changed(lambda m: m.graph.node.append(node("Neg", ["y"], ["x"]))),
    "a node defines a weight": changed(lambda m: m.graph.node.append(node("Neg", ["y"], ["w"]))),
    "two weights of one name": changed(lambda m: m.graph.initializer.append(m.graph.initializer[0])),
    "two inputs of one name": changed(lambda m: m.graph.input.append(m.graph.input[0])),
    "an operand of many left out": changed(lambda m: m.graph.node.append(helper.make_node("Min", ["x", ""], ["q"]))),
    "a node without operator": changed(lambda m: m.graph.node.append(onnx.NodeProto(input=["x"], output=["q"]))),
    "recursive function": changed(recursive_function),
    "two functions of one name": changed(two_functions_of_one_name),
    "short tensor": changed(short_tensor),
    "short tensor of floats": changed(short_float_data),
    "tensor of a million terabytes": changed(huge_tensor),
    "empty tensor of a million terabytes": changed(empty_huge_tensor),
    "tensor with negative size": changed(lambda m: m.graph.initializer[0].dims.__setitem__(0, -4)),
    "tensor of an unknown dtype": changed(unknown_dtype),
    "unknown opset": set_opset(9999),
    "opset after the newest": set_opset(onnx.defs.onnx_opset_version() + 1),
    "opset zero": set_opset(0),
    "negative opset": set_opset(-3),
    "unknown opset of ai.onnx.ml": changed(lambda m: m.opset_import.append(helper.make_opsetid("ai.onnx.ml", 999))),
    "two opsets": changed(lambda m: m.opset_import.append(helper.make_opsetid("", 13))),
    "two opsets, spelled differently": changed(lambda m: m.opset_import.append(helper.make_opsetid("ai.onnx", 13))),
    "without opset": changed(lambda m: m.ClearField("opset_import")),
    "only another domain's opset": set_opset(1, "com.microsoft"),
    "IR version of the future": changed(lambda m: m.__setattr__("ir_version", 99)),
    "IR version zero": changed(lambda m: m.__setattr__("ir_version", 0)),
    "nested too deeply": deep,
}


@pytest.mark.parametrize("write", BAD.values(), ids=BAD.keys())
def test_bad_file(write, tmp_path, capsys):
    """Missing file, directory, empty, truncated, text, random bytes, model without graph, cyclic graph, undefined input,
    doubly defined output, unknown opset: one clear line, exit code ≠ 0, no output file, no traceback."""
    path = tmp_path / "model.onnx"
    write(path)
    said = assert_refused(path, tmp_path, capsys)
    assert "model.onnx" in said


SPECIAL: dict[str, Callable[[Path], Path | str]] = {
    "broken link": lambda folder: _link(folder, "nowhere"),
    "link to itself": lambda folder: _link(folder, "link.onnx"),
    "link to a folder": lambda folder: _link(folder, "."),
    "below a file": lambda folder: _below(folder),
    "/dev/null": lambda folder: "/dev/null",
    "name too long": lambda folder: folder / ("m" * 300 + ".onnx"),
    "empty name": lambda folder: "",
    "a dot": lambda folder: ".",
    "the root": lambda folder: "/",
    "name with a line break": lambda folder: folder / "a\nb.onnx",
    "name of unknown bytes": lambda folder: folder / "\udcff\udcfe.onnx",
}


def _link(folder: Path, target: str) -> Path:
    (folder / "link.onnx").symlink_to(target)
    return folder / "link.onnx"


def _below(folder: Path) -> Path:
    (folder / "file").write_text("text")
    return folder / "file" / "model.onnx"


@pytest.mark.parametrize("make", SPECIAL.values(), ids=SPECIAL.keys())
def test_no_file(make, tmp_path, capsys):
    """Missing file, directory: one clear line, exit code ≠ 0, no output file, no traceback."""
    path = make(tmp_path)
    if path == "/dev/null":
        code = main(["apply", path, "-o", str(tmp_path / "out.onnx")])
        assert code == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
        assert listing(tmp_path) == {}
        return
    before = {p.name for p in tmp_path.iterdir()}
    code = main(["apply", str(path), "-o", str(tmp_path / "out.onnx")])
    said = capsys.readouterr()
    assert code == 2
    assert len(said.err.splitlines()) == 1, said.err
    assert "Traceback" not in said.err
    assert {p.name for p in tmp_path.iterdir()} == before


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_no_regular_file(kind, tmp_path, capsys):
    """A pipe or a socket is no model file: refused at once, and not waited for."""
    path = tmp_path / "model.onnx"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        held = socket.socket(socket.AF_UNIX)
        os.chdir(tmp_path)
        held.bind("model.onnx")
        os.chdir(ROOT)
    start = time.monotonic()
    done = command("apply", path, "-o", tmp_path / "out.onnx")
    assert time.monotonic() - start < 30
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert not (tmp_path / "out.onnx").exists()


def test_bad_file_in_a_process(tmp_path):
    """The same in a process of its own: one line on stderr, nothing on stdout, exit code 2."""
    path = tmp_path / "model.onnx"
    BAD["cycle"](path)
    done = command("apply", path, "-o", tmp_path / "out.onnx")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out.onnx").exists()


# -- external data -----------------------------------------------------------------------------------------------


def with_data(
    folder: Path, location: str = "model.bin", *, offset: str = "0", length: str = "64", write: bool = True
) -> Path:
    """The good model whose weight lies in another file."""
    model = good()
    weight = model.graph.initializer[0]
    data = weight.raw_data
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        if value:
            weight.external_data.add(key=key, value=value)
    if write:
        (folder / "model.bin").write_bytes(data)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder / "model.onnx"


EXTERNAL: dict[str, dict[str, object]] = {
    "missing": {"write": False},
    "missing, of another name": {"location": "other.bin"},
    "in a folder that is missing": {"location": "data/model.bin"},
    "too short": {"offset": "4"},
    "too short by far": {"offset": "1000000"},
    "offset near the end of int64": {"offset": str(2**63 - 1)},
    "offset beyond int64": {"offset": str(2**70)},
    "negative offset": {"offset": "-8"},
    "offset is no number": {"offset": "eight"},
    "length is no number": {"length": "sixty-four"},
    "length is too small": {"length": "32"},
    "length is too large": {"length": "128"},
    "negative length": {"length": "-64"},
    "leaves the folder": {"location": "../model.bin"},
    "leaves the folder and comes back": {"location": "sub/../../model.bin"},
    "leaves the folder, absolute": {"location": "/etc/passwd"},
    "leaves the folder, with dots": {"location": "./../../etc/passwd"},
    "leaves the folder, Windows": {"location": "..\\model.bin"},
    "is the folder": {"location": "."},
    "is a folder": {"location": "sub"},
    "has no location": {"location": ""},
    "is a NUL": {"location": "model\0.bin"},
    "is very long": {"location": "m" * 5000},
}


@pytest.mark.parametrize("how", EXTERNAL.values(), ids=EXTERNAL.keys())
def test_bad_external_data(how, tmp_path, capsys):
    """Missing or short external data, external data path that leaves the model's folder: one clear line."""
    folder = tmp_path / "inside"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "model.bin").write_bytes(bytes(64))
    said = assert_refused(with_data(folder, **how), tmp_path, capsys)
    assert "external data" in said


@pytest.mark.parametrize("target", ["outside.bin", "/etc/passwd"])
def test_external_data_through_a_link(target, tmp_path, capsys):
    """External data path that leaves the model's folder by a link: one clear line."""
    folder = tmp_path / "inside"
    folder.mkdir()
    (tmp_path / "outside.bin").write_bytes(bytes(64))
    path = with_data(folder, write=False)
    (folder / "model.bin").symlink_to(target if target.startswith("/") else tmp_path / target)
    assert "external data" in assert_refused(path, tmp_path, capsys)


def outside(tensor: onnx.TensorProto) -> onnx.TensorProto:
    """The same tensor, its data in a file outside the model's folder."""
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "../model.bin"), ("offset", "0"), ("length", "16")):
        tensor.external_data.add(key=key, value=value)
    return tensor


def four(name: str) -> onnx.TensorProto:
    return onnx.numpy_helper.from_array(np.ones(4, np.float32), name)


def in_a_constant(model: onnx.ModelProto) -> None:
    model.graph.node.append(node("Constant", [], ["k"], value=outside(four("k"))))


def in_a_list(model: onnx.ModelProto) -> None:
    model.graph.node.append(helper.make_node("Op", ["x"], ["k"], domain="own", tensors=[outside(four("k"))]))


def in_a_branch(model: onnx.ModelProto) -> None:
    cycle_through_a_body(model)
    branch = model.graph.node[-1].attribute[0].g
    branch.node[0].input[0] = "k"
    branch.initializer.append(outside(four("k")))


def in_a_function(model: onnx.ModelProto) -> None:
    undefined_in_a_function(model)
    model.functions[0].node[0].input[0] = "a"
    model.functions[0].node.append(node("Constant", [], ["k"], value=outside(four("k"))))


def sparse(values: onnx.TensorProto) -> onnx.SparseTensorProto:
    indices = onnx.numpy_helper.from_array(np.arange(4), "i")
    return helper.make_sparse_tensor(values, indices, [8])


def in_a_sparse_initializer(model: onnx.ModelProto) -> None:
    model.graph.sparse_initializer.append(sparse(four("k")))
    outside(model.graph.sparse_initializer[0].values)


def in_sparse_indices(model: onnx.ModelProto) -> None:
    model.graph.sparse_initializer.append(sparse(four("k")))
    outside(model.graph.sparse_initializer[0].indices)


def in_a_sparse_constant(model: onnx.ModelProto) -> None:
    model.graph.node.append(node("Constant", [], ["k"], sparse_value=sparse(four("k"))))
    outside(model.graph.node[-1].attribute[0].sparse_tensor.values)


def in_training(model: onnx.ModelProto) -> None:
    model.training_info.add().algorithm.initializer.append(outside(four("k")))


@pytest.mark.parametrize(
    "hide",
    [
        in_a_constant,
        in_a_list,
        in_a_branch,
        in_a_function,
        in_a_sparse_initializer,
        in_sparse_indices,
        in_a_sparse_constant,
        in_training,
    ],
)
def test_external_data_outside_wherever_a_tensor_is(hide, tmp_path, capsys):
    """External data path that leaves the model's folder, of any tensor of the file, also one that is not looked at."""
    folder = tmp_path / "inside"
    folder.mkdir()
    (tmp_path / "model.bin").write_bytes(bytes(64))
    path = folder / "model.onnx"
    changed(hide)(path)
    assert "leaves the model's folder" in assert_refused(path, tmp_path, capsys)


@pytest.mark.parametrize("links", [1, 3])
def test_external_data_in_a_folder_that_is_a_link(links, tmp_path, capsys):
    """External data path that leaves the model's folder by a folder on the way, through several links."""
    folder, last = tmp_path / "inside", tmp_path / "outside"
    folder.mkdir()
    last.mkdir()
    (last / "model.bin").write_bytes(bytes(64))
    for i in range(links):
        (folder / f"sub{i}").symlink_to(last)
        last = folder / f"sub{i}"
    path = with_data(folder, f"sub{links - 1}/model.bin", write=False)
    assert "leaves the model's folder" in assert_refused(path, tmp_path, capsys)


def test_a_name_that_is_no_text(tmp_path, capsys):
    """Bytes that are no UTF-8 where a name stands: one clear line."""
    path = tmp_path / "model.onnx"
    path.write_bytes(good().SerializeToString().replace(b"Erf", b"E\xe1f"))
    said = assert_refused(path, tmp_path, capsys)
    assert "model" in said


def test_good_external_data(tmp_path, capsys):
    """External data that are there: read, and the result stands on its own."""
    path = with_data(tmp_path)
    assert main(["apply", str(path), "-o", str(tmp_path / "out.onnx"), "-q"]) == 0
    capsys.readouterr()
    x = np.random.default_rng(0).standard_normal((2, 4)).astype("f")
    np.testing.assert_allclose(
        session(str(tmp_path / "out.onnx")).run(None, {"x": x})[0], run(good(), [{"x": x}])[0][0], rtol=1e-5
    )


def test_external_data_cut_while_it_runs(tmp_path):
    """External data that become shorter behind our back: one clear line, no output file."""
    path = with_data(tmp_path)
    model = io.load(path)
    (tmp_path / "model.bin").write_bytes(b"short")
    with pytest.raises(onnxrewrite.OnnxRewriteError) as caught:
        onnxrewrite.apply(model, check="off").save(tmp_path / "out.onnx")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out.onnx").exists()


# -- writing -----------------------------------------------------------------------------------------------------


def written(folder: Path, name: str = "model.onnx") -> Path:
    (folder / name).write_bytes(good().SerializeToString())
    return folder / name


@pytest.mark.parametrize("spelled", ["same", "relative", "link", "hard link", "other case of dots"])
def test_output_is_input(spelled, tmp_path, capsys, monkeypatch):
    """Output path = input path: the result takes its place, whole."""
    path = written(tmp_path)
    output = {
        "same": path,
        "relative": Path("model.onnx"),
        "link": tmp_path / "link.onnx",
        "hard link": tmp_path / "hard.onnx",
        "other case of dots": tmp_path / "." / ".." / tmp_path.name / "model.onnx",
    }[spelled]
    if spelled == "link":
        output.symlink_to(path)
    if spelled == "hard link":
        os.link(path, output)
    monkeypatch.chdir(tmp_path)
    assert main(["apply", str(path), "-o", str(output), "-q"]) == 0
    capsys.readouterr()
    assert operators(onnx.load(output))["Gelu"] == 1
    onnx.checker.check_model(onnx.load(path))
    assert not [p for p in tmp_path.iterdir() if p.name.endswith(".onnxrewrite-tmp")]


@pytest.mark.parametrize("external_data", [False, True])
def test_output_is_input_that_is_bad(external_data, tmp_path, capsys):
    """Output path = input path, and the input cannot be read: it stays as it was."""
    path = tmp_path / "model.onnx"
    BAD["cycle"](path)
    if external_data:
        path = with_data(tmp_path, offset="4")
    before = listing(tmp_path)
    assert main(["apply", str(path), "-o", str(path)]) == 2
    capsys.readouterr()
    assert listing(tmp_path) == before


def test_output_is_input_with_external_data(tmp_path, capsys, monkeypatch):
    """Output path = input path, weights in another file: both are replaced, whole."""
    monkeypatch.setattr(external, "EXTERNAL_THRESHOLD", 16)
    monkeypatch.setattr(external, "INLINE_LIMIT", 16)
    path = with_data(tmp_path)
    x = np.random.default_rng(0).standard_normal((2, 4)).astype("f")
    expected = session(str(path)).run(None, {"x": x})[0]
    for _ in range(3):
        assert main(["apply", str(path), "-o", str(path), "-q"]) == 0
        capsys.readouterr()
        np.testing.assert_allclose(session(str(path)).run(None, {"x": x})[0], expected, rtol=1e-5)
    assert len(list(tmp_path.iterdir())) <= 4


UNWRITABLE: dict[str, Callable[[Path], Path | str]] = {
    "no such folder": lambda folder: folder / "no" / "out.onnx",
    "a folder": lambda folder: folder,
    "a folder, with a slash": lambda folder: f"{folder}/",
    "below a file": lambda folder: folder / "model.onnx" / "out.onnx",
    "in /proc": lambda folder: "/proc/out.onnx",
    "in /sys": lambda folder: "/sys/kernel/out.onnx",
    "/dev/full": lambda folder: "/dev/full",
    "the root": lambda folder: "/",
    "empty": lambda folder: "",
    "a minus": lambda folder: "-",
    "name too long": lambda folder: folder / ("o" * 300),
    "a link to nowhere": lambda folder: _dangling(folder),
}


def _dangling(folder: Path) -> Path:
    (folder / "out.onnx").symlink_to(folder / "no" / "such" / "folder")
    return folder / "out.onnx"


@pytest.mark.parametrize("make", UNWRITABLE.values(), ids=UNWRITABLE.keys())
def test_unwritable_output(make, tmp_path, capsys, monkeypatch):
    """Unwritable output: input intact, no half file, one clear line."""
    path = written(tmp_path)
    output = make(tmp_path)
    before = listing(tmp_path)
    monkeypatch.chdir(tmp_path)
    code = main(["apply", str(path), "-o", str(output)])
    said = capsys.readouterr()
    if make is UNWRITABLE["a link to nowhere"] and code == 0:  # replaced by the file: whole, too
        assert operators(onnx.load(output))["Gelu"] == 1
        return
    assert code == 2, said
    assert len(said.err.splitlines()) == 1, said.err
    assert listing(tmp_path) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize("what", ["folder", "file"])
def test_write_protected(what, tmp_path, capsys):
    """Unwritable output, by permission: input intact, no half file."""
    path = written(tmp_path)
    folder = tmp_path / "locked"
    folder.mkdir()
    (folder / "out.onnx").write_text("old")
    os.chmod(folder if what == "folder" else folder / "out.onnx", 0o500)
    try:
        assert main(["apply", str(path), "-o", str(folder / "out.onnx")]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
        assert (folder / "out.onnx").read_text() == "old"
    finally:
        os.chmod(folder, 0o700)


def _fail(number: int) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS])
@pytest.mark.parametrize("where", ["fsync", "replace"])
@pytest.mark.parametrize("external_data", [False, True], ids=["alone", "with data"])
@pytest.mark.parametrize("over_input", [False, True], ids=["elsewhere", "over the input"])
def test_disk_full(number, where, external_data, over_input, tmp_path, capsys, monkeypatch):
    """Disk full: input intact, no half file, one clear line."""
    path = with_data(tmp_path) if external_data else written(tmp_path)
    if external_data:
        monkeypatch.setattr(external, "EXTERNAL_THRESHOLD", 16)
        monkeypatch.setattr(external, "INLINE_LIMIT", 16)
    before = listing(tmp_path)
    monkeypatch.setattr(os, where, _fail(number))
    code = main(["apply", str(path), "-o", str(path if over_input else tmp_path / "out.onnx")])
    monkeypatch.undo()
    said = capsys.readouterr()
    assert code == 2, said
    assert len(said.err.splitlines()) == 1
    assert listing(tmp_path) == before


def test_disk_full_between_the_two_files(tmp_path, capsys, monkeypatch):
    """Disk full when the data file has its name and the model has not: both are what they were."""
    path = with_data(tmp_path)
    monkeypatch.setattr(external, "EXTERNAL_THRESHOLD", 16)
    monkeypatch.setattr(external, "INLINE_LIMIT", 16)
    assert main(["apply", str(path), "-o", str(path), "-q"]) == 0
    before = listing(tmp_path)
    replace, done = os.replace, []

    def second_fails(*arguments: object) -> None:
        done.append(arguments)
        if len(done) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(*arguments)

    monkeypatch.setattr(os, "replace", second_fails)
    assert main(["apply", str(path), "-o", str(path)]) == 2
    capsys.readouterr()
    assert len(done) >= 2
    assert listing(tmp_path) == before


@pytest.mark.slow
def test_file_size_limit(tmp_path):
    """Disk full, by the system's own limit in a process of its own: input intact, no half file."""
    model = proto(f"float[n,256] x; w = float[256,256] ~  h = MatMul(x, w)  {gelu('h', 'y')}")
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    before = listing(tmp_path)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))

    for output in (tmp_path / "out.onnx", path):
        done = command("apply", path, "-o", output, "--check", "off", preexec_fn=limit)
        assert done.returncode == 2, done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert listing(tmp_path) == before


SLOW = """
    import os, sys, time
    from onnxrewrite.rules import Rule, Stage, Var, op

    def tell():
        print("working", file=sys.stderr, flush=True)
        time.sleep(60)

    x = Var("x")

    def rewrite(m, build):
        if {at!r} == "rewriting":
            tell()
        return None

    RULES = (Rule(name="slow", stage=Stage.CANONICALIZE, pattern=op.MatMul(x, Var("w")), rewrite=rewrite),)
    if {at!r} == "writing":
        os.fsync = lambda *_: tell()
    if {at!r} == "renaming":
        os.replace = lambda *_: tell()
    if {at!r} == "checking":
        import onnxrewrite.checks.model
        onnxrewrite.checks.model.Baseline.check = lambda *_: tell()
"""


@pytest.mark.parametrize(
    "over_input",
    [pytest.param(False, id="elsewhere", marks=pytest.mark.slow), pytest.param(True, id="over the input")],
)
@pytest.mark.parametrize(
    ("number", "at"),
    [
        (signal.SIGINT, "rewriting"),
        (signal.SIGINT, "checking"),
        (signal.SIGINT, "writing"),
        (signal.SIGTERM, "writing"),
        (signal.SIGINT, "renaming"),
        (signal.SIGKILL, "writing"),
    ],
)
def test_interrupted(number, at, over_input, tmp_path):
    """Interrupted: input intact, no half file."""
    path = written(tmp_path)
    rules = tmp_path / "slow.py"
    rules.write_text(textwrap.dedent(SLOW.format(at=at)))
    output = path if over_input else tmp_path / "out.onnx"
    before = listing(tmp_path)
    line = [sys.executable, "-B", "-m", "onnxrewrite", "apply", str(path), "-o", str(output), "--rules", str(rules)]
    with subprocess.Popen(line, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "working\n"
        process.send_signal(number)
        _, said = process.communicate(timeout=30)
    after = listing(tmp_path)
    if number == signal.SIGKILL:  # nobody can tidy up, but no file that has a name is half
        after = {name: data for name, data in after.items() if not name.endswith(".onnxrewrite-tmp")}
    else:
        assert process.returncode == 128 + number
        assert len(said.splitlines()) == 1, said
        assert "Traceback" not in said
    assert after == before


# -- 2 GB and more -----------------------------------------------------------------------------------------------

GIGABYTE = 2**30


def large_model(folder: Path, *, weights: int = 3) -> Path:
    """GELU behind products with weights of 1 GB each, which lie in a file full of holes."""
    size = 16384
    names = ["x", *(f"h{i}" for i in range(weights))]
    statements = [f"{b} = MatMul({a}, w{i})" for i, (a, b) in enumerate(itertools.pairwise(names))]
    inputs = "  ".join(f"float[{size},{size}] w{i};" for i in range(weights))
    model = proto(f"float[n,{size}] x; {inputs} {'  '.join(statements)}  {gelu(names[-1], 'y')}")
    del model.graph.input[1:]
    for i in range(weights):
        tensor = TensorProto(
            name=f"w{i}", data_type=TensorProto.FLOAT, dims=[size, size], data_location=TensorProto.EXTERNAL
        )
        for key, value in (("location", "model.bin"), ("offset", i * GIGABYTE), ("length", GIGABYTE)):
            tensor.external_data.add(key=key, value=str(value))
        model.graph.initializer.append(tensor)
    with open(folder / "model.bin", "wb") as file:
        file.truncate(weights * GIGABYTE)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder / "model.onnx"


MEASURE = """
    import re, resource, sys
    from pathlib import Path
    from onnxrewrite.cli import main
    code = main(sys.argv[1:])
    status = Path("/proc/self/status")  # ru_maxrss begins with that of the process that started this one
    known = re.search(r"VmHWM:\\s+(\\d+) kB", status.read_text()) if status.exists() else None
    peak = int(known[1]) if known else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print("peak", peak * 1024, file=sys.stderr)
    sys.exit(code)
"""


@pytest.mark.slow
def test_large_model_stays_on_disk(tmp_path):
    """2 GB and more: memory stays far below the weights."""
    path = large_model(tmp_path)
    start = time.monotonic()
    line = [sys.executable, "-c", textwrap.dedent(MEASURE), "apply", str(path), "--check", "off", "--dry-run", "-q"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    peak = int(done.stderr.split("peak")[1])
    assert peak < GIGABYTE / 2, f"{peak / GIGABYTE:.2f} GB"
    assert time.monotonic() - start < 60


def test_external_data_is_chosen_before_work_starts(tmp_path):
    """2 GB and more: external data is chosen by nominal sizes; nothing is read."""
    path = large_model(tmp_path)
    model = io.load(path)
    assert io.needs_external_data(model)
    with pytest.raises(onnxrewrite.OnnxRewriteError, match="external data"):
        io.to_proto(model)
    assert operators(io.load(path).graph and onnx.load(path, load_external_data=False))["Erf"] == 1


def test_a_large_message_is_refused_in_one_line(tmp_path, capsys, monkeypatch):
    """A file beyond what protobuf reads: one line that says what to do."""
    monkeypatch.setattr(external, "PROTOBUF_LIMIT", 100)
    said = assert_refused(written(tmp_path), tmp_path, capsys)
    assert "external data" in said


@pytest.mark.parametrize("level", ["full", "off"])
def test_large_result_gets_external_data(level, tmp_path, capsys, monkeypatch):
    """2 GB and more (here: less): the result's weights go to a file beside it, and it is checked and right."""
    path = written(tmp_path)
    monkeypatch.setattr(external, "EXTERNAL_THRESHOLD", 16)
    monkeypatch.setattr(external, "INLINE_LIMIT", 16)
    output = tmp_path / "out.onnx"
    assert main(["apply", str(path), "-o", str(output), "-q", "--check", level]) == 0
    capsys.readouterr()
    assert {p.name for p in tmp_path.iterdir()} == {
        "model.onnx",
        "out.onnx",
        "out.onnx.data",
        "out.onnx.certificate.json",
    }
    bare = onnx.load(output, load_external_data=False)
    assert [t.data_location for t in bare.graph.initializer] == [TensorProto.EXTERNAL]
    x = np.random.default_rng(0).standard_normal((2, 4)).astype("f")
    np.testing.assert_allclose(session(str(output)).run(None, {"x": x})[0], run(good(), [{"x": x}])[0][0], rtol=1e-5)


def test_new_weights_of_a_large_model(tmp_path, capsys, monkeypatch):
    """2 GB and more (here: less): weights that a rule made are written with the others."""
    monkeypatch.setattr(external, "EXTERNAL_THRESHOLD", 16)
    monkeypatch.setattr(external, "INLINE_LIMIT", 16)
    model = proto(
        "float[n,4] x; w = float[4,4] ~  t = Transpose(w)  h = MatMul(x, t)  y = Mul(h, {1.0, 2.0, 3.0, 4.0})"
    )
    path, output = tmp_path / "model.onnx", tmp_path / "out.onnx"
    path.write_bytes(model.SerializeToString())
    assert main(["apply", str(path), "-o", str(output), "-q"]) == 0
    capsys.readouterr()
    x = np.random.default_rng(0).standard_normal((2, 4)).astype("f")
    np.testing.assert_allclose(session(str(output)).run(None, {"x": x})[0], run(model, [{"x": x}])[0][0], rtol=1e-5)
