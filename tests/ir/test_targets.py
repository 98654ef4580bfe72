"""Targets: ours, and those that a package tells of by an entry point."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from onnxrewrite import apply
from onnxrewrite.errors import UsageError
from onnxrewrite.ir import target as targets
from onnxrewrite.ir.target import target

ROOT = Path(__file__).resolve().parents[2]

PACKAGE = '''"""A device that runs every other operator of the standard."""

from onnxrewrite import TRAITS, Target

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
def installed(tmp_path: Path) -> Path:
    """A folder with an installed package, as ``sys.path`` may hold."""
    (tmp_path / "npu.py").write_text(PACKAGE)
    (tmp_path / "npu-1.0.dist-info").mkdir()
    (tmp_path / "npu-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: npu\nVersion: 1.0\n")
    (tmp_path / "npu-1.0.dist-info" / "entry_points.txt").write_text("[onnxrewrite.targets]\nnpu = npu:NPU\n")
    onnx.save(onnx.parser.parse_model(GELU), str(tmp_path / "model.onnx"))
    return tmp_path


def run(folder: Path, *line: str) -> tuple[int, str]:
    """What a command prints where that package is installed."""
    paths = os.pathsep.join(map(str, (folder, ROOT, ROOT / "patterns")))
    command = [sys.executable, "-m", "onnxrewrite", *line]
    environment = {**os.environ, "PYTHONPATH": paths, "COLUMNS": "160"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def test_a_target_of_a_package_is_one_like_any_other(installed: Path) -> None:
    code, said = run(installed, "apply", "model.onnx", "-o", "out.onnx", "--target", "npu", "-v")
    assert code == 0, said
    assert "for npu, opset 20" in said
    assert "results are checked on the CPU, not on NpuExecutionProvider, which this build" in said
    made = [n.op_type for n in onnx.load(installed / "out.onnx").graph.node if n.op_type != "Constant"]
    assert "Erf" in made, "the operator that stands for it is refused"
    assert "Identity" in made, "the rule that removes it is not taken"

    code, said = run(installed, "explain", "model.onnx", "gelu-erf", "--target", "npu")
    assert code == 0, said
    assert "the NPU has no Gelu" in said

    code, said = run(installed, "rules", "--target", "npu")
    assert code == 0, said
    assert "gelu-erf" in said
    assert " identity canonicalize" not in said

    code, said = run(installed, "doctor")
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
def test_a_package_that_tells_of_it_wrongly_takes_nobody_else_down(installed: Path, package: str, told: str) -> None:
    (installed / "npu.py").write_text(package)
    code, said = run(installed, "apply", "model.onnx", "--target", "npu")
    assert code == 2
    assert told in said
    assert "Traceback" not in said
    code, said = run(installed, "apply", "model.onnx", "--target", "onnx", "--lower", "fused")
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
