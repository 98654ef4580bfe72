"""``session``: a model opened as it is fastest, by the options that were stored with it when that was measured."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import onnx
import onnxruntime as ort

from onnxrewrite.errors import ModelError, UsageError
from onnxrewrite.ir import custom, target
from onnxrewrite.measure.sessions import LEVELS, Level
from onnxrewrite.verify.session import one_line

SESSION_KEY = "onnxrewrite.session"
"""Metadata of a model: the options to open it with, a JSON object; ``level``: of ONNX Runtime's optimizations."""


def options_for(level: str) -> str:
    """What is stored with a model."""
    return json.dumps({"level": level})


def session(
    path: str | os.PathLike[str], *, provider: str | None = None, threads: int = 0, **options: Any
) -> ort.InferenceSession:
    """An ONNX Runtime session of a model file, with the options that are stored in it.

    Args:
        path: The model.
        provider: The execution provider, ``cuda`` or ``CUDAExecutionProvider``; ONNX Runtime's first choice without it.
        threads: Within an operator; 0 is ONNX Runtime's choice.
        options: Further attributes of ``onnxruntime.SessionOptions``; they overrule what is stored.

    Raises:
        ModelError: There is no such file, or ONNX Runtime refuses it.
        UsageError: This build lacks the provider, or there is no such option.
    """
    made = custom.equip(ort.SessionOptions())
    made.intra_op_num_threads = threads
    made.graph_optimization_level = LEVELS[_stored(path)]
    for name, value in options.items():
        if not hasattr(made, name):
            raise UsageError(f"onnxruntime.SessionOptions has no {name}")
        setattr(made, name, value)
    chosen: Sequence[str] = [target.provider(provider)] if provider is not None else target.providers()
    try:
        return ort.InferenceSession(os.fspath(path), made, providers=chosen)
    except Exception as error:  # ORT raises a dozen classes, one a status code
        raise ModelError(f"{os.fspath(path)}: ONNX Runtime refuses it: {one_line(error)}") from error


def _stored(path: str | os.PathLike[str]) -> Level:
    """The level that is stored in a model; all, where there is none that we know."""
    try:
        model = onnx.load(os.fspath(path), load_external_data=False)
    except FileNotFoundError:
        raise ModelError(f"{os.fspath(path)}: no such file") from None
    except Exception as error:  # protobuf and onnx raise several
        raise ModelError(f"{os.fspath(path)}: cannot be read: {one_line(error)}") from error
    stored = next((p.value for p in model.metadata_props if p.key == SESSION_KEY), "{}")
    try:
        level: Level = json.loads(stored).get("level", "all")
    except (ValueError, AttributeError):
        return "all"
    return level if level in LEVELS else "all"
