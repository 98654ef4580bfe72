"""The parts of the page of ``optimize`` that are read: what to deploy, all proposals, how they were judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnxrewrite.report import human
from onnxrewrite.report.deploy_report import deploy_facts, quality_text
from onnxrewrite.report.html.markup import Markup, facts, folded, joined, table, tag
from onnxrewrite.report.html.proposals import Proposal
from onnxrewrite.report.table import WARNINGS
from onnxrewrite.system.plain import Plain

_MAX_FACTS = 300
"""Letters of what a stage tells of its work."""


def recommended(data: Plain) -> Markup:
    """The file, how it is run, and Python that does so."""
    final, setting = data["final"], dict(data["final"]["setting"])
    kept = [f"{s['stage']} ({s['trials'][s['kept']]['how']})" for s in data["steps"] if s["kept"] is not None]
    threads = setting.pop("threads")
    pairs: list[tuple[str, object]] = [
        ("File", tag("code", data["files"].get("model", final["file"]))),
        ("Made by", human.listed(kept) or "nothing: it is the original"),
        ("Provider", tag("code", setting.pop("provider"))),
        ("Threads", str(threads) if threads else "as ONNX Runtime chooses"),
        ("Optimizations", f"{setting.pop('level')}, by ONNX Runtime as it opens the model"),
        *((name.capitalize().replace("_", " "), _plain(value)) for name, value in setting.items() if value),
    ]
    told = tag("div", facts(pairs))
    if not data["program"]:
        return told
    button = tag("button", "Copy", type="button", data_copy="program", hidden="")
    name = data["files"].get("run", "run.py")
    caption = tag("figcaption", tag("span", "Run it: ", tag("code", name)), button)
    code = tag("figure", caption, tag("pre", data["program"], id="program", tabindex=0), class_="code")
    return tag("div", told, code, class_="deploy")


_COLUMNS = (
    *("#", "stage", "proposal", "latency>", "of the original>", "of the one before>"),
    *("opens in>", "size>", "memory>", "quality>", "decision"),
)


def all_proposals(data: Plain, found: Sequence[Proposal]) -> Markup:
    """A row a proposal, and one for each stage without any; each in detail where it is asked for."""
    rows = [_row(found[0])]
    number = 1
    for step in data["steps"]:
        count = len(step["trials"])
        rows += [_row(p) for p in found[number : number + count]]
        number += count
        if not count:
            why = tag("div", tag("b", step["state"]), f": {step['reason']}")
            rows.append(["", step["stage"], *[""] * 8, why])
    details = [folded(f"{p.number} {p.name}", *_details(p)) for p in found if p.number]
    parts = [table(_COLUMNS, rows, named=True, class_="stacked")]
    return joined([*parts, tag("h3", "One by one"), *details] if details else parts)


def _row(proposal: Proposal) -> list[object]:
    metrics = proposal.trial["metrics"]
    memory, quality, step = metrics["memory"], metrics["quality"], metrics["step"]
    return [
        proposal.number or "",
        tag("span", proposal.stage or "the original", id=f"p{proposal.number}"),
        proposal.trial["how"] if proposal.number else "",
        _with_interval(metrics["latency"], human.duration),
        _with_interval(metrics["ratio"], human.digits) if proposal.number else "",
        _with_interval(step, human.digits) if step is not None else "",
        human.duration(metrics["creation"]["median"]),
        human.size(metrics["size"]),
        human.size(memory) if memory is not None else "",
        quality_text(quality),
        _decision(proposal),
    ]


def _decision(proposal: Proposal) -> Markup | str:
    """The decision on a proposal, its reason, and a note if it was a close one."""
    if not proposal.state:
        return ""
    said: list[object] = [tag("b", proposal.state)]
    if proposal.number:
        said.append(f": {proposal.reason}")
    if proposal.trial["verdict"]["close"]:
        said.append(tag("div", "too close to call: another run may decide otherwise", class_="warning small"))
    return tag("div", *said)


def _with_interval(interval: Plain, shown: Callable[[float], str]) -> Markup:
    """The median, and below it the interval."""
    low, high = (shown(interval[key]).partition(" ") for key in ("low", "high"))
    ends = f"{low[0]}–{high[0]}" if low[2] == high[2] else f"{' '.join(low)}–{' '.join(high)}"
    return tag("span", shown(interval["median"]), tag("small", ends))


def _details(proposal: Proposal) -> list[Markup]:
    """The settings of its run, its throughput, the facts of its stage, and the closeness of every output."""
    trial = proposal.trial
    setting = {k: v for k, v in trial["setting"].items() if v}
    pairs = [("Run with", _plain(setting)), ("Throughput", f"{trial['metrics']['throughput']:.4g} samples a second")]
    pairs += [(name.capitalize(), _plain(value)) for name, value in trial["facts"].items() if value]
    quality = trial["metrics"]["quality"]
    outputs = [_closeness(quality["outputs"])] if quality["outputs"] else []
    return [facts(pairs), *outputs]


def _closeness(outputs: Plain) -> Markup:
    """A row an output, the worst first; columns that say nothing of any are left out."""
    shown = sorted(outputs.items(), key=lambda item: (_score(item[1]), item[0]))
    columns: dict[str, list[object]] = {
        "output": [tag("code", name) for name, _ in shown],
        "cosine>": [_digits(c["cosine"], 6) for _, c in shown],
        "noise, dB>": [_decibels(c) for _, c in shown],
        "largest error>": [human.error(c["largest"]) for _, c in shown],
        "mean error>": [human.error(c["mean"]) for _, c in shown],
        "agreement>": [_digits(c["agreement"], 4) for _, c in shown],
        "same first class>": [_digits(c["top1"], 4) for _, c in shown],
        "same first classes>": [_digits(c["topk"], 4) for _, c in shown],
        "broken>": [c["broken"] or "" for _, c in shown],
    }
    told = {name: cells for name, cells in columns.items() if any(cell != "" for cell in cells)}
    return table(list(told), list(zip(*told.values(), strict=True)))


def _score(close: Plain) -> float:
    if close["broken"]:
        return 0.0
    score = close["cosine"] if close["agreement"] is None else close["agreement"]
    return 0.0 if score is None else float(score)


def _digits(value: float | None, count: int) -> str:
    return "" if value is None else f"{value:.{count}f}"


def _decibels(close: Plain) -> str:
    """The ratio of signal to noise, endless where there is no noise."""
    return f"{close['snr']:.1f}" if close["snr"] is not None else "∞" if not close["largest"] else ""


def _plain(value: object) -> str:
    """Plain data as words, not too many."""
    return human.cut(_words(value), _MAX_FACTS)


def _words(value: object) -> str:
    """``bits: 8, nodes: (a, b)``; what is empty is left out."""
    if isinstance(value, dict):
        return ", ".join(f"{k}: {_inside(v)}" for k, v in value.items() if v not in _EMPTY)
    if isinstance(value, list):
        return ("; " if any(isinstance(v, dict) for v in value) else ", ").join(map(_words, value))
    return "yes" if value is True else "no" if value is False else str(value)


def _inside(value: object) -> str:
    return f"({_words(value)})" if isinstance(value, (dict, list)) else _words(value)


_EMPTY: tuple[object, ...] = (None, "", [], {})


def judged(data: Plain) -> Markup:
    """The data, what was asked, and what limits all this."""
    gate, source = data["gate"], data["data"]
    at = f", at {human.sizes(data['binding'])}" if data["binding"] else ""
    samples = human.plural(source["samples"], "sample")
    allowed = [f"{words} {gate[name]:g}" for name, words in _GATE.items() if gate.get(name) is not None]
    pairs: list[tuple[str, object]] = [
        ("Data", f"{samples}, {'made up' if source['generated'] else source['source']}"),
        ("Allowed", "; ".join(allowed) or "anything"),
        ("Timed", f"by turns with the original{at}"),
    ]
    pairs += [pair for pair in deploy_facts(data) if pair[0] not in ("Result", "Run it")]
    if data["versions"]:
        shown = ("onnxrewrite", "onnxruntime", "onnx", "python", "platform")
        pairs.append(("With", ", ".join(f"{n} {data['versions'][n]}" for n in shown if n in data["versions"])))
    return facts(pairs, WARNINGS)


_GATE = {
    "max_drop": "quality lost: at most",
    "min_snr": "signal to noise, dB: at least",
    "min_top1": "same first class: at least",
    "max_error": "largest error: at most",
}
