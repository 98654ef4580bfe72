"""The standard's own test of each operator: a model is rewritten and computes what it did, or what the standard says."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.backend.test.case.test_case import TestCase

import onnxrewrite as rw
from onnxrewrite.errors import OnnxRewriteError
from onnxrewrite.ir.random_operators import draws
from onnxrewrite.reference.tolerance import compare
from onnxrewrite.runtime.session import Session, open_session
from onnxrewrite.system.arrays import Outputs


def cases() -> Iterator[TestCase]:
    """The tests of operators whose outputs the standard gives."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        found = collect_testcases("")
    for case in found:
        if case.data_sets and not draws(case.model):
            yield case


def outputs(model: onnx.ModelProto, feeds: dict[str, object]) -> Outputs | str:
    session = open_session(model, threads=1)
    return session.run(feeds) if isinstance(session, Session) else session


def equal(got: object, expected: object, near: Callable[[object, object], bool]) -> bool:
    """True where tensors, or the tensors of sequences, are near."""
    if isinstance(expected, list) and isinstance(got, list):
        return len(got) == len(expected) and all(equal(g, e, near) for g, e in zip(got, expected, strict=True))
    return near(got, numpy_helper.to_array(expected) if isinstance(expected, onnx.TensorProto) else expected)


def as_a_rewrite(got: object, expected: object) -> bool:
    """True for what the check of a rewrite accepts where there is no reference."""
    return compare(None, expected, got).accept


def as_the_standard(case: TestCase) -> Callable[[object, object], bool]:
    """The standard's own tolerance: some of its outputs are written with four digits."""

    def near(got: object, expected: object) -> bool:
        plain = np.asarray(expected)
        if plain.dtype.kind in "OSU" or not np.issubdtype(plain.dtype, np.number):
            return as_a_rewrite(got, expected)
        return np.allclose(np.asarray(got), plain, rtol=case.rtol, atol=case.atol, equal_nan=True)

    return near


@pytest.mark.slow
def test_a_rewritten_operator_computes_what_it_did():
    compared, wrong = 0, []
    for case in cases():
        try:
            rewritten = rw.apply(case.model, check="off", lower="fused").to_proto()
        except OnnxRewriteError as error:
            wrong.append(f"{case.name}: {error}")
            continue
        for inputs, standard in case.data_sets:
            feeds = dict(zip((i.name for i in case.model.graph.input), inputs, strict=True))
            before, after = outputs(case.model, feeds), outputs(rewritten, feeds)
            if isinstance(after, str):
                if not isinstance(before, str):
                    wrong.append(f"{case.name}: {after}")
                continue
            unrun = isinstance(before, str)
            expected, near = (standard, as_the_standard(case)) if unrun else (list(before.values()), as_a_rewrite)
            compared += 1
            if not equal(list(after.values()), expected, near):
                wrong.append(f"{case.name}: other numbers")
    assert not wrong
    assert compared > 1000
