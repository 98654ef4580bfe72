"""Costs of regions: counted, looked up, and put together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import onnx
import pytest
from onnx import parser

from onnxrewrite.costs import Bytes, Clock, Cost, FirstKnown, Operations, Region, WeightedSum, table
from onnxrewrite.errors import UsageError
from onnxrewrite.inputs.workload import at_typical_sizes
from onnxrewrite.measure.cost_models import name_of
from onnxrewrite.measure.cost_table import cost_named
from onnxrewrite.measure.database.rows import Question
from onnxrewrite.runtime.settings import Setting
from tests.measure.measured_rows import CLASS, figures, file_of, key_in, public, row_of

PRODUCT = "g (float[n,8] x, float[8,4] w) => (float[n,4] y) { p = MatMul(x, w)  y = Relu(p) }"
RESHAPED = "g (float[n,8] x, int64[2] s) => (float[a,b] y) { y = Reshape(x, s) }"
COUNTED = "g (float[n,8] x) => (float[m,8] y) { k = NonZero(x)  y = Gather(x, k) }"
CHOICE = """g (bool c, float[4] x) => (float[4] y) { y = If (c) <
    then_branch = t () => (float[4] a) { a = Relu(x) }, else_branch = e () => (float[4] b) { b = Neg(x) }> }"""


def region(graph: str, dims: Mapping[str, int] | None = None, text: str = "", sizes: tuple[str, ...] = ()) -> Region:
    proto: onnx.ModelProto = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17, "own": 1]> {graph}')
    found = at_typical_sizes(proto, dims=dims)
    return Region(proto, found.binding, lambda: found.feeds, lambda: (text, sizes))


class Known:
    """A cost that is always the same."""

    def __init__(self, cost: float | None):
        self.cost = cost

    def of(self, region: Region) -> float | None:
        return self.cost


def test_bytes_and_operations_are_those_of_all_kernels_at_the_sizes() -> None:
    found = region(PRODUCT, {"n": 2})
    assert found.calls is not None
    assert [call.op_type for call in found.calls] == ["MatMul", "Relu"]
    assert found.calls[0].inputs[1].shape == (8, 4)
    assert Operations().of(found) == 2 * 2 * 8 * 4 + 2 * 4
    assert Bytes().of(found) == 4 * (2 * 8 + 8 * 4 + 2 * 4) + 4 * 2 * (2 * 4)
    assert Operations().of(region(PRODUCT, {"n": 4})) == 2 * Operations().of(found)


def test_a_view_costs_nothing_and_its_shape_is_read_from_the_inputs() -> None:
    found = region(RESHAPED, {"n": 4})
    assert found.calls is not None
    assert Bytes().of(found) == 0


@pytest.mark.parametrize("graph", [COUNTED, CHOICE], ids=["shape of the data", "branches"])
@pytest.mark.parametrize("cost", [Bytes(), Operations()], ids=["bytes", "operations"])
def test_what_does_not_follow_from_sizes_is_not_known(graph: str, cost: Cost) -> None:
    assert cost.of(region(graph)) is None


def test_operations_of_an_operator_without_a_formula_are_not_known() -> None:
    found = region("g (float[4,4] x) => (float y) { y = Det(x) }")
    assert Operations().of(found) is None
    assert Bytes().of(found) == 4 * 16 + 4


def test_a_weighted_sum_is_not_known_where_a_part_is_not() -> None:
    found = region(PRODUCT)
    assert WeightedSum((2.0, Known(3.0)), (0.5, Known(4.0))).of(found) == 8.0
    assert WeightedSum((2.0, Known(3.0)), (0.5, Known(None))).of(found) is None


def test_the_first_cost_that_is_known_is_taken_also_where_it_is_none() -> None:
    found = region(PRODUCT)
    assert FirstKnown(Known(None), Known(0.0), Known(1.0)).of(found) == 0.0
    assert FirstKnown(Known(None)).of(found) is None


def test_the_clock_knows_what_runs() -> None:
    clock = Clock(Setting(threads=1), seconds=0.0)
    short, long = clock.of(region(PRODUCT, {"n": 1})), clock.of(region(PRODUCT, {"n": 1 << 16}))
    assert short is not None
    assert long is not None
    assert 0 < 5 * short < long
    assert clock.of(region("g (float[4] x) => (float[4] y) { y = own.Nothing(x) }")) is None


def test_names_say_what_is_in_a_cost() -> None:
    assert name_of(Bytes()) == "bytes"
    assert name_of(Known(1.0)) == "Known"
    assert name_of(WeightedSum((1.0, Bytes()))) == "WeightedSum(terms=((1.0, Bytes()),))"


# ------------------------------------------------------------------------------------------------ tables


def written(path: Path, *entries: Mapping[str, object]) -> str:
    path.write_text("".join(f"{json.dumps(each)}\n" for each in entries))
    return str(path)


def test_a_table_adds_up_operators_by_size_class(tmp_path: Path) -> None:
    matmul = {"operator": "MatMul", "sizes": ["float[64,8]", "float[8,4]"], "milliseconds": 0.5}
    relu = {"operator": "Relu", "sizes": ["float[64,4]"], "milliseconds": 0.25}
    cost = table(written(tmp_path / "gpu.jsonl", matmul, relu))
    assert cost.of(region(PRODUCT, {"n": 60})) == 0.75
    assert cost.of(region(PRODUCT, {"n": 2})) is None
    assert table(written(tmp_path / "less.jsonl", matmul)).of(region(PRODUCT, {"n": 60})) is None
    assert cost.of(region(RESHAPED)) == 0


def test_a_table_knows_regions_by_their_text(tmp_path: Path) -> None:
    entry = {"region": "y = Relu(x)\n", "sizes": ["float32[8]"]}
    path = written(tmp_path / "gpu.jsonl", *({**entry, "milliseconds": time} for time in (1.0, 2.0, 9.0)))
    assert table(path).of(region(PRODUCT, text="y = Relu(x)\n", sizes=("float32[8]",))) == 2.0
    assert table(path).of(region(PRODUCT, text="y = Relu(x)\n", sizes=("float32[4]",))) is None


def test_a_table_reads_rows_of_tune_export(tmp_path: Path) -> None:
    """Both sides, of the threads that are asked for, whatever the build of ONNX Runtime, if a named key signed them."""
    key = key_in(tmp_path)

    def row(text: str, kind: str, threads: int, median: float):
        asked = Question(kind, text, ("float32[8]",), Setting(threads=threads), ("after/before",))  # type: ignore[arg-type]
        return row_of(asked, figures(median), CLASS, "there")

    rewrite, model = "before\na\nafter\nb\n", "before sha256:c\nafter sha256:d\n"
    rows = [row(rewrite, "rewrite", 1, 0.5), row(rewrite, "rewrite", 2, 0.25), row(model, "model", 1, 0.75)]
    path = str(file_of(tmp_path / "rows.jsonl", key, *rows))
    cost = table(path, signed_by=[str(public(key))], threads=1)
    told = {text: cost.of(region(PRODUCT, text=text, sizes=("float32[8]",))) for text in ("a\n", "b\n", "sha256:d\n")}
    assert told == {"a\n": 1000.0, "b\n": 500.0, "sha256:d\n": 750.0}
    with pytest.raises(UsageError, match="--signed-by"):
        table(path)
    with pytest.raises(UsageError, match="no entry that can be used, with 4 threads"):
        table(path, signed_by=[str(public(key))], threads=4)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "no entry"),
        ('{"operator": "Relu"}\n', "line 1: is no entry"),
        ('\n{"operator": "Relu", "sizes": [], "milliseconds": -1}\n', "line 2: is no entry"),
        ('{"operator": "Relu", "sizes": [], "milliseconds": NaN}\n', "line 1: is no entry"),
        ("[" * 100_000, "line 1: is no entry"),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "t").write_text(content)
    with pytest.raises(UsageError, match=message):
        table(str(tmp_path / "t"))


def test_costs_have_names() -> None:
    assert cost_named("clock", signed_by=[], threads=0) is None
    assert cost_named("bytes", signed_by=[], threads=0) == Bytes()
    with pytest.raises(
        UsageError, match="cost byte: is neither clock, bytes nor operations, and there is no such file"
    ):
        cost_named("byte", signed_by=[], threads=0)
