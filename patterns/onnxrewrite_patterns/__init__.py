"""The rule library: one family of rules a file."""

from onnxrewrite_patterns import gelu

RULES = (*gelu.RULES,)
