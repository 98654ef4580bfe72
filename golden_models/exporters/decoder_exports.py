"""Decoders by both exporters of PyTorch: traced by TorchScript, and through torch.export; with their past as inputs, or without.

What a user writes who exports a decoder without a library: a module around the network, whose arguments are token ids, the mask,
positions and the past of each layer, and which returns logits and the present of each layer.  Without past, its arguments are ids
and the mask, and it returns logits.
"""

import importlib
import shutil
import tempfile
import types
import warnings
from pathlib import Path

import torch
import transformers as hf
from torch import nn
from transformers.cache_utils import DynamicCache

from golden_models.exporters.transformers_networks import VOCAB

EXPORTERS = ("torchscript", "dynamo")

SIZES = dict(
    vocab_size=VOCAB,
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=96,
    max_position_embeddings=256,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    tie_word_embeddings=False,
)
GROUPED = SIZES | dict(num_key_value_heads=2, head_dim=16)
DECODERS = {
    "llama": ("LlamaForCausalLM", GROUPED),
    "qwen2": ("Qwen2ForCausalLM", GROUPED),
    "qwen3": ("Qwen3ForCausalLM", GROUPED),
    "phi": ("PhiForCausalLM", SIZES | dict(partial_rotary_factor=0.5)),
    "phi3": ("Phi3ForCausalLM", GROUPED | dict(original_max_position_embeddings=256)),
    "gemma": ("GemmaForCausalLM", GROUPED),
    "gemma2": ("Gemma2ForCausalLM", GROUPED | dict(query_pre_attn_scalar=16, sliding_window=16)),
    "gpt2": ("GPT2LMHeadModel", dict(vocab_size=VOCAB, n_positions=256, n_embd=64, n_layer=2, n_head=4)),
    "gpt_neox": ("GPTNeoXForCausalLM", SIZES | dict(rotary_pct=0.5)),
    "mistral": ("MistralForCausalLM", GROUPED | dict(sliding_window=16)),
    "falcon": ("FalconForCausalLM", SIZES | dict(multi_query=True, new_decoder_architecture=False)),
    "bloom": ("BloomForCausalLM", dict(vocab_size=VOCAB, hidden_size=64, n_layer=2, n_head=4)),
    "olmo": ("OlmoForCausalLM", GROUPED),
    "stablelm": ("StableLmForCausalLM", SIZES | dict(num_key_value_heads=2, partial_rotary_factor=0.5)),
    "granite": ("GraniteForCausalLM", GROUPED),
    "qwen3_moe": (
        "Qwen3MoeForCausalLM",
        GROUPED | dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=48, norm_topk_prob=True),
    ),
    "gpt_oss": (
        "GptOssForCausalLM",
        GROUPED
        | dict(
            num_local_experts=4,
            num_experts_per_tok=2,
            sliding_window=16,
            layer_types=["sliding_attention", "full_attention"],
            rope_scaling=None,
        ),
    ),
}
"""Name to the class of Transformers and its configuration; the last two have experts, the last attention sinks."""

NAMES = tuple(DECODERS)
UNPOSITIONED = {"bloom"}
"""Networks that take no positions."""


def decoder(name: str, **options: object) -> hf.PreTrainedModel:
    """A network of random weights, the same each time, whose tokens depend on what came before; the
    last token is never the most likely one."""
    kind, config = DECODERS[name]
    maker = getattr(hf, kind)
    torch.manual_seed(0)
    made = maker.config_class(**(config | dict(initializer_range=0.3) | options))
    made._attn_implementation = "eager"
    made.architectures = [kind]
    made.eos_token_id = 2
    model = maker(made).eval()
    for block in model.modules():
        if hasattr(block, "experts") and hasattr(block, "gate"):
            block.forward = types.MethodType(all_experts, block)
        if hasattr(block, "gate_up_proj_bias"):
            block.forward = types.MethodType(all_experts_at_once, block)
        for parameter in ("sinks", *EMPTY):
            if isinstance(getattr(block, parameter, None), nn.Parameter):
                nn.init.normal_(getattr(block, parameter), std=1.0 if parameter == "sinks" else 0.3)
    with torch.no_grad():
        model.get_output_embeddings().weight[-1] = 0
    return model


EMPTY = ("gate_up_proj", "gate_up_proj_bias", "down_proj", "down_proj_bias")
"""Parameters of experts that Transformers allocates and does not draw."""


def all_experts_at_once(block, hidden, router_indices=None, routing_weights=None):
    """The same of experts whose weights are one tensor."""
    x = hidden.reshape(1, -1, block.hidden_size)
    both = x @ block.gate_up_proj + block.gate_up_proj_bias[:, None]
    gate, up = both[..., ::2].clamp(max=block.limit), both[..., 1::2].clamp(min=-block.limit, max=block.limit)
    made = (gate * torch.sigmoid(gate * block.alpha) * (up + 1)) @ block.down_proj + block.down_proj_bias[:, None]
    return (made * routing_weights.T[..., None]).sum(0).reshape(hidden.shape)


def all_experts(block, hidden):
    """What a block of experts computes, without a loop over those that some token chose, which no export can hold."""
    x = hidden.reshape(-1, hidden.shape[-1])
    logits = block.gate(x)
    chosen, places = torch.topk(torch.softmax(logits, dim=1), block.top_k, dim=-1)
    if block.norm_topk_prob:
        chosen = chosen / chosen.sum(dim=-1, keepdim=True)
    weights = torch.zeros_like(logits).scatter(1, places, chosen)
    made = sum(weights[:, number, None] * expert(x) for number, expert in enumerate(block.experts))
    return made.reshape(hidden.shape), logits


class Step(nn.Module):
    """A step of a decoder with everything it depends on as an argument, keys and values of each layer last, by turns."""

    def __init__(self, model: hf.PreTrainedModel, positioned: bool):
        super().__init__()
        self.model, self.positioned = model, positioned

    def forward(self, *arguments):
        first = 3 if self.positioned else 2
        names = ("input_ids", "attention_mask", "position_ids")[:first]
        past = arguments[first:]
        cache = DynamicCache()
        for layer in range(len(past) // 2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        made = self.model(**dict(zip(names, arguments)), past_key_values=cache, use_cache=True)
        return made.logits, *(part for layer in made.past_key_values.layers for part in (layer.keys, layer.values))


def shapes(model: hf.PreTrainedModel) -> tuple[int, int, int]:
    """Layers, heads of keys, and the size of one."""
    with torch.no_grad():
        past = model(input_ids=torch.ones(1, 2, dtype=torch.int64), use_cache=True).past_key_values
    _, heads, _, size = past.layers[0].keys.shape
    return len(past.layers), heads, size


class Pass(nn.Module):
    """A decoder that reads a whole text, and has no past."""

    def __init__(self, model: hf.PreTrainedModel):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).logits


def export(
    model: hf.PreTrainedModel, path: Path, exporter: str, *, positioned: bool = True, past: bool = True
) -> None:
    """Write a decoder by an exporter of PyTorch, with its past or without."""
    if exporter == "torchscript":
        _traced(model, path, "text-generation-with-past" if past else "text-generation")
    elif past:
        _stepwise(model, path, positioned)
    else:
        _whole(model, path)


def _whole(model: hf.PreTrainedModel, path: Path) -> None:
    """Without past, through torch.export."""
    arguments = (torch.randint(3, VOCAB, (2, 5)), torch.ones(2, 5, dtype=torch.int64))
    auto = torch.export.Dim.DYNAMIC
    how = dict(input_names=["input_ids", "attention_mask"], output_names=["logits"], dynamo=True)
    how |= dict(dynamic_shapes=({0: auto, 1: auto}, {0: auto, 1: auto}), external_data=False, verbose=False)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(Pass(model), arguments, path, **how)


def _stepwise(model: hf.PreTrainedModel, path: Path, positioned: bool) -> None:
    """With past, through torch.export."""
    layers, heads, size = shapes(model)
    batch, length, past = 2, 3, 5
    parts = [f"{layer}.{part}" for layer in range(layers) for part in ("key", "value")]
    inputs = ["input_ids", "attention_mask", *(["position_ids"] if positioned else [])]
    caches, outputs = [f"past_key_values.{part}" for part in parts], ["logits", *(f"present.{part}" for part in parts)]
    arguments = [
        torch.randint(3, VOCAB, (batch, length)),
        torch.ones(batch, past + length, dtype=torch.int64),
        *([torch.arange(past, past + length)[None].repeat(batch, 1)] if positioned else []),
        *(torch.randn(batch, heads, past, size) for _ in caches),
    ]
    how = dict(input_names=inputs + caches, output_names=outputs)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        auto = torch.export.Dim.DYNAMIC
        dynamic = (tuple([*[{0: auto, 1: auto}] * len(inputs), *[{0: auto, 2: auto}] * len(caches)]),)
        how |= dict(dynamic_shapes=dynamic, dynamo=True, external_data=False, verbose=False)
        torch.onnx.export(Step(model, positioned), tuple(arguments), path, **how)


def can_trace() -> bool:
    """True if optimum is there, beside a Transformers that it knows."""
    try:
        importlib.import_module("optimum.exporters.onnx")
    except ImportError:
        return False
    return True


def _traced(model: hf.PreTrainedModel, path: Path, task: str) -> None:
    """By optimum, which makes networks traceable; it wants an older Transformers than builders of models do."""
    from optimum.exporters.onnx import onnx_export_from_model

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        onnx_export_from_model(model, folder, task=task, do_validation=False)
        (written,) = Path(folder).glob("*.onnx")
        shutil.copyfile(written, path)
