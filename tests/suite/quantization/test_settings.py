"""Settings: what goes together, how they are stored, how nodes are named."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from onnxrewrite.errors import UsageError
from onnxrewrite.suite.quantization.quantize_settings import QuantizeSettings, names


@pytest.mark.parametrize(
    "settings",
    [
        QuantizeSettings(),
        QuantizeSettings(mode="static", calibration="percentile", percentile=99.9, exclude=("a*", "op:Conv")),
        QuantizeSettings(mode="static", moving_average=0.1, operators=("MatMul",), include=("x",)),
        QuantizeSettings(mode="weights", weights="uint4", block_size=128, symmetric_weights=False),
        QuantizeSettings(mode="weights", weights="int4", algorithm="gptq"),
    ],
)
def test_json_and_back(settings: QuantizeSettings) -> None:
    again = QuantizeSettings.from_json(json.loads(json.dumps(settings.to_json())))
    assert again == settings
    assert hash(again) == hash(settings)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mode": "magic"}, "mode must be dynamic, static, weights, not 'magic'"),
        ({"weights": "int3"}, "weights must be int8, uint8, int4, uint4, mixed, not 'int3'"),
        ({"percentile": 0}, "percentile must be above 0"),
        ({"percentile": 101}, "percentile must be above 0"),
        ({"moving_average": 2.0, "mode": "static"}, "moving_average must be above 0"),
        ({"moving_average": 0.5}, "moving_average is for static"),
        ({"block_size": 33}, "block_size must be 16, 32"),
        ({"activations": "int16"}, "dynamic quantization has uint8 only"),
        ({"weights": "int4"}, "dynamic quantization has 8 bits"),
        ({"mode": "static", "format": "qoperator", "activations": "int16"}, "qoperator has 8 bits only, not int16"),
        ({"mode": "static", "format": "qoperator", "weights": "int4"}, "qoperator has 8 bits only, not int4"),
        ({"mode": "weights", "algorithm": "gptq"}, "gptq rounds weights of 4 bits in mode weights"),
        (
            {"mode": "static", "weights": "int4", "algorithm": "k-quant"},
            "k-quant rounds weights of 4 bits in mode weights",
        ),
        ({"mode": "weights", "weights": "int4", "algorithm": "hqq"}, "algorithm must be nearest, k-quant, gptq"),
        ({"exclude": "name"}, "exclude must be a list of names"),
    ],
)
def test_what_does_not_go_together(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        QuantizeSettings(**given)


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(UsageError, match="no such setting: bits"):
        QuantizeSettings.from_json({"bits": 8})


def test_names_tell_settings_apart() -> None:
    base = QuantizeSettings(mode="static")
    others = [
        base,
        replace(base, format="qoperator"),
        replace(base, per_channel=False),
        replace(base, calibration="entropy"),
        replace(base, symmetric_activations=True),
        replace(base, symmetric_weights=False),
        replace(base, reduce_range=True),
        replace(base, activations="int8"),
        replace(base, moving_average=0.5),
        QuantizeSettings(),
    ]
    assert len({s.name for s in others}) == len(others)


@pytest.mark.parametrize(
    ("entry", "named"),
    [
        ("/encoder/MatMul", True),
        ("/encoder", False),
        ("*MatMul", True),
        ("/enc*", True),
        ("*oder*", True),
        ("op:MatMul", True),
        ("op:Mat", False),
        ("/encoder.MatMul", False),
    ],
)
def test_entries_name_nodes(entry: str, named: bool) -> None:
    assert names((entry,), "/encoder/MatMul", "MatMul") is named
