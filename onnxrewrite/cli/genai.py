"""``onnxrewrite genai``: a decoder as a folder that onnxruntime-genai runs."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from onnxrewrite.cli import options
from onnxrewrite.cli.console import progress_bar, say, show
from onnxrewrite.cli.output import refusal_told, write_json
from onnxrewrite.errors import Rest, UsageError

if TYPE_CHECKING:
    from onnxrewrite.suite.decoders.decoder_weights import WeightSettings
    from onnxrewrite.suite.decoders.genai_conversion import GenaiSettings


class Padding(enum.StrEnum):
    """Values of ``--padding``; a test compares them with those of the library."""

    RIGHT = "right"
    ANY = "any"


@dataclass(frozen=True, kw_only=True)
class _Parts:
    """The inputs and outputs, where their part cannot be told from the graph."""

    ids: Annotated[str | None, typer.Option("--ids", metavar="NAME", help="The input of token ids.")] = None
    mask: Annotated[str | None, typer.Option("--mask", metavar="NAME", help="The input that masks padding.")] = None
    positions: Annotated[str | None, typer.Option("--positions", metavar="NAME", help="The input of positions.")] = None
    logits: Annotated[str | None, typer.Option("--logits", metavar="NAME", help="The output of logits.")] = None


@dataclass(frozen=True, kw_only=True)
class _Text:
    """The text: what the graph cannot tell, and no config.json beside the model does."""

    tokenizer: Annotated[
        str | None, typer.Option("--tokenizer", metavar="DIR", help="Folder of tokenizer files; else that of MODEL.")
    ] = None
    config: Annotated[
        str | None, typer.Option("--config", metavar="DIR", help="Folder of config.json; else that of MODEL.")
    ] = None
    context: Annotated[
        int | None, typer.Option("--context", min=2, metavar="N", help="Tokens that a text may have.")
    ] = None
    eos: Annotated[
        list[int], typer.Option("--eos", min=0, metavar="ID", help="Token that ends a text.  Repeatable.")
    ] = field(default_factory=list)
    bos: Annotated[int | None, typer.Option("--bos", min=0, metavar="ID", help="Token that begins a text.")] = None
    pad: Annotated[int | None, typer.Option("--pad", min=0, metavar="ID", help="Token that fills up a text.")] = None


class Bits(enum.StrEnum):
    """Values of ``--weights``, of those that ``quantize`` has."""

    INT8 = "int8"
    INT4 = "int4"
    MIXED = "mixed"


@dataclass(frozen=True, kw_only=True)
class _Weights:
    """Weights in few bits, as ``quantize --mode weights`` stores them."""

    weights: Annotated[
        Bits | None,
        typer.Option("--weights", help="Dtype of weights; mixed: bits and blocks where they pay, a product each."),
    ] = None
    block_size: Annotated[
        int, typer.Option("--block-size", metavar="N", help="Elements that share a scale, of int8 and int4.")
    ] = 32
    algorithm: options.Algorithm = options.Rounding.NEAREST
    max_divergence: Annotated[
        float, typer.Option("--max-divergence", metavar="D", help="Of mixed: nats that a token may be off, on average.")
    ] = 0.01
    data: Annotated[
        str | None,
        typer.Option(
            "--data", metavar="NPY|NPZ|DIR|MODULE:FUNCTION", help="Texts: ids, a text in each row; or all inputs."
        ),
    ] = None
    min_tokens: Annotated[
        float, typer.Option("--min-tokens", metavar="T", help="With --data: greedy tokens that stay the same, 0 to 1.")
    ] = 0.98
    max_perplexity: Annotated[
        float, typer.Option("--max-perplexity", metavar="P", help="With --data: times the perplexity of MODEL.")
    ] = 1.01
    no_gate: Annotated[bool, typer.Option("--no-gate", help="Write the folder, whatever the weights lose.")] = False
    threads: options.Threads = 0


@dataclass(frozen=True, kw_only=True)
class _Conversion:
    """The conversion and its check."""

    padding: Annotated[
        Padding,
        typer.Option(
            "--padding",
            help="right: shorter texts of a batch are filled up at their ends, which the fastest attention assumes; "
            "any: wherever the mask says.",
        ),
    ] = Padding.RIGHT
    all_logits: Annotated[
        bool,
        typer.Option("--all-logits", help="Give logits of all tokens of a prompt, and not of the last one only."),
    ] = False
    lower: options.Lower = options.Lowering.FUSED
    tokens: Annotated[
        int, typer.Option("--tokens", min=1, metavar="N", help="Tokens after each prompt that are compared.")
    ] = 32
    seed: options.Seed = 0


def genai(
    model: options.Model,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FOLDER", help="The folder to write.")],
    *,
    parts: _Parts,
    text: _Text,
    weights: _Weights,
    asked: _Conversion,
    told: options.Output,
) -> None:
    """Make a folder of a decoder that onnxruntime-genai runs.

    Inputs and outputs are found by what they do; a decoder without past keys and values is given them.  Attention
    becomes GroupQueryAttention, whose past and present share a buffer; what cannot be expressed stays as it is, and is
    reported.  The folder must write the same tokens as MODEL: in ONNX Runtime, and in onnxruntime-genai if it is
    installed.

    --weights stores weights in few bits.  With --data, the share of greedy tokens that stay the same and the perplexity
    decide whether that is good enough.

    Exit status: 0 done; 1 it writes other tokens, or its weights lose too much, and nothing was written; 2 bad
    arguments, an unreadable model, or one that is no decoder.
    """
    from pathlib import Path

    report = options.json_path(told.json, model)

    from onnxrewrite import io
    from onnxrewrite.suite.decoders import genai_folder
    from onnxrewrite.suite.decoders.genai_conversion import genai as made

    genai_folder.require_free(Path(output))
    options.keep_weights(io.load(model), report, "--json")
    settings = _settings(parts, text, weights, asked)
    with progress_bar(wanted=not told.quiet) as progress, refusal_told(model, told.json, report):
        found = made(model, output, settings, tokenizer=text.tokenizer, config=text.config, progress=progress)
    data = {"model": model, **found.to_json()}
    rest = Rest(f"{output} was written")
    with rest.part("the report"):
        write_json(data, told.json, report)
    if told.line:
        say(output)
    if told.table:
        from onnxrewrite.report.genai_report import genai_report

        show(genai_report, data)
        say("")
        say(f"Wrote {output}")
    rest.end()


def _of_weights(asked: _Weights) -> WeightSettings | None:
    """The same as the library has it; None where they stay."""
    if asked.weights is None:
        if asked.data is not None:
            raise UsageError("--data: says what --weights loses, and nothing without it")
        return None
    from onnxrewrite.suite.decoders.decoder_weights import WeightSettings
    from onnxrewrite.suite.quality.gate import Gate
    from onnxrewrite.suite.quantization.quantize_settings import QuantizeSettings

    gate = Gate(min_tokens=asked.min_tokens, max_perplexity=asked.max_perplexity)
    settings = QuantizeSettings(
        mode="weights",
        weights=asked.weights.value,
        block_size=asked.block_size,
        algorithm=asked.algorithm.value,
        max_divergence=asked.max_divergence,
        min_agreement=asked.min_tokens,
        rows=1,
    )
    return WeightSettings(
        quantize=settings, data=asked.data, gate=None if asked.no_gate else gate, threads=asked.threads
    )


def _settings(parts: _Parts, text: _Text, weights: _Weights, asked: _Conversion) -> GenaiSettings:
    """The same as the library has it."""
    from onnxrewrite.suite.decoders.genai_config import Special
    from onnxrewrite.suite.decoders.genai_conversion import GenaiSettings
    from onnxrewrite.suite.decoders.grouped_query import Padding as Side

    return GenaiSettings(
        parts=vars(parts),
        special=Special(context=text.context, eos=tuple(text.eos), bos=text.bos, pad=text.pad),
        padding=Side(asked.padding.value),
        all_logits=asked.all_logits,
        lower=asked.lower.value,
        tokens=asked.tokens,
        seed=asked.seed,
        weights=_of_weights(weights),
    )
