"""Weights in blocks: as onnxruntime.quantization makes them, a piece at a time, the rest where it was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from onnxrewrite import io
from onnxrewrite.runtime.session import Session, open_session
from onnxrewrite.suite.quantization import engine
from onnxrewrite.suite.quantization.block_weights import at_levels, in_forms
from onnxrewrite.suite.quantization.weight_format import EXACT, WeightFormat, candidates


def model(weights: dict[str, np.ndarray], nodes: str, outputs: str) -> onnx.ModelProto:
    made = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]>
        g (float[rows,48] x, int64[n] i) => ({outputs}) {{ {nodes} }}"""
    )
    for number, node in enumerate(made.graph.node):
        node.name = f"n{number}"
    if "Gather" not in nodes:
        del made.graph.input[1]
    made.graph.initializer.extend(numpy_helper.from_array(w.astype(np.float32), n) for n, w in weights.items())
    return made


def run(source: object, **feeds: np.ndarray) -> dict[str, np.ndarray]:
    session = open_session(source)  # type: ignore[arg-type]
    assert isinstance(session, Session), session
    found = session.run(feeds)
    assert not isinstance(found, str), found
    return {name: np.asarray(value) for name, value in found.items()}


@pytest.mark.parametrize("form", [f for f in candidates() if f.block <= 64], ids=str)
def test_a_piece_at_a_time_is_the_same(
    form: WeightFormat, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    weight = rng.normal(size=(128, 24)).astype(np.float32)
    whole = engine.in_blocks("MatMul", weight, form)
    monkeypatch.setattr(engine, "_ELEMENTS", 1000)
    pieces = engine.in_blocks("MatMul", weight, form)
    for one, other in zip(whole, pieces, strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(list(engine._parts("MatMul", weight))) > 3


def test_tables_a_piece_at_a_time(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    form = WeightFormat(4, 16)
    for width in (32, 33):  # a byte holds two numbers, of two rows where these are odd
        table = rng.normal(size=(50, width)).astype(np.float32)
        whole = engine.in_blocks("Gather", table, form)
        monkeypatch.setattr(engine, "_ELEMENTS", 200)
        pieces = engine.in_blocks("Gather", table, form)
        monkeypatch.undo()
        np.testing.assert_array_equal(whole.packed, pieces.packed)
        np.testing.assert_array_equal(whole.scales, pieces.scales)


def test_products_and_tables_are_close_and_the_rest_is_the_same_object(rng: np.random.Generator) -> None:
    weights = {"w": rng.normal(size=(48, 40)), "kept": rng.normal(size=(48, 40)), "t": rng.normal(size=(20, 32))}
    source = io.load(
        model(weights, "y = MatMul(x, w)  z = MatMul(x, kept)  g = Gather(t, i)", "float[rows,40] y, z, float[n,32] g")
    )
    made = in_forms(source, {"n0": WeightFormat(4, 16), "n2": WeightFormat(4, 16)})
    assert [n.op_type for n in made.graph] == ["MatMulNBits", "MatMul", "GatherBlockQuantized"]
    assert [n.op_type for n in source.graph] == ["MatMul", "MatMul", "Gather"]
    assert made.graph.initializers["kept"].const_value is source.graph.initializers["kept"].const_value
    assert not {"w", "t"} & set(made.graph.initializers)
    feeds = {"x": rng.normal(size=(3, 48)).astype(np.float32), "i": np.array([0, 19, 7])}
    exact, found = run(source, **feeds), run(made, **feeds)
    np.testing.assert_array_equal(exact["z"], found["z"])
    for name in ("y", "g"):
        error = np.linalg.norm(exact[name] - found[name]) / np.linalg.norm(exact[name])
        assert 1e-3 < error < 0.15, name


def test_one_weight_in_two_forms_and_twice_in_one(rng: np.random.Generator) -> None:
    source = io.load(
        model(
            {"w": rng.normal(size=(48, 40))},
            "y = MatMul(x, w)  z = MatMul(x, w)  u = MatMul(x, w)",
            "float[rows,40] y, z, u",
        )
    )
    made = in_forms(source, {"n0": WeightFormat(4, 16), "n1": WeightFormat(8, 32), "n2": WeightFormat(4, 16, EXACT)})
    assert len(made.graph.initializers) == 4
    feeds = {"x": rng.normal(size=(3, 48)).astype(np.float32)}
    exact, found = run(source, **feeds), run(made, **feeds)
    errors = {name: np.linalg.norm(exact[name] - found[name]) for name in ("y", "z", "u")}
    assert errors["z"] < errors["u"] / 4
    assert errors["y"] != errors["u"]
    same = run(at_levels(made, {"n0": EXACT}), **feeds)
    np.testing.assert_array_equal(same["y"], same["u"])


def test_weights_of_more_dimensions_give_results_of_as_many(tmp_path: Path, rng: np.random.Generator) -> None:
    source = io.load(model({"w": rng.normal(size=(1, 1, 48, 40))}, "y = MatMul(x, w)", "float[1,1,rows,40] y"))
    made = in_forms(source, {"n0": WeightFormat(8, 16)})
    io.save(made, tmp_path / "made.onnx")
    feeds = {"x": rng.normal(size=(3, 48)).astype(np.float32)}
    exact, found = run(source, **feeds)["y"], run(tmp_path / "made.onnx", **feeds)["y"]
    assert exact.shape == found.shape == (1, 1, 3, 40)
    assert np.linalg.norm(exact - found) < 0.02 * np.linalg.norm(exact)
