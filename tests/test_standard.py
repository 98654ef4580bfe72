"""The standard's own test of each operator: a model is rewritten and computes what it did, or what the standard says."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import onnx
import pytest
from onnx import numpy_helper

import onnxrewrite as rw
from onnxrewrite.errors import OnnxRewriteError
from onnxrewrite.ir.random_operators import draws
from onnxrewrite.reference.tolerance import compare
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
    """True for what the check of a rewrite accepts where there is no reference."""
    if isinstance(expected, list) and isinstance(got, list):
        return len(got) == len(expected) and all(map(equal, got, expected))
    plain = numpy_helper.to_array(expected) if isinstance(expected, onnx.TensorProto) else expected
    return compare(None, plain, got).accept


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
