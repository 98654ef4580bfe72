"""The rule library: one family of rules a file."""

from onnxrewrite_patterns import constants, gelu, transpose

RULES = (*constants.RULES, *gelu.RULES, *transpose.RULES)
