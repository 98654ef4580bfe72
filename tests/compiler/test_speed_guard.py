"""Never slower: what does not pay is taken back, and the same run chooses the same again."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import parser

import onnxrewrite as rw
from onnxrewrite.checks.site_record import SiteRecord
from onnxrewrite.compiler.result import Speed
from onnxrewrite.compiler.speed_guard import SpeedGuard
from onnxrewrite.errors import ModelError, UsageError
from onnxrewrite.measure import ab_timing, timing
from onnxrewrite.measure.choice import Weighed
from onnxrewrite.measure.region_timing import RegionTiming
from onnxrewrite.measure.timing import Allowance, Interval
from onnxrewrite.rules import Assumption, Builder, Const, Match, Rule, Stage, Value, Var, op
from onnxrewrite.runtime.opening import SESSION_KEY, options_for

pytestmark = pytest.mark.usefixtures("quick_timing")

SIZE = 192
PLAIN = ["Relu", "Sigmoid", "Sin", "Cos", "Div"]
HEADER = '<ir_version: 8, opset_import: ["": 17]>'

x, w = Var("x"), Const("w")
relu = op.Relu(x)
matmul = op.MatMul(x, w)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    text = f"{HEADER} g (float[batch,{SIZE}] x) => (float[batch,{SIZE}] y) {{ a = Relu(x)  b = Sigmoid(a)  s = Sin(b)  c = Cos(b)  y = Div(s, c) }}"
    path = tmp_path / "model.onnx"
    onnx.save(parser.parse_model(text), path)
    return path


def by_detour(m: Match, build: Builder) -> Value:
    """relu(x) ⟶ max(x·I·I·…, 0), which is the same and takes long."""
    value = m[x]
    for _ in range(24):
        value = build.MatMul(value, build.const(np.eye(SIZE), like=x))
    return build.Max(value, 0.0)


def without_product(m: Match, build: Builder) -> Value:
    """x·I ⟶ x + 0."""
    m.require(np.array_equal(m[w], np.eye(len(m[w]))), "it is not the identity", at=w)
    return build.Sub(m[x], 0.0)


FINITE = (Assumption.FINITE,)  # 0·∞ is NaN
LONGER = Rule("longer", Stage.LOWER, relu, by_detour, assumes=FINITE)
LONGER_AT_ONCE = Rule("longer-at-once", Stage.RAISE, relu, by_detour, assumes=FINITE)
SHORTER = Rule("shorter", Stage.LOWER, matmul, without_product, needs_speedup=True, assumes=FINITE)
HARMLESS = Rule("harmless", Stage.RAISE, op.Div(op.Sin(x), op.Cos(x)), lambda m, b: b.Tan(m[x]))


def operators(result: rw.Result) -> list[str]:
    return [n.op_type for n in result.model.graph]


def apply(model: Path | onnx.ModelProto, *rules: Rule, **options: object) -> rw.Result:
    chosen: dict[str, object] = {"lower": "fastest", "only": [r.name for r in rules], "threads": 1, **options}
    return rw.apply(model, rules=rules, **chosen)  # type: ignore[arg-type]


def test_a_rewrite_that_takes_longer_is_declined(model: Path) -> None:
    result = apply(model, LONGER)
    assert operators(result) == PLAIN
    assert result.trace.declined == {("longer", "a"): "measured slower"}
    assert result.checks.undone == {}
    assert [w.rule for w in result.speed.weighed] == ["longer"]
    assert result.speed.weighed[0].ratio.low > 2
    assert "MatMul" in operators(apply(model, LONGER, lower="fused"))


def test_a_rule_that_slows_the_whole_down_is_left_out(model: Path) -> None:
    result = apply(model, LONGER_AT_ONCE, HARMLESS)
    assert operators(result) == ["Relu", "Sigmoid", "Tan"]
    assert list(result.speed.slower) == ["longer-at-once"]
    assert result.speed.ratio is not None
    assert result.speed.binding == {"batch": 1}


def without_tan(monkeypatch: pytest.MonkeyPatch, error: str) -> None:
    """What has a Tan runs, and does not open optimized."""
    own = ab_timing.open_runner

    def opened(model, *arguments):
        if "Tan" in {n.op_type for n in (onnx.load(model) if isinstance(model, str) else model).graph.node}:
            raise ModelError(error)
        return own(model, *arguments)

    monkeypatch.setattr(ab_timing, "open_runner", opened)


def test_a_result_that_does_not_open_as_it_is_optimized_is_mended(model: Path, monkeypatch) -> None:
    without_tan(monkeypatch, "the model does not open in ONNX Runtime: Attempt to replace the existing tensor")
    result = apply(model, LONGER, HARMLESS)
    assert operators(result) == PLAIN
    assert result.speed.slower == {"harmless": "with it the model does not open as it is optimized"}
    assert not result.speed.skipped


def test_a_result_that_no_rule_keeps_from_opening_is_told(model: Path, monkeypatch) -> None:
    """Nor does the original, written anew by ourselves, open here; the result is right all the same."""
    own, opened = ab_timing.open_runner, list[object]()

    def only_the_original(given, *arguments):
        opened.append(given)
        if len(opened) > 1:
            raise ModelError("the model does not open in ONNX Runtime: Attempt to replace the existing tensor")
        return own(given, *arguments)

    monkeypatch.setattr(ab_timing, "open_runner", only_the_original)
    result = apply(model, HARMLESS)
    assert operators(result) == ["Relu", "Sigmoid", "Tan"]
    assert result.speed.slower == {}
    assert result.speed.ratio is None
    assert result.speed.skipped.startswith("ONNX Runtime does not open the result as it optimizes it")


def test_a_shortage_of_memory_is_not_the_result_s_fault(model: Path, monkeypatch) -> None:
    without_tan(monkeypatch, "the model does not open in ONNX Runtime: Failed to allocate memory")
    result = apply(model, HARMLESS)
    assert operators(result) == ["Relu", "Sigmoid", "Tan"]
    assert "Failed to allocate memory" in result.speed.skipped


def product(tmp_path: Path) -> Path:
    text = f"{HEADER} g (float[n,{SIZE}] x, float[{SIZE},{SIZE}] w) => (float[n,{SIZE}] y) {{ p = MatMul(x, w)  y = Sin(p) }}"
    proto = parser.parse_model(text)
    del proto.graph.input[1]
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(SIZE, dtype=np.float32), "w"))
    onnx.save(proto, tmp_path / "product.onnx")
    return tmp_path / "product.onnx"


def test_what_promises_only_speed_is_applied_where_it_is_measured(tmp_path: Path) -> None:
    path = product(tmp_path)
    assert operators(apply(path, SHORTER, dims={"n": 64})) == ["Sin"]  # nothing is left of x - 0
    assert operators(apply(path, SHORTER, lower="fused")) == ["MatMul", "Sin"]
    assert operators(apply(path, SHORTER, check="off")) == ["MatMul", "Sin"]


@pytest.mark.parametrize(
    ("ratio", "assumes", "taken"),
    [
        ((0.99, 0.97, 1.01), (), True),
        ((0.99, 0.97, 1.01), (rw.rules.Assumption.NOT_EMPTY,), False),
        ((0.98, 0.97, 0.99), (rw.rules.Assumption.NOT_EMPTY,), True),
    ],
    ids=["nothing assumed", "assumed and no faster", "assumed and faster"],
)
def test_what_takes_something_for_granted_has_to_pay(model: Path, monkeypatch, ratio, assumes, taken) -> None:
    """A form that keeps empty batches is kept where it costs nothing."""
    seen = Weighed("clipped", Interval(*ratio), 1e-3, remembered=False)
    monkeypatch.setattr(RegionTiming, "weigh", lambda *_: seen)
    monkeypatch.setattr(ab_timing.ABTiming, "race", lambda _, models: [Interval(1.0, 0.99, 1.01)] * len(models))
    clipped = Rule("clipped", Stage.LOWER, relu, lambda m, b: b.Max(m[x], 0.0), assumes=assumes)
    result = apply(model, clipped)
    assert operators(result)[0] == ("Max" if taken else "Relu")
    why = "measured not faster, and that no dimension is zero would be taken for granted"
    assert result.trace.declined == ({} if taken else {("clipped", "a"): why})


def test_without_time_to_measure_rewrites_are_taken_for_granted(tmp_path: Path, model: Path) -> None:
    result = apply(model, LONGER, budget=0)
    assert result.speed.assumed == {"the time for measuring was up": 1}
    assert list(result.speed.slower) == ["longer"]  # the whole is timed all the same
    assert result.trace.counts() == {}, "and nobody looks for the one that it was"
    result = apply(product(tmp_path), SHORTER, budget=0, dims={"n": 64})
    assert result.trace.declined == {("shorter", "p"): "not measured: the time for measuring was up"}


def test_the_budget_is_for_all_that_is_measured(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is ever clear, it is spent, and no more."""
    monkeypatch.setattr(ab_timing, "SECONDS", 60.0)
    monkeypatch.setattr(ab_timing.ABTiming, "_is_precise", lambda *_: False)
    monkeypatch.setattr(ab_timing.ABTiming, "_is_level_clear", lambda *_: False)
    seen: list[Allowance] = []

    class Noted(Allowance):
        def share(self, most: float, kept: float = 0.0) -> float:
            seen.append(self)
            return super().share(most, kept)

    monkeypatch.setattr(timing, "Allowance", Noted)
    start = time.perf_counter()
    apply(model, HARMLESS, budget=1.5)
    assert -0.5 < seen[-1].left < 0.5
    assert time.perf_counter() - start < 15


@pytest.mark.slow
def test_the_same_run_gives_the_same_bytes(model: Path, tmp_path: Path) -> None:
    rules = (LONGER, LONGER_AT_ONCE, HARMLESS)
    first, second = (apply(model, *rules) for _ in range(2))
    assert first.to_proto().SerializeToString() == second.to_proto().SerializeToString()
    assert first.speed.ratio == second.speed.ratio
    assert all(each.remembered for each in second.speed.weighed)


RULES = """
import numpy as np
from onnxrewrite.rules import Assumption, Rule, Stage, Var, op

x = Var("x")

def by_detour(m, build):
    '''relu(x) ⟶ max(x·I·I·…, 0)'''
    value = m[x]
    for _ in range(24):
        value = build.MatMul(value, build.const(np.eye(192), like=x))
    return build.Max(value, 0.0)

def harmless(m, build):
    '''sin(x)/cos(x) ⟶ tan(x)'''
    return build.Tan(m[x])

RULES = (
    Rule("longer", Stage.LOWER, op.Relu(x), by_detour, assumes=(Assumption.FINITE,)),
    Rule("longer-at-once", Stage.RAISE, op.Relu(x), by_detour, assumes=(Assumption.FINITE,)),
    Rule("harmless", Stage.RAISE, op.Div(op.Sin(x), op.Cos(x)), harmless),
)
"""


@pytest.mark.slow
@pytest.mark.parametrize("left_out", ["longer", "longer-at-once"])
def test_a_certificate_tells_what_was_chosen(model: Path, tmp_path: Path, left_out: str) -> None:
    from onnxrewrite.certificate.repetition import Original

    rules = tmp_path / "rules.py"
    rules.write_text(RULES)
    other = ({"longer", "longer-at-once"} - {left_out}).pop()
    result = rw.apply(model, rules=[str(rules)], without=[other], lower="fastest", threads=1)
    assert operators(result) == ["Relu", "Sigmoid", "Tan"]
    result.save(tmp_path / "out.onnx", certificate=True)
    record = tmp_path / "out.onnx.certificate.json"
    told = json.loads(record.read_text())
    assert [(u["rule"], u["by"]) for u in told["undone"]] == [(left_out, "speed")]
    assert told["speed"]["level"] in ("all", "extended", "basic")
    again = Original(record)
    assert again.replay().now.output == again.then.output
    repeated, differences = again.recheck()
    assert differences == []
    assert repeated.result.speed.ratio is None


def spelled_gelu() -> onnx.ModelProto:
    text = "d = Div(x, r)  e = Erf(d)  a = Add(e, o)  p = Mul(x, a)  y = Mul(p, h)"
    given = "<float h = {0.5}, float o = {1.0}, float r = {1.41421356}>"
    return parser.parse_model(f"{HEADER} g (float[batch,{SIZE}] x) => (float[batch,{SIZE}] y) {given} {{ {text} }}")


SLOW_GELU = """
import numpy as np
from onnxrewrite.rules import Assumption, Rule, Stage, Var, op

x = Var("x")

def by_detour(m, build):
    '''Gelu(x) ⟶ com.microsoft.Gelu(x·I·I·…)'''
    value = m[x]
    for _ in range(24):
        value = build.MatMul(value, build.const(np.eye(192), like=x))
    return build.microsoft.Gelu(value)

RULES = (Rule("slow-gelu", Stage.LOWER, op.Gelu(x), by_detour),)
"""


def test_what_is_not_raised_because_lowering_it_does_not_pay_is_not_raised_in_a_replay(tmp_path: Path) -> None:
    from onnxrewrite.certificate.repetition import Original

    onnx.save(spelled_gelu(), tmp_path / "gelu.onnx")
    rules = tmp_path / "rules.py"
    rules.write_text(SLOW_GELU)
    result = rw.apply(tmp_path / "gelu.onnx", rules=[str(rules)], without=["gelu-lower"], lower="fastest", threads=1)
    assert operators(result) == ["Div", "Erf", "Add", "Mul", "Mul"]
    result.save(tmp_path / "out.onnx", certificate=True)
    again = Original(tmp_path / "out.onnx.certificate.json")
    assert again.replay().now.output == again.then.output
    assert again.recheck()[1] == []


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6))])
def test_whatever_the_clock_says_the_certificate_tells_of_the_model_that_is_written(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Rounds that only find out who slows the model down, in vain or not, leave no trace in what is said of it."""
    from onnxrewrite.certificate.repetition import Original

    dice = random.Random(seed)
    slow = [dice.random() < 0.6 or seed == 0 for _ in range(99)]  # 0: slow whatever is left out

    def against(self: ab_timing.ABTiming, candidate: object) -> Interval:
        return Interval(1.5, 1.4, 1.6) if slow.pop() else Interval(1.0, 0.9, 1.1)

    monkeypatch.setattr(ab_timing.ABTiming, "against", against)
    rules = tmp_path / "rules.py"
    rules.write_text(RULES.replace("range(24)", "range(1)"))
    result = rw.apply(model, rules=[str(rules)], lower="fastest", threads=1)
    assert all(isinstance(a.record, SiteRecord) for a in result.trace.applied)
    assert result.checks.sites == len(result.trace.applied) + len(result.trace.declined)
    result.save(tmp_path / "out.onnx", certificate=True)
    again = Original(tmp_path / "out.onnx.certificate.json")
    assert [(r.rule, r.value) for r in again.then.rewrites] == [a.key for a in result.trace.applied]
    assert again.replay().now.output == again.then.output
    assert again.recheck()[1] == []


def test_a_portable_model_has_standard_operators_only() -> None:
    text = f"{HEADER} g (float[n] x) => (float[n] y) {{ s = Sigmoid(x)  y = Mul(x, s) }}"
    proto = parser.parse_model(text)
    portable, fused = (rw.apply(proto, lower=lower) for lower in ("portable", "fused"))
    assert {n.domain for n in portable.model.graph} == {""}
    assert {n.domain for n in fused.model.graph} == {"com.microsoft"}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"check": "off"}, "nothing is run (--check off)"),
        ({"lower": "fused"}, "not asked for (--lower fused)"),
        ({"target": "onnx"}, "target onnx is no runtime"),
    ],
)
def test_why_nothing_is_measured(model: Path, options: dict[str, object], reason: str) -> None:
    assert apply(model, HARMLESS, **options).speed.skipped == reason


def test_what_does_not_run_is_not_measured() -> None:
    proto = parser.parse_model(
        f"{HEADER} g (float[2,3] x, float[4,5] w) => (y) {{ s = Sin(x) c = Cos(x) t = Div(s, c)  y = Concat<axis=0>(t, w) }}"
    )
    assert "does not open" in apply(proto, HARMLESS).speed.skipped


def test_unknown_ways_to_lower_are_an_error(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="lower must be fastest, fused, portable, not 'quick'"):
        rw.apply(model, lower="quick")  # type: ignore[arg-type]
    monkeypatch.setenv("ONNXREWRITE_LOWER", "slow")
    with pytest.raises(UsageError, match="not 'slow'"):
        rw.apply(model)


# -- sessions --------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:the stored session option")
@pytest.mark.parametrize("stored", [None, options_for("basic"), "no json", '{"level": "??"}', "[]"])
def test_a_session_runs_whatever_is_stored(model: Path, stored: str | None) -> None:
    proto = onnx.load(model)
    if stored is not None:
        proto.metadata_props.add(key=SESSION_KEY, value=stored)
    onnx.save(proto, model)
    opened = rw.session(model, provider="cpu", threads=1)
    level = opened.get_session_options().graph_optimization_level
    wanted = ort.GraphOptimizationLevel
    assert level == (wanted.ORT_ENABLE_BASIC if stored == options_for("basic") else wanted.ORT_ENABLE_ALL)
    assert opened.run(None, {"x": np.zeros((1, SIZE), np.float32)})[0].shape == (1, SIZE)


def test_what_a_session_cannot_do_is_said_in_a_line(model: Path, tmp_path: Path) -> None:
    for options, message in (
        ({"provider": "NoSuchProvider"}, "unknown provider 'NoSuchProvider'; ONNX Runtime knows"),
        ({"colour": "red"}, "has no colour"),
    ):
        with pytest.raises(UsageError, match=message):
            rw.session(model, **options)
    with pytest.raises(rw.OnnxRewriteError, match="no such file"):
        rw.session(tmp_path / "none.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"rubbish")
    with pytest.raises(rw.OnnxRewriteError, match=r"bad\.onnx"):
        rw.session(tmp_path / "bad.onnx")


WRONG_GELU = """
from onnxrewrite.rules import Assumption, Rule, Stage, Var, op

x = Var("x")
gelu = op.Gelu(x)

def to_another(m, build):
    '''Gelu(x) ⟶ com.microsoft.Gelu(x), but com.microsoft.QuickGelu(x) where a Neg reads it'''
    is_read = any(n.op_type == "Neg" for n in m[gelu].consumers())
    return build.microsoft.QuickGelu(m[x], alpha=1.7) if is_read else build.microsoft.Gelu(m[x])

RULES = (Rule("wrong-gelu", Stage.LOWER, gelu, to_another),)
"""


def test_what_is_not_raised_because_lowering_it_is_wrong_is_not_raised_in_a_replay(tmp_path: Path) -> None:
    from onnxrewrite.certificate.repetition import Original

    proto = spelled_gelu()
    proto.graph.node[-1].output[0] = "g"
    proto.graph.node.append(onnx.helper.make_node("Neg", ["g"], ["y"]))
    onnx.save(proto, tmp_path / "gelu.onnx")
    rules = tmp_path / "rules.py"
    rules.write_text(WRONG_GELU)
    result = rw.apply(tmp_path / "gelu.onnx", rules=[str(rules)], without=["gelu-lower"], opset=17)
    assert operators(result) == ["Div", "Erf", "Add", "Mul", "Mul", "Neg"]
    result.save(tmp_path / "out.onnx", certificate=True)
    again = Original(tmp_path / "out.onnx.certificate.json")
    assert [(u.rule, u.by) for u in again.then.undone] == [("wrong-gelu", "site")]
    assert again.replay().now.output == again.then.output
    assert again.recheck()[1] == []


@pytest.mark.parametrize(("none", "all_of_them"), [(0.95, 1.03), (1.018, 1.035), (1.03, 1.04), (1.03, 1.08)])
def test_a_slow_rule_is_found_where_another_opset_costs_a_little(
    none: float, all_of_them: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one rule the model takes less of the original's time, however much that is."""
    guard = SpeedGuard.__new__(SpeedGuard)
    monkeypatch.setattr(guard, "_kernels", None, raising=False)
    loop = SimpleNamespace(without={"before"})
    monkeypatch.setattr(guard, "_loop", loop, raising=False)
    monkeypatch.setattr(guard, "_rules", dict.fromkeys("abc", SimpleNamespace(stage=Stage.LOWER)), raising=False)
    monkeypatch.setattr(guard, "_timed", lambda time: Interval(time, time - 0.005, time + 0.005), raising=False)

    def rewrite() -> SimpleNamespace:
        return SimpleNamespace(model=none if "b" in loop.without else all_of_them)

    monkeypatch.setattr(guard, "speed", Speed("fastest"), raising=False)
    trace = SimpleNamespace(counts=lambda: dict.fromkeys("abc", 1))
    assert guard._brakes(trace, rewrite, 1.02) == ["b"]  # type: ignore[arg-type]
    assert loop.without == {"before"}


def test_a_model_that_stays_slow_without_three_rules_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    guard = SpeedGuard.__new__(SpeedGuard)
    monkeypatch.setattr(guard, "_kernels", None, raising=False)
    monkeypatch.setattr(guard, "_rules", dict.fromkeys("abcde", SimpleNamespace(stage=Stage.RAISE)), raising=False)
    monkeypatch.setattr(guard, "speed", Speed("fastest", slower=dict.fromkeys("abc", "slow")), raising=False)
    trace = SimpleNamespace(counts=lambda: dict.fromkeys("de", 1))
    assert guard._brakes(trace, lambda: None, 1.02) == ["d", "e"]  # type: ignore[arg-type, return-value]
