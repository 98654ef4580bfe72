"""What a model computes inside: its intermediate values, sample by sample."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import onnx_ir as ir

from onnxrewrite.errors import ModelError
from onnxrewrite.ir import io
from onnxrewrite.quality.data import Data
from onnxrewrite.verify.session import open_session

GROUP = 64
"""So many values are held at a time; of more, the model is run again for the next ones."""


def tapped(model: ir.Model, names: Sequence[str]) -> ir.Model:
    """A copy whose outputs are these values of the main graph besides its own."""
    copy = io.load(model)
    wanted = set(names)
    given = [*copy.graph.inputs, *copy.graph.initializers.values(), *(o for n in copy.graph for o in n.outputs)]
    shown = {v.name for v in copy.graph.outputs}
    copy.graph.outputs.extend(v for v in given if v.name in wanted and v.name not in shown)
    return copy


def activations(model: ir.Model, names: Sequence[str], data: Data) -> Iterator[dict[str, Any]]:
    """The values of these names, a group of them on a sample at a time; without ONNX Runtime's optimizations.

    Raises:
        ModelError: The model does not run.
    """
    if not names:
        return
    session = open_session(tapped(model, names))
    if isinstance(session, str):
        raise ModelError(f"the model does not open in ONNX Runtime: {session}")
    for start in range(0, len(names), GROUP):
        for sample in data:
            found = session.run(sample.inputs, names[start : start + GROUP])
            if isinstance(found, str):
                raise ModelError(f"the model does not run: {found}")
            yield found
