"""The stages that come with the project: one file each."""

from onnxrewrite.suite.deploy.stages.half_stage import Half
from onnxrewrite.suite.deploy.stages.mixed_stage import Mixed
from onnxrewrite.suite.deploy.stages.quantize_stage import Quantize
from onnxrewrite.suite.deploy.stages.rewrite_stage import Rewrite
from onnxrewrite.suite.deploy.stages.session_stage import Session
from onnxrewrite.suite.deploy.stages.startup_stage import Memory, Startup

STAGES = (Rewrite, Quantize, Mixed, Half, Session, Memory, Startup)
"""In the order in which they run."""
