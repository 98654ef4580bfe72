"""Messages that refer to their weights, and sessions of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxrewrite import io
from onnxrewrite.io import mapped
from onnxrewrite.reference.evaluation import build_reference
from onnxrewrite.reference.perturbation import perturbed_model
from onnxrewrite.runtime import references
from onnxrewrite.runtime.references import by_reference, digest, referred, referred_bytes
from onnxrewrite.runtime.session import Session, message_bytes, open_session, weight_bytes
from onnxrewrite.runtime.settings import Setting, open_runner

FEEDS = {"x": np.random.default_rng(0).standard_normal((3, 128)).astype(np.float32)}
TEXT = "g (float[n, 128] x) => (float[n, 128] y) { m = MatMul(x, w) h = Tanh(m) k = MatMul(h, v) y = Add(k, b) }"


def net(seed: int = 0, dtype: type = np.float32, text: str = TEXT) -> ir.Model:
    """A model of two large weights and a small one."""
    rng = np.random.default_rng(seed)
    made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    for name, shape in (("w", (128, 128)), ("v", (128, 128)), ("b", (128,))):
        value = (np.full(shape, 0.5) if name == "b" else 0.1 * rng.standard_normal(shape)).astype(dtype)
        made.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    model = ir.from_proto(made)
    for value in model.graph.initializers.values():
        assert value.const_value is not None
        value.const_value = ir.Tensor(value.const_value.numpy(), name=value.name)
    return io.load(model)


@pytest.fixture
def message() -> Iterator[onnx.ModelProto]:
    with by_reference(net()) as proto:
        yield proto


def outputs(session: Session | str) -> np.ndarray:
    assert isinstance(session, Session), session
    found = session.run(FEEDS)
    assert not isinstance(found, str), found
    return np.asarray(found["y"])


def test_a_message_refers_to_what_is_large(message: onnx.ModelProto) -> None:
    assert [t.name for t in message.graph.initializer if referred(t) is not None] == ["w", "v"]
    assert message.ByteSize() < 2000
    assert weight_bytes(message) == referred_bytes(message) + 512 == 2 * 4 * 128 * 128 + 512
    assert message_bytes(message) == 512


def test_external_data_of_any_size(tmp_path: Path) -> None:
    """Large ones are referred to, small ones are in the message."""
    onnx.save(io.to_proto(net()), tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0, location="m.data")
    model = io.load(tmp_path / "m.onnx")
    with by_reference(model) as proto:
        assert [t.name for t in proto.graph.initializer if referred(t) is not None] == ["w", "v"]
        np.testing.assert_array_equal(outputs(open_session(proto)), outputs(open_session(io.to_proto(net()))))


def test_references_end_with_the_context() -> None:
    with by_reference(net()) as proto:
        pass
    assert referred_bytes(proto) == 0
    assert isinstance(open_session(proto), str)


def test_a_session_computes_the_same(message: onnx.ModelProto) -> None:
    np.testing.assert_array_equal(outputs(open_session(message)), outputs(open_session(io.to_proto(net()))))


@pytest.mark.parametrize("packed", [0, 2**28])
@pytest.mark.parametrize("level", ["all", "disabled"])
def test_timed_sessions_compute_the_same(
    packed: int, level: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also those that read the model's own file, and weights that lie in none."""
    monkeypatch.setattr(references, "PACKED", packed)
    monkeypatch.setattr(mapped, "LEAST", 0)
    io.save(net(), tmp_path / "m.onnx", external_data=False)
    model = io.load(tmp_path / "m.onnx")
    model.graph.initializers["v"].const_value = ir.Tensor(np.eye(128, dtype=np.float32), name="v")
    with by_reference(model) as proto:
        found = open_runner(proto, FEEDS, Setting(level=level))()[0]  # type: ignore[arg-type]
    wanted = outputs(open_session(io.to_proto(model)))
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_reference_is_the_same(dtype: type) -> None:
    text = TEXT.replace("float[", "double[") if dtype == np.float64 else TEXT
    model = net(dtype=dtype, text=text)
    with by_reference(model) as proto:
        found = build_reference(proto)
        assert found.kind == "float64"
        mine = found.run(FEEDS)
    theirs = build_reference(io.to_proto(model)).run(FEEDS)
    assert mine is not None
    assert theirs is not None
    np.testing.assert_array_equal(mine["y"], theirs["y"])


def test_weights_that_are_referred_to_are_perturbed(message: onnx.ModelProto) -> None:
    still = outputs(open_session(message))
    moved = perturbed_model(message, 0)
    assert moved is not None
    assert {t.name for t in moved.graph.initializer if referred(t) is not None} == {"w::still", "v::still"}
    by_weight = np.abs(outputs(open_session(moved)) - still).max() / np.abs(still).max()
    copied = perturbed_model(io.to_proto(net()), 0)
    assert copied is not None
    by_copy = np.abs(outputs(open_session(copied)) - still).max() / np.abs(still).max()
    assert 1e-8 < by_weight < 1e-5
    assert 0.1 < by_weight / by_copy < 10


def test_a_digest_knows_no_weights() -> None:
    def of(seed: int, text: str = TEXT) -> str:
        with by_reference(net(seed, text=text)) as proto:
            return digest(proto)

    assert of(0) == of(1)
    assert of(0) != of(0, TEXT.replace("Tanh", "Sigmoid"))
