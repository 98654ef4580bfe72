"""``onnxrewrite discover``: rules that nobody has written, from the regions of a corpus and from small graphs."""

from __future__ import annotations

import enum
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxrewrite.cli import options
from onnxrewrite.cli.console import progress_bar, say, show
from onnxrewrite.cli.output import write_json
from onnxrewrite.errors import UsageError

if TYPE_CHECKING:
    from onnxrewrite.suite.discovery.search_request import Request


class ModeName(enum.StrEnum):
    """Values of ``--by``."""

    KERNELS = "kernels"
    REGIONS = "regions"
    IDENTITIES = "identities"


@dataclass(frozen=True, kw_only=True)
class _Extent:
    """The extent of the search."""

    by: Annotated[
        list[ModeName],
        typer.Option(
            "--by",
            help="Compare regions with kernels, with each other's regions, or small graphs of no model.  Repeatable.",
        ),
    ] = field(default_factory=lambda: [ModeName.KERNELS])
    nodes: Annotated[int, typer.Option("--nodes", min=1, max=24, metavar="N", help="The most nodes of a region.")] = 12
    regions: Annotated[
        int, typer.Option("--regions", min=1, metavar="N", help="The most regions of a model, the small ones first.")
    ] = 3000
    graphs: Annotated[
        int, typer.Option("--graphs", min=1, metavar="N", help="The most small graphs of a family of operators.")
    ] = 5000
    count: Annotated[
        int | None, typer.Option("--count", min=1, metavar="N", help="Graphs to try each rule on, if not 160.")
    ] = None
    deepen: Annotated[
        int | None,
        typer.Option("--deepen", min=1, metavar="N", help="Times as many for each rule that is faster, if not 10."),
    ] = None
    prove: Annotated[bool, typer.Option("--prove", help="Prove what passes, too; needs z3.")] = False
    slow: Annotated[bool, typer.Option("--slow", help="Write rules that are right and not faster, too.")] = False
    seed: options.Seed = 0
    jobs: Annotated[int, typer.Option("--jobs", min=1, metavar="N", help="Models at a time, a process each.")] = 1
    executor: options.Executor = None
    budget: Annotated[
        float | None,
        typer.Option("--budget", min=0.0, metavar="SECONDS", help="Stop after so long; it can go on later."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class _Library:
    """The rules that there are, and what new ones are for."""

    rules: options.Rules = field(default_factory=list)
    without: options.Without = field(default_factory=list)
    target: options.Target = options.CPU


def discover(
    corpus: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CORPUS...]", help="Models, folders or globs; identities need none.", show_default=False
        ),
    ] = None,
    *,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIR", help="The folder for rule files.", show_default=False)
    ],
    extent: _Extent,
    library: _Library,
    told: options.DetailedOutput,
) -> None:
    """Find regions of models that a kernel or another region computes as well, and write the rules that say so.

    What is compared is compared by what it computes of the same random inputs: regions with kernels (--by kernels),
    with other regions (--by regions), or all small graphs of some operators with each other (--by identities).  What
    agrees becomes a rule, which is tried on many graphs, taught the preconditions that these show it to need, timed,
    and, if it is faster, tried on ten times as many.  Rules that are right and faster at some size are written, each as
    a file for --rules, and the page discover.html tells of all.  A run that was stopped goes on.

    Exit status: 0 done, also when nothing was found or the time ran out; 1 a model could not be searched; 2 bad
    arguments.
    """
    report = options.json_path(told.json)
    options.one_voice(told.quiet, told.verbose)
    if output.exists() and not output.is_dir():
        raise UsageError(f"-o {output}: is not a folder")
    if not corpus and set(extent.by) != {ModeName.IDENTITIES}:
        raise UsageError("CORPUS is missing: only --by identities needs no models")
    if extent.prove:
        from onnxrewrite.proof import require_prover

        require_prover()

    from onnxrewrite.report.discover_report import discover_line, discover_report
    from onnxrewrite.report.html import discover_page
    from onnxrewrite.suite.discovery.corpus_search import discover as discovered
    from onnxrewrite.system.atomic import write_whole
    from onnxrewrite.system.cluster import check_jobs, connected

    check_jobs(extent.executor, extent.jobs)
    request = _request(extent, library)
    with ExitStack() as stack:
        where = stack.enter_context(connected(extent.executor, extent.jobs)) if extent.executor else extent.jobs
        progress = stack.enter_context(progress_bar(wanted=not told.quiet))
        found = discovered(
            corpus or [],
            output,
            request,
            jobs=where,
            budget=extent.budget,
            slow=extent.slow,
            progress=progress,
        )
    data = found.to_json()
    write_whole(output / discover_page.NAME, discover_page.discover_page(data, str(output.resolve())), "-o")
    write_json(data, told.json, report)
    if told.table:
        show(discover_report, data, verbose=told.verbose)
    if told.line:
        say(discover_line(data))
    if any(m.error for m in found.models):
        raise typer.Exit(1)


def _request(extent: _Extent, library: _Library) -> Request:
    """The extent of the search, of rules that there are."""
    from onnxrewrite.rewrite import registry
    from onnxrewrite.ruletest.fuzz import INSTANCES
    from onnxrewrite.suite.discovery.search_request import DEEPENS, Request

    known = registry.load(library.rules)
    left_out = frozenset(r.name for name in library.without for r in known.named(name))
    return Request(
        rules=tuple(library.rules),
        without=left_out,
        target=library.target,
        by=tuple(dict.fromkeys(each.value for each in extent.by)),
        nodes=extent.nodes,
        regions=extent.regions,
        graphs=extent.graphs,
        count=extent.count or INSTANCES,
        deepens=extent.deepen or DEEPENS,
        seed=extent.seed,
        proves=extent.prove,
    )
