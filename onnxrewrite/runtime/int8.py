"""Forms of 8-bit arithmetic: those that pay on a processor, and those that are exact.

On x86 ONNX Runtime 1.32 has dot products for uint8 activations and int8 weights alone.  Measured on a processor with
VNNI (``doctor --measure``, on one thread and on two), as a multiple of the speed of float32: uint8×int8 5 to 10,
uint8×uint8 1.04, int8×int8 as an operator 0.2.  Models whose activations are int8 in QuantizeLinear and
DequantizeLinear are turned into uint8 by ONNX Runtime there.  On ARM both signs have dot products.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias

from onnxrewrite.runtime.features import Processor
from onnxrewrite.system.plain import Json

Pays: TypeAlias = Literal["yes", "maybe", "no"]


@dataclass(frozen=True)
class Form:
    """One form of 8-bit arithmetic.

    Attributes:
        activations: ``uint8`` or ``int8``.
        weights: ``uint8`` or ``int8``.
        pays: ``yes`` if products are faster than in float32, ``maybe`` if that has to be measured.
        exact: True if sums keep all their bits; if not, they do with weights of 7 bits (``reduce_range``).
        why: The reason, in a line.
    """

    activations: str
    weights: str
    pays: Pays
    exact: bool
    why: str


@dataclass(frozen=True)
class Int8:
    """An assessment of 8-bit arithmetic on a processor.

    Attributes:
        forms: The forms that ONNX Runtime has, the best first.
        reduce_range: True if weights should have 7 bits in the best form.
    """

    forms: tuple[Form, ...]
    reduce_range: bool

    @property
    def best(self) -> Form:
        """The form to quantize for."""
        return self.forms[0]

    @property
    def pays(self) -> bool:
        """True if the best form is sure to be faster than float32."""
        return self.best.pays == "yes"

    @property
    def why(self) -> str:
        """The reason, in a line."""
        return self.best.why

    def to_json(self) -> dict[str, Json]:
        """Plain data."""
        return {"pays": self.pays, "reduce_range": self.reduce_range, "forms": [asdict(each) for each in self.forms]}


def int8_on(processor: Processor, *, saturates: bool | None = None) -> Int8:
    """The assessment for a processor; ``saturates``: True if products were seen to saturate, None if not tried."""
    if processor.family == "aarch64":
        return Int8(_on_arm(processor), reduce_range=False)
    if processor.family == "x86_64":
        fast = processor.has("vnni") or processor.has("amx_int8")
        inexact = (not fast) if saturates is None else saturates
        return Int8(_on_x86(fast, inexact), reduce_range=inexact)
    why = "nothing is known of 8-bit kernels for this processor; measure"
    return Int8((Form("uint8", "int8", "maybe", not saturates, why),), reduce_range=bool(saturates))


def _on_x86(fast: bool, inexact: bool) -> tuple[Form, ...]:
    exact = "without saturation" if not inexact else "and pairs of products saturate at 16 bits: use reduce_range"
    best = (
        f"there are 8-bit dot products for it, {exact}" if fast else f"there are no 8-bit dot products (VNNI), {exact}"
    )
    return (
        Form("uint8", "int8", "yes" if fast else "maybe", not inexact, best),
        Form("uint8", "uint8", "no", True, "summed in pairs of 16-bit products: exact, about as fast as float32"),
        Form("int8", "int8", "no", True, "no fast kernel as operators (a quarter of float32's speed); fine as QDQ"),
    )


def _on_arm(processor: Processor) -> tuple[Form, ...]:
    if processor.has("i8mm"):
        pays, why = "yes", "there are 8-bit matrix products (i8mm), exact for both signs"
    elif processor.has("asimddp"):
        pays, why = "yes", "there are 8-bit dot products, exact for both signs"
    else:
        pays, why = "maybe", "there are no 8-bit dot products, only NEON's widening ones: exact, measure the speed"
    pairs = (("int8", "int8"), ("uint8", "int8"), ("uint8", "uint8"))
    return tuple(Form(a, w, pays, True, why) for a, w in pairs)  # type: ignore[arg-type]
