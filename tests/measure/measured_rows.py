"""Rows, machines and keys as tests make them up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from onnxrewrite.measure.database import exchange, signing
from onnxrewrite.measure.database.machine_class import Facts, Fingerprint, Host, MachineClass
from onnxrewrite.measure.database.rows import Figures, Question, Row, row_of
from onnxrewrite.measure.timing import Interval
from onnxrewrite.runtime.settings import Setting

FACTS = Facts("x86_64", ("avx2", "fma"), {"L1d": 32768, "L2": 2**20}, 2)
FAST = Fingerprint(6e10, 1.4e10, 2e-7)
CLASS = MachineClass(FACTS, FAST)
OTHER = MachineClass(FACTS, Fingerprint(6e10, 1.4e10, 5e-7))
HERE, THERE = Host(FACTS, "some processor", "here"), Host(FACTS, "some processor", "there")


def question(name: str = "a", **changes: object) -> Question:
    return replace(Question("rewrite", f"region {name}", ("float32[8]",), Setting(threads=1)), **changes)  # type: ignore[arg-type]


def figures(median: float = 0.5) -> Figures:
    """Ratios and sides that go together."""
    before, after = (1.0, 1.0, 1.0, 1.0, 1.0), (0.95, 0.99, 1.0, 1.01, 1.05)
    seconds = {"before": before, "after": tuple(median * q for q in after)}
    return Figures(seconds, {"after/before": Interval(median, 0.99 * median, 1.01 * median)})  # type: ignore[arg-type]


def row(name: str = "a", median: float = 0.5, machine_class: MachineClass = CLASS) -> Row:
    return row_of(question(name), figures(median), machine_class, "there")


def key_in(folder: Path, name: str = "key") -> Path:
    signing.generate(folder / name)
    return folder / name


def file_of(path: Path, key: Path, *rows: Row) -> Path:
    """A file of rows, signed."""
    private = signing.private_key(key)
    exchange.write(path, [exchange.signed(each, private) for each in rows], "test")
    return path


def public(key: Path) -> Path:
    return key.with_name(f"{key.name}.pub")
