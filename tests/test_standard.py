"""The standard's own test of each operator: a model is rewritten and computes what it did, or what the standard says."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnxrewrite as rw
from onnxrewrite.errors import OnnxRewriteError
from onnxrewrite.ir.random_operators import draws
from onnxrewrite.runtime.session import Session, open_session
from onnxrewrite.system.arrays import Outputs


def cases() -> Iterator[tuple[str, onnx.ModelProto, list[tuple[list[object], list[object]]]]]:
    """Names, models, and their inputs with the outputs that the standard gives."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        found = collect_testcases("")
    for case in found:
        if case.data_sets and not draws(case.model):
            yield case.name, case.model, case.data_sets


def outputs(model: onnx.ModelProto, feeds: dict[str, object]) -> Outputs | str:
    session = open_session(model, threads=1)
    return session.run(feeds) if isinstance(session, Session) else session


def equal(got: object, expected: object) -> bool:
    if isinstance(expected, onnx.TensorProto):
        expected = numpy_helper.to_array(expected)
    if isinstance(expected, list) and isinstance(got, list):
        return len(got) == len(expected) and all(map(equal, got, expected))
    if expected is None or got is None or isinstance(expected, list) or isinstance(got, list):
        return got is expected
    a, b = np.asarray(got), np.asarray(expected)
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind not in "fc":
        return bool(np.array_equal(a, b))
    tolerance = 1e-2 if a.dtype.itemsize < 4 else 1e-4
    return bool(np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True))


@pytest.mark.slow
def test_a_rewritten_operator_computes_what_it_did():
    compared, wrong = 0, []
    for name, model, data in cases():
        try:
            rewritten = rw.apply(model, check="off", lower="fused").to_proto()
        except OnnxRewriteError as error:
            wrong.append(f"{name}: {error}")
            continue
        for inputs, standard in data:
            feeds = dict(zip((i.name for i in model.graph.input), inputs, strict=True))
            before, after = outputs(model, feeds), outputs(rewritten, feeds)
            if isinstance(before, str) and isinstance(after, str):
                continue
            expected = standard if isinstance(before, str) else list(before.values())
            compared += 1
            if isinstance(after, str) or not equal(list(after.values()), expected):
                wrong.append(f"{name}: {after if isinstance(after, str) else 'other numbers'}")
    assert not wrong
    assert compared > 1000
