from __future__ import annotations

import json
from typing import Any

import onnx_ir as ir
import pytest

from onnxrewrite.checks import site
from onnxrewrite.checks.site import LARGE, SiteCheck, Trials, check_site, clear_cache
from onnxrewrite.checks.site_inputs import ELEMENTS
from onnxrewrite.ir.text import parse
from onnxrewrite.runtime.references import referred_bytes

GELU = (
    "g (float[b,s,64] x) => (float[b,s,64] y) <float c = {%s}, float o = {1.0}, float h = {0.5}>"
    "{ d = Div(x, c) e = Erf(d) a = Add(e, o) m = Mul(x, a) y = Mul(m, h) }"
)
FUSED_GELU = "g (float[b,s,64] x) => (float[b,s,64] y) { y = com.microsoft.Gelu(x) }"
NORM = (
    "g (float[b,s,64] x, float[64] w) => (float[b,s,64] y) <float two = {2.0}, float e = {%s}>"
    "{ m = ReduceMean<axes=[-1]>(x) d = Sub(x, m) q = Pow(d, two) v = ReduceMean<axes=[-1]>(q) ve = Add(v, e)"
    " sd = Sqrt(ve) o = Div(d, sd) y = Mul(o, w) }"
)
FUSED_NORM = "g (float[b,s,64] x, float[64] w) => (float[b,s,64] y) { y = LayerNormalization<epsilon=%s>(x, w) }"


@pytest.fixture(autouse=True)
def _fresh() -> None:
    clear_cache()


@pytest.fixture
def check(model: Any) -> Any:
    def run(before: str, after: str, key: str | None = None, **trials: Any) -> SiteCheck:
        return check_site(ir.from_proto(model(before)), ir.from_proto(model(after)), Trials(**trials), key=key)

    return run


def test_a_right_fusion_passes(check: Any) -> None:
    found = check(GELU % "1.41421356", FUSED_GELU)
    assert found.ok, found.reason
    assert found.reference == "not needed", "it differs by less than any reference would allow"
    assert 0 < found.error_rewritten <= found.bound
    assert [b["b"] for b in found.bindings] == [2, 1]
    json.dumps(found.to_json())


@pytest.mark.parametrize("constant", ["1.5", "1.41", "1.4142"])
def test_a_wrong_constant_fails(check: Any, constant: str) -> None:
    found = check(GELU % constant, FUSED_GELU)
    assert found.status == "failed"
    assert "original" in found.reason
    assert "allowed" in found.reason
    assert "\n" not in found.reason


@pytest.mark.parametrize(("slope", "ok"), [("-1e2", True), ("-9e1", False), ("1e2", False)])
def test_one_number_is_judged_among_others_of_its_class(check: Any, slope: str, ok: bool) -> None:
    """A kernel that cuts off where a function is next to nothing is right, though one number there is all that is
    seen."""
    before = (
        "g (float x) => (float y) <float k = {1e2}, float o = {1.0}>"
        "{ m = Mul(k, x) e = Exp(m) a = Add(o, e) y = Div(x, a) }"
    )
    after = f"g (float x) => (float y) {{ y = com.microsoft.QuickGelu<alpha={slope}>(x) }}"
    assert [check(before, after, seed=seed).ok for seed in range(8)] == [ok] * 8


@pytest.mark.parametrize(("size", "runs"), [(1, 48), (2, 24), (16, 3), (2**17, 3)])
def test_a_number_that_becomes_many_is_fed_no_more_often_than_they_need(check: Any, size: int, runs: int) -> None:
    """Many results of large tensors at a time took 24 GB."""
    one = f"g (float x) => (float[{size}] y) <int64[1] s = {{{size}}}> {{ e = Expand(x, s) y = Neg(e) }}"
    assert check(one, one).runs == runs


def test_results_that_are_sequences_are_counted(check: Any) -> None:
    two = "g (float[2] x, float[3] z) => (seq(float[n]) y) { a = Neg(x) b = Neg(z) y = SequenceConstruct(a, b) }"
    found = check(two, two)
    assert found.ok, found.reason


@pytest.mark.parametrize("eps", ["1e-5", "1e-12"])
@pytest.mark.parametrize("fused", ["1e-5", "1e-12"])
def test_eps_matters(check: Any, eps: str, fused: str) -> None:
    found = check(NORM % eps, FUSED_NORM % fused)
    assert found.ok == (eps == fused), found.reason


def test_equal_outputs_need_no_reference(check: Any) -> None:
    found = check(
        "g (float[b] x) => (float[b] y) { r = Relu(x) y = Relu(r) }",
        "g (float[b] x) => (float[b] y) { y = Relu(x) }",
    )
    assert found.ok
    assert found.reference == "not needed"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "g (float[b] x) => (float[b] y) { y = Neg(x) }",
            "g (float[b] x) => (float[b] y) { y = Identity(x) }",
        ),
        (
            "g (float[b] x) => (float[b] y) { y = Abs(x) }",
            "g (float[b] x) => (double[b] y) { y = Cast<to=11>(x) }",
        ),
        (
            "g (float[b,s] x) => (float[k,l] y) { y = Transpose(x) }",
            "g (float[b,s] x) => (float[k,l] y) { y = Identity(x) }",
        ),
        ("g (int64[b] x) => (int64[b] y) { y = Neg(x) }", "g (int64[b] x) => (int64[b] y) { y = Abs(x) }"),
        ("g (bool[b] x) => (bool[b] y) { y = Not(x) }", "g (bool[b] x) => (bool[b] y) { y = Identity(x) }"),
        ("g (float[b] x) => (float[b] y) { y = Neg(x) }", "g (float[b] x) => (float[b] y) { y = NoSuch(x) }"),
        ("g (float[b] x) => (float[b] y) { y = Neg(x) }", "g (float[b] x) => (float[b] z) { z = Neg(x) }"),
    ],
    ids=["value", "dtype", "shape", "integers", "booleans", "operator", "name"],
)
def test_differences_are_found(check: Any, before: str, after: str) -> None:
    found = check(before, after)
    assert found.status == "failed"
    assert found.reason


def test_what_does_not_run_says_so(check: Any) -> None:
    broken = "g (float[b] x) => (float[b] y) { y = NoSuch(x) }"
    assert check(broken, broken).status == "not run"
    random = "g (float[b] x) => (float[b] y) { y = RandomNormalLike(x) }"
    assert "random" in check(random, random).reason


def test_random_numbers_that_are_drawn_once_instead_of_twice_are_a_failure(check: Any) -> None:
    twice = "g (float[b] x) => (float[b] y) { r = RandomNormalLike(x) s = RandomNormalLike(x) y = Sub(r, s) }"
    once = "g (float[b] x) => (float[b] y) { r = RandomNormalLike(x) y = Sub(r, r) }"
    found = check(twice, once)
    assert found.status == "failed"
    assert "1 times, were 2" in found.reason


def test_integers_of_the_whole_range_are_tried_where_they_are_reckoned_with(check: Any) -> None:
    before = "g (int64[b] x) => (int64[b] y) { y = Neg(x) }"
    after = "g (int64[b] x) => (int64[b] y) <int64 k = {2}> { n = Neg(x) d = Mul(n, k) y = Div(d, k) }"
    assert check(before, after).ok
    assert check(before, after, classes=("normal", "huge")).status == "failed"


def test_what_never_runs_is_no_failure_of_the_replacement(check: Any) -> None:
    before = "g (float[2,3] x, int64[k] s) => (y) { r = Reshape(x, s) y = Squeeze<axes=[1]>(r) }"
    after = "g (float[2,3] x, int64[k] s) => (y) { y = Squeeze<axes=[1]>(x) }"
    found = check(before.replace("Squeeze<axes=[1]>(r)", "MatMul(r, r)"), after)
    assert found.status == "not run"
    stuck = "g (float[3] x, float[4] z) => (float[n] y) { y = Add(x, z) }"
    assert "does not open" in check(stuck, stuck).reason or "no inputs found" in check(stuck, stuck).reason


def test_overflow_of_the_original_is_no_failure_far_from_zero(check: Any) -> None:
    before = "g (float[b,s] x) => (float[b,s] y) <float o = {1.0}> { e = Exp(x) a = Add(e, o) y = Log(a) }"
    found = check(before, "g (float[b,s] x) => (float[b,s] y) { y = Softplus(x) }")
    assert found.ok, found.reason
    assert any("overflows" in note for note in found.notes)


def test_new_infinities_are_a_failure(check: Any) -> None:
    before = "g (float[b,s] x) => (float[b,s] y) { y = Softplus(x) }"
    after = "g (float[b,s] x) => (float[b,s] y) <float o = {1.0}> { e = Exp(x) a = Add(e, o) y = Log(a) }"
    assert check(before, after).status == "failed"


@pytest.mark.parametrize(
    ("limit", "in_range", "status"), [(88.0, True, "ok"), (88.0, False, "failed"), (1.0, True, "failed")]
)
def test_what_overflows_is_of_no_account_where_that_is_assumed(
    check: Any, limit: float, in_range: bool, status: str
) -> None:
    """exp(x)/exp(x) is 1, which float32 loses beyond 88: there alone may a rule be wrong that assumes the range."""
    before = "g (float[b,s] x) => (float[b,s] y) { e = Exp(x) y = Div(e, e) }"
    after = (
        "g (float[b,s] x) => (float[b,s] y) <float l = {%s}, float one = {1.0}, float two = {2.0}>"
        "{ c = Greater(x, l) y = Where(c, two, one) }"
    )
    assert check(before, after % limit, in_range=in_range, classes=("normal", "large")).status == status


def test_elements_of_shape_inputs(model: Any) -> None:
    text = "g (float[batch, 6] x, int64[2] shape) => (float[m, n] y) { r = Reshape(x, shape) y = %s(r) }"
    before, after = (ir.from_proto(model(text % op)) for op in ("Neg", "Abs"))
    for each in (before, after):
        each.graph.inputs[1].metadata_props[ELEMENTS] = json.dumps(["2*batch", 3])
    found = check_site(before, before)
    assert found.ok, found.reason
    assert len(found.bindings) == 2
    assert check_site(before, after).status == "failed"


def test_elements_may_name_sizes_of_no_input(model: Any) -> None:
    text = "g (float[batch, 1] x, int64[2] shape) => (float[m, n] y) { e = Expand(x, shape) y = Neg(e) }"
    each = ir.from_proto(model(text))
    each.graph.inputs[1].metadata_props[ELEMENTS] = json.dumps(["batch", "3*heads"])
    assert check_site(each, each).ok


def test_hints_come_first(check: Any) -> None:
    text = "g (float[b, s] x) => (float[b, s] y) { y = Neg(x) }"
    assert check(text, text, dims_hint={"b": 3, "s": 4}).bindings[0] == {"b": 3, "s": 4}
    assert check(text, text, dims_hint=[{"b": 3, "s": 4}, {"b": 5, "s": 6}]).bindings == [
        {"b": 3, "s": 4},
        {"b": 5, "s": 6},
    ]
    assert check(text, text, dims_hint={"s": 9, "other": 1}).bindings[0]["s"] == 9


def test_results_are_kept_by_key(check: Any) -> None:
    text = "g (float[b, s] x) => (float[b, s] y) { y = Neg(x) }"
    assert not check(text, text, key="k").cached
    again = check(text, "g (float[b, s] x) => (float[b, s] y) { y = Abs(x) }", key="k")
    assert again.cached
    assert again.ok


def test_quantized_sites_use_a_stated_tolerance(check: Any) -> None:
    before = (
        "g (float[b,64] x) => (float[b,64] y) <float s = {0.01}, float k = {0.5}, float two = {2.0}>"
        "{ h = Mul(x, k) q = QuantizeLinear(h, s) y = DequantizeLinear(q, s) }"
    )
    wrong = before.replace("k = {0.5}", "k = {0.51}")
    right = before.replace("Mul(x, k)", "Div(x, two)")
    assert check(before, right).ok
    found = check(before, wrong)
    assert found.status == "failed"
    assert found.reference == "float32"


IMAGE = """(float[1,2,224,224] x) => (y) {{
    c = Conv(x, float[2,2,1,1] {{1, 2, 3, 4}}, {{1.0, {bias}}})  y = Mul(c, {{1.0}})
}}"""


def _compared(before: str, after: str) -> SiteCheck:
    return check_site(parse(before), parse(after))


@pytest.mark.parametrize(("bias", "status"), [("3.0", "ok"), ("3.001", "failed")])
def test_large_images_are_made_small(bias: str, status: str) -> None:
    found = _compared(IMAGE.format(bias="3.0"), IMAGE.format(bias=bias))
    assert found.status == status
    assert ("at smaller sizes" in found.notes) == (status == "ok"), "what is wrong is wrong at its own size"


def test_what_needs_its_own_size_is_checked_at_that() -> None:
    flat = "(float[1,2,96,96] x) => (y) {{ r = Relu(x)  y = {} }}"
    found = _compared(flat.format("Reshape(r, {1, 18432})"), flat.format("Flatten(r)"))
    assert found.ok
    assert "at smaller sizes" not in found.notes


@pytest.mark.parametrize(("shape", "status"), [("n", "not run"), ("100000", "ok")])
def test_large_inputs_are_tried_where_no_others_run_unless_only_small_ones_are(shape: str, status: str) -> None:
    """Reshape takes 100000 elements and no fewer; of a size that has no name there are no smaller ones."""
    graph = f"(float[{shape}] x) => (y) {{{{ r = Reshape(x, {{{{100, 1000}}}})  y = {{}} }}}}"
    before, after = (parse(graph.format(each)) for each in ("Neg(r)", "Sub({0.0}, r)"))
    assert check_site(before, after).ok
    clear_cache()
    assert check_site(before, after, Trials(only_small=True)).status == status


HEADS = """(float[2,197,1024] x) => (y) {{
    h = Reshape(x, {{2, 197, {heads}, {size}}})  t = Transpose<perm = [0, 2, 1, 3]>(h)  y = Neg(t)
}}"""


@pytest.mark.parametrize(("size", "status"), [(64, "ok"), (32, "failed")])
def test_shapes_in_constants_become_small_with_the_sizes(size: int, status: str) -> None:
    found = _compared(HEADS.format(heads=16, size=64), HEADS.format(heads=1024 // size, size=size))
    assert found.status == status
    assert ("at smaller sizes" in found.notes) == (status == "ok")


@pytest.mark.parametrize("bounds", ["{20}, {900}", "{-20}, {-1}", "{15}, {31}", "{200}, {500}"])
def test_bounds_are_not_mistaken_for_others_at_smaller_sizes(bounds: str) -> None:
    start, end = bounds.split(", ")
    sliced = "(float[1000,9] x) => (y) {{ s = Slice(x, {}, {}, {{0}})  y = Neg(s) }}"
    other = str(int(start[1:-1]) - 1)
    assert _compared(sliced.format(start, end), sliced.format(start, end)).ok
    assert not _compared(sliced.format(start, end), sliced.format(f"{{{other}}}", end)).ok


@pytest.mark.parametrize("opset", [9, 17])
def test_sizes_stay_above_what_they_may_be_compared_with(opset: int) -> None:
    """Also bounds that are attributes, and such as are computed."""
    sliced = {
        9: "(float[1000,9] x) => (y) {{ s = Slice<starts=[0], ends=[{}], axes=[0]>(x)  y = Neg(s) }}",
        17: """(float[1000,9] x) => (y) {{
            n = Shape<end = 1>(x)  b = Sub(n, {{{}}})  s = Slice(x, b, n, {{0}})  y = Neg(s)
        }}""",
    }[opset]
    sides = [parse(sliced.format(bound), opset=opset) for bound in (21, 21, 20)]
    assert check_site(*sides[:2]).ok
    assert not check_site(*sides[1:]).ok


def test_what_divides_a_size_divides_a_smaller_one() -> None:
    half = """(float[197,64] x) => (y) {{
        r = Relu(x)  s = Shape<end = 1>(r)  t = Add(s, {{{more}}})  h = Div(t, {{2}})  y = Slice(r, {{0}}, h, {{0}})
    }}"""
    assert _compared(half.format(more=0), half.format(more=0)).ok
    assert not _compared(half.format(more=0), half.format(more=1)).ok


def test_sizes_of_weights_are_left_alone() -> None:
    weight = ", ".join(str(i % 7 - 3) for i in range(384))
    product = f"(float[64,128] x) => (y) {{ r = Relu(x)  y = MatMul(r, float[128,3] {{{weight}}}) }}"
    found = _compared(product, product)
    assert found.ok
    assert found.runs


def test_a_replacement_that_does_not_overflow_is_no_worse() -> None:
    """Where the original is finite it is compared with the reference: near underflow it is itself inexact."""
    logged = "(float[4,7] x) => (y) {{ {} }}"
    found = _compared(logged.format("s = Softmax(x)  y = Log(s)"), logged.format("y = LogSoftmax(x)"))
    assert found.ok, found.reason
    assert any("overflows" in note for note in found.notes)


@pytest.mark.parametrize(("shape", "sides"), [("h,w", ("h", "w")), ('"4*floor(h/2)","2*w"', ("4*floor(h/2)", "2*w"))])
def test_symbolic_sizes_of_images_are_small_ones(check: Any, shape: str, sides: tuple[str, str]) -> None:
    image = f"g (float[n,64,{shape}] x) => (float[n,64,{shape}] y) {{ y = Neg(x) }}"
    found = check(image, image)
    assert found.ok
    assert len({b["n"] for b in found.bindings}) == len(found.bindings) == 2
    for binding in found.bindings:
        height, width = (binding[side] for side in sides)
        assert height != width, "what an exchange of the two would hide in"
        assert 64 * height * width * binding["n"] < LARGE


@pytest.mark.parametrize(("shift", "status"), [(1, "ok"), (2, "failed")])
def test_many_weights_are_referred_to_and_checked_all_the_same(
    shift: int, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of a table of 8 MB."""
    lines = "int64[n] i; a = Gather(float[2048,1024] ~, i)"
    before, after = parse(f"{lines}  y = Add(a, 1.0)"), parse(f"{lines}  y = Add({shift}.0, a)")
    for model in (before, after):
        for value in model.graph.initializers.values():
            assert value.const_value is not None
            value.const_value = ir.tensor(value.const_value.numpy(), name=value.name)  # as it is in a file
    opened: list[int] = []
    original = site.open_session

    def counting(model: Any, **given: Any) -> Any:
        opened.append(referred_bytes(model))
        return original(model, **given)

    monkeypatch.setattr(site, "open_session", counting)
    assert check_site(before, after).status == status
    assert opened == [8 * 2**20] * 2
