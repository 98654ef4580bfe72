"""A folder for a bug report: a small model, its inputs, a program, and ten lines."""

from __future__ import annotations

import os
import platform
from collections import Counter
from pathlib import Path

import onnx

from onnxrewrite.errors import ModelError
from onnxrewrite.suite.canary.version_comparison import Canary, Shown, Version
from onnxrewrite.system import temporary
from onnxrewrite.system.arrays import npz_bytes
from onnxrewrite.system.atomic import write_whole

_PROGRAM = '''"""Needs onnxruntime=={version} and numpy."""

import json
from pathlib import Path

import numpy as np
import onnxruntime as ort

here = Path(__file__).parent
inputs = dict(np.load(here / "inputs.npz"))
levels = ort.GraphOptimizationLevel
print("onnxruntime", ort.__version__)
for name, level, without in (
    ("no optimization", levels.ORT_DISABLE_ALL, []),
    ("all optimizations", levels.ORT_ENABLE_ALL, []),
    ("all but the culprit", levels.ORT_ENABLE_ALL, {without!r}),
):
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(
            str(here / "model.onnx"), options, providers=["CPUExecutionProvider"], disabled_optimizers=without or None
        )
        fed = {{each.name: inputs[each.name] for each in session.get_inputs()}}
        print(f"{{name}}:", [np.asarray(value).ravel()[:4].tolist() for value in session.run(None, fed)])
    except Exception as error:
        print(f"{{name}}: {{error}}")
'''


def report_lines(result: Canary, version: Version, shown: Shown) -> list[str]:
    """The report, ten lines at most."""
    culprit = version.culprit
    others = [
        f"{v.name} {'has it, too' if v.fault else 'does not have it'}" for v in result.versions if v is not version
    ]
    operators = ", ".join(f"{op} × {n}" for op, n in Counter(n.op_type for n in shown.model.graph.node).items())
    what = "does not run" if version.failure else "has other outputs"
    return [
        f"# ONNX Runtime {version.name}: a valid model {what} with graph optimizations",
        "",
        f"- With all optimizations: {version.fault}",
        "- With `ORT_DISABLE_ALL` it runs and is right.",
        f"- Optimizers, by `disabled_optimizers`: {culprit if culprit is not None else 'not known'}",
        f"- Other versions: {'; '.join(others) or 'not tried'}",
        f"- Small model: {len(shown.model.graph.node)} nodes ({operators}), opset {_opset(shown.model)}",
        f"- CPUExecutionProvider, {platform.system()} {platform.machine()}",
        "",
        "`python reproduce.py` shows all three.",
    ]


def write_report(folder: Path, result: Canary, shown: Shown) -> list[str]:
    """Write it; the lines.

    Raises:
        ModelError: It cannot be written.
    """
    version = next(v for v in result.versions if v.name == shown.version)
    lines = report_lines(result, version, shown)
    without = list(version.culprit.optimizers) if version.culprit is not None else []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / "model.onnx", _typed(shown.model).SerializeToString())
        _write(folder / "inputs.npz", npz_bytes(shown.feeds))
    except OSError as error:
        raise ModelError(f"-o {folder}: cannot be written: {error.strerror or error}") from None
    write_whole(folder / "reproduce.py", _PROGRAM.format(version=version.name.split()[0], without=without), "-o")
    write_whole(folder / "report.md", "\n".join(lines) + "\n", "-o")
    return lines


def _write(path: Path, contents: bytes) -> None:
    with temporary.beside(path) as made:
        made.write_bytes(contents)
        os.replace(made, path)


def _typed(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the types of its outputs, which validity asks for."""
    try:
        return onnx.shape_inference.infer_shapes(model)
    except Exception:  # the fault of a model need not be ONNX Runtime's alone
        return model


def _opset(model: onnx.ModelProto) -> int:
    return next((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), 0)
