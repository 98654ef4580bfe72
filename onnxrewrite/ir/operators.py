"""The traits of operators, a row for each operator of the standard.

A rule, a check or a measurement that speaks of a class of operators asks for it here, by ``operators``; a new opset is
a row for each operator that it adds.

A *kind* says how the first result depends on the operands:

- ``pointwise``: each element on one element of the first operand; what else is read are parameters;
- ``broadcast``: each element on one element of each operand, these broadcast;
- ``view``: the same elements in the same order, in another shape; ``permute``: in another order; ``select``: some of
  them; ``repeat``: some of them several times; ``gather``: those that indices name; ``join``: those of all operands;
  ``pad``, ``scatter``: with others beside or among them;
- ``reduce``: over axes; ``softmax``, ``cumulate``, ``normalize``: along axes; ``pool``, ``resample``: over windows;
- ``linear``: sums of products; ``recurrent``, ``attention``, ``gated``;
- ``quantize``: another representation; ``dropout``; ``shape``: of an operand's shape alone; ``generate``, ``random``:
  of sizes;
- ``sort``, ``control``, ``sequence``, ``text``, ``signal``, ``loss``, ``learn``, ``train``: what their names say.

*Marks*, of the function:

- ``commutative``: operands may change places; ``variadic``: takes any number of them;
- ``sum``, ``product``: a step of a chain of sums, or of products;
- ``comparison``, ``logic``, ``bits``: of two numbers, of truth values, of bits;
- ``activation``: networks are bent with it;
- ``idempotent``: twice is once; ``involution``: twice is not at all; ``jumps``: has steps away from zero, too;
- ``nonnegative``: no result of floats is below zero; ``partial``: not a number for ordinary inputs;
- ``increasing``: of a larger number, infinity too, it is larger; ``odd``: of the opposite number it is the opposite;
- ``bounded``: no result is larger in magnitude than the largest element of the first operand;
- ``exact``: nothing is rounded; ``rounding``: to a grid; ``irrational``: results are no fractions of the operands;
- ``periodic``: of angles;
- ``integers``: takes any integers as they are; ``indices``: makes indices of indices; ``shapes``: sizes of sizes;
- ``tiny``: a tiny number is not the same to it as zero; ``places``: counts, sorts, or computes places;
- ``outside``: its axes are those of the result, not of the first operand;
- ``images``: the first operand is [N, C, D1, ...]; ``window``: a table made of a size; ``body``: has graphs inside;
- ``free``: no work: the operand's memory, or what does not depend on its elements.

*Marks* with a value, which are attributes of ``Traits``: ``weights``, ``sizes``, ``rank``, ``changed``, ``numbers``,
``opposite``, ``neutral``, ``implied``.

*Marks*, of ONNX Runtime's kernels: ``int8``: runs on 8-bit integers, or moves them; ``qlinear``: has a QLinear form;
``blocked``: computes in blocks of channels; ``fusing``: takes in what stands beside it; ``summing``: a sum before it;
``FusedConv``, ``FusedGemm``: these compute it as well.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Final

# ruff: noqa: E501  (a row for each operator)

_STANDARD: Final = """
Abs                         pointwise   idempotent nonnegative bounded exact integers indices
Acos                        pointwise   partial irrational
Acosh                       pointwise   partial irrational
Add                         broadcast   commutative sum integers blocked qlinear shapes neutral=-0
AffineGrid                  generate
And                         broadcast   commutative logic neutral=true
ArgMax                      reduce      exact
ArgMin                      reduce      exact
Asin                        pointwise   odd partial irrational
Asinh                       pointwise   odd increasing irrational
Atan                        pointwise   odd increasing irrational
Atanh                       pointwise   odd partial irrational
Attention                   attention   sized=2
AveragePool                 pool        images int8 blocked qlinear fusing
BatchNormalization          normalize   changed=9,14 irrational fusing
Bernoulli                   random
BitCast                     quantize    exact
BitShift                    broadcast   bits
BitwiseAnd                  broadcast   commutative bits neutral=ones
BitwiseNot                  pointwise   involution bits
BitwiseOr                   broadcast   commutative bits neutral=0
BitwiseXor                  broadcast   commutative bits neutral=0
BlackmanWindow              generate    window
Cast                        pointwise   bounded exact integers indices shapes
CastLike                    pointwise   bounded exact integers indices
CausalConvWithState         linear
Ceil                        pointwise   idempotent jumps exact
Celu                        pointwise   activation FusedGemm
CenterCropPad               pad         exact
Clip                        pointwise   idempotent exact integers indices numbers=min,max int8 blocked
Col2Im                      scatter
Compress                    select      bounded exact
Concat                      join        exact integers int8 variadic blocked shapes
ConcatFromSequence          sequence
Constant                    generate    exact free
ConstantOfShape             generate    exact sizes=0 shapes
Conv                        linear      weights=1 images blocked fusing
ConvInteger                 linear      weights=1 fusing
ConvTranspose               linear      weights=1 images fusing
Cos                         pointwise   irrational periodic
Cosh                        pointwise   irrational
CumProd                     cumulate
CumSum                      cumulate    indices numbers=axis places
DFT                         signal
DeformConv                  linear      weights=1
DepthToSpace                permute     bounded exact indices rank=4
DequantizeLinear            quantize    rounding
Det                         linear
Div                         broadcast   product integers tiny shapes neutral=1
Dropout                     dropout     exact changed=7 numbers=ratio,training_mode free
DynamicQuantizeLinear       quantize
Einsum                      linear
Elu                         pointwise   activation FusedGemm
Equal                       broadcast   commutative comparison integers
Erf                         pointwise   odd increasing irrational
Exp                         pointwise   increasing nonnegative irrational
Expand                      repeat      bounded exact sizes=1 indices shapes
EyeLike                     generate
Flatten                     view        bounded exact integers indices free int8
Floor                       pointwise   idempotent jumps exact
GRU                         recurrent   weights=1
Gather                      gather      bounded exact indices weights=0 shapes
GatherElements              gather      bounded exact indices
GatherND                    gather      bounded exact indices
Gelu                        pointwise   activation
Gemm                        linear      weights=1 integers rank=2
GlobalAveragePool           pool        images int8 blocked qlinear fusing
GlobalLpPool                pool
GlobalMaxPool               pool        exact images
Greater                     broadcast   comparison integers opposite=LessOrEqual
GreaterOrEqual              broadcast   comparison integers opposite=Less
GridSample                  resample    changed=20 places
GroupNormalization          normalize   changed=21 images
HammingWindow               generate    window
HannWindow                  generate    window
HardSigmoid                 pointwise   nonnegative activation FusedGemm FusedConv blocked
HardSwish                   pointwise   activation FusedConv
Hardmax                     softmax     nonnegative changed=13
Identity                    pointwise   idempotent bounded exact integers indices free shapes
If                          control     body
ImageDecoder                text
InstanceNormalization       normalize   images irrational
IsInf                       pointwise
IsNaN                       pointwise
LRN                         normalize
LSTM                        recurrent   weights=1
LayerNormalization          normalize summing
LeakyRelu                   pointwise   activation int8 FusedGemm FusedConv blocked qlinear
Less                        broadcast   comparison integers opposite=GreaterOrEqual
LessOrEqual                 broadcast   comparison integers opposite=Greater
LinearAttention             attention
Log                         pointwise   partial irrational tiny
LogSoftmax                  softmax     changed=13 irrational
Loop                        control     body
LpNormalization             normalize
LpPool                      pool        nonnegative images
MatMul                      linear      weights=1 integers
MatMulInteger               linear      weights=1
Max                         broadcast   commutative exact integers variadic shapes
MaxPool                     pool        exact images int8 blocked fusing
MaxRoiPool                  pool
MaxUnpool                   scatter
Mean                        broadcast   commutative variadic
MeanVarianceNormalization   normalize
MelWeightMatrix             generate    window
Min                         broadcast   commutative exact integers variadic shapes
Mish                        pointwise   activation
Mod                         broadcast   jumps indices shapes
Mul                         broadcast   commutative product integers int8 blocked qlinear shapes neutral=1
Multinomial                 random
Neg                         pointwise   odd involution bounded exact sum product integers
NegativeLogLikelihoodLoss   loss
NonMaxSuppression           sort        places
NonZero                     sort
Not                         pointwise   involution logic integers
OneHot                      generate    exact outside numbers=depth
Optional                    sequence
OptionalGetElement          sequence
OptionalHasElement          sequence
Or                          broadcast   commutative logic neutral=false
PRelu                       broadcast
Pad                         pad         exact indices numbers=constant_value implied=constant_value:0 int8
Pow                         broadcast   product partial tiny neutral=1
QLinearConv                 linear      weights=3 rounding fusing
QLinearMatMul               linear      weights=3 rounding
QuantizeLinear              quantize    rounding
RMSNormalization            normalize summing
RNN                         recurrent   weights=1
RandomNormal                random
RandomNormalLike            random
RandomUniform               random
RandomUniformLike           random
Range                       generate    sizes=1 numbers=start,limit,delta places
Reciprocal                  pointwise   product tiny
ReduceL1                    reduce      nonnegative
ReduceL2                    reduce      nonnegative irrational
ReduceLogSum                reduce      partial
ReduceLogSumExp             reduce
ReduceMax                   reduce      exact integers indices
ReduceMean                  reduce
ReduceMin                   reduce      exact integers
ReduceProd                  reduce      shapes
ReduceSum                   reduce      integers shapes
ReduceSumSquare             reduce      nonnegative
RegexFullMatch              text
Relu                        pointwise   idempotent nonnegative exact activation integers int8 FusedGemm FusedConv blocked
Reshape                     view        bounded exact sizes=1 indices free int8 shapes
Resize                      resample    sizes=3 changed=11,13 images int8
ReverseSequence             permute     bounded exact
RoiAlign                    resample    changed=16 places
RotaryEmbedding             attention
Round                       pointwise   odd idempotent jumps exact
STFT                        signal
Scan                        control     body changed=9
Scatter                     scatter
ScatterElements             scatter     exact
ScatterND                   scatter     exact
Selu                        pointwise   activation FusedGemm
SequenceAt                  sequence
SequenceConstruct           sequence
SequenceEmpty               sequence
SequenceErase               sequence
SequenceInsert              sequence
SequenceLength              sequence
SequenceMap                 sequence    body
Shape                       shape       exact free
Shrink                      pointwise   activation
Sigmoid                     pointwise   increasing nonnegative irrational int8 FusedGemm FusedConv blocked qlinear
Sign                        pointwise   odd idempotent jumps exact integers
Sin                         pointwise   odd irrational periodic
Sinh                        pointwise   odd increasing irrational
Size                        shape       exact free
Slice                       select      bounded exact integers indices implied=steps:1 int8 shapes
Softmax                     softmax     nonnegative changed=13 irrational
SoftmaxCrossEntropyLoss     loss
Softplus                    pointwise   increasing nonnegative activation FusedGemm
Softsign                    pointwise   odd activation FusedGemm
SpaceToDepth                permute     bounded exact rank=4
Split                       select      bounded exact integers indices int8
SplitToSequence             sequence
Sqrt                        pointwise   partial irrational tiny
Squeeze                     view        bounded exact integers indices free int8 shapes
StringConcat                text
StringNormalizer            text
StringSplit                 text
Sub                         broadcast   sum integers shapes neutral=0
Sum                         broadcast   commutative sum variadic
SwiGLU                      gated       activation
Swish                       pointwise   activation
Tan                         pointwise   odd irrational periodic
Tanh                        pointwise   odd increasing activation irrational FusedGemm FusedConv blocked
TensorScatter               scatter
TfIdfVectorizer             text
ThresholdedRelu             pointwise   activation FusedGemm
Tile                        repeat      bounded exact sizes=1 indices
TopK                        sort        exact sizes=1 places
Transpose                   permute     bounded exact integers indices int8
Trilu                       pad         bounded exact numbers=k
Unique                      sort
Unsqueeze                   view        bounded exact integers indices outside free int8 shapes
Upsample                    resample    sizes=1 changed=7,9 images
Where                       broadcast   exact integers shapes
Xor                         broadcast   commutative logic neutral=false
"""

_OTHERS: Final = """
ai.onnx.preview.FlexAttention            attention   body
ai.onnx.preview.training.Adagrad         train
ai.onnx.preview.training.Adam            train
ai.onnx.preview.training.Gradient        train
ai.onnx.preview.training.Momentum        train
ai.onnx.ml.ArrayFeatureExtractor         learn
ai.onnx.ml.Binarizer                     learn
ai.onnx.ml.CastMap                       learn
ai.onnx.ml.CategoryMapper                learn
ai.onnx.ml.DictVectorizer                learn
ai.onnx.ml.FeatureVectorizer             learn
ai.onnx.ml.Imputer                       learn
ai.onnx.ml.LabelEncoder                  learn
ai.onnx.ml.LinearClassifier              learn
ai.onnx.ml.LinearRegressor               learn
ai.onnx.ml.Normalizer                    learn
ai.onnx.ml.OneHotEncoder                 learn
ai.onnx.ml.SVMClassifier                 learn
ai.onnx.ml.SVMRegressor                  learn
ai.onnx.ml.Scaler                        learn
ai.onnx.ml.TreeEnsemble                  learn
ai.onnx.ml.TreeEnsembleClassifier        learn
ai.onnx.ml.TreeEnsembleRegressor         learn
ai.onnx.ml.ZipMap                        learn
"""


@dataclass(frozen=True)
class Traits:
    """The traits of an operator.

    Attributes:
        kind: The way in which its first result depends on its operands.
        marks: Its other traits, the names of those below too.
        weights: The operand that holds weights, where there is one.
        sizes: The operand whose elements are sizes, where there is one.
        sized: The operand of rank 3 whose last size must be known to who opens the model: the standard's own shape
            inference takes an unknown one for 0.
        rank: Of the first operand, where it must be that.
        changed: The opsets from which on the same node computes something else.
        numbers: The operands that are one number, for which exporters write a constant of shape [1], too.
        opposite: The operator of the opposite truth value, but for NaN.
        neutral: The second operand that leaves the first as it is: a number, ``true``, ``false``, or all bits, ``ones``.
        implied: The operand that means the same when it is left out, if all its elements are this number.
    """

    kind: str
    marks: frozenset[str] = frozenset()
    weights: int | None = None
    sizes: int | None = None
    sized: int | None = None
    rank: int | None = None
    changed: tuple[int, ...] = ()
    numbers: frozenset[str] = frozenset()
    opposite: str = ""
    neutral: str = ""
    implied: tuple[str, int] | None = None


def _row(kind: str, *words: str) -> Traits:
    told = dict(word.split("=") for word in words if "=" in word)
    implied, _, number = told.get("implied", "").partition(":")
    return Traits(
        kind,
        frozenset(word.partition("=")[0] for word in words),
        **{name: int(told[name]) for name in ("weights", "sizes", "sized", "rank") if name in told},
        changed=tuple(map(int, told.get("changed", "").split(","))) if "changed" in told else (),
        numbers=frozenset(filter(None, told.get("numbers", "").split(","))),
        opposite=told.get("opposite", ""),
        neutral=told.get("neutral", ""),
        implied=(implied, int(number)) if implied else None,
    )


def _read(table: str) -> dict[str, Traits]:
    return {name: _row(*words) for name, *words in map(str.split, table.strip().splitlines())}


TRAITS: Final = _read(_STANDARD)
"""Of the operators of the standard domain, by name."""

OTHER_TRAITS: Final = _read(_OTHERS)
"""Of those of its other domains, by domain and name."""


KINDS: Final = {traits.kind for traits in (*TRAITS.values(), *OTHER_TRAITS.values())}
MARKS: Final = {mark for traits in TRAITS.values() for mark in traits.marks}


@functools.cache
def operators(kinds: str = "", *, marks: str = "", but: str = "") -> tuple[str, ...]:
    """The operators of the standard domain of certain kinds and marks, by name.

    Args:
        kinds: Names of kinds, one of which an operator is of; without it, all are.
        marks: Names of marks, all of which it has.
        but: Operators, kinds and marks that are left out.

    Raises:
        ValueError: A name is none of these.
    """
    wanted, needed, unwanted = set(kinds.split()), set(marks.split()), set(but.split())
    unknown = wanted - KINDS | needed - MARKS | unwanted - KINDS - MARKS - TRAITS.keys()
    if unknown:
        raise ValueError(f"no kind or mark of an operator: {', '.join(sorted(unknown))}")
    return tuple(
        name
        for name, traits in TRAITS.items()
        if (not wanted or traits.kind in wanted)
        and needed <= traits.marks
        and not unwanted & {name, traits.kind, *traits.marks}
    )
