"""Proofs of sites: for any sizes and weights where that can be, and else of these weights alone."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnxrewrite.checks.likeness import structure
from onnxrewrite.checks.site_proof import SiteProver
from onnxrewrite.checks.site_record import ProofRecord
from onnxrewrite.ir import text
from onnxrewrite.proof import deciding
from onnxrewrite.system.arrays import Array

pytest.importorskip("z3")


@pytest.fixture
def prover() -> SiteProver:
    return SiteProver()


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proof takes long: what has none is asked for until the time is up."""
    monkeypatch.setattr(deciding, "SECONDS", 2.0)


def _with_weights(graph: str, **weights: Array) -> ir.Model:
    """A graph of which the inputs of these names are constants."""
    model = text.parse(graph, opset=17)
    for value in [v for v in model.graph.inputs if v.name in weights]:
        model.graph.inputs.remove(value)
        value.const_value = ir.tensor(weights[value.name or ""], name=value.name)
        model.graph.register_initializer(value)
    return model


def _weight(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).uniform(0.6, 0.9, shape).astype(np.float32)


SCALED_BY = """
float[n,24] x
float[24] w
y = Mul(x, w)
"""
TWICE_SCALED_BY = """
float[n,24] x
float[24] w
u = Add(x, x)
y = Mul(u, w)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("hurried")
def test_a_proof_that_reads_weights_is_not_one_of_other_weights(prover: SiteProver) -> None:
    weight, other = _weight(0, 24), _weight(1, 24)
    sides = [(_with_weights(SCALED_BY, w=weight), _with_weights(TWICE_SCALED_BY, w=h / 2)) for h in (weight, other)]
    assert structure(*sides[0]) == structure(*sides[1])
    assert isinstance(prover.prove(*sides[0], ()), ProofRecord)
    assert isinstance(prover.prove(*sides[1], ()), str)


SCALED = """
float[2,7,SIZE] x
float[2,7,SIZE] r
float[SIZE] w
s = Add(x, r)
y = Mul(s, w)
"""
SWAPPED = SCALED.replace("Add(x, r)", "Add(r, x)").replace("Mul(s, w)", "Mul(w, s)")


def test_what_holds_for_all_weights_and_sizes_is_proved_once(prover: SiteProver) -> None:
    found = []
    for size in (32, 48):
        before, after = (_with_weights(g.replace("SIZE", str(size)), w=_weight(size, size)) for g in (SCALED, SWAPPED))
        found.append(prover.prove(before, after, ()))
    assert isinstance(found[0], ProofRecord)
    assert found[0] == found[1]
    assert len(prover.scripts) == 1


NORM = """
float[n,m,32] x
float[n,m,32] r
float[32] b
float[32] w
float[32] v
f = Add(x, b)
s = Add(r, f)
y = LayerNormalization<axis=-1>(s, w, v)
"""
SKIP_NORM = NORM[: NORM.index("f = ")] + "y = com.microsoft.SkipLayerNormalization<epsilon=1e-05>(r, x, w, v, b)"


def test_a_sum_over_an_axis_of_a_number_is_not_written_out(prover: SiteProver) -> None:
    weights = {"b": _weight(0, 32), "w": _weight(1, 32), "v": _weight(2, 32)}
    found = prover.prove(_with_weights(NORM, **weights), _with_weights(SKIP_NORM, **weights), ())
    assert isinstance(found, ProofRecord)


VIEWED = """
float[4,n] x
t = Transpose<perm=[1,0]>(x)
y = Reshape(t, {-1, 2, 2})
"""


def test_a_number_that_matters_is_kept(prover: SiteProver) -> None:
    """At no other size is what is split a row."""
    kept = VIEWED.replace("-1", "0")
    assert isinstance(prover.prove(text.parse(VIEWED, opset=17), text.parse(kept, opset=17), ()), ProofRecord)
    before, after = (text.parse(graph.replace("[4,n]", "[8,n]"), opset=17) for graph in (VIEWED, kept))
    assert isinstance(prover.prove(before, after, ()), str)


BIASED = """
float[n,32] x
float[32] b
u = Reshape(x, {-1, 4, 8})
v = Reshape(u, {-1, 32})
y = Add(v, b)
"""
PLAIN = "float[n,32] x\nfloat[32] b\ny = Add(x, b)\n"


def test_where_a_size_matters_and_no_weight_does_one_proof_is_of_all_weights(prover: SiteProver) -> None:
    weights = _weight(0, 32), _weight(1, 32)
    found = [prover.prove(_with_weights(BIASED, b=b), _with_weights(PLAIN, b=b), ()) for b in weights]
    assert isinstance(found[0], ProofRecord)
    assert found[0] == found[1]


SCALED_TWICE = """
float[n,5] x
float[5] a
float[5] b
s = Mul(x, a)
y = Mul(s, b)
"""
SCALED_ONCE = """
float[n,5] x
float[5] a
y = Mul(x, a)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_a_weight_that_is_made_of_others_is_told_by_its_numbers(prover: SiteProver, factor: float) -> None:
    a, b = _weight(0, 5), np.array([2, 4, 2, 4, 8], np.float32)
    made = a * b
    made[3] *= factor
    found = prover.prove(_with_weights(SCALED_TWICE, a=a, b=b), _with_weights(SCALED_ONCE, a=made), ())
    assert isinstance(found, ProofRecord) == (factor == 1.0)


def test_a_size_with_a_name_is_not_taken_for_one_that_is_a_number(prover: SiteProver) -> None:
    before = text.parse("float[3,size0] x\ns = Shape(x)\ny = Gather(s, 0)\n", opset=17)
    after = text.parse("float[3,size0] x\ns = Shape(x)\ny = Gather(s, 1)\n", opset=17)
    assert isinstance(prover.prove(before, after, ()), str)
