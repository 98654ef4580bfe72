"""A newer opset where rules need one: the original converted, by the standard's own converter.

The raise stage says which operators it could not write because the model's opset lacks them, and which are slower
lowered than by themselves; it is then repeated on the converted model.  If they are not made there after all, the opset
stays what it was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import Protocol

import onnx_ir as ir

from onnxrewrite import io
from onnxrewrite.errors import UsageError
from onnxrewrite.io.opset_conversion import to_opset
from onnxrewrite.rewrite.trace import Trace


class Memory(Protocol):
    """Remembers the operators of newer opsets that a model was raised for, and the opsets that they need."""

    def needed(self, model: ir.Model, without: Collection[Hashable], told: object) -> dict[str, int]:
        """Those of a model rewritten ``without`` some rules and rewrites, where all else is as ``told``; none if that
        is not remembered."""
        ...

    def keep(self, model: ir.Model, without: Collection[Hashable], told: object, needed: Mapping[str, int]) -> None:
        """Remember them."""
        ...


class Opsets:
    """One model in the opsets that different rules need.

    What is chosen follows from the rules and sites alone that take part, so that a repeated run, which knows at once
    what others learned by and by, chooses the same.

    Args:
        model: The model; it is not changed.
        highest: The newest ai.onnx opset it may be given; its own one where that is to stay.
        for_speed: True if it is also given one for operators that could be lowered.
        memory: Tells what became of the same in an earlier run.
        stuck: The operators of a model that the target cannot run, with the reasons: an opset that makes more of them
            is not chosen.
    """

    def __init__(
        self,
        model: ir.Model,
        highest: int,
        *,
        for_speed: bool = False,
        memory: Memory | None = None,
        stuck: Callable[[ir.Model], Mapping[str, str]] = lambda model: {},
    ):
        self._model = model
        self._stuck = stuck
        self._highest = highest
        self._for_speed = for_speed
        self._memory = memory
        self._chosen: dict[frozenset[Hashable], ir.Model] = {}
        self._settled: set[frozenset[Hashable]] = set()
        self._recalled: set[frozenset[Hashable]] = set()
        self._needed: defaultdict[frozenset[Hashable], dict[str, int]] = defaultdict(dict)
        self._converted: dict[int, ir.Model | str] = {}

    def source(self, without: Iterable[Hashable]) -> ir.Model:
        """The model to rewrite with all rules and at all sites but those ``without``."""
        rules = frozenset(without)
        if self._memory is not None and rules not in self._chosen.keys() | self._settled:
            self._recall(self._memory, rules)
        return self._chosen.get(rules, self._model)

    def _recall(self, memory: Memory, rules: frozenset[Hashable]) -> None:
        """Begin with the opset that the same came to in an earlier run."""
        needed = memory.needed(self._model, rules, (self._highest, self._for_speed))
        newer = self._in(max(needed.values()), is_known_to_run=True) if needed else None
        if isinstance(newer, ir.Model):
            self._chosen[rules] = newer
            self._needed[rules].update(needed)
            self._recalled.add(rules)

    def settle(self, without: Iterable[Hashable]) -> None:
        """Remember the opset of a settled round."""
        rules = frozenset(without)
        if self._memory is not None and rules in self._chosen.keys() - self._recalled:
            self._memory.keep(self._model, rules, (self._highest, self._for_speed), self._needed[rules])

    def grows(self, without: Iterable[Hashable], trace: Trace) -> bool:
        """After the raise stage with these rules: whether ``source`` has become one of a newer opset."""
        rules = frozenset(without)
        if rules in self._settled:
            return False
        wished = trace.too_new | (trace.wished if self._for_speed else {})
        wanted = {name: version for name, version in wished.items() if version <= self._highest}
        newer = self._in(max(wanted.values())) if wanted else None
        if not isinstance(newer, ir.Model) or io.opset(newer) <= io.opset(self.source(rules)):
            return False
        self._chosen[rules] = newer
        self._needed[rules].update(wanted)
        return True

    def returns(self, without: Iterable[Hashable], trace: Trace) -> bool:
        """After the raise stage with these rules, or a round: whether ``source`` has become what it was at first, for
        nothing was made that it was raised for."""
        rules = frozenset(without)
        made = {op_type for applied in trace.applied for op_type in applied.after}
        if self.source(rules) is self._model or self._needed[rules].keys() & made:
            return False
        del self._chosen[rules]
        self._settled.add(rules)
        return True

    def notes(self, without: Iterable[Hashable], trace: Trace) -> list[str]:
        """Notes on the opset of a settled round."""
        rules = frozenset(without)
        before, after = io.opset(self._model), io.opset(self.source(rules))
        if after > before:
            names = ", ".join(sorted(self._needed[rules]))
            return [f"raised from opset {before} to {after} for {names}; --opset {before} keeps it"]
        refused = {r for r in self._converted.values() if isinstance(r, str)}
        names = ", ".join(sorted(trace.too_new or trace.wished))
        return [f"{names} not used: {reason}" for reason in sorted(refused)]

    def _in(self, version: int, *, is_known_to_run: bool = False) -> ir.Model | str:
        """The model in an opset, or why it cannot be brought there; not asked whether it runs if that is known."""
        if version not in self._converted:
            try:
                newer = to_opset(self._model, version)
                self._converted[version] = newer if is_known_to_run else self._running(newer)
            except UsageError as error:
                self._converted[version] = str(error)
        return self._converted[version]

    def _running(self, newer: ir.Model) -> ir.Model:
        """A converted model; UsageError if the target cannot run it any more."""
        lost = self._stuck(newer)
        lost = {name: lost[name] for name in lost.keys() - self._stuck(self._model).keys()} if lost else {}
        if lost:
            raise UsageError(f"the model cannot be converted to opset {io.opset(newer)}: {min(lost.values())}")
        return newer
