"""What is proved survives no change of a number: a changed replacement is proved only if no run tells it apart."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from proof import pairs

from onnxrewrite.errors import OnnxRewriteError
from onnxrewrite.ir import text

pytest.importorskip("z3")

from onnxrewrite.proof import refutation
from onnxrewrite.proof.validation import Proof, prove

_NUMBER = re.compile(r"(?<![\w.])-?\d+(\.\d+)?(?![\w.])")


def changed(graph: str) -> Iterator[str]:
    """A graph with one number of a node changed; declarations stay as they are."""
    head, _, body = graph.rpartition(";")
    for found in _NUMBER.finditer(body):
        number = found[0]
        other = f"{float(number) * 1.5 + 0.25}" if "." in number else str(int(number) + 1)
        yield f"{head};{body[: found.start()]}{other}{body[found.end() :]}"


CASES = [
    (name, number, after) for name, (_, graph) in pairs.TRUE.items() for number, after in enumerate(changed(graph))
]


@pytest.mark.parametrize(("name", "number", "after"), CASES)
def test_a_changed_number_is_not_proved(name: str, number: int, after: str) -> None:
    before = text.parse(pairs.TRUE[name][0], opset=21)
    try:
        other = text.parse(after, opset=21)
        found = prove(before, other, refute=False, seconds=5)
    except OnnxRewriteError:  # no graph any more
        return
    assert not isinstance(found, Proof) or refutation.search(before, other, []) is None


def test_numbers_are_changed() -> None:
    assert len(CASES) > 10
