"""From a model to a checked model: sources, choices, checks, and finding who is to blame."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import onnxrewrite as rw
from onnxrewrite import io
from onnxrewrite.checks import rewrites
from onnxrewrite.checks.rewrites import SiteChecker
from onnxrewrite.checks.site import check_site
from onnxrewrite.compiler import run
from onnxrewrite.compiler.loop import RewriteLoop
from onnxrewrite.errors import CheckError, ModelError, RuleError, UsageError
from onnxrewrite.ir import text
from onnxrewrite.rules import AnyNode, Operators, Rule, Stage, Var, op

x = Var("x")
GELU = "d = Div(x, 1.41421356)  e = Erf(d)  a = Add(e, 1.0)  m = Mul(x, a)  y = Mul(m, 0.5)"


def model(source: str, opset: int = 17, **options: Any) -> onnx.ModelProto:
    return ir.to_proto(text.parse(source, opset=opset, **options))


def operators(result: rw.Result) -> list[str]:
    return [n.op_type for n in result.model.graph.all_nodes()]


def renaming(old: str, new: str, name: str = "", **options: Any) -> Rule:
    """``old(x) ⟶ new(x)``, however wrong."""
    name = name or f"{old}-is-{new}".lower()
    return Rule(name, options.pop("stage", Stage.RAISE), op[old](x), lambda m, b: getattr(b, new)(m[x]), **options)


@pytest.fixture
def gelu() -> onnx.ModelProto:
    return model(f"(float[n,8] x) => (float[n,8] y) {{ {GELU} }}")


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sites are not checked, so that a wrong rewrite is found only in the whole model."""
    monkeypatch.setattr(SiteChecker, "__call__", lambda self, site: None)


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[set[Any]]]:
    """What was in quarantine in each round of rewriting."""
    seen: list[set[Any]] = []
    original = RewriteLoop.rewrite

    def rewrite(self: Any, quarantine: set[Any]) -> Any:
        seen.append(set(quarantine))
        return original(self, quarantine)

    monkeypatch.setattr(RewriteLoop, "rewrite", rewrite)
    return iter([seen])


# -- sources ------------------------------------------------------------------------------------------------------


def test_path_message_and_ir_model_give_the_same(gelu: onnx.ModelProto, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(gelu, path)
    file = path.read_bytes()
    in_memory = io.load(gelu)
    before = (gelu.SerializeToString(deterministic=True), io.to_bytes(in_memory), text.print_model(in_memory))
    results = [rw.apply(source) for source in (str(path), path, gelu, in_memory)]
    made = [io.to_bytes(r.model) for r in results]
    assert made == [made[0]] * 4
    assert operators(results[0]) == ["Gelu"]
    assert path.read_bytes() == file
    assert (gelu.SerializeToString(deterministic=True), io.to_bytes(in_memory), text.print_model(in_memory)) == before


def test_a_model_made_in_memory_is_not_changed(gelu: onnx.ModelProto) -> None:
    made = ir.from_proto(gelu)
    before = text.print_model(made), ir.to_proto(made).SerializeToString(deterministic=True)
    rw.apply(made, check="off")
    assert (text.print_model(made), ir.to_proto(made).SerializeToString(deterministic=True)) == before


def test_applying_to_the_result_changes_nothing_more(gelu: onnx.ModelProto) -> None:
    once = rw.apply(gelu)
    twice = rw.apply(once.model)
    assert twice.trace.applied == []
    assert io.to_bytes(twice.model) == io.to_bytes(once.model)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such file"):
        rw.apply(tmp_path / "none.onnx")


# -- choices ------------------------------------------------------------------------------------------------------


def test_only_and_without(gelu: onnx.ModelProto) -> None:
    assert operators(rw.apply(gelu, only=["gelu-erf"], check="off")) == ["Gelu"]
    assert operators(rw.apply(gelu, only=["gelu"], check="off")) == ["Gelu"]
    assert "Erf" in operators(rw.apply(gelu, without=["gelu-erf"], check="off"))
    assert "Erf" in operators(rw.apply(gelu, without=["gelu"], check="off"))
    assert "Erf" in operators(rw.apply(gelu, only=["swish"], check="off"))
    with pytest.raises(UsageError, match="no rule or rule set is called 'gelo'; did you mean gelu"):
        rw.apply(gelu, only=["gelo"])


def test_rules_of_ones_own(tmp_path: Path) -> None:
    graph = model("(float[2] x) => (float[2] y) { y = Relu(x) }")
    result = rw.apply(graph, rules=[renaming("Relu", "Abs")], check="off")
    assert operators(result) == ["Abs"]
    path = tmp_path / "mine.py"
    path.write_text(
        "from onnxrewrite.rules import Rule, Stage, Var, op\nx = Var('x')\n"
        "R = Rule('mine', Stage.RAISE, op.Relu(x), lambda m, build: build.Max(m[x], 0.0))\n"
    )
    assert operators(rw.apply(graph, rules=[str(path)])) == ["Max"]
    with pytest.raises(RuleError, match="two rules are called 'gelu-erf'"):
        rw.apply(graph, rules=[renaming("Relu", "Abs", "gelu-erf")])


def test_target(gelu: onnx.ModelProto) -> None:
    result = rw.apply(gelu, target="onnx")
    assert "Gelu" not in operators(result)
    assert "Gelu" in operators(rw.apply(gelu, target="onnx", opset=20))
    with pytest.raises(UsageError, match="unknown target 'gpu'"):
        rw.apply(gelu, target="gpu")


def test_opset(gelu: onnx.ModelProto) -> None:
    result = rw.apply(gelu, opset=20)
    assert io.opset(result.model) == 20
    assert io.opset(result.original) == 17
    (node,) = result.model.graph
    assert (node.domain, node.op_type) in {("", "Gelu"), ("com.microsoft", "Gelu")}
    assert rw.apply(gelu, opset=17).original.opset_imports[""] == 17
    with pytest.raises(UsageError, match="opset 99"):
        rw.apply(gelu, opset=99)


def test_a_wrong_conversion_does_not_leave(gelu: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is compared with the model that was given, not with what the converter made of it."""
    convert = onnx.version_converter.convert_version

    def wrong(proto: onnx.ModelProto, version: int) -> onnx.ModelProto:
        made = convert(proto, version)
        next(n for n in made.graph.node if n.op_type == "Erf").op_type = "Tanh"
        return made

    monkeypatch.setattr(onnx.version_converter, "convert_version", wrong)
    for rules in ([], [renaming("Tanh", "Tanh", "tanh-again")]):
        with pytest.raises(CheckError, match="not equal to the original and nothing was written: output y"):
            rw.apply(gelu, opset=18, rules=rules)


def test_dims(gelu: onnx.ModelProto) -> None:
    checked = rw.apply(gelu, dims={"n": 5}).checks.model
    assert checked is not None
    assert checked.bindings == [{"n": 5}]
    with pytest.raises(UsageError, match="no such dimension; the inputs have n"):
        rw.apply(gelu, dims={"m": 5})


def test_inputs(gelu: onnx.ModelProto) -> None:
    given = np.full((3, 8), 0.5, np.float32)
    checked = rw.apply(gelu, inputs={"x": given}).checks.model
    assert checked is not None
    assert checked.bindings == [{"n": 3}]
    assert rw.apply(gelu, inputs={"x": given}).checks.model.ok  # type: ignore[union-attr]
    with pytest.raises((UsageError, CheckError)):
        rw.apply(gelu, inputs={"no-such-input": given})


def test_check_levels(gelu: onnx.ModelProto) -> None:
    full, fast, off = (rw.apply(gelu, check=level).checks for level in ("full", "fast", "off"))  # type: ignore[arg-type]
    assert full.model is not None
    assert fast.model is not None
    assert off.model is None
    assert (full.level, fast.level, off.level) == ("full", "fast", "off")
    assert (full.model.samples, fast.model.samples) == (3, 1)
    assert len(full.model.bindings) == 2
    assert full.model.runs > fast.model.runs > 0
    assert full.sites == fast.sites == 2
    assert off.sites == 0
    with pytest.raises(UsageError, match="check must be full, fast or off, not 'none'"):
        rw.apply(gelu, check="none")  # type: ignore[arg-type]


def test_the_seed_changes_the_samples_and_nothing_else(gelu: onnx.ModelProto) -> None:
    a, b, c = (rw.apply(gelu, seed=seed) for seed in (0, 0, 1))
    errors = [r.checks.model.outputs[0].comparison.error_rewritten for r in (a, b, c)]  # type: ignore[union-attr]
    assert errors[0] == errors[1]
    assert errors[0] != errors[2]
    assert io.to_bytes(a.model) == io.to_bytes(c.model)


def test_progress_is_told(gelu: onnx.ModelProto) -> None:
    phases = []
    rw.apply(gelu, progress=lambda phase, done, waiting: phases.append(phase))
    assert list(dict.fromkeys(phases)) == ["rewrite", "check structure", "check model"]


# -- results ------------------------------------------------------------------------------------------------------


def test_the_result_as_json(gelu: onnx.ModelProto) -> None:
    result = rw.apply(gelu)
    data = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert data["operators"]["after"] == {"com.microsoft.Gelu": 1}
    assert data["checks"]["model"]["ok"] is True
    assert [s["rule"] for s in data["sites"]] == [a.rule for a in result.trace.applied]
    assert math.isfinite(sum(data["seconds"].values()))


@pytest.mark.parametrize(
    "source",
    [
        "(float[2] x) => (float[2] y) { y = my.own.Op(x) }",
        "(float[2] x) => (float[2] y) { y = RandomNormalLike(x) }",
        "(float x) => (float y) { y = Log(x) }",
        "(float[2] x) => (float[2] x) { }",
    ],
)
def test_every_result_is_plain_data(source: str) -> None:
    json.dumps(rw.apply(model(source)).to_json(), allow_nan=False)


def test_save_and_check(gelu: onnx.ModelProto, tmp_path: Path) -> None:
    result = rw.apply(gelu)
    path = tmp_path / "out.onnx"
    result.save(path)
    assert path.read_bytes() == io.to_bytes(result.model) == result.to_proto().SerializeToString(deterministic=True)
    onnx.checker.check_model(str(path))
    for a, b in ((gelu, path), (path, gelu), (gelu, result.model)):
        assert rw.check(a, b).ok


def test_check_finds_a_difference(gelu: onnx.ModelProto) -> None:
    other = model("(float[n,8] x) => (float[n,8] y) { y = Relu(x) }")
    found = rw.check(gelu, other)
    assert not found.ok
    assert found.failures[0].startswith("output y, sample 0 at n=")
    renamed = model("(float[n,8] x) => (float[n,8] z) { z = Relu(x) }")
    assert "output" in rw.check(other, renamed).failures[0]
    one = rw.check(gelu, gelu, dims={"n": 4}, samples=1)
    assert (one.ok, one.identical, one.runs, one.bindings) == (True, True, 1, [{"n": 4}])


def test_repairs_are_noted() -> None:
    graph = model("(float[2] x) => (float[2] y) { a = Relu(x)  y = Neg(a) }")
    nodes = list(graph.graph.node)[::-1]
    del graph.graph.node[:]
    graph.graph.node.extend(nodes)
    for opset in (None, 18):
        assert any("order" in note or "sort" in note for note in rw.apply(graph, opset=opset).notes)


def test_inner_types_are_written_only_where_the_file_had_some(gelu: onnx.ModelProto) -> None:
    source = gelu
    del source.graph.value_info[:]
    bare = rw.apply(source, without=["gelu"], check="off").to_proto()
    assert not bare.graph.value_info
    typed = onnx.shape_inference.infer_shapes(source)
    kept = rw.apply(typed, without=["gelu"], check="off").to_proto()
    assert {v.name for v in kept.graph.value_info} >= {"e", "a"}
    assert "_d" not in "".join(d.dim_param for v in kept.graph.value_info for d in v.type.tensor_type.shape.dim)


def test_operators_that_cannot_be_lowered_after_all_are_told() -> None:
    """The lowering needs what another rule takes away: the raise is undone, and the report says so."""
    gelu = AnyNode(op_types=("Gelu",))

    def lower(m: Any, b: Any) -> Any:
        others = {n.op_type for n in m.node(gelu).inputs[0].consumers()}
        m.require("Abs" in others, "there is no Abs beside it")
        return b.microsoft.Gelu(m.node(gelu).inputs[0])

    rules = [
        renaming("Relu", "Gelu", "raise-it"),
        Rule("lower-it", Stage.LOWER, gelu, lower),
        renaming("Abs", "Sign", "spoil", stage=Stage.LOWER, benefit=9),
    ]
    graph = model("(float[2] x) => (float[2] z, float[2] y) { a = Abs(x)  z = Exp(a)  y = Relu(x) }")
    result = rw.apply(graph, rules=rules, only=["raise-it"], without=["gelu-lower"], check="off")
    assert "Relu" in operators(result)
    assert result.trace.refused["raise-it"] == {"y": "Gelu could not be lowered after all: there is no Abs beside it"}


# -- who is to blame ----------------------------------------------------------------------------------------------


def row(*ops: str) -> onnx.ModelProto:
    """Operators side by side, each of its own multiple of x."""
    lines = [f"s{i} = Mul(x, {0.55 + 0.1 * i})  v{i} = {each}(s{i})" for i, each in enumerate(ops)]
    values = ", ".join(f"v{i}" for i in range(len(ops)))
    return model(
        f"(float[2,3] x) => (float[2,{3 * len(ops)}] y) {{ {'  '.join(lines)}  y = Concat<axis=1>({values}) }}"
    )


WRONG = renaming("Sin", "Cos")


def harmless(m: Any, b: Any) -> Any:
    """Atan(x) ⟶ -Atan(-x), once."""
    m.require(m.node(atan).name.startswith("Atan") and not m.node(atan).metadata_props, "done already")
    return b.Neg(b.Atan(b.Neg(m.node(atan).inputs[0])))


atan = AnyNode(op_types=("Atan",))
HARMLESS = Rule("harmless", Stage.RAISE, atan, harmless)


def test_a_wrong_site_is_undone_by_its_own_check() -> None:
    result = rw.apply(row("Sin", "Atan"), rules=[WRONG, HARMLESS])
    assert result.trace.counts()["sin-is-cos"] == 0
    assert result.trace.counts()["harmless"] == 1
    ((key, reason),) = result.checks.undone.items()
    assert key == ("sin-is-cos", "v0")
    assert reason.startswith("output ")


@pytest.mark.usefixtures("blind")
def test_a_culprit_is_found_by_bisection(rounds: Iterator[list[set[Any]]]) -> None:
    (seen,) = rounds
    result = rw.apply(row(*["Atan"] * 9, "Sin", *["Atan"] * 6), rules=[WRONG, HARMLESS], check="fast")
    assert result.checks.undone.keys() == {("sin-is-cos", "v9")}
    assert result.checks.undone["sin-is-cos", "v9"].startswith("output y, sample 0")
    assert result.trace.counts() == {"harmless": 15}
    assert result.trace.refused["sin-is-cos"]["v9"].startswith("undone: output y")
    assert result.checks.model is not None
    assert result.checks.model.ok
    suspects = 16
    assert len(seen) <= 3 + math.ceil(math.log2(suspects)), "all, none, halves, all but one"


@pytest.mark.usefixtures("blind")
@pytest.mark.parametrize("places", [(0, 1), (0, 7), (6, 7), (2, 5)])
def test_two_culprits(places: tuple[int, int], rounds: Iterator[list[set[Any]]]) -> None:
    (seen,) = rounds
    ops = ["Sin" if i in places else "Atan" for i in range(8)]
    result = rw.apply(row(*ops), rules=[WRONG, HARMLESS], check="fast")
    assert result.checks.undone.keys() == {("sin-is-cos", f"v{i}") for i in places}
    assert result.trace.counts() == {"harmless": 6}
    assert len(seen) <= 1 + 2 * (2 + math.ceil(math.log2(8)))


@pytest.mark.usefixtures("blind")
def test_a_rule_that_is_wrong_twice_is_not_trusted_a_third_time(rounds: Iterator[list[set[Any]]]) -> None:
    (seen,) = rounds
    result = rw.apply(row(*["Sin"] * 10, "Atan"), rules=[WRONG, HARMLESS], check="fast")
    assert result.checks.undone.keys() == {("sin-is-cos", f"v{i}") for i in range(10)}
    assert sum("the rule was wrong at 2 other sites" in r for r in result.checks.undone.values()) == 8
    assert result.trace.counts() == {"harmless": 1}
    assert len(seen) <= 1 + 2 * (2 + math.ceil(math.log2(11))) + 1, "once more, to see where else the rule applies"


@pytest.mark.usefixtures("blind")
def test_too_many_culprits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_MAX_CULPRITS", 2)
    wrong = [renaming("Sin", "Cos"), renaming("Cosh", "Sinh"), renaming("Atan", "Neg")]
    with pytest.raises(CheckError, match="not equal to the original and nothing was written: output y"):
        rw.apply(row("Sin", "Cosh", "Atan"), rules=wrong, check="fast")
    assert len(rw.apply(row("Sin", "Cosh"), rules=wrong, check="fast").checks.undone) == 2


@pytest.mark.usefixtures("blind")
def test_what_takes_the_place_of_a_culprit_may_be_one_too() -> None:
    """Without the first wrong rule, a second one applies at the same place."""
    wrong = [renaming("Sin", "Cos", benefit=2), renaming("Sin", "Neg", benefit=1), HARMLESS]
    result = rw.apply(row("Sin", "Atan"), rules=wrong, check="fast")
    assert result.checks.undone.keys() == {("sin-is-cos", "v0"), ("sin-is-neg", "v0")}
    assert result.trace.counts() == {"harmless": 1}


@pytest.mark.usefixtures("blind")
@pytest.mark.parametrize(
    "rewrite",
    [
        lambda m, b: b.Cast(b.Cast(m[x], to=10), to=1),
        lambda m, b: b.Mul(m[x], 1.001),
        lambda m, b: b.Add(m[x], float("nan")),
        lambda m, b: b.Neg(m[x]),
    ],
    ids=["half", "slightly off", "nan", "sign"],
)
def test_what_is_wrong_in_other_ways(rewrite: Callable[..., Any]) -> None:
    wrong = Rule("wrong", Stage.RAISE, op.Abs(x), rewrite)
    result = rw.apply(row("Abs", "Atan"), rules=[wrong, HARMLESS], check="fast", without=["relu-of-nonnegative"])
    assert {k for k in result.checks.undone if k[0] == "wrong"} == {("wrong", "v0")}
    assert result.trace.counts()["harmless"] == 1


def test_off_checks_structure_only() -> None:
    result = rw.apply(row("Sin"), rules=[WRONG], check="off")
    assert "Cos" in operators(result)


def test_a_structure_that_breaks_is_undone_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hole in our own legality checks: the emitted model is invalid, and the run goes on without that rewrite."""
    from onnxrewrite.rewrite import legality

    monkeypatch.setattr(legality, "illegal_node", lambda *a, **k: None)
    for level in ("off", "fast"):
        monkeypatch.setattr(SiteChecker, "__call__", lambda self, site: None)
        wrong = Rule("wrong", Stage.RAISE, op.Sin(x), lambda m, b: b.Cos(m[x], axis=3))
        result = rw.apply(row("Sin", "Atan"), rules=[wrong, HARMLESS], check=level)  # type: ignore[arg-type]
        assert result.checks.undone.keys() == {("wrong", "v0")}
        assert result.trace.counts() == {"harmless": 1}


def test_a_rule_that_raises_is_noted() -> None:
    def explode(m: Any, b: Any) -> Any:
        raise ValueError("boom")

    result = rw.apply(row("Sin", "Atan"), rules=[Rule("bad", Stage.RAISE, op.Sin(x), explode), HARMLESS])
    assert result.trace.counts() == {"harmless": 1}
    assert any(n.startswith("bad: the rule raised ValueError: boom") for n in result.notes)


# -- functions ----------------------------------------------------------------------------------------------------


def test_functions_are_inlined_so_that_patterns_cross_their_borders() -> None:
    source = (
        "(float[n,8] x) => (float[n,8] y) { a = own.Outer(x)  e = Erf(a)  b = Add(e, 1.0)  m = Mul(x, b)  y = Mul(m, 0.5) }"
        ' <domain: "own", opset_import: ["": 17, "own": 1]> Outer (p) => (q) { q = own.Inner(p) }'
        ' <domain: "own", opset_import: ["": 17]> Inner (p) => (q) { q = Div(p, 1.4142135) }'
    )
    result = rw.apply(model(source))
    assert [n.op_type for n in result.model.graph] == ["Gelu"]
    assert not result.model.functions
    assert result.checks.model is not None
    assert result.checks.model.ok


NAMES_F = Rule("names-f", Stage.RAISE, Operators("own").F(op.Neg(x)), lambda m, build: m[x])
"""A rule that matches nowhere, and keeps functions called F."""


def test_functions_are_inlined_rewritten_and_checked() -> None:
    body = GELU.replace("x", "p").replace("y =", "q =").replace("exp", "x")
    source = f'(float[n,8] x) => (float[n,8] y) {{ y = own.F(x) }} <domain: "own", opset_import: ["": 17]> F (p) => (q) {{ {body} }}'
    result = rw.apply(model(source))
    assert not result.model.functions
    assert [n.op_type for n in result.model.graph] == ["Gelu"]
    assert "functions of the model were inlined: own.F" in result.notes
    assert result.checks.model is not None
    assert result.checks.model.ok
    onnx.checker.check_model(result.to_proto())


def test_functions_that_rules_name_are_rewritten_and_checked() -> None:
    body = GELU.replace("x", "p").replace("y =", "q =").replace("exp", "x")
    source = f'(float[n,8] x) => (float[n,8] y) {{ y = own.F(x) }} <domain: "own", opset_import: ["": 17]> F (p) => (q) {{ {body} }}'
    result = rw.apply(model(source), rules=[NAMES_F])
    (function,) = result.model.functions.values()
    assert [n.op_type for n in function] == ["Gelu"]
    assert result.checks.model is not None
    assert result.checks.model.ok
    onnx.checker.check_model(result.to_proto())
    assert not result.to_proto().functions[0].value_info


def test_attributes_of_a_function_are_not_lost_with_a_branch() -> None:
    """A decided If is taken apart, but not where its nodes refer to the function's attributes."""
    branches = (
        "then_branch = () => (t) { t = LeakyRelu<alpha: float = @slope>(p) }, else_branch = () => (e) { e = Neg(p) }"
    )
    source = (
        '(float[2] x) => (float[2] y) { y = own.F<slope=0.5>(x) } <domain: "own", opset_import: ["": 16]>'
        f" F <slope> (p) => (q) {{ c = Constant<value = bool true>()  q = If<{branches}>(c) }}"
    )
    result = rw.apply(model(source), check="off", rules=[NAMES_F])
    assert rw.check(model(source), result.model).ok
    assert "alpha: float = @slope" in text.print_model(result.model)
    assert "LeakyRelu <alpha = 0.5>" in text.print_model(rw.apply(model(source)).model)


def test_functions_that_call_themselves_do_not_crash() -> None:
    source = (
        '(float[2] x) => (float[2] y) { y = own.F(x) } <domain: "own", opset_import: ["": 17, "own": 1]>'
        " F (p) => (q) { r = own.F(p)  q = Neg(r) }"
    )
    with pytest.raises(ModelError, match=r"function own\.F calls itself"):
        rw.apply(model(source), check="off")


def test_a_wrong_rule_of_the_lower_stage_is_not_blamed_on_others() -> None:
    """The replacement of a site is lowered to be run, but not where it runs as it is: the wrong rule would spoil it."""
    wrong = renaming("Neg", "Abs", stage=Stage.LOWER)
    result = rw.apply(row("Sin", "Atan"), rules=[wrong, HARMLESS])
    assert {rule for rule, _ in result.checks.undone} == {"neg-is-abs"}
    assert result.trace.counts()["harmless"] == 1


@pytest.mark.usefixtures("quick_timing")
def test_what_passed_in_an_earlier_run_is_not_run_again(gelu: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[object] = []
    monkeypatch.setattr(
        rewrites, "check_site", lambda *args, **options: ran.append(args) or check_site(*args, **options)
    )
    first, count = rw.apply(gelu, lower="fastest"), len(ran)
    again = rw.apply(gelu, lower="fastest")
    assert count == len(ran) == first.checks.distinct_sites > 0
    assert [each.checks.remembered_sites for each in (first, again)] == [0, first.checks.distinct_sites]
    assert io.to_bytes(again.model) == io.to_bytes(first.model)
    assert rw.apply(gelu, lower="fastest", seed=1).checks.remembered_sites == 0


@pytest.mark.usefixtures("quick_timing")
def test_a_rule_that_has_become_wrong_is_found_out() -> None:
    twice = model("(float[n,8] x) => (float[n,8] y) { a = Neg(x)  b = Neg(a)  y = Relu(b) }")
    right = Rule("undo", Stage.CANONICALIZE, op.Neg(op.Neg(x)), lambda m, b: m[x])
    wrong = Rule("undo", Stage.CANONICALIZE, op.Neg(op.Neg(x)), lambda m, b: b.Abs(m[x]))
    found = [rw.apply(twice, lower="fastest", rules=[rule], only=["undo"]) for rule in (right, right, wrong, wrong)]
    assert list(map(operators, found)) == [["Relu"]] * 2 + [["Neg", "Neg", "Relu"]] * 2
    assert [each.checks.remembered_sites for each in found] == [0, 1, 0, 0]


def test_weights_that_may_be_overridden_are_told() -> None:
    note = "a weight is an input, too, which a caller may override, so that nothing is folded into what they compute; "
    note += "if nobody does, python -m onnxruntime.tools.remove_initializer_from_input makes constants of them"
    given = "float[2] x; input w = float[2] {1.0, 2.0}; a = Mul(x, w)  y = Relu(a)"
    assert note in rw.apply(model(given), check="off", lower="fused").notes
    assert note not in rw.apply(model(given.replace("input w", "w")), check="off", lower="fused").notes
