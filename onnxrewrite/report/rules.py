"""What ``rules`` shows: tables of all rules and rule sets, and a page about one."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from onnxrewrite.report.table import facts_grid, plain_table
from onnxrewrite.rewrite.rule import Example, Rejects, Rule
from onnxrewrite.rewrite.ruleset import RuleSet

_LOOSE = "onnxrewrite_rules_"
"""What the registry calls the modules of loose files."""


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


def catalogue(rules: Iterable[Rule]) -> str:
    """All rules as Markdown: a section for each file, a line for each rule.

    What a rule asks for is told in the words of its examples of what is kept.
    """
    by_module: dict[str, list[Rule]] = {}
    for rule in sorted(rules, key=lambda r: (_module(r), r.stage, r.name)):
        by_module.setdefault(_module(rule), []).append(rule)
    lines = ["# The rules", "", f"{sum(map(len, by_module.values()))} rules, by family.  {_RENEWED}"]
    for module, family in by_module.items():
        about = " ".join((inspect.getdoc(sys.modules.get(module)) or "").partition("\n\n")[0].split())
        lines += ["", f"## {module.rpartition('.')[2]}", "", f"`{module.replace('.', '/')}.py`: {about}", ""]
        lines += ["| rule | stage | formula | kept, for example, because | assumes |", "|---|---|---|---|---|"]
        lines += [f"| {' | '.join(map(_cell, _catalogued(rule)))} |" for rule in family]
    return "\n".join([*lines, ""])


_RENEWED = "`onnxrewrite rules --markdown` makes this page, `pytest --update-golden` renews it."


def _catalogued(rule: Rule) -> Iterator[str]:
    yield f"`{rule.name}`"
    yield _stage(rule) + (", where measured to be faster" if rule.only_faster else "")
    yield rule.summary.rstrip(".")
    yield "; ".join(dict.fromkeys(e.because for e in rule.examples if isinstance(e, Rejects)))
    yield ", ".join(rule.assumes)


def _cell(content: str) -> str:
    return content.replace("|", "\\|")


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
    facts = [("Pattern", ", ".join(map(repr, rule.outputs)))]
    facts.append(("Stage", f"{_stage(rule)}: {_STAGES[_stage(rule)]}"))
    if rule.benefit:
        facts.append(("Benefit", f"{rule.benefit}; of rules that match at one value, the largest is tried first"))
    if rule.keeps_shared:
        facts.append(("Shared", "applies where inner values are used elsewhere too"))
    if rule.only_faster:
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
    lines = [line.strip() for line in re.split(r"\n|\s{2,}|(?<=;)\s", graph.strip())]
    return Padding(Text("\n".join(line for line in lines if line)), (0, 0, 0, 6))
