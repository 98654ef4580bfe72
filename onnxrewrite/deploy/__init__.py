"""From an exported model to a deployed one: stages measured, gated, and taken back where they do not pay."""

from onnxrewrite.deploy.artifact import Artifact
from onnxrewrite.deploy.outcome import Outcome
from onnxrewrite.deploy.pipeline import Pipeline
from onnxrewrite.deploy.stage import Context, NothingToDo, Stage

__all__ = ["Artifact", "Context", "NothingToDo", "Outcome", "Pipeline", "Stage"]
