"""Random pairs of graphs that agree on ordinary inputs; those that the prover takes for equal are run at corners.

A table of semantics can agree with kernels at each operator, and a proof still be wrong: in what it makes of two
operators together, of NaN that vanishes, of a zero of another sign that a division sees.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final, NamedTuple

import numpy as np
import onnx_ir as ir

from onnxrewrite import io
from onnxrewrite.errors import OnnxRewriteError
from onnxrewrite.ir import text
from onnxrewrite.proof.crosscheck import SPECIAL, difference, feeds_of
from onnxrewrite.proof.validation import BITWISE, WITHIN_BOUND, Proof, prove, with_facts
from onnxrewrite.ruletest.fuzz.judge import differs_at
from onnxrewrite.ruletest.metamorphic.running import is_consistent
from onnxrewrite.runtime.session import Session, open_session
from onnxrewrite.system.arrays import Array, Feeds

_NODES = (1, 1, 2, 2, 3, 3, 4)
_NUMBERS = 0.3
"""So often an operand is a number."""

_DIGITS = 3
"""So many decimals of two results agree."""

_ALIKE = 3
"""Each graph is compared with so many that agree with it."""

_SECONDS = 2.0
"""For a proof."""

_ORDINARY = ({"n": 6, "m": 3}, {"n": 4, "m": 5})
_CORNERS = (*_ORDINARY, {"n": 1, "m": 4}, {"n": 3, "m": 1}, {"n": 0, "m": 4}, {"n": 3, "m": 0}, {"n": 9, "m": 3})
_RUNS = 3
"""Inputs at each of these sizes."""

_MILD = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 7.0)
"""Inputs where proofs over the reals are tried: these say nothing of numbers that overflow, nor, behind a ``ReduceMax``
or ``ReduceMin``, whose kernels lose it, of NaN."""

_LITERALS: Mapping[str, Sequence[str]] = {"float": ("0.0", "-0.0", "1.0", "-1.0", "2.0", "0.5", "4.0")} | {
    "bool": ("0", "1"),
    "f": ("0.0", "1.0", "-1.0", "2.0", "0.5"),
    "u": ("0", "1", "2", "3", "100", "127", "255"),
    "i": ("0", "1", "-1", "2", "-2", "3", "100", "127"),
}

_SHAPES = ("{2, -1}", "{0, -1}", "{-1}", "{1}", "{2}", "{0, 0}", "{1, 2}", "{0, 1}")

_CODES = tuple(int(ir.DataType[d]) for d in ("FLOAT", "DOUBLE", "FLOAT16", "INT64", "INT32", "INT8", "UINT8", "BOOL"))


class Family(NamedTuple):
    """Graphs over some inputs, made of some steps, of which each field is drawn anew, see ``_Draw``."""

    inputs: str
    steps: Sequence[str]
    opset: int = 21

    def of(self, nodes: str) -> Graph:
        """A graph of its inputs."""
        return Graph(f"{self.inputs} {nodes}", self.opset)


class Graph(NamedTuple):
    """A graph as text, with its opset."""

    text: str
    opset: int

    def model(self) -> ir.Model:
        """The model, made anew."""
        return text.parse(self.text, opset=self.opset)

    def then(self, name: str, step: str) -> Graph:
        """The graph with one node more."""
        return Graph(f"{self.text} {name} = {step}", self.opset)


_UNARY = tuple(f"{op}({{x}})" for op in ("Neg", "Abs", "Sign", "Identity", "Relu"))
_CLAMPS = ("Clip({x}, {k}, {k})", "Clip({x}, {k})", "Clip({x}, , {k})", "Max({x}, {y})", "Min({y}, {x})")
_ARITHMETIC = ("Add({x}, {y})", "Sub({x}, {y})", "Sub({y}, {x})", "Mul({x}, {y})", "Div({x}, {y})", "Div({y}, {x})")
_COMPARED = tuple(f"{op}({{x}}, {{y}})" for op in ("Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal"))
_CHOSEN = ("Where({c}, {x}, {y})", "Where({c}, {y}, {x})", "Not({c})", "And({c}, {c})", "Or({c}, {c})", "Xor({c}, {c})")
_CASTS = ("Cast<to={to}>({x})", "Cast<to={to}>({c})", "Cast<to={to}>({x})")
_SHARED = (*_UNARY, *_CLAMPS, *_ARITHMETIC, *_COMPARED, *_CHOSEN, *_CASTS)
_FUNCTIONS = (
    *(f"{op}({{x}})" for op in ("Exp", "Log", "Sqrt", "Reciprocal", "Sigmoid", "Tanh", "Erf", "Softplus", "Softsign")),
    *(f"{op}({{x}})" for op in ("Floor", "Ceil", "Round", "IsNaN", "Elu", "Gelu", "HardSigmoid", "HardSwish", "Mish")),
    "Pow({x}, {k})", "LeakyRelu<alpha=0.5>({x})", "PRelu({x}, {y})", "ThresholdedRelu<alpha=1.0>({x})", "Sum({x}, {y})",
)  # fmt: skip
_BITS = ("BitwiseNot({x})", "BitwiseAnd({x}, {y})", "BitwiseOr({x}, {y})", "BitwiseXor({x}, {y})")
_REDUCED = tuple(
    f"Reduce{kind}<keepdims={{flag}}>({{x}}, {{{{{{axis}}}}}})"
    for kind in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSumExp")
)
_VIEWS = (
    *_REDUCED, "Transpose<perm=[{perm}]>({x})", "Reshape({x}, {{{shape}}})", "Flatten<axis={axis}>({x})",
    "Slice({x}, {{{place}}}, {{{place}}}, {{{axis}}})", "Slice({x}, {{{place}}}, {{{place}}}, {{{axis}}}, {{-1}})",
    "Slice({x}, {{{place}}}, {{100}}, {{{axis}}}, {{2}})", "Concat<axis={axis}>({x}, {y})",
    "Gather<axis={axis}>({x}, {{{place}}})", "Gather<axis={axis}>({x}, int64 {place})", "Pad({x}, {{{pads}}})",
    "Expand({x}, {{{sizes}}})", "Tile({x}, {{{sizes}}})", "Unsqueeze({x}, {{{axis}}})", "Squeeze({x}, {{{axis}}})",
    "Softmax<axis={axis}>({x})", "Trilu<upper={flag}>({x}, int64 {place})", "MatMul({x}, {v})", "Add({x}, {v})",
    "Mul({x}, {v})", "Sub({x}, {v})", "Max({x}, {v})", "Neg({x})", "Exp({x})", "Gemm<transA={flag}>({x}, {v})",
)  # fmt: skip
_OF_SIZES = (
    "Shape({x})", "Shape<start={place}>({x})", "Shape<end={place}>({x})", "Size({x})", "Reshape({x}, {s})",
    "Expand({x}, {s})", "ConstantOfShape({s})", "Concat<axis=0>({s}, {s})", "Gather<axis=0>({s}, int64 {place})",
    "Gather<axis=0>({s}, {{{place}}})", "Slice({s}, {{{place}}}, {{{place}}}, {{0}})", "Unsqueeze({x}, {{0}})",
    "Squeeze({x}, {{0}})", "ReduceProd<keepdims={flag}>({s})", "Add({s}, {s})", "Sub({s}, {s})", "Mul({s}, {s})",
    "Div({s}, {s})", "Max({s}, {s})", "Equal({s}, {s})", "Cast<to=1>({s})", "Cast<to=6>({s})", "Cast<to=7>({x})",
    "Neg({s})", "Where({c}, {s}, {s})", "Range(int64 0, {x}, int64 1)", "Transpose({x})", "Tile({x}, {s})",
)  # fmt: skip
_AT_11 = (
    "Squeeze<axes=[{axis}]>({x})", "Unsqueeze<axes=[{axis}]>({x})", "ReduceSum<axes=[{axis}], keepdims={flag}>({x})",
    "ReduceMax<axes=[{axis}], keepdims={flag}>({x})", "Softmax<axis={axis}>({x})", "LogSoftmax<axis={axis}>({x})",
    "Clip({x}, {k})", "Clip({x}, {k}, {k})", "Dropout({x})", "Pad({x}, {{{pads}}})", "Flatten<axis={axis}>({x})",
    "Transpose<perm=[{perm}]>({x})", "Reshape({x}, {{{shape}}})", "Relu({x})", "Neg({x})", "Exp({x})", "Add({x}, {v})",
    "Mul({x}, {v})", "Slice({x}, {{{place}}}, {{{place}}}, {{{axis}}})", "Gather<axis={axis}>({x}, {{{place}}})",
    "Concat<axis={axis}>({x}, {y})", "Max({x}, {v})", "Gemm<transA={flag}>({x}, {v}, {v})", "MatMul({x}, {v})",
)  # fmt: skip
_AT_9 = (
    "Squeeze<axes=[{flag}]>({x})", "Unsqueeze<axes=[0]>({x})", "ReduceSum<axes=[{flag}], keepdims={flag}>({x})",
    "Softmax<axis={flag}>({x})", "Clip<min=0.0>({x})", "Clip<min=-1.0, max=2.0>({x})", "Dropout<ratio=0.5>({x})",
    "Pad<pads=[{pads}]>({x})", "Flatten<axis={flag}>({x})", "Transpose<perm=[{perm}]>({x})", "Relu({x})", "Neg({x})",
    "Reshape({x}, {{{shape}}})", "Slice<axes=[{flag}], starts=[{place}], ends=[{place}]>({x})", "Max({x}, {v})",
    "Slice<starts=[{place}], ends=[{place}]>({x})", "Gather<axis={flag}>({x}, {{{flag}}})", "Sum({x}, {v})",
    "Concat<axis={flag}>({x}, {y})", "MatMul({x}, {v})", "Cast<to={to}>({x})", "Where({c}, {x}, {y})", "Add({x}, {v})",
    "Less({x}, {y})", "Equal({x}, {y})", "Mul({x}, {v})",
)  # fmt: skip

FAMILIES: Final[Mapping[str, Family]] = {
    "floats": Family("float[n] x; float[n] z; bool[n] c;", (*_SHARED, *_FUNCTIONS)),
    "halves": Family("float16[n] x; float16[n] z; bool[n] c;", (*_SHARED, *_FUNCTIONS)),
    "integers": Family("int32[n] x; int32[n] z; uint8[n] u; bool[n] c;", (*_SHARED, *_BITS)),
    "dtypes": Family("float[n] x; int64[n] z; double[n] w; int8[n] u; bool[n] c;", _SHARED),
    "views": Family("float[n,m] x; float[n,m] z; float[m,3] w;", _VIEWS),
    "sizes": Family("float[n,m] x; float[m,2] z;", _OF_SIZES),
    "opset 11": Family("float[n,m] x; float[n,m] z; float[m,3] w;", _AT_11, 11),
    "opset 9": Family("float[n,m] x; float[n,m] z; int32[n,m] u; bool[n,m] c;", _AT_9, 9),
    "views of integers": Family("int32[n,m] x; int32[n,m] z; int32[m,3] w;", _VIEWS),
}


@dataclass
class Tally:
    """What came of the pairs of a family.

    Attributes:
        pairs: Pairs that agree on ordinary inputs.
        proved: Those of them that were proved.
        differ: The proved ones that a run tells apart, and by what.
    """

    pairs: int = 0
    proved: int = 0
    differ: list[tuple[str, str]] = field(default_factory=list)


def tried(family: str, graphs: int, seed: int) -> Tally:
    """Draw so many graphs of a family, and try to prove equal those that agree."""
    rng = random.Random(f"{family} {seed}")
    identity = FAMILIES[family].of("y = Identity(x)").model()
    ordinary = [feeds_of(identity, sizes, np.random.default_rng(seed)) for sizes in _ORDINARY]
    alike: dict[Hashable, list[Graph]] = defaultdict(list)
    tally = Tally()
    for graph in (_drawn(FAMILIES[family], rng) for _ in range(graphs)):
        made = [_results(graph, feeds) for feeds in ordinary] if graph else []
        if graph is None or not all(made):
            continue
        others = alike[tuple(map(_rounded, made))]
        if graph not in others:
            for other in rng.sample(others, min(_ALIKE, len(others))):
                for before, after in ((other, graph), (graph, other)):
                    _compare(before, after, tally, seed)
            others.append(graph)
    return tally


def _compare(before: Graph, after: Graph, tally: Tally, seed: int) -> None:
    tally.pairs += 1
    found = prove(before.model(), after.model(), refute=False, seconds=_SECONDS)
    if isinstance(found, Proof):
        tally.proved += 1
        told = _told_apart(before, after, found.strength, seed)
        if told:
            tally.differ.append((f"{before.text} | {after.text} (opset {after.opset})", f"{found.strength}; {told}"))


def _told_apart(before: Graph, after: Graph, strength: str, seed: int) -> str:
    """What tells two graphs apart that a proof of some strength takes for equal; empty if nothing does."""
    rng = np.random.default_rng(seed)
    old, new = before.model(), after.model()
    loses_nan = any(op in graph.text for op in ("ReduceMax", "ReduceMin") for graph in (before, after))
    mild = _MILD if loses_nan else (*_MILD, np.nan)
    valid = [s for s in _CORNERS if is_consistent(io.to_proto(old), s)]
    for sizes in [s for s in valid for _ in range(_RUNS)]:
        feeds = feeds_of(old, sizes, rng, special=mild if strength == WITHIN_BOUND else SPECIAL)
        first = _results(before, feeds)
        if not first:
            continue
        second = _results(after, feeds)
        if not second:
            return f"the second does not run at {sizes}"
        wanted, found = first[0], second[0]
        if wanted.shape != found.shape:
            return f"shapes {wanted.shape} and {found.shape} at {sizes}"
        if strength == WITHIN_BOUND:
            problem = differs_at(old, new, feeds) or ""
        else:
            problem = difference(found, wanted, signs=strength == BITWISE)
        if problem:
            return f"{problem} at {sizes}"
    return ""


# -- graphs ----------------------------------------------------------------------------------------------------------


def _drawn(family: Family, rng: random.Random) -> Graph | None:
    """A graph of a few steps, of which each is used; None where a step does not fit its operands."""
    values = {str(v.name): v for v in family.of("y = Identity(x)").model().graph.inputs}
    graph, names = family.of(""), [f"t{k}" for k in range(rng.choice(_NODES) - 1)]
    try:
        for name in names:
            graph = graph.then(name, rng.choice(family.steps).format_map(_Draw(rng, values)))
            values[name] = _value(graph, name)
        last = rng.choice(family.steps).format_map(_Draw(rng, values))
        _value(graph.then("r", last), "r")
    except (OnnxRewriteError, ValueError, LookupError):
        return None
    found = graph.then("y", last)
    return found if all(found.text.count(name) > 1 for name in names) else None


def _value(graph: Graph, name: str) -> ir.Value:
    """A value of a graph.

    Raises:
        LookupError: Its dtype, or its rank, is not known.
    """
    model = with_facts(graph.then("y", f"Identity({name})").model())
    found = next(v for n in model.graph for v in n.outputs if v.name == name)
    if found.dtype is None or found.shape is None:
        raise LookupError(name)
    return found


class _Draw(dict[str, str]):
    """What stands in the place of each field of a step, by the methods of that name."""

    def __init__(self, rng: random.Random, values: Mapping[str, ir.Value]):
        super().__init__()
        numbers = [n for n, v in values.items() if v.dtype != ir.DataType.BOOL]
        self._rng, self._values = rng, values
        self._x = rng.choice(numbers[-2:] + numbers)
        self._dtype = values[self._x].dtype or ir.DataType.FLOAT
        self._rank = _rank(values[self._x])

    def __missing__(self, name: str) -> str:
        return str(getattr(self, name)())

    def x(self) -> str:
        """An operand of numbers, the same in the whole step."""
        return self._x

    def v(self) -> str:
        """An operand of its dtype."""
        return self._rng.choice([n for n, v in self._values.items() if v.dtype == self._dtype])

    def y(self) -> str:
        """An operand of its dtype and rank; or a number, where that is a vector's."""
        if self._rank == 1 and self._rng.random() < _NUMBERS:
            return self.k()
        alike = [n for n, v in self._values.items() if v.dtype == self._dtype and _rank(v) == self._rank]
        return self._rng.choice(alike)

    def k(self) -> str:
        """A number of its dtype."""
        name = self._dtype.name.lower()
        kind = "f" if self._dtype.is_floating_point() else "i" if self._dtype.is_signed() else "u"
        drawn = self._rng.choice(_LITERALS.get(name, _LITERALS[kind]))
        return drawn if name == "float" else f"{name} {drawn}"

    def c(self) -> str:
        """A truth value."""
        known = [n for n, v in self._values.items() if v.dtype == ir.DataType.BOOL]
        return self._rng.choice([*known, *known, f"bool {self._rng.choice(_LITERALS['bool'])}"])

    def s(self) -> str:
        """Sizes, or numbers like them."""
        known = [n for n, v in self._values.items() if v.dtype == ir.DataType.INT64 and _rank(v) <= 1]
        return self._rng.choice([*known, *known, *_SHAPES])

    def to(self) -> int:
        """A dtype."""
        return self._rng.choice(_CODES)

    def axis(self) -> int:
        """An axis, counted from either end."""
        return self._rng.randrange(-self._rank, self._rank)

    def perm(self) -> str:
        """All axes in some order."""
        return ", ".join(map(str, self._rng.sample(range(self._rank), self._rank)))

    def flag(self) -> int:
        """0 or 1."""
        return self._rng.randrange(2)

    def place(self) -> int:
        """A place along an axis, or beyond its end."""
        return self._rng.choice((0, 1, -1, 2, -2, 100))

    def shape(self) -> str:
        """What a Reshape may be given."""
        return self._rng.choice(("0, -1", "-1, 3", "-1", "3, -1", "0, 0, -1", "-1, 1", "1, -1"))

    def pads(self) -> str:
        """Pads of all axes."""
        return ", ".join(str(self._rng.choice((0, 0, 1, -1))) for _ in range(2 * self._rank))

    def sizes(self) -> str:
        """A size, or a factor, for each axis."""
        return ", ".join(str(self._rng.choice((1, 1, 2, 3))) for _ in range(self._rank))


def _rank(value: ir.Value) -> int:
    return len(value.shape or ())


# -- runs ------------------------------------------------------------------------------------------------------------


@cache
def _session(graph: Graph) -> Session | None:
    """A graph open; None where ONNX Runtime has no kernel for it."""
    found = open_session(io.to_proto(graph.model()), threads=1)
    return None if isinstance(found, str) else found


def _results(graph: Graph, feeds: Feeds) -> list[Array]:
    """The outputs of a graph; none where it does not run."""
    session = _session(graph)
    made = session.run({n: feeds[n] for n in session.inputs}) if session is not None else ""
    return [] if isinstance(made, str) else [np.asarray(v) for v in made.values()]


def _rounded(results: Sequence[Array]) -> Hashable:
    """Alike for results that are about the same."""
    with np.errstate(over="ignore"):
        wide = [np.nan_to_num(a.astype(np.float64), nan=12345.0).round(_DIGITS) + 0.0 for a in results]
    return tuple((a.shape, a.tobytes()) for a in wide)
