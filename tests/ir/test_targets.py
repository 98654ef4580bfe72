"""Targets: ours, and those that a package tells of by an entry point."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
import pytest

from onnxrewrite import apply
from onnxrewrite.cli import main
from onnxrewrite.errors import UsageError
from onnxrewrite.ir import target as targets
from onnxrewrite.ir.target import target

PACKAGE = '''"""A device that runs every other operator of the standard."""

from onnxrewrite import Target
from onnxrewrite.rules import TRAITS

HAS = frozenset(sorted(TRAITS)[::2]) - {"Gelu"}


class Npu(Target):
    def refuses(self, domain, op_type, version, dtypes, *, indirect=False):
        if domain or op_type not in HAS:
            return f"the NPU has no {op_type}"
        return super().refuses(domain, op_type, version, dtypes, indirect=indirect)

    def takes(self, rule):
        return rule != "identity"


NPU = Npu("npu", "NpuExecutionProvider", 20)
'''

GELU = """<ir_version: 8, opset_import: ["": 20]>
g (float[n, 8] x) => (float[n, 8] y) {
  c = Constant<value_float = 1.41421356>()  one = Constant<value_float = 1.0>()  half = Constant<value_float = 0.5>()
  d = Div(x, c)  e = Erf(d)  a = Add(e, one)  m = Mul(x, a)  h = Mul(m, half)  i = Identity(h)  y = Relu(i)
}"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a package that is installed, which is the current one."""
    (tmp_path / "npu.py").write_text(PACKAGE)
    (tmp_path / "npu-1.0.dist-info").mkdir()
    (tmp_path / "npu-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: npu\nVersion: 1.0\n")
    (tmp_path / "npu-1.0.dist-info" / "entry_points.txt").write_text("[onnxrewrite.targets]\nnpu = npu:NPU\n")
    onnx.save(onnx.parser.parse_model(GELU), str(tmp_path / "model.onnx"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    yield tmp_path
    sys.modules.pop("npu", None)


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """A command's exit status, and what it prints."""

    def made(*line: str) -> tuple[int, str]:
        code = main(line)
        done = capsys.readouterr()
        return code, " ".join((done.out + done.err).split())

    return made


def test_a_target_of_a_package_is_one_like_any_other(installed: Path, run: Run) -> None:
    code, said = run("apply", "model.onnx", "-o", "out.onnx", "--target", "npu", "-v")
    assert code == 0, said
    assert "for npu, opset 20" in said
    assert "results are checked on the CPU, not on NpuExecutionProvider, which this build" in said
    made = [n.op_type for n in onnx.load(installed / "out.onnx").graph.node if n.op_type != "Constant"]
    assert "Erf" in made, "the operator that stands for it is refused"
    assert "Identity" in made, "the rule that removes it is not taken"

    code, said = run("explain", "model.onnx", "gelu-erf", "--target", "npu")
    assert code == 0, said
    assert "the NPU has no Gelu" in said

    code, said = run("rules", "--target", "npu")
    assert code == 0, said
    assert "gelu-erf" in said
    assert " identity canonicalize" not in said

    code, said = run("doctor")
    assert code == 0, said
    assert "not run here, checked on the CPU: " in said
    assert "npu" in said


@pytest.mark.parametrize(
    ("package", "told"),
    [
        ("NPU = 'npu'\n", "target npu of npu:NPU cannot be used: it is a str, not a Target"),
        ("from onnxrewrite import Target\nNPU = Target('tpu', None)\n", "cannot be used: it is called 'tpu'"),
        (
            "from onnxrewrite import Target\nNPU = Target('onnx', None)\n",
            "cannot be used: it is called 'onnx', as another",
        ),
        ("1 / 0\n", "cannot be used: division by zero"),
    ],
)
def test_a_package_that_tells_of_it_wrongly_takes_nobody_else_down(
    installed: Path, run: Run, package: str, told: str
) -> None:
    (installed / "npu.py").write_text(package)
    code, said = run("apply", "model.onnx", "--target", "npu")
    assert code == 2
    assert told in said
    assert "Traceback" not in said
    code, said = run("apply", "model.onnx", "--target", "onnx", "--lower", "fused")
    assert code == 0, said


@pytest.mark.parametrize("name", ["onnxruntime-cuda", "tensorrt", "openvino", "qnn", "coreml", "onnxruntime-webgpu"])
def test_what_is_not_here_is_emitted_and_checked_all_the_same(name: str) -> None:
    known = target(name)
    if known.provider is not None:
        pytest.skip(f"{known.runs_on} is here")
    made = apply(onnx.parser.parse_model(GELU), target=name)
    assert [n.op_type for n in made.to_proto().graph.node if n.op_type != "Constant"] == ["Gelu", "Relu"]
    assert made.checks.model is not None
    assert made.checks.model.ok
    assert f"checked on the CPU, not on {known.runs_on}, which this build" in " ".join(made.notes)
    assert all(not n.domain for n in made.to_proto().graph.node)


def test_a_provider_that_compiles_leaves_to_the_cpu_what_it_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "providers", lambda: ("TensorrtExecutionProvider", "CPUExecutionProvider"))
    known = target("tensorrt")
    assert known.provider == "TensorrtExecutionProvider"
    assert known.refuses("", "Gelu", 20, {}) is None
    assert known.refuses("com.microsoft", "BiasGelu", 1, {}) == "target tensorrt has standard operators only"


def test_a_target_that_nobody_knows() -> None:
    with pytest.raises(UsageError, match=r"unknown target 'abacus'; known targets: onnxruntime-cpu, .*, onnx$"):
        target("abacus")


def test_packages_are_looked_for_only_where_the_target_is_none_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(targets, "entry_points", lambda group: asked.append(group) or [])
    assert target("tensorrt", portable=True).portable
    assert asked == []
    with pytest.raises(UsageError):
        target("abacus")
    assert asked == [targets.GROUP]
