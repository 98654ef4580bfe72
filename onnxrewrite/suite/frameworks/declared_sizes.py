"""The sizes that an exported model declares of its outputs, against those that it computes.

An exporter may write a size of the example for one that varies.  Results are right all the same, but ONNX Runtime warns
at every run, and whoever reads the declaration is misled.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

from onnxrewrite.system.arrays import Held, is_tensor


class DeclaredSizes:
    """The declared sizes of the outputs of a model file, of which runs show some to be wrong.

    Args:
        path: The file.
    """

    def __init__(self, path: Path):
        self._path = path
        graph = onnx.load(path, load_external_data=False).graph
        self._declared = {o.name: [d.dim_value for d in o.type.tensor_type.shape.dim] for o in graph.output}
        self._wrong: dict[tuple[str, int], str] = {}

    def see(self, outputs: Mapping[str, Held], where: str) -> None:
        """The outputs of a run on ``where``."""
        for name, value in outputs.items():
            declared = self._declared.get(name, [])
            sizes = np.asarray(value).shape if is_tensor(value) else ()
            if len(sizes) != len(declared):
                continue
            for axis, (said, size) in enumerate(zip(declared, sizes, strict=True)):
                if said and said != size:
                    told = f"output {name} declares {said} for axis {axis}, which is {size} on {where}: left open"
                    self._wrong.setdefault((name, axis), told)

    def mend(self) -> list[str]:
        """Leave the sizes open that runs have shown to be wrong, in the file; what was done, a line each."""
        if self._wrong:
            model = onnx.load(self._path, load_external_data=False)
            outputs = {o.name: o for o in model.graph.output}
            for name, axis in self._wrong:
                outputs[name].type.tensor_type.shape.dim[axis].ClearField("dim_value")
            onnx.save(model, self._path)
        return list(self._wrong.values())
