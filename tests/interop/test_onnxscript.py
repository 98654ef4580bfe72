"""Rules of onnxscript in our driver: they apply where they are right, and where they are not they are undone and named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import onnxscript.rewriter as theirs
import pytest
from interop import foreign_rules

import onnxrewrite as rw
from onnxrewrite import io
from onnxrewrite.cli import main
from onnxrewrite.errors import RuleError
from onnxrewrite.interop.onnxscript import adapt, load
from onnxrewrite.ir import text
from onnxrewrite.ir.target import target
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.driver import Driver
from onnxrewrite.rewrite.fingerprint import fingerprint

OURS = "onnxrewrite-patterns"
"""The set of all our own rules."""


def applied(graph: str | onnx.ModelProto, rules: str, opset: int = 17, **options: Any) -> rw.Result:
    """A graph rewritten by theirs alone, with all checks."""
    model = text.parse(graph, opset=opset) if isinstance(graph, str) else graph
    return rw.apply(model, rules=[f"onnxscript:{rules}"], without=[OURS], **options)


def operators(result: rw.Result) -> list[str]:
    return [n.op_type for n in result.to_proto().graph.node]


def reasons(result: rw.Result, rule: str) -> str:
    return " | ".join(result.trace.refused.get(f"onnxscript/{rule}", {}).values())


def outputs(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return session.run(None, feeds)


# ---------------------------------------------------------------------------------------------------- they apply


@pytest.mark.parametrize(
    ("rule", "graph", "expected"),
    [
        ("cast-identity", "float[2,3] x; c = Cast(x, to=1)  y = Tanh(c)", ["Tanh"]),
        ("transpose-identity", "float[2,3] x; t = Transpose(x, perm=[0, 1])  y = Tanh(t)", ["Tanh"]),
        (
            "transpose-transpose",
            "float[2,3,4] x; a = Transpose(x, perm=[1, 2, 0])  y = Transpose(a, perm=[2, 1, 0])",
            ["Transpose"],
        ),
        ("mul-by-1", "float[n,3] x; m = Mul(x, 1.0)  y = Tanh(m)", ["Tanh"]),
        ("mul-by-1-2", "float[n,3] x; m = Mul(1.0, x)  y = Tanh(m)", ["Tanh"]),
        (
            "fuse-batch-norm-into-conv",
            "float[n,2,5,5] x; c = Conv(x, float[2,2,3,3] ~)"
            "  y = BatchNormalization(c, {1.5, 0.5}, {0.25, -1.0}, {0.5, 0.0}, {1.0, 2.0})",
            ["Conv"],
        ),
        ("fuse-successive-clip", "float[n,3] x; a = Clip(x, 0.0, 6.0)  y = Clip(a, -1.0, 4.0)", ["Clip"]),
        ("unsqueeze-unsqueeze", "float[2,3] x; a = Unsqueeze(x, {0})  y = Unsqueeze(a, {2})", ["Unsqueeze"]),
    ],
)
def test_default_rules_apply(rule: str, graph: str, expected: list[str]) -> None:
    result = applied(graph, "default")
    assert result.trace.counts()[f"onnxscript/{rule}"] == 1, result.trace.refused
    assert result.checks.model is not None
    assert result.checks.model.ok
    assert operators(result) == expected


def test_beside_ours() -> None:
    graph = "float[n,8] x; s = Softmax(x, axis=1)  l = Log(s)  c = Cast(l, to=1)  y = Neg(c)"
    rules = f"onnxscript:{Path(foreign_rules.__file__).as_posix()}"
    result = rw.apply(text.parse(graph, opset=17), rules=[rules, "onnxscript:default"])
    counts = result.trace.counts()
    assert counts["onnxscript/log-softmax"] == 1
    assert counts["cast-to-own-dtype"] == 1  # of two equal ones ours comes first
    assert counts["onnxscript/cast-identity"] == 0


def test_where_several_of_theirs_apply_the_first_one_does() -> None:
    rules = list(load("default"))
    assert [r.benefit for r in rules] == sorted((r.benefit for r in rules), reverse=True)


def test_ort_fusions_make_contrib_operators() -> None:
    graph = (
        "float[n,4,8] x; b = Add(x, float[8] ~)  d = Div(b, 1.4142135)  e = Erf(d)  a = Add(e, 1.0)"
        "  m = Mul(b, a)  y = Mul(m, 0.5)"
    )
    result = applied(graph, "ort_fusions", lower="fused")
    assert operators(result) == ["BiasGelu"]
    assert {r.stage for r in load("ort_fusions")} == {rw.rules.Stage.LOWER}


def test_provenance_and_order_of_bytes() -> None:
    graph = "float[n,3] x; a = Clip(x, 0.0, 6.0)  b = Clip(a, -1.0, 4.0)  y = Mul(b, 1.0)"
    one, other = (applied(graph, "default").to_proto().SerializeToString(deterministic=True) for _ in range(2))
    assert one == other
    (node,) = onnx.load_from_string(one).graph.node
    told = {p.key: p.value for p in node.metadata_props}
    assert "onnxscript/fuse-successive-clip" in told["onnxrewrite.rule"]


def test_inside_a_branch() -> None:
    graph = (
        "bool c; float[2,3] x; y = If (c) <then_branch = a () => (t) { m = Mul(x, 1.0)  t = Tanh(m) },"
        " else_branch = b () => (e) { e = Neg(x) }>"
    )
    result = applied(graph, "default")
    assert result.trace.counts()["onnxscript/mul-by-1"] == 1
    assert result.checks.model is not None
    assert result.checks.model.ok


# ------------------------------------------------------------------------------------------------- they are wrong


WRONG = {
    "fuse-successive-clip": ("float[n,3] x; a = Clip(x, 0.0, 1.0)  y = Clip(a, 2.0, 3.0)", ["Clip", "Clip"]),
    "fuse-successive-relu-clip": ("float[n,3] x; a = Clip(x, -3.0, -1.0)  y = Relu(a)", ["Clip", "Relu"]),
    "mul-by-1": ("double[n,3] x; m = Mul(x, double {1.000009})  y = Tanh(m)", ["Mul", "Tanh"]),
}


@pytest.mark.parametrize("rule", WRONG)
def test_a_wrong_one_is_undone_and_named(rule: str) -> None:
    graph, kept = WRONG[rule]
    result = applied(graph, "default")
    assert operators(result) == kept
    assert {r for r, _ in result.checks.undone} == {f"onnxscript/{rule}"}
    assert reasons(result, rule).startswith("check failed: ")
    alone = theirs.rewrite(text_proto(graph))
    assert [n.op_type for n in alone.graph.node] != kept, "onnxscript itself would apply it"


def text_proto(graph: str, opset: int = 17) -> onnx.ModelProto:
    """As onnxscript wants it: some of its rules raise where types are not told."""
    return onnx.shape_inference.infer_shapes(io.to_proto(text.parse(graph, opset=opset)))


def test_a_default_that_callers_may_override_is_not_baked_in() -> None:
    """onnxscript takes it for a constant; here it never looks like one."""
    model = text_proto("input o = float {1.0}  float[n,3] x; m = Mul(x, o)  y = Tanh(m)")
    feeds = {"x": np.ones((2, 3), np.float32), "o": np.array(3, np.float32)}
    (wanted,) = outputs(model, feeds)
    result = applied(model, "default")
    np.testing.assert_array_equal(outputs(result.to_proto(), feeds)[0], wanted)
    assert "Mul" not in [n.op_type for n in theirs.rewrite(model).graph.node]


def test_batchnorm_in_training_is_not_folded() -> None:
    graph = (
        "(float[n,2,5,5] x) => (y) { c = Conv(x, float[2,2,3,3] ~)"
        "  y, m, v = BatchNormalization(c, {1.5, 0.5}, {0.25, -1.0}, {0.5, 0.0}, {1.0, 2.0}, training_mode=1) }"
    )
    result = applied(graph, "default")
    assert operators(result) == ["Conv", "BatchNormalization"]
    assert "onnxscript/fuse-batch-norm-into-conv" in result.trace.refused
    assert [n.op_type for n in theirs.rewrite(text_proto(graph)).graph.node] == ["Conv"]


def test_what_cannot_be_run_by_itself_is_not_applied() -> None:
    """Nobody has vouched for these rules; without checks they are believed."""
    graph = "a = Transpose(x, perm=[0, 2, 1])  y = Transpose(a, perm=[0, 2, 1])"  # of an x of any rank
    result = applied(graph, "default")
    assert operators(result) == ["Transpose", "Transpose"]
    assert reasons(result, "transpose-transpose").startswith("check failed: it cannot be run by itself: the rank of")
    assert "Transpose" not in operators(applied(graph, "default", check="off"))


def test_reported_by_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "clips.onnx"
    io.save(text.parse(WRONG["fuse-successive-clip"][0], opset=17), path)
    assert main(["apply", str(path), "--rules", "onnxscript:default", "--without", OURS]) == 0
    out = capsys.readouterr().out
    assert "onnxscript/fuse-successive-clip" in out
    assert "Undone" in out


# ------------------------------------------------------------------------------------------------- they misbehave


def rule_of(name: str) -> rw.rules.Rule:
    return adapt(getattr(foreign_rules, name), name=f"onnxscript/{name.replace('_', '-')}")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("raises", "the rule raised KeyError: 'nothing there' at foreign_rules.py:"),
        ("gives_up", "It is Tuesday (at `x`)"),
        ("nothing", "its replacement gives nothing and no reason"),
        ("two", "the rule must return 1 values, it returned 2"),
        ("unknown", "nowhere.NoSuchOperator is no operator of opset 1 (nowhere)"),
        ("too_new", "Swish needs opset 24, model has 17"),
        ("as_function", "it makes a function of what it matches (as_function), which is not supported"),
        ("broken_condition", "the rule raised RuntimeError: no condition"),
    ],
)
def test_refused_with_its_reason(name: str, reason: str) -> None:
    model = io.load(text.parse("float[2,3] x; y = Relu(x)", opset=17))
    driver = Driver(model, [rule_of(name)], target("onnxruntime-cpu"))
    driver.run()
    (told,) = driver.trace.refused[f"onnxscript/{name.replace('_', '-')}"].values()
    assert told.startswith(reason)
    assert [n.op_type for n in model.graph] == ["Relu"]
    (x,) = model.graph.inputs
    assert [c.op_type for c in x.consumers()] == ["Relu"], "what it built is no reader any more"


@pytest.mark.parametrize("name", ["renames", "unhooks"])
def test_one_that_changes_the_graph_is_left_out(name: str) -> None:
    model = text.parse("float[2,3] x; t = Tanh(x)  y = Relu(t)", opset=17)
    result = rw.apply(model, rules=[rule_of(name)], without=[OURS])
    assert operators(result) == ["Tanh", "Relu"]
    assert "the rule itself changed" in reasons(result, name)


def test_opset_imports_stay() -> None:
    model = io.load(text.parse("float[2,3] x; y = Relu(x)", opset=17))
    before = dict(model.opset_imports)
    Driver(model, [rule_of("unknown"), rule_of("too_new")], target("onnxruntime-cpu")).run()
    assert dict(model.opset_imports) == before


def test_a_shared_inner_value_is_kept() -> None:
    graph = "float[n,3] x; a = Clip(x, 0.0, 6.0)  y = Clip(a, -1.0, 4.0)  z = Neg(a)"
    result = applied(graph, "default")
    assert operators(result) == ["Clip", "Clip", "Neg"]


# ---------------------------------------------------------------------------------------------------- what is meant


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("interop.foreign_rules.log_softmax_rule", ["log-softmax"]),
        ("interop.foreign_rules.NegNeg", ["neg-neg"]),
        ("interop.foreign_rules.wrong", ["half-twice"]),
        ("interop.foreign_rules.both", ["log-softmax", "neg-neg"]),
        ("interop.foreign_rules.made", ["log-softmax"]),
        ("onnxscript.rewriter.rules.common.cast_cast_rule", ["cast-cast"]),
    ],
)
def test_what_can_be_named(name: str, expected: list[str]) -> None:
    found = load(name)
    assert [r.name for r in found] == [f"onnxscript/{e}" for e in expected]
    assert found.name.startswith("onnxscript/")


@pytest.mark.parametrize("name", ["default", "ort_fusions"])
def test_names_are_unique_and_stable(name: str) -> None:
    names = [r.name for r in load(name)]
    load.cache_clear()
    assert [r.name for r in load(name)] == names
    assert len(set(names)) == len(names) > 25


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("no_such_module.rules", ["no module is called 'no_such_module'"]),
        ("onnxscript.rewriter.no_such", ["has no no_such"]),
        ("interop.foreign_rules.NegNeg.pattern.nothing", ["has no nothing"]),
        ("interop.foreign_rules.failing", ["cannot be made: ValueError: no rules today"]),
        ("interop.foreign_rules.NeedsArguments", ["cannot be made: TypeError"]),
        ("onnxscript.rewriter.MatchResult", ["is a type, not a rule of onnxscript"]),
        ("json", ["holds no rule of onnxscript"]),
        ("", ["give default, ort_fusions, a .py file, or MODULE.ATTRIBUTE"]),
        ("defaults", ["no module is called 'defaults'"]),
        ("no/such/file.py", ["no such rule file"]),
        ("a b", ["give default"]),
    ],
)
def test_what_cannot(name: str, parts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.onnx"
    io.save(text.parse("float[2] x; y = Relu(x)", opset=17), path)
    assert main(["apply", str(path), "--rules", f"onnxscript:{name}"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    for part in parts:
        assert part in err


def test_two_of_one_name() -> None:
    with pytest.raises(RuleError, match="two rules are called 'onnxscript/log-softmax'"):
        registry.load(["onnxscript:interop.foreign_rules.log_softmax_rule", "onnxscript:interop.foreign_rules.both"])


def test_commands_know_them(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    assert main(["rules", "onnxscript/cast-cast", "--rules", "onnxscript:default"]) == 0
    out = capsys.readouterr().out
    assert "Replaces Cast(Cast(X, ...), to=to) by Cast(X, to=to)" in out
    assert "From     onnxscript, " in out
    assert "_basic_rules.py" in out
    path = tmp_path / "model.onnx"
    io.save(text.parse("double[2] x; a = Cast(x, to=1)  y = Cast(a, to=11)", opset=17), path)
    explain = ["explain", str(path), "onnxscript/cast-cast", "--rules", "onnxscript:default"]
    assert main(explain) == 0
    assert "Intermediate cast elimination not recognized as valid" in " ".join(capsys.readouterr().out.split())


# ------------------------------------------------------------------------------------------------- certificates


@pytest.mark.parametrize("file", [False, True])
def test_replay(file: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    io.save(
        text.parse("float[n,3] x; a = Neg(x)  b = Neg(a)  c = Clip(b, 0.0, 6.0)  y = Clip(c, 1.0, 4.0)", opset=17),
        "m.onnx",
    )
    rules = "default"
    if file:
        source = Path(foreign_rules.__file__).read_text(encoding="utf-8")
        (tmp_path / "my_foreign.py").write_text(source, encoding="utf-8")
        rules = "my_foreign.py"
    assert main(["apply", "m.onnx", "-o", "o.onnx", "--rules", f"onnxscript:{rules}"]) == 0
    told = json.loads(Path("o.onnx.certificate.json").read_text(encoding="utf-8"))
    assert told["options"]["rules"] == [f"onnxscript:{rules}"]
    assert main(["replay", "o.onnx.certificate.json", *(["--trust"] if file else [])]) == 0, capsys.readouterr().err


def test_a_fingerprint_says_what_a_rule_is_not_what_it_did(fresh: Callable[[], None]) -> None:
    def prints() -> dict[str, str]:
        fresh()
        return {r.name: fingerprint(r).sha256 for r in load("default")}

    before = prints()
    applied("float[2,3,4] x; a = Reshape(x, {6,4})  y = Reshape(a, {4,6})", "default")
    assert prints() == before


@pytest.fixture
def fresh() -> Callable[[], None]:
    """Forget what was adapted, as another process has."""
    return load.cache_clear
