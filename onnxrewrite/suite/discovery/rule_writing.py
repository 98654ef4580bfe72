"""From a hit to the file of a rule: the pattern as ``capture`` writes it, and a function that builds the substitute.

The operands and attributes that the substitute needs are captured; what else is the same at all places stays a number
of the pattern.
"""

from __future__ import annotations

import builtins
import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from onnxrewrite.authoring import naming, write
from onnxrewrite.authoring.formula import WIDTH, literal, number
from onnxrewrite.authoring.generalize import Kind, Number, Slot, Wanted
from onnxrewrite.authoring.staged_model import matched
from onnxrewrite.authoring.template import Writing, rule_in
from onnxrewrite.ir import schema
from onnxrewrite.ir.skip_identity import resolve
from onnxrewrite.rewrite.driver import Driver
from onnxrewrite.rewrite.rule import Assumption, Example, Rule, Stage
from onnxrewrite.ruletest.metamorphic.mutations import POSITIVE
from onnxrewrite.suite.discovery.joining import VIEW, Hit
from onnxrewrite.suite.discovery.preconditions import Guard, is_constant, is_known, of_views, vocabulary
from onnxrewrite.suite.discovery.result_fingerprint import Relation
from onnxrewrite.suite.discovery.substitute import ROWS, Given, Inner, Operator, Origin, Parameter, Read

_SPREAD = 3
"""So many attributes of one node are handed on together."""


class RuleWriter:
    """Writes the rule of one hit.

    Args:
        driver: Of the model, as the rule finds it.
        hit: The region and its substitute.
        stage: The stage in which the rule is to run.
        model: The name of the model.
        found: How it was found, if not in a model.

    Raises:
        UsageError: No pattern that was tried matches the region.
    """

    def __init__(self, driver: Driver, hit: Hit, stage: Stage, model: str, found: str = ""):
        self.hit = hit
        self.model = model
        self.stage = stage
        self._found = found
        self._spread = frozenset(_handed_on(hit))
        region = hit.region.region
        given, wanted = dict(_roles(hit)), self._wanted()
        source = write.Source(rule_name(hit), model, (), (), (), stage)
        self.writing = Writing(driver, region, source, given, wanted)
        taken = naming.Names(self.writing.names.values())
        takes_sizes = any(o.kind == "size" for o in hit.substitute.origins())
        views = frozenset(n for n in region.nodes if n.op_type == "Reshape" and takes_sizes)
        called = {n: taken.fresh(naming.of_step(n)) for n in region.nodes if n in self._spread | views}
        self._called = called
        self._views = [called[n] for n in region.nodes if n in views]
        anchors = tuple(p.outputs[0].name or "" for p in self.writing.found.places)
        bare = replace(self.writing.source, places=anchors, called=called)
        source, self.pattern = self.writing.written(bare)
        self.source = replace(source, places=anchors) if hit.is_view else source  # elsewhere the same moves something

    def finished(
        self,
        guards: Sequence[Guard] = (),
        examples: Sequence[Example] = (),
        assumes: Sequence[Assumption] = (),
    ) -> tuple[str, Rule]:
        """The text of the rule file, and the rule."""
        settings = ["needs_speedup=True"] if self._needs_speedup else []
        if assumes:
            listed = ", ".join(f"Assumption.{each.name}" for each in assumes)
            settings.append(f"assumes=({listed},)")
        becomes = " and ".join(dict.fromkeys(self.hit.operators))
        told = dict.fromkeys((*self._of_constants(), *self._of_sizes(), *self._of_signs(), *guards))
        body = [*(line for g in told for line in g.lines), *(line for each in self._body() for line in _broken(each))]
        finish = write.Finish(becomes, tuple(self._notes()), tuple(body), tuple(examples), tuple(settings))
        source = replace(self.source, finish=finish)
        text = self.writing.text(source)
        return text, rule_in(text, source)

    def _of_constants(self) -> Iterator[Guard]:
        """The operands of a constant that is computed ahead are constant."""
        reads = (r for n in self.hit.substitute.nodes if n.is_ahead and n.op_type != ROWS for r in n.inputs)
        values = [self.hit.region.operands[r].value for r in reads if isinstance(r, int)]
        yield from (is_constant(self.writing.names[s]) for s in self.writing.draft.slots if s.values[0] in values)

    def _of_sizes(self) -> Iterator[Guard]:
        """A size that becomes an attribute is known."""
        for origin in self.hit.substitute.origins():
            if origin.kind == "size":
                yield is_known(self._called[self.hit.region.region.nodes[origin.place]], origin.axis)

    def _of_signs(self) -> Iterator[Guard]:
        """A number is positive that becomes an attribute which never is anything else, as an epsilon."""
        given = (p for n in self.hit.substitute.nodes for p in n.parameters)
        for name, parameter in given:
            value = parameter.value if name in POSITIVE and parameter.origin.kind == "number" else None
            if isinstance(value, float) and value > 0:
                yield Guard(f"{self._parameter(parameter)} > 0", f"{name} must be positive")

    def guards(self) -> list[Guard]:
        """Preconditions that hold at all places, the general ones first."""
        rule = self.finished()[1]
        matches = [m for anchor, m in matched(rule, self.writing.driver).items() if anchor in self.source.places]
        proposed = [
            *of_views(self._views, self.writing.names),
            *vocabulary(self.writing.names, matches[0] if matches else None, rule),
        ]
        return [g for g in proposed if all(g.holds(m, rule) for m in matches)]

    def fitting(self, known: Sequence[Guard]) -> list[Guard]:
        """The preconditions, of some, that a substitute is known to need: for each constant that it does not read the
        first that tells it, and for each of the shapes at which it is wrong the first that keeps them away, those of
        one operand first."""
        numbers = {o.value: i for i, o in enumerate(self.hit.region.operands)}
        named = {name: numbers[s.values[0]] for s, name in self.writing.names.items() if s.values[0] in numbers}
        read = {self.hit.region.operands[i].value for i in self.hit.substitute.read()}
        unread = [n for s, n in self.writing.names.items() if s.kind is Kind.CONST and s.values[0] not in read]
        found = {g: None for name in unread for g in [g for g in known if g.tells == name][:1]}
        for misfit in self.hit.misfits:
            for guard in sorted(known, key=lambda g: len(g.compares)):
                shapes = {misfit.operands[named[name]] for name in guard.compares if name in named}
                if len(shapes | ({misfit.result} if len(guard.compares) == 1 else set())) > 1:
                    found[guard] = None
                    break
        return list(found)

    @property
    def _needs_speedup(self) -> bool:
        """True if the rule promises nothing but speed: it lowers, and makes as many operators as it takes."""
        return self.stage is Stage.LOWER and self.operators >= len(self.hit.region.region.nodes)

    @property
    def operators(self) -> int:
        """The number of operators that the rule builds."""
        return len(self.hit.substitute.work) + sum(r.steps for r in self.hit.relations)

    def _notes(self) -> Iterator[str]:
        count, places = len(self.hit.region.region.nodes), len(self.source.places)
        anchor = self.hit.region.region.outputs[0].name
        more = f", and {places - 1} more place{'s' * (places != 2)} of it" if places > 1 else ""
        found = self._found or f"Found by comparing what both compute: at {anchor} of {self.model}{more}."
        yield f"Why: {count} operator{'s become' if count > 1 else ' becomes'} {self.operators}.  {found}"

    # -- what is captured ------------------------------------------------------------------------------------

    def _wanted(self) -> Wanted:
        """The operands that the substitute reads, and the origins of its attributes."""
        region, substitute = self.hit.region, self.hit.substitute
        origins = substitute.origins()
        nodes = region.region.nodes
        attributes = {(nodes[o.place], o.name) for o in origins if o.kind == "attribute"}
        values = frozenset(region.operands[i].value for i in substitute.read())
        return Wanted(
            values=values,
            constants=frozenset(o.value for o in region.operands if o.is_constant) - values,
            numbers=frozenset(
                region.operands[i].value for o in origins if o.kind == "number" for i in (o.place, o.times) if i >= 0
            ),
            attributes=frozenset((n, name) for n, name in attributes if n not in self._spread),
            handed_on=self._spread,
            fixed=frozenset(nodes) - self._spread,
            ones=values if self.hit.is_view else frozenset(),
        )

    def _value(self, read: Read) -> str:
        if read is None:
            return "None"
        if isinstance(read, Inner):
            return _result(read, self.hit.substitute.nodes)
        if isinstance(read, Given):
            return _constant(read)
        value = self.hit.region.operands[read].value
        slot = next(s for s in self.writing.draft.slots if s.values[0] is value)
        name = self.writing.names[slot]
        return f"m[{name}]" if slot.kind is Kind.VAR and not slot.is_optional else f"m.value({name})"

    def _parameter(self, given: Parameter) -> str:
        slot = self._slot(given.origin)
        if given.origin.kind == "size":
            node = self.hit.region.region.nodes[given.origin.place]
            return f"m.dim({self._called[node]}, {given.origin.axis})"
        if slot is None:
            return literal(given.value)
        name = f"m[{self.writing.names[slot]}]"
        factor = self._slot(replace(given.origin, place=given.origin.times)) if given.origin.times >= 0 else None
        if factor is not None:
            return f"{name} * m[{self.writing.names[factor]}]"
        return f"1 / {name}" if given.origin.inverse else name

    def _slot(self, origin: Origin) -> Slot | None:
        """The capture that an attribute is from; None where it is a number of its own."""
        region = self.hit.region
        slots = self.writing.draft.slots
        if origin.kind == "attribute":
            node = region.region.nodes[origin.place]
            found = (s for s in slots if s.kind is Kind.ATTR and s.node is node and s.formal == origin.name)
            return next(found, None)
        if origin.kind != "number":
            return None
        value = region.operands[origin.place].value
        scalars = (s for s in slots if s.kind is Kind.SCALAR and s.values[0] is value)
        return next(scalars, None) or next(self._parameters_of(value), None)

    def _parameters_of(self, value: ir.Value) -> Iterator[Slot]:
        """The captures of a constant that is a parameter of a node: an attribute in other opsets."""
        for step in self.writing.draft.steps:
            for place, name in step.named.items():
                read = step.node.inputs[place] if place < len(step.node.inputs) else None
                found = step.forms[0].parameters.get(name)
                if read is not None and resolve(read) is value and isinstance(found, Slot):
                    yield found

    # -- what is built ---------------------------------------------------------------------------------------

    def _body(self) -> list[str]:
        """The statements that build the substitute, and return what stands for the region's outputs."""
        nodes, results = self.hit.substitute.nodes, self.hit.substitute.results
        is_plain = [r.is_equality for r in self.hit.relations] == [True]
        is_last = bool(nodes) and nodes[-1].outputs == 1 and results == (Inner(len(nodes) - 1),) and is_plain
        lines = []
        for place, node in enumerate(nodes[:-1] if is_last else nodes):
            wanted = {r.output for r in _inner_reads(nodes, results) if r.node == place}
            names = [_result(Inner(place, k), nodes) if k in wanted else "_" for k in range(node.outputs)]
            lines.append(f"{', '.join(names)} = {self._call(node)}")
        if is_last:
            return [*lines, f"return {self._call(nodes[-1])}"]
        made = list[str]()
        for place, (inner, way) in enumerate(zip(results, self.hit.relations, strict=True)):
            name = self._value(inner)
            called = name if isinstance(inner, Inner) else "result"
            for step in _steps(way, place):
                lines.append(f"{called} = {step.format(name)}")
                name = called
            made.append(name)
        return [*lines, f"return {', '.join(made)}"]

    def _call(self, node: Operator) -> str:
        tape = {"": "build", "com.microsoft": "build.microsoft"}.get(node.domain, f"build.domain({node.domain!r})")
        given = [self._value(r) for r in node.inputs]
        region = self.hit.region.region.nodes
        for name, parameter in node.parameters:
            if not _is_from(parameter, region, self._spread):
                given.append(f"{name}={self._parameter(parameter)}")
        if node.outputs > 1:
            given.append(f"outputs={node.outputs}")
        given += [f"**m.attrs({name})" for n, name in self._called.items() if n in self._spread]
        return f"{tape}.{node.op_type}({', '.join(given)})"


def rule_name(hit: Hit) -> str:
    """A name for the rule of a hit: what it makes, and of what."""
    made = [VIEW] if hit.is_view else [n.op_type for n in hit.substitute.work]
    return named(made, [n.op_type for n in hit.region.region.nodes])


def named(made: Sequence[str], operators: Sequence[str]) -> str:
    """A name for a rule that makes some operators of others."""
    becomes = "-".join(dict.fromkeys(map(_kebab, made))) or "operand"
    of = list(dict.fromkeys(map(_kebab, operators)))
    return f"{becomes}-of-{'-'.join(of if len(of) <= 3 else (of[0], 'to', of[-1]))}"


def _steps(way: Relation, place: int) -> Iterator[str]:
    """The calls that make an output of the region, by its number, of what is put into the braces."""
    if way.perm is not None:
        yield f"build.Transpose({{}}, perm={way.perm})"
    if way.scale != 1.0:
        yield f"build.Mul({{}}, {number(Number(float(np.float32(way.scale)), ir.DataType.FLOAT)).code})"
    if way.is_reshaped:
        yield f"reshaped_as(m, build, {{}}, m.outputs[{place}])"


def _kebab(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name).lower()


def _roles(hit: Hit) -> Iterator[tuple[ir.Value, str]]:
    """The names that the schema of the substitute's operator has for its operands."""
    for node in hit.substitute.nodes:
        known = schema.schema(node.domain, node.op_type, None if node.domain else hit.region.opset)
        formals = known.inputs if known is not None else ()
        for formal, read in zip(formals, node.inputs, strict=False):
            if isinstance(read, int) and not formal.variadic:
                name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", formal.name).lower()
                yield hit.region.operands[read].value, name if not hasattr(builtins, name) else "x"


def _broken(statement: str) -> list[str]:
    """A statement in lines that are not too long: the arguments of the last call on lines of their own."""
    if len(statement) <= WIDTH:
        return [statement]
    head, _, arguments = statement.partition("(")
    wrapped = textwrap.wrap(arguments[:-1], WIDTH - 4, break_long_words=False, break_on_hyphens=False)
    if len(wrapped) > 1:
        wrapped[-1] += ","
    return [f"{head}(", *(f"    {line}" for line in wrapped), ")"]


def _result(read: Inner, nodes: Sequence[Operator]) -> str:
    """The name of an output of a node of the substitute."""
    first = "result" if len(nodes) == 1 else f"result_{read.node + 1}"
    return first if read.output == 0 else f"{first}_{read.output}"


def _constant(given: Given) -> str:
    """A constant as an argument of the tape, which gives it the dtype that the operator asks for."""
    if isinstance(given.elements, tuple):
        return repr(given.elements)
    return number(Number(given.elements, given.dtype)).code


def _inner_reads(nodes: Sequence[Operator], results: Sequence[Read]) -> list[Inner]:
    reads = (*(r for n in nodes for r in n.inputs), *results)
    return [r for r in reads if isinstance(r, Inner)]


def _handed_on(hit: Hit) -> Iterator[ir.Node]:
    """The nodes of a region that hand several attributes on to the substitute, all that are set there."""
    nodes = hit.region.region.nodes
    origins = [
        (nodes[p.origin.place], name)
        for n in hit.substitute.nodes
        for name, p in n.parameters
        if p.origin.kind == "attribute" and p.origin.name == name
    ]
    for node, count in Counter(n for n, _ in origins).items():
        names = {name for n, name in origins if n is node}
        if count >= _SPREAD and names >= set(node.attributes):
            yield node


def _is_from(parameter: Parameter, nodes: Sequence[ir.Node], spread: frozenset[ir.Node]) -> bool:
    return parameter.origin.kind == "attribute" and nodes[parameter.origin.place] in spread
