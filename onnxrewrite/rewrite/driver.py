"""The driver: rules over a graph to a fixpoint, each rewrite a transaction.

A worklist of nodes; at each node the rules anchored at its operator, by benefit; for each match guard, build, check
legality, let the caller check the numbers, and only then touch the graph.  Nothing is undone, because nothing is done
before it is known to be right.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import onnx_ir as ir

from onnxrewrite.ir.facts import Facts
from onnxrewrite.ir.graph import scopes
from onnxrewrite.ir.target import Target
from onnxrewrite.pattern.match import Match, Refused
from onnxrewrite.pattern.recursive import RecursiveMatcher
from onnxrewrite.rewrite import edit, legality
from onnxrewrite.rewrite.build import Builder
from onnxrewrite.rewrite.rule import Rule, Stage
from onnxrewrite.rewrite.trace import Applied, Site, Trace, provenance

SiteCheck: TypeAlias = Callable[[Site], str | None]
"""Checks one rewrite before it is applied: None, or the reason why it is wrong."""

Progress: TypeAlias = Callable[[Stage, int, int], None]
"""Told of progress: the stage, nodes visited, nodes waiting."""

_LOOP = 32
"""A rule that rewrites one value so often, while the graph gets no smaller, is in a loop."""

_TOTAL = 10
"""At most so many rewrites per node of the original graph."""


@dataclass
class Limits:
    """What a repeated run must not do again.

    Attributes:
        quarantine: Sites, (rule, value name), that are not to be rewritten.
        at_most: Stop after so many rewrites; None for no limit.
    """

    quarantine: set[tuple[str, str]] = field(default_factory=set)
    at_most: int | None = None


class Driver:
    """Rewrites one model in place.

    Args:
        model: The model; overridable initializers have been set aside.
        rules: All rules, of any stage.
        target: What the result must run on.
        check: Called for every rewrite before it is applied.
        limits: What must not be done.
        progress: Told of progress.
    """

    def __init__(
        self,
        model: ir.Model,
        rules: Sequence[Rule],
        target: Target,
        *,
        check: SiteCheck | None = None,
        limits: Limits | None = None,
        progress: Progress | None = None,
    ):
        self.model = model
        self.rules = rules
        self.target = target
        self.trace = Trace()
        self._check = check
        self._limits = limits or Limits()
        self._progress = progress
        self._names = edit.Names(model)
        self._functions = {(f.domain, f.name) for f in model.functions.values()}
        self._facts: dict[ir.Graph | ir.Function, Facts] = {}
        for top in (model.graph, *model.functions.values()):
            facts = Facts(top, dict(top.opset_imports) or dict(model.opset_imports))
            inner = [g for g in scopes_of(top) if g is not top]
            self._facts.update(dict.fromkeys([top, *inner], facts))
        self._lowering = _by_anchor(r for r in rules if r.stage == Stage.LOWER)
        self._lowerable: dict[tuple[object, ...], str | None] = {}
        self._budget = _TOTAL * sum(len(g) for g in scopes(model)) + 1000

    # -- the stages ------------------------------------------------------------------------------------------

    def run(self) -> Trace:
        """Run every stage to its fixpoint.  Canonicalization stays active throughout."""
        for stage in Stage:
            if stage is Stage.CANONICALIZE or any(r.stage == stage for r in self.rules):
                self.run_stage(stage, [r for r in self.rules if r.stage in (Stage.CANONICALIZE, stage)])
        return self.trace

    def run_stage(self, stage: Stage, rules: Sequence[Rule]) -> None:
        """Apply ``rules`` until none of them applies any more."""
        by_anchor = _by_anchor(rules)
        depth = max((r.depth for r in rules), default=0)
        queue = _Worklist(n for g in scopes(self.model) for n in g)
        loops = _Loops(sum(len(g) for g in scopes(self.model)))
        visited = 0
        while queue and not self._exhausted():
            node = queue.pop()
            if node.graph is None:
                continue
            visited += 1
            if self._progress is not None and visited % 64 == 0:
                self._progress(stage, visited, len(queue))
            for rule in by_anchor.at(node):
                if node.graph is None:
                    break
                changed = self._try(rule, node, loops)
                if changed is not None:
                    queue.extend(_reach(changed, depth))
                    break
        self.trace.warnings.extend(loops.warnings)
        self._sort()

    def _exhausted(self) -> bool:
        done = len(self.trace.applied)
        if done >= self._budget:
            often = ", ".join(f"{name} ({n}×)" for name, n in self.trace.counts().most_common(3))
            self.trace.warnings.append(f"stopped after {done} rewrites; most often applied: {often}")
            return True
        return self._limits.at_most is not None and done >= self._limits.at_most

    def _sort(self) -> None:
        """A rewrite of several outputs may leave its nodes below a reader; sorting is stable."""
        self.model.graph.sort()
        for function in self.model.functions.values():
            function.sort()

    # -- one rule at one node --------------------------------------------------------------------------------

    def _try(self, rule: Rule, node: ir.Node, loops: _Loops) -> list[ir.Node] | None:
        """Apply ``rule`` at the first match that passes; the nodes it changed, or None."""
        assert node.graph is not None
        matcher = RecursiveMatcher(self._facts[node.graph], node.graph)
        for output in node.outputs:
            key = (rule.name, output.name or "")
            if key in self._limits.quarantine or loops.has(key):
                continue
            for match in matcher.matches(rule.outputs, output):
                changed = self._transaction(rule, match, node.graph, loops)
                if changed is not None:
                    return changed
        return None

    def _transaction(
        self, rule: Rule, match: Match, graph: ir.Graph | ir.Function, loops: _Loops
    ) -> list[ir.Node] | None:
        """Guard, build, check, commit."""
        name = match.outputs[0].name or ""
        build = Builder(match.facts, match, self._imports(graph))
        try:
            results = self.propose(rule, match, build)
            site = self._site(rule, match, build, results, graph)
            if self._check is not None:
                wrong = self._check(site)
                if wrong is not None:
                    self.trace.failed[site.key] = wrong
                    raise Refused(f"check failed: {wrong}")
        except Refused as refusal:
            build.discard()
            self.trace.refuse(rule.name, name, refusal.reason)
            return None
        return self._commit(rule, match, build, results, graph, loops)

    def propose(self, rule: Rule, match: Match, build: Builder) -> list[ir.Value]:
        """Build the replacement on the tape and check that it is legal; raises ``Refused``."""
        if not rule.keeps_shared:
            self._refuse_if(legality.shared_inside(match))
        known = match.facts.symbols()
        results = self._built(rule, match, build)
        self._refuse_if(match.overlooked(rule.mentioned))
        self._refuse_if(self._illegal(rule, match, build))
        minted = match.facts.symbols() - known
        for old, new in zip(match.outputs, results, strict=True):
            self._refuse_if(legality.wrong_result(match.facts, old, new, minted))
        if legality.makes_cycle(match, build.nodes, results):
            raise Refused("the replacement depends on what it replaces")
        return results

    def _built(self, rule: Rule, match: Match, build: Builder) -> list[ir.Value]:
        try:
            made = rule.rewrite(match, build)
        except Refused:
            raise
        except Exception as error:
            reason = f"the rule raised {type(error).__name__}: {error}"
            self.trace.warnings.append(f"{rule.name}: {reason} (at `{match.outputs[0].name}`)")
            raise Refused(reason) from error
        results = [made] if isinstance(made, ir.Value) else list(made or ())
        if len(results) != len(match.outputs) or not all(isinstance(r, ir.Value) for r in results):
            raise Refused(f"the rule must return {len(match.outputs)} values, it returned {made!r}")
        if match.remainder:
            results[0] = _with_remainder(rule, match, build, results[0])
        if all(new is old for new, old in zip(results, match.outputs, strict=True)):
            raise Refused("there is nothing to change")
        return [_exportable(old, new, match, build) for old, new in zip(match.outputs, results, strict=True)]

    def _illegal(self, rule: Rule, match: Match, build: Builder) -> str | None:
        graph = match.outputs[0].producer().graph  # type: ignore[union-attr]
        imports = self._imports(graph) if graph is not None else {}
        for node in build.nodes:
            reason = legality.illegal_node(node, match.facts, self.target, imports, self._functions)
            if reason is not None and not (rule.stage < Stage.LOWER and self._can_lower(node, match.facts, imports)):
                return reason
        return None

    def _can_lower(self, node: ir.Node, facts: Facts, imports: dict[str, int]) -> bool:
        """Whether some rule of the lower stage makes ``node`` legal; tried on the tape and taken back."""
        for rule in self._lowering.at(node):
            matcher = RecursiveMatcher(facts, node.graph)  # type: ignore[arg-type]
            for match in matcher.matches(rule.outputs, node.outputs[0]):
                build = Builder(facts, match, imports)
                try:
                    self._built(rule, match, build)
                    if all(
                        legality.illegal_node(n, facts, self.target, imports, self._functions) is None
                        for n in build.nodes
                    ):
                        return True
                except Refused:
                    continue
                finally:
                    build.discard()
        return False

    def _site(
        self, rule: Rule, match: Match, build: Builder, results: list[ir.Value], graph: ir.Graph | ir.Function
    ) -> Site:
        return Site(
            rule=rule.name,
            value=match.outputs[0].name or "",
            scope=graph.name or "",
            before=_topological(match.nodes),
            after=tuple(build.nodes),
            outputs=match.outputs,
            results=tuple(results),
            opset_imports=self._imports(graph),
            facts=match.facts,
        )

    # -- commit ----------------------------------------------------------------------------------------------

    def _commit(
        self,
        rule: Rule,
        match: Match,
        build: Builder,
        results: list[ir.Value],
        graph: ir.Graph | ir.Function,
        loops: _Loops,
    ) -> list[ir.Node]:
        """Put the tape into the graph in place of the match; the nodes that changed."""
        facts = match.facts
        anchor = min((o.producer() for o in match.outputs), key=lambda n: _place(graph, n)) if len(
            match.outputs
        ) > 1 else match.outputs[0].producer()
        assert anchor is not None
        name = match.outputs[0].name or ""
        before = tuple(n.name or n.op_type for n in match.nodes)
        self._name(rule, match, build, results)
        constants = self._place_constants(build, results, graph)
        graph.insert_before(anchor, [*constants, *build.nodes])
        readers: dict[ir.Node, None] = {}
        for old, new in zip(match.outputs, results, strict=True):
            learnt = facts.inherit(new, old)
            self._take_name(old, new, built=new.producer() in build.nodes)
            readers.update(dict.fromkeys(edit.redirect(old, new)))
            if learnt and new.producer() is not None:
                readers.update(dict.fromkeys(new.consumers()))
        removed, touched = edit.sweep(match.nodes)
        for node in removed:
            for output in node.outputs:
                facts.forget(output)
        sharper = facts.refresh(readers)
        record = Applied(
            rule=rule.name,
            stage=rule.stage.name.lower(),
            value=name,
            scope=graph.name or "",
            before=before,
            after=tuple(n.op_type for n in build.nodes),
            values=tuple(o.name or "" for n in build.nodes for o in n.outputs),
        )
        self.trace.applied.append(record)
        loops.count(record.key, len(build.nodes) - len(removed))
        neighbours = [c for v in touched for c in (*v.consumers(), v.producer()) if c is not None]
        return [*build.nodes, *readers, *sharper, *neighbours, *match.nodes]

    def _name(self, rule: Rule, match: Match, build: Builder, results: list[ir.Value]) -> None:
        metadata = provenance(match.nodes, rule.name)
        anchor = match.outputs[0].producer()
        assert anchor is not None
        base = anchor.name or match.outputs[0].name or rule.name
        for node in build.nodes:
            if node.outputs[0] is results[0] and len(anchor.outputs) == 1:
                node.name, anchor.name = base, self._names.fresh(f"{base}/replaced")
            else:
                node.name = self._names.fresh(f"{base}/{node.op_type}")
            node.metadata_props.update(metadata)
            for output in node.outputs:
                output.name = self._names.fresh(f"{match.outputs[0].name}/{node.op_type}")
        for constant in build.constants:
            constant.name = self._names.fresh(f"{match.outputs[0].name}/const")

    def _place_constants(
        self, build: Builder, results: list[ir.Value], graph: ir.Graph | ir.Function
    ) -> list[ir.Node]:
        """Constants that are used become initializers; a function cannot have those, so Constant nodes there."""
        used = [c for c in build.constants if c.uses() or c in results]
        if isinstance(graph, ir.Graph):
            for constant in used:
                graph.register_initializer(constant)
            return []
        nodes = []
        for constant in used:
            node = ir.Node("", "Constant", [], [ir.AttrTensor("value", constant.const_value)])  # type: ignore[arg-type]
            node.outputs[0].name, node.name = constant.name, constant.name
            node.outputs[0].type, node.outputs[0].shape = constant.type, constant.shape
            edit.redirect(constant, node.outputs[0])
            nodes.append(node)
        return nodes

    def _take_name(self, old: ir.Value, new: ir.Value, built: bool) -> None:
        """A new value takes the name of the one it replaces; an older value keeps its own, unless the name is
        part of the interface."""
        if built or old.is_graph_output():
            name = old.name
            assert name is not None
            old.name = self._names.fresh(f"{name}/replaced")
            new.name = name
        if not new.metadata_props and old.metadata_props:
            new.metadata_props.update(old.metadata_props)

    def facts(self, graph: ir.Graph | ir.Function) -> Facts:
        """What is known about the values of one scope."""
        return self._facts[graph]

    def _imports(self, graph: ir.Graph | ir.Function) -> dict[str, int]:
        return self._facts[graph].opset_imports

    @staticmethod
    def _refuse_if(reason: str | None) -> None:
        if reason is not None:
            raise Refused(reason)


def scopes_of(top: ir.Graph | ir.Function) -> list[ir.Graph | ir.Function]:
    """``top`` and the subgraphs inside of it."""
    return [top, *top.subgraphs()]


class _ByAnchor:
    """Rules by the operator that they are anchored at, by benefit and then by name."""

    def __init__(self, rules: Iterable[Rule]):
        self._by_op: dict[str, list[Rule]] = {}
        self._any: list[Rule] = []
        for rule in sorted(rules, key=lambda r: (-r.benefit, r.name)):
            if rule.anchors is None:
                self._any.append(rule)
            for op_type in rule.anchors or ():
                self._by_op.setdefault(op_type, []).append(rule)

    def at(self, node: ir.Node) -> Iterator[Rule]:
        """The rules that could match at ``node``."""
        rules = [*self._by_op.get(node.op_type, ()), *self._any]
        yield from sorted(rules, key=lambda r: (-r.benefit, r.name)) if self._any else rules


def _by_anchor(rules: Iterable[Rule]) -> _ByAnchor:
    return _ByAnchor(rules)


class _Worklist:
    """Nodes to visit, in order, each waiting at most once."""

    def __init__(self, nodes: Iterable[ir.Node]):
        self._queue: deque[ir.Node] = deque()
        self._waiting: set[ir.Node] = set()
        self.extend(nodes)

    def __len__(self) -> int:
        return len(self._queue)

    def extend(self, nodes: Iterable[ir.Node]) -> None:
        for node in nodes:
            if node not in self._waiting and node.graph is not None:
                self._waiting.add(node)
                self._queue.append(node)

    def pop(self) -> ir.Node:
        node = self._queue.popleft()
        self._waiting.discard(node)
        return node


class _Loops:
    """Finds rules that undo each other: one value rewritten again and again while the graph gets no smaller."""

    def __init__(self, size: int):
        self._size = self._smallest = size
        self._counts: Counter[tuple[str, str]] = Counter()
        self._stopped: set[tuple[str, str]] = set()
        self.warnings: list[str] = []

    def has(self, key: tuple[str, str]) -> bool:
        """Whether this rule has been stopped at this value."""
        return key in self._stopped

    def count(self, key: tuple[str, str], growth: int) -> None:
        """Count one rewrite at a value."""
        self._size += growth
        if self._size < self._smallest:
            self._smallest = self._size
            self._counts.clear()
        self._counts[key] += 1
        if self._counts[key] > _LOOP:
            partners = {k for k, n in self._counts.items() if n >= _LOOP - 1 and k[1] == key[1]} | {key}
            self._stopped |= partners
            names = " and ".join(sorted({k[0] for k in partners}))
            self.warnings.append(f"{names} undo each other at `{key[1]}`: stopped after {_LOOP} rounds")
            self._counts.clear()


def _reach(nodes: Iterable[ir.Node], depth: int) -> list[ir.Node]:
    """``nodes`` and what lies up to ``depth`` consumers below them: where a pattern could now match."""
    found = dict.fromkeys(n for n in nodes if n.graph is not None)
    layer = list(found)
    for _ in range(depth):
        layer = [c for n in layer for o in n.outputs for c in o.consumers() if c not in found]
        if not layer:
            break
        found.update(dict.fromkeys(layer))
    return list(found)


def _topological(nodes: Sequence[ir.Node]) -> tuple[ir.Node, ...]:
    """Covered nodes, producers first."""
    members = set(nodes)
    done: dict[ir.Node, None] = {}

    def visit(node: ir.Node) -> None:
        if node in done:
            return
        for value in node.inputs:
            producer = value.producer() if value is not None else None
            if producer in members and producer is not None:
                visit(producer)
        done[node] = None

    for node in nodes:
        visit(node)
    return tuple(done)


def _place(graph: ir.Graph | ir.Function, node: ir.Node | None) -> int:
    return next((i for i, n in enumerate(graph) if n is node), -1)


def _with_remainder(rule: Rule, match: Match, build: Builder, result: ir.Value) -> ir.Value:
    """Put back what a longer chain had left over: ``result * rest`` or ``result + rest``."""
    from onnxrewrite.pattern.terms import Product

    is_product = isinstance(rule.outputs[0], Product)
    for value, sign in match.remainder:
        op_type = ("Mul" if sign > 0 else "Div") if is_product else ("Add" if sign > 0 else "Sub")
        result = build.node(op_type, [result, value])
    return result


def _exportable(old: ir.Value, new: ir.Value, match: Match, build: Builder) -> ir.Value:
    """A value that can bear the name of a graph output: one that is an input, a constant, an output already, or
    of another scope goes through an Identity."""
    if not old.is_graph_output():
        return new
    producer, anchor = new.producer(), old.producer()
    assert anchor is not None
    foreign = producer is not None and producer.graph not in (None, anchor.graph)
    if producer is not None and not foreign and not new.is_graph_output():
        return new
    if len(match.nodes) == 1 and anchor.op_type == "Identity" and not anchor.domain:
        raise Refused("the Identity gives a graph output its name")
    result: ir.Value = build.node("Identity", [new])
    return result
