"""A cached session gives what the session gives, remembers it within its limits, and cannot be corrupted."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import onnxrewrite as rw
from onnxrewrite.errors import ModelError, UsageError
from onnxrewrite.runtime.cached import CacheInfo, fingerprint

SQUARES = """<ir_version: 8, opset_import: ["": 17]>
g (float[n] x, float[1] w) => (float[n] y, float[n] z) <float[1] w = {2.0}> { y = Mul(x, x)  z = Mul(x, w) }"""


def written(path: Path, source: str) -> Path:
    onnx.save(onnx.parser.parse_model(source), path)
    return path


@pytest.fixture
def squares(tmp_path: Path) -> Path:
    return written(tmp_path / "squares.onnx", SQUARES)


def x(*values: float) -> dict[str, Any]:
    return {"x": np.array(values, np.float32)}


def test_the_second_time_nothing_is_computed(squares: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = rw.sessions.CachedSession(squares)
    first = opened.run(None, x(1, 2, 3))
    monkeypatch.setattr(opened, "_computed", pytest.fail)
    again = opened.run(["y", "z"], x(1, 2, 3))
    plain = rw.session(squares).run(None, x(1, 2, 3))
    for one, two, three in zip(first, again, plain, strict=True):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one, three)
    assert opened.info == CacheInfo(hits=1, misses=1, entries=1, bytes=24)
    assert (opened.hits, opened.misses, opened.hit_rate) == (1, 1, 0.5)
    assert opened.info.to_json()["hit_rate"] == 0.5
    opened.clear()
    assert opened.info == CacheInfo(0, 0, 0, 0)
    assert opened.hit_rate == 0.0


def test_every_difference_counts(squares: Path) -> None:
    opened = rw.sessions.CachedSession(squares)
    runs: list[tuple[list[str] | None, dict[str, Any]]] = [
        (None, x(1, 2)),
        (None, x(2, 1)),
        (None, x(1, 2, 0)),
        (None, x(1, 0.0)),
        (None, x(1, -0.0)),
        (None, x(1, float("nan"))),
        (["y"], x(1, 2)),
        (["z", "y"], x(1, 2)),
        (None, {**x(1, 2), "w": np.array([3], np.float32)}),
    ]
    plain = rw.session(squares)
    for _ in range(2):
        for names, feeds in runs:
            for ours, theirs in zip(opened.run(names, feeds), plain.run(names, feeds), strict=True):
                np.testing.assert_array_equal(ours, theirs)
    assert (opened.hits, opened.misses) == (len(runs), len(runs))


def test_what_is_given_away_cannot_corrupt_the_cache(squares: Path) -> None:
    opened = rw.sessions.CachedSession(squares)
    feeds = x(1, 2)
    for _ in range(2):
        found = opened.run(None, feeds)
        with pytest.raises(ValueError, match="read-only"):
            found[0][0] = 7
        with pytest.raises(ValueError, match="WRITEABLE"):
            found[0].flags.writeable = True
        found.clear()
    feeds["x"][0] = 5  # nor can what was given to it
    np.testing.assert_array_equal(opened.run(["y"], x(1, 2))[0], [1, 4])
    np.testing.assert_array_equal(opened.run(["y"], feeds)[0], [25, 4])


def test_the_least_recently_used_goes_first(squares: Path) -> None:
    opened = rw.sessions.CachedSession(squares, maxsize=2)
    for value in (1, 2, 1, 3, 1, 2):
        opened.run(None, x(value))
    assert (opened.hits, opened.misses) == (2, 4)  # 1 and 1 again; 2 was driven out by 3
    assert opened.info.entries == 2


def test_bytes_are_limited_too(squares: Path) -> None:
    opened = rw.sessions.CachedSession(squares, max_bytes=100)
    for value in range(5):
        opened.run(None, x(value, 0, 0, 0))  # 32 bytes of outputs
    assert opened.info.entries == 3
    assert opened.info.bytes == 96
    opened.run(None, {"x": np.zeros(1000, np.float32)})
    assert opened.info.entries == 3  # what is too large alone drives nothing out


@pytest.mark.parametrize("limits", [{"maxsize": 0}, {"max_bytes": 0}])
def test_nothing_may_be_remembered(squares: Path, limits: dict[str, int]) -> None:
    opened = rw.sessions.CachedSession(squares, **limits)
    for _ in range(2):
        np.testing.assert_array_equal(opened.run(["y"], x(3))[0], [9])
    assert opened.info == CacheInfo(0, 2, 0, 0)


def test_arrays_of_no_elements_and_other_strides(squares: Path) -> None:
    opened = rw.sessions.CachedSession(squares)
    assert opened.run(["y"], x())[0].shape == (0,)
    assert opened.run(["y"], x())[0].shape == (0,)
    wide = np.arange(6, dtype=np.float32)
    np.testing.assert_array_equal(opened.run(["y"], {"x": wide[::2]})[0], [0, 4, 16])
    np.testing.assert_array_equal(opened.run(["y"], {"x": wide[:3]})[0], [0, 1, 4])
    assert opened.run(["y"], {"x": wide[::2].copy()})[0][2] == 16
    assert (opened.hits, opened.misses) == (2, 3)


def test_texts(tmp_path: Path) -> None:
    source = '<ir_version: 8, opset_import: ["": 17]> g (string[n] x) => (string[n] y) { y = Identity(x) }'
    opened = rw.sessions.CachedSession(written(tmp_path / "texts.onnx", source))
    for words in (["a", "bc"], ["ab", "c"], ["", "Zürich"], []):
        for _ in range(2):
            found = opened.run(None, {"x": np.array(words, dtype=object)})[0]
            assert found.tolist() == words
            with pytest.raises(ValueError, match="read-only"):
                found[:] = "x"
    assert (opened.hits, opened.misses) == (4, 4)
    assert opened.info.bytes == 6 * 8 + 3 + 3 + 7
    assert opened.run(None, {"x": np.array(["a", "bc"])})[0].tolist() == ["a", "bc"]


def test_bfloat16(tmp_path: Path) -> None:
    source = '<ir_version: 10, opset_import: ["": 21]> g (bfloat16[n] x) => (bfloat16[n] y) { y = Identity(x) }'
    opened = rw.sessions.CachedSession(written(tmp_path / "narrow.onnx", source))
    feeds = {"x": np.array([1.5, -2, 0], ml_dtypes.bfloat16)}
    for _ in range(2):
        found = opened.run(None, feeds)[0]
        assert found.dtype == ml_dtypes.bfloat16
        np.testing.assert_array_equal(found, feeds["x"])
        assert not found.flags.writeable
    assert opened.hits == 1


def test_sequences_in_and_out(tmp_path: Path) -> None:
    source = """<ir_version: 8, opset_import: ["": 17]>
    g (seq(float[n]) x, float[n] e) => (seq(float[n]) y) { y = SequenceInsert(x, e) }"""
    opened = rw.sessions.CachedSession(written(tmp_path / "sequences.onnx", source))
    one, two = np.ones(2, np.float32), np.zeros(2, np.float32)
    for _ in range(2):
        found = opened.run(None, {"x": [one, two], "e": one})[0]
        assert [v.tolist() for v in found] == [[1, 1], [0, 0], [1, 1]]
        found[0][:] = 9
        found.clear()
    assert len(opened.run(None, {"x": [one], "e": one})[0]) == 2
    assert (opened.hits, opened.misses) == (1, 2)


def test_values_of_onnxruntime_and_lists_are_inputs_too(squares: Path) -> None:
    opened = rw.sessions.CachedSession(squares)
    opened.run(None, x(1, 2))
    value = ort.OrtValue.ortvalue_from_numpy(np.array([1, 2], np.float32))
    np.testing.assert_array_equal(opened.run(["y"], {"x": value})[0], [1, 4])
    opened.run(None, {"x": value})
    assert opened.hits == 1


def test_run_options_go_past_the_cache(squares: Path) -> None:
    opened = rw.sessions.CachedSession(squares)
    found = opened.run(["y"], x(2), ort.RunOptions())
    found[0][0] = 1  # nobody else has it
    assert opened.info == CacheInfo(0, 0, 0, 0)


@pytest.mark.parametrize(
    ("names", "feeds", "line"),
    [
        (["q"], x(1), "the model has no output 'q'; it has y, z"),
        (None, {"q": 1, **x(1)}, "the model has no input 'q'; it has x, w"),
    ],
)
def test_names_are_checked(squares: Path, names: Any, feeds: Any, line: str) -> None:
    with pytest.raises(UsageError, match=line):
        rw.sessions.CachedSession(squares).run(names, feeds)


def test_what_does_not_run_is_one_line_and_not_remembered(squares: Path) -> None:
    opened = rw.sessions.CachedSession(squares)
    for feeds in ({}, {"x": np.zeros((2, 2), np.float32)}, {"x": np.zeros(2, np.int64)}):
        with pytest.raises(ModelError, match="the model does not run: "):
            opened.run(None, feeds)
    assert opened.info.entries == 0


RANDOM = {
    "in the graph": "g (float[n] x) => (float[n] y) { r = RandomNormalLike(x)  y = Add(x, r) }",
    "in a branch": """g (float[n] x, bool c) => (float[n] y) {
        y = If (c) <then_branch = a () => (float[n] p) { p = RandomUniformLike(x) },
                    else_branch = b () => (float[n] q) { q = Identity(x) }> }""",
    "with a seed": "g (float[n] x) => (float[n] y) { y = RandomNormalLike<seed = 1.0>(x) }",
}


@pytest.mark.parametrize("source", RANDOM.values(), ids=list(RANDOM))
@pytest.mark.parametrize("is_open", [False, True])
def test_a_random_model_is_no_function(tmp_path: Path, source: str, is_open: bool) -> None:
    path = written(tmp_path / "random.onnx", f'<ir_version: 8, opset_import: ["": 17]> {source}')
    model = ort.InferenceSession(path) if is_open else path
    with pytest.raises(UsageError, match=r"the model is random \(Random\w+Like\), so its outputs cannot be remembered"):
        rw.sessions.CachedSession(model)


def test_an_open_session_will_do(squares: Path) -> None:
    for source in (squares, squares.read_bytes()):
        opened = rw.sessions.CachedSession(ort.InferenceSession(source), 4)
        assert opened.run(["y"], x(3))[0].tolist() == [9]
        assert [i.name for i in opened.get_inputs()] == ["x"]
        assert [o.name for o in opened.get_outputs()] == ["y", "z"]
        assert "CPUExecutionProvider" in opened.get_providers()
    with pytest.raises(UsageError, match="takes no options"):
        rw.sessions.CachedSession(ort.InferenceSession(squares), threads=1)
    gone = ort.InferenceSession(squares)
    squares.unlink()
    with pytest.raises(UsageError, match="give the path of its file"):
        rw.sessions.CachedSession(gone)


def test_options_go_to_the_session(squares: Path) -> None:
    assert rw.sessions.CachedSession(squares, threads=1).session.get_session_options().intra_op_num_threads == 1
    with pytest.raises(UsageError, match="must not be negative"):
        rw.sessions.CachedSession(squares, maxsize=-1)
    with pytest.raises(ModelError, match="no such file"):
        rw.sessions.CachedSession("none.onnx")


def test_several_threads_at_a_time(squares: Path) -> None:
    opened = rw.sessions.CachedSession(squares, maxsize=4)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for value in rng.integers(0, 8, 100):
            found = opened.run(["y"], x(value))[0].tolist()
            if found != [value**2]:
                wrong.append((value, found))

    workers = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    assert wrong == []
    assert opened.hits + opened.misses == 600
    assert opened.info.entries == 4
    assert opened.info.bytes == 16


arrays = hnp.arrays(
    st.sampled_from([np.float32, np.int64, np.uint8, np.bool_, np.float16]), hnp.array_shapes(min_dims=0, min_side=0)
)


@given(arrays, arrays)
def test_a_fingerprint_is_that_of_dtype_shape_and_bytes(a: Any, b: Any) -> None:
    same = a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    assert (fingerprint(["y"], {"x": a}) == fingerprint(["y"], {"x": b})) == same
    assert fingerprint(["y"], {"x": a, "w": b}) == fingerprint(["y"], {"w": b, "x": a})
    assert fingerprint(["y"], {"x": a}) == fingerprint(["y"], {"x": np.array(a, order="F")})


@given(st.lists(st.text(max_size=3), max_size=3), st.lists(st.text(max_size=3), max_size=3))
def test_texts_have_their_borders_in_the_fingerprint(a: list[str], b: list[str]) -> None:
    prints = [fingerprint(["y"], {"x": np.array(v, dtype=object)}) for v in (a, b)]
    assert (prints[0] == prints[1]) == (a == b)


def test_narrow_dtypes_of_the_same_bytes_differ() -> None:
    raw = np.array([1, 2], np.uint8)
    dtypes = [np.uint8, np.int8, np.bool_, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3b11fnuz]
    assert len({fingerprint(["y"], {"x": raw.view(d)}) for d in dtypes}) == len(dtypes)
    assert len({fingerprint(["y"], {"x": v}) for v in (None, [], [raw], [[raw]], {"a": raw}, "a", b"a", 1, 1.0)}) == 9
