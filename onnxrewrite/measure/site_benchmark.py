"""A rewrite as something to be timed: both sides as they would run in the model, and their inputs.

What is written for a newer opset than the model's cannot run in it: it is spelled out by the function body that the
standard gives it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import onnx
import onnx.inliner
import onnx_ir as ir

from onnxrewrite.checks.site_inputs import elements_of, site_feeds
from onnxrewrite.errors import ModelError
from onnxrewrite.inputs.bindings import Binding, typical
from onnxrewrite.inputs.sample import CARE, Sampler
from onnxrewrite.ir.operators import operators
from onnxrewrite.measure.decomposition import spell_attention
from onnxrewrite.runtime.session import site_proto
from onnxrewrite.runtime.settings import Runner, Setting, open_runner, options_of
from onnxrewrite.system.arrays import Feeds

SIDES = ("before", "after")

_VIEWS = frozenset(operators("view"))


@dataclass(frozen=True)
class Subject:
    """Both sides of a rewrite, and inputs for them.

    Attributes:
        before: The covered nodes.
        after: Their replacement, lowered.
        binding: The sizes.
        draw: Makes inputs, with more or less care for what the operators take; all of the same dtypes and shapes.
    """

    before: onnx.ModelProto
    after: onnx.ModelProto
    binding: Binding
    draw: Callable[[int], Feeds] = field(repr=False)

    @cached_property
    def feeds(self) -> Feeds:
        """Inputs, whether both sides run on them or not."""
        return self.draw(0)

    def runners(self, setting: Setting, folder: Path | None = None) -> dict[str, Runner]:
        """Both sides, ready to run and run once; ModelError if one of them does not open, or there are no inputs on
        which they run.

        ``folder``: where a file for each is left with what ONNX Runtime makes of it, if there is one.
        """
        reason = ""
        for care in range(CARE):
            feeds = self.draw(care) if care else self.feeds
            try:
                found = {}
                for name in SIDES:
                    options = options_of(setting)
                    if folder is not None:
                        options.optimized_model_filepath = str(folder / name)
                    found[name] = open_runner(getattr(self, name), feeds, setting, options)
                for run in found.values():
                    run()
                return found
            except ModelError as error:
                reason = reason or f"it does not run by itself: {error}"
        raise ModelError(reason)


@contextmanager
def subject(
    old: ir.Model,
    new: ir.Model,
    imports: Mapping[str, int],
    dims: Mapping[str, int],
    lower: Callable[[ir.Model], None],
    seed: int,
) -> Iterator[Subject]:
    """A rewrite to be timed at certain sizes, as long as the context lasts.

    Args:
        old: The covered nodes, cut out.
        new: Their replacement, cut out too; it is lowered here.
        imports: Domain to version of the model that it is in.
        dims: Sizes of the model's named dimensions; others are typical ones.
        lower: Makes a model of a replacement runnable.
        seed: Of the inputs.

    Raises:
        UsageError, ModelError: It cannot be made.
    """
    lower(new)
    with site_proto(old) as spelled, site_proto(new) as after:
        before = _spelled_out(spelled, imports)
        for side in (before, after):
            _drop_last_views(side)
        sampler, elements = Sampler(before, dims=dims, seed=seed), elements_of(old)
        binding = typical(sampler.specs, sampler.bound)
        yield Subject(before, after, binding, lambda care: site_feeds(sampler, elements, binding, care=care))


def _drop_last_views(model: onnx.ModelProto) -> None:
    """Let a side end before a view of constant shape, which ONNX Runtime copies where its result is an output; in the
    whole model it is none."""
    graph = model.graph
    makers = {o: n for n in graph.node for o in n.output}
    constants = {t.name for t in graph.initializer}
    for output in graph.output:
        view = makers.get(output.name)
        if view is None or view.op_type not in _VIEWS or view.domain or view.input[0] not in makers:
            continue
        read = [i for n in graph.node if n is not view for i in n.input]
        if output.name in read or not constants.issuperset(view.input[1:]):
            continue
        if any(o.name == view.input[0] for o in graph.output):
            continue
        output.name = view.input[0]
        output.type.tensor_type.ClearField("shape")
        graph.node.remove(view)


def _spelled_out(model: onnx.ModelProto, imports: Mapping[str, int]) -> onnx.ModelProto:
    """A model in which nothing needs a newer opset than ``imports`` have, where function bodies tell how."""
    version = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)
    if imports.get("", 1) < 23:
        spell_attention(model)
    newer = set()
    for node in model.graph.node:
        if node.domain not in ("", "ai.onnx") or not onnx.defs.has(node.op_type, version):
            continue
        known = onnx.defs.get_schema(node.op_type, version)
        if known.since_version > imports.get("", 1):
            newer.add((node.domain, node.op_type))
            given = {a.name for a in node.attribute}  # a body that refers to an attribute does not know its default
            defaults = (a.default_value for n, a in known.attributes.items() if n not in given)
            node.attribute.extend(a for a in defaults if a.name)
    if not newer:
        return model
    try:
        return onnx.inliner.inline_selected_functions(model, sorted(newer), inline_schema_functions=True)
    except Exception as error:
        raise ModelError(f"{', '.join(o for _, o in sorted(newer))} cannot be spelled out: {error}") from error
