"""What recurs and no rule takes in: the costliest first, each with a command that captures it."""

from __future__ import annotations

import shlex
import time

import onnx
import pytest
from corpus import ROOT

import onnxrewrite as rw
from onnxrewrite import io
from onnxrewrite.authoring.growth import MOST, grown
from onnxrewrite.authoring.mining import Recurring, chosen
from onnxrewrite.authoring.unmatched import Left, value_names
from onnxrewrite.errors import UsageError
from onnxrewrite.ir import text
from onnxrewrite.ir.target import target
from onnxrewrite.rewrite.driver import Driver

ODD = "a# = Sin(x#)  b# = Mul(a#, x#)  c# = Cos(b#)  d# = Max(c#, x#)  x@ = MatMul(d#, float[16,16] ~)"
GELU = "d# = Div(x#, 1.41421356)  e# = Erf(d#)  a# = Add(e#, 1.0)  m# = Mul(x#, a#)  x@ = Mul(m#, 0.5)"


KINDS = ("Sin", "Cos", "Tanh", "Sin", "Exp")


def layers(template: str, count: int, first: int = 0) -> str:
    return "  ".join(template.replace("#", str(n)).replace("@", str(n + 1)) for n in range(first, first + count))


def mined(graph: str, top: int = 10) -> list[Recurring]:
    return rw.mine(text.parse(graph, opset=17), top=top)


def captures(graph: str, found: Recurring) -> rw.authoring.capture.Captured:  # type: ignore[name-defined]
    return rw.capture(text.parse(graph, opset=17), found.starts, found.ends, name=found.name)


def test_what_recurs_is_found_and_can_be_captured() -> None:
    graph = f"float[b,16] x0; {layers(ODD, 4)}  y = Softmax(x4)"
    (first, *_) = mined(graph)
    assert first.places >= 3
    assert set(first.operators) >= {"Sin", "Mul", "Cos", "Max"}
    assert len(captures(graph, first).places) >= first.places


def test_what_a_rule_takes_is_left_out() -> None:
    assert all("Erf" not in f.operators for f in mined(f"float[b,16] x0; {layers(GELU, 4)}"))


def test_nothing_recurs() -> None:
    assert mined("float[b,16] x; y = Sin(x)") == []


def test_no_two_have_a_node_in_common_and_the_costliest_is_first() -> None:
    other = "p# = Tan(x#)  q# = Atan(p#)  x@ = Sinh(q#)"
    found = mined(f"float[b,16] x0; {layers(ODD, 6)} {layers(other, 3, 6)}")
    weights = [f.places * len(f.operators) for f in found]
    assert weights == sorted(weights, reverse=True)
    assert sum(weights) <= 6 * 5 + 3 * 3


def test_several_models() -> None:
    models = [text.parse(f"float[b,16] x0; {layers(ODD, n)}", opset=17) for n in (2, 3)]
    (first, *_) = rw.mine(models)
    assert set(first.models) == {"model 1", "model 2"}
    assert sum(first.models.values()) == first.places


@pytest.mark.slow
@pytest.mark.parametrize("model", ["unet_block", "yolo", "mobilenet_hardswish"])
def test_every_command_captures_what_was_found(model: str) -> None:
    path = ROOT / "golden_models" / model / "model.onnx"
    found = rw.mine(path, top=4)
    assert found
    for each in found:
        made = rw.capture(path, each.starts, each.ends, name=each.name)
        assert len(made.places) >= each.places
        assert made.operators == len(each.operators)


@pytest.mark.slow
def test_by_time() -> None:
    graph = f"float[256,256] x0; {layers(ODD.replace('16,16', '256,256'), 3)}"
    found = rw.mine(io.load(text.parse(graph, opset=17)), profile=True)
    seconds = [f.seconds for f in found]
    assert all(s is not None for s in seconds)
    assert seconds == sorted(seconds, key=lambda s: -(s or 0.0))
    assert seconds[0]


def test_a_command_is_quoted() -> None:
    found = Recurring(("Sin",), 2, {"m": 2}, None, "my model.onnx", ("a b",), ("c",), "sin")
    assert shlex.split(found.command)[2:] == ["my model.onnx", "--from", "a b", "--to", "c", "--name", "sin"]


def test_it_grows_no_further_than_it_may() -> None:
    found = mined(f"float[b,16] x0; {layers('x@ = Sin(x#)', 120)}")
    assert all(len(f.operators) <= MOST for f in found)


def test_no_model_is_told() -> None:
    with pytest.raises(UsageError, match="at least one model"):
        rw.mine([])


@pytest.mark.slow
def test_time_is_in_proportion_to_the_graph() -> None:
    def seconds(count: int) -> float:
        nodes = [onnx.helper.make_node(KINDS[n % 5], [f"x{n}"], [f"x{n + 1}"]) for n in range(count)]
        ends = [onnx.helper.make_tensor_value_info(f"x{n}", onnx.TensorProto.FLOAT, [8]) for n in (0, count)]
        graph = onnx.helper.make_graph(nodes, "chain", ends[:1], ends[1:])
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
        driver = Driver(io.load(model), [], target("onnxruntime-cpu"))
        left = Left.in_model("m", driver, {}, value_names(driver))
        start = time.process_time()
        chosen(grown([left]), 10)
        return time.process_time() - start

    small, large = min(seconds(1000), seconds(1000)), seconds(5000)
    assert large < 18 * small, "five times the nodes; 25 times the time would be its square"
