"""Rules on graphs in text form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx
import onnx_ir as ir

from onnxrewrite import io
from onnxrewrite.ir import text
from onnxrewrite.ir.target import target
from onnxrewrite.pattern.terms import Term, Var
from onnxrewrite.rewrite.driver import Driver, Review
from onnxrewrite.rewrite.edit import drop_unused_initializers
from onnxrewrite.rules import Rule, Stage, op

x = Var("x")


def rule(
    name: str,
    pattern: Term | tuple[Term, ...],
    rewrite: Callable[..., Any],
    stage: Stage = Stage.CANONICALIZE,
    **options: Any,
) -> Rule:
    return Rule(name=name, stage=stage, pattern=pattern, rewrite=rewrite, **options)


def renaming(old: str, new: str, **options: Any) -> Rule:
    """``old(x) ⟶ new(x)``; wrong, of course, and easy to see."""
    return rule(f"{old}-to-{new}".lower(), op[old](x), lambda m, build: getattr(build, new)(m[x]), **options)


def drive(
    source: str | ir.Model,
    rules: Sequence[Rule],
    *,
    opset: int = 17,
    check: Any = None,
    quarantine: Sequence[tuple[str, str]] = (),
    runs_on: str = "onnxruntime-cpu",
    conflicts: bool = False,
) -> Driver:
    """Apply ``rules``; the driver holds the model and what happened."""
    model = text.parse(source, opset=opset) if isinstance(source, str) else source
    driver = Driver(
        io.load(model), rules, target(runs_on), review=Review(check, conflicts=conflicts), quarantine=quarantine
    )
    driver.run()
    return driver


def printed(driver: Driver) -> str:
    """The statements of the main graph, one a line; the header and unused initializers left out."""
    drop_unused_initializers(driver.model.graph)
    lines = text.print_graph(driver.model.graph).splitlines()
    return "\n".join(line.strip() for line in lines if line.startswith(" "))


def valid(driver: Driver) -> onnx.ModelProto:
    """The model as a message that onnx's own checker accepts."""
    for node in driver.model.graph.all_nodes():
        node.version = None
    proto = io.to_proto(driver.model)
    onnx.checker.check_model(proto, full_check=True)
    return proto


def reason(driver: Driver, name: str) -> str:
    """Why a rule did not apply."""
    return " | ".join(driver.trace.refused.get(name, {}).values())
