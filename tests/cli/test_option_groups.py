"""Groups of options: what typer sees of them, and what the command gets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import typer
from typer.testing import CliRunner

from onnxrewrite.cli.option_groups import ungrouped


@dataclass(frozen=True, kw_only=True)
class _Inner:
    names: Annotated[list[str], typer.Option("--name")] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class _Outer:
    size: Annotated[int, typer.Option("--size")]
    inner: _Inner
    depth: Annotated[int, typer.Option("--depth")] = 3


def _made(found):
    def command(
        first: Annotated[str, typer.Argument()], outer: _Outer, last: Annotated[bool, typer.Option("--last")] = False
    ) -> None:
        found.append((first, outer, last))

    app = typer.Typer(add_completion=False)
    app.command()(ungrouped(command))
    return app


def test_fields_are_options_in_the_place_of_the_group():
    params = typer.main.get_command(_made([])).params
    assert [p.name for p in params] == ["first", "size", "names", "depth", "last"]
    assert [p.required for p in params] == [True, True, False, False, False]


def test_the_command_gets_the_groups():
    found = []
    done = CliRunner().invoke(_made(found), ["a", "--size", "2", "--name", "x", "--name", "y", "--last"])
    assert done.exit_code == 0
    assert found == [("a", _Outer(size=2, inner=_Inner(names=["x", "y"]), depth=3), True)]


def test_an_option_without_a_default_is_required():
    found = []
    assert CliRunner().invoke(_made(found), ["a"]).exit_code == 2
    assert found == []
