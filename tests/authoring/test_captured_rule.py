"""A region becomes a rule: what is the same everywhere stays, what differs is captured, and the rule matches there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from corpus import ROOT

import onnxrewrite as rw
from onnxrewrite import io
from onnxrewrite.authoring.capture_checks import load_rule, matching, places
from onnxrewrite.authoring.template import Captured
from onnxrewrite.errors import UsageError
from onnxrewrite.ir import text
from onnxrewrite.pattern.terms import notation
from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.rules import Stage
from onnxrewrite.testing import check_example


def captured(graph: str, starts: str, ends: str, *, opset: int = 17, stage: Stage = Stage.RAISE) -> Captured:
    return rw.capture(
        text.parse(graph, opset=opset), starts.split(), ends.split(), name="found-again", stage=stage, label="m.onnx"
    )


def rule_of(found: Captured) -> Rule:
    module = ModuleType("captured")
    exec(compile(found.rule, "captured", "exec"), vars(module))
    rule = module.to_found_again
    assert isinstance(rule, Rule)
    return rule


def pattern(found: Captured) -> str:
    return "; ".join(notation(rule_of(found).outputs))


def kinds(found: Captured) -> dict[str, str]:
    return {c.name: c.kind for c in found.captures}


def layers(template: str, *values: str) -> str:
    """A layer for each value, one after the other: # is its number, @ the next, ? the value."""
    made = (template.replace("#", str(n)).replace("@", str(n + 1)).replace("?", v) for n, v in enumerate(values))
    return "float[b,s,16] x0; " + "  ".join(made)


NORM = (
    "p# = Mul(x#, x#)  v# = ReduceMean<axes=[-1]>(p#)  a# = Add(v#, ?)  r# = Sqrt(a#)  n# = Div(x#, r#)  x@ = Tanh(n#)"
)


def test_what_is_equal_everywhere_is_a_number() -> None:
    found = captured(layers(NORM, "1e-5", "1e-5", "1e-5"), "x0", "n0")
    assert pattern(found) == "(x / (ReduceMean((x * x), axes=(-1,)) + 1e-05)**0.5)"
    assert found.places == ("n0", "n1", "n2")
    assert kinds(found) == {"x": "Var"}


def test_what_differs_is_captured() -> None:
    found = captured(layers(NORM, "1e-5", "1e-6"), "x0", "n0")
    assert pattern(found) == "(x / (ReduceMean((x * x), axes=(-1,)) + epsilon)**0.5)"
    assert kinds(found) == {"x": "Var", "epsilon": "Scalar"}


def test_where_it_is_computed_it_is_a_variable() -> None:
    graph = layers(NORM, "e", "1e-6").replace("x0;", "x0; float e;")
    found = captured(graph, "x1", "n1")
    assert found.places == ("n1", "n0")
    assert kinds(found) == {"x": "Var", "bias": "Var"}


def test_weights_are_constants_with_names_of_the_model() -> None:
    one = '"enc.layer.#.query.weight" = float[16,16] ~ "enc.layer.#.query.bias" = float[16] ~ '
    one += 'm# = MatMul(x#, "enc.layer.#.query.weight")  a# = Add(m#, "enc.layer.#.query.bias")  x@ = Tanh(a#)'
    found = captured(layers(one, "", ""), "x0", "a0", stage=Stage.CANONICALIZE)
    assert pattern(found) == "(MatMul(x, weight) + bias)"
    assert kinds(found) == {"x": "Var", "weight": "Const", "bias": "Const"}


def test_attributes_that_differ_are_captured_and_defaults_are_left_out() -> None:
    one = "s# = Softmax<axis=?>(x#)  t# = Transpose<perm=[0,2,1]>(s#)  x@ = Transpose<perm=[0,2,1]>(t#)"
    found = captured(layers(one, "1", "2"), "x0", "t0", stage=Stage.CANONICALIZE)
    assert pattern(found) == "Transpose(Softmax(x, axis=axis), perm=(0, 2, 1))"
    same = captured(layers(one, "-1", "-1"), "x0", "t0", stage=Stage.CANONICALIZE)
    assert pattern(same) == "Transpose(Softmax(x), perm=(0, 2, 1))"


def test_an_operator_that_differs_becomes_an_alternative() -> None:
    one = "a# = Abs(x#)  b# = Exp(a#)  c# = ?(b#)  d# = Sigmoid(c#)  e# = Cos(d#)  x@ = Relu(e#)"
    found = captured(layers(one, "Tanh", "Erf", "Tanh"), "x0", "e0")
    assert pattern(found).startswith("Cos(Sigmoid(any_of(Tanh(p1), Erf(p1))))")
    assert found.places == ("e0", "e1", "e2")
    assert "there is Erf at `e1`" in found.notes[0]
    rule = rule_of(found)
    assert len(rule.examples) == 2
    for example in rule.examples:
        check_example(rule, example)


def test_two_operators_that_differ_are_another_region() -> None:
    one = "a# = Abs(x#)  b# = ?(a#)  c# = ?(b#)  d# = Sigmoid(c#)  e# = Cos(d#)  x@ = Relu(e#)"
    assert captured(layers(one, "Tanh", "Erf"), "x0", "e0").places == ("e0",)


def test_operands_may_stand_in_another_order() -> None:
    one = "t# = Tanh(x#)  m# = Mul(?)  y# = MatMul(m#, float[16,16] ~)  x@ = Relu(y#)"
    found = captured(layers(one, "t0, x0", "x1, t1"), "x0", "m0")
    assert found.places == ("m0", "m1")
    assert pattern(found) in ("(Tanh(x) * x)", "(x * Tanh(x))")


def test_the_same_value_must_be_the_same() -> None:
    graph = "float[8] x; float[8] z; t = Tanh(x)  y = Mul(t, x)  u = Tanh(z)  w = Mul(u, x)"
    assert captured(graph, "x", "y").places == ("y",)


def test_shapes_are_variables() -> None:
    one = "s# = Shape(x0)  g# = Slice(s#, {0}, {2})  c# = Concat<axis=0>(g#, {4, 4})  r# = Reshape(x#, ?)"
    one += " t# = Transpose<perm=[0,2,1,3]>(r#)  e# = Exp(t#)  u# = Transpose<perm=[0,2,1,3]>(e#)  x@ = Reshape(u#, {0, 0, 16})"
    found = captured(layers(one, "c0", "{0, 0, 4, 4}"), "x0", "e0", stage=Stage.CANONICALIZE)
    assert pattern(found) == "Exp(Transpose(Reshape(x, shape), perm=(0, 2, 1, 3)))"
    assert found.places == ("e0", "e1")


def test_inner_values_whose_shape_is_asked_for_stay_computed() -> None:
    graph = "float[b,8] x; a = Exp(x)  s = Shape(a)  f = Expand(1.5, s)  m = Mul(a, f)  y = Tanh(m)"
    found = captured(graph, "x", "y", stage=Stage.CANONICALIZE)
    assert rule_of(found).allow_shared
    assert any("allow_shared" in note for note in found.notes)


def test_a_place_that_is_read_elsewhere_is_told() -> None:
    graph = layers("a# = Exp(x#)  b# = Tanh(a#)  x@ = Sigmoid(b#)", "", "") + "  z = Neg(a1)"
    found = captured(graph, "x0", "b0")
    assert found.places == ("b0",)
    assert found.notes == ("At 1 more place an inner value is read elsewhere too, as `a1` at `b1`: not taken.",)


def test_several_outputs() -> None:
    one = "h# = MatMul(x#, float[16,32] ~)  p#, q# = Split<axis=-1>(h#, {16, 16})  s# = Sigmoid(p#)  t# = Tanh(q#)  x@ = Add(s#, t#)"
    found = captured(layers(one, "", ""), "x0", "s0 t0")
    assert found.places == ("s0", "s1")
    assert len(rule_of(found).outputs) == 2
    assert pattern(found).startswith("Sigmoid(p1[0]), Tanh(p1[1])")


def test_parameters_that_are_inputs_in_one_opset_are_told_by_name() -> None:
    one = (
        "m# = ReduceMean(x#, {-1})  d# = Sub(x#, m#)  u# = Unsqueeze(d#, {1})  e# = Softmax(u#)  x@ = Squeeze(e#, {1})"
    )
    found = captured(layers(one, "", ""), "x0", "e0", opset=18)
    assert pattern(found) == "Softmax(Unsqueeze((x - ReduceMean(x, axes=(-1,))), axes=(1,)))"


def test_known_numbers_have_names() -> None:
    graph = "float[n,8] x; d = Div(x, 1.41421356)  e = Erf(d)  a = Add(e, 1.0)  m = Mul(x, a)  y = Mul(m, 0.5)"
    found = captured(graph, "x", "y")
    assert "op.Erf(x / SQRT2)" in found.rule
    assert pattern(found) == "(x * (Erf((x / 1.41421)) + 1) * 0.5)"


def test_in_a_subgraph() -> None:
    branch = "a = Exp(x)  p = Tanh(a)  d = Exp(p)  q = Tanh(d)"
    graph = f"float[8] x; bool c; y = If<then_branch = () => (q) {{ {branch} }}, else_branch = () => (z) {{ z = Neg(x) }}>(c)"
    assert captured(graph, "x", "p").places == ("p", "q")


def test_through_functions_which_are_inlined() -> None:
    functions = "".join(
        f'<domain: "local", opset_import: ["" : 17]> {name} (x) => (y) {{ s = {first}(x)  y = Exp(s) }} '
        for name, first in (("one", "Sin"), ("other", "Tan"))
    )
    graph = (
        '<ir_version: 8, opset_import: ["" : 17, "local" : 1]> g (float[8] a) => (float[8] c) '
        "{ b = local.one(a)  c = local.other(b) } "
    )
    assert pattern(captured(graph + functions, "a", "c")) == "Exp(Tan(Exp(Sin(x))))"


def test_rules_that_take_a_part_are_told() -> None:
    graph = (
        "float[n,8] x; d = Div(x, 1.41421356)  e = Erf(d)  a = Add(e, 1.0)  m = Mul(x, a)  h = Mul(m, 0.5)  y = Cos(h)"
    )
    found = captured(graph, "x", "y")
    assert found.notes == (
        "Other rules take a part of it before: gelu-erf.  With --only found-again, apply leaves them out.",
    )


def test_operators_of_other_domains() -> None:
    model = (
        '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1, "local" : 1]> g (float[8] a) => (float[8] d) '
        "{ b = com.microsoft.Gelu(a)  c = local.one(b)  d = Cos(c) }"
    )
    found = captured(model, "a", "c")
    assert 'Operators("local").one(microsoft.Gelu(' in found.rule.replace("'", '"')
    assert found.places == ("c",)


def test_names_that_mean_something_in_python_are_quoted(tmp_path: Path) -> None:
    odd = 'he said "no" \\ \'\'\' """ {x} \n'
    model = io.load(text.parse(layers(NORM, "1e-5", "1e-6"), opset=17))
    (value,) = [o for n in model.graph for o in n.outputs if o.name == "n0"]
    value.name = odd
    found = rw.capture(model, ["x0"], [odd], name="found-again", label=f"{odd}.onnx")
    assert found.places == (odd, "n1")
    assert rule_of(found).name == "found-again"
    compile(found.test("found_again.py", f"{odd}.onnx"), "test", "exec")


def test_strings_are_constants() -> None:
    graph = 'string[4] x; string[4] z; a = Equal(x, string "told \\"so\\"")  b = Not(a)  y = Where(b, x, z)'
    found = captured(graph, "x", "y", opset=19)
    assert pattern(found) == "Where(Equal(x, constant), y, x)"
    check_example(rule_of(found), rule_of(found).examples[0])


def test_a_name_that_is_gone_is_told_with_who_took_it() -> None:
    graph = "float[b,8] x; a = Relu(x)  i = Identity(a)  y = Tanh(i)"
    with pytest.raises(
        UsageError,
        match=r"--from i: is not there any more .* \(identity took it\); name `a` before it or `y` behind it",
    ):
        captured(graph, "i", "y")
    assert captured(graph, "i", "y", stage=Stage.CANONICALIZE).places == ("y",)


def test_the_rule_is_found_at_the_places_that_are_told(tmp_path: Path) -> None:
    model = text.parse(layers(NORM, "1e-5", "1e-6"), opset=17)
    io.save(io.load(model), tmp_path / "m.onnx")
    found = rw.capture(tmp_path / "m.onnx", ["x0"], ["n0"], name="found-again")
    (tmp_path / "found_again.py").write_text(found.rule, encoding="utf-8")
    rule = load_rule(tmp_path / "found_again.py", "found-again")
    assert places(rule, tmp_path / "m.onnx") == list(found.places)
    assert places(rule, matching(rule)[0]) == ["y"]


def test_what_is_written_says_what_it_is() -> None:
    found = captured(layers(NORM, "1e-5", "1e-6"), "x0", "n0")
    assert "Captured from x0 to n0: 5 operators, at 2 places of m.onnx." in found.rule
    assert "fill in the rewrite of found-again" in found.rule
    assert found.to_json()["places"] == ["n0", "n1"]


def test_the_same_model_gives_the_same_text() -> None:
    graph = layers(NORM, "1e-5", "1e-6")
    assert captured(graph, "x0", "n0").rule == captured(graph, "x0", "n0").rule


def write(folder: Path, graph: str, starts: str, ends: str) -> Captured:
    io.save(io.load(text.parse(graph, opset=17)), folder / "m.onnx")
    found = rw.capture(folder / "m.onnx", starts.split(), ends.split(), name="found-again")
    (folder / "found_again.py").write_text(found.rule, encoding="utf-8")
    (folder / "test_found_again.py").write_text(found.test("found_again.py", "m.onnx"), encoding="utf-8")
    return found


def run_tests(folder: Path) -> str:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-q",
        "-rs",
        "-c",
        "/dev/null",
        "test_found_again.py",
    ]
    paths = os.pathsep.join(str(ROOT / folder) for folder in (".", "patterns"))
    environment = {**os.environ, "PYTHONPATH": paths, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment).stdout


@pytest.mark.slow
def test_the_test_is_green_as_written_and_says_what_is_missing(tmp_path: Path) -> None:
    write(tmp_path, layers(NORM, "1e-5", "1e-6"), "x0", "n0")
    first = run_tests(tmp_path)
    assert "3 passed, 1 skipped" in first
    assert "fill in the rewrite of found-again: then this compares the numbers" in first
    file = tmp_path / "found_again.py"
    refused = 'm.refuse("fill in the rewrite of found-again")'
    filled = "return build.Div(m[x], build.Sqrt(build.Add(build.ReduceMean(build.Pow(m[x], 2.0), axes=(-1,), keepdims=1), m[epsilon])))"
    written = file.read_text(encoding="utf-8")
    assert refused in written
    file.write_text(written.replace(refused, filled), encoding="utf-8")
    told = run_tests(tmp_path)
    assert "found-again must reject this graph, it became" in told, told
    wrong = filled.replace("2.0", "3.0")
    file.write_text(written.replace(refused, wrong), encoding="utf-8")
    assert "check failed" in run_tests(tmp_path)
