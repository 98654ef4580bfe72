"""What notebooks show."""

import pytest
from test_html_page import GELU, HOSTILE, hostile_model, parsed, read

import onnxrewrite as rw


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
