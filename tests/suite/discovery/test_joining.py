"""Regions and kernels that compute the same are found, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from discovery_models import ATTENTION, NORM, SCALED, TARGET, hits, regions

from onnxrewrite.ir.target import target
from onnxrewrite.suite.discovery.arithmetic_profile import of_model, of_nodes
from onnxrewrite.suite.discovery.joining import Hit, Known
from onnxrewrite.suite.discovery.kernel_uses import assignments, kernels, uses
from onnxrewrite.suite.discovery.result_fingerprint import Relation, alike, fingerprint, relation
from onnxrewrite.suite.discovery.sampled_region import SampledRegion
from onnxrewrite.suite.discovery.substitute import Inner, Operator, Parameter, Substitute, model_of, results_of

CUBE = np.random.default_rng(0).standard_normal((2, 3, 4))


def told(found: list[Hit]) -> set[tuple[str, str]]:
    return {(" ".join(n.op_type for n in h.region.region.nodes), h.substitute.called) for h in found}


# -- fingerprints ------------------------------------------------------------------------------------------------


def test_fingerprints_know_neither_order_nor_scale():
    assert alike(fingerprint(CUBE), fingerprint(CUBE.transpose(2, 0, 1)))
    assert alike(fingerprint(CUBE), fingerprint(3 * CUBE.reshape(6, 4)))
    assert alike(fingerprint(CUBE), fingerprint(-0.5 * CUBE))
    assert not alike(fingerprint(CUBE), fingerprint(CUBE + 0.3))
    assert not alike(fingerprint(CUBE), fingerprint(CUBE[:1]))
    assert not alike(fingerprint(CUBE), fingerprint(np.zeros_like(CUBE)))


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (CUBE, Relation()),
        (CUBE.transpose(2, 0, 1), Relation(perm=(2, 0, 1))),
        (CUBE.reshape(6, 4), Relation(is_reshaped=True)),
        (2 * CUBE, Relation(scale=2.0)),
        (CUBE.transpose(0, 2, 1).reshape(8, 3), Relation(perm=(0, 2, 1), is_reshaped=True)),
    ],
)
def test_relations(made: np.ndarray, wanted: Relation):
    found = relation(CUBE, made)
    assert found is not None
    assert (found.perm, found.is_reshaped) == (wanted.perm, wanted.is_reshaped)
    assert found.scale == pytest.approx(wanted.scale)


def test_what_has_one_fingerprint_and_no_relation(rng: np.random.Generator):
    shuffled = rng.permutation(CUBE.ravel()).reshape(CUBE.shape)
    assert alike(fingerprint(CUBE), fingerprint(shuffled))
    assert relation(CUBE, shuffled) is None
    assert relation(np.arange(6), 2 * np.arange(6)) is None  # integers are not scaled


# -- uses of kernels ---------------------------------------------------------------------------------------------


def test_every_operand_that_counts_is_read_once():
    _, found = regions(NORM)
    region = max(found, key=lambda r: len(r.region.nodes))
    kernel = next(k for k in kernels(target(TARGET), 17) if k.op_type == "SkipLayerNormalization")
    given = list(assignments(kernel.schema, region.operands))
    assert given
    for each in given:
        assert sorted(i for i in each if i is not None) == [0, 1, 2, 3]
    assert given[0] == (0, 1, 2, 3)  # the order in which the region reads them comes first


def test_where_one_operand_is_too_many_no_order_of_the_others_is_tried():
    """Of ten inputs of this kernel eight take numbers; nine operands have 360,000 orders that stop short."""
    inputs = "".join(f"float[2,3] x{i}; " for i in range(9))
    _, found = regions(f"{inputs}a = Sum({', '.join(f'x{i}' for i in range(9))})  y = Relu(a)")
    region = max(found, key=lambda r: len(r.operands))
    kernel = next(k for k in kernels(target(TARGET), 17) if k.op_type == "MultiHeadAttention")
    assert len(region.operands) == 9
    assert list(assignments(kernel.schema, region.operands)) == []


def test_kernels_have_a_definition_and_run():
    names = {(k.domain, k.op_type) for k in kernels(target(TARGET), 17)}
    assert {("com.microsoft", "FusedConv"), ("", "Softplus"), ("com.microsoft", "QGemm")} <= names
    assert not names & {("", "Reshape"), ("", "RandomNormal"), ("com.microsoft", "MatMulNBits")}
    assert not {d for d, _ in {(k.domain, k.op_type) for k in kernels(target("onnx"), 17)}} - {""}


def test_arithmetic_tells_apart_what_cannot_be_equal():
    _, found = regions(SCALED)
    whole = max(found, key=lambda r: len(r.region.nodes))
    mine = of_nodes(whole.region.nodes)
    assert mine is not None
    assert mine.products == 1
    fused = next(k for k in kernels(target(TARGET), 17) if k.op_type == "FusedMatMul")
    skip = next(k for k in kernels(target(TARGET), 17) if k.op_type == "FusedGemm")
    theirs = [of_model(model_of(next(uses(k, whole))[0], whole.operands, whole.opset)) for k in (fused, skip)]
    assert all(t is not None and mine.may_equal(t) for t in theirs)
    normalized = of_nodes(regions(NORM)[1][-1].region.nodes)
    assert normalized is not None
    assert theirs[0] is not None
    assert not normalized.may_equal(theirs[0])


# -- the join ----------------------------------------------------------------------------------------------------


def test_a_kernel_of_two_outputs():
    both = f"({NORM.partition(' w =')[0].rstrip(';').replace(';', ',')}) => (y, u) {{ w ={NORM.partition(' w =')[2]} u = Relu(a) }}"
    assert ("Add LayerNormalization", "com.microsoft.SkipLayerNormalization") in told(hits(both)[1])


@pytest.mark.slow
def test_a_number_is_an_attribute():
    _, found = hits(SCALED)
    (hit,) = [h for h in found if h.substitute.called == "com.microsoft.FusedMatMul"]
    ((name, parameter),) = hit.substitute.nodes[0].parameters
    assert (name, parameter.origin.kind) == ("alpha", "number")
    assert parameter.value == pytest.approx(0.3)


@pytest.mark.slow
def test_nothing_is_found_where_a_constant_is_off():
    gelu = "float[b,8] x; d = Div(x, {})  e = Erf(d)  a = Add(e, 1.0)  m = Mul(x, a)  y = Mul(m, 0.5)"
    right, wrong = (told(hits(gelu.format(c))[1]) for c in ("1.41421354", "1.41"))
    assert ("Div Erf Add Mul Mul", "com.microsoft.Gelu") in right
    assert not {made for of, made in wrong if "Gelu" in made}


@pytest.mark.slow
def test_a_region_that_is_half_of_a_kernel_is_one_times_a_number():
    graph = "float[b,8] x; d = Div(x, 1.41421354)  e = Erf(d)  a = Add(e, 1.0)  y = Mul(x, a)"
    (hit,) = [h for h in hits(graph)[1] if h.substitute.called == "com.microsoft.Gelu"]
    assert hit.relations[0].scale == pytest.approx(2.0)


def test_a_kernel_that_takes_as_many_operators_is_no_find():
    assert told(hits("float[b,4] x; w = float[4,4] ~; y = MatMul(x, w)")[1]) == set()


@pytest.mark.slow
def test_results_do_not_depend_on_names():
    one, two = (hits(SCALED.replace("p", p))[1] for p in ("p", "other"))
    assert [h.substitute for h in one] == [h.substitute for h in two]


@pytest.mark.slow
def test_a_wrong_attribute_makes_no_results():
    _, found = hits(SCALED)
    use = next(h.substitute for h in found if h.substitute.called == "com.microsoft.FusedMatMul")
    region = found[0].region
    assert results_of(use, region) is not None
    node = use.nodes[0]
    bad = type(node)(node.domain, node.op_type, node.inputs, (("alpha", Parameter("much")),), node.outputs)
    assert results_of(type(use)((bad,), use.results), region) is None


def of_axes(perm: tuple[int, ...]) -> Substitute:
    return Substitute((Operator("", "Transpose", (0,), (("perm", Parameter(perm)),)),), (Inner(0),))


def runs(known: Known, use: Substitute, region: SampledRegion) -> bool:
    return bool(known.fits(use, region)) and known.of(use, region) is not None


def test_a_kernel_is_given_up_on_ranks_on_which_it_never_ran():
    _, (region,) = regions("float[2,3] x; y = Exp(x)")
    known = Known()
    assert not any(runs(known, of_axes((0, 1, axis)), region) for axis in range(40))
    assert known.evaluated == 16
    assert not runs(known, of_axes((1, 0)), region)  # nor with attributes with which it would run


def test_a_kernel_that_ran_once_is_not_given_up():
    _, (region,) = regions("float[2,3] x; y = Exp(x)")
    known = Known()
    assert runs(known, of_axes((1, 0)), region)
    assert not any(runs(known, of_axes((0, 1, axis)), region) for axis in range(40))
    assert known.evaluated == 1  # its shapes are known to be wrong
    assert runs(known, of_axes((0, 1)), region)


@pytest.mark.slow
def test_constants_become_one():
    graph = "float[b,3,4] x; w = float[4,20] ~; c = float[20] ~; s = Mul(x, 0.3)  p = MatMul(s, w)  q = Mul(p, 2.0)  y = Mul(q, c)"
    found = [h for h in hits(graph)[1] if any(n.is_ahead for n in h.substitute.nodes)]
    assert {(h.substitute.called, h.substitute.nodes[0].op_type) for h in found} >= {("MatMul", "Mul"), ("Mul", "Mul")}
    for hit in found:
        assert len(hit.substitute.work) == 1
        read = [hit.region.operands[r].value for n in hit.substitute.nodes[:1] for r in n.inputs if isinstance(r, int)]
        assert all(hit.region.facts.tensor(v) is not None for v in read) or hit.substitute.views


@pytest.mark.slow
def test_a_quotient_of_constants_is_a_constant():
    _, found = hits("float[b,3] x; q = Div(x, 0.3)  y = Mul(q, 0.7)")
    assert ["Div", "Mul"] in [[n.op_type for n in h.substitute.nodes] for h in found]


@pytest.mark.slow
def test_a_constant_may_be_one_for_each_row():
    _, found = hits("float[b,3,24] x; w = float[24,20] ~; c = float[24] ~; s = Mul(x, c)  y = MatMul(s, w)")
    assert ["Unsqueeze", "Mul", "MatMul"] in [[n.op_type for n in h.substitute.nodes] for h in found]


def test_rows_are_a_matrix():
    _, found = hits("float[b,3,4] x; w = float[4,20] ~; c = float[20] ~; p = MatMul(x, w)  y = Add(p, c)")
    (hit,) = [h for h in found if h.substitute.called == "Gemm"]
    assert [n.op_type for n in hit.substitute.nodes] == ["Flatten", "Gemm"]
    assert hit.relations == (Relation(is_reshaped=True),)


@pytest.mark.slow
def test_an_attention_takes_its_heads_from_a_view_and_its_scale_from_a_number():
    _, found = hits(ATTENTION, nodes=1)
    hit = max(
        (h for h in found if h.substitute.called.endswith("MultiHeadAttention")),
        key=lambda h: len(h.region.region.nodes),
    )
    given = dict(hit.substitute.work[0].parameters)
    assert given["num_heads"].value == 4
    assert (given["num_heads"].origin.kind, given["num_heads"].origin.axis) == ("size", 2)
    assert given["scale"].value == pytest.approx(0.7)
    assert given["scale"].origin.kind == "number"
    assert given.keys() == {"num_heads", "scale"}  # no number for an attribute that changes nothing


@pytest.mark.slow
def test_operands_that_are_used_again_are_given_again():
    """Both operands of the sum, and its result, have one zero."""
    graph = (
        "uint8[b,4] p; uint8[b,4] q; z = uint8 3; a = DequantizeLinear(p, 0.5, z)  c = DequantizeLinear(q, 0.25, z)"
        "  s = Add(a, c)  y = QuantizeLinear(s, 0.7, z)"
    )
    assert ("DequantizeLinear DequantizeLinear Add QuantizeLinear", "com.microsoft.QLinearAdd") in told(hits(graph)[1])


@pytest.mark.slow
def test_definitions_have_the_precision_of_the_model():
    graph = (
        "uint8[b,8] q; k = int8[8,3] ~; c = int32[3] ~; x = DequantizeLinear(q, 0.5, uint8 3)"
        "  w = DequantizeLinear(k, 0.25, int8 0)  d = DequantizeLinear(c, 0.125)  g = Gemm(x, w, d)  y = QuantizeLinear(g, 0.7, uint8 9)"
    )
    assert "com.microsoft.QGemm" in {made for _, made in told(hits(graph)[1])}


# -- sizes -------------------------------------------------------------------------------------------------------


def test_what_has_other_sizes_is_not_evaluated():
    region = max(regions("float[2,3,4] x; a = Relu(x)  y = ReduceSum<keepdims=0>(a, {1})")[1], key=_length)
    known = Known()
    same = Substitute((Operator("", "Relu", (0,)),), (Inner(0),))
    assert known.fits(same, region) is False
    assert known.evaluated == 0


def test_what_has_no_sizes_is_not_evaluated_once_some_are_known():
    region = max(regions("float[2,3,8,8] x; w = float[4,3,3,3] ~; c = Conv(x, w)  y = Relu(c)")[1], key=_length)
    known = Known()
    made = [Parameter("Conv"), Parameter("SAME_UPPER"), Parameter("VALID")]
    conv, same, valid = (
        Substitute((Operator("com.microsoft", "FusedConv", (0, 1), (("auto_pad", p),)),), (Inner(0),)) for p in made
    )
    assert [known.fits(each, region) for each in (conv, same, valid, conv)] == [True, False, True, None]
    assert known.evaluated == 0


def _length(region: SampledRegion) -> int:
    return len(region.region.nodes)
