"""The rule library: one family of rules a file."""

from onnxrewrite_patterns import constants, gelu

RULES = (*constants.RULES, *gelu.RULES)
