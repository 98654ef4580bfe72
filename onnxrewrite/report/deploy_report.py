"""The report of ``optimize``: the stages with their effects, for people.  Made of the plain data of ``Outcome``."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from onnxrewrite.report import human
from onnxrewrite.report.table import facts_grid, plain_table
from onnxrewrite.system.plain import Plain

_STATES = {"kept": "bold green", "taken back": "", "skipped": "dim"}


def deploy_report(data: Plain, *, verbose: bool = False) -> RenderableType:
    """The result of ``optimize``, ``Outcome.to_json()``; ``verbose`` shows every proposal."""
    at = f" at {human.sizes(data['binding'])}" if data["binding"] else ""
    source = "made up" if data["data"]["generated"] else f"of {data['data']['source']}"
    samples = human.plural(data["data"]["samples"], "sample")
    heading = Text.assemble((data["model"], "bold"), f":{at}, judged on {samples}, {source}")
    return Group(heading, "", _stages(data, verbose=verbose), "", facts_grid(deploy_facts(data)))


def _stages(data: Plain, *, verbose: bool) -> RenderableType:
    """A row a stage: the best of its proposals, and what became of it."""
    more = ("opens in>", "memory>") if verbose else ()
    table = plain_table("stage", "what", "latency>", "ratio>", "size>", *more, "quality>", "", "why")
    table.columns[0].no_wrap = True  # a name is short, and unreadable in pieces
    table.add_row("original", "", *_measured(data["baseline"]["metrics"], verbose=verbose), "", "")
    for step in data["steps"]:
        shown = shown_trials(step, verbose=verbose)
        for number, trial in enumerate(shown):
            kept = step["kept"] is not None and step["trials"][step["kept"]] is trial
            state = "kept" if kept else "taken back"
            table.add_row(
                step["stage"] if number == 0 else "",
                trial["how"],
                *_measured(trial["metrics"], verbose=verbose),
                Text(state, _STATES[state]),
                trial["verdict"]["reason"],
            )
        if not shown:
            empty = [""] * (len(table.columns) - 3)
            table.add_row(step["stage"], *empty, Text(step["state"], _STATES[step["state"]]), step["reason"])
    return Padding(table, (0, 0, 0, 2))


def shown_trials(step: Plain, *, verbose: bool) -> Sequence[Plain]:
    """The proposals that get a row: the one that was kept, else the fastest; all of them if that is asked for."""
    trials: Sequence[Plain] = step["trials"]
    if verbose or len(trials) < 2:
        return trials
    if step["kept"] is not None:
        return [trials[step["kept"]]]
    return [min(trials, key=lambda t: t["metrics"]["latency"]["median"])]


def _measured(metrics: Plain, *, verbose: bool) -> list[str]:
    ratio, memory, quality = metrics["ratio"], metrics["memory"], metrics["quality"]
    more = [human.duration(metrics["creation"]["median"]), human.size(memory) if memory is not None else ""]
    return [
        human.duration(metrics["latency"]["median"]),
        ratio_text(ratio) if metrics["step"] is not None else "",
        human.size(metrics["size"]),
        *(more if verbose else []),
        quality_text(quality),
    ]


def ratio_text(ratio: Plain) -> str:
    """``0.71 (0.69–0.73)``; the interval is that of 95 %."""
    return f"{ratio['median']:.2f} ({ratio['low']:.2f}–{ratio['high']:.2f})"


def quality_text(quality: Plain) -> str:
    """``cosine 0.9987``, ``agreement 0.98``, ``metric 0.91``."""
    if quality["metric"] is not None:
        return f"metric {quality['metric']:.4g}"
    if quality["worst"] is None:
        return ""
    found = quality["outputs"][quality["worst"]]
    if found["broken"] or found["cosine"] is None:
        return "broken"
    return f"agreement {found['agreement']:.4f}" if found["agreement"] is not None else f"cosine {found['cosine']:.4f}"


def headline(data: Plain) -> str:
    """``2.31 times as fast, 0.26 of the size``; ``1.04 times as slow, 0.26 of the size``."""
    size = data["final"]["metrics"]["size"] / data["baseline"]["metrics"]["size"]
    return f"{human.speed(data['speedup'])}, {size:.2f} of the size"


def setting_text(setting: Plain) -> str:
    """``CPUExecutionProvider, optimizations: all, 4 threads``."""
    threads = human.plural(setting["threads"], "thread") if setting["threads"] else "threads as ONNX Runtime chooses"
    return f"{setting['provider']}, optimizations: {setting['level']}, {threads}"


def deploy_facts(data: Plain) -> list[tuple[str, str]]:
    """Labelled lines: what came of it, how to run it, what else there is to know."""
    facts = [("Result", headline(data)), ("Run it", setting_text(data["final"]["setting"]))]
    if data["target"] is not None:
        facts.append(("Target", f"{data['target']:g} times as fast: {'met' if data['target_met'] else 'missed'}"))
    close = [step["stage"] for step in data["steps"] if step["close"]]
    if close:
        facts.append(("Note", f"{human.listed(close)}: too close to call; another run may decide otherwise"))
    facts += [("Doubt", doubt) for doubt in data["final"]["metrics"]["quality"]["doubts"]]
    if data["data"]["generated"]:
        facts.append(("Note", "the data are made up: give --data to know the quality on yours"))
    return facts + [("Note", note) for note in data["notes"]]
