"""Small models and their regions, for the tests of ``discover``."""

from __future__ import annotations

from pathlib import Path

from onnxrewrite import io
from onnxrewrite.authoring.staged_model import found_by
from onnxrewrite.ir import text
from onnxrewrite.ir.target import target
from onnxrewrite.rewrite.driver import Driver
from onnxrewrite.rewrite.rule import Stage
from onnxrewrite.suite.discovery.enumeration import CONE, enumerate_regions
from onnxrewrite.suite.discovery.joining import Hit, Known, joined
from onnxrewrite.suite.discovery.sampled_region import SampledRegion, sampled

TARGET = "onnxruntime-cpu"

NORM = (
    "float[b,s,32] x; float[b,s,32] z; w = float[32] ~; c = float[32] ~; "
    "a = Add(x, z)  y = LayerNormalization<axis=-1, epsilon=1e-5>(a, w, c)"
)
"""A residual sum that is normalized: com.microsoft.SkipLayerNormalization."""

SCALED = "float[b,m,4] x; float[b,4,n] z;  p = MatMul(x, z)  y = Mul(p, 0.3)"
"""A product of matrices times a number: com.microsoft.FusedMatMul."""


HEADS = "Transpose<perm=[0,2,1,3]>"

ATTENTION = f"""float[b,5,32] x; float[b,7,32] y; w = float[32,32] ~; u = float[32,32] ~; t = float[32,32] ~;
qw = MatMul(x, w)  q = Reshape(qw, {{0, 5, 4, 8}})  qh = {HEADS}(q)  qs = Mul(qh, 0.7)
kw = MatMul(y, u)  k = Reshape(kw, {{0, 7, 4, 8}})  kh = Transpose<perm=[0,2,3,1]>(k)
vw = MatMul(y, t)  v = Reshape(vw, {{0, 7, 4, 8}})  vh = {HEADS}(v)
s = MatMul(qs, kh)  p = Softmax<axis=-1>(s)  o = MatMul(p, vh)  m = {HEADS}(o)  z = Reshape(m, {{0, 5, 32}})"""
"""An attention in eleven nodes between layers: com.microsoft.MultiHeadAttention."""


def driver_of(graph: str, opset: int = 17) -> Driver:
    """A model as the lower stage finds it where there are no rules."""
    return found_by(text.parse(graph, opset=opset), Stage.LOWER, [], TARGET)


def regions(graph: str, opset: int = 17, nodes: int = 12) -> tuple[Driver, list[SampledRegion]]:
    """The regions of a model that run."""
    driver = driver_of(graph, opset)
    found = enumerate_regions(driver, nodes=nodes, cone=CONE).regions.values()
    made = (sampled(r, driver.facts(r.graph)) for r in found)
    return driver, [r for r in made if r is not None]


def hits(graph: str, opset: int = 17, nodes: int = 12) -> tuple[Driver, list[Hit]]:
    """The kernels that compute what regions of a model do."""
    driver, found = regions(graph, opset, nodes)
    known = Known()
    return driver, [hit for region in found for hit in joined(region, target(TARGET), known)]


def saved(graph: str, file: Path, opset: int = 17) -> Path:
    """A model in a file."""
    io.save(io.load(text.parse(graph, opset=opset)), file)
    return file
