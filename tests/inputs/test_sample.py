from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from corpus import SHARED_MODELS

from onnxrewrite.errors import UsageError
from onnxrewrite.inputs.bindings import InputSpec, candidates, evaluate, expression_parts
from onnxrewrite.inputs.sample import Sampler, bindings, is_finite, usable
from onnxrewrite.inputs.usage import usages
from onnxrewrite.ir import text
from onnxrewrite.runtime.session import Session, as_proto, open_session, skeleton

SHARED = SHARED_MODELS
MODELS = sorted(SHARED.rglob("*.onnx"))
INT, FLOAT = onnx.TensorProto.INT64, onnx.TensorProto.FLOAT


def specs(*inputs: tuple[str, int, tuple[int | str | None, ...]]) -> list[InputSpec]:
    return [
        InputSpec(name, kind, tuple(f"{name}.{i}" if d is None else d for i, d in enumerate(dims)))
        for name, kind, dims in inputs
    ]


def first(inputs: list[InputSpec], **given: int) -> dict[str, int]:
    return next(candidates(inputs, given))


PAST = ("past_key_values.0.key", FLOAT, ("batch", 2, "past_sequence_length", 32))


@pytest.mark.parametrize(
    "total",
    [
        "past_sequence_length + sequence_length",
        "total_sequence_length",
        "past_sequence_length_plus_sequence_length",
        None,
    ],
)
def test_a_mask_covers_past_and_present(total: str | None) -> None:
    inputs = specs(("input_ids", INT, ("batch", "sequence_length")), ("attention_mask", INT, ("batch", total)), PAST)
    name = total or "attention_mask.1"
    found = first(inputs)
    assert found[name] == found["past_sequence_length"] + found["sequence_length"]
    assert first(inputs, sequence_length=1)[name] == found["past_sequence_length"] + 1


def test_one_step_decoders() -> None:
    found = first(
        specs(
            ("input_ids", INT, ("batch", 1)),
            ("attention_mask", INT, ("batch", "past_sequence_length + 1")),
            PAST,
        )
    )
    assert found["past_sequence_length + 1"] == found["past_sequence_length"] + 1


def test_a_mask_is_as_long_as_what_it_masks() -> None:
    found = first(specs(("input_values", FLOAT, (None, None)), ("attention_mask", INT, (None, None))))
    assert found["attention_mask.1"] == found["input_values.1"] >= 1600
    found = first(specs(("pixel_values", FLOAT, (None, 3, None, None)), ("pixel_mask", INT, (None, None, None))))
    assert (found["pixel_mask.1"], found["pixel_mask.2"]) == (
        found["pixel_values.2"],
        found["pixel_values.3"],
    )
    assert found["pixel_values.2"] != found["pixel_values.3"]


def test_batch_takes_one_and_more() -> None:
    both = list(candidates(specs(("x", FLOAT, ("batch", "seq", 8))), {}))[:2]
    assert {b["batch"] for b in both} == {1, 2}
    assert both[0]["seq"] == 7


def test_strides_leave_something_of_the_sizes() -> None:
    frames = "floor(seq/320) - 1"
    some = [b for b, _ in zip(candidates(specs(("x", FLOAT, ("batch", frames, 8))), {}), range(5), strict=False)]
    assert len(some) == 5
    assert all(b["batch"] < 9 and b[frames] == b["seq"] // 320 - 1 > 0 for b in some)


def test_given_sizes_are_kept() -> None:
    for binding in candidates(specs(("x", FLOAT, ("batch", "seq", 8))), {"batch": 5}):
        assert binding["batch"] == 5


def test_expressions() -> None:
    assert evaluate("2*batch + 1", {"batch": 3}) == 7
    assert evaluate("Max(1, s0//2)", {"s0": 9}) == 4
    assert evaluate("floor(h/2)", {"h": 5}) == 2
    assert evaluate("h/2", {}) is None
    assert evaluate("__import__('os')", {}) is None


@pytest.mark.parametrize("text", ["9**9**9**9", "n**9999999", "2**-1 % 0", "(" * 5000, "max()", "1//0", "\0"])
def test_expressions_that_are_no_sizes(text: str) -> None:
    """Whatever text a file puts there, the answer is none, at once."""
    assert evaluate(text, {"n": 3}) is None
    assert expression_parts(text) <= {"n"}


def test_an_input_that_no_machine_holds_is_not_made(model: Any) -> None:
    sampler = Sampler(model("g (float[1099511627776,8] x) => (float[n,8] y) { y = Relu(x) }"))
    with pytest.raises(UsageError, match=r"input x: \[1099511627776, 8\] is too large to be made up; use --input"):
        sampler.feeds({})


def test_ids_stay_inside_the_table(model: Any) -> None:
    proto = model(
        "g (int64[b, s] words, float[b, s, 2] z) => (float[b, s, 2] y)"
        "<float[4, 2] table = {1,2,3,4,5,6,7,8}, int64 two = {2}>"
        "{ shifted = Add(words, two) c = Cast<to = 6>(shifted) e = Gather(table, c) y = Add(e, z) }"
    )
    feeds = Sampler(proto).feeds({"b": 3, "s": 50})
    assert set(np.unique(feeds["words"])) == {0, 1}


def test_masks_positions_and_types(model: Any) -> None:
    proto = model(
        "g (int64[b, s] attention_mask, int64[b, s] position_ids, int64[b, s] token_type_ids,"
        " bool[b, s] key_padding_mask, int64[b, s, 4] bbox, float[b, 2, past, 8] past_0_k)"
        " => (int64[b, s] y) { y = Identity(attention_mask) }"
    )
    sampler = Sampler(proto)
    sizes = {"b": 3, "s": 8, "past": 5}
    whole, part = sampler.feeds(sizes, 0), sampler.feeds(sizes, 1)
    assert whole["attention_mask"].all()
    assert not part["attention_mask"].all()
    assert part["attention_mask"][:, 0].all()
    assert not whole["key_padding_mask"].any()
    assert whole["position_ids"][0].tolist() == list(range(5, 13))
    assert set(np.unique(whole["token_type_ids"])) <= {0, 1}
    assert (whole["bbox"][..., 2:] >= whole["bbox"][..., :2]).all()


def test_feeds_are_a_function_of_the_seed(model: Any) -> None:
    proto = model("g (float[n] x) => (float[n] y) { y = Relu(x) }")
    one, two, other = (Sampler(proto, seed=s).feeds({"n": 9})["x"] for s in (0, 0, 1))
    assert (one == two).all()
    assert not (one == other).all()
    assert not (one == Sampler(proto).feeds({"n": 9}, sample=1)["x"]).all()


def test_given_arrays_bind_sizes(model: Any) -> None:
    proto = model("g (float[n, 3] x, float[n] z) => (float[n, 3] y) { y = Relu(x) }")
    sampler = Sampler(proto, given={"x": np.zeros((5, 3), np.float32)})
    binding = next(sampler.candidates())
    assert binding == {"n": 5}
    assert sampler.feeds(binding)["z"].shape == (5,)
    for wrong in (np.zeros((5, 4), np.float32), np.zeros(5, np.float32)):
        with pytest.raises(UsageError):
            Sampler(proto, given={"x": wrong})
    with pytest.raises(UsageError, match="no such input"):
        Sampler(proto, given={"nothing": np.zeros(3)})


def test_sizes_that_fail_are_passed_over(model: Any) -> None:
    proto = model("g (float[b, 5] x) => (float[b, 2, k] y) <int64[3] shape = {0, 2, 999983}> { y = Reshape(x, shape) }")
    assert bindings(proto) == []
    proto = model(
        "g (float[b, n, 8] x) => (float[k, 8] y) <int64[2] shape = {-1, 64}> { r = Reshape(x, shape) y = Relu(r) }"
    )
    found = bindings(proto)
    assert found
    assert all(f["b"] * f["n"] % 8 == 0 for f in found)


def test_unknown_inputs_get_safe_values(model: Any) -> None:
    proto = model("g (int64[n] which, float[m, 4] rows) => (float[n, 4] y) { e = Gather(rows, which) y = Relu(e) }")
    session = open_session(proto)
    assert isinstance(session, Session)
    trials, _ = usable(Sampler(proto), session)
    assert len(trials) >= 2


def test_every_table_of_an_embedding_is_known() -> None:
    """Ids, segments and positions are indices into tables of their own."""
    graph = (
        "int32[b,s] ids; int32[b,s] kinds; int32[b,s] places; float[9,8] u; float[7,8] v; float[2,8] w; float[8] g; "
        "y, m = com.microsoft.EmbedLayerNormalization(ids, kinds, u, v, w, g, g, , places)"
    )
    model = as_proto(text.parse(graph, opset=17))
    for name in ("u", "v", "w"):  # tables are constants
        value = next(i for i in model.graph.input if i.name == name)
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        model.graph.input.remove(value)
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(shape, np.float32), name))
    rows = {name: usage.rows for name, usage in usages(model).items() if usage.index}
    assert rows == {"ids": 9, "kinds": 2, "places": 7}


def test_dtypes(model: Any) -> None:
    proto = model(
        "g (uint8[n] image, bfloat16[n] b, float16[n] h, string[n] s, bool[n] k, int8[n] i)"
        " => (uint8[n] y) { y = Identity(image) }"
    )
    feeds = Sampler(proto).feeds({"n": 40})
    assert {k: str(v.dtype) for k, v in feeds.items()} == {
        "image": "uint8", "b": "bfloat16", "h": "float16", "s": "object", "k": "bool", "i": "int8",
    }  # fmt: skip
    assert feeds["image"].max() > 100


@pytest.mark.slow
@pytest.mark.skipif(not MODELS, reason=f"{SHARED} is not here")
@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_shared_models_run_and_are_finite(path: Path) -> None:
    session = open_session(path)
    assert isinstance(session, Session), session
    sampler = Sampler(skeleton(path))
    trials, failed = usable(sampler, session)
    assert not failed
    assert len(trials) >= (2 if sampler.symbols() else 1)
    for trial in trials:
        assert trial.care == 0
        for sample in range(3):
            outputs = session.run(sampler.feeds(trial.binding, sample, trial.care))
            assert not isinstance(outputs, str), outputs
            assert all(is_finite(v) for v in outputs.values())
    for name in sampler.symbols():
        assert len({t.binding[name] for t in trials}) > 1


@pytest.mark.slow
@pytest.mark.skipif(not MODELS, reason=f"{SHARED} is not here")
def test_shared_models_react_to_their_inputs() -> None:
    quiet = [p for p in MODELS if not p.stem.startswith("light_")]
    for path in quiet:
        session = open_session(path)
        assert isinstance(session, Session)
        sampler = Sampler(skeleton(path))
        binding = next(sampler.candidates())
        one, two = (session.run(sampler.feeds(binding, sample)) for sample in (0, 2))
        assert not isinstance(one, str)
        assert not isinstance(two, str)
        assert any(not np.array_equal(one[n], two[n]) for n in one), path


@pytest.mark.parametrize(
    ("graph", "number"),
    [
        ("int64[n] x; s = Shape(x)  y = Abs(x)", True),  # its shape is read, not its values
        ("int64[n] x; int64[n] z; y = BitwiseAnd(x, z)", True),
        ("int64[n] x; int64[n] z; y = Range(0, 1, 1)  s = Reshape(z, x)", False),
        ("uint64[n] z; int64[3] x; y = Gather(z, x)", False),
    ],
)
def test_integers_that_neither_choose_nor_count_are_any(graph: str, number: bool):
    sampler = Sampler(as_proto(text.parse(graph, opset=18)))
    found = {s.name: sampler.is_number(s) for s in sampler.specs}
    assert found["x"] == number


def test_what_is_added_to_an_infinity_is_not_followed():
    found = usages(as_proto(text.parse("float[3] x; a = Add(x, inf)  y = Sub(a, inf)")))
    assert found["x"].moved_by == {"Add"}
