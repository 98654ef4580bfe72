"""What things are called: in the exporter's words where these tell, else by what they are for."""

from __future__ import annotations

import pytest

from onnxrewrite.authoring.naming import Names, telling


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("bert.encoder.layer.3.attention.self.query.weight", ["bert", "query", "weight"]),
        ("/m/vit/layers.0/attention/q_proj/Add_output_0", ["vit", "q_proj"]),
        ("/m/encoder/layer.0/output/LayerNorm/Add_1_output_0", ["layernorm"]),
        ("present_0_k", ["present_k"]),
        ("onnx::MatMul_431", []),
        ("val_12", []),
        ("add_2236", []),
        ("c0", []),
        ("x", []),
        ("", []),
        ("größe", []),
    ],
)
def test_words_that_tell(name: str, words: list[str]) -> None:
    assert telling(name) == words


def test_a_name_is_given_once_and_means_nothing_in_python() -> None:
    names = Names(["taken"])
    given = [names.fresh(base) for base in ("x", "x", "taken", "not", "max", "op", "Var")]
    assert given == ["x", "x_2", "taken_2", "not_value", "max_value", "op_2", "Var_2"]
