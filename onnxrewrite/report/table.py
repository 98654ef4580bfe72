"""The report of ``apply`` and ``check`` for people, made of the plain data in ``summary.py``.

Compact, aligned, and as readable in black and white as in colour: colour only repeats what the words say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from onnxrewrite.checks.findings import ModelFindings, OutputFindings
from onnxrewrite.checks.structure import NO_KERNELS
from onnxrewrite.reference.judgement import ORIGINAL
from onnxrewrite.reference.tolerance import BITWISE, IN_VALUE
from onnxrewrite.report import human
from onnxrewrite.report.summary import ConflictRow, RuleRow, SiteRow, Summary, UndoneRow
from onnxrewrite.system.plain import Plain

_MAX_OPERATORS = 10
_MAX_REASONS = 2
_MAX_LINES = 5
_MAX_RULES = 3


def apply_report(data: Summary, *, verbose: bool = False) -> RenderableType:
    """The report of ``apply``; ``data`` is what ``summary`` returned."""
    parts: list[RenderableType] = [_heading(data), ""]
    if data["rules"]:
        parts += [rules_table(data["rules"], verbose=verbose), ""]
    parts += [operators_table(data, verbose=verbose), ""]
    if verbose:
        parts += _details(data)
    parts.append(facts_grid(apply_facts(data, verbose=verbose)))
    return Group(*parts)


def check_report(data: ModelFindings, a: str, b: str, *, verbose: bool = False) -> RenderableType:
    """The report of ``check``; ``data`` is what ``model_check`` returned."""
    parts: list[RenderableType] = [Text.assemble((a, "bold"), " against ", (b, "bold")), ""]
    if data["outputs"]:
        parts += [outputs_table(data["outputs"], limit=None if verbose else 20), ""]
    facts: list[tuple[str, str]] = []
    if data["runs"]:
        facts.append(("Compared", _runs(data)))
    if not data["identical"] and data["tolerance"]:
        facts.append(("Allowed", data["tolerance"]))
    facts += [("Note", note) for note in data["notes"]]
    facts += [("Differs", line) for line in data["failures"]]
    facts.append(("Result", verdict(data)))
    return Group(*parts, facts_grid(facts))


def rules_table(rules: Sequence[RuleRow], *, verbose: bool = False) -> RenderableType:
    """Rule, times applied, times refused and why; those that did something come first.

    Canonicalizations try many places; those that only refused are one line unless ``verbose``, but for those that
    somebody asked for.
    """
    has_undone = any(r["undone"] for r in rules)
    quiet = [r for r in rules if not verbose and _only_refused(r)]
    table = plain_table("rule", *(["stage"] if verbose else []), "applied>", "refused>")
    table.columns[0].no_wrap = True
    if has_undone:
        table.add_column("undone", justify="right", no_wrap=True)
    if any(r["reasons"] for r in rules):
        table.add_column("why not", overflow="fold", ratio=1)
    for rule in sorted((r for r in rules if r not in quiet), key=lambda r: not (r["applied"] or r["undone"])):
        cells = [Text(rule["rule"])]
        cells += [Text(rule["stage"])] if verbose else []
        cells += [_number(rule["applied"], "green"), _number(rule["refused"], "")]
        cells += [_number(rule["undone"], "bold red")] if has_undone else []
        table.add_row(
            *cells,
            *([_reasons(rule["reasons"], None if verbose else _MAX_REASONS)] if rule["reasons"] else []),
        )
    if quiet:
        refused = sum(r["refused"] for r in quiet)
        name = Text(f"{len(quiet)} other, see -v", "dim")
        table.add_row(name, "-", str(refused))
    return Padding(table, (0, 0, 0, 2))


def _only_refused(rule: RuleRow) -> bool:
    return not (rule["applied"] or rule["undone"] or rule["asked"] or rule["stage"] == "raise")


def operators_table(data: Summary, *, verbose: bool = False) -> RenderableType:
    """Operators, nodes and size before and after; what did not change is one line."""
    before, after = data["operators"]["before"], data["operators"]["after"]
    moved = {n: after.get(n, 0) - before.get(n, 0) for n in sorted({*before, *after})}
    changed = sorted((n for n in moved if moved[n]), key=lambda n: (-abs(moved[n]), n))
    shown = changed if verbose or len(changed) <= _MAX_OPERATORS + 1 else changed[:_MAX_OPERATORS]
    table = plain_table("operator", "before>", "after>", "change>")
    for name in shown:
        old, new = before.get(name, 0), after.get(name, 0)
        table.add_row(Text(name), _number(old, ""), _number(new, ""), human.signed(new - old))
    for rest, what in (
        ([n for n in changed if n not in shown], "other, changed"),
        ([n for n in moved if not moved[n]], "other, unchanged"),
    ):
        if rest and changed:
            old, new = (sum(side.get(n, 0) for n in rest) for side in (before, after))
            table.add_row(Text(f"{len(rest)} {what}", "dim"), str(old), str(new), human.signed(new - old))
    nodes, size = data["nodes"], data["size"]
    table.add_row(
        Text("nodes", "bold"),
        str(nodes["before"]),
        str(nodes["after"]),
        human.signed(nodes["after"] - nodes["before"]),
    )
    table.add_row(
        Text("size", "bold"),
        human.size(size["before"]),
        human.size(size["after"]),
        human.change(size["before"], size["after"]),
    )
    return Padding(table, (0, 0, 0, 2))


def outputs_table(outputs: Sequence[OutputFindings], limit: int | None = None) -> RenderableType:
    """Each output's error beside the original's own and what is allowed, the worst first."""
    worst = worst_first(outputs)
    table = plain_table("output", "error>", "original's own>", "allowed>", "against")
    for output in worst[:limit]:
        if output["equality"]:
            table.add_row(Text(output["name"]), "0", "", "", output["equality"])
            continue
        style = "" if output["ok"] else "bold red"
        numbers = [human.error(output[k]) for k in ("error", "error_original", "allowed")]
        numbers[1] = "" if output["reference"] == ORIGINAL else numbers[1]
        against = output["reference"] if output["error"] is not None else ""
        table.add_row(Text(output["name"], style), *(Text(n, style) for n in numbers), Text(against))
    if limit is not None and len(worst) > limit:
        table.add_row(Text(f"{len(worst) - limit} more", "dim"))
    return Padding(table, (0, 0, 0, 2))


def worst_first(outputs: Sequence[OutputFindings]) -> list[OutputFindings]:
    """Outputs by how wrong they are."""
    return sorted(outputs, key=lambda o: (o["ok"], -(o["error"] if o["error"] is not None else float("inf"))))


def plain_table(*columns: str) -> Table:
    """A table without lines; a column whose name ends in ``>`` holds numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        is_number = column.endswith(">")
        justify = "right" if is_number else "left"
        table.add_column(column.rstrip(">"), justify=justify, no_wrap=is_number, overflow="fold")  # type: ignore[arg-type]
    return table


def facts_grid(facts: Iterable[tuple[str, str]]) -> RenderableType:
    """Labelled lines; equal labels that follow each other are printed once."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    last = ""
    for label, text in facts:
        grid.add_row(Text("" if label == last else label, _STYLES.get(label, "bold")), Text(text, overflow="fold"))
        last = label
    return Padding(grid, (0, 0, 0, 2))


_STYLES = {
    "Undone": "bold red",
    "Differs": "bold red",
    "Degraded": "bold yellow",
    "Unchecked": "bold yellow",
    "Unmeasured": "bold yellow",
    "Left out": "bold yellow",
    "Note": "bold yellow",
}

WARNINGS = frozenset(_STYLES)
"""Labels of what a reader should not overlook."""


def _heading(data: Summary) -> Text:
    count = sum(r["applied"] for r in data["rules"])
    done = human.plural(count, "rewrite") if count else "no rule applied"
    rest = f": {done}, for {data['target']}, opset {data['opset']}"
    return Text.assemble((data["model"] or "model", "bold"), rest, no_wrap=True)


def _number(number: int, style: str) -> Text:
    return Text(str(number), style) if number else Text("-", "dim")


def _reasons(reasons: Mapping[str, int], limit: int | None) -> Text:
    lines = [f"{count}× {reason}" for reason, count in reasons.items()]
    if limit is not None and len(lines) > limit:
        rest = sum(list(reasons.values())[limit:])
        lines = [*lines[:limit], f"{rest}× for other reasons"]
    return Text("\n".join(lines), overflow="fold")


def _details(data: Summary) -> list[RenderableType]:
    """One line per site, unwrapped, so that names can be searched for and copied."""
    parts: list[RenderableType] = []
    if data["sites"]:
        lines = [f"  {s['stage']}  {s['rule']}  `{s['value']}`{_scope(s, data)}: {_change(s)}" for s in data["sites"]]
        parts += [Text("Applied", "bold"), *map(_unwrapped, lines), ""]
    if data["refused"]:
        lines = [f"  {r['rule']}  `{r['value']}`: {r['reason']}" for r in data["refused"]]
        parts += [Text("Refused", "bold"), *map(_unwrapped, lines), ""]
    if data["conflicts"]:
        parts += [Text("Conflicts", "bold"), *(_unwrapped(f"  {_conflict(c)}") for c in data["conflicts"]), ""]
    check = data["checks"]["model"]
    if check is not None and check["outputs"]:
        parts += [outputs_table(check["outputs"]), ""]
    return parts


def _conflict(conflict: ConflictRow) -> str:
    """``gelu-erf was chosen over my-gelu at 12 places (benefit 10 against 0)``."""
    won, lost = conflict["benefits"]
    why = f"benefit {won} against {lost}" if won != lost else f"by name, the benefit of both is {won}"
    places = human.plural(conflict["places"], "place")
    return f"{conflict['winner']} was chosen over {conflict['loser']} at {places} ({why})"


def _change(site: SiteRow) -> str:
    return f"{human.listed(site['before'], 6)} → {human.listed(site['after']) or 'nothing new'}"


def _scope(site: SiteRow, data: Summary) -> str:
    main = data.get("graph")
    return f" in {site['scope']}" if main is not None and site["scope"] not in ("", main) else ""


def _unwrapped(line: str) -> Text:
    return Text(line, no_wrap=True, overflow="ignore")


def apply_facts(data: Summary, *, verbose: bool) -> list[tuple[str, str]]:
    """Labelled lines: how fast the result is, how exact, how far it was checked, what was undone."""
    checks = data["checks"]
    facts = [*_speed_facts(data["speed"], verbose=verbose), *_error_facts(checks["model"])]
    facts += _checked_facts(data, verbose=verbose)
    facts += [("Assumes", line) for line in _assumes(data["assumes"], verbose=verbose)]
    facts += [("Undone", line) for line in _undone(data["undone"], verbose=verbose)]
    notes = data["notes"] if verbose else data["notes"][:_MAX_LINES]
    facts += [("Note", note) for note in notes]
    if len(notes) < len(data["notes"]):
        facts.append(("Note", f"{len(data['notes']) - len(notes)} more (-v lists them)"))
    if verbose:
        facts.append(("Seconds", human.seconds(data["seconds"])))
    return facts


def _speed_facts(speed: Plain, *, verbose: bool) -> list[tuple[str, str]]:
    """The speed of the result, and the measurements that it is known from."""
    if speed["skipped"]:
        return [("Speed", f"not measured: {speed['skipped']}")] if verbose or speed["lower"] == "fastest" else []
    if speed["cost"]:
        return _cost_facts(speed, verbose=verbose)
    facts: list[tuple[str, str]] = []
    if speed["ratio"] is not None:
        at = f" at {human.sizes(speed['binding'])}" if speed["binding"] else ""
        facts.append(("Speed", f"{human.ratio(speed['ratio'])} the original's time, both fully optimized by ORT{at}"))
    if speed["level_ratio"] is not None:
        how = f"optimization level {speed['level']} (onnxrewrite.session does that)"
        facts.append(("Speed", f"{human.ratio(speed['level_ratio'])} that time if opened with {how}"))
    if speed["weighed"]:
        earlier = sum(w["remembered"] for w in speed["weighed"])
        measured = human.plural(len(speed["weighed"]), "different rewrite")
        facts.append(("Measured", f"{measured}, {earlier} of them in earlier runs"))
    facts += [("Unmeasured", f"{human.plural(n, 'rewrite')}: {why}") for why, n in speed["assumed"].items()]
    facts += [("Left out", f"{rule}: {reason}") for rule, reason in speed["slower"].items()]
    if verbose:
        facts += [("Measured", _weighed(each, "time")) for each in speed["weighed"]]
        facts += [("Raced", _raced(each, "time")) for each in speed["raced"]]
    return facts


def _cost_facts(speed: Plain, *, verbose: bool) -> list[tuple[str, str]]:
    """The cost of the result by a cost model, and the rewrites that it was chosen from."""
    at = f" at {human.sizes(speed['binding'])}" if speed["binding"] else ""
    ratio = f"{human.ratio(speed['ratio'])} the original's" if speed["ratio"] is not None else "not known for the whole"
    facts = [("Cost", f"{ratio}, by {speed['cost']}{at}")]
    facts += [("Uncosted", f"{human.plural(n, 'rewrite')}: {why}") for why, n in speed["assumed"].items()]
    facts += [("Left out", f"{rule}: {reason}") for rule, reason in speed["slower"].items()]
    if verbose:
        facts += [("Costed", _weighed(each, "cost")) for each in speed["weighed"]]
        facts += [("Compared", _raced(each, "cost")) for each in speed["raced"]]
    return facts


def _weighed(weighed: Plain, what: str) -> str:
    taken = f"taken at {weighed['taken']} of {human.plural(weighed['places'], 'place')}"
    return f"{weighed['rule']}: {human.ratio(weighed['ratio'])} the {what}, {taken}"


def _raced(raced: Plain, what: str) -> str:
    lowered = human.plural(raced["rewrites"], "rewrite")
    marks = [mark for mark in ("greedy", "taken") if raced[mark]]
    return ", ".join([f"{human.ratio(raced['ratio'])} the original's {what} with {lowered}", *marks])


def _assumes(assumes: Mapping[str, Sequence[str]], *, verbose: bool) -> list[str]:
    """``inputs are finite (attention, pad-into-max-pool)``."""
    most = None if verbose else _MAX_RULES
    return [f"{what} ({human.listed(names, most)})" if names else what for what, names in assumes.items()]


def _undone(undone: Sequence[UndoneRow], *, verbose: bool) -> list[str]:
    """One line each; not verbose, one for all of the same rule and reason."""
    groups: dict[tuple[object, ...], list[UndoneRow]] = {}
    for each in undone:
        key = (each["rule"], each["reason"], each["value"] if verbose else None)
        groups.setdefault(key, []).append(each)
    lines = []
    for first, *others in groups.values():
        more = f" and at {len(others)} other places" if others else ""
        lines.append(f"{first['rule']} at `{first['value']}`{more}: {first['reason']}")
    return lines


def _error_facts(check: ModelFindings | None) -> list[tuple[str, str]]:
    if check is None or check["skipped"] or not check["runs"]:
        return []
    worst = check["largest"]
    if worst is None:
        return [("Error", f"none: every output is {how_equal(check).replace('equal', _TO_IT, 1)}")]
    error, own, allowed = (human.error(worst[k]) for k in ("error", "error_original", "allowed"))
    if worst["reference"].startswith("float64"):
        text = f"{error} against {worst['reference']}; the original's own is {own}, allowed is {allowed}"
    else:
        text = f"{error} against the original; allowed is {allowed}"
    return [("Error", f"{text} (output {worst['name']})")]


_TO_IT = "equal to the original's"


def how_equal(check: ModelFindings) -> str:
    """The kind of equality of outputs that are all equal: the weakest of those found for each."""
    return IN_VALUE if any(o["equality"] == IN_VALUE for o in check["outputs"]) else BITWISE


def _checked_facts(data: Summary, *, verbose: bool) -> list[tuple[str, str]]:
    checks = data["checks"]
    model, sites = checks["model"], checks["sites"]
    if checks["level"] == "off":
        return [("Checked", "structure"), ("Unchecked", f"numbers, {checks['why']}")]
    facts: list[tuple[str, str]] = []
    if model is not None and not model["skipped"] and model["runs"]:
        facts.append(("Checked", f"the whole model: {_runs(model)}"))
    if sites["run"]:
        known = f", {sites['remembered']} of them known from an earlier run" if sites["remembered"] else ""
        facts.append(("Checked", f"each rewrite by itself: {sites['run']} run, {sites['distinct']} different{known}"))
    has_kernels = data["target"] != "onnx" and not any(p.startswith(NO_KERNELS) for p in checks["structure"])
    facts.append(("Checked", f"structure{', kernels' if has_kernels else ''}"))
    if verbose and model is not None and model["tolerance"]:
        facts.append(("Allowed", model["tolerance"]))
    if checks["why"]:
        facts.insert(0, ("Degraded", f"{checks['reached']}: {checks['why']}"))
    facts += [("Original", f"not valid either: {problem}") for problem in checks["structure"] if verbose]
    for reason, count in sites["not_run"].items():
        facts.append(("Unchecked", f"{human.plural(count, 'rewrite')} by itself: {reason}"))
    notes = model["notes"] if model is not None else []
    facts += [("Note", note) for note in (notes if verbose else notes[:_MAX_LINES])]
    return facts


def _runs(check: ModelFindings) -> str:
    """``6 runs, at batch=2 seq=7 and at batch=1 seq=16``."""
    at = " and ".join(f"at {human.sizes(b)}" for b in check["bindings"] if b)
    parts = f" in {check['segments']} segments, each fed by the original" if check["segments"] else ""
    return f"{human.plural(check['runs'], 'run')}{', ' if at else ''}{at}{parts}"


def verdict(data: ModelFindings) -> str:
    """The result of ``check`` in a few words."""
    if data["failures"]:
        return "not equal"
    if data["skipped"]:
        return f"not compared: {data['skipped']}"
    if data["identical"]:
        return how_equal(data)
    return "equal, as far as rounding goes"
