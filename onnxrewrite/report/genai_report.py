"""The report of ``genai``: the interface that was found, what attention became, and what was compared."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from onnxrewrite.report.human import size
from onnxrewrite.report.quantize_report import text_line
from onnxrewrite.report.table import facts_grid
from onnxrewrite.system.plain import Plain

_NOTES = 8


def genai_report(data: Plain) -> RenderableType:
    """``data`` is the ``to_json()`` of a ``GenaiFolder``, with ``model``."""
    layers = f"{data['layers']} layers of {data['heads']} heads of {data['head_size']}, {data['words']} words"
    head = Text.assemble((data["model"], "bold"), f": {layers}")
    return Group(head, "", facts_grid([*_found(data), *_said(data)]))


def _found(data: Plain) -> list[tuple[str, str]]:
    parts = ", ".join(f"{part} `{name}`" for part, name in data["inputs"].items() if name is not None)
    became = ", ".join(f"{count} × {name}" for name, count in data["attentions"].items())
    buffer = "past and present share a buffer" if data["shared_buffer"] else "past and present are apart"
    nodes = data["nodes"]
    added = [("Past", "was added; one pass over a text gives what its steps give")] if data["past_added"] else []
    return [
        ("Interface", parts),
        *added,
        ("Attention", f"{became}; {buffer}"),
        ("Nodes", f"{nodes['before']} before, {nodes['after']} after"),
        ("Tokenizer", ", ".join(data["tokenizer"]) or "no files were found"),
    ]


def _said(data: Plain) -> list[tuple[str, str]]:
    check = data["check"]
    ties = f", {check['ties']} ties" if check["ties"] else ""
    told = f"{check['tokens']} tokens are the same{ties}; logits differ by {check['error']:.1e} of their range at most"
    rows = [*_weights(data["weights"]), ("Checked", told), *(("", run) for run in check["runs"])]
    rows += [("Assumes" if not n else "", each) for n, each in enumerate(data["assumes"])]
    notes = data["notes"]
    rows += [("Stays" if not n else "", each) for n, each in enumerate(notes[:_NOTES])]
    return [*rows, *([("", f"{len(notes) - _NOTES} more")] if len(notes) > _NOTES else [])]


def _weights(found: Plain) -> list[tuple[str, str]]:
    """The form of the weights, the tokens and the perplexity; nothing where they are as they were."""
    if found is None:
        return []
    before, after = found["size"]["before"], found["size"]["after"]
    quality = found["quality"]
    told = text_line(quality["text"]) if quality["text"] is not None else f"cosine similarity {1 - quality['drop']:.4f}"
    rows = [("Weights", f"{found['name']}: {size(before)} before, {size(after)} after"), ("Quality", told)]
    return [*rows, *(("", each) for each in (*quality["doubts"], *found["notes"]))]
