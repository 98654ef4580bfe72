"""Mutants in which the change makes no difference, and why: they were looked at one by one.

What is so for whole kinds of changes is not here: ``laws`` knows nodes that compute the same, ``implied`` dtypes that a
pattern has anyway.
"""

from __future__ import annotations

from collections.abc import Collection

from benchmarks.mutants.mutant import Mutant

_TASTE = "a guard of taste: it keeps models small, and what it turns down would be right"
_KERNELS = "a guard of taste: it keeps operators that have a faster kernel, and what it turns down would be right"
_LOWERED = "a guard of taste: another rule lowers it first, and the fused operator computes the same"
_ENDLESS = "a guard that keeps the rule from applying to its own result for ever"
_ASKED_AGAIN = "the rewrite asks again, and fails where there is none"
_WRITER = "which rule wrote a node says nothing of what it computes: it keeps the stages from undoing each other's work"
_SHOWN = "the engine refuses a result that is not shown to have the same shape"
_SHAPE = (
    "along another axis the shape is not shown to be the same, which the engine refuses; of rank one it is the same"
)
_DEFAULT = "where none is given, that of the older spelling is asked for"
_EXACT = "integers, which are all the rest, add and multiply exactly, modulo their range"
_VALID = "no valid model has another"
_FUSED = "ONNX Runtime fuses the same nodes by itself, whatever the scales are, and multiplies by any that broadcasts"
_SHIFTED = "softmax(x - c) = softmax(x) for every c that is one number along the axis, whatever it is computed from"

_PICKED = "elements are picked of any dtype: only shapes are left to other rules"

EVERY = "*"
"""In place of a rule's name: every rule that has such a mutant."""

EQUIVALENT: dict[tuple[str, str], str] = {
    # dtypes
    ("attention", "built Cast: to off"): "of the sum only the sign is asked, which float16 tells, too",
    ("attention-lower", "built Cast: to off"): "of the sum only the sign is asked, which float16 tells, too",
    ("pad-into-max-pool", "x: of any dtype"): "no integer is -inf, which the rewrite asks for",
    ("relu-into-quantize", "x: of any dtype"): "0 divided by a scale is 0 in every dtype, which is what Relu cuts at",
    ("pick-upstream", "x: of any dtype"): _PICKED,
    ("pick-rows-upstream", "x: of any dtype"): _PICKED,
    ("embed-norm", "table 1: of any dtype"): "of what is added up, another table has the dtype that is asked for",
    # parameters of which there is one
    (
        "quantize-of-dequantize",
        "DequantizeLinear: attributes not looked at (2)",
    ): "ONNX Runtime's own has an axis only, which says nothing where there is one scale",
    (
        "dequantized-matmul",
        "built com.microsoft.MatMulIntegerToFloat: operands 2 and 3 exchanged",
    ): "it multiplies by the product of both scales",
    (
        "quantized-softmax",
        "built com.microsoft.QLinearSoftmax: opset off",
    ): "the kernel asks only whether it is before 13, and one more or less changes that for none of the examples",
    ("quantized-softmax", "built com.microsoft.QLinearSoftmax: constant 2 off"): _SHIFTED,
    ("quantized-softmax", "built com.microsoft.QLinearSoftmax: without operand 2"): _SHIFTED,
    (
        "quantized-where",
        "without: a scale is too large or too small",
    ): "a guard of products of scales: here the table is made by Quantize- and DequantizeLinear themselves",
    # guards of taste, and what keeps rules from running for ever
    (EVERY, "without: quantized operands have kernels of their own"): _KERNELS,
    (EVERY, "without: it is needed as a float, too"): _TASTE,
    (EVERY, "without: these are the scores of an attention"): _KERNELS,
    (EVERY, "without: it has to be lowered first"): _LOWERED,
    (EVERY, "without: the constant would be larger than both"): _TASTE,
    (EVERY, "without: the constant would be larger than those it joins"): _TASTE,
    (EVERY, "without: it is the result of lowering"): _WRITER,
    (
        "addend-of-addend",
        "without: one number undoes the other, but for rounding",
    ): "a guard of taste: who asks for a rounding gets it, and without it the sum is nearer to what the formula says",
    ("plus-opposite", "without: the opposite is the other term, too"): "-b - b is -b + (-b), and the opposite stays",
    (
        "bias-of-product",
        "without: it is no bias of the product",
    ): "a guard of taste: of three terms any two may be added first, whatever shapes they have",
    ("bias-of-product", "without: what else is added is constant, too"): _ENDLESS,
    ("fold-constants", "without: a quantized constant stays quantized"): _KERNELS,
    ("fold-constants", "without: strings are left alone"): _TASTE,
    ("gelu-lower", "without: the model's own opset has Gelu"): _TASTE,
    ("gelu-six-digits", "without: that is √2 itself"): "a guard of taste: the formula holds for every a",
    ("expand-constant", "without: the shape is constant already"): _ENDLESS,
    ("reshape-constant", "without: the target is constant already"): _ENDLESS,
    # what the rewrite, or the engine, asks again
    ("merge-equal-nodes", "node: any node"): _ASKED_AGAIN,
    ("fold-constants", "node: any node"): "the rewrite asks again, and what it folds besides, a Constant, stays one",
    ("fold-constants", "without: not all inputs are constant"): "the pattern asks for that before the rewrite does",
    ("gemm-of-zero-bias", "a: of any rank"): _VALID,
    ("tile-of-tile", "times: of any rank"): _VALID,
    ("tile-of-tile", "times inside: of any rank"): _VALID,
    ("if-decided", "without: `…` of the branch has no value"): _VALID,
    ("gelu-lower", "Gelu: Erf will do, too"): "the rewrite asks whether the opset lacks it",
    ("swish-lower", "Swish: Erf will do, too"): "the rewrite asks whether the opset lacks it",
    ("cast-like", "built Cast: left out"): "the engine refuses a result of another dtype",
    ("unsqueeze-of-gather", "built Gather: axis off"): _SHAPE,
    ("unsqueeze-of-gather", "built Gather: axis left out"): _SHAPE,
    ("slice-of-slice", "built Slice: axes off"): _SHAPE,
    (
        "expand-of-expand",
        "without: the outer shape does not say all",
    ): f"{_SHOWN}, and to one shape there is one Expand",
    (
        "expand-into-elementwise",
        "without: without the Expand the result is not shown to have the same shape",
    ): _SHOWN,
    (
        "fill-into-elementwise",
        "without: with the number alone the result is not shown to have the same shape",
    ): _SHOWN,
    ("unsqueeze-of-gather", "Unsqueeze: Squeeze will do, too"): "the engine refuses a result of another rank",
    (
        "transpose-transpose",
        "without: the rank is unknown, and the Transpose has no perm",
    ): "here the other permutation tells the rank",
    (
        "if-decided",
        "without: … `…` refers to an attribute or an overload of a function",
    ): "functions are inlined before any rule runs",
    (
        "piece-of-concat",
        "without: slice_concat_split: because",
    ): "what a Concat joins is to be seen wherever its result is",
    # mathematics
    (
        "cast-of-cast",
        "Cast: attributes not looked at",
    ): "saturate and round_mode are about float8, which holds every number of no other dtype",
    (EVERY, "without: the sign of zero might change"): "a comparison takes -0 for 0",
    ("squeeze-unsqueeze", "built Unsqueeze: axes in reverse order"): "the axes of Unsqueeze are a set",
    (EVERY, "Pad: constant_value is 0.03 by default"): _DEFAULT,
    ("shift-into-layer", "x: of any dtype"): _EXACT,
    ("scale-into-layer", "x: of any dtype"): _EXACT,
    ("scale-before-layer", "x: of any dtype"): _EXACT,
    ("scalar-shift-into-layer", "x: of any dtype"): _EXACT,
    ("scalar-scale-into-layer", "x: of any dtype"): _EXACT,
    ("linear-of-rows", "x: of any dtype"): _EXACT,
    ("bias-of-product", "x: of any dtype"): _EXACT,
    ("add-before-gelu", "Gelu: Erf will do, too"): "a Sum of two terms is their Add, whatever reads it",
    ("softmax", "ReduceMax: ReduceMean will do, too"): _SHIFTED,
    (
        "softmax",
        "(x - ReduceMax(x, axes=axes of the maximum, keepdims=1)): operand 1 inverted",
    ): _SHIFTED,
    ("softmax", "ReduceMax: operand 0 need not be the same x"): _SHIFTED,
    ("log-softmax-parts", "ReduceMax: ReduceMean will do, too"): _SHIFTED,
    ("log-softmax-parts", "ReduceMax: operand 0 need not be the same x"): _SHIFTED,
    ("softmax-of-shifted", "ReduceMax: ReduceMean will do, too"): _SHIFTED,
    ("softmax-of-shifted", "ReduceMax: operand 0 need not be the same x"): _SHIFTED,
    # the runtime
    (
        "resize-to-own-size",
        "without: it crops a region of interest",
    ): "ONNX Runtime copies where all scales are one, whatever the region is",
    ("matmul-integer-to-float", "without: … is not known to be one number"): _FUSED,
    ("matmul-integer-to-float", "without: … is not known to be one number, or one for each column"): _FUSED,
    (
        "clip-into-quantize",
        "x: of any dtype",
    ): "ONNX Runtime divides float16 as float32, which is what the rewrite does, and has no kernel for int32",
    (
        "cast-of-cast",
        "without: … may be out of range",
    ): "what is out of range is not defined by the standard, and the same in ONNX Runtime",
}
"""A rule's name and what was changed in it, to the reason."""


def reason(mutant: Mutant) -> str:
    """The reason why a mutant is equivalent; empty if none is known."""
    return EQUIVALENT.get((mutant.rule, mutant.what)) or EQUIVALENT.get((EVERY, mutant.what), "")


def unmatched(made: Collection[Mutant], rules: Collection[str], *, of_all: bool) -> list[str]:
    """The entries that are about none of the mutants that were made of these rules: what they say was spelled anew.

    Args:
        made: Every mutant of the rules.
        rules: The names of the rules.
        of_all: True if these are all rules there are, so that entries about every rule must fit, too.
    """
    there = {(m.rule, m.what) for m in made} | {(EVERY, m.what) for m in made}
    asked = [(rule, what) for rule, what in EQUIVALENT if rule in rules or of_all]
    return [f"{rule}: {what}" for rule, what in asked if (rule, what) not in there]
