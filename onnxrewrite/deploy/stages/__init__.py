"""The stages that come with the project: one file each."""

from onnxrewrite.deploy.stages.rewrite import Rewrite
from onnxrewrite.deploy.stages.session import Session

STAGES = (Rewrite, Session)
"""In the order in which they run."""
