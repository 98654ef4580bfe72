"""Trials of forms of weights on products: the error that each makes on what the product reads, and its time.

All products of a model, and its tables, stand side by side in one model of their own, whose inputs are what they read
in the whole.  It is quantized once for all forms that are stored alike.  Products of equal sizes are timed together,
all forms by turns: one alone would find its weights in the cache, where in the whole they are not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from onnxrewrite.errors import ModelError
from onnxrewrite.measure.timing import interleave
from onnxrewrite.runtime.session import open_session
from onnxrewrite.runtime.settings import Runner, Setting, open_runner
from onnxrewrite.suite.precision.intermediate_values import Taps
from onnxrewrite.suite.quality.data import Data
from onnxrewrite.suite.quantization.block_weights import at_levels, in_forms
from onnxrewrite.suite.quantization.weight_format import WeightFormat
from onnxrewrite.system.arrays import Array, Feeds, Held, Outputs

Formats: TypeAlias = Mapping[str, WeightFormat]
"""Names of nodes to the forms of their weights; those of no other node are changed."""

_SAMPLES = 4
"""Errors are measured on so many samples at most."""

_FITTED = 16
"""Weights are fitted to what is read on so many others."""

_ROWS = 256
"""Of each sample so many rows of a product at most, evenly spaced."""

_SECONDS = 0.5
"""To time all forms of products of equal sizes."""

_TOGETHER, _BYTES = 16, 1 << 26
"""So many products of equal sizes at most are timed together, and so many bytes of floats, but one at least."""


@dataclass(frozen=True)
class Product:
    """A node that multiplies by weights, or looks them up.

    Attributes:
        node: MatMul or Gather, in the prepared model.
        weight: Its weights.
        read: What else it reads: the factor, or indices.
    """

    node: ir.Node
    weight: ir.Value
    read: ir.Value

    @classmethod
    def of(cls, node: ir.Node) -> Product:
        """That of a MatMul with a constant right factor, or of a Gather from a constant."""
        first, second = node.inputs[:2]
        assert first is not None
        assert second is not None
        return cls(node, first, second) if node.op_type == "Gather" else cls(node, second, first)

    @property
    def name(self) -> str:
        """Of the node."""
        return self.node.name or ""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of the weights."""
        assert self.weight.const_value is not None
        return tuple(self.weight.const_value.shape.numpy())

    def rows(self, read: Held, most: int | None = None, *, exactly: bool = False) -> Array:
        """The rows of what it reads, [rows, inner] or [rows]; ``exactly`` so many, again and again where there are
        fewer."""
        array = np.asarray(read)
        rows: Array = array.reshape(-1) if self.node.op_type == "Gather" else array.reshape(-1, array.shape[-1])
        if most is None or (len(rows) <= most and not exactly) or not len(rows):
            return rows
        places = np.arange(most) % len(rows) if len(rows) < most else np.linspace(0, len(rows) - 1, most).astype(int)
        spread: Array = rows[places]
        return spread


@dataclass
class Trials:
    """Tries forms on products.

    Args:
        model: The prepared model; it is not changed.
        products: Those of its main graph that are tried.
        data: What the model is run on.
        setting: The setting in which they are timed.
        rows: So many rows are timed; None: as many as the first sample has.
    """

    model: ir.Model
    products: Sequence[Product]
    data: Data
    setting: Setting
    rows: int | None = None
    _read: list[Outputs] = field(default_factory=list, init=False)
    _fitted: dict[str, list[Array]] = field(default_factory=dict, init=False)

    def in_forms(self, model: ir.Model, forms: Formats) -> ir.Model:
        """A copy of a model that has some of the products, with weights in these forms."""
        return in_forms(model, forms, self._fitted_on)

    def _fitted_on(self, name: str) -> list[Array]:
        """Rows that a product reads, on samples that no error is measured on, if there are enough."""
        if not self._fitted:
            fitted = self.data[_SAMPLES : _SAMPLES + _FITTED] if len(self.data) > _SAMPLES else self.data
            taps = Taps(self.model, [p.read.name or "" for p in self.products])
            for sample in fitted:
                read = taps(sample.inputs)
                known = {p.read.name or "": p.rows(read[p.read.name or ""], _ROWS) for p in self.products}
                for each, rows in known.items():
                    self._fitted.setdefault(each, []).append(rows)
        return next(self._fitted[p.read.name or ""] for p in self.products if p.name == name)

    def errors(self, forms: Iterable[WeightFormat]) -> dict[WeightFormat, dict[str, float]]:
        """Of each form, and each product that it fits, the sum of the squares of the errors of the product's result."""
        exact = _results(side_by_side(self.model, self.products), self._feeds())
        stored: dict[WeightFormat, list[WeightFormat]] = {}
        for form in forms:
            stored.setdefault(form.stored, []).append(form)
        found = {}
        for first, alike in stored.items():
            fitting = {p.name: first for p in self.products if first.fits(p.node.op_type, p.sizes)}
            made = self.in_forms(side_by_side(self.model, self.products), fitting)
            for form in alike:
                squares = self._squares(
                    exact, _results(at_levels(made, dict.fromkeys(fitting, form.level)), self._feeds())
                )
                found[form] = {p.name: squares[p.name] for p in self.products if form.fits(p.node.op_type, p.sizes)}
        return found

    def _squares(self, exact: Sequence[Outputs], found: Sequence[Outputs]) -> dict[str, float]:
        """Of each product the sum of the squares of the differences; infinite where one is not finite."""
        squares = dict.fromkeys((p.name for p in self.products), 0.0)
        for one, other in zip(exact, found, strict=True):
            for number, product in enumerate(self.products):
                apart = np.asarray(other[_output(number)], np.float64) - np.asarray(one[_output(number)], np.float64)
                sum_ = float(np.sum(apart**2))
                squares[product.name] += sum_ if np.isfinite(sum_) else np.inf
        return squares

    def seconds(self, forms: Sequence[WeightFormat]) -> dict[str, dict[WeightFormat | None, float]]:
        """Of each product and form the seconds of its node; those of floats by None."""
        by_sizes: dict[tuple[str, tuple[int, ...]], list[Product]] = {}
        for each in self.products:
            by_sizes.setdefault((each.node.op_type, each.sizes), []).append(each)
        found: dict[str, dict[WeightFormat | None, float]] = {}
        for alike in by_sizes.values():
            fitting = [f for f in forms if f.fits(alike[0].node.op_type, alike[0].sizes)]
            few = max(1, min(_TOGETHER, _BYTES // (4 * math.prod(alike[0].sizes))))
            times = self._timed(alike[:few], dict.fromkeys(f.kernel for f in fitting))
            known = {None: times[None]} | {form: times[form.kernel] for form in fitting if form.kernel in times}
            found |= {each.name: known for each in alike}
        return found

    def _timed(self, alike: Sequence[Product], kernels: Iterable[WeightFormat]) -> dict[WeightFormat | None, float]:
        """The seconds of one of these products, by kernel; one that refuses it is missing."""
        reads = [product.read.name or "" for product in alike]
        count = self.rows or len(alike[0].rows(self._reads()[0][reads[0]]))
        given = [p.rows(self._reads()[0][name], count, exactly=True) for p, name in zip(alike, reads, strict=True)]
        feeds, together = {_input(i): rows for i, rows in enumerate(given)}, side_by_side(self.model, alike)
        tasks: dict[WeightFormat | None, Runner] = {None: open_runner(together, feeds, self.setting)}
        for kernel in kernels:
            try:
                forms = {product.name: kernel for product in alike}
                runner = open_runner(self.in_forms(together, forms), feeds, self.setting)
                runner()
                tasks[kernel] = runner
            except ModelError:
                continue
        timings = interleave(tasks, seconds=_SECONDS)
        return {k: t.seconds(of_processor=self.setting.is_serial) / len(alike) for k, t in timings.items()}

    def _reads(self) -> list[Outputs]:
        """The values that the products read, by sample."""
        if not self._read:
            taps = Taps(self.model, [p.read.name or "" for p in self.products])
            self._read = [taps(sample.inputs) for sample in self.data[:_SAMPLES]]
        return self._read

    def _feeds(self) -> list[Feeds]:
        return [
            {_input(i): p.rows(read[p.read.name or ""], _ROWS) for i, p in enumerate(self.products)}
            for read in self._reads()
        ]


def side_by_side(model: ir.Model, products: Iterable[Product]) -> ir.Model:
    """A model of these products alone, with nodes and weights of the same names; its inputs are ``read 0`` and so on,
    its outputs ``result 0`` and so on."""
    inputs, outputs, nodes = [], [], []
    weights: dict[str, ir.Value] = {}
    for number, product in enumerate(products):
        name = product.weight.name or ""
        if name not in weights:
            held = product.weight.const_value
            weights[name] = ir.Value(name=name, type=product.weight.type, shape=product.weight.shape, const_value=held)
        rank = 1 if product.node.op_type == "Gather" else 2
        sizes: list[int | str] = [f"rows {number}", product.sizes[-2]]
        read = ir.Value(name=_input(number), type=product.read.type, shape=ir.Shape(sizes[:rank]))
        operands = [weights[name], read] if product.node.op_type == "Gather" else [read, weights[name]]
        made = ir.node(product.node.op_type, operands, product.node.attributes, name=product.name)
        result = made.outputs[0]
        result.name, result.type = _output(number), product.node.outputs[0].type
        inputs.append(read)
        outputs.append(result)
        nodes.append(made)
    graph = ir.Graph(
        inputs, outputs, nodes=nodes, initializers=list(weights.values()), opset_imports={}, name="products"
    )
    graph.opset_imports.update(model.opset_imports)
    return ir.Model(graph, ir_version=model.ir_version)


def _input(number: int) -> str:
    return f"read {number}"


def _output(number: int) -> str:
    return f"result {number}"


def _results(model: ir.Model, feeds: Iterable[Feeds]) -> list[Outputs]:
    session = open_session(model)
    if isinstance(session, str):
        raise ModelError(f"products of the model do not open in ONNX Runtime: {session}")
    found = []
    for each in feeds:
        outputs = session.run(each)
        if isinstance(outputs, str):
            raise ModelError(f"products of the model do not run: {outputs}")
        found.append(outputs)
    return found
