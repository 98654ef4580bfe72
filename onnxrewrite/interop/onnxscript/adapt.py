"""One rule of onnxscript as one of ours: it matches and builds as it always did, and touches nothing.

Its own matcher is asked at every node that its pattern can end in.  What it would put there lies on a tape of its own,
and is handed over to ours, so that legality, checks, undoing and provenance are those of any rule.  Everything that is
not public in onnxscript is used in this package only.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import onnx_ir as ir
from onnxscript.rewriter import MatchingTracer, MatchResult, MatchStatus, RewriteRule
from onnxscript.rewriter._pattern_ir import BacktrackingOr, NodeOutputPattern, NodePattern, OpIdDispatchOr
from onnxscript.rewriter._rewrite_rule import ReplacementPatternFunction

from onnxrewrite.ir.facts import Facts
from onnxrewrite.pattern.match import Match
from onnxrewrite.pattern.terms import AnyNode
from onnxrewrite.rewrite import edit
from onnxrewrite.rewrite.build import Builder
from onnxrewrite.rewrite.purity import pure
from onnxrewrite.rewrite.rule import Rule, Stage

_LONGEST = 240
"""Their reasons print whole values; so many characters are told."""

_ANONYMOUS = re.compile(r"anonymous:\d+")
"""The print of nameless values in their patterns: the address in memory."""


@dataclass(frozen=True, eq=False)
class Adapted(Rule):
    """A rule of onnxscript.  ``theirs`` is that rule."""

    theirs: RewriteRule | None = None

    @property
    def doc(self) -> str:
        """The docstring of its class, or else its pattern."""
        assert self.theirs is not None
        instance = getattr(self.theirs._condition_function, "__self__", None)
        own = inspect.cleandoc(type(instance).__doc__ or "") if instance is not None else ""
        return own.replace("``", "") or spelled(self.theirs)

    @cached_property
    def _function(self) -> Callable[..., object]:
        """Their function, which says where the rule is from."""
        assert self.theirs is not None
        found: Callable[..., object] = _function(self.theirs)
        return found


def adapt(theirs: RewriteRule, *, name: str, stage: Stage = Stage.CANONICALIZE, benefit: int = 0) -> Adapted:
    """A rule of onnxscript that runs in our driver.

    Args:
        theirs: The rule.
        name: Its name here.
        stage: The stage in which it runs; its replacement must be runnable on the target, before the lower stage too.
        benefit: Of several rules that match at one value, the one with the largest benefit is tried first.
    """
    inside = _Foreign(theirs, name)
    return Adapted(
        name=name,
        stage=stage,
        pattern=inside.anchor,
        rewrite=inside,
        benefit=benefit,
        allow_shared=not theirs.remove_nodes,
        needs_check=True,
        theirs=theirs,
    )


class _Foreign:
    """The rewrite of an adapted rule.

    Attributes:
        anchor: Our pattern: the operator that theirs ends in.
        depth: The number of nodes that their pattern spans, one above the other.
    """

    def __init__(self, theirs: RewriteRule, name: str):
        root: NodePattern = theirs._target_pattern.output_nodes[0]
        self._theirs = theirs
        self._name = name
        self._root = root
        self.__module__ = str(_function(theirs).__module__)  # where reports say that the rule is from
        self.depth = _depth(root)
        identifier = root.op_identifier()
        op_types = [identifier[1]] if identifier is not None and not identifier[0] else None
        self.anchor = AnyNode(root.op_type, where=self.fits, op_types=op_types)

    def __call__(self, m: Match, build: Builder) -> Sequence[ir.Value]:
        """Match once more, this time to the end, and hand over what theirs builds."""
        node = m.node(self.anchor)
        m.require(
            not self._theirs.as_function, "it makes a function of what it matches (as_function), which is not supported"
        )
        _visit(self._theirs.graph_pre_visitor)
        try:
            found, status = self._match(node)
            if status is not MatchStatus.SUCCESS:
                m.refuse(_reason(found), _blamed(found))
            covered, outputs = list(found.nodes), list(found.outputs)
            m.require(all(o.producer() in covered for o in outputs), "its pattern gives back what it reads")
            above = [p for n in covered for i in n.inputs if i is not None and (p := i.producer()) is not None]
            with pure(self._name, m.anchor, list(dict.fromkeys((*covered, *above))), node.graph):
                made = _Tape.of(self._theirs, found)
            if made is None:
                m.refuse(_reason(found, "its replacement gives nothing and no reason"), _blamed(found))
            m.widen(covered, outputs)
            return made.onto(build)
        finally:
            _visit(self._theirs.graph_post_visitor)

    def __fingerprint__(self) -> tuple[object, ...]:
        """The parts that it consists of, without what it remembers of its last match."""
        theirs = self._theirs
        functions = [_function(theirs), getattr(theirs._condition_function, "__func__", theirs._condition_function)]
        return self._name, spelled(theirs), theirs.remove_nodes, functions

    def fits(self, node: ir.Node, facts: Facts) -> bool | str:
        """True if their pattern matches at a node, whatever their condition says; False or the reason if not."""
        if not isinstance(node.graph, ir.Graph) or not self._root.op.matches(node.op_type):
            return False
        if not self._root.domain.matches(node.domain):
            return False
        try:
            found, status = self._match(node)
        except Exception:  # raised once more where it is told as a refusal
            return True
        return status is not MatchStatus.NO_MATCH or _reason(found, "its pattern does not match")

    def _match(self, node: ir.Node) -> tuple[MatchResult, MatchStatus]:
        """The result of their matcher at a node, and the status that it reached."""
        tracer = _Last()
        graph = node.graph
        assert isinstance(graph, ir.Graph)
        self._theirs.match(
            ir.Model(graph, ir_version=10),
            graph,
            node,
            verbose=0,
            check_nodes_are_removable=self._theirs.remove_nodes,
            tracer=tracer,
        )
        return tracer.found, tracer.status


class _Last(MatchingTracer):
    """Keeps what was tried last, for ``match`` gives nothing back where a condition fails."""

    found: MatchResult
    status: MatchStatus = MatchStatus.NO_MATCH

    def log(
        self, rule: object, container: object, node: ir.Node, match_result: MatchResult, status: MatchStatus
    ) -> None:
        """Called by theirs."""
        self.found, self.status = match_result, status


class _Tape:
    """The nodes that a replacement of theirs has built: they read values of our graph, and are in no graph yet.

    Args:
        context: Their tape.
        outputs: The values that replace the pattern's outputs.
    """

    def __init__(self, context: Any, outputs: Iterable[Any]):
        self._nodes: Sequence[ir.Node] = context.nodes
        self._constants: Sequence[ir.Value] = context.initializers
        self._outputs = list(outputs)

    @classmethod
    def of(cls, rule: RewriteRule, found: MatchResult) -> _Tape | None:
        """The tape that a rule builds for a match; None if it gives up: then no node that it built stays a reader."""
        contexts: list[Any] = []

        def recorded(context: object, **bindings: object) -> Any:
            contexts.append(context)
            return rule._replacement_pattern._function(context, **bindings)

        made = None
        try:
            made = ReplacementPatternFunction(recorded).get_replacement(found)
        finally:
            for node in contexts[0].nodes if made is None and contexts else ():
                edit.detach(node)
        return None if made is None else cls(contexts[0], made.new_outputs)

    def onto(self, build: Builder) -> list[Any]:
        """Hand everything over to our tape: Constant nodes as constants, and what an Identity stands for itself."""
        build.constants += self._constants
        instead: dict[ir.Value, ir.Value] = {}
        for node in self._nodes:
            for place, value in enumerate(node.inputs):
                if value in instead:
                    node.replace_input_with(place, instead[value])
            value = _passed_on(node, build)
            if value is None:
                build.adopt(node)
            else:
                instead[node.outputs[0]] = value
                edit.detach(node)
        return [instead.get(o, o) for o in self._outputs]


def _passed_on(node: ir.Node, build: Builder) -> ir.Value | None:
    """The value that an Identity or a Constant of theirs stands for; None if the node is needed."""
    if node.domain or node.op_type not in ("Identity", "Constant"):
        return None
    if node.op_type == "Identity":
        return node.inputs[0]
    tensor = ir.convenience.get_const_tensor(node.outputs[0])
    return None if tensor is None else build.constant(tensor)


# -- what they say ---------------------------------------------------------------------------------------------------


def _reason(found: MatchResult, otherwise: str = "its condition does not hold") -> str:
    """Their reason in one line."""
    told = " ".join(str(found.reason).split()).rstrip(".")
    told = told if len(told) <= _LONGEST else f"{told[: _LONGEST - 1]}…"
    return told or otherwise


def _blamed(found: MatchResult) -> ir.Value | None:
    """The first value that they blame."""
    return next((v for v in found.failure_nodes_and_values if isinstance(v, ir.Value)), None)


def spelled(rule: RewriteRule) -> str:
    """Their pattern in one line, the same every time."""
    names: dict[str, str] = {}
    text = " ".join(str(rule._target_pattern).split())
    return _ANONYMOUS.sub(lambda found: names.setdefault(found[0], f"v{len(names)}"), text)


def _function(rule: RewriteRule) -> Any:
    """The function that builds the replacement."""
    found = rule._replacement_pattern._function
    return inspect.unwrap(getattr(found, "__func__", found))


def _visit(visitor: Any) -> None:
    """Their preparation, and their cleaning up: what a rule keeps from match to match lies in no graph of ours."""
    if visitor is not None:
        visitor()


def _depth(root: NodePattern) -> int:
    """The number of nodes that a pattern has one above the other."""
    known: dict[NodePattern, int] = {}

    def depth(node: NodePattern) -> int:
        if node not in known:
            above = (p for value in node.inputs for p in _producers(value))
            known[node] = 1 + max(map(depth, above), default=0)
        return known[node]

    return depth(root)


def _producers(value: object) -> Iterator[NodePattern]:
    """The nodes that can compute a value of a pattern."""
    match value:
        case NodeOutputPattern():
            yield value.producer()
        case BacktrackingOr():
            for each in value._values:
                yield from _producers(each)
        case OpIdDispatchOr():
            known: Mapping[Any, tuple[Any, Any]] = value._op_to_pattern
            for _, each in known.values():
                yield from _producers(each)
