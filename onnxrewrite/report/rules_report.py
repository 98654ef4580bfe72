"""The report of ``rules``: tables of all rules and rule sets, and a page about one."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from onnxrewrite.pattern.terms import notation
from onnxrewrite.report.human import plural
from onnxrewrite.report.table import facts_grid, plain_table
from onnxrewrite.rewrite.rule import Example, Rejects, Rule
from onnxrewrite.rewrite.ruleset import RuleSet

_LOOSE = "onnxrewrite_rules_"
"""The prefix that the registry gives the modules of loose files."""


def rule_list(rules: RuleSet, sets: Iterable[RuleSet] = ()) -> RenderableType:
    """All rules, by stage and name, and the sets that can be asked for: not those that a rule shares its name with."""
    table = plain_table("rule", "stage", "what it does", "from")
    table.columns[0].no_wrap = table.columns[1].no_wrap = True
    for rule in sorted(rules, key=lambda r: (r.stage, r.name)):
        table.add_row(Text(rule.name), Text(_stage(rule)), Text(rule.summary.rstrip(".") or "-"), Text(package(rule)))
    parts: list[RenderableType] = [table, ""]
    shown = sorted((s for s in sets if s.name not in rules), key=lambda s: s.name)
    if shown:
        parts += [_set_table(shown), ""]
    return Group(*parts, Text(f"{len(rules)} rules; onnxrewrite rules NAME shows one of them, or a rule set", "dim"))


def _set_table(sets: Sequence[RuleSet]) -> RenderableType:
    table = plain_table("rule set", "rules>", "what it is about")
    table.columns[0].no_wrap = True
    for each in sets:
        table.add_row(Text(each.name), str(len(each)), Text(each.doc.partition("\n")[0].rstrip(".") or "-"))
    return table


def catalogue(
    rules: Iterable[Rule],
    served: Mapping[str, Iterable[str]] | None = None,
    effects: Mapping[str, Mapping[str, float]] | None = None,
) -> str:
    """All rules as Markdown: a section for each file, a line for each rule.

    What a rule asks for is told in the words of its examples of what is kept.

    Args:
        rules: The rules.
        served: Rule to the models in which it applies; without it there is no such column.
        effects: Rule to what it was measured to gain, as ``benchmarks/effects.py`` keeps it; likewise.
    """
    by_module: dict[str, list[Rule]] = {}
    for rule in sorted(rules, key=lambda r: (_module(r), r.stage, r.name)):
        by_module.setdefault(_module(rule), []).append(rule)
    more: dict[str, Callable[[Rule], str]] = {}
    if served is not None:
        more["serves"] = lambda rule: ", ".join(served.get(rule.name, ()))
    if effects is not None:
        more["measured"] = lambda rule: _effect(effects.get(rule.name))
    columns = {**_COLUMNS, **more}
    lines = ["# The rules", "", f"{sum(map(len, by_module.values()))} rules, by family.  {_RENEWED}"]
    lines += ["", _LEGEND] if more else []
    for module, family in by_module.items():
        about = " ".join((inspect.getdoc(sys.modules.get(module)) or "").partition("\n\n")[0].split())
        lines += ["", f"## {module.rpartition('.')[2]}", "", f"`{module.replace('.', '/')}.py`: {about}", ""]
        lines += [_line(columns), _line("---" for _ in columns)]
        lines += [_line(_cell(tell(rule)) for tell in columns.values()) for rule in family]
    return "\n".join([*lines, ""])


_RENEWED = "`pytest --update-golden` renews this page; `onnxrewrite rules --markdown` makes it from the rules alone."

_LEGEND = """*Serves*: golden models in which the rule applies.  *Measured*: time after / time before of the kernels
that the rule had a part in, beside ONNX Runtime's own optimizations on its CPU provider: the geometric mean over so
many models, and the range; of several rules at one place the factor is of all together.  What is slower on a machine is
left out there by `apply`, which measures.  `python -m benchmarks.effects --write` measures anew."""

_COLUMNS: dict[str, Callable[[Rule], str]] = {
    "rule": lambda rule: f"`{rule.name}`",
    "stage": lambda rule: _stage(rule) + (", where measured to be faster" if rule.needs_speedup else ""),
    "formula": lambda rule: rule.summary.rstrip("."),
    "kept, for example, because": lambda rule: "; ".join(
        dict.fromkeys(e.because for e in rule.examples if isinstance(e, Rejects))
    ),
    "assumes": lambda rule: ", ".join(rule.assumes),
}


def _effect(found: Mapping[str, float] | None) -> str:
    if found is None:
        return ""
    spread = f"{found['lowest']:.2f} to {found['highest']:.2f}, " if found["models"] > 1 else ""
    return f"{found['factor']:.2f} ({spread}{plural(int(found['models']), 'model')})"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(content: str) -> str:
    return content.replace("|", "\\|").replace("][", "]\\[")


def rule_pages(rules: RuleSet) -> RenderableType:
    """A page about each, after what the set says of itself."""
    parts: list[RenderableType] = [Text(rules.doc), ""] if rules.doc else []
    for rule in rules:
        parts += [_page(rule), ""]
    return Group(*parts[:-1])


def package(rule: Rule) -> str:
    """The package that a rule comes from, or its file."""
    module = _module(rule)
    return Path(source(rule)).name if module.startswith(_LOOSE) else module.partition(".")[0]


def source(rule: Rule) -> str:
    """The file of a rule, ``?`` if nobody knows."""
    try:
        return rule.source
    except TypeError:  # the rewrite is an object that can be called, which has no source file
        return "?"


def _module(rule: Rule) -> str:
    return str(getattr(rule.rewrite, "__module__", None) or "?")


def _stage(rule: Rule) -> str:
    return rule.stage.name.lower()


def _page(rule: Rule) -> RenderableType:
    facts = [("Pattern", "\n".join(notation(rule.outputs)))]
    facts.append(("Stage", f"{_stage(rule)}: {_STAGES[_stage(rule)]}"))
    if rule.benefit:
        facts.append(("Benefit", f"{rule.benefit}; of rules that match at one value, the largest is tried first"))
    if rule.allow_shared:
        facts.append(("Shared", "applies where inner values are used elsewhere too"))
    if rule.needs_speedup:
        facts.append(("Measured", "applied only where that was measured to be faster"))
    if rule.assumes:
        facts.append(("Assumes", ", ".join(rule.assumes)))
    facts.append(("From", f"{package(rule)}, {source(rule)}"))
    parts: list[RenderableType] = [Text(rule.name, "bold")]
    if rule.doc:
        parts += [Padding(Text(rule.doc), (0, 0, 0, 2)), ""]
    parts.append(facts_grid(facts))
    for example in rule.examples:
        parts += ["", *_example(example)]
    return Group(*parts)


_STAGES = {
    "canonicalize": "one spelling for what means the same",
    "raise": "exporter spellings become the standard's own operators",
    "lower": "the standard's operators become what the target runs",
}


def _example(example: Example) -> list[RenderableType]:
    where = ", ".join([f"opset {example.opset}", *([example.target] if example.target != "onnxruntime-cpu" else [])])
    if isinstance(example, Rejects):
        return [
            _indented(f"Kept ({where}), because: {example.because}", "bold"),
            _code(example.graph),
        ]
    return [
        _indented(f"Rewritten ({where})", "bold"),
        _code(example.graph),
        _indented("to"),
        _code(example.to),
    ]


def _indented(text: str, style: str = "") -> RenderableType:
    return Padding(Text(text, style), (0, 0, 0, 2))


def _code(graph: str) -> RenderableType:
    """One statement a line."""
    lines = [line.strip() for line in re.split(r"\n|\s{2,}|(?<=;)\s*|(?<=[)}])\s*(?=\w[\w, ]* = )", graph.strip())]
    return Padding(Text("\n".join(line for line in lines if line)), (0, 0, 0, 6))
