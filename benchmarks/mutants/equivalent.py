"""Mutants in which the change makes no difference, and why: they were looked at one by one."""

from __future__ import annotations

_FLOATS_ABOVE = "what reads it takes no other dtype, or has no kernel for it in ONNX Runtime"
_TASTE = "a guard of taste: it keeps models small, and what it turns down would be right"
_ENDLESS = "a guard that keeps the rule from applying to its own result for ever"
_ASKED_AGAIN = "the rewrite asks again, and fails where there is none"
_SHOWN = "the engine refuses a result that is not shown to have the same shape"
_ZERO = "a zero in the target would be a size then, and the engine refuses the shape"
_SHAPE = (
    "along another axis the shape is not shown to be the same, which the engine refuses; of rank one it is the same"
)

EQUIVALENT: dict[str, str] = {
    # dtypes
    "attention: term 22, k: of any dtype": _FLOATS_ABOVE,
    "attention-pack: term 4, x: of any dtype": _FLOATS_ABOVE,
    "attention-lower-spelled: term 14, q: of any dtype": _FLOATS_ABOVE,
    "gelu-lower: term 1, x: of any dtype": _FLOATS_ABOVE,
    "hard-sigmoid: term 7, x: of any dtype": _FLOATS_ABOVE,
    "scale-before-layer: term 2, x: of any dtype": _FLOATS_ABOVE,
    "shift-before-layer: term 2, x: of any dtype": _FLOATS_ABOVE,
    "swish: term 2, x: of any dtype": _FLOATS_ABOVE,
    "transpose-into-matmul: term 4, q: of any dtype": _FLOATS_ABOVE,
    "attention-lower-spelled: term 22, k: of any dtype": _FLOATS_ABOVE,
    "batchnorm-into-layer: term 4, x: of any dtype": _FLOATS_ABOVE,
    "scale-into-layer: term 4, x: of any dtype": _FLOATS_ABOVE,
    "shift-into-layer: term 3, x: of any dtype": _FLOATS_ABOVE,
    "scalar-scale-into-layer: term 4, x: of any dtype": _FLOATS_ABOVE,
    "scalar-shift-into-layer: term 3, x: of any dtype": _FLOATS_ABOVE,
    "attention-lower: built Cast: to off": "of the sum only the sign is asked, which float16 tells, too",
    "pad-into-max-pool: term 6, x: of any dtype": "no integer is -inf, which the rewrite asks for",
    # guards of taste, and what keeps rules from running for ever
    "extremum-of-extremum: without clamps.one_extremum: m.require(merged.nbytes <= max(m[c].nbytes, m[d].nbytes, 4096), 'the constant would be larger than both')": _TASTE,
    "fold-constants: without constants.fold: m.require(all((m.dtype(v) != ir.DataType.STRING for v in values)), 'strings are left alone')": _TASTE,
    "fold-constants: without constants.fold: m.require(result.nbytes <= max(FOLD_LIMIT, read), f'the constant would take {result.nbytes} bytes')": _TASTE,
    'gelu-lower: without gelu.to_microsoft_gelu: m.require(m.is_newer(gelu), "the model\'s own opset has Gelu")': _TASTE,
    "expand-constant: without expands.constant_expand: m.require(m.facts.tensor(operand(m, node, 1)) is None, 'the shape is constant already', at=node.inputs[1])": _ENDLESS,
    "reshape-constant: without shapes.constant_target: m.require(m.facts.tensor(operand(m, node, 1)) is None, 'the target is constant already', at=node.inputs[1])": _ENDLESS,
    # what the rewrite, or the engine, asks again
    "merge-equal-nodes: term 0, node: any node": _ASKED_AGAIN,
    "gelu-lower: term 0, Gelu(x, approximate=approximate): Erf will do, too": "the rewrite asks whether the opset lacks it",
    "swish-lower: term 0, Swish(x, alpha=alpha): Erf will do, too": "the rewrite asks whether the opset lacks it",
    "cast-like: built Cast: left out": "the engine refuses a result of another dtype",
    "view-of-view: built Reshape: left out": _SHOWN,
    "unsqueeze-of-gather: built Gather: axis off": _SHAPE,
    "unsqueeze-of-gather: built Gather: axis left out": _SHAPE,
    "slice-of-slice: built Slice: axes off": _SHAPE,
    "expand-into-elementwise: without expands.without_expand: m.require(same, 'without the Expand the result is not shown to have the same shape', at=m[broadcasting])": _SHOWN,
    "resize-to-own-size: without identity.require_same_shape: m.require(same_shape(*known), f'the shapes are not shown to be the same: {shown}', at=source)": _SHOWN,
    "resize-to-own-size: without identity.drop_resize: m.require(not scales, f'the scales are {scales}')": _SHOWN,
    "unsqueeze-of-gather: term 0, Unsqueeze(Gather(x, index), *axes): Squeeze will do, too": "the engine refuses a result of another rank",
    "transpose-transpose: without transpose._reversal: m.require(given or rank is not None, 'the rank is unknown, and the Transpose has no perm')": "here the other permutation tells the rank",
    "if-decided: without logic.taken: m.require(not refers, f'{inner.op_type} `{inner.name}` refers to an attribute or an overload of a function')": "functions are inlined before any rule runs",
    "add-before-norm: built LayerNormalization: stash_type off": "ONNX Runtime's kernel does not look at it",
    # mathematics
    "add-before-norm: built Sum: operands 0 and 1 exchanged": "a sum of two is the same either way, to the last bit",
    "add-before-gelu: built Sum: operands 0 and 1 exchanged": "a sum of two is the same either way, to the last bit",
    "cast-of-cast: term 1, Cast(x, to=via): attributes not looked at": "saturate and round_mode are about float8, which holds every number of no other dtype",
    "relu-of-nonnegative: term 0, Relu(Abs|Exp|Sigmoid|Softmax|HardSigmoid(x)): Abs will do, too": "what is not negative stays under Abs as under Relu",
    "extremum-of-extremum: without clamps.one_extremum: m.require(not zeros or not ambiguous, 'the sign of zero might change')": "a comparison takes -0 for 0",
    "squeeze-unsqueeze: built Unsqueeze: axes in reverse order": "the axes of Unsqueeze are a set",
    "view-of-view: built Reshape: allowzero is 1": _ZERO,
    "reshape-constant: built Reshape: allowzero is 1": _ZERO,
    "view-of-view: without shapes._reshaped: m.require(all((not isinstance(d, int) or d >= 0 for d in wanted)), 'the result has no shape', at=out)": "only a graph that is not valid asks for a negative size",
    "pad-into-max-pool: term 1, Pad(any_of(Relu|Sigmoid|HardSigmoid|Softplus|Abs|Exp(z), ...: constant_value is 0.03 by default": "it refuses more than it needs to",
    # the runtime
    "resize-to-own-size: without identity.drop_resize: m.require(not crops, 'it crops a region of interest')": "ONNX Runtime copies where all scales are one, whatever the region is",
    "cast-of-cast: without casts.one_cast: m.require(_always_defined(source, dtype), f'{source.name.lower()} may be out of range', at=x)": "what is out of range is not defined by the standard, and the same in ONNX Runtime",
}  # fmt: skip
"""A mutant's name to the reason."""
