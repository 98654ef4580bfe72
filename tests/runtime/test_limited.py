"""Calls that are limited in time and open to signals."""

from __future__ import annotations

import signal
import threading
import time

import numpy as np
import onnx
import pytest

from onnxrewrite.runtime import limited as module
from onnxrewrite.runtime import session as sessions
from onnxrewrite.runtime.limited import SECONDS, Overrun, is_busy, limited, run_limit, seconds_for, set_run_limit


def nothing() -> None:
    """No call listens to it."""


def test_the_answer_and_the_error_are_those_of_the_call():
    assert limited(lambda: 42, 1.0, nothing) == 42
    assert limited(lambda: 42, None, nothing) == 42
    with pytest.raises(KeyError, match="no such"):
        limited(lambda: {}["no such"], 1.0, nothing)


def test_a_thread_makes_one_call_after_another_on_one_lane():
    lanes = {limited(threading.get_ident, 1.0, nothing) for _ in range(10)}
    assert len(lanes) == 1
    assert threading.get_ident() not in lanes


def test_a_call_that_listens_is_stopped():
    told = threading.Event()
    start = time.monotonic()
    with pytest.raises(Overrun, match=r"longer than 0\.1 s; --run-limit"):
        limited(lambda: told.wait(30), 0.1, told.set)
    assert time.monotonic() - start < 5
    assert not is_busy()


def test_each_part_of_a_call_has_the_limit():
    done = list[float]()

    def call(*parts: float) -> None:
        for part in parts:
            told.wait(part)
            done.append(part)

    told = threading.Event()
    limited(lambda: call(*[0.1] * 8), 0.3, told.set, lambda: len(done))
    assert len(done) == 8
    done.clear()
    start = time.monotonic()
    with pytest.raises(Overrun):
        limited(lambda: call(0.1, 0.1, 30), 0.3, told.set, lambda: len(done))
    assert time.monotonic() - start < 5


def test_runs_one_after_the_other_are_those_that_each_would_be():
    session = opened("(float[2] x, int64[1] s) => (float[n] y) { y = Reshape(x, s) }")
    feeds = [{"x": np.ones(2, np.float32), "s": np.array([n]), "more": np.zeros(1)} for n in (2, 3, -1)]
    each, single = session.run_each(feeds), [session.run(f) for f in feeds]
    assert [type(e) for e in each] == [dict, str, dict]
    assert each[1] == single[1]
    for a, b in ((each[n], single[n]) for n in (0, 2)):
        assert not isinstance(a, str)
        assert not isinstance(b, str)
        assert a.keys() == b.keys()
        assert np.array_equal(np.asarray(a["y"]), np.asarray(b["y"]))


def test_the_first_run_that_takes_too_long_is_the_last():
    body = "body = b (int64 i, bool c, float[1] v) => (bool d, float[1] w) { d = Identity(c)  w = Sin(v) }"
    session = opened(f"(float[1] x, int64 n) => (float[1] y) <bool t = {{1}}> {{ y = Loop<{body}>(n, t, x) }}")
    session.seconds = 0.3
    one = np.ones(1, np.float32)
    first, *others = session.run_each([{"x": one, "n": np.array(n)} for n in (1, 10**9, 1)])
    assert not isinstance(first, str)
    assert set(others) == {session.overrun}
    assert "takes longer than 0.3 s" in session.overrun


def opened(graph: str) -> sessions.Session:
    found = sessions.open_session(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g {graph}'))
    assert not isinstance(found, str)
    return found


def test_a_call_that_does_not_listen_is_abandoned_and_the_next_has_a_lane_of_its_own():
    end = threading.Event()
    with pytest.raises(Overrun):
        limited(lambda: end.wait(30), 0.1, nothing)
    assert is_busy()
    assert limited(lambda: "next", 1.0, nothing) == "next"
    end.set()
    while is_busy():
        time.sleep(0.01)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no timers")
def test_a_signal_is_heard_while_a_call_runs():
    told = threading.Event()

    def ring(*_: object) -> None:
        raise InterruptedError("heard")

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(InterruptedError, match="heard"):
            limited(lambda: told.wait(30), None, told.set)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert told.is_set()


def test_the_limit_follows_the_size_unless_it_is_said(monkeypatch):
    monkeypatch.delenv(module.VARIABLE, raising=False)
    assert seconds_for(0) == SECONDS
    assert seconds_for(1_000_000_000) == SECONDS + 100
    with run_limit(3):
        assert seconds_for(1_000_000_000) == 3
        with run_limit(0):
            assert seconds_for(0) is None
        with run_limit(None):
            assert seconds_for(0) == SECONDS
    monkeypatch.setenv(module.VARIABLE, "7")
    assert seconds_for(0) == 7
    monkeypatch.setenv(module.VARIABLE, "a week")
    assert seconds_for(0) == SECONDS
    set_run_limit(0.5)
    assert seconds_for(0) == 0.5


def test_a_thread_that_cannot_be_started_is_a_lack_of_memory(monkeypatch):
    """As under a limit of the address space that a run has used up."""
    from onnxrewrite.runtime import session as sessions

    def start(self):
        raise RuntimeError("can't start new thread")

    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Abs(x) }'
    )
    session = sessions.open_session(model)
    assert not isinstance(session, str)
    monkeypatch.setattr(module._LANES, "lane", None, raising=False)
    monkeypatch.setattr("threading.Thread.start", start)
    refusal = session.run({"x": np.ones(2, np.float32)})
    assert refusal == "cannot allocate memory for a thread"
    assert sessions.is_short_of_memory(refusal)
    with pytest.raises(MemoryError, match="memory for a thread"):
        limited(lambda: 1, None, lambda: None)
