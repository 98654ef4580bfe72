"""Everything that runs a model: sessions, the options that a model stores, the machine, and where the time goes."""

from __future__ import annotations

from onnxrewrite.measure.profiling import Rewritten, profile
from onnxrewrite.runtime.cached import CachedSession
from onnxrewrite.runtime.deployment import Deployment, read_options, write_options
from onnxrewrite.runtime.machine import Machine, machine
from onnxrewrite.runtime.opening import session
from onnxrewrite.runtime.settings import Setting

__all__ = [
    "CachedSession",
    "Deployment",
    "Machine",
    "Rewritten",
    "Setting",
    "machine",
    "profile",
    "read_options",
    "session",
    "write_options",
]
