"""``session``: a model opened as it is fastest, by the options that were stored with it when that was measured."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence

import onnxruntime as ort

from onnxrewrite.errors import ModelError, UsageError, one_line
from onnxrewrite.ir import custom, target
from onnxrewrite.runtime.deployment import SESSION_KEY, Deployment, options_for, read_options, write_options
from onnxrewrite.runtime.installed import preferred, why_not_started
from onnxrewrite.runtime.settings import LEVELS
from onnxrewrite.system.resources import cores

_MODES = {"sequential": ort.ExecutionMode.ORT_SEQUENTIAL, "parallel": ort.ExecutionMode.ORT_PARALLEL}

_SPINNING = ("session.intra_op.allow_spinning", "session.inter_op.allow_spinning")

Chosen = Sequence[tuple[str, Mapping[str, str]]]


def session(
    path: str | os.PathLike[str],
    *,
    provider: str | None = None,
    provider_options: Mapping[str, object] | None = None,
    threads: int | None = None,
    deployment: Deployment | None = None,
    **options: object,
) -> ort.InferenceSession:
    """An ONNX Runtime session of a model file, with the options that are stored in it.

    What is said here overrules ``deployment``, and that what is stored in the model.  Where nobody says anything, the
    best execution provider that starts on this machine is taken, and as many threads as this process has cores.

    Args:
        path: The model.
        provider: The execution provider, ``cuda`` or ``CUDAExecutionProvider``; it must start on this machine.
        provider_options: Options of that provider, by name.
        threads: Within an operator; 0 is ONNX Runtime's choice.
        deployment: Options to open it with.
        options: Further attributes of ``onnxruntime.SessionOptions``; they overrule all others.

    Stored options that are damaged, unknown, or that this machine lacks are ignored with a Python warning; so are those
    that name files or that are not known to be harmless, for a model may come from anybody.  Who trusts it says
    ``deployment=onnxrewrite.sessions.read_options(path)``.

    Raises:
        ModelError: There is no such file, or ONNX Runtime refuses it.
        UsageError: This machine lacks the provider, or there is no such option.
    """
    stored = read_options(path).harmless()
    said = deployment if deployment is not None else Deployment()
    if threads is not None:
        said = said.overruled_by(Deployment(threads=threads))
    if provider is not None:
        given = {str(k): str(v) for k, v in (provider_options or {}).items()}
        said = said.overruled_by(Deployment(providers={_must_start(provider): given}))
    elif provider_options:
        raise UsageError("provider_options need a provider")
    wanted = stored.overruled_by(said)
    chosen = _chosen(wanted)
    try:
        return _opened(path, wanted, chosen, options)
    except ModelError as error:
        if stored == Deployment() or wanted == said:
            raise
        plain = _opened(path, said, _chosen(said), options)  # a model that does not open so either tells why itself
        warnings.warn(f"the stored session options do not work here and are ignored: {error}", stacklevel=2)
        return plain


def session_options(wanted: Deployment) -> ort.SessionOptions:
    """ONNX Runtime's options that a deployment stands for, all but the providers.

    Raises:
        UsageError: ONNX Runtime refuses an entry.
    """
    made = custom.equip(ort.SessionOptions())
    made.graph_optimization_level = LEVELS[wanted.level or "all"]
    made.intra_op_num_threads = _own_threads() if wanted.threads is None else wanted.threads
    if wanted.inter_threads is not None:
        made.inter_op_num_threads = wanted.inter_threads
    if wanted.mode is not None:
        made.execution_mode = _MODES[wanted.mode]
    if wanted.arena is not None:
        made.enable_cpu_mem_arena = wanted.arena
    if wanted.memory_pattern is not None:
        made.enable_mem_pattern = wanted.memory_pattern
    spinning = {name: str(int(wanted.spinning)) for name in _SPINNING} if wanted.spinning is not None else {}
    for name, value in {**spinning, **wanted.entries}.items():
        try:
            made.add_session_config_entry(name, value)
        except Exception as error:  # ORT raises several, for a name or a value that is too long
            raise UsageError(f"session entry {name}: {one_line(error)}") from error
    for name, size in wanted.dims.items():
        made.add_free_dimension_override_by_name(name, size)
    return made


def _opened(
    path: str | os.PathLike[str], wanted: Deployment, chosen: Chosen, options: Mapping[str, object]
) -> ort.InferenceSession:
    where = os.fspath(path)
    try:
        made = session_options(wanted)
    except UsageError as error:
        raise ModelError(f"{where}: {error}") from error
    for name, value in options.items():
        if not hasattr(made, name):
            raise UsageError(f"onnxruntime.SessionOptions has no {name}")
        setattr(made, name, value)
    try:
        return ort.InferenceSession(where, made, providers=[(name, dict(own)) for name, own in chosen])
    except Exception as error:  # ORT raises a dozen classes, one a status code
        raise ModelError(f"{where}: ONNX Runtime refuses it: {one_line(error)}") from error


def _own_threads() -> int:
    """ONNX Runtime's choice, a thread a core, unless this process may use fewer: of limits it knows nothing."""
    found = cores()
    return 0 if found.threads == found.physical else found.threads


def _must_start(provider: str) -> str:
    name = target.provider(provider)
    reason = why_not_started(name)
    if reason:
        raise UsageError(f"provider '{provider}' does not start on this machine: {reason}")
    return name


def _chosen(wanted: Deployment) -> Chosen:
    """Those providers that start here, with their options; the best of this machine where none of them does."""
    found, lacking = [], []
    for each, own in wanted.providers.items():
        try:
            found.append((_must_start(each), own))
        except UsageError as error:
            lacking.append(str(error))
    if found or not wanted.providers:
        return found or [(name, {}) for name in preferred()]
    best = preferred()
    warnings.warn(f"{lacking[0]}; {best[0]} is taken", stacklevel=3)
    return [(name, {}) for name in best]


__all__ = ["SESSION_KEY", "Deployment", "options_for", "read_options", "session", "session_options", "write_options"]
