"""Functions of the user's own, named on a command line: ``module:function`` or ``file.py:function``."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from onnxrewrite.errors import UsageError, foreign
from onnxrewrite.runtime.session import one_line
from onnxrewrite.system import files


def is_function(spec: str) -> bool:
    """True if this names a function, not a file or a folder."""
    module, colon, name = spec.rpartition(":")
    return bool(colon and module) and name.isidentifier() and not os.path.exists(spec)


def function(spec: str, option: str) -> Callable[..., Any]:
    """The function that is named so.

    Args:
        spec: ``package.module:function`` or ``path/to/file.py:function``.
        option: The option by which the user gave it, for the message.

    Raises:
        UsageError: There is none, or its module cannot be imported.
    """
    if not is_function(spec):
        raise UsageError(f"{option} {spec}: write module:function or file.py:function")
    module, _, name = spec.rpartition(":")
    try:
        with foreign():
            found = getattr(_module(module), name, None)
    except UsageError as error:
        raise UsageError(f"{option} {spec}: {error}") from None
    except Exception as error:  # whatever somebody else's module raises
        raise UsageError(f"{option} {spec}: {module} cannot be imported: {one_line(error)}") from error
    if not callable(found):
        raise UsageError(f"{option} {spec}: {module} has no function {name}")
    return found  # type: ignore[no-any-return]


def _module(name: str) -> ModuleType:
    path = Path(name)
    if path.suffix != ".py":
        return importlib.import_module(name)
    if not files.is_regular(path):
        raise UsageError(f"no such file: {name}")
    spec = importlib.util.spec_from_file_location(f"onnxrewrite_given_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
