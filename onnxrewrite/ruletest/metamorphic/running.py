"""Running a model and comparing two: whether one computes what the other does.

Raised operators stand in models whose opset has not got them; to be run, a model takes the opset that has.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx
import onnx_ir as ir

from onnxrewrite import io
from onnxrewrite.checks.site import Trials, check_site
from onnxrewrite.errors import OnnxRewriteError
from onnxrewrite.inputs.bindings import Binding, input_specs, symbols
from onnxrewrite.inputs.sample import Sampler, attempt
from onnxrewrite.io import preserved
from onnxrewrite.ir import schema
from onnxrewrite.ir.views import FROM_THE_END
from onnxrewrite.reference.tolerance import compare
from onnxrewrite.ruletest.modular import check_ring
from onnxrewrite.runtime.session import Session, one_line, open_session
from onnxrewrite.system.arrays import Feeds, Outputs

_SIZES = 4
"""So many bindings of symbolic sizes are tried."""

_ORDINARY = ("normal", "constant rows")

_SMALL = ((2, 3, 5, 7, 4), (7, 5, 3, 2, 6))
_BESIDE_NONE = (3, 2, 5, 7)


@dataclass(frozen=True)
class Feeder:
    """A model that runs, and inputs for it.

    Attributes:
        session: The open model.
        sampler: Makes inputs, at ``binding`` and with the level of ``care`` that it needs.
    """

    session: Session
    sampler: Sampler
    binding: Binding
    care: int

    def feeds(self, sample: int = 0) -> Outputs:
        """Values for every input."""
        return self.sampler.feeds(self.binding, sample, self.care)

    def run(self, feeds: Feeds) -> Outputs | str:
        """The outputs of the model at these inputs, or the reason why it does not run."""
        return self.session.run(feeds)


def runnable(model: ir.Model) -> onnx.ModelProto:
    """The model at an opset that has all of its operators."""
    return io.to_proto(schema.raised_to_date(model))


def feeder(model: ir.Model) -> Feeder | None:
    """The model open, with sizes at which it runs; None where ONNX Runtime does not run it."""
    found = feeder_or_reason(model)
    return None if isinstance(found, str) else found


def feeder_or_reason(model: ir.Model) -> Feeder | str:
    """The model open, with sizes at which it runs, or why ONNX Runtime does not run it."""
    reason = "there are no sizes for its inputs"
    try:
        proto = runnable(model)
        session = open_session(proto, threads=1)
        if isinstance(session, str):
            return session
        sampler = Sampler(proto)
        for binding in itertools.chain(small_sizes(proto), sampler.candidates(_SIZES)):
            found = attempt(sampler, session, binding)
            if not isinstance(found, str):
                return Feeder(session, sampler, found.binding, found.care)
            reason = found
    except (OnnxRewriteError, ValueError, TypeError) as error:
        return one_line(error)
    return reason


def small_sizes(model: onnx.ModelProto, *, edges: bool = False) -> list[Binding]:
    """Small sizes, all of them different, in two orders: large sums differ by what is rounded, whatever they sum.

    With ``edges`` also ones and, one at a time, zeros, these where shapes are known to fit: ONNX Runtime does not ask
    then, and shape inference says nothing of axes that count from the end where the standard has none yet; there they
    are ones.
    """
    names = symbols(input_specs(model))
    if not names:
        return []
    least = 0 if all(o.version >= FROM_THE_END for o in model.opset_import if not o.domain) else 1
    tried = [dict(zip(names, itertools.cycle(sizes), strict=False)) for sizes in _SMALL]
    found: list[Binding] = []
    for sizes in (*tried, *(_edges(names) if edges else ())):
        binding = {n: max(least, size) for n, size in sizes.items()}
        if binding not in found and (all(binding.values()) or is_consistent(model, binding)):
            found.append(binding)
    return found


def _edges(names: Sequence[str]) -> Iterator[Binding]:
    """Ones; and zero for each size, beside others that differ."""
    yield dict.fromkeys(names, 1)
    for empty in names:
        others = itertools.cycle(_BESIDE_NONE)
        yield {n: 0 if n == empty else next(others) for n in names}


def is_consistent(model: onnx.ModelProto, binding: Binding | None = None) -> bool:
    """True if types and shapes fit together by the standard, also at certain sizes: ONNX Runtime takes more than that,
    and of empty tensors anything."""
    sized = onnx.ModelProto()
    sized.CopyFrom(model)
    for value in sized.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if binding is not None and dim.dim_param in binding:
                dim.dim_value = binding[dim.dim_param]
    try:
        onnx.shape_inference.infer_shapes(sized, check_type=True, strict_mode=True, data_prop=True)
    except (onnx.shape_inference.InferenceError, ValueError):  # the latter for a dtype that there is not
        return False
    return True


def difference(before: ir.Model, after: ir.Model) -> str | None:
    """The reason why ``after`` does not compute what ``before`` does; None where no difference was found.

    Their meaning is compared, on ordinary inputs: a mistake can make a formula with a pole at zero or without bounds,
    and what becomes of an overflow depends on what a runtime keeps in a wider dtype.  So does rounding: what is equal
    in exact arithmetic means the same.

    Raises:
        CannotTell: Neither could be run.
    """
    old, new = runnable(before), runnable(after)
    lost = lost_default(old, new)
    if lost is not None:
        return lost
    original, rewritten = bare(old), bare(new)
    result = check_site(original, rewritten, Trials(small_sizes(io.to_proto(original)), classes=_ORDINARY))
    if result.status == "not run":
        raise CannotTell(result.reason)
    if result.status == "ok" or check_ring(original, rewritten).status == "equal":
        return None
    return result.reason


class CannotTell(Exception):
    """A model that does not run."""


def lost_default(old: onnx.ModelProto, new: onnx.ModelProto) -> str | None:
    """The reason why the defaults of overridable inputs are not the same, or None."""
    return None if _defaults(old) == _defaults(new) else "what a caller may override has lost its default"


def _defaults(proto: onnx.ModelProto) -> dict[str, bytes]:
    """The inputs that a caller may override, with their defaults as bytes."""
    inputs = {i.name for i in proto.graph.input}
    return {t.name: ir.from_proto(t).tobytes() for t in proto.graph.initializer if t.name in inputs}


def bare(proto: onnx.ModelProto) -> ir.Model:
    """The model without those defaults, so that other values are fed."""
    defaults = _defaults(proto)
    kept = [t for t in proto.graph.initializer if t.name not in defaults]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(kept)
    return preserved.deserialized(proto)


def is_same(old: Outputs | str, new: Outputs | str) -> bool:
    """True if both runs succeeded, and the outputs of the first are the same in the second."""
    if isinstance(old, str) or isinstance(new, str):
        return False
    return all(compare(None, old[name], new.get(name)).accept for name in old)
