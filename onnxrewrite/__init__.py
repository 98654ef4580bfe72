"""onnxrewrite: a rewriting compiler for ONNX graphs whose every rewrite is checked.

The public face: ``apply`` a set of rules to a model, ``check`` it against another one, ``explain`` a rule, ``trace`` a
function into a pattern, open a ``session``; and name spaces: ``rules`` has what rules are written with, ``costs`` what
they are chosen by, ``deploy`` what makes a model ready to ship, ``sessions`` what runs it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from onnxrewrite import _moved
from onnxrewrite.system.versions import VERSION

__version__ = VERSION

_moved.install()

_FACE: Final = {
    "apply": "onnxrewrite.api.application",
    "check": "onnxrewrite.api.application",
    "explain": "onnxrewrite.api.explanations",
    "capture": "onnxrewrite.authoring.captured_rule",
    "mine": "onnxrewrite.authoring.mining",
    "trace": "onnxrewrite.suite.frameworks.tracing",
    "session": "onnxrewrite.runtime.opening",
    "Result": "onnxrewrite.api.application",
    "Target": "onnxrewrite.ir.target",
    "OnnxRewriteError": "onnxrewrite.errors",
}
"""Names to the modules that have them."""

_SPACES: Final = ("costs", "deploy", "rules", "sessions")

__all__ = [*_FACE, *_SPACES]

if TYPE_CHECKING:
    from onnxrewrite import costs as costs
    from onnxrewrite import deploy as deploy
    from onnxrewrite import rules as rules
    from onnxrewrite import sessions as sessions
    from onnxrewrite.api.application import Result as Result
    from onnxrewrite.api.application import apply as apply
    from onnxrewrite.api.application import check as check
    from onnxrewrite.api.explanations import explain as explain
    from onnxrewrite.authoring.captured_rule import capture as capture
    from onnxrewrite.authoring.mining import mine as mine
    from onnxrewrite.errors import OnnxRewriteError as OnnxRewriteError
    from onnxrewrite.ir.target import Target as Target
    from onnxrewrite.runtime.opening import session as session
    from onnxrewrite.suite.frameworks.tracing import trace as trace


def __getattr__(name: str) -> Any:
    """Import on first use, so that ``onnxrewrite --help`` answers at once."""
    if name in _FACE:
        value = getattr(importlib.import_module(_FACE[name]), name)
    elif name in _SPACES:
        value = importlib.import_module(f"{__name__}.{name}")
    else:
        return _moved.name_of_face(name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
