"""The interface of a decoder, found by what its inputs and outputs do, whatever they are called.

- A *past* is joined to new keys or values, and the result is an output, its *present*: by a Concat, by a TensorScatter,
  or inside an attention.  Keys are multiplied before a Softmax, values after it; those that meet at one Softmax are a
  layer's.
- *ids* choose rows of an embedding, the largest of those that inputs choose from.
- The *mask* reaches the scores of attention before anything is multiplied by it.
- *positions* choose rows of a table, or go through a Cos, and have the shape of the ids.
- *logits* are floats of shape [batch, sequence, words], and not a present.

Where that leaves several, one that bears the customary name is taken; where there is none, it must be told.  An input
that nothing reads is what its name says, if that is customary: attention may turn by place and mask by count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from onnxrewrite.errors import ModelError, UsageError
from onnxrewrite.ir.graph import constant_tensor
from onnxrewrite.ir.operators import operators
from onnxrewrite.pattern.paths import path_through
from onnxrewrite.suite.decoders.attention_operators import ATTENTIONS, PRODUCTS
from onnxrewrite.suite.decoders.caches import Cache, caches_of
from onnxrewrite.suite.decoders.cones import above, below

CUSTOMARY = {
    "ids": "input_ids",
    "mask": "attention_mask",
    "positions": "position_ids",
    "logits": "logits",
}
"""What each part is called by those who export decoders; the parts are also the names of the options that decide."""

_MOVES = (*operators("view"), "Cast", "Identity")
_SHIFTS = ("Add", "Sub", *operators("repeat"))
_COPIES = (*operators("view repeat"), "Cast", "Identity")
_LOOKUPS = dict.fromkeys(("Gather", "GatherND", "GatherElements", "GatherBlockQuantized"), (0, 1))
_LOOKUPS |= {"EmbedLayerNormalization": (2, 0)}
"""What chooses from a table: the inputs of the table, and of what chooses."""
_INTEGERS = frozenset({ir.DataType.INT64, ir.DataType.INT32})
_PRODUCTS = PRODUCTS | {"Gemm", "Conv", "MatMulNBits"}
_TURNS = frozenset(("RotaryEmbedding", *operators(marks="periodic")))


@dataclass(frozen=True)
class Interface:
    """The inputs and outputs of a decoder by their part.

    Attributes:
        ids: Token ids, of shape [batch, sequence].
        mask: 1 for each token that counts, of shape [batch, past + sequence]; None where there is none.
        positions: Of shape [batch, sequence]; None where there is none.
        caches: Keys and values of each layer; none for a decoder without past, which reads the whole text at each step.
        logits: Of shape [batch, sequence, words].
        words: The number of tokens that logits are given for.
        width: The size of an embedding.
        places: The number of positions that there are rows for; None where positions choose no rows.
    """

    ids: str
    mask: str | None
    positions: str | None
    caches: tuple[Cache, ...]
    logits: str
    words: int
    width: int
    places: int | None = None

    @property
    def inputs(self) -> frozenset[str]:
        """The names of all inputs that have a part."""
        past = [name for cache in self.caches for name in (cache.past_key, cache.past_value)]
        return frozenset(name for name in (self.ids, self.mask, self.positions, *past) if name is not None)


def find_interface(model: ir.Model, given: Mapping[str, str | None] | None = None) -> Interface:
    """The interface of a decoder.

    Args:
        model: The model, without functions.
        given: The names of parts that the caller decides, by part: ``ids``, ``mask``, ``positions``, ``logits``.

    Raises:
        ModelError: The model is no decoder, or has a past without a present.
        UsageError: Several inputs or outputs could have a part, or one that was given does not exist.
    """
    found = _Finder(model.graph, {k: v for k, v in (given or {}).items() if v})
    return found.interface()


class _Finder:
    def __init__(self, graph: ir.Graph, given: Mapping[str, str]) -> None:
        self.graph, self.given = graph, given
        for part, name in given.items():
            values = graph.outputs if part == "logits" else graph.inputs
            if name not in {value.name for value in values}:
                raise UsageError(f"--{part} {name}: the model has no such {'output' if part == 'logits' else 'input'}")

    def interface(self) -> Interface:
        ids, (words, width) = self._ids()
        caches = caches_of(self.graph)
        pasts = {name for cache in caches for name in (cache.past_key, cache.past_value)}
        presents = {name for cache in caches for name in (cache.present_key, cache.present_value)}
        logits, words = self._logits(presents, words)
        rest = [v for v in self.graph.inputs if v.name not in pasts and v.name != ids and v.const_value is None]
        unused = {v for v in rest if v.name in CUSTOMARY.values() and not any(True for _ in v.uses())}
        places = [v for v in rest if self._is_position(v, ids)]
        positions = self._choice("positions", places or [v for v in unused if v.name == CUSTOMARY["positions"]])
        masks = [v for v in rest if v.name != positions and _reaches_scores(v)]
        masks = masks or [v for v in unused if v.name == CUSTOMARY["mask"]]
        mask = self._choice("mask", masks)
        known = {ids, mask, positions, *pasts}
        spare = [v.name or "" for v in rest if v.name not in known]
        if spare:
            raise ModelError(f"the model is no decoder: nothing is known to feed to its input{_listed(spare)}")
        rows = [table[0] for v in rest if v.name == positions and (table := _table(v, _SHIFTS)) is not None]
        return Interface(ids, mask, positions, caches, logits, words, width, min(rows, default=None))

    def _ids(self) -> tuple[str, tuple[int, int]]:
        """The ids, and the shape of the embedding."""
        tables = {v.name or "": table for v in self.graph.inputs if (table := _table(v)) is not None}
        if not tables:
            raise ModelError("the model is no decoder: no input of integers chooses rows of an embedding")
        outputs = {v.shape[-1] for v in self.graph.outputs if v.shape is not None and len(v.shape) == 3}
        of_words = {name: table for name, table in tables.items() if table[0] in outputs} or tables
        chosen = self._choice("ids", [v for v in self.graph.inputs if v.name in of_words])
        if chosen not in tables:
            raise UsageError(f"--ids {chosen}: it chooses no rows of an embedding")
        return chosen, tables[chosen]

    def _logits(self, presents: set[str], words: int) -> tuple[str, int]:
        """The logits, and for how many tokens they are given: an embedding may have rows to spare."""
        floats = [v for v in self.graph.outputs if v.name not in presents and v.dtype is not None]
        floats = [v for v in floats if v.dtype.is_floating_point() and v.shape is not None and len(v.shape) == 3]  # type: ignore[union-attr]
        sized = [v for v in floats if v.shape is not None and v.shape[-1] == words]
        chosen = self._choice("logits", sized or floats)
        if chosen is None:
            raise ModelError("the model is no decoder: it has no output of floats [batch, sequence, words]")
        (value,) = (v for v in self.graph.outputs if v.name == chosen)
        last = value.shape[-1] if value.shape is not None else None
        return chosen, last if isinstance(last, int) else words

    def _is_position(self, value: ir.Value, ids: str) -> bool:
        """True for integers of the shape of the ids that choose from a table, or are turned into angles, and are not a
        mask by which positions are counted."""
        if value.dtype not in _INTEGERS or value.shape is None or len(value.shape) != 2:
            return False
        (of_ids,) = (v for v in self.graph.inputs if v.name == ids)
        if of_ids.shape is not None and str(of_ids.shape[1]) != str(value.shape[1]):
            return False
        if value.name != CUSTOMARY["positions"] and _reaches_scores(value):
            return False
        uses = below(value, lambda node, _: node.op_type in ("Softmax", *ATTENTIONS))
        return any(node.op_type in _TURNS or _is_lookup(node, index) for node, index in uses)

    def _choice(self, part: str, candidates: Iterable[ir.Value]) -> str | None:
        """The one candidate, or the one that is told, or the one of the customary name."""
        if part in self.given:
            return self.given[part]
        names = [v.name or "" for v in candidates]
        if len(names) > 1 and CUSTOMARY[part] in names:
            return CUSTOMARY[part]
        if len(names) > 1:
            raise UsageError(f"{part} could be {' or '.join(names)}; say which with --{part}")
        return names[0] if names else None


def _listed(names: list[str]) -> str:
    return f"{'s' if len(names) > 1 else ''} {', '.join(names)}"


def _is_lookup(node: ir.Node, index: int) -> bool:
    """True for the indices of what gathers rows of a constant table, and of what embeds by itself."""
    return _looked_up(node, index) is not None


def _looked_up(node: ir.Node, index: int) -> tuple[int, int] | None:
    """The shape of a constant table that an input of a node chooses rows from; None for others."""
    table, chosen = _LOOKUPS.get(node.op_type, (0, -1))
    value = node.inputs[table] if index == chosen else None
    if value is None:
        return None
    tensor = constant_tensor(path_through(value, lambda each: each.op_type in _COPIES).source)
    sizes = [int(d) for d in tensor.shape.numpy()] if tensor is not None else []
    if len(sizes) < 2 or any(size != 1 for size in sizes[:-2]):
        return None
    return sizes[-2], sizes[-1]


def _table(value: ir.Value, through: tuple[str, ...] = ()) -> tuple[int, int] | None:
    """The shape of the table that ids choose rows from, before anything is computed with them but by operators that
    are passed ``through``."""
    if value.dtype not in _INTEGERS or value.const_value is not None:
        return None
    for node, index in below(value, lambda node, _: node.op_type not in (*_MOVES, *through)):
        found = _looked_up(node, index)
        if found is not None:
            return found
    return None


def _reaches_scores(value: ir.Value) -> bool:
    """True if what is made of a value is added to, or chooses among, the scores of attention."""

    def stops(node: ir.Node, index: int) -> bool:
        return node.op_type in _PRODUCTS or node.op_type in _TURNS or node.op_type in ("Softmax", *ATTENTIONS)

    uses = list(below(value, stops))
    if any(node.op_type in ATTENTIONS and index >= ATTENTIONS[node.op_type].mask for node, index in uses):
        return True
    softmaxes = [node for node, _ in uses if node.op_type == "Softmax"]
    return any(_is_of_scores(node) for node in softmaxes)


def _is_of_scores(softmax: ir.Node) -> bool:
    """True for a Softmax of what a product gave."""
    value = softmax.inputs[0]
    return value is not None and any(
        node.op_type in _PRODUCTS for node in above(value, lambda node: node.op_type in _PRODUCTS)
    )
