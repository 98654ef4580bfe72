"""Precision maps, and the regions that they may name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from suite.precision.graphs import golden, mlp, parsed

from onnxrewrite import io
from onnxrewrite.errors import UsageError
from onnxrewrite.runtime.installed import saturates
from onnxrewrite.suite.precision.mixed import assign, mixed_precision, read_map
from onnxrewrite.suite.precision.nodes import Named
from onnxrewrite.suite.precision.regions import regions
from onnxrewrite.suite.quality.data import load_data
from onnxrewrite.suite.quantization.quantize_settings import QuantizeSettings


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "bert_dynamo", "gpt2_past"])
def test_regions(name: str) -> None:
    found = regions(golden(name))
    found.pop("output_layer")
    model = onnx.load(golden(name))
    where = {n: region for region, names in found.items() for n in names}
    assert sum(map(len, found.values())) == len(where), "each node in one"
    makers = {o: n for n in model.graph.node for o in n.output}
    softmaxes = [n for n in model.graph.node if n.op_type == "Softmax"]
    assert len(softmaxes) == 2
    assert {where.get(n.name) for n in softmaxes} == {"attention"}
    assert {where.get(makers[n.input[0]].name) for n in softmaxes} == {"attention"}
    tables = {t.name for t in model.graph.initializer if len(t.dims) == 2}
    looked_up = [n for n in model.graph.node if n.op_type == "Gather" and n.input[0] in tables]
    assert looked_up
    assert {where.get(n.name) for n in looked_up} == {"embeddings"}
    products = [n for n in model.graph.node if n.op_type in ("MatMul", "Gemm") and n.input[1] in tables]
    counts = [sum(where.get(n.name) == r for n in products) for r in ("attention", "feed_forward", "head")]
    assert counts in ([8, 4, 1], [4, 4, 1])  # gpt2 has one product for query, key and value


def test_a_gated_feed_forward_is_whole() -> None:
    found = regions(golden("llama_past"))
    model = onnx.load(golden("llama_past"))
    assert sum(n.op_type == "MatMul" for n in model.graph.node if n.name in found["feed_forward"]) == 6


@pytest.mark.parametrize("name", ["resnet", "mobilenet_hardswish"])
def test_a_cnn_has_no_attention(name: str) -> None:
    assert not regions(golden(name))["attention"]


def layers(operator: str, activation: str, count: int = 2) -> onnx.ModelProto:
    """Products with an activation between each two, and after none else."""
    rng = np.random.default_rng(0)
    weights = {f"w{n}": rng.normal(size=(16, 16)).astype(np.float32) for n in range(count)}
    weights |= {f"b{n}": rng.normal(size=16).astype(np.float32) for n in range(count)} if operator == "Gemm" else {}
    declared = ", ".join(f"float[{','.join(map(str, w.shape))}] {n}" for n, w in weights.items())
    lines, value = [], "x"
    for n in range(count):
        operands = f"{value}, w{n}, b{n}" if operator == "Gemm" else f"{value}, w{n}"
        lines.append(f"{'y' if n == count - 1 else f'h{n}'} = {operator} ({operands})")
        lines += [f"a{n} = {activation} (h{n})"] if n < count - 1 else []
        value = f"a{n}"
    made = parsed(f"g (float[batch, 16] x) => (float[batch, 16] y) <{declared}> {{ {' '.join(lines)} }}")
    made.graph.initializer.extend(onnx.numpy_helper.from_array(w, n) for n, w in weights.items())
    return made


@pytest.mark.parametrize("operator", ["Gemm", "MatMul"])
@pytest.mark.parametrize("activation", ["Relu", "Tanh", "LeakyRelu", "HardSwish", "Softplus"])
def test_plain_layers_are_a_feed_forward_with_an_output_layer(operator: str, activation: str) -> None:
    found = regions(layers(operator, activation))
    assert found["feed_forward"] == {"h0", "a0", "y"}
    assert found["output_layer"] == {"y"}


@pytest.mark.parametrize(
    ("name", "last"), [("gpt2_past", "lm_head"), ("resnet", "head"), ("mobilenet_hardswish", "classifier.3")]
)
def test_the_output_layer_is_the_last_product(name: str, last: str) -> None:
    assert any(last in node for node in regions(golden(name))["output_layer"])


def test_what_ends_in_a_residual_sum_and_a_norm_has_no_output_layer() -> None:
    assert not regions(golden("whisper_encoder"))["output_layer"]


def test_the_output_layer_is_closer_than_the_region_that_it_is_in() -> None:
    found = mixed_precision(layers("Gemm", "Relu", 3), {"output_layer": "float32", "feed_forward": "int8"}, gate=None)
    assert {name: each.precision for name, each in found.nodes.items() if name[0] in "hy"} == {
        "h0": "int8",
        "h1": "int8",
        "y": "float32",
    }


def test_a_region_that_the_model_does_not_have_is_an_error() -> None:
    with pytest.raises(
        UsageError, match="precision attention: the model has no such region; it has feed_forward, output"
    ):
        mixed_precision(layers("Gemm", "Relu"), {"attention": "float16"})


def test_every_node_has_one_precision_by_the_closest_key() -> None:
    nodes = list(io.load(mlp(scopes=True)).graph)
    named = Named(nodes, {"head": {"/net/block.3/fc/MatMul"}})
    found = assign(
        named,
        {
            "*": "float16",
            "Relu": "bfloat16",
            "head": "float32",
            "block.1": "int8",
            "block.*": "float16",
            "/net/block.1/fc/Relu": "float32",
        },
    )
    assert found == {
        "/net/block.0/fc/MatMul": ("float16", "block.*"),
        "/net/block.0/fc/Relu": ("float16", "block.*"),
        "/net/block.1/fc/MatMul": ("int8", "block.1"),
        "/net/block.1/fc/Relu": ("float32", "/net/block.1/fc/Relu"),
        "/net/block.2/fc/MatMul": ("float16", "block.*"),
        "/net/block.2/fc/Relu": ("float16", "block.*"),
        "/net/block.3/fc/MatMul": ("float16", "block.*"),
        "/net/block.3/fc/Relu": ("float16", "block.*"),
    }
    assert assign(named, {"head": "int8"})["/net/block.0/fc/MatMul"] == ("float32", "")


@pytest.mark.slow
def test_a_transformer_in_three_precisions() -> None:
    data = load_data(None, golden("bert"), most=2)
    wanted = {"embeddings": "float32", "attention": "float16", "feed_forward": "int8"}
    found = mixed_precision(golden("bert"), wanted, QuantizeSettings(reduce_range=saturates()), data=data)
    operators = {n.name: n.op_type for n in found.to_proto().graph.node}
    low = [name for name, each in found.nodes.items() if each.precision == "int8"]
    assert len(low) == 4
    assert not set(low) & {n for n, op in operators.items() if op == "MatMul"}
    for name, each in found.nodes.items():
        assert (each.precision == each.asked) == (each.reason == ""), name
    assert "does not take" in next(each.reason for each in found.nodes.values() if each.asked == "int8" and each.reason)
    halves = [n for n, each in found.nodes.items() if each.precision == "float16"]
    types = {v.name: v.type.tensor_type.elem_type for v in found.to_proto().graph.value_info}
    made = {n.name: n.output[0] for n in found.to_proto().graph.node}
    assert {types[made[n]] for n in halves} == {onnx.TensorProto.FLOAT16}
    assert found.quality is not None
    assert found.quality.worst.snr > 30


def test_two_halves() -> None:
    found = mixed_precision(mlp(scopes=True), {"block.0": "float16", "block.1": "bfloat16"}, target="onnx", gate=None)
    assert found.counts == {"float32": 4, "float16": 2, "bfloat16": 2}
    onnx.checker.check_model(found.to_proto(), full_check=True)


def test_a_toml_file(tmp_path: Path) -> None:
    path = tmp_path / "map.toml"
    path.write_text('[precision]\nattention = "float16"\n"encoder.layer.1*" = "float32"\n', encoding="utf-8")
    assert read_map(path) == {"attention": "float16", "encoder.layer.1*": "float32"}
    path.write_text("attention = = 1", encoding="utf-8")
    with pytest.raises(UsageError, match=r"map.toml: is no TOML file"):
        read_map(path)
    path.write_text('precision = "int8"', encoding="utf-8")
    with pytest.raises(UsageError, match="must be a table"):
        read_map(path)
    with pytest.raises(UsageError, match="no such file"):
        read_map(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"block.0": "int7"}, "precision of block.0 must be float32, float16, bfloat16, int8, int4, not 'int7'"),
        ({"block.0": 8}, "precision of block.0 must be"),
        ({"block.0": "int8", "block.1": "int4"}, "int8 or int4, not both"),
        ({"blok.0": "int8"}, "precision blok.0: no node, scope or operator is called so; the nearest is block.0"),
        ({"atention": "int8"}, "the nearest is attention"),
    ],
)
def test_bad_maps(wanted: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        mixed_precision(mlp(scopes=True), wanted)
