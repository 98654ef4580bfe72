"""The reasons why rules do not apply, and the story of a node, for people; made of the data of ``explanation``."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from onnxrewrite.explanation.history import StoryReport
from onnxrewrite.explanation.near_miss import ExplanationReport, ReasonRow
from onnxrewrite.explanation.offers import OfferRow
from onnxrewrite.explanation.ranking import RankedRow
from onnxrewrite.report.human import listed
from onnxrewrite.report.table import facts_grid, plain_table

_GROUPS, _PLACES = 6, 3

_ROWS = 40
"""So many rules are shown of an overview."""


def explanation_report(data: ExplanationReport, model: str, *, verbose: bool = False) -> RenderableType:
    """One rule in a model: where it applies, and each reason with the places that have it."""
    applied, groups = data["applied"], data["groups"]
    head = f"applies at {_times(len(applied))}" if applied else "does not apply"
    parts: list[RenderableType] = [Text.assemble((data["rule"], "bold"), f" {head} in ", (model, "bold")), ""]
    for group in groups if verbose else groups[:_GROUPS]:
        parts += [_group(group, verbose=verbose), ""]
    if len(groups) > _GROUPS and not verbose:
        parts.append(Text(f"{len(groups) - _GROUPS} other reasons, see -v", "dim"))
    if not groups:
        parts.append(Text("It does not come near anywhere." if not applied else "Nothing else comes near.", "dim"))
    if data["newer"]:
        opset, names = max(data["newer"].values()), listed(data["newer"], _PLACES)
        told = f"apply may bring the model to opset {opset}, for {names}: --opset {opset} tells what is found there"
        parts.append(Text(told, "dim"))
    return Group(*parts)


def _group(group: ReasonRow, *, verbose: bool) -> RenderableType:
    """One reason."""
    places = group["places"]
    first = places[0]
    have = "the whole pattern" if first["guard"] else f"{first['matched']} of {first['operators']} operators"
    shown = places if verbose else places[:_PLACES]
    names = [f"`{p['node']}`" + (f" ({p['source']})" if p["source"] else "") for p in shown]
    more = f", and {len(places) - len(shown)} more" if len(places) > len(shown) else ""
    facts = [
        (f"{len(places)} ×", f"{have}: {first['reason']}"),
        ("at", ", ".join(names) + more),
    ]
    if first["otherwise"]:
        facts.append(("without that", first["otherwise"]))
    return Padding(facts_grid(facts), (0, 0, 0, 2))


def near_misses_table(rows: Sequence[RankedRow], *, verbose: bool = False) -> RenderableType:
    """All rules that came near: places, what they would save where that was measured, and the first reason.

    Canonicalizations look at every place where they could have something to do; they are one line unless ``verbose``.
    """
    shown = [r for r in rows if verbose or r["stage"] != "canonicalize"]
    timed = any(r["gain"] is not None for r in shown)
    table = plain_table("rule", "applied>", "near>", *(["saves at most>"] if timed else []), "first reason")
    for row in shown:
        gain = [f"{(row['gain'] or 0.0) * 1e6:.0f} µs"] if timed else []
        table.add_row(Text(row["rule"]), str(row["applied"]), str(row["near"]), *gain, Text(row["reason"]))
    parts: list[RenderableType] = [Padding(table, (0, 0, 0, 2))] if shown else [Text("No rule comes near.")]
    if len(shown) < len(rows):
        parts += ["", Text(f"{len(rows) - len(shown)} canonicalizations, see -v", "dim")]
    return Group(*parts)


def overview_table(rows: Sequence[RankedRow], model: str, *, verbose: bool = False) -> RenderableType:
    """Every rule that applies or comes near in a line: how often, and what keeps it from the nearest other place.

    Unless ``verbose``, canonicalizations that do not apply are left out, and so is what comes after forty lines; a
    reason is cut to its line, and where it ends in the nodes around, told without them.
    """
    shown = [r for r in rows if verbose or r["applied"] or r["stage"] != "canonicalize"]
    cut = shown if verbose else shown[:_ROWS]
    table = plain_table("rule", "applied>", "near>", "at the nearest")
    table.expand, table.columns[0].no_wrap, table.columns[-1].ratio = True, True, 1
    table.columns[-1].no_wrap, table.columns[-1].overflow = not verbose, "fold" if verbose else "ellipsis"
    for row in cut:
        reason = row["reason"] if verbose else row["reason"].partition(", in ")[0]
        table.add_row(Text(row["rule"]), str(row["applied"]), str(row["near"]), Text(reason or "-"))
    applied = sum(1 for r in rows if r["applied"])
    head = Text.assemble((model, "bold"), f": {applied} rules apply, {len(rows) - applied} more come near")
    parts: list[RenderableType] = [head, "", Padding(table, (0, 0, 0, 2))]
    if len(cut) < len(rows):
        parts += ["", Text(f"{len(rows) - len(cut)} more rules, see -v", "dim")]
    return Group(*parts, "", Text("onnxrewrite explain MODEL RULE tells of one of them every place.", "dim"))


def offers_lines(offered: Sequence[OfferRow]) -> RenderableType:
    """The gain of each assumption that is not made: rules that would apply, and nodes that would be left."""
    facts = []
    for each in offered:
        rules = ", ".join(f"{name} at {_times(count)} more" for name, count in each["rules"].items())
        facts.append((f"--assume {each['option']}", f"that {each['assumption']}"))
        facts.append(("", f"{rules}; {each['before']} nodes become {each['after']}"))
    return Group("", Text("Under an assumption about the data that no rule makes unasked:"), facts_grid(facts))


def story_report(data: StoryReport) -> RenderableType:
    """The story of one node."""
    state = "is in the result" if data["is_there"] else "is not in the result"
    source = f", from {data['source']}" if data["source"] else ""
    parts: list[RenderableType] = [Text.assemble((data["name"], "bold"), f", {data['operator']}{source}, {state}"), ""]
    facts = []
    if data["rules"]:
        facts.append(("Made by", ", ".join(data["rules"])))
    if data["origin"]:
        facts.append(("Stands for", ", ".join(data["origin"])))
    for step in data["steps"]:
        part = "built by" if step["made"] else "taken by"
        after = ", ".join(step["after"]) or "nothing"
        facts.append((part, f"{step['rule']}: {', '.join(step['before'])} became {after}"))
    facts += [("Refused by", f"{rule}: {reason}") for rule, reason in data["refused"].items()]
    return Group(*parts, facts_grid(facts or [("No rule", "took it in, and none refused it")]))


def _times(count: int) -> str:
    return "1 place" if count == 1 else f"{count} places"
