"""An export is compared with what it was made of, whatever the framework: here the framework is numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from onnxrewrite.checks.findings import ModelCheck
from onnxrewrite.errors import CheckError, ModelError
from onnxrewrite.suite.frameworks.exported import Attempt, Exported, first_right
from onnxrewrite.suite.frameworks.module_check import compare_export


class Numpy:
    """A module that is a function of arrays."""

    def __init__(self, function: Callable[..., Any], *, precise: bool = True):
        self.function = function
        self.in_double = precise
        self.seen: list[Mapping[str, Any]] = []

    def run(self, feeds: Mapping[str, Any]) -> Sequence[Any] | str:
        self.seen.append(feeds)
        try:
            return [np.asarray(v) for v in self.function(**feeds)]
        except Exception as error:
            return str(error)

    def precise(self, feeds: Mapping[str, Any]) -> Sequence[Any] | None:
        wide = {n: v.astype(np.float64) if v.dtype == np.float32 else v for n, v in feeds.items()}
        return [np.asarray(v) for v in self.function(**wide)] if self.in_double else None

    def disturbed(self, feeds: Mapping[str, Any], seed: int) -> Sequence[Any] | None:
        return None


def softmax(x: Any) -> Any:
    raised = np.exp(x - x.max(-1, keepdims=True))
    return (raised / raised.sum(-1, keepdims=True),)


def written(path: Path, body: str, inputs: str = "float[n, 8] x", outputs: str = "float[n, 8] y") -> Path:
    text = f'<ir_version: 8, opset_import: ["": 17]> g ({inputs}) => ({outputs}) {{ {body} }}'
    onnx.save(onnx.parser.parse_model(text), path)
    return path


EXAMPLE = {"x": np.linspace(-2, 2, 24, dtype=np.float32).reshape(3, 8)}


@pytest.mark.parametrize("precise", [True, False])
def test_what_is_right_is_right_at_all_sizes(tmp_path: Path, precise: bool) -> None:
    subject = Numpy(softmax, precise=precise)
    check = compare_export(subject, written(tmp_path / "m.onnx", "y = Softmax(x)"), EXAMPLE)
    assert check.ok
    assert check.failures == []
    assert check.runs == 9
    assert len({tuple(b.items()) for b in check.bindings}) == 2
    assert check.reference == ("float64" if precise else "float32")
    assert len({f["x"].shape for f in subject.seen}) >= 3
    assert check.outputs[0].comparison.error_rewritten < 1e-6


def test_the_same_seed_makes_the_same_inputs(tmp_path: Path) -> None:
    path = written(tmp_path / "m.onnx", "y = Softmax(x)")
    first, second, other = (Numpy(softmax) for _ in range(3))
    for subject, seed in ((first, 1), (second, 1), (other, 2)):
        compare_export(subject, path, EXAMPLE, seed=seed)
    assert all((a["x"] == b["x"]).all() for a, b in zip(first.seen, second.seen, strict=True))
    assert not all((a["x"] == b["x"]).all() for a, b in zip(first.seen[2:], other.seen[2:], strict=True))


WRONG = {
    "a wrong constant": ("c = Constant<value = float {1.00001}>()  s = Softmax(x)  y = Mul(s, c)", "error 1e-05"),
    "another function": ("y = Sigmoid(x)", "error"),
    "another shape": ("s = Softmax(x)  y = ReduceMax<keepdims = 1, axes = [1]>(s)", "shape"),
    "another dtype": ("s = Softmax(x)  y = Cast<to = 11>(s)", "dtype"),
    "not a number": ("z = Sub(x, x)  y = Div(z, z)", "NaN in"),
    "does not run": ("z = Constant<value = int64[2] {3, 9}>()  y = Reshape(x, z)", "on the example the export fails"),
    "another operator": ("y = NoSuch(x)", "it does not open in ONNX Runtime"),
}


@pytest.mark.parametrize(("body", "line"), WRONG.values(), ids=list(WRONG))
def test_what_is_wrong_is_found(tmp_path: Path, body: str, line: str) -> None:
    path = written(tmp_path / "m.onnx", body, outputs=f"{'double' if 'to = 11' in body else 'float'}[p, q] y")
    check = compare_export(Numpy(softmax), path, EXAMPLE)
    assert not check.ok
    assert line in check.failures[0]


def test_a_size_that_was_baked_in_is_found(tmp_path: Path) -> None:
    body = "k = Constant<value = int64[2] {3, 8}>()  r = Reshape(x, k)  y = Softmax(r)"
    check = compare_export(Numpy(softmax), written(tmp_path / "m.onnx", body), EXAMPLE)
    assert "the export fails" in check.failures[0]
    assert "at n=" in check.failures[0]


def test_sizes_that_the_module_refuses_are_no_fault(tmp_path: Path) -> None:
    def picky(x: Any) -> Any:
        if len(x) != 11:
            raise ValueError("eleven rows, please")
        return softmax(x)

    example = {"x": np.ones((11, 8), np.float32)}
    check = compare_export(Numpy(picky), written(tmp_path / "m.onnx", "y = Softmax(x)"), example)
    assert check.ok
    assert check.runs == 1
    assert "compared on the example only" in check.notes[0]
    assert "eleven rows, please" in check.notes[0]


def test_a_random_module_is_not_compared(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)

    def random(x: Any) -> Any:
        return (x + rng.random(x.shape, np.float32),)

    path = written(tmp_path / "m.onnx", "y = Softmax(x)")
    assert compare_export(Numpy(random), path, EXAMPLE).skipped == "the module is random; nothing was compared"
    path = written(tmp_path / "r.onnx", "r = RandomNormalLike(x)  y = Add(x, r)")
    assert compare_export(Numpy(softmax), path, EXAMPLE).ok


def test_a_dtype_without_a_kernel_is_not_compared(tmp_path: Path) -> None:
    path = written(tmp_path / "m.onnx", "y = Gemm(x, x)", "bfloat16[n, n] x", "bfloat16[n, n] y")
    check = compare_export(Numpy(softmax), path, EXAMPLE)
    assert check.ok
    assert "does not run on this machine" in (check.skipped or "")


def test_inputs_and_outputs_are_counted(tmp_path: Path) -> None:
    path = written(tmp_path / "a.onnx", "y = Add(x, z)", "float[n, 8] x, float[n, 8] z")
    assert compare_export(Numpy(softmax), path, EXAMPLE).failures == ["it has inputs that the module has not: z"]
    path = written(tmp_path / "b.onnx", "y = Softmax(x)  z = Abs(x)", outputs="float[n, 8] y, float[n, 8] z")
    assert compare_export(Numpy(softmax), path, EXAMPLE).failures == ["it has 2 outputs, the module 1"]


def test_an_input_that_the_model_lost_keeps_its_example(tmp_path: Path) -> None:
    subject = Numpy(lambda x, unused: softmax(x + 0 * unused.sum()))
    check = compare_export(
        subject, written(tmp_path / "m.onnx", "y = Softmax(x)"), {**EXAMPLE, "unused": np.ones(2, np.float32)}
    )
    assert check.ok
    assert check.runs == 9


def test_integers_are_equal(tmp_path: Path) -> None:
    path = written(tmp_path / "m.onnx", "y = ArgMin<axis = 1, keepdims = 0>(x)", outputs="int64[n] y")
    assert compare_export(Numpy(lambda x: (x.argmin(1),)), path, EXAMPLE).identical
    check = compare_export(Numpy(lambda x: (x.argmax(1),)), path, EXAMPLE)
    assert "int64 elements differ" in check.failures[0]


# ---- the search for an exporter


def found(ok: bool, line: str = "") -> ModelCheck:
    return ModelCheck(ok, "", "", failures=[line] if line else [])


def fails() -> Path:
    raise ModelError("an operator is missing")


def test_the_first_that_is_right_is_taken_with_a_note_on_the_others() -> None:
    def compare(path: Path) -> ModelCheck:
        return found(path.name == "right", "" if path.name == "right" else "output y: too large")

    exporters = {"a": fails, "b": lambda: Path("wrong"), "c": lambda: Path("right"), "d": pytest.fail}
    made, notes = first_right(exporters, compare, "Net")
    assert made == Attempt("c", Path("right"), made.comparison)
    assert notes == ["not by a: an operator is missing", "not by b: its model is wrong: output y: too large"]


def test_without_comparing_the_first_that_is_made_is_taken() -> None:
    made, notes = first_right({"a": lambda: Path("wrong"), "b": pytest.fail}, None, "Net")
    assert (made.exporter, made.comparison, notes) == ("a", None, [])


def test_all_that_fail_are_told_in_a_line() -> None:
    with pytest.raises(
        ModelError, match=r"^Net cannot be exported: a: an operator is missing; b: an operator is missing$"
    ):
        first_right({"a": fails, "b": fails}, None, "Net")
    with pytest.raises(
        CheckError, match=r"no export computes what Net computes, .*: a: an operator .*; b: its model is wrong"
    ):
        first_right({"a": fails, "b": lambda: Path("wrong")}, lambda _: found(False, "output y: far off"), "Net")


def test_what_is_exported_is_plain_data() -> None:
    data = Exported(Path("m.onnx"), "dynamo", found(True), notes=("a note",)).to_json()
    assert (data["path"], data["exporter"], data["result"], data["notes"]) == ("m.onnx", "dynamo", None, ["a note"])
    assert data["comparison"]["ok"] is True
