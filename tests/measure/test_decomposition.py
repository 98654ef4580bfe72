"""The standard's Attention, spelled as exporters do: the same numbers in few nodes; what is unusual stays."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import parser

from onnxrewrite.measure.decomposition import spell_attention

QKV = "float[b,3,s,8] q, float[b,3,l,8] k, float[b,3,l,8] v"


def model(attributes: str = "", mask: str = "", qkv: str = QKV) -> onnx.ModelProto:
    given, read = (f", {mask} m", ", m") if mask else ("", "")
    return parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 23]> g ({qkv}{given}) => (float[b,3,s,8] y)
        {{ y = Attention{attributes}(q, k, v{read}) }}"""
    )


def run(made: onnx.ModelProto) -> np.ndarray:
    random = np.random.default_rng(0)
    feeds = {name: random.standard_normal((2, 3, 5, 8)).astype(np.float32) for name in "qkv"}
    feeds["m"] = random.standard_normal((5, 5)).astype(np.float32)
    feeds["m"][:, 0] = 1  # in rows that are masked throughout, the kernel has numbers where the formula has none
    session = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    given = {i.name: feeds[i.name] > 0 if i.type == "tensor(bool)" else feeds[i.name] for i in session.get_inputs()}
    return session.run(None, given)[0]


@pytest.mark.parametrize("attributes", ["", "<scale=0.25>"])
@pytest.mark.parametrize("mask", ["", "float[s,l]", "bool[s,l]"])
def test_it_computes_the_same_in_few_nodes(attributes: str, mask: str) -> None:
    spelled = model(attributes, mask)
    spell_attention(spelled)
    onnx.checker.check_model(spelled)
    operators = [n.op_type for n in spelled.graph.node]
    assert "Attention" not in operators
    assert len(operators) == 5 + bool(mask)
    np.testing.assert_allclose(run(spelled), run(model(attributes, mask)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("attributes", "qkv"),
    [
        ("<softcap=5.0>", QKV),
        ("<is_causal=1>", QKV),
        ("", QKV.replace("float[b,3,l", "float[b,1,l")),
        ("", QKV.replace("float", "float16")),
        ("", QKV.replace("[b,3,s,8]", "[b,h,s,8]")),
        ("<q_num_heads=1, kv_num_heads=1>", "float[b,s,8] q, float[b,l,8] k, float[b,l,8] v"),
    ],
)
def test_what_is_unusual_stays(attributes: str, qkv: str) -> None:
    made = model(attributes, qkv=qkv)
    before = made.SerializeToString()
    spell_attention(made)
    assert made.SerializeToString() == before
