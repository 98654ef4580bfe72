"""``genai``: from the export of a decoder to a folder that onnxruntime-genai runs, checked by the tokens it writes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx_ir as ir

from onnxrewrite import io
from onnxrewrite.api.application import apply
from onnxrewrite.compiler.loop import Progress
from onnxrewrite.compiler.request import CheckLevel, Lowering
from onnxrewrite.errors import CheckError, ModelError, UsageError
from onnxrewrite.io import preserved
from onnxrewrite.io.inlining import inlined
from onnxrewrite.runtime.references import by_reference
from onnxrewrite.runtime.session import Session, open_session
from onnxrewrite.suite.decoders import angles, genai_folder, genai_run, masks
from onnxrewrite.suite.decoders.attention_operators import ATTENTIONS
from onnxrewrite.suite.decoders.caches import Cache, is_shareable
from onnxrewrite.suite.decoders.contract import under_contract, without_shapes_of_pasts
from onnxrewrite.suite.decoders.decoder_interface import Interface, find_interface
from onnxrewrite.suite.decoders.decoder_weights import FewBits, WeightSettings, in_few_bits
from onnxrewrite.suite.decoders.genai_config import (
    Special,
    context_of,
    genai_config,
    read_config,
    require_agreement,
    special_tokens,
)
from onnxrewrite.suite.decoders.greedy_generation import Side
from onnxrewrite.suite.decoders.grouped_query import Padding, rules
from onnxrewrite.suite.decoders.last_token import keep_last
from onnxrewrite.suite.decoders.past import add_past
from onnxrewrite.suite.decoders.sinks import SinksStay, take_out
from onnxrewrite.suite.decoders.stepwise import require_causal, require_stepwise
from onnxrewrite.suite.decoders.token_check import TokenCheck, check_tokens, furthest, largest, prompts
from onnxrewrite.suite.decoders.token_counts import spell_counts
from onnxrewrite.suite.quantization.block_weights import at_level
from onnxrewrite.suite.quantization.weight_format import EXACT

_OPSET = 23
"""The first that has Attention, of which grouped-query attention is made."""

_OTHER_ATTENTIONS = (
    "attention-to-multi-head",
    "attention-lower",
    "attention-lower-spelled",
    "attention-pack",
    "attention-pack-joint",
)
"""Rules of the library that lower attention in another way."""

_COUNTING = ("embed-norm",)
"""Rules of the library whose operator counts positions itself, which begin at a past once there is one."""


@dataclass(frozen=True, kw_only=True)
class GenaiSettings:
    """The settings of ``genai``.

    Attributes:
        parts: The names of inputs and outputs that the caller decides; see ``find_interface``.
        special: Tokens and lengths that the caller decides.
        padding: Where texts of a batch are padded; what that rules out need not be computed.
        lower: How the rewrite chooses kernels, see ``onnxrewrite.apply``.
        check: How thoroughly the rewrites are checked, see ``onnxrewrite.apply``.
        all_logits: True for logits of all new tokens; else those of the last one, if texts are padded on the right.
        tokens: The number of tokens after each prompt that are compared.
        seed: Of the prompts, and of the inputs of checks.
        weights: How weights are stored in few bits, and judged; None leaves them as they are.
    """

    parts: Mapping[str, str | None] = field(default_factory=dict)
    special: Special = field(default_factory=Special)
    padding: Padding = Padding.RIGHT
    lower: Lowering = "fused"
    check: CheckLevel = "full"
    all_logits: bool = False
    tokens: int = 32
    seed: int = 0
    weights: WeightSettings | None = None


@dataclass(frozen=True, kw_only=True)
class GenaiFolder:
    """A folder that onnxruntime-genai runs.

    Attributes:
        path: The folder.
        interface: The interface that the given model has.
        caches: The keys and values of each layer in the folder's model; the given one may have none.
        attentions: The number of layers by the operator of their attention; ``Softmax`` for one that is spelled out.
        shared: True if past and present are one buffer.
        tokenizer: The names of the tokenizer's files.
        check: The comparison with the given model; with the same weights in few bits, where they are.
        weights: The form of the weights, and their quality; None if they are as they were.
        nodes: The number of nodes before and after.
        assumes: What is assumed of how it is used.
        notes: What stays as it was, and why.
    """

    path: Path
    interface: Interface
    caches: tuple[Cache, ...]
    attentions: Mapping[str, int]
    shared: bool
    tokenizer: tuple[str, ...]
    check: TokenCheck
    weights: FewBits | None
    nodes: tuple[int, int]
    assumes: tuple[str, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        face = self.interface
        return {
            "output": str(self.path),
            "inputs": {"ids": face.ids, "mask": face.mask, "positions": face.positions, "logits": face.logits},
            "past_added": not face.caches,
            "layers": len(self.caches),
            "heads": self.caches[0].heads,
            "head_size": self.caches[0].size,
            "words": face.words,
            "attentions": dict(self.attentions),
            "shared_buffer": self.shared,
            "tokenizer": list(self.tokenizer),
            "check": self.check.to_json(),
            "weights": None if self.weights is None else self.weights.to_json(),
            "nodes": {"before": self.nodes[0], "after": self.nodes[1]},
            "assumes": list(self.assumes),
            "notes": list(self.notes),
        }


def genai(
    source: io.Source,
    out: str | os.PathLike[str],
    settings: GenaiSettings = GenaiSettings(),
    *,
    tokenizer: str | os.PathLike[str] | None = None,
    config: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> GenaiFolder:
    """Write a folder from a decoder that onnxruntime-genai runs as it is; one without past is given it.

    Args:
        source: A path, an ``onnx.ModelProto`` or an ``onnx_ir.Model``; it is not changed.
        out: The folder, which must not be there, or be empty.
        settings: What is asked for.
        tokenizer: The folder of the tokenizer's files; None for that of the model.
        config: The folder of ``config.json`` and ``generation_config.json``; None for that of the model.
        progress: Called with (phase, done, to do).

    Raises:
        UsageError: Bad arguments; an input or output that must be told; nothing says what ends a text.
        ModelError: The model cannot be read, is no decoder, or contradicts its ``config.json``.
        CheckError: The folder does not write the tokens that the model writes; nothing was written.
    """
    target, beside = Path(out), Path(source).parent if isinstance(source, str | os.PathLike) else None
    genai_folder.require_free(target)
    for option, given in (("--config", config), ("--tokenizer", tokenizer)):
        if given is not None and not Path(given).is_dir():
            raise UsageError(f"{option} {os.fspath(given)}: is no folder")
    folders = [Path(given) if given is not None else beside for given in (config, tokenizer)]
    original = inlined(io.load(source)).model
    said = read_config(folders[0]) if folders[0] is not None else {}
    face = find_interface(original, settings.parts)
    require_agreement(said, face)
    named = special_tokens(said, settings.special, face.words)
    context = context_of(said, settings.special, face)
    if not face.caches:
        with by_reference(original) as given:
            require_causal(_opened(given, "the decoder"), face, settings.seed)
    few = None if settings.weights is None else in_few_bits(original, settings.weights, settings.seed, progress)
    exact = original if few is None else few.model
    made = _made(exact, face, settings, context, progress)
    require_agreement(said, made.interface, made.heads)
    written = genai_config(made.interface, said, named, context=context, heads=made.heads, shared=made.shared)
    with genai_folder.made_whole(target) as folder:
        files = genai_folder.fill(folder, made.model, written, folders[1])
        check = _checked(exact, face, made, folder, context)
    return GenaiFolder(
        path=target,
        interface=face,
        caches=made.interface.caches,
        attentions=made.attentions,
        shared=made.shared,
        tokenizer=tuple(files),
        check=check,
        weights=few,
        nodes=(len(original.graph), len(made.model.graph)),
        assumes=tuple(made.assumes),
        notes=tuple(made.notes),
    )


def _made(
    original: ir.Model, face: Interface, settings: GenaiSettings, context: int, progress: Progress | None
) -> _Made:
    """The decoder under the contract, rewritten; where its sinks cannot be expressed, they stay."""
    try:
        return _Made(original, face, settings, context, progress)
    except SinksStay as stay:
        made = _Made(original, face, settings, context, progress, sinks=False)
        made.notes.append(str(stay))
        return made


class _Made:
    """The decoder under the contract, rewritten.

    Attributes:
        model: The decoder.
        interface: Of it.
    """

    def __init__(
        self,
        original: ir.Model,
        face: Interface,
        settings: GenaiSettings,
        context: int,
        progress: Progress | None,
        *,
        sinks: bool = True,
    ) -> None:
        self.settings, self.progress = settings, progress
        self.notes: list[str] = []
        counted = settings.padding is Padding.RIGHT
        self.model, self.interface = under_contract(_of_logits(original, face), face)
        spell_counts(self.model, self.interface, context)
        out = take_out(self.model, self.interface) if sinks else {}
        self.masks = masks.take_out(self.model, self.interface, context, heeds=face.mask is not None, sinks=out)
        layers, pasts = len(self.masks.windows) + len(self.masks.unknown), len(face.caches)
        if 0 < pasts < layers:
            raise ModelError(f"{layers} attentions are masked, and {pasts} have a past; export it with the past of all")
        self.model = self._rewritten(settings.check, () if face.caches else _COUNTING)
        if not face.caches:
            self.interface = add_past(self.model, self.interface, self.masks, context, counted=counted)
            require_stepwise(self.model, self.interface, settings.seed)
        if counted and not settings.all_logits:
            keep_last(self.model, self.interface)
        if self.masks.windows:
            angles.tabulate(self.model, self.interface, context, counted=counted)
            self.model = self._grouped()
            masks.spell_out(self.model, self.interface, self.masks)
            self.model = self._rewritten("off")
            without_shapes_of_pasts(self.model, self.interface)
        self.notes += [f"layer {number}: the mask stays: {why}" for number, why in self.masks.unknown.items()]
        self._declare()

    @property
    def attentions(self) -> dict[str, int]:
        """The number of layers by the operator of their attention."""
        counts = {name: sum(node.op_type == name for node in self.model.graph) for name in ATTENTIONS}
        spelled = len(self.interface.caches) - sum(counts.values())
        return {name: count for name, count in (*counts.items(), ("Softmax", spelled)) if count > 0}

    @property
    def heads(self) -> int | None:
        """The number of heads of queries, where an operator says it."""
        for node in self.model.graph:
            for name in ("num_heads", "q_num_heads"):
                if node.op_type in ATTENTIONS and name in node.attributes:
                    return node.attributes[name].as_int()
        return None

    @property
    def shared(self) -> bool:
        """True if past and present can be one buffer."""
        return is_shareable(self.model.graph, self.interface.caches)

    @property
    def assumes(self) -> list[str]:
        """Assumptions about how the decoder is used."""
        found = []
        if "GroupQueryAttention" in self.attentions:
            found.append("several new tokens after a past are given for a batch of one only")
            if self.settings.padding is Padding.RIGHT:
                found.append("shorter texts of a batch are padded on the right, and positions count from 0")
        return found

    def _rewritten(self, check: CheckLevel, without: tuple[str, ...] = ()) -> ir.Model:
        opset = max(_OPSET, io.opset(self.model))
        return self._applied(without, check=check, opset=opset, lower=self.settings.lower)

    def _grouped(self) -> ir.Model:
        return self._applied((), check="off", lower="fused", rules=rules(self.masks.names, self.settings.padding))

    def _applied(self, without: tuple[str, ...], **how: Any) -> ir.Model:
        without += _OTHER_ATTENTIONS
        result = apply(self.model, without=without, seed=self.settings.seed, progress=self.progress, **how)
        for rule, refused in result.trace.refused.items():
            if rule.startswith("grouped-query"):
                self.notes += [f"{rule} at `{value}`: {why}" for value, why in refused.items()]
        return result.model

    def _declare(self) -> None:
        """Name the dimensions of buffers, which may be longer than what is in them."""
        names = {
            cache_name: "past_sequence_length"
            for cache in self.interface.caches
            for cache_name in (cache.past_key, cache.past_value)
        }
        names |= {
            cache_name: "total_sequence_length"
            for cache in self.interface.caches
            for cache_name in (cache.present_key, cache.present_value)
        }
        for value in (*self.model.graph.inputs, *self.model.graph.outputs):
            name = names.get(value.name or "")
            if name is not None and value.shape is not None:
                value.shape = ir.Shape([value.shape[0], value.shape[1], name, value.shape[3]])
        for value in self.model.graph.inputs:
            if value.name == self.interface.mask and value.shape is not None:
                value.shape = ir.Shape([value.shape[0], "total_sequence_length"])
        for node in self.model.graph:
            for value in node.outputs:
                if not value.is_graph_output():
                    value.shape = None
        preserved.renew_interface(self.model)


def _of_logits(model: ir.Model, face: Interface) -> ir.Model:
    """A decoder without past gives logits; what else it gives nothing asks for."""
    if face.caches:
        return model
    made = model.clone()
    for value in [value for value in made.graph.outputs if value.name != face.logits]:
        made.graph.outputs.remove(value)
    preserved.renew_interface(made)
    return made


def _checked(original: ir.Model, face: Interface, made: _Made, folder: Path, context: int) -> TokenCheck:
    """The comparison of the tokens that the folder and the original write."""
    settings, steps = made.settings, min(made.settings.tokens, context - 1)
    texts = prompts(face.words, context, steps, settings.seed)
    by_length = settings.padding is Padding.RIGHT and "GroupQueryAttention" in made.attentions
    sides: tuple[str, ...] = ("right",) if settings.padding is Padding.RIGHT else ("right", "left")
    saved = io.load(folder / genai_folder.MODEL)
    with contextlib.ExitStack() as stack:
        models = [stack.enter_context(by_reference(at_level(each, EXACT))) for each in (original, saved)]
        first, second = _opened(models[0], "the decoder"), _opened(models[1], "the rewritten decoder")
        room = max(map(len, texts)) + steps if made.shared else 0
        side, other = Side(first, face), Side(second, made.interface, room)
        sides = sides if face.mask is not None else ()
        found, written = check_tokens(side, other, texts, steps, apart=by_length, sides=sides)
        rounding = largest(side)
    if genai_run.is_installed():
        if made.settings.weights is not None:  # computed on 8-bit integers, which the comparison above leaves out
            with by_reference(saved) as given:
                fast = Side(_opened(given, "the rewritten decoder"), made.interface, room)
                rounding = max(rounding, furthest(fast, texts, written))
        genai_run.check_folder(folder, texts, written, rounding, found)
    return found


def _opened(model: Any, what: str) -> Session:
    session = open_session(model)
    if isinstance(session, str):
        raise (ModelError if what == "the decoder" else CheckError)(f"{what} cannot be opened: {session}")
    return session
