"""A row tells what it depends on, and what is no row is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured_rows import CLASS, FAST, OTHER, figures, question, row
from onnx import parser

from onnxrewrite.inputs.bindings import Binding
from onnxrewrite.measure.database import rows
from onnxrewrite.measure.database.machine_class import ALIKE, Facts, Fingerprint, MachineClass
from onnxrewrite.measure.database.rows import RowError, parsed
from onnxrewrite.measure.region_text import region, sizes
from onnxrewrite.measure.site_benchmark import Subject
from onnxrewrite.measure.timing import Timing
from onnxrewrite.runtime.settings import Setting

SAMPLES = st.lists(st.tuples(st.floats(1e-6, 1e3), st.floats(1e-6, 1e3)), min_size=3, max_size=60)


@given(SAMPLES)
def test_what_was_measured_is_read_as_it_was_written(pairs: list[tuple[float, float]]) -> None:
    """No measurement contradicts itself."""
    sides = {name: Timing(*2 * [tuple(pair[i] for pair in pairs)]) for i, name in enumerate(("before", "after"))}
    found = rows.figures(sides, ("after/before",), of_processor=True)
    made = rows.row_of(question(), found, CLASS, "there")
    assert parsed(made.written()) == made


def changed(**changes: Any) -> bytes:
    told = json.loads(row().written())
    for path, value in changes.items():
        *folders, last = path.split("__")
        place = told
        for name in folders:
            place = place[name]
        place[last] = value
    return json.dumps(told, sort_keys=True, separators=(",", ":")).encode()


RATIO = "figures__ratios"
BAD = {
    "of format 2, not 1": [{"format": 2}],
    "no row": [
        {"more": 1}, {"date": "today"}, {"date": 5}, {"machine": "m" * 100}, {"question__kind": "guess"},
        {f"{RATIO}": {"after/before": {"median": "1", "low": 1, "high": 1}}},
        {"machine_class__fingerprint__flops": -1.0}, {"figures__seconds__before": [1.0, 1.0]},
    ],
    "in contradiction to itself": [
        {"question__region": "another"}, {"region_digest": "0"}, {RATIO: {}},
        {RATIO: {"after/before": {"median": 2.0, "low": 1.9, "high": 2.1}}},
        {RATIO: {"after/before": {"median": 0.5, "low": 0.6, "high": 0.7}}},
        {"figures__seconds__before": [5.0, 1.0, 1.0, 1.0, 1.0]}, {"figures__seconds": {}},
        {"question__ratios": ["other/before"]},
    ],
}  # fmt: skip


@pytest.mark.parametrize(("reason", "changes"), [(reason, each) for reason, all_ in BAD.items() for each in all_])
def test_what_is_no_row_is_refused(reason: str, changes: dict[str, Any]) -> None:
    with pytest.raises(RowError, match="no row|not in canonical form" if reason == "no row" else reason):
        parsed(changed(**changes))


def test_the_form_is_canonical() -> None:
    with pytest.raises(RowError, match="canonical"):
        parsed(row().written() + b" ")
    with pytest.raises(RowError, match="no row"):
        parsed(b"[" * 100_000)


def test_an_answer_depends_on_how_it_was_run() -> None:
    settings = [Setting(), Setting(threads=1), Setting(level="basic"), Setting("CUDAExecutionProvider")]
    asked = [question(setting=s) for s in settings]
    asked += [question("b"), question(sizes=("float32[16]",)), question(rules={"r": "1"}), question(rules={"r": "2"})]
    assert len({q.digest for q in asked}) == len(asked)
    assert question().digest == question().digest
    assert rows.asked(question(), "1.22") != rows.asked(question(), "1.23")


def test_machines_are_alike_by_facts_and_by_fingerprint() -> None:
    near = MachineClass(CLASS.facts, Fingerprint(FAST.flops * 0.9 * ALIKE, FAST.bandwidth, FAST.dispatch))
    assert CLASS.is_alike(near)
    assert near.is_alike(CLASS)
    assert not CLASS.is_alike(OTHER)
    assert not CLASS.is_alike(MachineClass(Facts("x86_64", ("avx2",), CLASS.facts.caches, 2), FAST))


def subject(text: str, batch: int, weights: str = "w") -> Subject:
    import numpy as np

    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g {text}')
    feeds = {i.name: np.zeros((batch, 64), np.float32) for i in model.graph.input}
    return Subject(model, model, Binding(), lambda care: feeds)


def test_a_region_says_nothing_of_names_and_exact_sizes() -> None:
    a = subject("(float[batch,64] x) => (float[batch,64] y) { h = Relu(x) y = Neg(h) }", 100)
    b = subject("(float[n,64] image) => (float[n,64] z) { t = Relu(image) z = Neg(t) }", 120)
    c = subject("(float[100,64] x) => (float[100,64] y) { h = Relu(x) y = Neg(h) }", 100)
    d = subject("(float[batch,64] x) => (float[batch,64] y) { h = Relu(x) y = Abs(h) }", 100)
    assert (region(a), sizes(a)) == (region(b), sizes(b))
    assert sizes(a) == ("float32[128,64]",)
    assert len({region(each) for each in (a, c, d)}) == 3
    assert "v1 = Relu(v0)" in region(a)


def test_figures_of_a_side_are_its_quantiles() -> None:
    assert figures().seconds["before"] == (1.0,) * 5
    found = rows.figures({"a": Timing(tuple(map(float, range(1, 101))), ())}, (), of_processor=False)
    assert found.seconds["a"] == (5.0, 25.0, 50.0, 75.0, 95.0)
