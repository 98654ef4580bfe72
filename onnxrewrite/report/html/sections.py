"""The parts of the page that are read: tiles, tables and facts, made of the plain data in ``summary.py``.

All of it can be read without the page's script; that only draws the graphs and links them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from onnxrewrite.checks.findings import ModelFindings
from onnxrewrite.reference.judgement import ORIGINAL
from onnxrewrite.report import human
from onnxrewrite.report.html.markup import Markup, facts, folded, joined, table, tag
from onnxrewrite.report.html.near_misses import NearMissRow
from onnxrewrite.report.summary import RuleRow, Summary
from onnxrewrite.report.table import WARNINGS, apply_facts, how_equal, worst_first

_MAX_FACTS = 4
"""So many lines of one label are shown; the others are folded."""

_AS_EXACT = "as exact as the original's, within what is allowed"
_MAX_OPERATORS = 12
_MAX_REASONS = 3
_MAX_MISSES = 12
_MAX_PLACES = 50


def headline(data: Summary) -> str:
    """``145 rewrites``, ``No rule applied``."""
    count = sum(r["applied"] for r in data["rules"])
    return human.plural(count, "rewrite") if count else "No rule applied"


def verdict(data: Summary) -> tuple[str, str]:
    """The verdict at the top: ``good`` or ``warning``, and a sentence."""
    check = data["checks"]["model"]
    if data["checks"]["level"] == "off":
        return "warning", "The numbers were not checked: --check off."
    if check is None or check["skipped"] or not check["runs"]:
        return "warning", f"Checked in part ({data['checks']['reached']}): {data['checks']['why'] or 'nothing ran'}."
    if not check["ok"]:
        return "warning", "The result differs from the original."
    equal = "equal to the original's, bit by bit" if check["largest"] is None else _AS_EXACT
    undone = len(data["undone"])
    rest = f"; {human.plural(undone, 'rewrite')} that a check turned down {'was' if undone == 1 else 'were'} undone"
    runs = human.plural(check["runs"], "run")
    return "good", f"Every output is {equal}, in {runs} of the whole model{rest if undone else ''}."


def tiles(data: Summary) -> Markup:
    """The figures: rewrites, nodes, size, error, time."""
    nodes, size = data["nodes"], data["size"]
    found = [
        tile("Rewrites", str(len(data["sites"])), human.plural(_kinds(data), "rule")),
        tile("Nodes", f"{nodes['before']} → {nodes['after']}", human.change(nodes["before"], nodes["after"])),
        tile(
            "Size",
            f"{human.size(size['before'])} → {human.size(size['after'])}",
            human.change(size["before"], size["after"]),
        ),
    ]
    check = data["checks"]["model"]
    if check is not None and check["runs"] and not check["skipped"]:
        worst = check["largest"]
        found.append(
            tile("Largest error", "none", how_equal(check))
            if worst is None
            else tile("Largest error", human.error(worst["error"]), f"allowed: {human.error(worst['allowed'])}")
        )
    ratio = data["speed"]["ratio"]
    if ratio is not None:
        cost, median = data["speed"]["cost"], f"{ratio['median']:.2f} ×"
        interval = f"{ratio['low']:.2f} to {ratio['high']:.2f} of the original's"
        found.append(tile("Cost", median, f"by {cost}") if cost else tile("Time", median, interval))
    return tag("ul", *found, class_="tiles")


def tile(label: str, figure: str, note: str) -> Markup:
    """A figure between what it is and what there is to say of it."""
    return tag("li", tag("span", label), tag("strong", figure), tag("small", note or "\u00a0"))


def _kinds(data: Summary) -> int:
    return sum(bool(r["applied"]) for r in data["rules"])


def changed(data: Summary) -> Markup:
    """The rules that did something, those that only tidied up or refused, and the operators before and after."""
    rules = sorted(data["rules"], key=lambda r: not (r["applied"] or r["undone"]))
    active = [r for r in rules if r["undone"] or (r["applied"] and r["stage"] != "canonicalize")]
    tidied = [r for r in rules if r["applied"] and r not in active]
    idle = [r for r in rules if not r["applied"] and not r["undone"]]
    parts: list[object] = [_rules(active)] if active else [tag("p", "No rule found anything to fuse.")]
    if tidied:
        applied = human.plural(sum(r["applied"] for r in tidied), "time")
        parts.append(folded(f"{human.plural(len(tidied), 'canonicalization')}, applied {applied}", _rules(tidied)))
    if idle:
        refused = human.plural(sum(r["refused"] for r in idle), "place")
        parts.append(
            folded(f"{human.plural(len(idle), 'rule')} that refused {refused} and changed nothing", _rules(idle))
        )
    return tag("div", tag("div", *parts), tag("div", operators(data)), class_="columns")


def _rules(rules: Sequence[RuleRow]) -> Markup:
    has_undone = any(r["undone"] for r in rules)
    columns = ["rule", "applied>", "refused>", *(["undone>"] if has_undone else [])]
    rows = []
    for rule in rules:
        name = tag("code", rule["rule"])
        button = tag("button", name, type="button", class_="link", data_rule=rule["rule"])
        undone = [tag("b", rule["undone"], class_="warning") if rule["undone"] else _none()] if has_undone else []
        counts = [rule[key] or _none() for key in ("applied", "refused")]
        rows.append([joined([button if rule["applied"] else name, _reasons(rule["reasons"])]), *counts, *undone])
    return table(columns, rows)


def _none() -> Markup:
    return tag("span", "–", class_="faint")


def _reasons(reasons: Mapping[str, int]) -> Markup:
    lines = [tag("div", f"{count}× {reason}", class_="faint small") for reason, count in reasons.items()]
    if len(lines) <= _MAX_REASONS + 1:
        return joined(lines)
    rest = lines[_MAX_REASONS:]
    return joined([*lines[:_MAX_REASONS], folded(f"{human.plural(len(rest), 'other reason')}", *rest)])


def operators(data: Summary) -> Markup:
    """Operators before and after: those that changed, and the others when they are asked for."""
    before, after = data["operators"]["before"], data["operators"]["after"]
    rows = {n: (before.get(n, 0), after.get(n, 0)) for n in sorted({*before, *after})}
    moved = sorted((n for n, (old, new) in rows.items() if old != new), key=lambda n: (rows[n][0] == 0, n))
    moved.sort(key=lambda n: -abs(rows[n][1] - rows[n][0]))
    shown, folded_names = moved[:_MAX_OPERATORS], [*moved[_MAX_OPERATORS:], *(n for n in rows if n not in moved)]
    parts = [_operators(shown, rows)] if shown else [tag("p", "The same operators, as often as before.")]
    if folded_names:
        parts.append(folded(f"{human.plural(len(folded_names), 'other operator')}", _operators(folded_names, rows)))
    return joined(parts)


def _operators(names: Iterable[str], rows: Mapping[str, tuple[int, int]]) -> Markup:
    made = []
    for name in names:
        old, new = rows[name]
        made.append([tag("code", name), old or _none(), new or _none(), human.signed(new - old)])
    return table(["operator", "before>", "after>", "change>"], made)


def checked(data: Summary) -> Markup:
    """The speed, the error, the extent of the checks, undone rewrites: as the terminal shows them, and every output."""
    lines = [
        pair for pair in apply_facts(data, verbose=True) if pair[0] != "Seconds"
    ]  # the page says no times of a run
    parts = [facts(_short(lines), WARNINGS)]
    check = data["checks"]["model"]
    if check is not None and check["outputs"]:
        count = human.plural(len(check["outputs"]), "output")
        parts.append(folded(f"The error of {'each of ' if len(check['outputs']) > 1 else ''}{count}", _outputs(check)))
    return joined(parts)


def _short(lines: Sequence[tuple[str, str]]) -> Iterable[tuple[str, object]]:
    """The lines, where one label has many all but the first folded."""
    labels = dict.fromkeys(label for label, _ in lines)
    for label in labels:
        texts = [text for name, text in lines if name == label]
        yield from ((label, text) for text in texts[:_MAX_FACTS])
        if len(texts) > _MAX_FACTS:
            yield label, folded(f"{len(texts) - _MAX_FACTS} more", *(tag("div", t) for t in texts[_MAX_FACTS:]))


def _outputs(check: ModelFindings) -> Markup:
    rows = []
    for output in worst_first(check["outputs"]):
        name = tag("code", output["name"])
        if output["equality"]:
            rows.append([name, "0", "", "", output["equality"]])
            continue
        error, own, allowed = (human.error(output[k]) for k in ("error", "error_original", "allowed"))
        shown = error if output["ok"] else tag("b", error, class_="warning")
        rows.append([name, shown, "" if output["reference"] == ORIGINAL else own, allowed, output["reference"]])
    return table(["output", "error>", "original's own>", "allowed>", "against"], rows)


def missed(near: Sequence[NearMissRow]) -> Markup:
    """The near misses, rule by rule; ``near`` is the result of ``near_misses.near_misses``."""
    if not near:
        return tag("p", "Nothing: no rule came near anywhere where it was not applied.")
    items = [tag("li", *_miss(each)) for each in near]
    more = items[_MAX_MISSES:]
    parts: list[object] = [tag("ul", *items[:_MAX_MISSES], class_="misses")]
    if more:
        parts.append(folded(f"{len(more)} more", tag("ul", *more, class_="misses")))
    return joined(parts)


def _miss(each: NearMissRow) -> list[object]:
    """The rule, how near it came, what is in the way, and where."""
    have = "the whole pattern" if each["guard"] else f"{each['matched']} of {each['operators']} operators"
    told = f", {human.plural(len(each['places']), 'place')}, {have}"
    head = tag("div", tag("code", each["rule"]), tag("span", told, class_="faint"))
    return [head, tag("div", each["reason"]), tag("div", _places(each["places"]), class_="small")]


def _places(places: Sequence[tuple[str, int, int]]) -> Markup:
    """Links to nodes; where there are many, the search of the page finds the others by name."""
    links: list[object] = []
    for value, before, after in places[:_MAX_PLACES]:
        side, number = ("after", after) if after >= 0 else ("before", before)
        name = tag("code", value)
        about = {"type": "button", "class_": "link", "data_side": side, "data_node": number}
        links.append(tag("button", name, **about) if number >= 0 else name)
    if len(links) <= 1:
        return joined(links)
    rest = len(places) - len(links)
    more = [tag("div", f"and {rest} more")] if rest else []
    return joined([links[0], folded(f"{len(places) - 1} more", *(tag("div", link) for link in links[1:]), *more)])
