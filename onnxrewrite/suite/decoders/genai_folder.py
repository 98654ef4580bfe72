"""The folder that onnxruntime-genai runs: complete, or not there."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx_ir as ir

from onnxrewrite import io
from onnxrewrite.errors import ModelError, UsageError
from onnxrewrite.suite.decoders.genai_config import NAME
from onnxrewrite.system.atomic import whole_folder

TOKENIZER = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "chat_template.jinja",
)
"""The files that a tokenizer of Transformers is kept in; which of them there are depends on its kind."""

MODEL = "model.onnx"


def require_free(out: Path) -> None:
    """Refuse a path at which there is something already, unless it is an empty folder.

    Raises:
        UsageError: There is; or the folder above it is not there.
    """
    if not out.name:
        raise UsageError(f"-o {out}: is no name of a folder")
    if not out.parent.is_dir():
        raise UsageError(f"-o {out}: there is no folder {out.parent}")
    if out.is_dir() and not out.is_symlink():
        if any(out.iterdir()):
            raise UsageError(f"-o {out}: is not empty")
    elif out.exists() or out.is_symlink():
        raise UsageError(f"-o {out}: is no folder")


@contextlib.contextmanager
def made_whole(out: Path) -> Iterator[Path]:
    """A temporary folder beside ``out``, which is given that name at the end, or removed if something fails.

    Raises:
        ModelError: It cannot be made, or not be renamed.
    """
    try:
        with whole_folder(out) as made:
            yield made
    except OSError as error:
        raise ModelError(f"-o {out}: cannot be written: {error.strerror or error}") from None


def fill(folder: Path, model: ir.Model, config: Mapping[str, Any], tokenizer: Path | None) -> list[str]:
    """Write a model, its configuration and its tokenizer; the names of the tokenizer's files.

    Raises:
        ModelError: Something cannot be written.
    """
    io.save(model, folder / MODEL)
    text = json.dumps(config, indent=4, ensure_ascii=False)
    (folder / NAME).write_text(f"{text}\n", encoding="utf-8", newline="\n")
    found = [] if tokenizer is None else [name for name in TOKENIZER if (tokenizer / name).is_file()]
    for name in found:
        assert tokenizer is not None
        shutil.copyfile(tokenizer / name, folder / name)
    return found
