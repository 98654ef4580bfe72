"""A pattern from a function: what the library's rules make of its graph, with its arguments as captures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnxrewrite import io
from onnxrewrite.authoring.function_body import function_of
from onnxrewrite.authoring.region import Region, between, reads
from onnxrewrite.authoring.staged_model import found_by
from onnxrewrite.authoring.template import Writing
from onnxrewrite.authoring.write import Source
from onnxrewrite.errors import UsageError
from onnxrewrite.ir.custom import CustomOp
from onnxrewrite.ir.facts import Facts
from onnxrewrite.pattern.terms import Attr, Call, Capture, Operators, Term, notation, walk
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.driver import Driver
from onnxrewrite.rewrite.rule import LOWER, Rule, Stage, rule
from onnxrewrite.system.arrays import Array

_TARGET = "onnxruntime-cpu"


@dataclass(frozen=True)
class Spelling:
    """A model that computes a function, once for each example.

    Attributes:
        source: The model.
        inputs: The names of its inputs, by argument, for the first example.
        outputs: The names of its outputs for the first example.
        weights: The constant arguments of the first example.
    """

    source: io.Source
    inputs: Mapping[str, str]
    outputs: tuple[str, ...]
    weights: Mapping[str, Array]


@dataclass(frozen=True, repr=False)
class Form:
    """One spelling of a function, as the rules of the library make it.

    Attributes:
        pattern: A term for each value that the function returns.
        captures: The captures of the pattern by name: arguments by their names where the graph has them as they are.
        body: The same as a function of the captures, in their order; None where something is captured that no function
            can have.
    """

    pattern: tuple[Term, ...]
    captures: Mapping[str, Capture | Attr[Any]]
    body: onnx.FunctionProto | None

    def __repr__(self) -> str:
        return "; ".join(notation(self.pattern))


@dataclass(frozen=True)
class Traced:
    """A function as patterns, one for each form that its spellings come to.

    Attributes:
        name: The name of the function.
        forms: The forms, each once.
        notes: Why a spelling is not among them.
    """

    name: str
    forms: tuple[Form, ...]
    notes: tuple[str, ...] = ()

    @property
    def pattern(self) -> Term | tuple[Term, ...]:
        """The pattern of the only form.

        Raises:
            UsageError: There are several.
        """
        pattern = self._form.pattern
        return pattern if len(pattern) > 1 else pattern[0]

    @property
    def captures(self) -> Mapping[str, Capture | Attr[Any]]:
        """The captures of the only form by name.

        Raises:
            UsageError: There are several.
        """
        return self._form.captures

    @property
    def _form(self) -> Form:
        if len(self.forms) > 1:
            raise UsageError(f"{self.name}: has {len(self.forms)} forms; write a rule for each of Traced.forms")
        return self.forms[0]

    def becomes(self, domain: str, operator: str, *, name: str, stage: Stage = Stage.RAISE) -> list[Rule]:
        """Rules that write a custom operator wherever the function stands, one for each form.

        The operator takes what the pattern captures, and its body is the form itself.  Forms with captures of other
        names are operators of their own: ``operator``, then ``operator2``, ...

        Args:
            domain: The operator's domain.
            operator: Its name.
            name: The rule's, lower case with hyphens; the second is called ``name-2``.
            stage: The stage in which the rules run.

        Raises:
            UsageError: A form cannot be a function body.
            RuleError: The names cannot be used.
        """
        made: dict[tuple[str, ...], CustomOp] = {}
        rules = []
        for number, form in enumerate(self.forms, 1):
            if form.body is None:
                raise UsageError(f"{self.name}: captures what no function can have as an argument")
            called = operator + ("" if not made else str(len(made) + 1))
            taken = tuple(form.captures)
            own = made.get(taken) or made.setdefault(taken, CustomOp(domain, called, form.body))
            operands = [c for c in form.captures.values() if isinstance(c, Capture)]
            attributes = {n: c for n, c in form.captures.items() if isinstance(c, Attr)}
            call = getattr(Operators(domain), own.name)(*operands, **attributes)
            right = tuple(call[i] for i in range(len(form.pattern))) if len(form.pattern) > 1 else (call,)
            rules.append(rule(name if number == 1 else f"{name}-{number}", stage, form.pattern, right))
        return rules


def traced(name: str, spellings: Sequence[Spelling]) -> Traced:
    """The patterns that match a function, whichever way it is spelled.

    Each model is raised by the library's rules.  What it computes for the first example is the pattern; where it
    stands again, for further examples, and differs in a constant or an attribute, that is captured.

    Args:
        name: The name of the function.
        spellings: Models that compute it.

    Raises:
        UsageError: It is no pattern: the reason names the value that is in the way.
    """
    library = registry.load()
    found = (_form(name, spelling, driver) for spelling in spellings for driver in _raised(spelling.source, library))
    forms = {repr(form): form for form in found}
    return Traced(name, tuple(forms.values()))


def _raised(source: io.Source, library: Iterable[Rule]) -> Iterator[Driver]:
    """A model as the rules raise it, in its own opset and in the one that they ask for."""
    driver = found_by(source, LOWER, library, _TARGET)
    yield driver
    newest = max(driver.trace.too_new.values(), default=0)
    if newest:
        yield found_by(source, LOWER, library, _TARGET, newest)


def _form(name: str, spelling: Spelling, driver: Driver) -> Form:
    graph = driver.model.graph
    facts = driver.facts(graph)
    arguments = {value: argument for argument, given in spelling.inputs.items() for value in _named(graph, given)}
    ends = [v for output in spelling.outputs for v in graph.outputs if v.name == output]
    read = {v for n in graph for v in reads(n)}
    region = between(graph, facts, [v for v in arguments if v in read], ends)
    given = arguments | dict(_weights(region, facts, spelling.weights))
    writing = Writing(driver, region, Source("traced", name, (), (), (), Stage.RAISE), given)
    pattern = writing.pattern()
    known = _captures(pattern)
    captures = {called: known[called] for called in writing.names.values()}  # in the order of the function's operands
    return Form(pattern, captures, function_of(writing.draft, writing.names, facts))


def _named(graph: ir.Graph, name: str) -> Iterator[ir.Value]:
    return (v for v in graph.inputs if v.name == name)


def _weights(region: Region, facts: Facts, weights: Mapping[str, Array]) -> Iterator[tuple[ir.Value, str]]:
    """The constants of a region that are arguments, perhaps transposed: those with the same numbers."""
    known = {np.sort(array, axis=None).tobytes(): argument for argument, array in weights.items()}
    for value in (v for n in region.nodes for v in reads(n) if v is not None):
        tensor = facts.tensor(value)
        argument = known.get(np.sort(tensor.numpy(), axis=None).tobytes()) if tensor is not None else None
        if argument is not None:
            yield value, argument


def _captures(pattern: Sequence[Term]) -> dict[str, Capture | Attr[Any]]:
    """The captures of a pattern by name."""
    found: dict[str, Capture | Attr[Any]] = {}
    for each in (t for root in pattern for t in walk(root)):
        attributes = each.parameters.values() if isinstance(each, Call) else ()
        found |= {c.name: c for c in (each, *attributes) if isinstance(c, Capture | Attr)}
    return found
