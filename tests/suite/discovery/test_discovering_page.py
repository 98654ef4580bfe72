"""The page about discovering shows rules as they are found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from corpus import ROOT
from discovery_models import saved

from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.rule import Stage
from onnxrewrite.suite.discovery import identity_search
from onnxrewrite.suite.discovery.graph_families import Family, Form
from onnxrewrite.suite.discovery.model_search import search
from onnxrewrite.suite.discovery.search_request import Part, Request

NO_RULES = frozenset(r.name for r in registry.load())
PAGE = ROOT / "docs" / "discovering.md"
SHOWN = r"(<!-- {}: renewed by `pytest --update-golden` -->\n```py\n)(.*?)(```\n<!-- end -->)"
GELU = "float[b,s,64] x; bias = float[64] ~;  h = Add(x, bias)  d = Div(h, 1.41421354)  e = Erf(d)  a = Add(e, 1.0)"


@pytest.mark.slow
def test_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, update_golden: bool):
    monkeypatch.chdir(tmp_path)
    model = saved(f"{GELU}  m = Mul(h, a)  y = Mul(m, 0.5)", tmp_path / "model.onnx")
    lower = frozenset(r.name for r in registry.load() if r.stage is Stage.LOWER)
    _, found = search(Request(without=lower, nodes=6, count=40), tmp_path / "journals", Part.of_model(model))
    text = next(f.text for f in found if f.substitute == ("com.microsoft.BiasGelu",) and len(f.operators) == 6)
    shown("rule", text, update_golden=update_golden)


@pytest.mark.usefixtures("untimed")
def test_identity(tmp_path: Path, update_golden: bool):
    swapped = Family("two operators", "x y", "", (), (Form("Neg"), Form("Sub")))
    _, found = identity_search.search(Request(without=NO_RULES, graphs=15, count=8), tmp_path, families=[swapped])
    text = next(f.text for f in found if f.operators == ("Sub", "Neg") and f.substitute == ("Sub",))
    shown("identity", text, update_golden=update_golden)


def shown(what: str, text: str, *, update_golden: bool) -> None:
    """The page shows a text, or is renewed."""
    text = re.sub(r"^Effect: .*\n", "", text, flags=re.MULTILINE)  # which another machine measures differently
    page = PAGE.read_text(encoding="utf-8")
    pattern = re.compile(SHOWN.format(what), re.DOTALL)
    made = pattern.sub(lambda shown: f"{shown[1]}{text}{shown[3]}", page)
    if update_golden:
        PAGE.write_text(made, encoding="utf-8")
        return
    assert pattern.search(page)
    assert made == page
