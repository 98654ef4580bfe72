"""Models in and out: read, checked, repaired, and written whole or not at all."""

from onnxrewrite.io.models import Companion as Companion
from onnxrewrite.io.models import Owned as Owned
from onnxrewrite.io.models import Source as Source
from onnxrewrite.io.models import load as load
from onnxrewrite.io.models import load_weightless as load_weightless
from onnxrewrite.io.models import needs_external_data as needs_external_data
from onnxrewrite.io.models import opset as opset
from onnxrewrite.io.models import read_proto as read_proto
from onnxrewrite.io.models import repairs as repairs
from onnxrewrite.io.models import replace_proto as replace_proto
from onnxrewrite.io.models import save as save
from onnxrewrite.io.models import to_bytes as to_bytes
from onnxrewrite.io.models import to_proto as to_proto
from onnxrewrite.io.models import to_weightless as to_weightless
