"""What a sweep shows."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from onnxrewrite.report.sweep_report import sweep_line, sweep_report


def row(model: str, status: str, **more: Any) -> dict[str, Any]:
    plain = {"nodes": None, "size": None, "ratio": None, "error": "", "seconds": 1.25, "resumed": False, "notes": []}
    return {"model": model, "status": status, "attempts": 1, **plain, **more}


DATA = {
    "models": [
        row("a.onnx", "unusable", error="is empty"),
        row("b.onnx", "done", nodes={"before": 9, "after": 3}, ratio=0.5, resumed=True, notes=["--dim q: none", "x"]),
        row("c.onnx", "failed", error="the result is not equal", attempts=2),
        row("d.onnx", "done", notes=["--dim q: none"]),
    ],
    "left_out": [{"path": "e.onnx", "reason": "an earlier sweep wrote it"}],
    "notes": ["the executor failed"],
}


def shown(**options: bool) -> list[str]:
    console = Console(width=100, highlight=False)
    with console.capture() as captured:
        console.print(sweep_report(DATA, **options))
    return [" ".join(line.split()) for line in captured.get().splitlines()]


def test_failures_come_before_what_could_not_be_read() -> None:
    assert shown() == [
        "model nodes size ratio seconds",
        "a.onnx unusable 1.2",
        "b.onnx done, known 9 → 3 0.50 1.2",
        "c.onnx failed, 2 attempts 1.2",
        "d.onnx done 1.2",
        "",
        "Failed c.onnx: the result is not equal",
        "Unusable a.onnx: is empty",
        "Left out e.onnx: an earlier sweep wrote it",
        "Note the executor failed",
        "--dim q: none",
    ]


def test_notes_on_single_models_are_for_those_who_ask() -> None:
    assert shown(verbose=True)[-1] == "b.onnx: x"


def test_in_one_line() -> None:
    assert sweep_line(DATA) == "4 models: 2 done, 1 failed, 1 unusable (1 of them earlier)"
