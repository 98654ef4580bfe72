"""onnxscript's rewrite rules in our driver, and our patterns as onnxscript's.

``--rules onnxscript:default`` and ``onnxscript:ort_fusions`` are its own rules; ``onnxscript:package.module.attribute``
and ``onnxscript:FILE.py`` are anybody's that are written for it.  They match as they always did, and what they make is
proposed, checked and undone as if it came from a rule of ours.
"""

from __future__ import annotations

from onnxrewrite.interop.onnxscript.adapt import Adapted, adapt
from onnxrewrite.interop.onnxscript.export import NotExpressible, export
from onnxrewrite.interop.onnxscript.load import load

__all__ = ["Adapted", "NotExpressible", "adapt", "export", "load"]
