"""``genai_config.json``, which tells onnxruntime-genai how to run a decoder.

Sizes come from the graph; what it cannot tell, such as the token that ends a text, from the ``config.json`` and
``generation_config.json`` that Transformers keeps beside a network, or from the caller.
Source: onnxruntime-genai 0.18, ``models/builders/base.py``, ``make_genai_config``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from onnxrewrite.errors import ModelError, UsageError
from onnxrewrite.suite.decoders import contract
from onnxrewrite.suite.decoders.decoder_interface import Interface
from onnxrewrite.system import files

NAME: Final = "genai_config.json"
KIND: Final = "decoder"
"""The type of a model of which nothing is known but its inputs and outputs."""

_LENGTHS: Final = ("max_position_embeddings", "n_positions", "n_ctx", "seq_length", "max_seq_len")
_LAYERS: Final = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
_HEADS: Final = ("num_attention_heads", "n_head", "num_heads", "n_heads")

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Special:
    """Decisions of the caller; None for what the files beside the model say.

    Attributes:
        context: The number of tokens that prompt and answer may have.
        bos: The token that begins a text.
        eos: The tokens that end one.
        pad: The token that fills up the shorter of several.
    """

    context: int | None = None
    bos: int | None = None
    eos: tuple[int, ...] = ()
    pad: int | None = None


def read_config(folder: Path) -> Json:
    """The contents of ``config.json`` and ``generation_config.json`` in a folder, the latter first; empty without.

    Raises:
        UsageError: One of them is not a JSON object.
    """
    found: Json = {}
    for name in ("config.json", "generation_config.json"):
        path = folder / name
        if not path.exists():
            continue
        try:
            read = json.loads(files.read_text(path))
        except (OSError, ValueError) as error:
            raise UsageError(f"{path}: cannot be read: {error}") from None
        if not isinstance(read, dict):
            raise UsageError(f"{path}: is no JSON object")
        inner = read.get("text_config")
        read = {**inner, **read} if isinstance(inner, dict) else read
        found |= {key: value for key, value in read.items() if value is not None or key not in found}
    return found


def require_agreement(config: Mapping[str, Any], interface: Interface) -> None:
    """Refuse a ``config.json`` of another network than that of the graph.

    Raises:
        ModelError: They contradict each other; the message names the entry.
    """
    facts = {"vocab_size": interface.words}
    for cache in interface.caches[:1]:
        facts |= dict.fromkeys(_LAYERS, len(interface.caches))
        facts |= {"num_key_value_heads": cache.heads, "head_dim": cache.size}
    for name, actual in facts.items():
        said = config.get(name)
        if isinstance(said, int) and said != actual:
            raise ModelError(f"config.json contradicts the graph: {name} is {said}, the graph has {actual}")


def genai_config(
    interface: Interface, config: Mapping[str, Any], special: Special, *, heads: int | None, shared: bool
) -> Json:
    """The contents of ``genai_config.json``.

    Args:
        interface: Of a model under the contract.
        config: As ``read_config`` gives it.
        special: What the caller decides.
        heads: The number of heads of queries; None where it is not known.
        shared: True if past and present may be one buffer of the greatest length.

    Raises:
        UsageError: Nothing says how long a text may be, or what ends it.
    """
    context = context_of(config, special)
    eos = list(special.eos) or config.get("eos_token_id")
    if eos is None or eos == []:
        raise UsageError("the token that ends a text is not known; say it with --eos, or in a config.json")
    last = eos[0] if isinstance(eos, list) else eos
    bos, pad = (
        _chosen(given, config.get(name))
        for given, name in ((special.bos, "bos_token_id"), (special.pad, "pad_token_id"))
    )
    cache = interface.caches[0]
    decoder: Json = {
        "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
        "filename": "model.onnx",
        "head_size": cache.size,
        "hidden_size": interface.width,
        "inputs": _inputs(interface),
        "outputs": {
            "logits": interface.logits,
            "present_key_names": contract.PRESENT_KEY,
            "present_value_names": contract.PRESENT_VALUE,
        },
        "num_attention_heads": heads or _first(config, _HEADS) or cache.heads,
        "num_hidden_layers": len(interface.caches),
        "num_key_value_heads": cache.heads,
    }
    model = {
        "bos_token_id": last if bos is None else bos,
        "context_length": context,
        "decoder": decoder,
        "eos_token_id": eos[0] if isinstance(eos, list) and len(eos) == 1 else eos,
        "pad_token_id": last if pad is None else pad,
        "type": KIND,
        "vocab_size": interface.words,
    }
    return {"model": model, "search": _search(config, context, shared=shared)}


def context_of(config: Mapping[str, Any], special: Special) -> int:
    """The number of tokens that a text may have.

    Raises:
        UsageError: Nothing says it.
    """
    context = special.context or _first(config, _LENGTHS)
    if context is None:
        raise UsageError("how many tokens a text may have is not known; say it with --context, or in a config.json")
    return context


def _inputs(interface: Interface) -> Json:
    named = {
        "input_ids": interface.ids,
        "attention_mask": interface.mask,
        "position_ids": interface.positions,
        "past_key_names": contract.PAST_KEY,
        "past_value_names": contract.PAST_VALUE,
    }
    return {part: name for part, name in named.items() if name is not None}


def _search(config: Mapping[str, Any], context: int, *, shared: bool) -> Json:
    """The way tokens are chosen: as the files beside the model say, else the most likely one."""
    defaults: Json = {
        "do_sample": False,
        "length_penalty": 1.0,
        "no_repeat_ngram_size": 0,
        "num_beams": 1,
        "num_return_sequences": 1,
        "repetition_penalty": 1.0,
        "temperature": 1.0,
        "top_k": 50,
        "top_p": 1.0,
    }
    chosen = {key: config[key] if config.get(key) is not None else value for key, value in defaults.items()}
    fixed = {"early_stopping": True, "max_length": context, "min_length": 0, "past_present_share_buffer": shared}
    return dict(sorted({**chosen, **fixed}.items()))


def _first(config: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    found = (config[name] for name in names if isinstance(config.get(name), int))
    return next(found, None)


def _chosen(given: int | None, said: object) -> int | None:
    if given is not None:
        return given
    first = said[0] if isinstance(said, list) and said else said
    return first if isinstance(first, int) else None
