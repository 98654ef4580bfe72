"""Sizes worth trying for the symbolic dimensions of a model's inputs.

A binding gives every symbolic dimension a size.  Names carry relations ("past_sequence_length + 1",
"past_plus_seq", "total_sequence_length"), which bindings keep.  Whether a model really runs at a binding is
for the caller to try; this module only proposes candidates, the most sensible first, and never runs
anything.
"""

from __future__ import annotations

import ast
import itertools
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import onnx

Binding = dict[str, int]
Dim = int | str

ELEMENT_CAP = 4_000_000
"""No proposed input holds more elements than this, unless its fixed sizes or the user's say so."""

PREFERENCES: dict[str, tuple[int, ...]] = {
    "batch": (2, 1, 3, 4, 5, 1, 2, 8),
    "sequence": (7, 16, 5, 13, 8, 32, 64, 1),
    "past": (5, 11, 3, 8, 7, 16, 2, 1),
    "one": (1, 1, 1, 1, 1, 1, 1, 1),
    "spatial": (64, 96, 128, 32, 224, 256, 384, 512),
    "frames": (48, 101, 64, 200, 37, 400, 1000, 3000),
    "samples": (1600, 4000, 2999, 8000, 16000, 480, 3200, 32000),
    "channels": (3, 3, 1, 4, 2, 1, 16, 64),
    "other": (3, 5, 2, 7, 4, 8, 16, 1),
}
"""Sizes by role; the i-th candidate takes the i-th of each.  Batch: more than one, one, an odd prime."""

TYPICAL = {
    "batch": 1,
    "sequence": 128,
    "past": 64,
    "one": 1,
    "spatial": 224,
    "frames": 200,
    "samples": 16000,
    "channels": 3,
    "other": 16,
}
"""Sizes by role at which models are used: what speed is measured at."""

_ROLE_BY_NAME: tuple[tuple[str, str], ...] = (
    (r"batch|^bs$|^[nb]$|^num_images$|^n_batch$", "batch"),
    (r"past|cache", "past"),
    (r"height|width|^[hw]$|^(in|img|image)_?[hw]$|spatial|image_size|resolution", "spatial"),
    (r"sample|audio_len|wave", "samples"),
    (r"frame|feat(ure)?s?_?(len|size|seq)|time|^t$|mel", "frames"),
    (r"seq|len|tok|enc|dec|text|word|pos|query|^[ls]$|^q$|^k$", "sequence"),
    (r"chan|^c$", "channels"),
)


@dataclass(frozen=True)
class InputSpec:
    """One graph input.  ``dims`` is None for unknown rank; unnamed sizes are called ``input.axis``."""

    name: str
    elem_type: int
    dims: tuple[Dim, ...] | None
    tensor: bool = True
    default: bool = False


def input_specs(model: onnx.ModelProto) -> list[InputSpec]:
    """The graph inputs, those with a default value (an initializer of the same name) marked."""
    initialized = {t.name for t in model.graph.initializer}
    return [_spec(value, value.name in initialized) for value in model.graph.input]


def _spec(value: onnx.ValueInfoProto, default: bool) -> InputSpec:
    if not value.type.HasField("tensor_type"):
        return InputSpec(value.name, 0, None, tensor=False, default=default)
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return InputSpec(value.name, tensor.elem_type, None, default=default)
    dims: list[Dim] = []
    for axis, dim in enumerate(tensor.shape.dim):
        if dim.HasField("dim_value") and dim.dim_value >= 0:
            dims.append(int(dim.dim_value))
        else:
            named = dim.dim_param and dim.dim_param not in ("?", "None", "-1")
            dims.append(dim.dim_param if named else _unnamed(value, axis))
    return InputSpec(value.name, tensor.elem_type, tuple(dims), default=default)


class Specs(list[InputSpec]):
    """Inputs, and where each of their dimensions is; the list must not be changed."""

    @cached_property
    def places(self) -> dict[str, list[tuple[InputSpec, int]]]:
        """By dimension the inputs that have it, each with the first axis at which it does."""
        found: dict[str, list[tuple[InputSpec, int]]] = {}
        for spec in self:
            for dim in dict.fromkeys(d for d in spec.dims or () if isinstance(d, str)):
                found.setdefault(dim, []).append((spec, (spec.dims or ()).index(dim)))
        return found


def symbols(specs: Sequence[InputSpec]) -> list[str]:
    """Every symbolic size of the inputs, in order of first appearance."""
    found = (d for spec in specs for d in spec.dims or () if isinstance(d, str))
    return list(dict.fromkeys(found))


_OPERATORS: dict[type[ast.operator], Callable[[int, int], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: lambda base, exponent: base**exponent if abs(base) < 2**16 and exponent in range(5) else math.nan,
}
_CALLS: dict[str, Callable[..., float]] = {
    "max": max,
    "min": min,
    "floor": int,
    "ceiling": math.ceil,
    "ceil": math.ceil,
}


_TELLING = 512
"""Characters of a name that are looked at: what a value is for stands at either end of it."""

_LONGEST = 2000
"""Characters of an expression; what is longer is a name."""


def telling(name: str) -> str:
    """The ends of a name, which may tell its purpose, in lower case; a name can have a million characters."""
    half = _TELLING // 2
    return (name if len(name) <= _TELLING else f"{name[:half]} {name[-half:]}").lower()


def evaluate(text: str, known: Mapping[str, int]) -> int | None:
    """The value of an arithmetic dimension expression, None when it is not one or a part is unknown."""
    if text in known:
        return known[text]
    if len(text) > _LONGEST:
        return None
    try:
        value = _value(ast.parse(text.strip(), mode="eval").body, known)
    except (SyntaxError, KeyError, TypeError, ArithmeticError, ValueError, RecursionError, MemoryError):
        return None
    return value


def _value(node: ast.expr, known: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        return known[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return int(_OPERATORS[type(node.op)](_value(node.left, known), _value(node.right, known)))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, known)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return int(_CALLS[node.func.id.lower()](*[_value(a, known) for a in node.args]))
    raise KeyError(ast.dump(node))


def expression_parts(text: str) -> set[str]:
    """Names a dimension expression is made of; empty when it is a plain name or not arithmetic."""
    if len(text) > _LONGEST:
        return set()
    try:
        body = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    if isinstance(body, (ast.Name, ast.Constant, ast.Attribute)):
        return set()
    called = {n.func for n in ast.walk(body) if isinstance(n, ast.Call)}
    return {n.id for n in ast.walk(body) if isinstance(n, ast.Name) and n not in called}


def relations(names: Sequence[str], specs: Sequence[InputSpec]) -> dict[str, tuple[str, ...]]:
    """Dimensions that are sums of others: by arithmetic, ``_plus_``, the usual spellings, or as masks."""
    found: dict[str, tuple[str, ...]] = {}
    plain = [n for n in names if not expression_parts(n)]
    for name in names:
        if expression_parts(name):
            found[name] = (name,)
        elif "_plus_" in name:
            found[name] = _spelled_sum(name, plain)
    past = next((n for n in plain if n not in found and _is_past(n, specs)), None)
    step = next((n for n in plain if _is_step(n)), None) or _ids_length(specs)
    for name in plain:
        if name in found or name in (past, step):
            continue
        if past is not None and (_is_total(name) or _only_in_mask(name, specs)):
            found[name] = (past, step or "1")
        elif past is None and _only_in_mask(name, specs):
            masked = _masked_length(name, specs)
            found |= {name: (masked,)} if masked and masked != name else {}
    return found


def _is_past(name: str, specs: Sequence[InputSpec]) -> bool:
    lower = telling(name)
    return "_plus_" not in lower and "encoder" not in lower and role_of(name, specs) == "past"


def _is_total(name: str) -> bool:
    pattern = r"total|^(attention_)?mask_?(seq|len|size)|^kv_?(len|seq)|attention_mask_seq"
    return re.search(pattern, telling(name)) is not None


def _ids_length(specs: Sequence[InputSpec]) -> str | None:
    """The length of the first two-dimensional integer input that is no mask."""
    for spec in specs:
        ids = spec.elem_type in _INTEGERS and spec.dims is not None and len(spec.dims) == 2
        if ids and spec.dims is not None and "mask" not in telling(spec.name) and isinstance(spec.dims[1], str):
            return spec.dims[1]
    return None


def _unnamed(value: InputSpec | onnx.ValueInfoProto, axis: int) -> str:
    """The name given to a dimension that has none."""
    return f"{value.name}.{axis}"


def _places(name: str, specs: Sequence[InputSpec]) -> list[tuple[InputSpec, int]]:
    """The inputs that have a dimension, and the first axis of each at which they have it."""
    if isinstance(specs, Specs):
        return specs.places.get(name, [])
    return [(s, s.dims.index(name)) for s in specs if s.dims is not None and name in s.dims]


def _only_in_mask(name: str, specs: Sequence[InputSpec]) -> bool:
    places = _places(name, specs)
    return bool(places) and all("mask" in telling(s.name) and axis > 0 for s, axis in places)


def _masked_length(name: str, specs: Sequence[InputSpec]) -> str | None:
    """The dimension that a mask's own length must equal: a length of the first input that is masked."""
    mask, axis = _places(name, specs)[0]
    rank = len(mask.dims or ())
    for spec in specs:
        dims = spec.dims or ()
        if "mask" not in telling(spec.name) and len(dims) > axis and len(dims) >= rank:
            offset = len(dims) - rank if len(dims) == 4 and rank == 3 else 0
            other = dims[axis + offset]
            return other if isinstance(other, str) else str(other)
    return None


def _is_step(name: str) -> bool:
    lower = telling(name)
    if re.search(r"past|total|mask|encoder|^enc|kv|max", lower):
        return False
    return bool(re.search(r"seq|^s$|^l$|q_?len|tokens|^decoder", lower)) and "_plus_" not in lower


def _spelled_sum(name: str, plain: Sequence[str]) -> tuple[str, ...]:
    parts = []
    for part in name.split("_plus_"):
        exact = next((p for p in plain if p == part), None)
        like = next((p for p in plain if p != name and "_plus_" not in p and (part in p or p in part)), None)
        parts.append(exact or like or part)
    return tuple(parts)


def role_of(name: str, specs: Sequence[InputSpec]) -> str:
    """The role of a dimension, by its name first and by its place second."""
    lower = telling(name)
    places = _places(name, specs)
    if not places or name != _unnamed(*places[0]):
        for pattern, role in _ROLE_BY_NAME:
            if re.search(pattern, lower):
                return _refine(role, places)
    return _role_by_place(*places[0]) if places else "other"


def _refine(role: str, places: Sequence[tuple[InputSpec, int]]) -> str:
    """A "sequence" of raw samples or of feature frames is longer than one of tokens."""
    if role not in ("sequence", "frames"):
        return role
    said = [(s.elem_type, telling(s.name)) for s, _ in places]
    if any(elem_type in _INTEGERS for elem_type, text in said if "mask" not in text and "len" not in text):
        return role
    by_place = {_role_by_place(s, axis) for s, axis in places}
    return next((r for r in ("samples", "frames") if r in by_place and _is_audio(places)), role)


def _is_audio(places: Sequence[tuple[InputSpec, int]]) -> bool:
    names = " ".join(telling(s.name) for s, _ in places)
    return bool(re.search(r"audio|wave|speech|signal|input_values|input_features|^feats?|mel|pcm|sound", names))


_INTEGERS = {onnx.TensorProto.INT32, onnx.TensorProto.INT64}
_FLOATS = {
    onnx.TensorProto.FLOAT,
    onnx.TensorProto.FLOAT16,
    onnx.TensorProto.BFLOAT16,
    onnx.TensorProto.DOUBLE,
}


def _role_by_place(spec: InputSpec, axis: int) -> str:
    dims = spec.dims or ()
    lower = telling(spec.name)
    if axis == 0 and len(dims) > 1:
        return "batch"
    if re.search(r"past|cache|key_value|(^|[._])(k|v|key|value)$", lower) and len(dims) == 4:
        return "past"
    if len(dims) in (4, 5) and (spec.elem_type in _FLOATS or spec.elem_type == onnx.TensorProto.UINT8):
        return "channels" if axis == 1 and not isinstance(dims[-1], int) else "spatial"
    if len(dims) == 3 and spec.elem_type in _FLOATS:
        return "spatial" if re.search(r"image|pixel|img", lower) else "frames"
    if len(dims) == 2 and spec.elem_type in _FLOATS and axis == 1:
        return "samples" if _is_audio([(spec, axis)]) else "other"
    return "sequence" if spec.elem_type in _INTEGERS and len(dims) >= 2 else "other"


def candidates(specs: Sequence[InputSpec], given: Mapping[str, int], limit: int = 40) -> Iterator[Binding]:
    """Bindings worth trying, most sensible first; ``given`` sizes are kept in all of them."""
    names = symbols(specs)
    derived = relations(names, specs)
    free = _free_names(names, derived, given)
    roles = {name: role_of(name, specs) for name in free}
    seen: set[tuple[int, ...]] = set()
    count = 0
    for sizes in _proposals(free, roles, specs):
        binding = complete({**sizes, **given}, names, derived, specs)
        if any(binding[n] <= 0 for n in derived):
            larger = ({n: s if roles[n] == "batch" else s * f for n, s in sizes.items()} for f in _FACTORS)
            tried = (complete({**each, **given}, names, derived, specs) for each in larger)
            binding = next((b for b in tried if all(b[n] > 0 for n in derived)), binding)
        key = tuple(binding[name] for name in names)
        if key in seen or min(key, default=0) < 0 or not fits(specs, binding, given):
            continue
        seen.add(key)
        yield binding
        count += 1
        if count >= limit:
            return


_FACTORS = (4, 16, 64, 256)
"""Strides leave nothing of few samples: they become so many times as many."""


def typical(specs: Sequence[InputSpec], given: Mapping[str, int], divisor: int = 1) -> Binding:
    """Sizes at which such a model is used, divided by ``divisor``; ``given`` ones are kept."""
    names = symbols(specs)
    derived = relations(names, specs)
    sizes = {n: max(1, TYPICAL[role_of(n, specs)] // divisor) for n in _free_names(names, derived, given)}
    return complete({**sizes, **given}, names, derived, specs)


def _free_names(names: Sequence[str], derived: Mapping[str, tuple[str, ...]], given: Mapping[str, int]) -> list[str]:
    texts = [t for n in names for t in derived.get(n, ())]
    parts = [p for t in texts for p in sorted(expression_parts(t) or ({t} - {"1"}))]
    wanted = [n for n in names if n not in derived] + [p for p in parts if p not in derived]
    return [n for n in dict.fromkeys(wanted) if n not in given]


def complete(
    sizes: Mapping[str, int],
    names: Sequence[str],
    derived: Mapping[str, tuple[str, ...]],
    specs: Sequence[InputSpec],
) -> Binding:
    """Fill in the dimensions that follow from others; what cannot be computed gets its role's first size."""
    known = dict(sizes)
    for _ in range(3):
        for name, parts in derived.items():
            values = [evaluate(part, known) for part in parts]
            if name not in known and None not in values:
                known[name] = sum(v for v in values if v is not None)
    for name in names:
        if name not in known:
            known[name] = PREFERENCES[role_of(name, specs)][0]
    return known


def _proposals(free: Sequence[str], roles: Mapping[str, str], specs: Sequence[InputSpec]) -> Iterator[Binding]:
    """Columns of the preference table, height unlike width; the columns as they are; then one common size."""
    columns = range(len(PREFERENCES["batch"]))
    oblong = {n: k for n, k in _spread(free, roles).items() if roles[n] == "spatial"}
    distinct = _spread(free, roles)
    for offsets in (oblong, {}, distinct):
        yield from ({n: PREFERENCES[roles[n]][i + offsets.get(n, 0)] for n in free} for i in columns[:2])
    yield from ({n: PREFERENCES[roles[n]][i] for n in free} for i in columns[2:])
    batch_one = {n for n in free if roles[n] == "batch"}
    for i in columns:
        yield {n: 1 if n in batch_one else PREFERENCES[roles[n]][i] for n in free}
    for size, i in itertools.product((8, 16, 32, 64, 1, 224), range(2)):
        yield {n: PREFERENCES["batch"][i] if n in batch_one else size for n in free}
    for size in (1, 2, 4, 3, 7):
        yield dict.fromkeys(free, size)


def _spread(free: Sequence[str], roles: Mapping[str, str]) -> dict[str, int]:
    """A different column for every further name of one role, batches kept equal."""
    counts: dict[str, int] = {}
    offsets = {}
    for name in free:
        role = roles[name]
        offsets[name] = 0 if role == "batch" else counts.get(role, 0) % 4
        counts[role] = counts.get(role, 0) + 1
    return offsets


def fits(specs: Sequence[InputSpec], binding: Mapping[str, int], given: Mapping[str, int]) -> bool:
    """True if no input exceeds both the cap and four times its fixed and given sizes."""
    for spec in specs:
        if spec.dims is None:
            continue
        fixed = math.prod(d if isinstance(d, int) else given.get(d, 1) for d in spec.dims)
        total = math.prod(d if isinstance(d, int) else binding[d] for d in spec.dims)
        if total > max(ELEMENT_CAP, 4 * fixed):
            return False
    return True


def shape_of(spec: InputSpec, binding: Mapping[str, int]) -> tuple[int, ...]:
    """The concrete shape of an input; a scalar where the rank is unknown."""
    return tuple(d if isinstance(d, int) else binding[d] for d in spec.dims or ())
