"""Loads the rules of onnxscript that a text means, and names them for use here."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

import onnxscript.rewriter as theirs
from onnxscript.rewriter import RewriteRule, RewriteRuleClassBase, RewriteRuleSet
from onnxscript.rewriter.ort_fusions import _core

from onnxrewrite.errors import RuleError, foreign
from onnxrewrite.interop.onnxscript.adapt import adapt
from onnxrewrite.rewrite.registry import load_module
from onnxrewrite.rewrite.rule import Rule, Stage
from onnxrewrite.rewrite.ruleset import RuleSet

PREFIX = "onnxscript"

_FUSIONS = "onnxscript.rewriter.ort_fusions"
"""The package of the rules that are made for ONNX Runtime."""

_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[^A-Za-z0-9]+")
"""The word boundaries in a name of theirs: CamelCase and snake_case."""

_NUMBERED = re.compile(r"_?rule_?\d*")
"""A variable that says nothing of the rule in it."""


@functools.cache
def load(name: str) -> RuleSet:
    """The rules that ``onnxscript:NAME`` means, adapted, as a set called ``onnxscript/NAME``.

    Args:
        name: ``default``, ``ort_fusions``, a rule file, or the name of a module or of what one holds: a rule, a rule
            set, a class of rules, a list of these, or a function that gives one of them.

    Raises:
        RuleError: There is no such thing, or it is no rule.
    """
    source, found = _found(name)
    rules = [*dict.fromkeys(found)]
    if not rules:
        raise RuleError(f"onnxscript:{name}: holds no rule of onnxscript")
    told, seen = dict[RewriteRule, str](), Counter[str]()
    for rule in rules:
        base = _kebab(rule.name or _attribute(rule) or "-".join(_operators(rule)))
        seen[base] += 1
        told[rule] = base if seen[base] == 1 else f"{base}-{seen[base]}"
    return RuleSet(f"{PREFIX}/{_kebab(source)}", _adapted(told), f"Rules of onnxscript: {name}.")


def _adapted(names: Mapping[RewriteRule, str]) -> Iterator[Rule]:
    """In their order: of two that match at one value, onnxscript applies the one that stands first."""
    for place, (rule, name) in enumerate(names.items()):
        stage = Stage.LOWER if _module(rule).startswith(_FUSIONS) else Stage.CANONICALIZE
        yield adapt(rule, name=f"{PREFIX}/{name}", stage=stage, benefit=-place)


# -- from a name to rules ------------------------------------------------------------------------------------------


def _found(name: str) -> tuple[str, list[RewriteRule]]:
    """The name of the set, and its rules."""
    if name == "default":
        return name, list(theirs._DEFAULT_REWRITE_RULES)
    if name == "ort_fusions":
        return name, list(_fusions())
    if name.endswith(".py"):
        module = load_module(name)
        return name.rpartition("/")[2].removesuffix(".py"), list(_rules_of(module, name))
    module, rest = _imported(name)
    value: Any = module
    for part in rest:
        if not hasattr(value, part):
            raise RuleError(f"onnxscript:{name}: {getattr(value, '__name__', part)} has no {part}")
        value = getattr(value, part)
    return name.rpartition(".")[2], list(_rules_of(value, name))


def _fusions() -> Iterator[RewriteRule]:
    """The rules of ``onnxscript.rewriter.ort_fusions.optimize_for_ort``, in its order, without the passes between them.

    Each fusion is a function with a rule set in its closure, and ``fuse_xformers`` says in which order they come.
    """
    names = _core.fuse_xformers.__code__.co_names
    for function in (vars(_core).get(name) for name in names):
        held = inspect.getclosurevars(function).nonlocals.get("rules") if inspect.isfunction(function) else None
        if isinstance(held, RewriteRule | RewriteRuleSet):
            yield from _rules_of(held, "ort_fusions")
    yield from _core.ORT_PATTERN_REWRITE_RULES


def _imported(name: str) -> tuple[ModuleType, list[str]]:
    """The longest beginning of a dotted name that is a module, and what is left."""
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts):
        raise RuleError(f"onnxscript:{name}: give default, ort_fusions, a .py file, or MODULE.ATTRIBUTE")
    for length in range(len(parts), 0, -1):
        try:
            return load_module(".".join(parts[:length])), parts[length:]
        except RuleError as error:
            if not str(error).startswith("no rule file or package"):
                raise RuleError(f"onnxscript:{error}") from error
    raise RuleError(f"onnxscript:{name}: no module is called {parts[0]!r}; its own are default and ort_fusions")


def _rules_of(value: object, name: str) -> Iterator[RewriteRule]:
    """The rules that something of theirs holds."""
    if isinstance(value, RewriteRule):
        yield value
    elif isinstance(value, RewriteRuleSet):
        yield from value.rules
    elif isinstance(value, RewriteRuleClassBase):
        yield _of_instance(value)
    elif isinstance(value, type) and issubclass(value, RewriteRuleClassBase):
        yield _called(value.rule, name)
    elif isinstance(value, ModuleType):
        yield from _of_module(value, name)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _rules_of(each, name)
    elif inspect.isfunction(value):
        yield from _rules_of(_called(value, name), name)
    else:
        raise RuleError(f"onnxscript:{name}: is a {type(value).__name__}, not a rule of onnxscript, a set, or a class")


def _of_module(module: ModuleType, name: str) -> Iterator[RewriteRule]:
    """The ``rules`` of a module, or else every rule and set among its globals, or else its own rule classes."""
    offered = getattr(module, "rules", None)
    if isinstance(offered, RewriteRuleSet | list | tuple):
        yield from _rules_of(offered, name)
        return
    held = [v for v in vars(module).values() if isinstance(v, RewriteRule | RewriteRuleSet)]
    for value in held or list(vars(module).values()):
        is_class = isinstance(value, type) and issubclass(value, RewriteRuleClassBase)
        if not is_class or (value.__module__ == module.__name__ and not inspect.isabstract(value)):
            yield from _rules_of(value, name) if is_class or isinstance(value, RewriteRule | RewriteRuleSet) else ()


def _of_instance(value: RewriteRuleClassBase) -> RewriteRule:
    """The rule that ``value.rule()`` gives, but of this instance and not of a new one."""
    return RewriteRule(
        value.pattern,
        value.rewrite,
        value.check,
        name=value.name,
        remove_nodes=value.remove_nodes,
        graph_pre_visitor=value.setup,
        graph_post_visitor=value.cleanup,
        as_function=value.as_function,
    )


def _called(function: Callable[[], object], name: str) -> Any:
    """The result of a function without arguments; RuleError if it raises."""
    try:
        with foreign():
            return function()
    except Exception as error:  # it is somebody else's
        told = " ".join(f"{type(error).__name__}: {error}".split())
        raise RuleError(f"onnxscript:{name}: cannot be made: {told}") from error


# -- what they are called ------------------------------------------------------------------------------------------


def _kebab(name: str) -> str:
    """A name of theirs as one of ours: ``FuseBatchNormIntoConv`` is ``fuse-batch-norm-into-conv``."""
    return "-".join(part.lower() for part in _WORD.split(name.removesuffix("_rule")) if part) or "rule"


def _module(rule: RewriteRule) -> str:
    """The module that a rule's replacement is written in."""
    return str(getattr(rule._replacement_pattern._function, "__module__", ""))


def _attribute(rule: RewriteRule) -> str | None:
    """The module's name for a rule that has none, or for the rule that it is a commuted copy of, or None."""
    module = sys.modules.get(_module(rule))
    if module is None:
        return None
    for name, value in vars(module).items():
        if isinstance(value, RewriteRule) and value._replacement_pattern is rule._replacement_pattern:
            return f"{module.__name__.rpartition('.')[2]}_{name}" if _NUMBERED.fullmatch(name) else name
    return None


def _operators(rule: RewriteRule) -> Iterable[str]:
    return (str(node.op_type) for node in rule._target_pattern)
