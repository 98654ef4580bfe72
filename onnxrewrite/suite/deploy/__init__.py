"""From an exported model to a deployed one: stages measured, gated, and taken back where they do not pay."""

from onnxrewrite.suite.deploy.artifact import Artifact
from onnxrewrite.suite.deploy.outcome import Outcome
from onnxrewrite.suite.deploy.pipeline import Pipeline
from onnxrewrite.suite.deploy.stage import Context, NothingToDo, Stage

__all__ = ["Artifact", "Context", "NothingToDo", "Outcome", "Pipeline", "Stage"]
