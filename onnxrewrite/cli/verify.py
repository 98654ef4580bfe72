"""``onnxrewrite verify``: try rules on graphs that nobody has written down."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from onnxrewrite.cli import options
from onnxrewrite.cli.console import complain, progress_bar, render, say
from onnxrewrite.cli.output import write_json
from onnxrewrite.errors import UsageError
from onnxrewrite.proof import require_prover
from onnxrewrite.system import files


@dataclass(frozen=True, kw_only=True)
class _Effort:
    """The extent of the trials."""

    count: Annotated[
        int | None,
        typer.Option("--count", min=1, metavar="N", help="How many graphs to try each rule on, if not 160."),
    ] = None
    seed: options.Seed = 0
    jobs: Annotated[
        int, typer.Option("--jobs", min=0, metavar="N", help="Rules at a time; 0: one for each processor.")
    ] = 0
    save: Annotated[
        Path | None,
        typer.Option("--save", metavar="FOLDER", help="Write counterexamples there: model, inputs, failing test."),
    ] = None
    cache: Annotated[bool, typer.Option("--cache/--no-cache", help="Whether verdicts of earlier runs count.")] = True
    prove: Annotated[bool, typer.Option("--prove", help="Prove what passes, too; needs z3.")] = False
    scripts: Annotated[
        Path | None,
        typer.Option("--scripts", metavar="FOLDER", help="Write proofs there, RULE.smt2; implies --prove."),
    ] = None


def verify(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RULE|FILE]...", help="Rules, rule sets, or files of rules.", show_default=False),
    ] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="All rules there are.")] = False,
    extra: options.Rules = [],  # noqa: B006
    custom_ops: options.CustomOps = [],  # noqa: B006
    effort: _Effort,
    told: options.DetailedOutput,
) -> None:
    """Try rules on many graphs, made from their patterns and examples, and compare both sides.

    A verdict other than *proved* is no proof: it says what was tried.

    Exit status: 0 nothing was found wrong; 1 a rule is refuted, or could not be tried; 2 no such rule.
    """
    options.one_voice(told.quiet, told.verbose)
    report = options.json_path(told.json)
    if bool(names) == everything:
        raise UsageError("give the names of rules, or files of rules, or --all")
    if effort.save is not None:
        options.folder(effort.save, "--save")
    proves = effort.prove or effort.scripts is not None
    if effort.scripts is not None:
        options.folder(effort.scripts, "--scripts")
    if proves:
        require_prover()

    from onnxrewrite.report.verdicts import verdict_line, verdict_pages, verdict_table
    from onnxrewrite.rewrite import registry
    from onnxrewrite.ruletest.fuzz import INSTANCES
    from onnxrewrite.ruletest.fuzz.many import Request, verify
    from onnxrewrite.ruletest.fuzz.verdict import PASSED

    given = [n for n in names or () if n.endswith(".py") or files.is_regular(n) or registry.divided(n)[0]]
    rules = tuple(dict.fromkeys((*extra, *given)))
    library = registry.load(rules)
    for line in library.broken:
        complain(line)
    asked = [n for n in names or () if n not in given]
    chosen = list(library) if everything else [r for n in asked for r in library.named(n)]
    chosen += [r for file in given for r in registry.sets_called(file)[0]]
    wanted = list(dict.fromkeys(r.name for r in chosen))
    count = effort.count or INSTANCES
    request = Request(rules, effort.seed, count, effort.save, effort.cache, proves, effort.scripts)
    found = []
    with progress_bar(wanted=not told.quiet) as progress:
        if progress is not None:
            progress("verify", 0, len(wanted))
        for verdict in verify(wanted, request, effort.jobs or os.cpu_count() or 1):
            found.append(verdict)
            if progress is not None:
                progress("verify", len(found), len(wanted) - len(found))
    found.sort(key=lambda verdict: wanted.index(verdict["rule"]))
    write_json({"rules": found, "seed": request.seed, "count": request.count}, told.json, report)
    if told.line:
        say(verdict_line(found))
    if told.table:
        render(verdict_pages(found) if told.verbose or len(found) == 1 else verdict_table(found))
    if not all(v["status"] in PASSED for v in found):
        raise typer.Exit(1)
