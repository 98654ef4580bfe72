"""Attention sinks go into the operator that has them, or stay as they were spelled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper
from suite.decoders.decoder_models import NAMES, decoder, without_past

from onnxrewrite import io
from onnxrewrite.suite.decoders import genai_conversion
from onnxrewrite.suite.decoders.genai_config import Special
from onnxrewrite.suite.decoders.genai_conversion import GenaiSettings, genai
from onnxrewrite.suite.decoders.sinks import SinksStay

SETTINGS = GenaiSettings(special=Special(context=48, eos=(2,)), tokens=8)
HEADS = 4


def with_sinks(model: onnx.ModelProto, *, less_largest: bool = True, cut: int = -1) -> onnx.ModelProto:
    """A decoder with a number beside the scores of each head, in each layer; ``cut``: where the Slice
    ends."""
    is_old = model.opset_import[0].version < 18
    graph, nodes = model.graph, list(model.graph.node)
    del graph.node[:]
    rng = np.random.default_rng(3)
    bounds = {"sink_start": [0], "sink_end": [cut], "sink_axis": [3], "sink_one": [1]}
    graph.initializer.extend(numpy_helper.from_array(np.array(v, np.int64), n) for n, v in bounds.items())
    for number, node in enumerate(nodes):
        if node.op_type != "Softmax":
            graph.node.append(node)
            continue
        name, (scores,), (result,) = f"sinks{number}", list(node.input), list(node.output)
        # of the order of scores: a Softmax without them is something else
        graph.initializer.append(numpy_helper.from_array(rng.normal(1, 1, (1, HEADS, 1, 1)).astype(np.float32), name))
        make = helper.make_node
        graph.node.extend(
            [
                make("Shape", [scores], [f"{name}.shape"], start=0, end=3),
                make("Concat", [f"{name}.shape", "sink_one"], [f"{name}.sizes"], axis=0),
                make("Expand", [name, f"{name}.sizes"], [f"{name}.all"]),
                make("Concat", [scores, f"{name}.all"], [f"{name}.joined"], axis=-1),
            ]
        )
        before = f"{name}.joined"
        if less_largest:
            axes = [] if is_old else ["sink_axis"]
            how = {"axes": [3]} if is_old else {}
            graph.node.append(make("ReduceMax", [before, *axes], [f"{name}.largest"], keepdims=1, **how))
            graph.node.append(make("Sub", [before, f"{name}.largest"], [f"{name}.less"]))
            before = f"{name}.less"
        graph.node.append(make("Softmax", [before], [f"{name}.shares"], axis=-1))
        graph.node.append(make("Slice", [f"{name}.shares", "sink_start", "sink_end", "sink_axis"], [result]))
    return model


def sinks_of(path: Path) -> list[np.ndarray]:
    found = [node.inputs[11] for node in io.load(path).graph if node.op_type == "GroupQueryAttention"]
    return [each.const_value.numpy() for each in found if each is not None and each.const_value is not None]


@pytest.mark.parametrize("less_largest", [True, False])
@pytest.mark.parametrize("name", [*NAMES, "without past"])
def test_they_go_into_the_operator(name: str, less_largest: bool, tmp_path: Path) -> None:
    source = without_past() if name == "without past" else decoder(name)
    model = with_sinks(source, less_largest=less_largest)
    wanted = [numpy_helper.to_array(i).reshape(-1) for i in model.graph.initializer if i.dims == [1, HEADS, 1, 1]]
    made = genai(model, tmp_path / "out", SETTINGS)
    assert made.attentions == {"GroupQueryAttention": 2}
    assert made.shared
    found = sinks_of(tmp_path / "out" / "model.onnx")
    assert len(found) == len(wanted) == 2
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_is_cut_off_elsewhere_is_no_sink(tmp_path: Path) -> None:
    model = with_sinks(decoder("llama_past"), cut=-2)  # the newest token and the sink: of another size than the values
    source = io.load(model)
    assert not genai_conversion.take_out(*under_contract(source))


def under_contract(source: ir.Model) -> tuple[ir.Model, genai_conversion.Interface]:
    made: tuple[ir.Model, genai_conversion.Interface] = genai_conversion.under_contract(
        source, genai_conversion.find_interface(source)
    )
    return made


@pytest.mark.slow
def test_where_the_operator_does_not_come_they_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(genai_conversion._Made, "_grouped", lambda self: self.model)  # as if every attention refused
    made = genai(with_sinks(decoder("llama_past")), tmp_path / "out", SETTINGS)
    assert any("the sinks stay: an attention that has some is no GroupQueryAttention" in note for note in made.notes)
    assert made.attentions == {"Softmax": 2}
    assert made.check.error < 1e-4


@pytest.mark.slow
def test_where_a_mask_stays_its_sinks_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def stays(*given: object, **how: object) -> object:
        calls.append(how["sinks"])
        if how["sinks"]:
            raise SinksStay("layer 0: the sinks stay, for its mask does: it is odd")
        return original(*given, **how)  # type: ignore[arg-type]

    original = genai_conversion.masks.take_out
    monkeypatch.setattr(genai_conversion.masks, "take_out", stays)
    made = genai(with_sinks(decoder("gpt2_past")), tmp_path / "out", SETTINGS)
    assert [bool(each) for each in calls] == [True, False]
    assert "layer 0: the sinks stay, for its mask does: it is odd" in made.notes
