"""The lower stage by another cost than the clock's."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from onnx import parser

import onnxrewrite as rw
from onnxrewrite.certificate.repetition import Original
from onnxrewrite.costs import Bytes, Operations, Region, WeightedSum
from onnxrewrite.errors import CostError, UsageError
from onnxrewrite.report.table import apply_facts
from onnxrewrite.rules import Const, Rule, Stage, Var, op

HEADER = '<ir_version: 8, opset_import: ["": 17]>'
BERT = "golden_models/bert/model.onnx"

x, w = Var("x"), Const("w")
LONGER = Rule("longer", Stage.LOWER, op.Relu(x), lambda m, b: b.Neg(b.Min(b.Neg(m[x]), 0.0)))
EQUAL = Rule("equal", Stage.LOWER, op.Relu(x), lambda m, b: b.Max(m[x], 0.0), needs_speedup=True)
EARLY = Rule("early", Stage.RAISE, op.Relu(x), lambda m, b: b.Neg(b.Min(b.Neg(m[x]), 0.0)))


@pytest.fixture(autouse=True)
def no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks at the clock fails."""

    def measured(*_: object, **__: object) -> None:
        raise AssertionError("it was measured")

    for module in ("region_timing", "ab_timing", "cost_models"):
        monkeypatch.setattr(f"onnxrewrite.measure.{module}.interleave", measured)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    text = f"{HEADER} g (float[n,8] x) => (float[n,8] y) {{ a = Relu(x)  y = Sigmoid(a) }}"
    onnx.save(parser.parse_model(text), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


@pytest.fixture(scope="module")
def by_bytes() -> rw.Result:
    return rw.apply(BERT, cost="bytes", check="off", lower="fastest")


class Launches:
    """The number of kernels."""

    def of(self, region: Region) -> float | None:
        return None if region.calls is None else float(len(region.calls))


def operators(result: rw.Result) -> list[str]:
    return [n.op_type for n in result.model.graph]


def apply(model: Path, *rules: Rule, **options: object) -> rw.Result:
    return rw.apply(model, rules=rules, only=[r.name for r in rules], lower="fastest", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("cost", ["bytes", "operations", Launches(), WeightedSum((1.0, Bytes()), (9.0, Operations()))])
@pytest.mark.parametrize("check", ["full", "off"])
def test_a_rewrite_that_costs_more_is_declined(model: Path, cost: object, check: str) -> None:
    result = apply(model, LONGER, cost=cost, check=check)
    assert operators(result)[0] == "Relu"
    assert result.trace.declined == {("longer", "a"): f"costs more by {result.speed.cost}"}
    assert result.speed.skipped == ""
    assert result.speed.weighed[0].ratio.median > 1


@pytest.mark.slow
def test_what_promises_only_speed_must_cost_less_however_little(by_bytes: rw.Result) -> None:
    result = by_bytes
    assert all(each.ratio.median < 1 for each in result.speed.weighed if each.taken and each.rule == "add-before-norm")
    assert result.trace.counts()["skip-norm"] == 4
    assert result.speed.ratio is not None
    assert result.speed.ratio.median < 0.9


def test_equal_costs_are_no_gain(model: Path) -> None:
    result = apply(model, EQUAL, cost=Launches())
    assert operators(result)[0] == "Relu"
    assert result.trace.declined == {("equal", "a"): "costs no less by Launches"}


def test_a_rule_by_which_the_whole_costs_more_is_left_out(model: Path) -> None:
    result = apply(model, EARLY, cost=Launches(), check="off")
    assert operators(result)[0] == "Relu"
    assert result.speed.slower == {"early": "with it the model costs 2.00 times what the original does"}


def test_what_is_not_known_is_taken_unless_it_has_to_pay(model: Path) -> None:
    class Nothing:
        def of(self, region: Region) -> float | None:
            return None

    result = apply(model, LONGER, EQUAL, cost=Nothing())
    assert operators(result)[:3] == ["Neg", "Min", "Neg"]
    assert result.speed.assumed == {"Nothing does not know its cost": 2}
    assert result.speed.ratio is None


@pytest.mark.parametrize(("given", "told"), [(-1.0, "gave -1.0"), (float("nan"), "gave nan"), ("1", "gave '1'")])
def test_a_cost_that_is_none_is_an_error(model: Path, given: object, told: str) -> None:
    class Wrong:
        def of(self, region: Region) -> float | None:
            return given  # type: ignore[return-value]

    with pytest.raises(CostError, match=f"the cost model .*Wrong {told}; give a number"):
        apply(model, LONGER, cost=Wrong())


def test_a_cost_model_that_raises_is_named(model: Path) -> None:
    class Broken:
        def of(self, region: Region) -> float | None:
            raise KeyError("Relu")

    with pytest.raises(CostError, match=r"the cost model .*Broken raised KeyError: 'Relu'"):
        apply(model, LONGER, cost=Broken())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cost": 3}, "cost must be clock, bytes, operations, a file, or have a method of, not 3"),
        ({"cost": "bytes", "measurements": "m.jsonl"}, "measurements are for the clock"),
        ({"cost": "nothing.jsonl"}, "there is no such file"),
    ],
)
def test_a_cost_that_cannot_be_used_is_refused(model: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        apply(model, LONGER, **options)


def test_a_cost_without_a_choice_is_refused(model: Path) -> None:
    with pytest.raises(UsageError, match="a cost model chooses where lower is fastest, and it is fused"):
        rw.apply(model, cost="bytes", lower="fused")


def test_the_table_of_another_device_decides_for_a_target_that_is_not_here(tmp_path: Path, model: Path) -> None:
    entries = [("Relu", 9.0), ("Neg", 1.0), ("Min", 1.0), ("Sigmoid", 1.0)]
    second = {"Min": ["float[1,8]", "float[]"]}
    lines = [{"operator": o, "sizes": second.get(o, ["float[1,8]"]), "milliseconds": m} for o, m in entries]
    (tmp_path / "gpu.jsonl").write_text("\n".join(map(json.dumps, lines)))
    result = apply(model, LONGER, cost=tmp_path / "gpu.jsonl", target="onnx", check="off", dims={"n": 1})
    assert operators(result)[:3] == ["Neg", "Min", "Neg"]
    assert result.speed.cost == "Table(gpu.jsonl)"
    assert result.speed.ratio is not None
    assert result.speed.ratio.median == pytest.approx(4 / 10)


@pytest.mark.slow
def test_the_same_model_and_cost_give_the_same_bytes(by_bytes: rw.Result) -> None:
    again = rw.apply(BERT, cost="bytes", check="off", lower="fastest")
    assert again.to_proto().SerializeToString() == by_bytes.to_proto().SerializeToString()


@pytest.mark.slow
def test_the_certificate_tells_the_cost_and_is_replayed_without_it(
    tmp_path: Path, model: Path, by_bytes: rw.Result
) -> None:
    result = apply(model, LONGER, cost=Launches())
    assert result.certificate.options.cost is not None
    assert result.certificate.options.cost.name == "Launches"
    assert len(result.certificate.options.cost.sha256) == 64
    by_bytes.save(tmp_path / "out.onnx", certificate=True)
    repeated = Original(tmp_path / "out.onnx.certificate.json").replay()
    assert repeated.then.options.cost is not None
    assert repeated.then.options.cost.name == "bytes"
    assert repeated.then.speed is not None
    assert repeated.then.speed.low == repeated.then.speed.median


def test_a_cost_model_that_is_another_one_has_another_digest(model: Path) -> None:
    found = {
        apply(model, LONGER, cost=cost).certificate.options.cost.sha256  # type: ignore[union-attr]
        for cost in ("bytes", Launches(), WeightedSum((1.0, Bytes())), WeightedSum((2.0, Bytes())))
    }
    assert len(found) == 4


def test_the_report_tells_costs(tmp_path: Path, by_bytes: rw.Result) -> None:
    facts = apply_facts(by_bytes.to_json(), verbose=True)
    assert ("Cost", facts[0][1]) == facts[0]
    assert facts[0][1].endswith("of the original's, by bytes at batch=1 seq=128")
    assert any(name == "Costed" and line.startswith("skip-norm: ") for name, line in facts)
    assert not any(name in ("Speed", "Measured", "Raced") for name, _ in facts)
    by_bytes.report(tmp_path / "page.html")
    assert "by bytes" in (tmp_path / "page.html").read_text()
