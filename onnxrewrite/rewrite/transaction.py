"""One rewrite from match to commit: guard, build, legality, and only then the graph.

Nothing is ever undone in the graph, because nothing is done to it before it is known to be right.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from onnxrewrite.errors import described, foreign
from onnxrewrite.io import external
from onnxrewrite.ir import calls, custom
from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.graph import scopes, subgraphs, topological, with_inner
from onnxrewrite.ir.target import Target
from onnxrewrite.ir.topological_rank import Order
from onnxrewrite.ir.value_numbering import same_work
from onnxrewrite.pattern.finder import Matcher
from onnxrewrite.pattern.match import Match, Refused
from onnxrewrite.rewrite import edit, legality
from onnxrewrite.rewrite.build import Builder
from onnxrewrite.rewrite.fitting import misfit
from onnxrewrite.rewrite.index import index
from onnxrewrite.rewrite.purity import ImpureRule, pure
from onnxrewrite.rewrite.rule import Assumption, Rule, Stage
from onnxrewrite.rewrite.trace import Applied, Site, provenance
from onnxrewrite.runtime import bounds


class Change(NamedTuple):
    """The changes of a rewrite to the graph.

    Attributes:
        nodes: Nodes that are new, or read something new or better known.
        released: Values that have lost a reader.
        removed: Nodes that are gone.
        built: Those that are new.
    """

    nodes: tuple[ir.Node, ...]
    released: tuple[ir.Value, ...]
    removed: tuple[ir.Node, ...]
    built: tuple[ir.Node, ...] = ()


class TooNew(Refused):
    """The replacement needs a newer opset than the model's, and nothing else.

    Attributes:
        versions: The operators, with the opset that each needs.
    """

    def __init__(self, reason: str, versions: Mapping[str, int]):
        super().__init__(reason)
        self.versions = versions


class Misbuilt(Refused):
    """The replacement is legal in no opset: the rule is wrong, whatever the model."""


class Broken(Refused):
    """The rule raised an exception of its own."""


class TurnedDown(Refused):
    """A rewrite could be applied, and its check or its cost spoke against it."""


def telling(refusals: Sequence[Refused]) -> Refused:
    """Of the refusals of several matches the one to tell: that of the rewrite that got furthest, to its check, to what
    only a newer opset has, past its preconditions, past most of them; of several the first."""
    return max(refusals, key=lambda r: (isinstance(r, TurnedDown), isinstance(r, TooNew), r.held is None, r.held or 0))


class Workspace:
    """The model at work, with what is known about it.

    Attributes:
        model: The model, which is changed in place.
        target: The target that the result must run on.
        names: All names in use.
        functions: The model's own operators, (domain, name); ``bodies`` are their graphs.
        order: The dependencies between nodes.
        wished: Operators that can be lowered and better were not, to the opset that has them.
        withheld: The assumptions that no rule may make.
    """

    def __init__(
        self, model: ir.Model, target: Target, lowering: Sequence[Rule], withheld: Collection[Assumption] = ()
    ):
        self.model = model
        self.withheld = withheld
        self.target = target
        self.names = edit.Names(model)
        self.wished: dict[str, int] = {}
        self._growth = 0
        self._most_growth = bounds.GROWTH_BYTES + external.total_bytes(model)
        self._scopes = scopes(model)
        self._owners = {g: n for scope in self._scopes for n in scope for g in subgraphs(n)}
        self.functions = {(f.domain, f.name) for f in model.functions.values()}
        self._lowering = index(tuple(lowering))
        self.bodies = {f.graph for f in model.functions.values()}
        self._illegal_kinds: dict[Hashable, str | None] = {}
        self._facts: dict[ir.Graph, Facts] = {}
        tops = (model.graph, *calls.in_order(model))
        self.order = Order(tops, self._owners)
        sites = calls.sites(model)
        for top in tops:
            calls.give_types(top, model, sites)
            facts = Facts(top, dict(top.opset_imports) or dict(model.opset_imports))
            self._facts.update(dict.fromkeys([top, *top.subgraphs()], facts))

    def facts(self, scope: ir.Graph) -> Facts:
        """The facts about the values of one scope."""
        return self._facts[scope]

    def scopes(self) -> list[ir.Graph]:
        """Every graph, function and subgraph; a rewrite makes and removes those inside a node alone."""
        return scopes(self.model) if self._owners else self._scopes

    def take_in(self, nodes: Sequence[ir.Node], scope: ir.Graph) -> None:
        """Know the bodies of new nodes of a scope."""
        for node in with_inner(nodes):
            for body in subgraphs(node):
                self._owners[body] = node
                self._facts[body] = self._facts[scope]

    def owners(self, scope: ir.Graph) -> list[ir.Node]:
        """The nodes in whose bodies a scope lies, the innermost first."""
        found = (self._owners.get(graph) for graph in self.enclosing(scope))
        return [node for node in found if node is not None]

    def enclosing(self, scope: ir.Graph) -> list[ir.Graph]:
        """The graphs whose values are visible in ``scope``, itself first; empty if the model no longer holds it."""
        found: list[ir.Graph] = []
        graph: ir.Graph | None = scope
        while graph is not None:
            found.append(graph)
            owner = self._owners.get(graph)
            if owner is None:
                return found
            graph = _graph_of(owner)
        return []

    def refuse_growth(self, growth: int) -> None:
        """Refuse constants that would make the model too large by so many bytes, all rewrites together."""
        if self._growth + growth > self._most_growth:
            raise Refused(f"all new constants together would take more than {self._most_growth} bytes")

    def grow(self, growth: int) -> None:
        """Count the bytes by which constants are larger than those that they take the place of."""
        self._growth += growth

    def refuse_illegal(self, build: Builder, facts: Facts, stage: Stage, standing: Sequence[ir.Node]) -> None:
        """Refuse what cannot run; before the lower stage, what can be lowered is no problem.  What is written anew of
        nodes that are ``standing`` in the model runs as they do: ONNX Runtime takes Softmax of float16 by way of Casts.

        Raises:
            Refused: With the reason; ``TooNew`` if all that is missing to the raise stage is a newer opset.
        """
        newer: dict[str, int] = {}
        for node in with_inner(build.nodes):
            reason = self._illegal(node, facts, facts.opset_imports)
            if reason is not None and self._is_among(standing, node, facts):
                continue
            lowered = self._lowered(node, facts) if reason is not None and stage < Stage.LOWER else ""
            if reason is None or isinstance(lowered, Rule):
                if isinstance(lowered, Rule) and lowered.is_fallback and stage is Stage.RAISE:
                    self.wished |= self.runs_newer(node, facts)
                continue
            if legality.never_legal(node):
                raise Misbuilt(f"the rule builds what no model can have: {reason}")
            reason = f"{reason}, and to lower it: {lowered}" if lowered else reason
            needed = self.runs_newer(node, facts) if stage is Stage.RAISE else {}
            if not needed:
                raise Refused(reason)
            newer |= needed
            told = reason
        if newer:
            raise TooNew(told, newer)

    def stuck(self) -> dict[str, str]:
        """The operators that the target cannot run and that no rule of the lower stage takes, each with the reason."""
        found: dict[str, str] = {}
        for facts, node in ((self.facts(scope), node) for scope in self.scopes() for node in scope):
            reason = self._illegal(node, facts, facts.opset_imports)
            if reason is not None and node.op_type not in found and isinstance(self._lowered(node, facts), str):
                found[node.op_type] = reason
        return found

    @staticmethod
    def _is_among(nodes: Sequence[ir.Node], node: ir.Node, facts: Facts) -> bool:
        """True if one of several nodes is of the same kind."""
        kinds = {legality.kind(each, facts, facts.opset_imports) for each in nodes if each.op_type == node.op_type}
        return legality.kind(node, facts, facts.opset_imports) in kinds

    def _illegal(self, node: ir.Node, facts: Facts, imports: Mapping[str, int]) -> str | None:
        kind = legality.kind(node, facts, imports)
        if kind not in self._illegal_kinds:
            self._illegal_kinds[kind] = legality.illegal_node(node, facts, self.target, imports, self.functions)
        return self._illegal_kinds[kind]

    def runs_newer(self, node: ir.Node, facts: Facts) -> dict[str, int]:
        """The operator and the opset that it needs, if all that keeps the target from running it is an older one; else
        nothing."""
        own = custom.declared(node.domain, node.op_type)
        if own is not None and own.opset > facts.opset_imports.get("", 1):
            illegal = self._illegal(node, facts, {**facts.opset_imports, "": own.opset})
            return {node.op_type: own.opset} if illegal is None else {}
        if not facts.is_newer(node) or node.domain or node.version is None:
            return {}
        if not self.target.has_kernel(node.domain, node.op_type):  # nothing is won by a function body
            return {}
        illegal = self._illegal(node, facts, {**facts.opset_imports, "": node.version})
        return {node.op_type: node.version} if illegal is None else {}

    def _lowered(self, node: ir.Node, facts: Facts) -> Rule | str:
        """The rule of the lower stage that makes ``node`` legal, tried on the tape; else what those that take it say,
        if any does."""
        view = self._lowering.view(facts, None)
        matcher, refusals = Matcher(view), list[Refused]()
        for rule, output in self._lowering.at(view, node):
            for match in matcher.matches(rule.outputs, output):
                transaction = Transaction(self, rule, match, None)
                try:
                    transaction.propose()
                except Refused as refused:
                    refusals.append(refused.with_traceback(None))
                else:
                    return rule
                finally:
                    transaction.discard()
        return telling(refusals).reason if refusals else ""


class Transaction:
    """One rule at one match.

    Args:
        work: The model at work.
        rule: The rule.
        match: The match.
        scope: The graph that the match lies in; None for one that is only tried.
    """

    def __init__(self, work: Workspace, rule: Rule, match: Match, scope: ir.Graph | None):
        self.work = work
        self.rule = rule
        self.match = match
        self.scope = scope
        self.facts = match.facts
        self.build = Builder(match.facts, match, match.facts.opset_imports)
        self.results: list[ir.Value] = []
        self._growth = 0

    def propose(self) -> None:
        """Build the replacement on the tape; raises ``Refused`` with the reason if it may not be applied."""
        self._refuse_shared()
        mark = self.facts.mark()
        self.results = self._replacement()
        self._refuse_shared()  # the rewrite may have covered more nodes
        _refuse_if(self.match.overlooked(self.rule.mentioned))
        self._growth = _growth(self.match, self.build)
        self.work.refuse_growth(self._growth)
        standing = self.match.nodes if self.scope is not None else ()  # what is only tried need not run
        self.work.refuse_illegal(self.build, self.facts, self.rule.stage, standing)
        minted = self.facts.made_up_since(mark)
        for old, new in zip(self.match.outputs, self.results, strict=True):
            _refuse_if(legality.wrong_result(self.facts, old, new, minted))
        _refuse_if(legality.raises_rank(self.match))
        _refuse_if(misfit(self.match.nodes, self.build.nodes, self.facts))
        if self.scope is not None:
            visible = self.work.enclosing(self.scope)
            taken = legality.read_outside(self.build.nodes, self.results)
            _refuse_if(legality.out_of_sight((v for v in taken if v not in self.build.constants), visible))
        if legality.makes_cycle(self.match, self.build.nodes, self.results, self.work.order):
            raise Refused("the replacement depends on what it replaces")
        for assumption in self.rule.assumes:  # last, so that it is offered only where it is all that is missing
            self.match.require(
                assumption not in self.work.withheld,
                f"it assumes that {assumption}: --assume {assumption.option} allows it",
            )

    def _refuse_shared(self) -> None:
        if not self.rule.allow_shared and self.scope is not None:
            _refuse_if(legality.shared_inside(self.match, self.build.nodes))

    def passes(self) -> bool:
        """True if the rewrite may be applied; tried on the tape and taken back."""
        try:
            self.propose()
        except Refused:
            return False
        finally:
            self.discard()
        return True

    def is_vain(self) -> bool:
        """True if the replacement is what it replaces."""
        return same_work(topological(self.match.nodes), self.build.nodes, self.match.outputs, self.results)

    def discard(self) -> None:
        """Take the tape back."""
        self.build.discard()

    def site(self) -> Site:
        """The rewrite as its checks see it."""
        return Site(
            rule=self.rule.name,
            value=self.match.anchor.name or "",
            scope=self.scope.name or "" if self.scope is not None else "",
            before=topological(self.match.nodes),
            after=tuple(self.build.nodes),
            outputs=self.match.outputs,
            results=tuple(self.results),
            opset_imports=self.facts.opset_imports,
            facts=self.facts,
            needs_check=self.rule.needs_check,
            assumes=self.rule.assumes,
        )

    def commit(self, kept: object = None) -> tuple[Applied, Change]:
        """Put the replacement into the graph; what was done, with what its checks have ``kept``, and what changed."""
        assert self.scope is not None
        anchor = min((p for o in self.match.outputs if (p := o.producer()) is not None), key=self.work.order.rank)
        self.work.grow(self._growth)
        name, covered = self.match.anchor.name or "", tuple(n.name or n.op_type for n in self.match.nodes)
        size = len(self.scope)
        self._name_nodes()
        nodes = [*self._place_constants(self.scope), *self.build.nodes]
        self.scope.insert_before(anchor, nodes)
        self.work.order.insert(nodes, anchor)
        self.work.take_in(nodes, self.scope)
        readers: list[ir.Node] = []
        learning: list[ir.Node] = []
        for old, new in zip(self.match.outputs, self.results, strict=True):
            if self.facts.inherit(new, old):
                learning += (*new.consumers(), *filter(None, [new.producer()]))
            is_news = self.facts.is_news(new, old)
            self._take_name(old, new)
            users = edit.redirect(old, new)
            self.work.order.redirect(new, users)
            readers += users
            learning += users if is_news else ()
        removed, touched = edit.sweep((*self.match.nodes, *self.build.nodes))  # built on the way, and not read
        self.work.order.forget(removed)
        for output in (o for n in removed for o in n.outputs):
            self.facts.forget(output)
        sharper = self.facts.refresh(n for n in learning if n.graph is not None)
        informed = (c for n in sharper for o in n.outputs for c in o.consumers())
        applied = Applied(
            rule=self.rule.name,
            stage=self.rule.stage.name.lower(),
            value=name,
            scope=self.scope.name or "",
            before=covered,
            after=tuple(n.op_type for n in self.build.nodes),
            values=tuple(o.name or "" for n in self.build.nodes for o in n.outputs),
            growth=len(self.scope) - size,
            nodes=tuple(n.name or "" for n in self.build.nodes),
            record=kept,
        )
        changed = (*self.build.nodes, *readers, *learning, *sharper, *informed, *self.match.nodes)
        return applied, Change(tuple(dict.fromkeys(changed)), tuple(touched), tuple(removed), tuple(self.build.nodes))

    # -- proposing -------------------------------------------------------------------------------------------

    def _replacement(self) -> list[ir.Value]:
        with pure(self.rule.name, self.match.anchor, self.match.nodes, self.scope):
            made, results = self._made()
        outputs = self.match.outputs
        are_values = bool(results) and all(isinstance(r, ir.Value) for r in results)
        if len(results) != len(outputs) or not are_values:
            returned = len(results) if are_values else repr(made)
            raise Refused(f"the rule must return {len(outputs)} values, it returned {returned}")
        if self.match.remainder:
            results[0] = self._with_remainder(results[0])
        if all(new is old for new, old in zip(results, outputs, strict=True)):
            raise Refused("there is nothing to change")
        if self.scope is not None and not any(map(edit.is_read, outputs)):
            raise Refused("nothing reads what it replaces")
        exported: set[ir.Value] = set()
        for place, (old, new) in enumerate(zip(outputs, results, strict=True)):
            results[place] = self._exportable(old, new, exported)
        return results

    def _made(self) -> tuple[Any, list[Any]]:
        """The result of the rule, as returned and as a list."""
        try:
            with (
                foreign(),
                np.errstate(all="ignore"),
            ):  # what overflows is the rule's to refuse, and its check's to find
                made: Any = self.rule.rewrite(self.match, self.build)
            return made, [made] if isinstance(made, ir.Value) else list(made) if made is not None else []
        except (Refused, ImpureRule):
            raise
        except Exception as error:  # a rule can fail in any way, and must not take the run down
            raise Broken(f"the rule raised {described(error, self.rule.source)}") from error

    def _with_remainder(self, result: ir.Value) -> ir.Value:
        """Put back what a longer chain had left over: ``result * rest`` or ``result + rest``."""
        for value, op_type in self.match.remainder:
            (result,) = self.build.node(op_type, [result, value])
        return result

    def _exportable(self, old: ir.Value, new: ir.Value, exported: set[ir.Value]) -> ir.Value:
        """A value that can bear the name of a graph output: one that is an input, a constant, an output already, or
        of another scope goes through an Identity.  ``exported`` collects what has become an output here."""
        if not old.is_graph_output():
            return new
        producer, anchor = new.producer(), old.producer()
        assert anchor is not None
        foreign = producer is not None and producer.graph not in (None, anchor.graph)
        if producer is not None and not foreign and not new.is_graph_output() and new not in exported:
            exported.add(new)
            return new
        if len(self.match.nodes) == 1 and anchor.op_type == "Identity" and not anchor.domain:
            raise Refused("the Identity gives a graph output its name")
        return self.build.Identity(new)

    # -- committing ------------------------------------------------------------------------------------------

    def _name_nodes(self) -> None:
        """The node that computes the anchor's value takes over the anchor's name; all get their provenance."""
        metadata = provenance(self.match.nodes, self.rule.name)
        outermost = set(self.build.nodes)
        value, anchor = self.match.outputs[0], self.match.outputs[0].producer()
        assert anchor is not None
        base = anchor.name or value.name or self.rule.name
        for node in self.build.nodes:
            if node.outputs[0] is self.results[0] and len(anchor.outputs) == 1:
                node.name, anchor.name = base, self.work.names.fresh(f"{base}/replaced")
            else:
                node.name = self.work.names.within(base, node.op_type)
            node.metadata_props.update(metadata)
            for output in node.outputs:
                output.name = self.work.names.within(value.name or "", node.op_type)
        for inner in (n for n in with_inner(self.build.nodes) if n not in outermost):
            inner.name = self.work.names.fresh(f"{base}/{inner.op_type}")
            inner.metadata_props.update(metadata)
            for output in inner.outputs:
                output.name = self.work.names.fresh(f"{value.name}/{inner.op_type}")
        for taken in (v for n in with_inner(self.build.nodes) for body in subgraphs(n) for v in body.inputs):
            taken.name = self.work.names.fresh(f"{value.name}/step")
        for constant in self.build.constants:
            constant.name = self.work.names.fresh(f"{value.name}/const")

    def _place_constants(self, scope: ir.Graph) -> list[ir.Node]:
        """Constants that are used become initializers; a function cannot have those, so Constant nodes there."""
        used = [c for c in self.build.constants if c.uses() or c in self.results]
        if scope not in self.work.bodies:
            for constant in used:
                scope.register_initializer(constant)
            return []
        nodes = []
        for constant in used:
            assert constant.const_value is not None
            node = ir.Node("", "Constant", [], [ir.AttrTensor("value", constant.const_value)], name=constant.name)
            output = node.outputs[0]
            output.name, output.type, output.shape = constant.name, constant.type, constant.shape
            output.const_value = constant.const_value
            edit.redirect(constant, output)
            self.results = [output if r is constant else r for r in self.results]
            nodes.append(node)
        return nodes

    def _take_name(self, old: ir.Value, new: ir.Value) -> None:
        """A new value takes the name of the one it replaces; an older value keeps its own, unless the name is
        part of the interface."""
        built = new.producer() in self.build.nodes and not new.is_graph_output()
        if built or old.is_graph_output():
            name = old.name
            assert name is not None
            old.name = self.work.names.fresh(f"{name}/replaced")
            new.name = name
        if not new.metadata_props and old.metadata_props:
            new.metadata_props.update(old.metadata_props)


def _growth(match: Match, build: Builder) -> int:
    """The bytes of new constants, less those of the constants that the match reads."""
    read = {id(t): t for n in match.nodes for v in n.inputs if v is not None and (t := v.const_value) is not None}
    made = sum(c.const_value.nbytes for c in build.constants if c.const_value is not None)
    return max(0, made - sum(t.nbytes for t in read.values()))


def _refuse_if(reason: str | None) -> None:
    if reason is not None:
        raise Refused(reason)


def _graph_of(node: ir.Node) -> ir.Graph | None:
    """The graph that holds a node; None for one that was removed."""
    return node.graph if isinstance(node.graph, ir.Graph) else None
