"""Operators of one's own: known by their function body, checked against it, and emitted with it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

import onnxrewrite as rw
from onnxrewrite import io
from onnxrewrite.cli import main
from onnxrewrite.errors import RuleError, UsageError
from onnxrewrite.ir import custom, schema, text
from onnxrewrite.ir.facts import Facts
from onnxrewrite.rewrite import registry
from onnxrewrite.ruletest.fuzz.fuzzer import fuzz

DOMAIN = "my.domain"
pytestmark = pytest.mark.usefixtures("nothing_stays")

BODY = """<opset_import: ["": 17], domain: "my.domain">
FusedSwish <alpha: float = 1.0> (x) => (y) {
  a = Constant <value_float: float = @alpha> ()
  slope = CastLike (a, x)
  scaled = Mul (slope, x)
  s = Sigmoid (scaled)
  y = Mul (x, s)
}"""

RULE_FILE = f'''
"""x·σ(αx) in one operator of our own."""
import onnxrewrite as rw

FUSED_SWISH = rw.rules.CustomOp("my.domain", "FusedSwish", function="""{BODY}""")
swish = rw.rules.op.Swish(rw.rules.Var("x", dtype=rw.rules.FLOATS), alpha=(alpha := rw.rules.Attr[float]("alpha")))
x = swish.inputs[0]


def to_fused_swish(m, build):
    """Swish(x, alpha=α) ⟶ my.domain.FusedSwish(x, alpha=α)."""
    return build.domain("my.domain").FusedSwish(m[x], alpha=m[alpha] * FACTOR)


FACTOR = 1.0
RULE = rw.rules.Rule(
    name="fused-swish", stage=rw.rules.Stage.LOWER, pattern=swish, rewrite=to_fused_swish, benefit=100,
    examples=(rw.rules.Rewrites("y = Swish(x)", to="y = my.domain.FusedSwish<alpha = 1.0>(x)"),),
)
'''
SILU = "float[n,8] x; s = Sigmoid(x)  y = Mul(x, s)"


@pytest.fixture
def rules(tmp_path: Path) -> str:
    path = tmp_path / "my_swish.py"
    path.write_text(RULE_FILE, encoding="utf-8")
    return str(path)


def fused(graph: str, rules: str, **options: object) -> rw.Result:
    return rw.apply(text.parse(graph, opset=17), rules=[rules], lower="fused", **options)


def outputs(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)


# ------------------------------------------------------------------------------------------------ in the pipeline


@pytest.mark.parametrize(
    "graph",
    [
        SILU,
        "float[n,8] x; m = Mul(x, 1.702)  s = Sigmoid(m)  y = Mul(s, x)",
        "float[n,8] x; n = Neg(x)  e = Exp(n)  d = Add(e, 1.0)  y = Div(x, d)",
        "double[n,8] x; s = Sigmoid(x)  y = Mul(x, s)",
        "float16[n,8] x; s = Sigmoid(x)  y = Mul(x, s)",
    ],
)
def test_emitted_with_its_body_and_checked(graph: str, rules: str) -> None:
    result = fused(graph, rules)
    model = result.to_proto()
    assert [n.op_type for n in model.graph.node] == ["FusedSwish"]
    assert [(f.domain, f.name) for f in model.functions] == [(DOMAIN, "FusedSwish")]
    assert {o.domain for o in model.opset_import} == {"", DOMAIN}
    assert result.checks.model is not None
    assert result.checks.model.ok
    assert result.checks.sites >= 1
    onnx.checker.check_model(model, full_check=True)
    dtype = {"f": np.float32, "d": np.float64}.get(graph[0] if not graph.startswith("float16") else "h", np.float16)
    x = np.linspace(-4, 4, 24).reshape(3, 8).astype(dtype)
    original = io.to_proto(text.parse(graph, opset=17))
    for new, old in zip(outputs(model, {"x": x}), outputs(original, {"x": x}), strict=True):
        np.testing.assert_allclose(new, old, rtol=2e-3 if dtype is np.float16 else 4e-6)


def test_the_reference_is_in_double(rules: str) -> None:
    check = fused(SILU, rules).checks.model
    assert check is not None
    assert {o.reference for o in check.outputs} <= {"float64", "bitwise equal", "not needed"}


def test_a_wrong_rule_is_undone(tmp_path: Path) -> None:
    path = tmp_path / "my_wrong_swish.py"
    path.write_text(RULE_FILE.replace("FACTOR = 1.0", "FACTOR = 1.001"), encoding="utf-8")
    result = fused(SILU, str(path))
    assert "FusedSwish" not in [n.op_type for n in result.to_proto().graph.node]
    assert not result.to_proto().functions
    assert result.checks.undone
    assert result.checks.model is not None
    assert result.checks.model.ok


def test_inside_a_branch(rules: str) -> None:
    graph = (
        "bool c; float[2,3] x; y = If (c) <then_branch = a () => (t) { s = Sigmoid(x)  t = Mul(x, s) },"
        " else_branch = b () => (e) { e = Neg(x) }>"
    )
    model = fused(graph, rules).to_proto()
    assert [f.name for f in model.functions] == ["FusedSwish"]
    x = np.ones((2, 3), np.float32)
    for c in (True, False):
        outputs(model, {"c": np.array(c), "x": x})


def test_a_model_that_has_the_operator_already() -> None:
    rw.rules.CustomOp(DOMAIN, "FusedSwish", function=BODY)
    model = text.parse("float[n,8] x; r = my.domain.FusedSwish(x)  i = Identity(r)  y = Tanh(i)", opset=17)
    result = rw.apply(model)
    assert [n.op_type for n in result.to_proto().graph.node] == ["FusedSwish", "Tanh"]
    assert result.checks.model is not None
    assert result.checks.model.ok


def test_its_body_is_of_another_opset(rules: str) -> None:
    result = rw.apply(text.parse(SILU, opset=11), rules=[rules], lower="fused", opset=11)
    assert "FusedSwish" not in [n.op_type for n in result.to_proto().graph.node]
    assert "the body of my.domain.FusedSwish has Constant of opset 17, model has 11" in str(result.trace.refused)


def test_an_old_ir_version(rules: str) -> None:
    model = text.parse(SILU, opset=17, ir_version=7)
    assert rw.apply(model, rules=[rules], lower="fused").to_proto().ir_version == 8


def test_commands(rules: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "silu.onnx", tmp_path / "out.onnx"
    io.save(text.parse(SILU, opset=17), path)
    assert main(["apply", str(path), "-o", str(out), "--rules", rules, "--lower", "fused"]) == 0
    assert "fused-swish" in capsys.readouterr().out
    assert main(["check", str(path), str(out)]) == 0
    assert main(["replay", f"{out}.certificate.json", "--trust"]) == 0


def test_the_ladder(rules: str) -> None:
    library = registry.load([rules], plugins=False)
    verdict = fuzz(library.rules["fused-swish"], list(library), count=6)
    assert verdict.status == "ring-checked", verdict


# ------------------------------------------------------------------------------------------------ what is known


def test_facts_of_a_call() -> None:
    rw.rules.CustomOp(
        DOMAIN,
        "Pair",
        function="""<opset_import: ["": 17]> Pair (a, b) => (s, t) {
        s = Add (a, b)  t = Transpose <perm = [1, 0]> (a) }""".replace("  t", "\n t"),
    )
    model = text.parse("float[n,3] a; float[1,3] b; s, t = my.domain.Pair(a, b)  z = Relu(t)", opset=17)
    facts = Facts(model.graph, dict(model.opset_imports))
    s, t = model.graph[0].outputs
    assert facts.dtype(s) == facts.dtype(t) == ir.DataType.FLOAT
    assert [str(d) for d in facts.shape(s) or ()] == ["n", "3"]
    assert [str(d) for d in facts.shape(t) or ()] == ["3", "n"]


def test_sizes_that_nobody_knows() -> None:
    rw.rules.CustomOp(DOMAIN, "Found", function='<opset_import: ["": 17]> Found (a) => (s) { s = NonZero (a) }')
    model = text.parse("float[n,3] a; s = my.domain.Found(a)  z = Neg(s)", opset=17)
    facts = Facts(model.graph, dict(model.opset_imports))
    (s,) = model.graph[0].outputs
    shape = facts.shape(s)
    assert shape is not None
    assert shape[0] == 2
    assert str(shape[1]) != "n"
    assert facts.dtype(s) == ir.DataType.INT64


def test_schema() -> None:
    rw.rules.CustomOp(DOMAIN, "FusedSwish", function=BODY)
    found = schema.schema(DOMAIN, "FusedSwish", 1)
    assert found is not None
    assert [f.name for f in found.inputs] == ["x"]
    assert found.attributes["alpha"].default == 1.0
    assert found.deterministic
    rw.rules.CustomOp(
        DOMAIN, "Noise", function='<opset_import: ["": 17]> Noise (x) => (y) { y = RandomNormalLike (x) }'
    )
    assert schema.is_random(ir.Node(DOMAIN, "Noise", []))
    assert not schema.is_random(ir.Node(DOMAIN, "FusedSwish", []))


def test_a_function_of_onnxscript() -> None:
    from onnxscript import opset17 as op
    from onnxscript import script
    from onnxscript.values import Opset

    @script(Opset("elsewhere", 1), default_opset=op)
    def Doubled(x, factor: float = 2.0):
        return op.Mul(x, op.CastLike(op.Constant(value_float=factor), x))

    found = rw.rules.CustomOp(DOMAIN, "Doubled", function=Doubled)
    assert found.proto.domain == DOMAIN
    model = text.parse("float[n] x; y = my.domain.Doubled(x, factor=3.0)", opset=17)
    (y,) = outputs(io.to_proto(model), {"x": np.ones(2, np.float32)})
    np.testing.assert_array_equal(y, [3.0, 3.0])


def test_misuse_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "my_misuse.py"
    path.write_text(RULE_FILE.replace("alpha=m[alpha] * FACTOR", "beta=1.0"), encoding="utf-8")
    result = fused(SILU, str(path))
    assert "FusedSwish of opset 1 has no attribute beta" in str(result.trace.refused["fused-swish"])


# ------------------------------------------------------------------------------------------------ what is wrong


@pytest.mark.parametrize(
    ("domain", "name", "function", "part"),
    [
        ("", "FusedSwish", BODY, "the domain '' is taken"),
        ("ai.onnx", "FusedSwish", BODY, "is taken"),
        ("com.microsoft", "FusedSwish", BODY, "is taken"),
        (DOMAIN, "Fused Swish", BODY, "the name must be an identifier"),
        (DOMAIN, "FusedSwish", "y = Mul(x", "custom operator my.domain.FusedSwish: "),
        (DOMAIN, "FusedSwish", 5, "the function is a int; give ONNX text or @script()"),
        (DOMAIN, "FusedSwish", onnx.FunctionProto(), "the function computes nothing"),
    ],
)
def test_declarations_that_cannot_be_used(domain: str, name: str, function: object, part: str) -> None:
    with pytest.raises(RuleError) as raised:
        rw.rules.CustomOp(domain, name, function=function)
    assert part in str(raised.value)
    assert "\n" not in str(raised.value)


def test_declared_twice() -> None:
    rw.rules.CustomOp(DOMAIN, "FusedSwish", function=BODY)
    rw.rules.CustomOp(DOMAIN, "FusedSwish", function=BODY)
    with pytest.raises(RuleError, match="is declared twice, with different functions"):
        rw.rules.CustomOp(DOMAIN, "FusedSwish", function=BODY.replace("1.0", "2.0"))


def test_a_broken_declaration_in_a_rule_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules, model = tmp_path / "my_broken.py", tmp_path / "m.onnx"
    rules.write_text(
        'import onnxrewrite as rw\nrw.rules.CustomOp("my.domain", "A", function="nonsense")\n', encoding="utf-8"
    )
    io.save(text.parse(SILU, opset=17), model)
    assert main(["apply", str(model), "--rules", str(rules)]) == 2
    err = capsys.readouterr().err
    assert "my_broken.py: custom operator my.domain.A: " in err
    assert err.count("\n") == 1


# ----------------------------------------------------------------------------------------------------- prototypes

KERNEL = """
import numpy as np


def kernel(x, alpha):
    calls.append(x.shape)
    return FACTOR * x / (1 + np.exp(-alpha * x))


calls = []
FUSED_SWISH = rw.rules.CustomOp("my.domain", "FusedSwish", function=FUSED_SWISH.function, kernel=kernel)
"""


@pytest.mark.parametrize("factor", [1.0, 1.001])
def test_a_kernel_in_python_is_run_by_the_checks(factor: float, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime_extensions")
    path = tmp_path / "my_prototype.py"
    path.write_text(RULE_FILE + KERNEL.replace("FACTOR", str(factor)), encoding="utf-8")
    result = fused(SILU, str(path))
    assert registry.load_module(str(path)).calls, "it was called"
    is_right = factor == 1.0
    assert ("FusedSwish" in [n.op_type for n in result.to_proto().graph.node]) == is_right
    assert [f.name for f in result.to_proto().functions] == ["FusedSwish"] * is_right
    assert bool(result.checks.undone) != is_right
    assert result.checks.model is not None
    assert result.checks.model.ok


def test_a_kernel_in_python_takes_float_only(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime_extensions")
    path = tmp_path / "my_prototype.py"
    path.write_text(RULE_FILE + KERNEL.replace("FACTOR", "1.0"), encoding="utf-8")
    result = fused("double[n,8] x; s = Sigmoid(x)  y = Mul(x, s)", str(path))
    assert [n.op_type for n in result.to_proto().graph.node] == ["FusedSwish"]
    assert not registry.load_module(str(path)).calls


# ----------------------------------------------------------------------------------------------------- libraries


@pytest.mark.parametrize("kind", ["missing", "folder", "text", "library"])
@pytest.mark.parametrize("command", ["apply", "check", "explain"])
def test_a_library_that_cannot_be_loaded(
    kind: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, model = tmp_path / "libops.so", tmp_path / "m.onnx"
    io.save(text.parse(SILU, opset=17), model)
    if kind == "folder":
        path.mkdir()
    if kind == "text":
        path.write_text("no library", encoding="utf-8")
    if kind == "library":  # one that has no operators
        path = Path(np._core._multiarray_umath.__file__)
    others = {"check": [str(model)], "explain": ["gelu-erf"]}.get(command, [])
    assert main([command, str(model), *others, "--custom-ops", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert {"missing": "no such file", "folder": "is a folder"}.get(kind, "ONNX Runtime cannot load it") in err
    assert not custom.libraries()


SOURCE = Path(__file__).with_name("fused_swish.c")


@pytest.fixture
def library(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A kernel of FusedSwish, times what the test asks for."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("no compiler here")
    path = tmp_path / "libswish.so"
    factor = f"-DFACTOR={getattr(request, 'param', '1.0f')}"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", factor, "-o", path, SOURCE, "-lm"], check=True)
    return str(path)


def test_a_kernel_of_ones_own(library: str, rules: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "silu.onnx", tmp_path / "out.onnx"
    io.save(text.parse(SILU, opset=17), path)
    command = ["apply", str(path), "-o", str(out), "--rules", rules, "--lower", "fused", "--custom-ops", library]
    assert main(command) == 0, capsys.readouterr().err
    model = onnx.load(out)
    assert [n.op_type for n in model.graph.node] == ["FusedSwish"]
    assert not model.functions, "the library has a kernel"
    assert "fused-swish" in capsys.readouterr().out
    x = np.linspace(-4, 4, 24, dtype=np.float32).reshape(3, 8)
    (y,) = rw.session(out).run(None, {"x": x})
    np.testing.assert_allclose(y, x / (1 + np.exp(-x)), rtol=1e-5)
    assert main(["check", str(path), str(out), "--custom-ops", library]) == 0
    assert main(["replay", f"{out}.certificate.json", "--trust", "--custom-ops", library]) == 0
    with pytest.raises(Exception, match=r"my\.domain"):
        outputs(model, {"x": x})


@pytest.mark.parametrize("library", ["1.001f"], indirect=True)
def test_a_wrong_kernel_is_found(library: str, rules: str) -> None:
    rw.rules.use_custom_ops([library])
    result = fused(SILU, rules)
    assert "FusedSwish" not in [n.op_type for n in result.to_proto().graph.node]
    assert result.checks.undone


def test_a_kernel_for_another_dtype(library: str, rules: str) -> None:
    rw.rules.use_custom_ops([library])
    result = fused("double[n,8] x; s = Sigmoid(x)  y = Mul(x, s)", rules)
    assert "FusedSwish" not in [n.op_type for n in result.to_proto().graph.node]
    assert result.checks.model is not None
    assert result.checks.model.ok


def test_a_body_is_added_where_the_library_has_no_kernel(library: str) -> None:
    rw.rules.use_custom_ops([library])
    rw.rules.CustomOp(DOMAIN, "Other", function='<opset_import: ["": 17]> Other (x) => (y) { y = Neg (x) }')
    model = io.to_proto(text.parse("float[n] x; y = my.domain.Other(x)", opset=17))
    assert [f.name for f in model.functions] == ["Other"]


def test_from_python() -> None:
    with pytest.raises(UsageError, match="no such file"):
        rw.rules.use_custom_ops(["nowhere.so"])
    rw.rules.use_custom_ops([])
    assert custom.libraries() == ()


def test_registry_loads_the_file(rules: str) -> None:
    assert "fused-swish" in [r.name for r in registry.load([rules])]
    assert custom.declared(DOMAIN, "FusedSwish") is not None


# -- bodies in other opsets ----------------------------------------------------------------------------------------------

DOCUMENTED = """<opset_import: ["": 17], domain: "d"> FusedSwish <alpha: float = 1.0> (x) => (y) {
    a = Constant <value_float: float = @alpha> ()
    slope = CastLike (a, x)
    scaled = Mul (slope, x)
    gate = Sigmoid (scaled)
    y = Mul (x, gate)
}"""


def emitting(domain: str, function: str = DOCUMENTED, pattern=None) -> rw.rules.Rule:
    """A rule that emits ``FusedSwish`` of a domain for a Swish."""
    rw.rules.CustomOp(domain, "FusedSwish", function=function)
    x = rw.rules.Var("x", dtype=rw.rules.FLOATS)

    def emit(m: rw.rules.Match, build: rw.rules.Builder) -> rw.rules.Value:
        """Swish(x) ⟶ FusedSwish(x)."""
        return build.domain(domain).FusedSwish(m[x])

    return rw.rules.Rule("emitting", rw.rules.Stage.LOWER, pattern or rw.rules.op.Swish(x), emit, benefit=100)


@pytest.mark.parametrize("opset", [12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23])
@pytest.mark.parametrize("dtype", ["float", "float16", "double"])
def test_a_body_is_brought_to_the_opset_of_the_model(opset: int, dtype: str) -> None:
    model = text.parse(f"{dtype}[n,8] x; s = Sigmoid(x)  m = Mul(x, s)  y = Relu(m)", opset=opset)
    done = rw.apply(model, rules=[emitting("brought.domain")], lower="fused")
    assert done.trace.counts()["emitting"] == 1, done.trace.refused
    assert done.checks.model is not None
    assert done.checks.model.ok
    (function,) = done.to_proto().functions
    assert [o.version for o in function.opset_import] == [opset]


def test_a_body_with_what_an_opset_spells_otherwise_is_converted() -> None:
    function = """<opset_import: ["": 17], domain: "d"> FusedSwish (x) => (y) {
        m = ReduceMean <axes = [-1], keepdims = 1> (x)
        y = Sub (x, m)
    }"""
    x = rw.rules.Var("x", dtype=rw.rules.FLOATS)
    rule = emitting("converted.domain", function, rw.rules.op.Sub(x, rw.rules.op.ReduceMean(x, axes=(-1,), keepdims=1)))
    object.__setattr__(rule, "rewrite", lambda m, build: build.domain("converted.domain").FusedSwish(m[x]))
    model = text.parse("float[n,8] x; m = ReduceMean<keepdims=1>(x, {-1})  d = Sub(x, m)  y = Relu(d)", opset=18)
    done = rw.apply(model, rules=[rule], lower="fused")
    assert done.trace.counts()["emitting"] == 1, done.trace.refused
    (body,) = done.to_proto().functions
    assert [(n.op_type, len(n.input)) for n in body.node] == [("Constant", 0), ("ReduceMean", 2), ("Sub", 2)]


def test_a_body_that_an_opset_cannot_say_is_refused() -> None:
    model = text.parse("float[n,8] x; s = Sigmoid(x)  m = Mul(x, s)  y = Relu(m)", opset=11)
    done = rw.apply(model, rules=[emitting("brought.domain")], lower="fused")
    assert done.trace.refused["emitting"] == {
        "m": "the body of brought.domain.FusedSwish has Constant of opset 17, model has 11"
    }


OWN_FUNCTION = """<ir_version: 8, opset_import: ["": 17, "kept.domain": 1]>
g (float[n, 8] x) => (float[n, 8] y, float[n, 8] z) {{
  s = Sigmoid (x)
  y = Mul (x, s)
  z = kept.domain.FusedSwish (x)
}}
<opset_import: ["": 17], domain: "kept.domain"> FusedSwish <alpha: float = 1.0> (v) => (w) {{
  {body}
}}"""


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        (
            "c = Constant <value_float: float = @alpha> () l = CastLike (c, v) t = Mul (l, v) u = Sigmoid (t) w = Mul (v, u)",
            None,
        ),
        ("w = Relu (v)", "the model has a function of its own that is called FusedSwish, and is another one"),
    ],
    ids=["the same", "another"],
)
def test_a_function_of_the_models_own_of_that_name(body: str, refused: str | None) -> None:
    model = onnx.parser.parse_model(OWN_FUNCTION.format(body=body))
    done = rw.apply(model, rules=[emitting("kept.domain")], lower="fused")
    if refused is None:
        assert done.trace.counts()["emitting"] == 1, done.trace.refused
    else:
        assert refused in done.trace.refused["emitting"]["y"]
    assert len(done.to_proto().functions) == 1
    assert done.checks.model is not None
    assert done.checks.model.ok


def test_a_body_with_operators_that_an_opset_does_not_know_is_written_by_the_bodies_of_the_standard() -> None:
    function = """<opset_import: ["": 24], domain: "d"> FusedSwish (x) => (y) {
        s = Swish (x)
        y = Softmax (s)
    }"""
    rw.rules.CustomOp("newer.domain", "FusedSwish", function=function)
    x, call = rw.rules.Var("x", dtype=rw.rules.FLOATS), rw.rules.Operators("newer.domain").FusedSwish
    rule = rw.rules.rule("emitting", rw.rules.RAISE, rw.rules.op.Softmax(rw.rules.op.Swish(x)), call(x))
    model = text.parse("float[n,8] x; s = Sigmoid(x)  m = Mul(x, s)  t = Softmax(m)  y = Relu(t)", opset=17)
    done = rw.apply(model, rules=[rule], lower="fused", opset=17)
    assert done.trace.counts()["emitting"] == 1, done.trace.refused
    assert done.checks.model is not None
    assert done.checks.model.ok
    (body,) = done.to_proto().functions
    assert "Swish" not in {n.op_type for n in body.node}
    assert [o.version for o in body.opset_import] == [17]


def test_a_body_that_only_a_newer_opset_can_say_raises_that_of_the_model() -> None:
    function = """<opset_import: ["": 23], domain: "d"> Newest <scale: float = 0.5> (q, k, v) => (y) {
        y = Attention <scale: float = @scale> (q, k, v)
    }"""
    rw.rules.CustomOp("raising.domain", "Newest", function=function)
    q, k, v = map(rw.rules.Var, "qkv")
    newest = rw.rules.Operators("raising.domain").Newest(q, k, v, scale=0.25)
    rule = rw.rules.rule("newest", rw.rules.RAISE, rw.rules.op.Attention(q, k, v, scale=0.25), newest)
    model = text.parse(
        "float[1,2,4,16] q; float[1,2,4,16] k; float[1,2,4,16] v; t = Transpose<perm=[0,1,3,2]>(k)  s = MatMul(q, t)"
        "  d = Mul(s, 0.25)  p = Softmax(d)  y = MatMul(p, v)",
        opset=17,
    )
    done = rw.apply(model, rules=[rule], lower="fused")
    assert done.trace.counts()["newest"] == 1, done.trace.refused
    assert io.opset(done.model) == 23
    assert any("raised from opset 17 to 23 for Newest" in note for note in done.trace.warnings)
    kept = rw.apply(model, rules=[rule], lower="fused", opset=17)
    assert "has Attention of opset 23, model has 17" in kept.trace.refused["newest"]["y"]
