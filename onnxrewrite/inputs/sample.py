"""Inputs worth trying: values that make sense for a model's inputs, judged by name, dtype, shape and use.

``Sampler`` proposes; ``usable`` finds, by running the original, at which sizes and with how careful values
it works. Everything is a function of the seed, the binding and the input's name, so two runs feed the same
numbers.
"""

from __future__ import annotations

import itertools
import math
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import ml_dtypes
import numpy as np
import onnx
from onnx import helper

from onnxrewrite.errors import UsageError
from onnxrewrite.inputs.bindings import (
    Binding,
    InputSpec,
    Specs,
    candidates,
    input_specs,
    relations,
    shape_of,
    symbols,
    telling,
)
from onnxrewrite.inputs.classes import ends, extreme, has_sentinel, marks
from onnxrewrite.inputs.traced import traced_sizes
from onnxrewrite.inputs.usage import Usage, usages
from onnxrewrite.ir.operators import operators
from onnxrewrite.runtime.session import ModelLike, Runnable, open_session, skeleton
from onnxrewrite.system.arrays import Array, DType, Feeds, Floats, Held, Integers, Mask, Outputs, is_tensor

_ENDS = 7
"""The number of values in ``ends``; a prime, so that every step meets all."""

CARE = 4
"""Levels of care: 0 sensible values, 1 small ids, 2 all integers zero or one, 3 floats in (0.1, 0.9) too."""

_UNTRACED = 6
"""Bindings that are tried before it is found out whether a tracer has fixed sizes: most models run at the first."""

MOST = 2**27
"""Elements of an input beyond which none is made: 1 GiB in double, and a model may well say that it takes more."""

_FLOAT_CODES: dict[int, DType] = {
    onnx.TensorProto.FLOAT: np.dtype(np.float32),
    onnx.TensorProto.DOUBLE: np.dtype(np.float64),
    onnx.TensorProto.FLOAT16: np.dtype(np.float16),
    onnx.TensorProto.BFLOAT16: np.dtype(ml_dtypes.bfloat16),
}


_INTEGER_CODES = frozenset({onnx.TensorProto.INT32, onnx.TensorProto.INT64})
_NARROW_INTEGERS = frozenset(
    {onnx.TensorProto.INT8, onnx.TensorProto.UINT8, onnx.TensorProto.INT16, onnx.TensorProto.UINT16}
)

ARITHMETIC = frozenset({*operators(marks="integers"), *operators(marks="bits", but="BitShift"), "Shape", "Size"})
"""Operators that take any integer as it is, or do not look at it; not how far bits are shifted, which has an end."""


@dataclass(frozen=True)
class Trial:
    """A binding at which the original ran, the level of care its inputs needed, and what it made of which inputs."""

    binding: Binding
    care: int
    feeds: Feeds = field(repr=False, compare=False)
    outputs: Outputs = field(repr=False, compare=False)


@dataclass
class Sampler:
    """Makes feeds for a model.  ``given`` arrays override and bind their sizes; ``dims`` override sizes."""

    model: onnx.ModelProto
    given: Feeds = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    seed: int = 0
    specs: Specs = field(init=False)
    usage: dict[str, Usage] = field(init=False)
    bound: dict[str, int] = field(init=False)
    _past: tuple[Mapping[str, int], int] = field(init=False, repr=False)  # positions in the cache, at which sizes

    def __post_init__(self) -> None:
        self.specs = Specs(s for s in input_specs(self.model) if not s.default)
        self._past: tuple[Mapping[str, int], int] = ({}, 0)
        self.usage = usages(self.model)
        self.bound = {**_bound_by(self.given, input_specs(self.model)), **self.dims}

    @cached_property
    def marks(self) -> list[float]:
        """Numbers at which something may change: those that the model holds."""
        return marks(self.model)

    @cached_property
    def has_sentinel(self) -> bool:
        """See ``classes.has_sentinel``."""
        return has_sentinel(self.model)

    def symbols(self) -> list[str]:
        """Symbolic sizes of the inputs that are fed."""
        return symbols(self.specs)

    def candidates(self, limit: int = 40) -> Iterator[Binding]:
        """Bindings worth trying, the user's sizes kept; where the first do not serve, those that a tracer has fixed."""
        made = candidates(self.specs, self.bound, limit)
        yield from itertools.islice(made, _UNTRACED)
        if self.traced:
            yield from candidates(self.specs, {**self.bound, **self.traced}, limit)
        yield from made

    @cached_property
    def traced(self) -> dict[str, int]:
        """Sizes that are free, and yet fixed by the model's own numbers."""
        if not set(self.symbols()) - set(self.bound):
            return {}
        return {n: size for n, size in traced_sizes(self.model, self.specs).items() if n not in self.bound}

    def is_number(self, spec: InputSpec) -> bool:
        """True if an input holds integers for arithmetic, which neither choose nor count anything."""
        usage = self.usage.get(spec.name, Usage())
        if spec.elem_type in _INTEGER_CODES:
            return not usage.index and usage.moved_by <= ARITHMETIC
        return spec.elem_type in _NARROW_INTEGERS and not usage.index and not usage.shape_like

    def extremes(self, binding: Mapping[str, int]) -> Iterator[Feeds]:
        """Values for the inputs that are numbers: the ends of their dtypes and what is next to them, ``ends``, as often
        as it takes for each of them to have all; nothing where there is none."""
        numbers = [s for s in self.specs if s.name not in self.given and self.is_number(s)]
        sizes = {s.name: math.prod(shape_of(s, binding)) for s in numbers}
        fewest = min((n for n in sizes.values() if n), default=0)
        for turn in range(max(2, -(-_ENDS // fewest)) if fewest else 0):
            made = {}
            for place, spec in enumerate(numbers):
                all_ends = ends(np.dtype(helper.tensor_dtype_to_np_dtype(spec.elem_type)), least=not self._divides)
                step = place % (_ENDS - 1) + 1  # so that not always the same two meet
                order = (np.arange(sizes[spec.name]) + turn * fewest) * step + place
                made[spec.name] = all_ends[order % _ENDS].reshape(shape_of(spec, binding))
            yield made

    def extreme(self, spec: InputSpec, value: Array, turn: int) -> Array:
        """Values of one such input; without the least number where a quotient by -1 would stop the process."""
        own = zlib.crc32(spec.name.encode())
        return extreme(value, drawn(spec.name, turn), turn + own % 8, least=not self._divides)

    @cached_property
    def _divides(self) -> bool:
        return any(node.op_type in ("Div", "Mod") for node in self.model.graph.node)

    def feeds(self, binding: Mapping[str, int], sample: int = 0, care: int = 0) -> Outputs:
        """Values for every input that has no default, at these sizes."""
        made: Outputs = {}
        for spec in self.specs:
            if spec.name in self.given:
                made[spec.name] = self.given[spec.name]
            elif not spec.tensor:
                raise UsageError(f"input {spec.name}: sequences, maps and optionals cannot be generated; use --input")
            else:
                made[spec.name] = self.value(spec, binding, sample, care)
        made.update({name: value for name, value in self.given.items() if name not in made})
        return made

    def value(self, spec: InputSpec, binding: Mapping[str, int], sample: int = 0, care: int = 0) -> Array:
        """Values for one input."""
        shape = shape_of(spec, binding)
        if math.prod(shape) > MOST:
            raise UsageError(f"input {spec.name}: {list(shape)} is too large to be made up; use --input or --dim")
        rng = drawn(spec.name, self.seed, sample)
        if self._past[0] is not binding:
            self._past = binding, _past(self.specs, binding)
        request = Request(spec, shape, self.usage.get(spec.name, Usage()), rng, sample, care, self._past[1])
        if spec.elem_type in _FLOAT_CODES:
            return floats(request).astype(_FLOAT_CODES[spec.elem_type])
        if spec.elem_type == onnx.TensorProto.BOOL:
            return booleans(request)
        if spec.elem_type == onnx.TensorProto.STRING:
            words = np.array(["the", "a", "", "Zürich", "42"], dtype=object)
            return words[rng.integers(0, len(words), shape)].reshape(shape)
        dtype = helper.tensor_dtype_to_np_dtype(spec.elem_type)
        return integers(request, dtype).astype(dtype)


def _bound_by(given: Mapping[str, object], specs: Sequence[InputSpec]) -> dict[str, int]:
    bound: dict[str, int] = {}
    by_name = {s.name: s for s in specs}
    for name, array in given.items():
        spec = by_name.get(name)
        if spec is None:
            raise UsageError(f"--input {name}: the model has no such input; it has {', '.join(by_name)}")
        if spec.dims is None or not hasattr(array, "shape"):
            continue
        if len(spec.dims) != len(array.shape):
            raise UsageError(f"--input {name}: rank {len(array.shape)}, the model wants {list(spec.dims)}")
        for dim, size in zip(spec.dims, array.shape, strict=True):
            expected = bound.setdefault(dim, int(size)) if isinstance(dim, str) else dim
            if expected != size:
                raise UsageError(f"--input {name}: shape {list(array.shape)}, the model wants {list(spec.dims)}")
    return bound


def _past(specs: Sequence[InputSpec], binding: Mapping[str, int]) -> int:
    """Number of positions that are already in the cache."""
    names = symbols(specs)
    for name in [*names, *binding]:
        text = telling(name)
        if "past" in text and "encoder" not in text and name not in relations(names, specs):
            return binding.get(name, 0)
    for spec in specs:
        is_four = spec.dims is not None and len(spec.dims) == 4
        if is_four and re.search(r"^past|past_key|cache", telling(spec.name)):
            return shape_of(spec, binding)[2]
    return 0


def drawn(name: str, *numbers: int) -> np.random.Generator:
    """The random numbers of an input: always the same for a name and some numbers, such as a seed."""
    return np.random.default_rng(_seeded(*numbers, zlib.crc32(name.encode())))


@lru_cache(maxsize=4096)
def _seeded(*numbers: int) -> np.random.SeedSequence:
    """The seed of some numbers: to make it takes longer than to draw what a small input holds."""
    return np.random.SeedSequence(numbers)


@dataclass
class Request:
    """Everything a value is made from."""

    spec: InputSpec
    shape: tuple[int, ...]
    usage: Usage
    rng: np.random.Generator
    sample: int
    care: int
    past: int = 0

    @property
    def name(self) -> str:
        """The input's name in small letters."""
        return telling(self.spec.name)

    def says(self, pattern: str) -> bool:
        """True if the pattern is found in the input's name."""
        return _is_in(pattern, self.name)


@lru_cache(maxsize=4096)
def _is_in(pattern: str, name: str) -> bool:
    """True if a pattern is found in a name: the same few are asked of the same few names for each value."""
    return re.search(pattern, name) is not None


_MASK = r"mask"
_LENGTH = r"(^|_)(len|lens|length|lengths|num_frames|valid_ratio)s?$|lengths?$"


def floats(r: Request) -> Floats:
    """Unit normal by default; masks, scales, lengths and cached states by name."""
    if r.care >= 3:
        return r.rng.uniform(0.1, 0.9, r.shape)
    if (r.says(_MASK) and not r.says(r"embed|feature")) or r.usage.mask:
        return _mask(r).astype(np.float64)
    if r.says(_LENGTH) and len(r.shape) <= 1:
        return np.ones(r.shape)
    if r.says(r"scale_factor|^scales?$|sigma|guidance|temperature"):
        return np.ones(r.shape)
    if r.says(r"im(age|g)?_(shape|size|info)|target_sizes"):
        return np.full(r.shape, 64.0)
    if r.says(r"timestep"):
        return r.rng.integers(0, 1000, r.shape).astype(np.float64)
    if r.says(r"threshold"):
        return np.full(r.shape, 0.5)
    if r.usage.index:
        return integers(r, np.dtype(np.int64)).astype(np.float64)
    spread = 0.7 if r.says(r"past|cache|(^|[_.])(k|v|key|value)$") else 1.0
    return np.asarray(r.rng.standard_normal(r.shape) * spread)


def booleans(r: Request) -> Mask:
    """Masks as masks, switches on and off in turn, otherwise random."""
    if r.says(r"padding_mask|pad_mask") and not r.says(r"non_?pad"):
        return np.asarray(_mask(r) == 0)
    if r.says(_MASK) and not r.says("masked_pos"):
        return np.asarray(_mask(r) == 1)
    if math.prod(r.shape) <= 1:
        return np.full(r.shape, r.sample % 2 == 1)
    return np.asarray(r.rng.integers(0, 2, r.shape) == 1)


def integers(r: Request, dtype: DType) -> Integers:
    """Ids below the table they index, masks, positions, lengths, shapes by name and by use."""
    if r.care >= 2:
        return np.full(r.shape, 1 if r.says(_MASK) or r.usage.mask or r.usage.shape_like else 0, np.int64)
    if dtype.kind == "u" or dtype.itemsize == 1:
        info = np.iinfo(dtype) if dtype.kind in "ui" else None
        low, high = (info.min, info.max) if info is not None and info.bits == 8 else (0, 100)
        if not r.usage.index:
            return r.rng.integers(low, high + 1, r.shape)
    known = _by_name(r)
    if known is not None:
        return known
    rows = _rows(r)
    if r.usage.shape_like and not r.usage.index:
        return np.ones(r.shape, np.int64)
    low = min(5, rows // 2) if r.says(r"ids|tok|input") and rows > 10 else 0
    if r.care == 1:
        low, rows = 0, min(rows, 2)
    return r.rng.integers(low, max(low + 1, rows), r.shape)


def _rows(r: Request) -> int:
    if r.usage.rows is not None:
        return max(1, r.usage.rows - max(0, r.usage.shift))
    if r.usage.index:
        return 2
    return 100 if r.says(r"ids|tok") else 3


def _by_name(r: Request) -> Integers | None:
    limit = r.usage.rows
    if r.says(r"position|cache_pos|^pos$|pos_ids"):
        start = r.past
        steps = np.arange(start, start + (r.shape[-1] if r.shape else 1))
        steps = steps if limit is None else np.minimum(steps, _rows(r) - 1)
        return np.asarray(np.broadcast_to(steps if r.shape else steps[0], r.shape)).copy()
    if r.says(r"token_type|segment|task_type"):
        return r.rng.integers(0, min(2, limit or 2), r.shape)
    if r.says(r"bbox|boxes") and r.shape and r.shape[-1] == 4:
        pairs = r.rng.integers(0, min(1000, _rows(r) if limit else 1000), (*r.shape[:-1], 2, 2))
        return np.asarray(np.sort(pairs, axis=-2)).reshape(r.shape)
    if r.says(_MASK) or (r.usage.mask and not r.usage.index):
        return _mask(r)
    if r.says(r"(image|img|im|target|orig\w*)_?(size|shape)s?"):
        return np.full(r.shape, 64, np.int64)
    if r.says(r"^sr$|sample_?rate"):
        return np.full(r.shape, 16000, np.int64)
    if r.says(r"timestep|^t$"):
        return r.rng.integers(0, limit or 1000, r.shape)
    return None


def _mask(r: Request) -> Integers:
    """Ones; in every other sample all rows but the first are padded on the right, the first position kept."""
    mask = np.ones(r.shape, np.int64)
    if r.sample % 2 == 1 and r.shape and not r.says("pixel|head"):
        length = r.shape[-1]
        rows = mask.reshape(-1, length) if length else mask
        for i in range(1, rows.shape[0]):
            rows[i, max(1, length - 1 - i % max(1, length // 2)) :] = 0
    return mask


def usable(sampler: Sampler, session: Runnable, wanted: int = 2, limit: int = 40) -> tuple[list[Trial], list[str]]:
    """Bindings at which the model runs, varying every symbolic size, and why the others failed.

    At least ``wanted`` where possible; further ones until every size that is free took two values.
    """
    trials: list[Trial] = []
    failures: list[str] = []
    free = [s for s in sampler.symbols() if s not in sampler.bound]
    for binding in sampler.candidates(limit):
        if trials and len(trials) + len(failures) > _UNTRACED:
            free = [s for s in free if s not in sampler.traced]
        if trials and (not free or _covered(trials, free, wanted)):
            break
        if len(trials) >= wanted and not _adds(trials, binding, free):
            continue
        trial = attempt(sampler, session, binding)
        if isinstance(trial, Trial):
            trials.append(trial)
        else:
            failures.append(f"{binding}: {trial}")
    return trials, failures


def _covered(trials: Sequence[Trial], free: Sequence[str], wanted: int) -> bool:
    return len(trials) >= wanted and all(len({t.binding[s] for t in trials}) > 1 for s in free)


def _adds(trials: Sequence[Trial], binding: Binding, free: Sequence[str]) -> bool:
    return any(
        binding[s] not in {t.binding[s] for t in trials} for s in free if len({t.binding[s] for t in trials}) < 2
    )


def attempt(sampler: Sampler, session: Runnable, binding: Binding, sample: int = 0) -> Trial | str:
    """The least careful level at which the model runs with finite outputs; if none is finite, runs at all."""
    ran: Trial | None = None
    reason = ""
    for care in range(CARE):
        feeds = sampler.feeds(binding, sample, care)
        outputs = session.run(feeds)
        if isinstance(outputs, str):
            reason = reason or outputs
            continue
        trial = Trial(binding, care, feeds, outputs)
        if all(is_finite(v) for v in outputs.values()):
            return trial
        ran = ran or trial
    return ran or reason


def is_finite(value: Held) -> bool:
    """No NaN or infinity in it; integers, strings and absent values count as finite."""
    if isinstance(value, list):
        return all(is_finite(v) for v in value)
    if not is_tensor(value) or value.dtype.kind not in "fcV":
        return True
    return bool(np.all(np.isfinite(value.astype(np.float64))))


def bindings(model: ModelLike, given: Mapping[str, int] | None = None, seed: int = 0) -> list[Binding]:
    """At least two bindings of every symbolic size at which the model runs (fewer when it allows fewer)."""
    session = open_session(model)
    if isinstance(session, str):
        return []
    sampler = Sampler(skeleton(model), dims=given or {}, seed=seed)
    return [t.binding for t in usable(sampler, session)[0]]
