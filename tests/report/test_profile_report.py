"""The report of ``profile``: what is shown of given data, and that it fits."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from onnxrewrite.report import human
from onnxrewrite.report.profile_report import profile_report

LONG = "/model/encoder/layers.10/self_attention/query_projection/MatMul"


def entry(name: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "op_type": "SkipSimplifiedLayerNormalization",
        "kernels": 144,
        "seconds": 4e-4,
        "share": 0.4,
        "bound": "dispatch",
        "efficiency": 0.25,
        "nodes": [name],
        "operators": {"Add": 2, "ReduceMean": 1, "DynamicQuantizeLinear": 1, "Pow": 1},
        "rules": [],
        "refused": {},
        **more,
    }


def opportunity(kind: str, name: str, gain: float, sure: bool = True, **more: Any) -> dict[str, Any]:
    spread = 1e-5 if sure else 1
    measured = {"median": gain, "low": gain - spread, "high": gain + spread} if kind == "rewrite" else None
    found = {"kind": kind, "name": name, "gain": gain, "places": 12, "seconds": 5e-4, "measured": measured}
    return {**found, "rules": [name], "stage": "", "reasons": {}, **more}


def data(**more: Any) -> dict[str, Any]:
    interval = {"median": 1e-3, "low": 9e-4, "high": 1.1e-3}
    return {
        "model": "m.onnx",
        "provider": "CPUExecutionProvider",
        "threads": 2,
        "level": "all",
        "sizes": {"batch": 1},
        "latency": interval,
        "outside": 2e-4,
        "peaks": {"float": {"flops": 1e11, "bandwidth": 1e10, "dispatch": 1e-6}},
        "operators": [entry("Norm")],
        "kernels": [
            entry(LONG, rules=["attention", "attention-lower-spelled"]),
            entry("b", refused={"gelu-erf": "no"}),
        ],
        "rewritten": interval,
        "ratio": {"median": 1.25, "low": 1.2, "high": 1.3},
        "opportunities": [],
        "notes": [],
        **more,
    }


def shown(given: dict[str, Any], top: int = 6) -> str:
    console = Console(width=100, highlight=False, emoji=False, markup=False)
    with console.capture() as captured:
        console.print(profile_report(given, top=top))
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def test_it_fits_100_columns() -> None:
    found = [opportunity("rewrite", "attention, attention-lower-spelled, attention-pack", 2e-4, rules=["a", "b", "c"])]
    reasons = {f"`{LONG}` inside the match is also used by Attention `{LONG}`": 3}
    found.append(opportunity("near miss", "attention-lower-spelled", 2e-4, stage="lower", reasons=reasons))
    text = shown(data(opportunities=found))
    assert max(map(len, text.splitlines())) <= 100
    assert "attention-lower-spelled\n" in text
    assert "not gelu-erf" in text
    assert "in no kernel" in text
    assert "1.25× as fast (1.20 to 1.30)" in text


def test_gains_that_may_be_none_or_are_small_are_left_out() -> None:
    found = [
        opportunity("rewrite", "sure", 1e-4),
        opportunity("rewrite", "perhaps", 1e-4, sure=False),
        opportunity("far from the roof", "Tiny", 1e-6),
    ]
    text = shown(data(opportunities=found))
    assert "sure" in text
    assert "perhaps" not in text
    assert "Far from the roof" not in text


def test_losses_are_shown_even_where_there_are_many_gains() -> None:
    gains = [opportunity("rewrite", f"gain-{n}", 9e-4 - n * 1e-5) for n in range(9)]
    text = shown(data(opportunities=[*gains, opportunity("rewrite", "loss", -1e-4)]), top=3)
    assert "gain-1" in text
    assert "gain-2" not in text
    assert "slower here" in text


def test_canonicalizations_that_were_refused_are_one_line() -> None:
    found = [
        opportunity("near miss", "gelu-erf", 1e-4, stage="raise"),
        opportunity("near miss", "single-operand", 1e-4, stage="canonicalize"),
    ]
    text = shown(data(opportunities=found))
    assert "≤ 100 µs" in text
    assert "single-operand" not in text
    assert "1 canonicalization " in text
    assert "Near misses" not in shown(data(opportunities=found[1:]))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.00 µs"),
        (1.2345e-6, "1.23 µs"),
        (45.67e-6, "45.7 µs"),
        (1e-3, "1.00 ms"),
        (-2.5e-4, "-250 µs"),
        (3, "3.00 s"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert human.duration(seconds) == text


def test_names_are_shortened_where_they_tell_least() -> None:
    assert human.shortened("a/b/c", 3) == "…/c"
    assert human.cut("abcdef", 3) == "ab…"
    assert human.shortened("abc", 3) == human.cut("abc", 3) == "abc"
