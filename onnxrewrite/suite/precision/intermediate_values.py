"""The intermediate values of a model, sample by sample."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import onnx_ir as ir

from onnxrewrite import io
from onnxrewrite.errors import ModelError
from onnxrewrite.runtime.session import open_session
from onnxrewrite.suite.quality.data import Data
from onnxrewrite.system.arrays import Feeds, Outputs

GROUP = 64
"""So many values are held at a time; of more, the model is run again for the next ones."""


class Taps:
    """A model that is open, without ONNX Runtime's optimizations, and shows some values of its main graph.

    Args:
        model: The model; it is not changed.
        names: Of the values.

    Raises:
        ModelError: It does not open.
    """

    def __init__(self, model: ir.Model, names: Iterable[str]):
        self.names = list(dict.fromkeys(names))
        copy = io.load(model)
        shown = {v.name for v in copy.graph.outputs}
        wanted = set(self.names) - shown
        values = [*copy.graph.inputs, *copy.graph.initializers.values(), *(o for n in copy.graph for o in n.outputs)]
        copy.graph.outputs.extend(v for v in values if v.name in wanted)
        session = open_session(copy)
        if isinstance(session, str):
            raise ModelError(f"the model does not open in ONNX Runtime: {session}")
        self._session = session

    def __call__(self, feeds: Feeds, names: Sequence[str] | None = None) -> Outputs:
        """The values, or those of ``names``, by name.

        Raises:
            ModelError: It does not run.
        """
        found = self._session.run(feeds, self.names if names is None else names)
        if isinstance(found, str):
            raise ModelError(f"the model does not run: {found}")
        return found


def activations(model: ir.Model, names: Iterable[str], data: Data) -> Iterator[Outputs]:
    """The values of these names, a group of them on a sample at a time.

    Raises:
        ModelError: The model does not open or run.
    """
    taps = Taps(model, names)
    for start in range(0, len(taps.names), GROUP):
        for sample in data:
            yield taps(sample.inputs, taps.names[start : start + GROUP])
