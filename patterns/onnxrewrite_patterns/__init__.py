"""The rule library: one family of rules a file."""

from onnxrewrite_patterns import attention, attention_lower, casts, clamps, constants, gelu, identity, logic, pieces, shapes, swish, transpose

RULES = (
    *attention.RULES,
    *attention_lower.RULES,
    *casts.RULES,
    *clamps.RULES,
    *constants.RULES,
    *gelu.RULES,
    *identity.RULES,
    *logic.RULES,
    *pieces.RULES,
    *shapes.RULES,
    *swish.RULES,
    *transpose.RULES,
)
