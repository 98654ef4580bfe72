"""Accuracy levels that change the tokens of a decoder are seen, and taken back where they do."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from onnxrewrite import io
from onnxrewrite.suite.quality.data import load_data
from onnxrewrite.suite.quality.gate import Judge
from onnxrewrite.suite.quantization.accuracy_levels import Levels, chosen_levels
from onnxrewrite.suite.quantization.block_weights import at_levels, in_forms
from onnxrewrite.suite.quantization.weight_format import EXACT, FAST, WeightFormat

SIZE, WORDS = 64, 64


def model(*, outliers: bool) -> onnx.ModelProto:
    """Tokens to logits by three products.  With ``outliers``, the second reads numbers of which one in each block is ten
    thousand times as large, and has no part in the result: on 8-bit integers, the others are rounded to zero."""
    rng = np.random.default_rng(0)
    weights = {name: np.linalg.qr(rng.normal(size=(SIZE, SIZE)))[0].astype(np.float32) for name in "tabc"}
    shift = np.zeros(SIZE, np.float32)
    if outliers:
        shift[::32] = 1e4
        weights["b"][::32] = 0
    weights["shift"] = shift
    made = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (int64[batch,n] ids) => (float[batch,n,64] logits) {
            x = Gather(t, ids)  h = MatMul(x, a)  r = Add(h, shift)  y = MatMul(r, b)  s = Add(x, y)
            logits = MatMul(s, c)
        }"""
    )
    for node in made.graph.node:
        node.name = node.output[0]
    made.graph.initializer.extend(numpy_helper.from_array(w, n) for n, w in weights.items())
    return made


def chosen(source: onnx.ModelProto, form: WeightFormat, min_agreement: float = 0.98) -> tuple[Levels, list[int]]:
    """The levels of its products, and what was told."""
    ready = io.load(source)
    rng, told = np.random.default_rng(1), []
    data = load_data([{"ids": rng.integers(0, WORDS, (1, 32))} for _ in range(6)], source)
    forms = dict.fromkeys(("h", "y", "logits"), form)
    judge = Judge(source, data)
    found = chosen_levels(in_forms(ready, forms), forms, judge, min_agreement, lambda done, _: told.append(done))
    return found, told


@pytest.mark.parametrize("bits", [4, 8])
def test_a_level_is_taken_back_where_it_loses_tokens(bits: int) -> None:
    found, told = chosen(model(outliers=True), WeightFormat(bits, 32))
    assert found.flipped > 0.5
    assert found.lost > 0.1
    assert found.back == 1
    assert told == [0, 1, 2]
    assert "taken back for 1 products" in str(found)
    if bits == 4:
        assert {name: form.level for name, form in found.forms.items()} == {"h": FAST, "y": EXACT, "logits": FAST}
    else:
        assert set(found.forms) == {"h", "logits"}  # floats are faster than level 0 with 8 bits


def test_a_level_stays_where_it_loses_none() -> None:
    form = WeightFormat(8, 32)
    found, told = chosen(model(outliers=False), form, min_agreement=0.8)
    assert found.back == 0
    assert set(found.forms.values()) == {form}
    assert not told
    assert "taken back" not in str(found)


def test_levels_are_those_of_nodes() -> None:
    made = in_forms(io.load(model(outliers=False)), dict.fromkeys(("h", "y"), WeightFormat(4, 32)))
    levels = [n.attributes.get_int("accuracy_level", 0) for n in at_levels(made, {"h": EXACT}).graph if n.name in "hy"]
    assert levels == [EXACT, FAST]
