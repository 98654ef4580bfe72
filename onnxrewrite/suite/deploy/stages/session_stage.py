"""Session options of the model: ONNX Runtime's own level of optimization, and threads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import ClassVar

from onnxrewrite.runtime.settings import Level
from onnxrewrite.suite.deploy.artifact import Artifact
from onnxrewrite.suite.deploy.stage import Context, NothingToDo, Stage


@dataclass(frozen=True, kw_only=True)
class Session(Stage):
    """Options of the session.

    Attributes:
        levels: Levels of optimization to try.
        threads: Numbers of threads within an operator to try; not tried where the user gave one.
    """

    name: ClassVar[str] = "session"
    levels: tuple[Level, ...] = ("all", "extended", "basic")
    threads: tuple[int, ...] = ()

    def quick(self) -> None:
        """Other options seldom bring much."""

    def run(self, given: Artifact, context: Context) -> Iterator[Artifact]:
        """All combinations but the one that is there."""
        threads = (context.threads,) if context.threads else dict.fromkeys((given.setting.threads, *self.threads))
        settings = [replace(given.setting, level=level, threads=n) for level, n in product(self.levels, threads)]
        others = [s for s in settings if s != given.setting]
        if not others:
            raise NothingToDo("there are no other options to try")
        for setting in others:
            threads_of = f", {setting.threads} threads" if setting.threads else ""
            yield replace(
                given, setting=setting, opened_as=None, how=f"optimized by ONNX Runtime: {setting.level}{threads_of}"
            )
