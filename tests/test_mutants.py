"""Mutants that make no difference are told by what operators mean, and those that make one are not."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from benchmarks.mutants import hooks
from benchmarks.mutants.equivalent import EQUIVALENT, EVERY, unmatched
from benchmarks.mutants.guards import asked_in
from benchmarks.mutants.implied import implied
from benchmarks.mutants.laws import law
from benchmarks.mutants.making import numbered
from benchmarks.mutants.mutant import GUARD, Mutant
from benchmarks.mutants.right import Right
from benchmarks.mutants.terms import in_pattern, terms_of, vouching
from onnxrewrite.ir import text
from onnxrewrite.ir.facts import Facts
from onnxrewrite.pattern.recursive import RecursiveMatcher
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.rule import Rule, Stage
from onnxrewrite.rules import FLOATS, Attr, Builder, Each, Match, Scalar, Term, Value, Var, any_of, op
from onnxrewrite.ruletest.fuzz import judge
from onnxrewrite.ruletest.metamorphic.firing import Trial
from onnxrewrite.runtime.session import as_proto, open_session

x, y = Var("x", dtype=FLOATS), Var("y")


def facts_of(model: ir.Model) -> Facts:
    facts = Facts(model.graph, dict(model.opset_imports))
    for node in model.graph:
        facts.infer(node)
    return facts


def told(graph: str, opset: int = 18) -> str:
    """What is said of the last two nodes of a graph."""
    model = text.parse(graph, opset=opset)
    *_, one, other = model.graph
    return law(one, other, facts_of(model))


SAME = [
    "float[n] x; float[m] z; a = Concat<axis=0>(x, z)  b = Concat<axis=-1>(x, z)",
    "float[n,4] x; a = Softmax<axis=1>(x)  b = Softmax<axis=-1>(x)",
    "float[2,3] x; a = Reshape(x, {3, 2})  b = Reshape<allowzero=1>(x, {3, 2})",
    "float[n,3] x; a = Reshape(x, {-1, 1})  b = Reshape<allowzero=1>(x, {-1, 1})",
    "float[1,3] x; a = Unsqueeze(x, {0})  b = Unsqueeze(x, {1})",
    "float[n,4] x; a = Expand(x, {1, 4})  b = Reshape(x, {0, 4})",
    "float[n,4] x; a = Slice(x, {0}, {9}, {1})  b = Tile(x, {1, 1})",
    "float[n,4] x; a = Slice(x, {0, 1}, {9, 3}, {0, 1})  b = Slice(x, {0, 1}, {9, 3})",
    "float[n,4,5] x; a = Transpose(x)  b = Transpose<perm=[2, 1, 0]>(x)",
    "float[n,4] x; a = Pad(x, {0, 1, 0, 1}, 0.0)  b = Pad(x, {0, 1, 0, 1})",
    "float[n,4] x; a = QuantizeLinear<axis=0>(x, 0.5)  b = QuantizeLinear(x, 0.5)",
    "float[2,4] x; float[4,3] z; a = Gemm<beta=2.0>(x, z)  b = Gemm(x, z)",
    "float[1,2,4] x; float[2,2,1] w; a = Conv(x, w, {0.0, 0.0})  b = Conv(x, w)",
    "float[1,1,4] x; a = MaxPool<kernel_shape=[2]>(x)  b = MaxPool<kernel_shape=[2], ceil_mode=1>(x)",
    "float[n,4] x; a = Slice(x, {2}, {4}, {1})  b = Slice(x, {2}, {5}, {1})",
    "v = Identity(x)  a = Transpose(v)  b = Transpose<perm=[2, 1, 0]>(v)",
    "float[n,1] x; a = ReduceMean(x, {1})  b = Reshape(x, {-1, 1})",
    "float[n,4,5] x; a = ReduceMean(x, {1, 2})  b = ReduceMean(x, {-1, 1})",
    "float[n,4] x; a = ReduceMean(x, {0, 1})  b = ReduceMean(x)",
    "float[n,4] x; a = ReduceMean(x, {1})  b = ReduceMean<noop_with_empty_axes=1>(x, {1})",
]

DIFFERENT = [
    "float[n,n] x; float[n,n] z; a = Concat<axis=0>(x, z)  b = Concat<axis=-1>(x, z)",
    "float[n,4] x; a = Softmax<axis=0>(x)  b = Softmax<axis=-1>(x)",
    "float[0,3] x; a = Reshape(x, {3, 0})  b = Reshape<allowzero=1>(x, {3, 0})",
    "float[2,3] x; a = Unsqueeze(x, {0})  b = Unsqueeze(x, {1})",
    "float[1,4] x; a = Expand(x, {2, 4})  b = Reshape(x, {0, 4})",
    "float[4] x; a = Slice(x, {-1}, {-5}, {0}, {-1})  b = Tile(x, {1})",
    "float[n,4,5] x; a = Transpose(x)  b = Transpose<perm=[1, 2, 0]>(x)",
    "float[n,4] x; a = Pad(x, {0, 1, 0, 1}, 1.0)  b = Pad(x, {0, 1, 0, 1})",
    "float[n,4] x; a = Pad(x, {0, 1, 0, 1}, -0.0)  b = Pad(x, {0, 1, 0, 1})",
    "float[2,2] x; a = QuantizeLinear<axis=0>(x, {0.5, 0.25})  b = QuantizeLinear(x, {0.5, 0.25})",
    "float[2,4] x; float[4,3] z; float[3] c; a = Gemm<beta=2.0>(x, z, c)  b = Gemm(x, z, c)",
    "float[1,2,4] x; float[2,2,1] w; a = Conv(x, w, {0.0, 1.0})  b = Conv(x, w)",
    "float[1,1,5] x; a = MaxPool<kernel_shape=[2], strides=[2]>(x)"
    "  b = MaxPool<kernel_shape=[2], strides=[2], ceil_mode=1>(x)",
    "float[n,4] x; a = Slice(x, {1}, {3}, {1})  b = Slice(x, {1}, {4}, {1})",
    "float[n,m] x; a = Slice(x, {2}, {4}, {1})  b = Slice(x, {2}, {5}, {1})",
    "v = Identity(x)  a = Transpose(v)  b = Transpose<perm=[1, 2, 0]>(v)",
    "float[n,2] x; a = ReduceMean(x, {1})  b = Reshape(x, {-1, 1})",
    "float[1] x; a = ReduceL1(x, {0})  b = Reshape(x, {1})",
    "float[4,4] x; a = ReduceMean<keepdims=0>(x, {0})  b = ReduceMean<keepdims=0>(x, {1})",
    "float[n,4] x; a = ReduceMean(x)  b = ReduceMean<noop_with_empty_axes=1>(x)",
    "float[n,4] x; a = Relu(x)  b = Abs(x)",
    "float x; float z; a = Relu(x)  b = Relu(z)",
]


@pytest.mark.parametrize("graph", SAME)
def test_nodes_that_are_the_same_by_a_law(graph: str):
    assert told(graph)


@pytest.mark.parametrize("graph", DIFFERENT)
def test_nodes_that_are_not(graph: str):
    assert not told(graph)


@pytest.mark.parametrize("dtype", ["float", "float16", "double"])
@pytest.mark.parametrize("operator", ["LayerNormalization", "RMSNormalization"])
def test_stash_type_is_not_looked_at(operator: str, dtype: str):
    """That is what one of the laws says of ONNX Runtime, and not of the standard."""
    made = []
    for stash in (1, 0, 10, 16):
        graph = f"{dtype}[3,8] x; {dtype}[8] s; y = {operator}<stash_type={stash}>(x, s)"
        session = open_session(as_proto(text.parse(graph, opset=23)), threads=1)
        assert not isinstance(session, str)
        numbers = {"float": np.float32, "float16": np.float16, "double": np.float64}[dtype]
        rng = np.random.default_rng(0)
        feeds = {"x": rng.standard_normal((3, 8)).astype(numbers), "s": rng.standard_normal(8).astype(numbers)}
        found = session.run(feeds)
        assert not isinstance(found, str)
        made.append(np.asarray(found["y"]).tobytes())
    assert len(set(made)) == 1


@pytest.mark.parametrize(
    ("pattern", "follows"),
    [
        (x / (1 + op.Abs(x)), True),  # no quotient of integers matches
        (x * Scalar("s"), True),
        (x + op.Abs(x), False),
        (op.Conv(x, y), True),  # there is no kernel for integers
        (op.MatMul(x, y), False),
        (op.MatMul(x, Var("z", dtype=FLOATS)), True),
        (op.Conv(op.Concat(y, x, axis=1), y), True),
        (op.Conv(op.Split(x, axis=1)[1], y), True),
        (op.Conv(any_of(op.Relu(x), op.Abs(y)), y), True),  # where x is bound, it is what Conv reads
        (op.Add(op.Conv(any_of(op.Relu(x), op.Abs(y)), y), op.Shape(x)), False),  # it is bound in any case
        (op.Conv(op.Cast(x, to=1), y), False),
        (op.MatMul(op.Softmax(y), x), True),
        (op.MatMul(op.Cast(y, to=1), x), True),
        (op.MatMul(op.Cast(y, to=7), x), False),
    ],
)
def test_dtypes_that_follow_from_the_pattern(pattern: Term, follows: bool):
    assert implied([pattern], x, FLOATS) == follows


def never(*given: object) -> object:
    raise AssertionError


def test_a_right_pattern_tells_what_only_the_mistake_lets_through():
    number = Var("number", dtype=FLOATS)
    alpha = Attr[float]("alpha", 0.5)
    rule = Rule("tried", Stage.CANONICALIZE, op.LeakyRelu(op.Abs(number), alpha=alpha), never)  # type: ignore[arg-type]
    right = Right(rule)
    number.dtypes = None
    model = text.parse("float x; int32 i; f = Abs(x)  y = LeakyRelu(f)  g = Abs(i)  z = LeakyRelu(g)")
    facts = facts_of(model)
    matcher = RecursiveMatcher(facts, model.graph)
    strays = {}
    for node in model.graph:
        for match in matcher.matches(rule.outputs, node.outputs[0]):
            strays[node.outputs[0].name] = right.strays(match)
    assert strays == {"y": False, "z": True}


def test_of_what_a_match_has_several_times_the_right_pattern_may_have_bound_another():
    strays = []

    def look(m: Match, build: Builder) -> Value:
        strays.append(right.strays(m))
        m.refuse("it only looks")

    parts = Each[Match]("parts", of=op.Relu(Var("number", dtype=FLOATS)))
    rule = Rule("tried", Stage.CANONICALIZE, op.Concat(parts, axis=0), look)
    right = Right(rule)
    model = text.parse("float[2] v; float[2] w; a = Relu(v)  b = Relu(w)  z = Concat<axis=0>(a, b)")
    Trial.of(rule, [rule], "onnxruntime-cpu").drive(model)
    assert strays == [False]


def test_names_are_all_different_and_the_first_of_a_kind_has_no_number():
    found = numbered([Mutant("r", GUARD, what, None) for what in ("a", "b", "a", "a")])
    assert [m.what for m in found] == ["a", "b", "a (2)", "a (3)"]


def test_the_reason_of_what_has_no_meaning_is_that_of_the_ladder():
    assert f'"{hooks.INVALID}"' in Path(judge.__file__).read_text(encoding="utf-8")


# -- entries -------------------------------------------------------------------------------------------------


def test_an_entry_that_is_about_no_mutant_is_told():
    assert unmatched([], ["cast-like"], of_all=False) == ["cast-like: built Cast: left out"]
    lost = unmatched([], [], of_all=True)
    assert f"{EVERY}: without: it is needed as a float, too" in lost
    assert len(lost) == len(EQUIVALENT)


def test_every_entry_is_about_a_rule_and_what_its_source_says():
    """What rewrites build is seen by running them only: the benchmark itself tells of entries about that."""
    library = {r.name: r for r in registry.load(plugins=False)}
    files = {str(path) for rule in library.values() for path in Path(rule.source).parent.glob("*.py")}
    files.add(inspect.getfile(Match))
    reasons = {f"without: {told}" for file in files for told in asked_in(file)}
    for rule, what in EQUIVALENT:
        asked = list(library.values()) if rule == EVERY else [library[rule]]
        if what.startswith("without: "):
            assert what in reasons, what
        elif not what.startswith("built "):
            assert any(what in said_of(each) for each in asked), (rule, what)


def said_of(rule: Rule) -> set[str]:
    """The mistakes that can be made in a rule's pattern."""
    places = range(len(terms_of(rule)))
    return {m.what for m in numbered([*in_pattern(rule), *vouching(rule, places)])}


def test_guards_are_called_by_their_reasons(tmp_path: Path):
    source = tmp_path / "rules.py"
    source.write_text(
        'm.require(\n    n > 0,\n    f"it has {n} of them",\n    at=x,\n)\nbuild.refuse("no")\nprint("x")\n'
    )
    assert asked_in(str(source)) == ["it has … of them", "no"]
