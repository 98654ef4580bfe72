"""The report of ``bench --generate``: the first token and those after it, side by side."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from onnxrewrite.measure.timing import Span
from onnxrewrite.report import human
from onnxrewrite.report.plain_reports import GenerationReport
from onnxrewrite.report.table import plain_table


def generation_report(data: GenerationReport) -> RenderableType:
    """``data`` is the ``to_json()`` of ``GenerationTimes``."""
    threads = human.plural(data["threads"], "thread") if data["threads"] else "threads as ONNX Runtime chooses"
    head = f"{data['prompt']} tokens, and {data['tokens']} after them: {data['provider']}, {threads}"
    columns = ("model", "first token in>", "ratio>", "95 %", "next in>", "ratio>", "95 %", "tokens/s>", "memory>")
    table = plain_table(*columns)
    for column in (3, 6):
        table.columns[column].no_wrap = True
    for number, row in enumerate(data["decoders"]):
        table.add_row(
            row["name"],
            human.duration(row["prompt"]["latency"]["median"]),
            *_ratio(row["prompt_ratio"], number),
            human.duration(row["step"]["latency"]["median"]),
            *_ratio(row["step_ratio"], number),
            f"{row['tokens_a_second']:.1f}",
            human.size(row["memory"]) if row["memory"] is not None else "",
        )
    again = [row["name"] for row in data["decoders"] if not row["has_past"]]
    notes = [f"{name} has no past: it reads the whole text for each token" for name in again]
    parts: list[RenderableType] = [Text(head, "bold"), "", Padding(table, (0, 0, 0, 2))]
    parts += ["", *map(Text, notes)] if notes else []
    return Group(*parts)


def _ratio(found: Span, number: int) -> tuple[str, str]:
    """The ratio to the first model, and where it lies; below 1 is faster."""
    return f"{found['median']:.2f}", f"{found['low']:.2f}–{found['high']:.2f}" if number else ""
