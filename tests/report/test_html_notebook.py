"""What notebooks show."""

import pytest
from test_html_page import GELU, HOSTILE, hostile_model, parsed, read

import onnxrewrite as rw
from onnxrewrite.measure.timing import Interval, Timing
from onnxrewrite.runtime.settings import Setting
from onnxrewrite.suite.bench.benchmark import Bench, Variant


@pytest.fixture(scope="module")
def result():
    return rw.apply(parsed(GELU))


def test_result(result):
    shown = read(result._repr_html_())
    seen = " ".join(" ".join(shown.texts).split())
    assert seen.startswith("g : 2 rewrites; 10 → 6 nodes;")
    assert "gelu-erf" in seen
    assert "Checked" in seen
    assert not {"script", "style"} & {name for name, _ in shown.elements}
    assert len(result._repr_html_()) < 10_000


def test_explanation():
    shown = read(rw.explain(parsed(GELU), "gelu-erf")._repr_html_())
    seen = " ".join(" ".join(shown.texts).split())
    assert seen.startswith("gelu-erf applies at 1 place")
    assert "expected constant 1.41421, found 1.5" in seen
    assert "/head/Mul_1" in seen
    assert "without that: it would be wrong" in seen


def test_an_explanation_of_nothing():
    seen = " ".join(read(rw.explain(parsed(GELU), "attention", check=False)._repr_html_()).texts)
    assert seen.endswith("does not apply It does not come near anywhere.")


def test_no_name_breaks_out():
    kinds = {
        "div",
        "p",
        "strong",
        "code",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "dl",
        "dt",
        "dd",
        "details",
        "summary",
        "span",
        "b",
    }
    model = hostile_model()
    for shown in (rw.apply(model)._repr_html_(), rw.explain(model, "gelu-erf", check=False)._repr_html_()):
        assert {name for name, _ in read(shown).elements} <= kinds
        assert HOSTILE[8] not in shown


def test_bench():
    whole, half = Timing((0.002, 0.0022, 0.0024), (0.002,) * 3), Timing((0.001, 0.0011, 0.0012), (0.002,) * 3)
    variants = [
        Variant("original, all", "original", "all", timing=whole, ratio=Interval(1.0, 1.0, 1.0)),
        Variant("<ours>", "ours", "all", timing=half, ratio=Interval(0.5, 0.49, 0.51)),
        Variant("onnxsim", "peer", "all", failure="not this one"),
    ]
    shown = Bench("m&m.onnx", Setting(threads=2), {"batch": 1}, variants, ["a <note>"])._repr_html_()
    seen = " ".join(" ".join(read(shown).texts).split())
    assert seen.startswith(
        "m&m.onnx at batch=1, CPUExecutionProvider variant latency, ms ratio original, all 2.2 (2–2.4)"
    )
    assert "<ours> 1.1 (1–1.2) 0.5 (0.49–0.51) onnxsim not this one a <note>" in seen
