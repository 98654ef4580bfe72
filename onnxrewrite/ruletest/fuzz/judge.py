"""Judging what a rule made of an instance: against float64, and exactly in the ring where that applies."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

import numpy as np
import onnx
import onnx_ir as ir

from onnxrewrite.checks.assumed import classes, hold
from onnxrewrite.checks.site import Trials, check_site
from onnxrewrite.errors import OnnxRewriteError
from onnxrewrite.reference.evaluation import build_reference
from onnxrewrite.reference.judgement import PART, Judge
from onnxrewrite.rewrite.rule import Assumption
from onnxrewrite.ruletest.fuzz.instances import Instance
from onnxrewrite.ruletest.fuzz.standard import is_standard
from onnxrewrite.ruletest.fuzz.unsigned_bytes import in_unsigned_bytes
from onnxrewrite.ruletest.fuzz.variations import told, unveiled
from onnxrewrite.ruletest.metamorphic.mutants import with_facts
from onnxrewrite.ruletest.metamorphic.running import bare, is_consistent, lost_default, runnable, small_sizes
from onnxrewrite.ruletest.modular import check_ring
from onnxrewrite.runtime.installed import saturates
from onnxrewrite.runtime.session import as_proto, open_session
from onnxrewrite.system.arrays import Feeds

SIZES = 5
"""At so many bindings of symbolic dimensions, or at as many more as let each of the first five be zero once."""


@dataclass(frozen=True)
class Finding:
    """The result of comparing the two sides of an instance.

    Attributes:
        status: ``equal``, ``differs`` or ``not run``.
        reason: The reason why it differs, or was not run.
        ring: True if both are equal in exact arithmetic, False if not; None where that does not apply.
        feeds: The inputs at which they differ, where there are any.
    """

    status: str
    reason: str = ""
    ring: bool | None = None
    feeds: Feeds | None = field(default=None, repr=False)

    @property
    def differs(self) -> bool:
        """True if it refutes the rule."""
        return self.status == "differs"


def judged(instance: Instance, assumes: Collection[Assumption] = (), seed: int = 0) -> Finding | None:
    """The result of comparing both sides of an instance; None where the rule left the graph alone."""
    if instance.raised is None or instance.after is None:
        return None
    try:
        return judge(instance.before, instance.raised, instance.after, assumes=assumes, seed=seed)
    except MemoryError:  # of one graph, which says nothing of the rule
        return Finding("not run", "it takes more memory than there is")


def judge(
    before: ir.Model,
    raised: ir.Model,
    after: ir.Model,
    *,
    assumes: Collection[Assumption] = (),
    seed: int = 0,
) -> Finding:
    """Compare a graph with what a rule made of it (``raised``), and that lowered (``after``).

    Some operators may be newer than the opset of their model.
    """
    if Assumption.NOT_EMPTY in assumes and _is_empty(before):
        return Finding("not run", "it has empty inputs")
    if _is_empty(before) and not all(map(_is_static, before.graph.inputs)):
        return Finding("not run", "ONNX Runtime takes what is empty at sizes that do not fit, and says nothing")
    try:
        old, new, plain = runnable(before), runnable(after), runnable(told(unveiled(before)))
    except OnnxRewriteError as error:
        return Finding("not run", str(error))
    if not is_consistent(plain) or not is_standard(with_facts(unveiled(before))):
        return Finding("not run", "it is not valid by the standard")
    lost = lost_default(old, new)
    if lost is not None:
        return Finding("differs", lost)
    original = bare(old)
    sizes = small_sizes(as_proto(bare(plain)), edges=Assumption.NOT_EMPTY not in assumes)
    trials = Trials(
        sizes,
        seed,
        classes(assumes),
        max(SIZES, len(sizes)),
        in_range=Assumption.IN_RANGE in assumes,
        rows_count=Assumption.SCORES_ABOVE_10000 in assumes,
        only_small=True,
    )
    result = check_site(original, _as_run(new), trials)
    if result.status == "failed":
        if not _is_as_assumed(original, after, result.feeds or {}, assumes):
            return Finding("not run", "what it computes on the way is not as the rule assumes")
        return Finding("differs", result.reason, feeds=result.feeds)
    ring = check_ring(before, raised, seed=seed, dims_hint=result.bindings)
    if ring.status == "differs":  # by less than what floating-point numbers show here
        return Finding("differs", f"in exact arithmetic, {ring.reason}", ring=False)
    if result.status == "ok" or ring.status == "equal":
        return Finding("equal", ring=True if ring.status == "equal" else None)
    return Finding("not run", result.reason)


def _is_empty(model: ir.Model) -> bool:
    """True if an input has no elements."""
    return any(0 in v.shape for v in model.graph.inputs if v.shape is not None)


def _is_static(value: ir.Value) -> bool:
    return value.shape is not None and value.shape.is_static()


def differs_at(before: ir.Model, after: ir.Model, feeds: Feeds, assumes: Collection[Assumption] = ()) -> str | None:
    """The difference between two models at certain inputs; None if there is none, if the original does not run, or if
    the inputs, of the models or of what the rule replaced, are not as it assumes."""
    if not hold(assumes, feeds):
        return None
    original = bare(runnable(before))
    if not _is_as_assumed(original, after, feeds, assumes):
        return None
    old, new = (open_session(as_proto(m), threads=1) for m in (original, _as_run(runnable(after))))
    if isinstance(old, str):
        return None
    return Judge(original, old, replace(PART, in_range=Assumption.IN_RANGE in assumes)).difference(new, feeds)


def _is_as_assumed(before: ir.Model, after: ir.Model, feeds: Feeds, assumes: Collection[Assumption]) -> bool:
    """True unless a rule assumes finite inputs, and a model makes others of those that it gets; or that results stay in
    range, and those of the replacement do not."""
    finite = {Assumption.FINITE} & set(assumes)
    if finite and not hold(finite, _upstream(before, after, feeds)):
        return False
    return Assumption.IN_RANGE not in assumes or not _overflows(after, feeds)


def _overflows(model: ir.Model, feeds: Feeds) -> bool:
    """True if a model makes something else than finite numbers where float64 makes some."""
    plain = bare(runnable(model))
    session, wide = open_session(as_proto(plain), threads=1), build_reference(plain).run(feeds)
    made = session if isinstance(session, str) else session.run({n: feeds[n] for n in session.inputs if n in feeds})
    if isinstance(made, str) or wide is None:
        return False
    pairs = [
        (np.asarray(made[n], np.float64), np.asarray(v)) for n, v in wide.items() if np.asarray(v).dtype.kind == "f"
    ]
    return any(a.shape == b.shape and bool((~np.isfinite(a) & np.isfinite(b)).any()) for a, b in pairs)


def _upstream(before: ir.Model, after: ir.Model, feeds: Feeds) -> Feeds:
    """Values that a model computes of its inputs before anything that a rule replaced; none if it does not run."""
    fed = {v.name for v in before.graph.inputs}
    alike, inner = fed | before.graph.initializers.keys(), list[ir.Value]()
    copy = before.clone()
    nodes = {n.outputs[0].name: n for n in after.graph if n.outputs}
    for node in copy.graph:
        other = nodes.get(node.outputs[0].name)
        if (
            other is not None
            and _computes_alike(node, other)
            and all(v is None or v.name in alike for v in node.inputs)
        ):
            made = {v.name for v in node.outputs}
            alike |= made
            if any(v is not None and v.name in fed for v in node.inputs):
                fed |= made
                inner += [v for v in node.outputs if v.name and not v.is_graph_output()]
    if not inner:
        return {}
    copy.graph.outputs.extend(inner)
    session = open_session(as_proto(copy), threads=1)
    found = session if isinstance(session, str) else session.run(feeds)
    return {} if isinstance(found, str) else {v.name: found[v.name] for v in inner if v.name in found}


def _computes_alike(node: ir.Node, other: ir.Node) -> bool:
    """True if two nodes are of one operator, with the same operands by name, and attributes in letters."""
    if node.op_identifier() != other.op_identifier() or str(node.attributes) != str(other.attributes):
        return False
    return [v and v.name for v in node.inputs] == [v and v.name for v in other.inputs]


def _as_run(model: onnx.ModelProto) -> ir.Model:
    """A replacement as it is run here: a processor that saturates sums of bytes gets unsigned ones."""
    return in_unsigned_bytes(bare(model)) if saturates() else bare(model)
