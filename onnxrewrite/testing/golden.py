"""Golden models: a model, and what the rules make of it.

``expected.toml`` has two parts.  A person writes the first: what the model is, and what its architecture holds.  The
second, below a marker, is what ``apply`` made of it: rules and how often, operators afterwards, the error.  A test
compares it; ``pytest --update-golden`` renews it.
"""

from __future__ import annotations

import math
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from onnxrewrite.compiler.result import Result
from onnxrewrite.errors import UsageError
from onnxrewrite.ir.graph import scopes
from onnxrewrite.system.plain import Json, Plain

_MARKER = "# What apply makes of it.  Renewed by `pytest --update-golden`.\n"

_HEADROOM = 4
"""The tolerance is so many times the error that was measured, for other processors round differently."""


@dataclass(frozen=True)
class Golden:
    """One folder of golden models.

    Attributes:
        folder: Holds ``model.onnx`` and ``expected.toml``.
        facts: Facts that a person wrote: opset, dims, architecture.
        expected: The expected result of ``apply``; empty for a new model.
    """

    folder: Path
    facts: Plain
    expected: Plain

    @property
    def model(self) -> Path:
        """The model's file."""
        return self.folder / "model.onnx"

    @property
    def architecture(self) -> dict[str, int]:
        """The number of parts of the network by kind: attention blocks, activations, BatchNormalizations."""
        found: dict[str, int] = self.facts.get("architecture", {})
        return found

    def renew(self, result: Result) -> None:
        """Write what came out as the new expectation."""
        path = self.folder / "expected.toml"
        written = path.read_text(encoding="utf-8").partition(_MARKER)[0].rstrip()
        path.write_text(f"{written}\n\n{_MARKER}{_toml(observed(result))}", encoding="utf-8")


def load(folder: Path) -> Golden:
    """Read one folder; UsageError if a file of it is missing or broken."""
    try:
        text = (folder / "expected.toml").read_text(encoding="utf-8")
        facts = tomllib.loads(text)
    except (OSError, ValueError) as error:  # no TOML, or no UTF-8
        raise UsageError(f"golden model {folder}: {error}") from error
    return Golden(folder, facts, facts.pop("expected", {}))


def find(root: Path) -> list[Golden]:
    """All golden models below ``root``, by name."""
    return [load(path.parent) for path in sorted(root.glob("*/expected.toml"))]


def observed(result: Result) -> dict[str, Json]:
    """The data to compare: a tolerance for the largest error, applications by rule, operators afterwards."""
    operators = Counter(
        f"{n.domain}.{n.op_type}" if n.domain else n.op_type
        for scope in scopes(result.model)
        for n in scope
        if n.op_type != "Constant"
    )
    return {
        "tolerance": _rounded_up(_HEADROOM * error(result)),
        "rules": dict(sorted(result.trace.counts().items())),
        "operators": dict(sorted(operators.items())),
    }


def error(result: Result) -> float:
    """The largest error of any output against the reference; zero where all outputs are equal to the bit."""
    checked = result.checks.model
    if checked is None or checked.skipped:
        return math.inf
    return max((o.comparison.error_rewritten for o in checked.outputs), default=0.0)


def _rounded_up(number: float) -> float:
    """One significant digit, upwards."""
    if number == 0 or not math.isfinite(number):
        return number
    unit = 10.0 ** math.floor(math.log10(number))
    return float(f"{math.ceil(number / unit - 1e-9) * unit:.0e}")


def _toml(expected: Plain) -> str:
    lines = ["[expected]", f"tolerance = {expected['tolerance']:.0e}"]
    for table in ("rules", "operators"):
        lines += ["", f"[expected.{table}]"]
        lines += [f'"{name}" = {count}' for name, count in expected[table].items()]
    return "\n".join(lines) + "\n"
