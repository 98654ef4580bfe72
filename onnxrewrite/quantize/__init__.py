"""Quantization: onnxruntime.quantization between two rewrites, judged against the float model.

``onnxrewrite.quantize(...)`` calls ``run.quantize``: the room and the function of the public face share a name, and
whoever imports a module of the room would otherwise hide the function.
"""

import sys
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    """The room, which can be called like the function."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        from onnxrewrite.quantize.run import quantize

        return quantize(*arguments, **options)


sys.modules[__name__].__class__ = _Room
