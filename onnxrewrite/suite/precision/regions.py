"""Regions of a network by what its nodes compute, whatever they are called: recognised by the rules.

The rules raise what exporters spell out to Attention, Gelu, LayerNormalization and the like; those say where a region
is, and the products next to them belong to it.  Which nodes of the given model that is, their metadata tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import onnx_ir as ir

from onnxrewrite import io
from onnxrewrite.api import application
from onnxrewrite.ir.operators import operators
from onnxrewrite.measure.lineage import origins

REGIONS = ("attention", "feed_forward", "embeddings", "head", "normalization")
"""In this order: a node belongs to the first that takes it."""

OUTPUT_LAYER = "output_layer"
"""A region beside these: its nodes belong to another one, too."""

_PRODUCTS = frozenset("MatMul Gemm FusedMatMul FusedGemm FusedMatMulActivation TransposeMatMul".split())
_ACTIVATIONS = frozenset((*operators(marks="activation"), "FastGelu", "QuickGelu", "BiasGelu", "Silu", "Sigmoid"))
_PLUMBING = frozenset(
    (*operators("pointwise broadcast view permute select repeat join pad", but="activation"), "RotaryEmbedding")
)
"""Operators that may lie between a product and the node that it belongs to."""

_LONGEST = 12
"""Steps that are gone from what says where a region is."""


def regions(source: io.Source) -> dict[str, frozenset[str]]:
    """Region to the names of the given model's nodes that belong to it; each node belongs to one at the most, and
    maybe to the last of these.

    - ``attention``: fused attention, the projections of query, key and value before it and that of its result;
    - ``feed_forward``: an activation between two products with weights, and those;
    - ``embeddings``: rows of a table of weights that are looked up, and sums of nothing but such;
    - ``normalization``: normalizations of all kinds, with the sums that are fused with them;
    - ``head``: products with weights after which no other follows, and what follows them;
    - ``output_layer``: the same, whether or not they belong to another region, such as the second product of a plain
      Gemm, Relu, Gemm; none where sums with earlier values or normalizations follow.
    """
    model = application.apply(source, lower="fused", check="off").model
    graph = _Regions(model)
    taken: dict[str, str] = {}
    for region in REGIONS:
        for node in graph.find(region):
            for name in origins(node):
                taken.setdefault(name, region)
    found = {r: frozenset(n for n, region in taken.items() if region == r) for r in REGIONS}
    return {**found, OUTPUT_LAYER: frozenset(name for node in graph.output_layer() for name in origins(node))}


def within(model: ir.Model, found: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    """The regions of a model that rewrites have made of that: each node is where what it stands for was."""
    where = {name: region for region in reversed(REGIONS) for name in found.get(region, ())}
    placed: dict[str, set[str]] = {region: set() for region in (*REGIONS, OUTPUT_LAYER)}
    for node in model.graph:
        names = (node.name or "", *origins(node))
        regions = {where[name] for name in names if name in where}
        if regions:
            placed[min(regions, key=REGIONS.index)].add(node.name or "")
        if not found.get(OUTPUT_LAYER, frozenset()).isdisjoint(names):
            placed[OUTPUT_LAYER].add(node.name or "")
    return {region: frozenset(names) for region, names in placed.items()}


class _Regions:
    """Finds them in a fused model."""

    def __init__(self, model: ir.Model):
        self.nodes = list(model.graph)
        self._taken: set[ir.Node] = set()

    def find(self, region: str) -> list[ir.Node]:
        """The nodes of a region that no region before has taken."""
        kinds: Mapping[str, Callable[[], Iterable[ir.Node]]] = {
            "attention": self._attention,
            "feed_forward": self._feed_forward,
            "embeddings": self._embeddings,
            "normalization": lambda: [n for n in self.nodes if "Normalization" in n.op_type],
            "head": self._head,
        }
        found = [n for n in dict.fromkeys(kinds[region]()) if n not in self._taken]
        self._taken.update(found)
        return found

    def _attention(self) -> Iterable[ir.Node]:
        for node in self.nodes:
            if "Attention" in node.op_type:
                yield node
                yield from _walk(node, _above, first=3)
                yield from _walk(node, _below)
            elif node.op_type == "Softmax":
                before, after = _walk(node, _above, weights=False), _walk(node, _below, weights=False)
                if before and after:
                    yield from (node, *before, *after)
                    for product, way in ((before[-1], _above), (after[-1], _below)):
                        yield from _walk(product, way)

    def _feed_forward(self) -> Iterable[ir.Node]:
        for node in self.nodes:
            fused = _has_weights(node) and "activation" in node.attributes
            if (fused or node.op_type in _ACTIVATIONS) and node not in self._taken:
                before, after = [node] if fused else _walk(node, _above), _walk(node, _below)
                if before and after:
                    gates = [n for n in after if n.op_type == "Mul"]
                    yield from (*before, node, *after, *(n for gate in gates for n in _walk(gate, _above)))

    def _embeddings(self) -> Iterable[ir.Node]:
        inside: set[ir.Node] = set()
        for node in self.nodes:
            table = node.inputs[0] if node.inputs else None
            looks_up = node.op_type == "Gather" and table is not None and _is_table(table)
            makers = [v.producer() for v in node.inputs if v is not None and v.const_value is None]
            adds = node.op_type in ("Add", "Cast") and bool(makers) and all(m in inside for m in makers)
            if looks_up or adds or node.op_type == "EmbedLayerNormalization":
                inside.add(node)
                yield node

    def _head(self) -> Iterable[ir.Node]:
        for node in self.nodes:
            if _has_weights(node) and node not in self._taken:
                below = _all_below(node)
                if not any(_has_weights(n) or n in self._taken for n in below):
                    yield from (node, *below)

    def output_layer(self) -> Iterable[ir.Node]:
        """The nodes of the output layers, whatever has taken them."""
        for node in self.nodes:
            below = _all_below(node)
            if _has_weights(node) and not any(_has_weights(n) or _joins(n) for n in below):
                yield from (node, *below)


def _is_table(value: ir.Value) -> bool:
    tensor = value.const_value
    return tensor is not None and tensor.dtype.is_floating_point() and len(tensor.shape) == 2


def _has_weights(node: ir.Node) -> bool:
    """True if a node is a product with constant weights."""
    return node.op_type in _PRODUCTS and any(
        v is not None and v.const_value is not None and len(v.const_value.shape) > 1 for v in node.inputs
    )


def _joins(node: ir.Node) -> bool:
    """True if a node normalizes, or adds what comes by another way."""
    operands = [v for v in node.inputs if v is not None and v.const_value is None]
    return "Normalization" in node.op_type or (node.op_type == "Add" and len(operands) > 1)


def _above(node: ir.Node, first: int | None = None) -> list[ir.Node]:
    return [p for v in node.inputs[:first] if v is not None and (p := v.producer()) is not None]


def _below(node: ir.Node, first: int | None = None) -> list[ir.Node]:
    return [reader for v in node.outputs[:first] for reader in v.consumers()]


def _walk(
    node: ir.Node, way: Callable[..., list[ir.Node]], *, first: int | None = None, weights: bool = True
) -> list[ir.Node]:
    """The nodes from here to the nearest products, these included and last; none where no way leads to one.

    ``first``: only so many inputs of the first node count.  ``weights``: only products with weights count.
    """
    products: dict[ir.Node, None] = {}
    between: dict[ir.Node, None] = {}
    front = way(node, first)
    for _ in range(_LONGEST):
        following = []
        for each in front:
            if _has_weights(each) or (not weights and each.op_type in _PRODUCTS):
                products[each] = None
            elif each.op_type in _PLUMBING and each not in between:
                between[each] = None
                following += way(each)
        front = following
    if not products:
        return []
    reaching = {n for n in between if _reaches(n, way, products, between)}
    return [*(n for n in between if n in reaching), *products]


def _reaches(
    node: ir.Node,
    way: Callable[..., list[ir.Node]],
    products: Mapping[ir.Node, None],
    between: Mapping[ir.Node, None],
) -> bool:
    """True if a path leads from a node to a product, through nodes of ``between`` only."""
    seen, stack = set[ir.Node](), [node]
    while stack:
        each = stack.pop()
        if each in products:
            return True
        if each in between and each not in seen:
            seen.add(each)
            stack += way(each)
    return False


def _all_below(node: ir.Node) -> list[ir.Node]:
    found: dict[ir.Node, None] = {}
    stack = _below(node)
    while stack:
        each = stack.pop()
        if each not in found:
            found[each] = None
            stack += _below(each)
    return list(found)
