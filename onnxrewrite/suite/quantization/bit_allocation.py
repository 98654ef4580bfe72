"""Bits where they pay: a form of weights for each product, so that the model is as fast as its loss allows.

The loss is the distance of the outputs from the original's on the user's data (``Closeness.distance``).  It is measured
for each product with its weights alone in one form.  That of another form follows from the errors of the product's own
result, for near the original the divergence of a distribution is a quadratic form of what disturbs it (Fisher's
information: KL(p ‖ p + δ) = ½ δᵀFδ + O(δ³)), and small independent losses add up.  Seconds are measured by size.  Which
form each product gets is a 0/1 program: the fewest seconds under a sum of losses.  What came of it is measured as a
whole, and the limit drawn tighter until the whole keeps it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import onnx_ir as ir

from onnxrewrite.errors import OnnxRewriteError
from onnxrewrite.suite.quality.closeness import Closeness, agreement, distance
from onnxrewrite.suite.quantization.bit_trials import Formats, Product, Trials
from onnxrewrite.suite.quantization.quantize_settings import QuantizeSettings
from onnxrewrite.suite.quantization.weight_format import WeightFormat, candidates
from onnxrewrite.system.solver import Program

_REFERENCE = WeightFormat(4, 32)
"""The form whose loss is measured for each product."""

_ROUNDS = 6
"""So often the limit is drawn tighter."""

_NONE = 1e-8
"""A loss that is a smaller part of the limit is none: the solver takes no smaller numbers."""

_SECONDS_OF_A_BYTE = 1e-14
"""A byte counts for so much, so that the smaller of two forms is taken that are equally fast."""


@dataclass(frozen=True)
class Option:
    """One form of one product.

    Attributes:
        form: It; None: floats as they are.
        loss: The distance of the model's outputs with this product alone in this form.
        seconds: Of the product, with a little for its bytes.
    """

    form: WeightFormat | None
    loss: float
    seconds: float


Options: TypeAlias = Mapping[str, Sequence[Option]]
"""Names of products to what they can be."""

Judge: TypeAlias = Callable[[ir.Model], Mapping[str, Closeness]]
"""Judges a quantized model: the closeness of its outputs to the original's."""

Progress: TypeAlias = Callable[[int, int], None]
"""Told what is done, and what remains."""


@dataclass(frozen=True)
class Allocation:
    """The outcome.

    Attributes:
        forms: The form of each product that has one.
        loss: The measured distance of the whole.
        agreement: The share of rows of scores whose first class is the original's.
        expected: The sum of the losses of the products.
        seconds: Of all products, to those of floats.
    """

    forms: Formats = field(default_factory=dict)
    loss: float = 0.0
    agreement: float = 1.0
    expected: float = 0.0
    seconds: float = 1.0

    def __str__(self) -> str:
        counts = {form: list(self.forms.values()).count(form) for form in sorted(set(self.forms.values()))}
        shown = ", ".join(f"{count} × {form}" for form, count in counts.items()) or "all stay in float"
        kept = f"{self.agreement:.1%} of first classes kept"
        return f"{shown}; loss {self.loss:.3g}, {kept}, {self.seconds:.2f} of the products' time"


def allocated(trials: Trials, judge: Judge, settings: QuantizeSettings, progress: Progress) -> Allocation:
    """The fastest allocation whose whole keeps the limits.

    Args:
        trials: The products, and how forms are tried on them.
        judge: The closeness of a quantized model's outputs.
        settings: The limits: ``max_divergence``, ``min_agreement``.
        progress: Called with what is done and what remains.
    """
    options = measured(trials, judge, progress)
    limit = settings.max_divergence
    for _ in range(_ROUNDS):
        found = _whole(trials, judge, options, limit)
        if found.loss <= settings.max_divergence and found.agreement >= settings.min_agreement:
            return found
        limit = min(limit, found.expected) * min(0.7, 0.9 * settings.max_divergence / found.loss)
    return Allocation()


def _whole(trials: Trials, judge: Judge, options: Options, limit: float) -> Allocation:
    chosen = allocate(options, limit)
    forms = {name: option.form for name, option in chosen.items() if option.form is not None}
    if not forms:
        return Allocation()
    close = judge(trials.in_forms(trials.model, forms))
    return Allocation(
        forms,
        distance(close),
        agreement(close),
        expected=sum(option.loss for option in chosen.values()),
        seconds=sum(o.seconds for o in chosen.values()) / sum(each[0].seconds for each in options.values()),
    )


def measured(trials: Trials, judge: Judge, progress: Progress) -> dict[str, list[Option]]:
    """The options of each product, floats first."""
    forms = candidates()
    errors, seconds = trials.errors(forms), trials.seconds(forms)
    found = {}
    for number, product in enumerate(trials.products):
        progress(number, len(trials.products) - number)
        name = product.name
        found[name] = [Option(None, 0.0, _counted(seconds[name][None], product, None))]
        fitting = [f for f in forms if f in seconds[name] and math.isfinite(errors[f][name])]
        if not fitting:
            continue
        reference = _REFERENCE if _REFERENCE in fitting else fitting[0]
        alone, error = distance(judge(trials.in_forms(trials.model, {name: reference}))), errors[reference][name]
        for form in fitting:
            loss = alone * errors[form][name] / error if error else errors[form][name]
            found[name].append(Option(form, loss, _counted(seconds[name][form], product, form)))
    return found


def _counted(seconds: float, product: Product, form: WeightFormat | None) -> float:
    bits = form.bits_per_weight if form is not None else 32
    return seconds + math.prod(product.sizes) * bits / 8 * _SECONDS_OF_A_BYTE


def allocate(options: Options, most: float) -> dict[str, Option]:
    """An option of each product, so that their losses together are ``most`` at the most and they take the fewest
    seconds; each begins with one that loses nothing."""
    program = Program()
    total = sum(each[0].seconds for each in options.values())
    kept = {name: [o for o in each if o.loss <= most] for name, each in options.items()}
    taken = {name: [program.addBinary(obj=o.seconds / total) for o in each] for name, each in kept.items()}
    for each in taken.values():
        program.addConstr(program.qsum(each) == 1)
    losses = [(o.loss / most, x) for n in kept for o, x in zip(kept[n], taken[n], strict=True) if o.loss > most * _NONE]
    if losses:
        program.addConstr(program.qsum(share * x for share, x in losses) <= 1)
    program.minimize()
    if not program.is_solved:
        raise OnnxRewriteError("no forms of weights could be chosen: the solver found none")
    return {
        name: max(zip(program.vals(taken[name]), each, strict=True), key=lambda pair: pair[0])[1]
        for name, each in kept.items()
    }
