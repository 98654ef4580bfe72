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


def require_agreement(config: Mapping[str, Any], interface: Interface, heads: int | None = None) -> None:
    """Refuse a ``config.json`` of another network than that of the graph.

    Args:
        config: As ``read_config`` gives it.
        interface: Of the graph; without past, nothing is known of layers and heads.
        heads: The number of heads of queries; None where it is not known.

    Raises:
        ModelError: They contradict each other; the message names the entry.
    """
    facts = {"vocab_size": interface.words}
    for cache in interface.caches[:1]:
        facts |= dict.fromkeys(_LAYERS, len(interface.caches))
        facts |= {"num_key_value_heads": cache.heads, "head_dim": cache.size}
    if heads is not None:
        facts |= dict.fromkeys(_HEADS, heads)
    for name, actual in facts.items():
        said = config.get(name)
        if isinstance(said, int) and said != actual:
            raise ModelError(f"config.json contradicts the graph: {name} is {said}, the graph has {actual}")


def special_tokens(config: Mapping[str, Any], special: Special, words: int) -> Json:
    """The tokens that begin and end a text, and fill up the shorter of several.

    Args:
        config: As ``read_config`` gives it.
        special: What the caller decides.
        words: The number of tokens that logits are given for.

    Raises:
        UsageError: Nothing says what ends a text, or the caller says a token that there is not.
        ModelError: ``config.json`` does.
    """
    for option, tokens in (("--eos", special.eos), ("--bos", (special.bos,)), ("--pad", (special.pad,))):
        for token in tokens:
            if token is not None and not 0 <= token < words:
                raise UsageError(f"{option} {token}: the model has {words} tokens")
    said = config.get("eos_token_id")
    eos = list(special.eos) or (said if isinstance(said, list) else [said] if said is not None else [])
    if not eos:
        raise UsageError("the token that ends a text is not known; say it with --eos, or in a config.json")
    for token in eos:
        if not isinstance(token, int) or not 0 <= token < words:
            raise ModelError(
                f"config.json contradicts the graph: eos_token_id is {token}, the graph has {words} tokens"
            )
    return {
        "bos_token_id": _chosen(special.bos, config.get("bos_token_id"), eos[0], words),
        "eos_token_id": eos[0] if len(eos) == 1 else eos,
        "pad_token_id": _chosen(special.pad, config.get("pad_token_id"), eos[0], words),
    }


def genai_config(
    interface: Interface, config: Mapping[str, Any], named: Json, *, context: int, heads: int | None, shared: bool
) -> Json:
    """The contents of ``genai_config.json``.

    Args:
        interface: Of a model under the contract.
        config: As ``read_config`` gives it.
        named: The special tokens.
        context: The number of tokens that a text may have.
        heads: The number of heads of queries; None where it is not known.
        shared: True if past and present may be one buffer of the greatest length.
    """
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
        **named,
        "context_length": context,
        "decoder": decoder,
        "type": KIND,
        "vocab_size": interface.words,
    }
    return {"model": dict(sorted(model.items())), "search": _search(config, context, shared=shared)}


def context_of(config: Mapping[str, Any], special: Special, interface: Interface) -> int:
    """The number of tokens that a text may have.

    Raises:
        UsageError: Nothing says it.
        ModelError: The model has no positions for as many.
    """
    context = special.context or _first(config, _LENGTHS)
    if context is None:
        raise UsageError("how many tokens a text may have is not known; say it with --context, or in a config.json")
    if interface.places is not None and context > interface.places:
        raise ModelError(f"a text of {context} tokens is too long: the model has {interface.places} positions")
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


def _chosen(given: int | None, said: object, otherwise: int, words: int) -> int:
    """A token that the caller decides, or that a file says, if there is such a token: some say -1 for none."""
    first = said[0] if isinstance(said, list) and said else said
    told = first if isinstance(first, int) and 0 <= first < words else otherwise
    return told if given is None else given
