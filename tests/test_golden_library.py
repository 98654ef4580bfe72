"""Golden models as a library: what is read, what is compared, what is written."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

import onnxrewrite as rw
from onnxrewrite.errors import UsageError
from onnxrewrite.ir import text
from onnxrewrite.testing import golden

WRITTEN = """# A model of nothing.
opset = 17

[dims]
n = 4

[architecture]
gelu = 1
"""

GRAPH = (
    "(float[n,8] x) => (float[n,8] y) { d = Div(x, 1.41421356)  e = Erf(d)  a = Add(e, 1.0)  m = Mul(x, a)"
    "  g = Mul(m, 0.5)  k = Constant<value = float[2] {1.0, 2.0}>()  s = ReduceSum<keepdims=0>(k)  y = Mul(g, s) }"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "small"
    made.mkdir()
    onnx.save(ir.to_proto(text.parse(GRAPH)), made / "model.onnx")
    (made / "expected.toml").write_text(WRITTEN)
    return made


def test_a_new_model_has_no_expectations(folder: Path) -> None:
    model = golden.load(folder)
    assert model.model == folder / "model.onnx"
    assert model.facts == {"opset": 17, "dims": {"n": 4}, "architecture": {"gelu": 1}}
    assert model.architecture == {"gelu": 1}
    assert model.expected == {}


def test_without_an_architecture(folder: Path) -> None:
    (folder / "expected.toml").write_text("opset = 17\n")
    assert golden.load(folder).architecture == {}


def test_renewing_keeps_what_a_person_wrote(folder: Path) -> None:
    result = rw.apply(folder / "model.onnx")
    golden.load(folder).renew(result)
    once = (folder / "expected.toml").read_text()
    assert once.startswith(WRITTEN)
    model = golden.load(folder)
    assert model.facts == tomllib.loads(WRITTEN)
    assert model.expected["operators"] == {"Mul": 1, "com.microsoft.Gelu": 1}
    assert model.expected["rules"] == dict(result.trace.counts())
    assert {**golden.observed(result), "tolerance": model.expected["tolerance"]} == model.expected
    model.renew(result)
    assert (folder / "expected.toml").read_text() == once


def test_what_was_expected_before_is_gone(folder: Path) -> None:
    result = rw.apply(folder / "model.onnx")
    golden.load(folder).renew(result)
    plain = rw.apply(folder / "model.onnx", without=["gelu"])
    golden.load(folder).renew(plain)
    assert "com.microsoft.Gelu" not in golden.load(folder).expected["operators"]
    assert golden.load(folder).expected["tolerance"] == 0


def test_errors(folder: Path) -> None:
    fused = rw.apply(folder / "model.onnx")
    assert 0 < golden.error(fused) < 1e-5
    assert golden.error(fused) <= golden.observed(fused)["tolerance"]
    assert golden.error(rw.apply(folder / "model.onnx", check="off")) == math.inf
    assert golden.error(rw.apply(folder / "model.onnx", without=["gelu"])) == 0


def test_find_sorts_by_name(folder: Path) -> None:
    for name in ("b", "a"):
        (folder.parent / name).mkdir()
        (folder.parent / name / "expected.toml").write_text("opset = 17\n")
    (folder.parent / "no-model").mkdir()
    assert [m.folder.name for m in golden.find(folder.parent)] == ["a", "b", "small"]
    assert golden.find(folder.parent / "nowhere") == []


@pytest.mark.parametrize("content", [None, "opset = ", "\udcff"])
def test_what_cannot_be_read(folder: Path, content: str | None) -> None:
    path = folder / "expected.toml"
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError, match=r"golden model .*small: "):
        golden.load(folder)


@given(st.floats(min_value=1e-300, max_value=1e300))
def test_tolerances_have_one_digit_and_are_no_smaller(number: float) -> None:
    rounded = golden._rounded_up(number)
    assert rounded >= number * (1 - 1e-8)
    assert rounded <= 2.0001 * number
    assert float(f"{rounded:.0e}") == rounded


@pytest.mark.parametrize("number", [0.0, math.inf])
def test_tolerances_without_digits(number: float) -> None:
    assert golden._rounded_up(number) == number
    table = golden._toml({"tolerance": number, "rules": {}, "operators": {"com.microsoft.Gelu": 2}})
    assert tomllib.loads(table)["expected"] == {
        "tolerance": number,
        "rules": {},
        "operators": {"com.microsoft.Gelu": 2},
    }
