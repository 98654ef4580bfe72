"""The report of ``profile`` for people, made of the plain data of ``Profile.to_json``; it fits 100 columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from onnxrewrite.measure.opportunities import OpportunityRow, SeenRow
from onnxrewrite.measure.profiling import EntryRow, ProfileReport
from onnxrewrite.measure.timing import Span
from onnxrewrite.report import human
from onnxrewrite.report.summary import grouped_counts
from onnxrewrite.report.table import facts_grid, plain_table

_NAME = 25
"""Columns for the name of a node."""

_OPERATOR = 16
"""Columns for its operator."""

_SMALL = 0.005
"""Share of the run below which something is not worth a line."""

_KINDS = {
    "rewrite": "Rewrites, measured (what apply would change)",
    "near miss": "Near misses: at the most, were the rule to apply",
    "far from the roof": "Far from the roof: at the most, with perfect kernels",
}


def profile_report(data: ProfileReport, *, top: int) -> RenderableType:
    """Operators, nodes, opportunities, and what all this rests on; ``top`` lines of each."""
    parts: list[RenderableType] = [_heading(data), ""]
    if data["kernels"]:
        parts += [_operators(data, top), "", _kernels(data, top), ""]
    parts += _opportunities(data, top)
    parts.append(facts_grid(_facts(data)))
    return Group(*parts)


def _heading(data: ProfileReport) -> Text:
    rest = f": {_with_interval(data['latency'])} a run"
    return Text.assemble((data.get("model") or "model", "bold"), rest, no_wrap=True)


def _operators(data: ProfileReport, top: int) -> RenderableType:
    table = plain_table("operator", "kernels>", "time>", "share>", "of roof", "made of")
    shown = data["operators"][:top]
    for each in shown:
        name = Text(human.cut(each["op_type"], _NAME))
        row = (name, str(each["kernels"]), human.duration(each["seconds"]), human.share(each["share"]))
        table.add_row(*row, _of_roof(each), _made_of(each))
    rest = data["operators"][top:]
    if rest:
        count, seconds = sum(e["kernels"] for e in rest), sum(e["seconds"] for e in rest)
        name = Text(f"{len(rest)} other", "dim")
        table.add_row(name, str(count), human.duration(seconds), human.share(sum(e["share"] for e in rest)))
    if data["outside"] > _SMALL * data["latency"]["median"]:
        share = data["outside"] / data["latency"]["median"]
        table.add_row(Text("in no kernel", "dim"), "", human.duration(data["outside"]), human.share(share))
    return Padding(table, (0, 0, 0, 2))


def _kernels(data: ProfileReport, top: int) -> RenderableType:
    table = plain_table("node", "operator", "time>", "share>", "of roof", "rules saw")
    table.columns[0].no_wrap = table.columns[4].no_wrap = True
    for each in data["kernels"][:top]:
        name = Text(human.shortened(next(iter(each["nodes"]), each["name"]), _NAME))
        row = (
            name,
            Text(human.cut(each["op_type"], _OPERATOR)),
            human.duration(each["seconds"]),
            human.share(each["share"]),
        )
        table.add_row(*row, _of_roof(each), Text(_seen(each)))
    if len(data["kernels"]) > top:
        table.add_row(Text(f"{len(data['kernels']) - top} more (--top)", "dim"))
    return Padding(table, (0, 0, 0, 2))


def _opportunities(data: ProfileReport, top: int) -> list[RenderableType]:
    parts: list[RenderableType] = []
    latency = data["latency"]["median"]
    for kind, title in _KINDS.items():
        found = [o for o in data["opportunities"] if o["kind"] == kind and _is_worth_it(o, latency)]
        fusions = [o for o in found if o["stage"] != "canonicalize"]
        if not fusions:
            continue
        table = plain_table("gain>", "of run>", "places>", "time now>", "what", "")
        for each in _best(fusions, top):
            row = (_gain(each), human.share(each["gain"] / latency), str(each["places"]))
            table.add_row(*row, human.duration(each["seconds"]), Text(each["name"]), Text(_remark(each)))
        if len(fusions) < len(found):  # they try many places, and few of those are misses worth the name
            folded = human.plural(len(found) - len(fusions), "canonicalization")
            table.add_row("", "", "", "", Text(folded, "dim"), Text("see --json", "dim"))
        parts += [Text(f"  {title}", "bold"), Padding(table, (0, 0, 0, 2)), ""]
    return parts


def _is_worth_it(each: OpportunityRow, latency: float) -> bool:
    """Not a measured gain that may as well be none, nor one too small to care about."""
    measured = each["measured"]
    sure = measured is None or measured["low"] > 0 or measured["high"] < 0
    return bool(sure and abs(each["gain"]) >= _SMALL * latency)


def _best(found: Sequence[OpportunityRow], top: int) -> Sequence[OpportunityRow]:
    """The first and, where there are losses, the worst of them too."""
    losses = [o for o in found if o["gain"] < 0]
    gains = [o for o in found if o["gain"] >= 0]
    return [*gains[: max(top - len(losses), 1)], *losses[-top:]]


def _remark(each: OpportunityRow) -> str:
    if each["kind"] == "rewrite":
        others = [r for r in each["rules"] if r not in each["name"].split(", ")]
        slower = "slower here" if each["gain"] < 0 else ""
        return "; ".join(filter(None, [slower, f"with {human.listed(others, 1)}" if others else ""]))
    if each["reasons"]:
        reason, count = next(iter(grouped_counts(each["reasons"]).items()))
        return f"{count}× {reason}"
    return ""


def _gain(each: OpportunityRow) -> Text:
    text = human.duration(each["gain"])
    if each["measured"] is None:
        return Text(f"≤ {text}")
    return Text(text, "green" if each["gain"] > 0 else "bold red")


def _seen(each: SeenRow) -> str:
    """``attention-pack``, the last rule that rewrote it; ``not gelu-erf`` for a near miss where there is none."""
    if each["rules"]:
        return str(each["rules"][-1])
    if each["refused"]:
        return f"not {next(iter(each['refused']))}"
    return "-"


def _made_of(each: EntryRow) -> Text:
    """The model's operators that ONNX Runtime made these kernels of, where it is not itself."""
    made = each["operators"]
    if not made:
        return Text("ONNX Runtime's own", "dim")
    return Text("" if set(made) == {each["op_type"]} else human.listed(sorted(made, key=lambda n: (-made[n], n)), 3))


def _of_roof(each: EntryRow) -> str:
    """``74% compute``: how near to the peak, and to which."""
    return f"{100 * each['efficiency']:.0f}% {each['bound']}" if each["efficiency"] is not None else ""


def _with_interval(interval: Span) -> str:
    """``1.20 ms (1.18 to 1.25)``."""
    low, high = (human.duration(interval[k], like=interval["median"]) for k in ("low", "high"))
    return f"{human.duration(interval['median'])} ({low.split()[0]} to {high.split()[0]})"


def _facts(data: ProfileReport) -> Iterable[tuple[str, str]]:
    threads = human.plural(data["threads"], "thread") if data["threads"] else "threads as ONNX Runtime chooses"
    provider = data["provider"].removesuffix("ExecutionProvider")
    at = f"at {human.sizes(data['sizes'])}; " if data["sizes"] else ""
    yield "Run", f"{at}{provider}, {threads}, level {data['level']}"
    for name, roof in data["peaks"].items():
        yield (
            "Roofs",
            f"{roof['flops'] / 1e9:.0f} GFLOP/s in {name}, {roof['bandwidth'] / 1e9:.1f} GB/s, "
            f"{human.duration(roof['dispatch'])} to start a kernel; measured here",
        )
    ratio, rewritten = data["ratio"], data["rewritten"]
    if ratio is not None and rewritten is not None:
        yield (
            "Rewritten",
            f"{_with_interval(rewritten)} a run: {ratio['median']:.2f}× as fast "
            f"({ratio['low']:.2f} to {ratio['high']:.2f})",
        )
    yield from (("Note", note) for note in data["notes"])
