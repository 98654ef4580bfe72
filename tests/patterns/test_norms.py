"""Normalizations from their parts to ONNX Runtime's kernels, as exporters spell them; and their traps."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from onnxrewrite_patterns import (
    casts,
    constants,
    embed_norm,
    identity,
    instance_norm,
    layernorm,
    norm_affine,
    rmsnorm,
    skip_norm,
)
from sides import rewrite, run

from onnxrewrite.rewrite.registry import rules_of

Doubles = npt.NDArray[np.float64]

MODULES = (casts, constants, embed_norm, identity, instance_norm, layernorm, norm_affine, rmsnorm, skip_norm)
RULES = tuple(rule for module in MODULES for rule in rules_of(module))
EPS = 1e-5


def layer_norm(x: Doubles, axes: tuple[int, ...] = (-1,)) -> Doubles:
    centred = x - x.mean(axes, keepdims=True)
    return np.asarray(centred / np.sqrt((centred**2).mean(axes, keepdims=True) + EPS))


def rms_norm(x: Doubles) -> Doubles:
    return np.asarray(x / np.sqrt((x**2).mean(-1, keepdims=True) + EPS))


def rows() -> dict[str, Doubles]:
    """Rows [2, 3, 8] on which normalizing goes wrong, by name."""
    normal = np.random.default_rng(0).standard_normal((2, 3, 8))
    return {
        "normal": normal,
        "large": 1e4 * normal,
        "tiny": 1e-6 * normal,
        "offset": 10 + normal,
        "constant": 0 * normal + 0.1,
        "zeros": 0 * normal,
        "empty": normal[:0],
    }


MEAN = "m = ReduceMean<axes=[-1]>(x)  d = Sub(x, m)"
LAYER_NORM = {
    "TorchScript": f"{MEAN} e = Sub(x, m)  p = Pow(e, 2.0)  v = ReduceMean<axes=[-1]>(p)  a = Add(v, 1e-5)"
    "r = Sqrt(a)  n = Div(d, r)  k = Mul(n, w)  y = Add(k, b)",
    "multiplied by itself": f"{MEAN} p = Mul(d, d)  v = ReduceMean<axes=[2]>(p)  a = Add(1e-5, v)  r = Sqrt(a)"
    "i = Reciprocal(r)  n = Mul(d, i)  k = Mul(w, n)  y = Add(b, k)",
    "the scale first": f"{MEAN} p = Mul(d, d)  v = ReduceMean<axes=[-1]>(p)  a = Add(v, {{1e-5}})  r = Pow(a, 0.5)"
    "i = Div(1.0, r)  g = Mul(w, i)  k = Mul(d, g)  y = Add(k, b)",
    "Keras": f"{MEAN} p = Mul(d, d)  v = ReduceMean<axes=[-1]>(p)  a = Add(v, 1e-5)  r = Sqrt(a)  i = Reciprocal(r)"
    "g = Mul(i, w)  k = Mul(x, g)  o = Mul(m, g)  c = Sub(b, o)  y = Add(k, c)",
    "Flax": f"{MEAN} q = Mul(x, x)  s = ReduceMean<axes=[-1]>(q)  n = Mul(m, m)  u = Sub(s, n)  v = Max(0.0, u)"
    "a = Add(v, 1e-5)  r = Sqrt(a)  i = Reciprocal(r)  g = Mul(i, w)  k = Mul(d, g)  y = Add(k, b)",
}


@pytest.mark.parametrize("spelling", LAYER_NORM)
def test_layer_norm(spelling: str) -> None:
    w, b = (np.random.default_rng(n).standard_normal(8).astype(np.float32) for n in (1, 2))
    sides = rewrite(f"float[b,s,8] x; float[8] w; float[8] b; {LAYER_NORM[spelling]}", RULES)
    assert sides.operators == ["LayerNormalization"]
    for x in rows().values():
        reference = layer_norm(x.astype(np.float32).astype(np.float64)) * w + b
        sides.same({"x": x.astype(np.float32), "w": w, "b": b}, [reference])


def test_no_nan_in_constant_rows_with_the_smallest_epsilon() -> None:
    graph = LAYER_NORM["TorchScript"].replace("1e-5", "1e-12")
    sides = rewrite(f"float[b,s,8] x; float[8] w; float[8] b; {graph}", RULES)
    assert sides.operators == ["LayerNormalization"]
    feeds = {"x": np.full((2, 3, 8), 0.1, np.float32), "w": np.ones(8, np.float32), "b": np.ones(8, np.float32)}
    assert np.isfinite(run(sides.after, feeds)[0]).all()


HALF = (
    "float16[b,s,8] x; float16[8] w; c = Cast<to=1>(x)  m = ReduceMean(c, {-1})  d = Sub(c, m)  p = Pow(d, 2.0)"
    "v = ReduceMean(p, {-1})  a = Add(v, 1e-5)  r = Sqrt(a)  n = Div(d, r)  h = Cast<to=10>(n)  y = Mul(h, w)"
)


def test_half_precision_needs_no_casts() -> None:
    sides = rewrite(HALF, RULES, opset=18)
    assert sides.operators == ["LayerNormalization"]
    x = rows()["normal"].astype(np.float16)
    sides.same({"x": x, "w": np.full(8, 2, np.float16)}, [2 * layer_norm(x.astype(np.float64))])


RMS_HALF = {
    "Llama": "c = Cast<to=1>(x)  p = Pow(c, 2.0)  v = ReduceMean(p, {-1})  a = Add(v, 1e-5)  r = Sqrt(a)"
    "i = Reciprocal(r)  n = Mul(c, i)  h = Cast<to=10>(n)  y = Mul(w, h)",
    "only the root in float32": "c = Cast<to=1>(x)  p = Pow(c, 2.0)  v = ReduceMean(p, {-1})  a = Add(v, 1e-5)"
    "r = Sqrt(a)  i = Div(1.0, r)  h = Cast<to=10>(i)  n = Mul(x, h)  y = Mul(n, w)",
    "half throughout": "p = Mul(x, x)  v = ReduceMean(p, {-1})  a = Add(v, 1e-5)  r = Sqrt(a)  n = Div(x, r)"
    "y = Mul(n, w)",
}


@pytest.mark.parametrize("spelling", RMS_HALF)
def test_rms_norm_in_half_precision(spelling: str) -> None:
    sides = rewrite(f"float16[b,s,8] x; float16[8] w; {RMS_HALF[spelling]}", RULES, opset=23)
    assert sides.operators == ["RMSNormalization"]
    for x in (rows()[name].astype(np.float16) for name in ("normal", "offset", "constant", "zeros")):
        sides.same({"x": x, "w": np.full(8, 2, np.float16)}, [2 * rms_norm(x.astype(np.float64))])


RMS_NORM = {
    "Llama": "p = Pow(x, 2.0)  v = ReduceMean(p, {-1})  a = Add(v, 1e-5)  r = Sqrt(a)  i = Div(1.0, r)"
    "n = Mul(x, i)  y = Mul(w, n)",
    "divided": "p = Mul(x, x)  v = ReduceMean(p, {2})  a = Add(v, 1e-5)  r = Sqrt(a)  n = Div(x, r)  y = Mul(n, w)",
    "a negative power": "p = Mul(x, x)  v = ReduceMean(p, {-1})  a = Add(v, 1e-5)  r = Pow(a, -0.5)  g = Mul(r, w)"
    "y = Mul(x, g)",
}


@pytest.mark.parametrize("spelling", RMS_NORM)
def test_rms_norm(spelling: str) -> None:
    w = np.random.default_rng(1).standard_normal(8).astype(np.float32)
    sides = rewrite(f"float[b,s,8] x; float[8] w; {RMS_NORM[spelling]}", RULES, opset=23)
    assert sides.operators == ["RMSNormalization"]
    for x in rows().values():
        sides.same({"x": x.astype(np.float32), "w": w}, [rms_norm(x.astype(np.float32).astype(np.float64)) * w])


def test_a_block_of_a_decoder_carries_its_sum() -> None:
    graph = (
        "(float[b,s,8] x, float[b,s,8] z, float[8] w) => (y, u) { t = Add(x, z)  p = Pow(t, 2.0)"
        "v = ReduceMean(p, {-1})  a = Add(v, 1e-5)  r = Sqrt(a)  n = Div(t, r)  y = Mul(w, n)  u = Relu(t) }"
    )
    sides = rewrite(graph, RULES, opset=23)
    assert sides.operators == ["Relu", "com.microsoft.SkipSimplifiedLayerNormalization"]
    x, z = rows()["normal"].astype(np.float32), rows()["offset"].astype(np.float32)
    total = x.astype(np.float64) + z
    sides.same({"x": x, "z": z, "w": np.ones(8, np.float32)}, [rms_norm(total), np.maximum(total, 0)])


TRAPS = {
    "over another axis": "m = ReduceMean<axes=[1]>(x)  d = Sub(x, m)  p = Mul(d, d)  v = ReduceMean<axes=[1]>(p)"
    "a = Add(v, 1e-5)  r = Sqrt(a)  y = Div(d, r)",
    "over everything": "m = ReduceMean(x)  d = Sub(x, m)  p = Mul(d, d)  v = ReduceMean(p)  a = Add(v, 1e-5)"
    "r = Sqrt(a)  y = Div(d, r)",
    "of everything, a variance by rows": "m = ReduceMean(x)  d = Sub(x, m)  p = Mul(d, d)"
    "v = ReduceMean<axes=[-1]>(p)  a = Add(v, 1e-5)  r = Sqrt(a)  y = Div(d, r)",
    "epsilon outside the root": f"{MEAN} p = Mul(d, d)  v = ReduceMean<axes=[-1]>(p)  r = Sqrt(v)  a = Add(r, 1e-5)"
    "y = Div(d, a)",
    "unbiased": f"{MEAN} p = Mul(d, d)  v = ReduceMean<axes=[-1]>(p)  u = Mul(v, 1.1428572)  a = Add(u, 1e-5)"
    "r = Sqrt(a)  y = Div(d, r)",
    "divided by the variance": f"{MEAN} p = Mul(d, d)  v = ReduceMean<axes=[-1]>(p)  a = Add(v, 1e-5)  y = Div(d, a)",
    "cubed": f"{MEAN} p = Pow(d, 3.0)  v = ReduceMean<axes=[-1]>(p)  a = Add(v, 1e-5)  r = Sqrt(a)  y = Div(d, r)",
    "not centred again": f"{MEAN} p = Mul(d, d)  v = ReduceMean<axes=[-1]>(p)  a = Add(v, 1e-5)  r = Sqrt(a)"
    "y = Div(x, r)",
}


@pytest.mark.parametrize("trap", TRAPS)
def test_trap_it_is_no_normalization(trap: str) -> None:
    sides = rewrite(f"float[b,3,8] x; {TRAPS[trap]}", RULES)
    assert not any("Normalization" in op for op in sides.operators)


def test_onnx_runtime_takes_no_negative_ids_in_fused_embeddings() -> None:
    """What ``embed-norm`` assumes; Gather counts them from the end."""
    graph = "(float[9,8] w, float[7,8] p, float[8] g, float[8] o, int32[b,t] i, int32[1,t] j) => (y) {" + (
        "u = Gather(w, i)  v = Gather(p, j)  e = Add(u, v)  y = LayerNormalization(e, g, o) }"
    )
    sides = rewrite(graph, RULES)
    assert sides.operators == ["com.microsoft.EmbedLayerNormalization"]
    random = np.random.default_rng(0)
    feeds = {"w": random.standard_normal((9, 8)), "p": random.standard_normal((7, 8)), "g": np.ones(8), "o": np.ones(8)}
    feeds = {name: array.astype(np.float32) for name, array in feeds.items()}
    ids = {"i": np.array([[3, 1]], np.int32), "j": np.array([[0, 1]], np.int32)}
    sides.same({**feeds, **ids})
    assert np.isfinite(run(sides.before, {**feeds, **ids, "i": -ids["i"]})[0]).all()
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument):
        run(sides.after, {**feeds, **ids, "i": -ids["i"]})
