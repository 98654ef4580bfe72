"""Everything that runs a model: sessions, the options that a model stores, and the machine."""

from __future__ import annotations

from onnxrewrite.runtime.cached import CachedSession
from onnxrewrite.runtime.deployment import Deployment, read_options, write_options
from onnxrewrite.runtime.machine import Machine, machine
from onnxrewrite.runtime.opening import session

__all__ = ["CachedSession", "Deployment", "Machine", "machine", "read_options", "session", "write_options"]
