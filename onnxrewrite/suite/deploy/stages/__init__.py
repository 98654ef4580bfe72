"""The stages that come with the project: one file each."""

from onnxrewrite.suite.deploy.stages.half_stage import Half
from onnxrewrite.suite.deploy.stages.mixed_stage import Mixed
from onnxrewrite.suite.deploy.stages.quantize_stage import Quantize
from onnxrewrite.suite.deploy.stages.rewrite_stage import Rewrite
from onnxrewrite.suite.deploy.stages.session_stage import Session

STAGES = (Rewrite, Quantize, Mixed, Half, Session)
"""In the order in which they run."""
