"""Rewriting where there is a proof, and nowhere else; the proofs stand in the certificate, and are replayed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import onnxrewrite as rw
from onnxrewrite import io
from onnxrewrite.certificate.record import path_for, read, signed
from onnxrewrite.certificate.repetition import Original
from onnxrewrite.certificate.writing import save
from onnxrewrite.errors import CheckError, UsageError
from onnxrewrite.ir import text
from onnxrewrite.rules import CANONICALIZE, Rule, Var, op

pytest.importorskip("z3")

GRAPH = """
float[n,3,4] x
t = Transpose(x, perm=[0, 2, 1])
u = Transpose(t, perm=[0, 2, 1])
n = Neg(u)
a = Softplus(u)
b = Softplus(n)
s = Sub(a, b)
y = Tanh(s)
"""

x = Var("x")
ODD_PART = Rule("odd-part", CANONICALIZE, op.Sub(op.Softplus(x), op.Softplus(op.Neg(x))), lambda m, build: m[x])
"""It is right, and a law of Softplus that the prover does not know."""

SETTINGS = {"rules": [ODD_PART], "only": ["transpose-transpose", "odd-part"], "lower": "fused"}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    io.save(text.parse(GRAPH, opset=17), path)
    return path


def test_what_is_not_proved_stays(source: Path) -> None:
    result = rw.apply(source, **SETTINGS, only_proved=True)
    assert result.trace.counts() == {"transpose-transpose": 1}
    refused = [r for (rule, _), r in result.trace.failed.items() if rule == "odd-part"]
    assert refused
    assert all("not proved" in r for r in refused)


def test_without_being_asked_for_nothing_is_proved(source: Path) -> None:
    result = rw.apply(source, **SETTINGS)
    assert set(result.trace.counts()) == {"transpose-transpose", "odd-part"}
    assert all(a.record.proof is None for a in result.trace.applied)


def test_proofs_stand_in_the_certificate_and_are_replayed(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    save(rw.apply(source, only=["transpose-transpose"], only_proved=True), out)
    written = read(path_for(out))
    assert written.options.only_proved
    proofs = [s.proof for s in written.sites.values() if s.proof is not None]
    assert [p.sha256 for p in proofs] == list(written.proofs)
    Original(path_for(out)).replay()


def test_a_proof_that_was_changed_is_noticed(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    save(rw.apply(source, only=["transpose-transpose"], only_proved=True), out)
    data = json.loads(path_for(out).read_bytes())
    digest = next(iter(data["proofs"]))
    data["proofs"][digest] += "(assert true)"
    path_for(out).write_bytes(signed(data))
    with pytest.raises(CheckError, match="digest does not fit"):
        Original(path_for(out)).replay()


def test_a_proof_needs_the_checks(source: Path) -> None:
    with pytest.raises(UsageError, match="leave out --check off"):
        rw.apply(source, check="off", only_proved=True)
