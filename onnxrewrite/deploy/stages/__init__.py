"""The stages that come with the project: one file each."""

from onnxrewrite.deploy.stages.half import Half
from onnxrewrite.deploy.stages.mixed import Mixed
from onnxrewrite.deploy.stages.quantize import Quantize
from onnxrewrite.deploy.stages.rewrite import Rewrite
from onnxrewrite.deploy.stages.session import Session

STAGES = (Rewrite, Quantize, Mixed, Half, Session)
"""In the order in which they run."""
