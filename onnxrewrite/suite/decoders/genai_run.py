"""A folder run by onnxruntime-genai, where that is installed: the tokens that it writes."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from onnxrewrite.errors import CheckError, one_line
from onnxrewrite.suite.decoders.genai_config import NAME
from onnxrewrite.suite.decoders.greedy_generation import Text
from onnxrewrite.suite.decoders.token_check import TokenCheck, compare


def is_installed() -> bool:
    """True if onnxruntime-genai can be imported."""
    return importlib.util.find_spec("onnxruntime_genai") is not None


def check_folder(
    folder: Path, texts: Sequence[Sequence[int]], written: Sequence[Text], largest: float, found: TokenCheck
) -> None:
    """Let onnxruntime-genai continue texts, and compare with what was written, up to the token that ends a text.

    Raises:
        CheckError: It cannot run the folder, or writes other tokens.
    """
    ends = json.loads((folder / NAME).read_text(encoding="utf-8"))["model"]["eos_token_id"]
    ends = set(ends if isinstance(ends, list) else [ends])
    for prompt, wanted in zip(texts, written, strict=True):
        try:
            tokens = continued(folder, prompt, len(wanted.tokens))
        except Exception as error:  # it raises RuntimeError, and others, for all that it does not like
            raise CheckError(
                f"onnxruntime-genai cannot run the folder, and nothing was written: {one_line(error)}"
            ) from None
        stop = next((n for n, token in enumerate(wanted.tokens) if int(token) in ends), len(wanted.tokens))
        if len(tokens) < stop:
            raise CheckError(f"onnxruntime-genai stops after {len(tokens)} tokens, not {stop}; nothing was written")
        short = Text(wanted.tokens[:stop], wanted.logits[:stop])
        compare(found, short, np.asarray(tokens[:stop]), None, largest, f"onnxruntime-genai, a prompt of {len(prompt)}")


def continued(folder: Path, prompt: Sequence[int], steps: int) -> list[int]:
    """The tokens that onnxruntime-genai writes after a prompt, each the most likely one."""
    import onnxruntime_genai

    model = onnxruntime_genai.Model(str(folder))
    options = onnxruntime_genai.GeneratorParams(model)
    options.set_search_options(max_length=len(prompt) + steps, do_sample=False)
    generator = onnxruntime_genai.Generator(model, options)
    generator.append_tokens(np.asarray([prompt], np.int32))
    tokens = list[int]()
    while not generator.is_done() and len(tokens) < steps:
        generator.generate_next_token()
        tokens.append(int(generator.get_next_tokens()[0]))
    return tokens
