"""Certificates as data: written, read, refused, compared."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxrewrite.certificate import record as certificates
from onnxrewrite.certificate.comparison import FACTOR, FLOOR, other_checks, other_rewrite, same_error
from onnxrewrite.certificate.record import (
    ArrayRecord,
    Certificate,
    CostRecord,
    Files,
    ModelRecord,
    Options,
    OutputRecord,
    Rewrite,
    RuleRecord,
    SpeedRecord,
    Undone,
    read,
)
from onnxrewrite.checks import site_record
from onnxrewrite.checks.site_record import CheckRecord, ProofRecord, SiteRecord
from onnxrewrite.errors import ModelError

SITE = SiteRecord(
    ["float[2] v0", "v1 = Relu(v0)"], ["v1 = Abs(v0)"], CheckRecord("ok", "", "float64", 1e-7, 2e-7, 1e-6, 12)
)
BARE = SiteRecord(["v1 = Identity(v0)"], [], None, ProofRecord("uninterpreted", "to the bit", 1, "a0"))
SAMPLE = Certificate(
    versions={"onnxrewrite": "0.1.0"},
    input=Files("model.onnx", {"model.onnx": "ab", "w.bin": "cd"}),
    output=Files("out/ünï.onnx", {"ünï.onnx": "ef"}),
    options=Options(
        "onnx",
        None,
        {"n": 2},
        {"x": ArrayRecord(None, "00")},
        "full",
        0,
        ["rule.py"],
        "fastest",
        0,
        20.0,
        True,
        [],
        True,
        CostRecord("bytes", "56"),
    ),
    rules={"relu-is-abs": RuleRecord("12", ["rule.py"])},
    modules={"rule.py": "34"},
    sites={SITE.id: SITE, BARE.id: BARE},
    proofs={"a0": "(check-sat)"},
    rewrites=[Rewrite("relu-is-abs", "y", "g", SITE.id), Rewrite("relu-is-abs", "z", "g", BARE.id)],
    undone=[Undone("relu-is-abs", "u", "model", "wrong", None)],
    assumes={"inputs are finite": ["relu-is-abs"]},
    structure=[],
    model=ModelRecord(True, None, False, 6, 3, [{"n": 2}], "float64", "", [OutputRecord("y", True, 1e-7, None, 1e-6)]),
    speed=SpeedRecord(0.7, 0.6, 0.8, "all"),
)


def written(path: Path, data: dict[str, Any]) -> Path:
    """``data`` as a certificate whose digest fits."""
    digest = hashlib.sha256(certificates._written(data).encode()).hexdigest()
    path.write_text(certificates._written({**data, "digest": digest}))
    return path


def plain(record: Certificate = SAMPLE) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(record.to_bytes())
    del data["digest"]
    return data


def refused(path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        read(path)
    line = str(caught.value)
    assert line.startswith(f"{path}: ")
    assert "\n" not in line
    assert len(line) < 400
    return line


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_bytes(SAMPLE.to_bytes())
    assert read(path) == SAMPLE
    assert read(path).to_bytes() == SAMPLE.to_bytes()


def test_empty_parts(tmp_path: Path) -> None:
    least = dataclasses.replace(
        SAMPLE,
        versions={},
        input=None,
        output=None,
        rules={},
        modules={},
        sites={},
        rewrites=[],
        undone=[],
        model=None,
        speed=None,
    )
    path = tmp_path / "c.json"
    path.write_bytes(least.to_bytes())
    assert read(path) == least


@given(at=st.integers(0, len(SAMPLE.to_bytes()) - 1), bit=st.integers(0, 7))
def test_any_changed_bit_is_noticed(tmp_path_factory: pytest.TempPathFactory, at: int, bit: int) -> None:
    content = bytearray(SAMPLE.to_bytes())
    content[at] ^= 1 << bit
    path = tmp_path_factory.getbasetemp() / "changed.json"
    path.write_bytes(content)
    refused(path)


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_rubbish(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "rubbish.json"
    path.write_bytes(content)
    refused(path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.slow
@given(st.sampled_from(sorted(plain().keys() - {"certificate"})), JSON)
def test_any_other_value_is_refused_or_is_one(tmp_path_factory: pytest.TempPathFactory, key: str, value: Any) -> None:
    """Somebody who knows how to make the digest fit can write anything."""
    path = written(tmp_path_factory.getbasetemp() / "forged.json", {**plain(), key: value})
    try:
        found = read(path)
    except ModelError as error:
        assert str(error).count("\n") == 0
    else:
        assert json.loads(site_record.line(getattr(found, key))) == value


@pytest.mark.parametrize("path", ["rules", "options.seed", "rewrites.0.site", "model.outputs.0.error", "sites"])
def test_missing_fields_are_named(tmp_path: Path, path: str) -> None:
    data = plain()
    holder: Any = data
    *parents, last = path.split(".")
    for step in parents:
        holder = holder[int(step) if isinstance(holder, list) else step]
    del holder[last]
    name = path.replace(".0", "[0]")
    assert f"{name} is missing" in refused(written(tmp_path / "c.json", data))


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"certificate": 6}, "is a certificate of version 6, this program reads 5"),
        ({"certificate": True}, "of version True"),
        ({"more": 1}, "more is unknown"),
        ({"rewrites": {}}, "rewrites is {}, not list"),
        ({"structure": [1]}, "structure[0] is 1, not str"),
        ({"rewrites": [{"rule": "a", "value": "b", "scope": "c", "site": "d"}]}, "sites.d is missing"),
    ],
)
def test_other_contents(tmp_path: Path, change: dict[str, Any], part: str) -> None:
    assert part in refused(written(tmp_path / "c.json", {**plain(), **change}))


def test_no_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c.json"
    for content, part in (
        ("[]", "is JSON, but no certificate"),
        ('{"a": 1}', "is JSON, but no certificate"),
        ('{"certificate": 5}', "digest is missing"),
        ('{"certificate": 5, "digest": [NaN]}', "is not JSON"),
        ("[" * 100_000, "is nested more deeply"),
        ("1" * 10_000, "is not JSON"),
    ):
        path.write_text(content)
        assert part in refused(path)
    assert "cannot be read" in refused(tmp_path)
    assert "no such certificate" in refused(tmp_path / "none")
    monkeypatch.setattr(certificates, "MAX_BYTES", 10)
    assert "is larger than any certificate" in refused(path)


# ----------------------------------------------------------------------------------------------------- comparing


@given(st.floats(0, 10), st.floats(0, 10))
def test_errors_agree_within_the_factor(a: float, b: float) -> None:
    assert same_error(a, b) == same_error(b, a)
    assert same_error(a, a)
    if max(a, b) > FACTOR * max(min(a, b), FLOOR):
        assert not same_error(a, b)
    if max(a, b) <= FACTOR * min(a, b):
        assert same_error(a, b)


def test_what_is_not_finite_agrees_with_itself_only() -> None:
    assert same_error(None, None)
    assert not same_error(None, 0.0)
    assert not same_error(1.0, None)


def test_the_first_other_rewrite_is_named() -> None:
    assert other_rewrite(SAMPLE, SAMPLE) is None
    fewer = dataclasses.replace(SAMPLE, rewrites=SAMPLE.rewrites[:1])
    assert other_rewrite(SAMPLE, fewer) == "rewrite 2 was relu-is-abs at `z`, is now none"
    swapped = dataclasses.replace(SAMPLE, rewrites=[Rewrite("relu-is-abs", "y", "g", BARE.id), SAMPLE.rewrites[1]])
    assert other_rewrite(SAMPLE, swapped) == "rewrite 1, relu-is-abs at `y`, looks otherwise now"


def test_other_checks_are_named() -> None:
    assert SAMPLE.model is not None
    assert SITE.check is not None
    failed = dataclasses.replace(SITE, check=dataclasses.replace(SITE.check, error_rewritten=1e-3))
    now = dataclasses.replace(
        SAMPLE,
        sites={SITE.id: failed, BARE.id: BARE},
        undone=[],
        structure=["checker: bad"],
        model=dataclasses.replace(SAMPLE.model, ok=False, outputs=[]),
    )
    assert list(other_checks(SAMPLE, SAMPLE)) == []
    assert list(other_checks(SAMPLE, now)) == [
        "relu-is-abs at `u` is not undone any more",
        "relu-is-abs at `y`: the error was 2.0e-07, is 1.0e-03",
        "the structure's problems were [], are ['checker: bad']",
        "the whole model: equal then, not equal now",
        "output y: lost",
    ]
