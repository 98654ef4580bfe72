"""The report of ``doctor`` for people, made of the plain data of ``Machine.to_json``; it fits 100 columns."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from onnxrewrite.report import human
from onnxrewrite.report.table import facts_grid, plain_table
from onnxrewrite.runtime.features import FEATURES
from onnxrewrite.runtime.providers import ENTRIES, PROVIDERS
from onnxrewrite.system.plain import Plain


def doctor_report(data: Plain, *, verbose: bool = False) -> RenderableType:
    """The facts about the machine, then what follows; with ``verbose`` the options of providers and sessions."""
    parts: list[RenderableType] = [Text(data["processor"]["name"], "bold", no_wrap=True), ""]
    parts += [facts_grid(_facts(data, verbose=verbose)), "", Text("  What follows", "bold"), _advice(data)]
    if "measured" in data:
        parts += ["", Text("  Matrix products, times the speed of float32, measured here", "bold"), _measured(data)]
    if "weights" in data:
        parts += ["", Text(f"  Weights of {data['weights']['model']}", "bold"), *_weights(data["weights"])]
    if verbose:
        for name in data["runtime"]["providers"]:
            parts += _options(name)
        parts += [
            "",
            Text("  Entries of a session's configuration: sessions.Deployment(entries={...})", "bold"),
        ]
        parts.append(_named(ENTRIES.items()))
    return Group(*parts)


_WEIGHTS = 12
"""Weights that have a line."""


def _weights(data: Plain) -> list[RenderableType]:
    """The weights with structure, and the gains."""
    found = data["structures"]
    if not found:
        return [Padding(Text(f"{human.plural(data['weights'], 'weight')}: dense, of full rank"), (0, 0, 0, 2))]
    table = plain_table("node", "operator", "shape>", "zeros>", "pattern", "empty>", "rank>")
    for row in found[:_WEIGHTS]:
        empty = row["empty_outputs"], row["empty_inputs"]
        table.add_row(
            human.shortened(row["name"], 32),
            row["operator"],
            " × ".join(map(str, row["shape"])),
            human.share(row["zeros"]),
            row["pattern"],
            f"{empty[0]} outputs, {empty[1]} inputs" if any(empty) else "",
            "" if row["rank"] is None else f"{row['rank']} of {min(row['shape'])}",
        )
    rest = len(found) - _WEIGHTS
    facts = [("Gain", f"{g['what']}: {human.ratio(g['ratio'])} the time ({g['of']})") for g in data["gains"]]
    facts += [("Shared", f"{row['name']}: {human.listed(row['shares'], 3)}") for row in found if row["shares"]]
    more = [Padding(Text(f"{rest} more, see --json", "dim"), (0, 0, 0, 2))] if rest > 0 else []
    return [Padding(table, (0, 0, 0, 2)), *more, facts_grid(facts)]


def _facts(data: Plain, *, verbose: bool) -> Iterable[tuple[str, str]]:
    processor, runtime = data["processor"], data["runtime"]
    known = processor["known"]
    has = [f"{name} ({FEATURES[name][1]})" if verbose else name for name in known if known[name]]
    lacks = [name for name in known if not known[name]]
    model = f" ({processor['model']})" if processor["model"] else ""
    yield "Processor", f"{processor['family']}{model}, {data['system']}, Python {data['python']}"
    yield "Features", ", ".join(has) or "none that ONNX Runtime's kernels could use"
    if lacks:
        yield "Lacks", ", ".join(lacks)
    yield "Cores", _cores(data["cores"])
    yield "Memory", _memory(data["memory"])
    packages = human.listed(f"{name} {version}" for name, version in runtime["packages"].items())
    yield "Runtime", f"ONNX Runtime {runtime['version']}{f' of {packages}' if packages else ''}; {runtime['build']}"
    for name, state in runtime["providers"].items():
        yield "Providers", f"{name}: {state}{_runs_on(name)}"
    here = {name: each in (None, *runtime["providers"]) for name, each in data["targets"].items()}
    yield "Targets", human.listed(name for name in here if here[name])
    yield "", f"not run here, checked on the CPU: {human.listed(name for name in here if not here[name])}"
    yield from (("", line) for line in data["broken targets"])
    for device in runtime["devices"]:
        if device["kind"] != "CPU":
            yield "Devices", f"{device['kind']} of {device['vendor']}, by {device['provider']}"
    installed = [f"{name} {version}" for name, version in data["packages"].items() if version is not None]
    missing = [name for name, version in data["packages"].items() if version is None]
    yield "Packages", human.listed(installed) or "none of those that are optional"
    if missing:
        yield "Missing", human.listed(missing)


def _runs_on(provider: str) -> str:
    known = PROVIDERS.get(provider)
    return f" ({known.runs_on})" if known is not None else ""


def _cores(cores: Plain) -> str:
    text = f"{human.plural(cores['physical'], 'core')}, {human.plural(cores['logical'], 'hardware thread')}"
    if cores["allowed"] < cores["logical"]:
        text += f"; the affinity of this process allows {cores['allowed']}"
    if cores["quota"] is not None:
        text += f"; its control group the time of {cores['quota']:g}"
    return text


def _memory(memory: Plain) -> str:
    limit = f"; a control group allows {human.size(memory['limit'])}" if memory["limit"] is not None else ""
    return f"{human.size(memory['total'])}, {human.size(memory['available'])} of it free{limit}"


def _advice(data: Plain) -> RenderableType:
    table = plain_table("", "", "")
    table.show_header = False
    table.columns[0].no_wrap = True
    table.columns[1].ratio, table.columns[2].ratio = 5, 6
    last = ""
    for each in data["advice"]:
        label = "" if each["topic"] == last else each["topic"]
        table.add_row(Text(label, "bold"), Text(each["says"]), Text(each["because"], "dim"))
        last = each["topic"]
    return Padding(table, (0, 0, 0, 2))


def _measured(data: Plain) -> RenderableType:
    table = plain_table("form", "speed>", "95 % interval>")
    for name, speed in data["measured"].items():
        table.add_row(Text(name), f"{speed['median']:.2f}", f"{speed['low']:.2f} to {speed['high']:.2f}")
    return Padding(table, (0, 0, 0, 2))


def _options(provider: str) -> list[RenderableType]:
    known = PROVIDERS.get(provider)
    if known is None or not known.options:
        return []
    return ["", Text(f"  Options of {provider}", "bold"), _named(known.options)]


def _named(pairs: Iterable[tuple[str, str]]) -> RenderableType:
    table = plain_table("", "")
    table.show_header = False
    table.columns[0].no_wrap = True
    for name, what in pairs:
        table.add_row(Text(name), Text(what))
    return Padding(table, (0, 0, 0, 2))
