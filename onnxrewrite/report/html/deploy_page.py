"""The report of ``optimize`` as one page, made of the plain data of ``report.json`` and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from onnxrewrite.report import human
from onnxrewrite.report.deploy_report import headline, quality_text
from onnxrewrite.report.html.details import all_proposals, judged, recommended
from onnxrewrite.report.html.frame import Frame, file, filled
from onnxrewrite.report.html.markup import Markup, joined, tag
from onnxrewrite.report.html.proposals import proposals
from onnxrewrite.report.html.sections import tile
from onnxrewrite.report.html.stages import by_operator, by_stage
from onnxrewrite.report.html.tradeoff import tradeoff
from onnxrewrite.system.plain import Plain

_HATCH = Markup(
    '<svg width="0" height="0" class="defs" aria-hidden="true"><defs>'
    '<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<line y2="6" x1="1" x2="1"></line></pattern></defs></svg>'
)


def deployment_page(data: Plain) -> str:
    """The page; ``data`` is what ``Outcome.to_json`` returned, or what ``report.json`` holds.  The same data give the
    same bytes."""
    data = json.loads(json.dumps(data, sort_keys=True))  # the order of names is no part of the data
    found = proposals(data)
    parts = {
        "defs": _HATCH,
        "verdict": joined(tag("p", sentence, class_=f"verdict {kind}") for kind, sentence in verdicts(data)),
        "tiles": _tiles(data),
        "deploy": recommended(data),
        "stages": by_stage(data, found),
        "tradeoff": tradeoff(data, found),
        "operators": by_operator(data),
        "proposals": all_proposals(data, found),
        "judged": judged(data),
    }
    name = Path(data["model"]).name
    frame = Frame(
        kicker="onnxrewrite optimize",
        name=name,
        title=f"{name}: {headline(data)}",
        subtitle=_subtitle(data),
        skip=("proposals", "Skip to the proposals"),
        styles=("charts.css", "deployment.css"),
        scripts=("copy.js",),
    )
    return frame.around(filled(file("deployment.html"), parts))


def verdicts(data: Plain) -> list[tuple[str, str]]:
    """The verdicts at the top: ``good``, ``plain`` or ``warning``, and a sentence, each."""
    found = [_verdict(data)]
    if data["data"]["generated"]:
        found.append(
            ("warning", "The data were made up, so the quality on yours is not known: run it again with --data.")
        )
    found += [("warning", f"{text[:1].upper()}{text[1:]}.") for text in data["final"]["metrics"]["quality"]["doubts"]]
    return found


def _verdict(data: Plain) -> tuple[str, str]:
    text = ", ".join(filter(None, [headline(data), quality_text(data["final"]["metrics"]["quality"])]))
    gained = any(step["kept"] is not None for step in data["steps"])
    if not gained:
        text = "No stage brought anything: deploy the original, with the options below"
    if data["target"] is None:
        return "good" if gained else "plain", f"{text}."
    kind, word = ("good", "is met") if data["target_met"] else ("warning", "was missed")
    return kind, f"{text}; the target of {data['target']:g} times as fast {word}."


def _subtitle(data: Plain) -> str:
    final = data["final"]
    at = [f"at {human.sizes(data['binding'])}"] if data["binding"] else []
    threads = final["setting"]["threads"]
    how = [human.plural(threads, "thread") if threads else "threads as ONNX Runtime chooses"]
    samples = human.plural(data["data"]["samples"], "sample")
    source = "made up" if data["data"]["generated"] else f"of {data['data']['source']}"
    provider = final["setting"]["provider"].removesuffix("ExecutionProvider")
    return ", ".join([f"from {data['model']}", *at, provider, *how, f"judged on {samples} {source}"])


def _tiles(data: Plain) -> Markup:
    before, after = data["baseline"]["metrics"], data["final"]["metrics"]
    ratio = after["ratio"]
    found = [
        tile("Speed", f"{data['speedup']:.2f} ×", human.speed(1 / ratio["high"], 1 / ratio["low"])),
        _change("Latency", human.duration, before["latency"]["median"], after["latency"]["median"]),
        _change("Size", human.size, before["size"], after["size"]),
    ]
    if before["memory"] is not None and after["memory"] is not None:
        found.append(_change("Peak of memory", human.size, before["memory"], after["memory"]))
    found.append(_change("Opens in", human.duration, before["creation"]["median"], after["creation"]["median"]))
    quality = quality_text(after["quality"])
    if quality:
        label, _, figure = quality.rpartition(" ")
        allowed = data["gate"]["max_drop"]
        note = f"may lose {allowed:g}" if allowed is not None else ""
        found.append(tile(label.capitalize() or "Quality", figure or "–", note))
    return tag("ul", *found, class_="tiles")


def _change(label: str, shown: Callable[[float], str], before: float, after: float) -> Markup:
    change = human.change(before, after)
    return tile(label, shown(after), f"{shown(before)} before{f', {change}' if change else ''}")
