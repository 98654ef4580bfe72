"""Calls that are limited in time and open to signals."""

from __future__ import annotations

import signal
import threading
import time

import numpy as np
import onnx
import pytest

from onnxrewrite.runtime import limited as module
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
