"""Rows of arrays as samples: where the model takes a batch each row is one, and no longer than its mask says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from onnxrewrite.errors import UsageError
from onnxrewrite.inputs.bindings import InputSpec, Specs, expression_parts, relations, role_of, symbols, telling
from onnxrewrite.system.arrays import Array

Arrays: TypeAlias = Mapping[str, Array]
"""Arrays by the names of inputs."""

_IN_FRONT = -1
"""An axis before those of the input: each element along it is a run, of whatever batch."""


@dataclass(frozen=True)
class Rows:
    """Divides arrays for a model into its runs.

    Attributes:
        specs: The inputs of the model.
        batch: The number of rows in a run.
    """

    specs: Sequence[InputSpec]
    batch: int = 1

    def runs(self, arrays: Arrays, labels: Array | None, where: str) -> Iterator[tuple[Arrays, object]]:
        """The inputs and the label of each run; the last one has the rows that are left.

        Where the rows are no samples, all arrays are one run.

        Args:
            arrays: By input.
            labels: One for each row, or one for all; None if there are none.
            where: Where they come from, for messages.

        Raises:
            UsageError: Rows and labels differ in number, or there are fewer rows than a batch has.
        """
        known = [(spec, arrays[spec.name]) for spec in self.specs if spec.name in arrays]
        axes = {spec.name: self._axis(spec, array) for spec, array in known}
        counts = {array.shape[max(axis, 0)] for spec, array in known if (axis := axes[spec.name]) is not None}
        apart = [spec for spec, array in known if axes[spec.name] is None and not _is_shared(spec, array)]
        if len(counts) != 1 or apart:
            self._suffices(1, where)
            yield arrays, labels
            return
        (count,) = counts
        self._suffices(1 if _IN_FRONT in axes.values() else count, where)
        if labels is not None and np.ndim(labels) and len(labels) != count:
            raise UsageError(f"{where}: holds {len(labels)} labels for {count} samples; give one for each")
        for first in range(0, count, self.batch):
            rows = slice(first, min(first + self.batch, count))
            run = {spec.name: _taken(array, axes[spec.name], rows) for spec, array in known}
            yield self._cut(run), self._label(labels, rows)

    def _suffices(self, count: int, where: str) -> None:
        if count < self.batch:
            rows = "1 row" if count == 1 else f"{count} rows"
            raise UsageError(f"{where}: holds {rows} to run at once, fewer than the batch of {self.batch}")

    def _axis(self, spec: InputSpec, array: Array) -> int | None:
        """The axis along which the samples of an input lie; None where it is one sample."""
        if spec.dims is None:
            return None
        if fits(array.shape, spec):
            return next((axis for axis, dim in enumerate(spec.dims) if dim in self.batch_names), None)
        if array.ndim and fits(array.shape[1:], spec):
            return _IN_FRONT
        of_one = spec.dims[:1] == (1,) and array.ndim == len(spec.dims) and fits((1, *array.shape[1:]), spec)
        return 0 if of_one and self.batch == 1 else None

    def _label(self, labels: Array | None, rows: slice) -> object:
        """That of a row, where a run is one; those of all rows of a run."""
        if labels is None or not np.ndim(labels):
            return labels
        return labels[rows.start] if self.batch == 1 else labels[rows]

    @cached_property
    def _specs(self) -> Specs:
        return Specs(self.specs)

    @cached_property
    def batch_names(self) -> frozenset[str]:
        """The dimensions that count samples, but for those that others are computed from."""
        names = symbols(self._specs)
        parts = {part for name in names for part in expression_parts(name)}
        return frozenset(n for n in names if n not in parts and role_of(n, self._specs) == "batch")

    @cached_property
    def _masks(self) -> list[tuple[str, dict[str, int]]]:
        """The masks of positions, and the axis of each input, that one too, that is as long as it."""
        names = symbols(self._specs)
        known = relations(names, self._specs)
        if any(role_of(name, self._specs) == "past" for name in names):
            return []  # what is left of a mask of past positions, too, is not known
        found = []
        for mask in self.specs:
            length = mask.dims[1] if mask.dims is not None and len(mask.dims) == 2 else None
            if isinstance(length, str) and _is_mask(mask):
                equal = {length, *known.get(length, ())}
                axes = {spec.name: _along(spec, equal, length, mask) for spec in self.specs}
                found.append((mask.name, {name: axis for name, axis in axes.items() if axis is not None}))
        return found

    def _cut(self, run: Arrays) -> Arrays:
        """The same, without the positions at the end that a mask leaves out in all rows."""
        for mask, axes in self._masks:
            used = np.flatnonzero(np.asarray(run[mask]).any(axis=0)) if mask in run else np.arange(0)
            if used.size and len(axes) > 1 and np.isin(run[mask], (0, 1)).all():
                run = {n: a.take(range(used[-1] + 1), axes[n]) if n in axes else a for n, a in run.items()}
        return run


def fits(shape: Sequence[int], spec: InputSpec) -> bool:
    """True if an array of this shape can be the input, whose rank is known."""
    assert spec.dims is not None
    same_rank = len(shape) == len(spec.dims)
    return same_rank and all(not isinstance(d, int) or d == size for d, size in zip(spec.dims, shape, strict=True))


def _is_shared(spec: InputSpec, array: Array) -> bool:
    """True if all rows can have this array, whose input has no axis for them."""
    dims = spec.dims
    return dims is not None and fits(array.shape, spec) and (dims[:1] == (1,) or all(isinstance(d, int) for d in dims))


def _taken(array: Array, axis: int | None, rows: slice) -> Array:
    if axis is None:
        return array
    if axis == _IN_FRONT:
        return np.asarray(array[rows.start])
    return array[(slice(None),) * axis + (rows,)]


def _is_mask(spec: InputSpec) -> bool:
    return "mask" in telling(spec.name)


def _along(spec: InputSpec, equal: set[str], length: str, mask: InputSpec) -> int | None:
    """The axis of an input that is as long as a mask: by its name; where neither has one, the second of two."""
    dims = spec.dims or ()
    named = next((axis for axis, dim in enumerate(dims) if dim in equal), None)
    nameless = len(dims) == 2 and dims[1] == f"{spec.name}.1" and length == f"{mask.name}.1"
    return 1 if named is None and nameless else named
