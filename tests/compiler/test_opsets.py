"""A newer opset: only where a rule of the raise stage needs it, the target can run it, and nobody pinned the old one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import pytest
from onnx import parser

import onnxrewrite as rw
from onnxrewrite import Result, io
from onnxrewrite.certificate.repetition import Original
from onnxrewrite.compiler.kernel_choice import KernelChoice
from onnxrewrite.compiler.opsets import Opsets
from onnxrewrite.measure import ab_timing
from onnxrewrite.measure.database.known import Database
from onnxrewrite.measure.database.store import Store
from onnxrewrite.measure.decision import OpsetMemory
from onnxrewrite.measure.timing import Interval
from onnxrewrite.rules import FLOATS, Attr, Builder, Match, Operators, Rule, Stage, Value, Var, op

x, scale = Var("x", dtype=FLOATS), Var("scale", dtype=FLOATS)
normal = op.Mul(op.Div(x, op.Sqrt(op.ReduceMean(op.Mul(x, x), axes=(-1,), keepdims=1) + 1e-5)), scale)


def to_rms(m: Match, build: Builder) -> Value:
    """x/√(mean(x²) + ε)·scale ⟶ RMSNormalization(x, scale)."""
    return build.RMSNormalization(m[x], m[scale], epsilon=1e-5, axis=-1)


def to_nothing(m: Match, build: Builder) -> Value:
    """What is right but for its dtype, which shows only when its opset is there."""
    return build.Cast(build.RMSNormalization(m[x], m[scale], epsilon=1e-5, axis=-1), to=int(onnx.TensorProto.DOUBLE))


normalized = op.RMSNormalization(x, scale, epsilon=Attr[float]("eps"), axis=Attr[int]("axis"))


def spelled(m: Match, build: Builder) -> Value:
    """RMSNormalization(x, scale) ⟶ x/√(mean(x²) + ε)·scale."""
    m.require(m.is_newer(normalized), "the model's opset has it")
    mean = build.ReduceMean(build.Mul(m[x], m[x]), axes=(-1,), keepdims=1)
    return build.Mul(build.Div(m[x], build.Sqrt(build.Add(mean, build.const(1e-5, like=x)))), m[scale])


RMS = Rule("rms", Stage.RAISE, normal, to_rms)
SPELLED = Rule("spelled", Stage.LOWER, normalized, spelled)
STAND_IN = Rule("spelled", Stage.LOWER, normalized, spelled, is_fallback=True)
USELESS = Rule("useless", Stage.RAISE, normal, to_nothing)


def model(opset: int) -> onnx.ModelProto:
    axes = "<axes = [-1], keepdims = 1>(q)" if opset < 18 else "<keepdims = 1>(q, last)"
    return parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": {opset}]>
        g (float[batch, 8] x) => (float[batch, 8] y)
        <float eps = {{1e-5}}, float[8] w = {{1, 2, 3, 4, 5, 6, 7, 8}}, int64[1] last = {{-1}}> {{
            q = Mul(x, x)  m = ReduceMean{axes}  s = Add(m, eps)  r = Sqrt(s)  d = Div(x, r)  y = Mul(d, w)
        }}"""
    )


def run(version: int, rule: Rule = RMS, **options: Any) -> Result:
    return rw.apply(model(version), rules=[rule], only=[rule.name], **options)


def opset_of(result: Result) -> int:
    return result.model.graph.opset_imports[""]


def operators(result: Result) -> list[str]:
    return [n.op_type for n in result.model.graph]


@pytest.mark.parametrize("opset", [9, 14, 17, 18])
def test_the_opset_is_raised_for_an_operator_that_nothing_lowers(opset: int) -> None:
    result = run(opset)
    assert operators(result) == ["RMSNormalization"]
    assert opset_of(result) == 23
    assert f"raised from opset {opset} to 23 for RMSNormalization; --opset {opset} keeps it" in result.notes
    assert result.checks.model is not None
    assert result.checks.model.ok


def test_a_model_that_has_the_operator_stays_in_its_opset() -> None:
    result = run(24)
    assert operators(result) == ["RMSNormalization"]
    assert opset_of(result) == 24
    assert not any("raised" in note for note in result.notes)


@pytest.mark.parametrize(
    ("lowering", "lower", "opset"), [(STAND_IN, "fastest", 23), (STAND_IN, "fused", 17), (SPELLED, "fastest", 17)]
)
def test_for_speed_the_opset_is_raised_for_what_only_a_stand_in_lowers(lowering: Rule, lower: str, opset: int) -> None:
    result = rw.apply(model(17), rules=[RMS, lowering], only=["rms", "spelled"], lower=lower, check="off")  # type: ignore[arg-type]
    assert opset_of(result) == opset
    assert ("RMSNormalization" in operators(result)) == (opset == 23)


SKIP = """<ir_version: 8, opset_import: ["": 14, "com.microsoft": 1]>
g (float[batch, 3, 4] x, float[batch, 3, 4] z) => (float[batch, 3, 4] y, float[batch, 3, 4] s)
<float[4] w = {1, 2, 3, 4}, float[4] b = {1, 2, 3, 4}> {
    y, mean, deviation, s = com.microsoft.SkipLayerNormalization(x, z, w, b)
}"""


@pytest.mark.usefixtures("quick_timing")
@pytest.mark.parametrize(("loss", "after"), [(None, 14), ("measured slower", 17)])
def test_the_opset_is_raised_for_what_is_slower_lowered(
    monkeypatch: pytest.MonkeyPatch, loss: str | None, after: int
) -> None:
    """A fusion of another optimizer is taken apart, and would be put together again in the old opset."""
    monkeypatch.setattr(KernelChoice, "choose", lambda *_: None)
    monkeypatch.setattr(KernelChoice, "__call__", lambda _, site: loss if site.key[0] == "skip-norm" else None)
    monkeypatch.setattr(ab_timing.ABTiming, "race", lambda _, models: [Interval(0.9, 0.9, 0.9)] * len(models))
    result = rw.apply(parser.parse_model(SKIP), only=["contrib-operator", "skip-norm"], lower="fastest", threads=1)
    assert opset_of(result) == after
    assert ("LayerNormalization" in operators(result)) == (after == 17)


@pytest.mark.parametrize("options", [{"opset": 17}, {"target": "onnx"}, {"lower": "portable"}])
def test_a_pinned_opset_stays(options: dict[str, Any]) -> None:
    result = run(17, **options)
    assert opset_of(result) == 17
    assert "RMSNormalization" not in operators(result)
    assert "RMSNormalization needs opset 23, model has 17" in result.trace.refused["rms"]["y"]


def test_an_opset_that_brings_nothing_is_not_kept() -> None:
    result = run(17, USELESS)
    assert opset_of(result) == 17
    assert result.trace.applied == []


def test_what_the_converter_cannot_bring_there_stays() -> None:
    proto = model(17)
    function = onnx.helper.make_function(
        "local", "Twice", ["a"], ["b"], [onnx.helper.make_node("Add", ["a", "a"], ["b"])],
        [onnx.helper.make_opsetid("", 16)],
    )  # fmt: skip
    proto.functions.append(function)
    proto.opset_import.append(onnx.helper.make_opsetid("local", 1))
    proto.graph.node[0].input[0] = "t"
    proto.graph.node[0].input[1] = "t"
    proto.graph.node[4].input[0] = "t"
    proto.graph.node.insert(0, onnx.helper.make_node("Twice", ["x"], ["t"], domain="local"))
    proto.graph.value_info.append(onnx.helper.make_tensor_value_info("t", onnx.TensorProto.FLOAT, ["batch", 8]))
    twice = Rule("twice", Stage.RAISE, Operators("local").Twice(op.Neg(x)), lambda m, build: m[x])  # keeps the function
    result = rw.apply(proto, rules=[RMS, twice], only=["rms", "twice"])
    assert opset_of(result) == 17
    assert any("RMSNormalization not used" in note and "cannot be converted" in note for note in result.notes)


RULES = """
from onnxrewrite.rules import FLOATS, Rule, Stage, Var, op

x, scale = Var("x", dtype=FLOATS), Var("scale", dtype=FLOATS)
normal = op.Mul(op.Div(x, op.Sqrt(op.ReduceMean(op.Mul(x, x), axes=(-1,), keepdims=1) + 1e-5)), scale)

def to_rms(m, build):
    '''x/√(mean(x²) + ε)·scale ⟶ RMSNormalization(x, scale)'''
    return build.RMSNormalization(m[x], m[scale], epsilon=1e-5, axis=-1)

RULES = (Rule("rms", Stage.RAISE, normal, to_rms),)
"""


def test_a_replay_raises_the_opset_likewise(tmp_path: Path) -> None:
    onnx.save(model(17), tmp_path / "model.onnx")
    (tmp_path / "rules.py").write_text(RULES)
    result = rw.apply(tmp_path / "model.onnx", rules=[str(tmp_path / "rules.py")], only=["rms"])
    result.save(tmp_path / "out.onnx", certificate=True)
    again = Original(tmp_path / "out.onnx.certificate.json")
    assert again.replay().now.output == again.then.output
    assert again.recheck()[1] == []


def test_without_a_site_the_opset_is_chosen_as_by_a_run_that_never_knew_it() -> None:
    """A replay leaves out from the beginning what the first run undid by and by, and must come to the same opset."""
    opsets = Opsets(io.load(model(17)), 23)
    key = ("rms", "y")
    applied = SimpleNamespace(after=("RMSNormalization",))
    trace: Any = SimpleNamespace(too_new={"RMSNormalization": 23}, wished={}, applied=[applied])
    assert opsets.grows((), trace)
    assert not opsets.returns((), trace)
    assert io.opset(opsets.source(())) == 23
    assert io.opset(opsets.source([key])) == 17
    trace.applied = []
    assert opsets.grows([key], trace)
    assert opsets.returns([key], trace)
    assert io.opset(opsets.source([key])) == 17
    assert not opsets.grows([key], trace)


def test_where_the_raise_stage_makes_nothing_of_a_newer_opset_nothing_is_lowered_in_it() -> None:
    raised = Opsets(io.load(model(17)), 23)
    trace: Any = SimpleNamespace(too_new={"RMSNormalization": 23}, wished={}, applied=[])
    assert raised.grows((), trace)
    assert raised.returns((), trace)
    assert not raised.grows((), trace)
    assert not raised.returns((), trace)
    assert io.opset(raised.source(())) == 17


def test_the_opset_that_a_model_came_to_is_where_the_next_run_begins(tmp_path: Path) -> None:
    converted = []
    for _ in range(2):
        opsets = Opsets(io.load(model(17)), 23, memory=OpsetMemory(Database(Store(tmp_path)), (RMS,)))
        converted.append(io.opset(opsets.source(())))
        trace: Any = SimpleNamespace(
            too_new={"RMSNormalization": 23}, wished={}, applied=[SimpleNamespace(after=("RMSNormalization",))]
        )
        opsets.grows((), trace)
        assert not opsets.returns((), trace)
        opsets.settle(())
        assert opsets.notes((), trace) == ["raised from opset 17 to 23 for RMSNormalization; --opset 17 keeps it"]
    assert converted == [17, 23]
    without = Opsets(io.load(model(17)), 23, memory=OpsetMemory(Database(Store(tmp_path)), (RMS,)))
    assert io.opset(without.source([("rms", "y")])) == 17
    assert (
        io.opset(Opsets(io.load(model(17)), 22, memory=OpsetMemory(Database(Store(tmp_path)), (RMS,))).source(())) == 17
    )
    assert (
        io.opset(Opsets(io.load(model(17)), 23, memory=OpsetMemory(Database(Store(tmp_path)), (SPELLED,))).source(()))
        == 17
    )


def test_an_opset_in_which_another_operator_has_no_kernel_is_not_chosen() -> None:
    """RandomUniformLike has a kernel up to opset 21."""
    noisy = model(17)
    noisy.graph.node.insert(0, onnx.helper.make_node("RandomUniformLike", ["x"], ["noise"]))
    noisy.graph.output.append(onnx.helper.make_tensor_value_info("noise", onnx.TensorProto.FLOAT, ["batch", 8]))
    result = rw.apply(noisy, rules=[RMS], only=["rms"])
    assert opset_of(result) == 17
    assert not result.checks.undone
    reason = "the model cannot be converted to opset 23: no CPU kernel of RandomUniformLike (opset 22)"
    assert f"RMSNormalization not used: {reason}" in result.notes
