"""``onnxrewrite rules``: which rules there are, and what one of them does."""

from __future__ import annotations

from typing import Annotated

import typer

from onnxrewrite.cli import options
from onnxrewrite.cli.console import complain, render, say_text


def rules(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="A rule, or a rule set such as gelu.", show_default=False),
    ] = None,
    extra: options.Rules = [],  # noqa: B006
    target: Annotated[
        str | None, typer.Option("--target", metavar="TARGET", help="Only those that this target takes.")
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="All rules as a page of Markdown.")] = False,
) -> None:
    """List the rules and their sets, or show one.

    With NAME: what it matches, what it makes of that, and examples of both.
    """
    from onnxrewrite.ir.target import target as target_by_name
    from onnxrewrite.report.rules_report import catalogue, rule_list, rule_pages
    from onnxrewrite.rewrite import registry

    library = registry.load(extra)
    for line in library.broken:
        complain(line)
    taken = library.taken_by(target_by_name(target)) if target is not None else library.rules
    if markdown:
        say_text(catalogue(taken).rstrip("\n"))
        return
    render(rule_list(taken, library.sets.values()) if name is None else rule_pages(library.named(name)))
