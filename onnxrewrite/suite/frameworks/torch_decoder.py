"""A decoder of Transformers as an exporter takes it: token ids and the mask in, logits out.  Imports torch.

Its cache is left out: both exporters take a module without one more often than one with it, and past keys and values
are added to the graph (``suite.decoders.past``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from onnxrewrite.errors import UsageError

INPUTS = ("input_ids", "attention_mask")
AXES = {name: {0: "batch", 1: "sequence"} for name in INPUTS}
OUTPUT = "logits"


class WholeText(torch.nn.Module):
    """A decoder that reads a whole text."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model, self.training = model, model.training

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """The logits, of shape [batch, sequence, words]."""
        made: Any = self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False)
        logits: torch.Tensor = made.logits
        return logits


def example_of(module: torch.nn.Module, example: object) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and a mask of ones, from an example that is one of ids, or has them.

    Raises:
        UsageError: The module is no decoder of Transformers, or the example has no ids [batch, sequence].
    """
    if not hasattr(module, "config") or not hasattr(module, "generate"):
        raise UsageError(f"{type(module).__name__} is no decoder of Transformers; export it, and use genai on the file")
    ids = example.get("input_ids") if isinstance(example, Mapping) else example
    ids = ids[0] if isinstance(ids, tuple | list) and len(ids) == 1 else ids
    if not isinstance(ids, torch.Tensor) or ids.ndim != 2 or ids.dtype not in (torch.int64, torch.int32):
        raise UsageError("the example of a decoder must be its input_ids, integers of shape [batch, sequence]")
    return ids, torch.ones_like(ids, dtype=torch.int64)


@contextmanager
def beside(module: torch.nn.Module, tokenizer: object) -> Iterator[tuple[Path, Path | None]]:
    """Folders of the files that a decoder and its tokenizer are kept with.

    Args:
        module: The decoder.
        tokenizer: A folder, or a tokenizer of Transformers, or None.

    Raises:
        UsageError: It is none of these.
    """
    with TemporaryDirectory(prefix="onnxrewrite-") as name:
        folder = Path(name)
        known: Any = module
        known.config.save_pretrained(folder)
        if getattr(known, "generation_config", None) is not None:
            known.generation_config.save_pretrained(folder)
        if tokenizer is None or isinstance(tokenizer, str | Path):
            yield folder, None if tokenizer is None else Path(tokenizer)
        elif hasattr(tokenizer, "save_pretrained"):
            tokenizer.save_pretrained(folder)
            yield folder, folder
        else:
            raise UsageError(f"tokenizer is a {type(tokenizer).__name__}; give a folder, or one of Transformers")
