"""The page of ``discover``."""

from __future__ import annotations

import re
from typing import Any

from onnxrewrite.report.html.discover_page import discover_page
from onnxrewrite.suite.discovery.corpus_search import Discovery
from onnxrewrite.suite.discovery.finding import Finding, Measured, Searched

TIMES = (Measured({"n": 4}, 0.5, 0.4, 0.6, 1e-6), Measured({}, 0.75, 0.7, 0.8, 1e-6))


def finding(name: str, status: str, **more: Any) -> Finding:
    return Finding(name, name, status, "m.onnx", ("Add", "Mul"), ("Gemm",), {"m.onnx": ["y"]}, **more)  # type: ignore[arg-type]


FOUND = finding(
    "<b>sum</b>", "found", text="a < b & c", guards=("x < 2",), times=TIMES, instances=96, proof="over reals"
)
REFUTED = finding("no-good", "refuted", reason="differs by <3>")
KNOWN = finding("old", "known", reason="gelu makes the same")
PARTS = (Searched("m.onnx", 12, 3, 12, 40), Searched("n.onnx", is_complete=False, error="is <no> model"))


def page(*found: Finding, parts: tuple[Searched, ...] = PARTS[:1]) -> str:
    written = {f.name: "sum.py" for f in found if f.status == "found"}
    return discover_page(Discovery(parts, found, written, ("the executor failed",)).to_json(), "/some/rules")


def words(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html[html.index("<main") :]))


def test_all_outcomes_are_told_with_their_reasons() -> None:
    told = words(page(FOUND, REFUTED, KNOWN))
    assert "1 rule found." in told
    assert "Refuted: 1" in told
    assert "differs by &lt;3&gt;" in told
    assert "Known already: 1" in told
    assert "gelu makes the same" in told
    assert "Too slow" not in told
    assert "0.50 (0.40 to 0.60) at n=4" in told
    assert "0.75 (0.70 to 0.80) at its own sizes" in told
    assert "File sum.py" in told
    assert "Where x &lt; 2" in told
    assert "Tried 96 graphs" in told
    assert "12 of 1 model, 3 more left out" in told
    assert "the executor failed" in told


def test_nothing_of_a_model_or_a_rule_is_markup() -> None:
    html = page(FOUND, parts=PARTS)
    assert "<b>sum" not in html
    assert "&lt;b&gt;sum&lt;/b&gt;" in html
    assert "a &lt; b &amp; c" in html
    assert "is &lt;no&gt; model" in html


def test_a_search_that_was_stopped_says_so() -> None:
    assert "The search is not complete." in words(page(parts=PARTS))
    assert "No rule that is new, right and faster." in words(page())


def test_links_lead_to_sections() -> None:
    html = page(FOUND, REFUTED, KNOWN)
    targets = re.findall(r'href="#([^"]+)"', html)
    assert {"found", "refuted", "known", "search"} <= set(targets)
    assert all(f'id="{target}"' in html for target in targets)


def test_the_same_data_give_the_same_bytes() -> None:
    assert page(FOUND, KNOWN) == page(FOUND, KNOWN)
