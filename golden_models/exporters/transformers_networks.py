"""Small networks of Transformers, with random weights: what optimum, mobius and onnxruntime-genai's builder export."""

from collections import Counter

import numpy as np
import torch
import transformers as hf
from torch import nn

from golden_models.exporters.structure import Structure

VOCAB, WIDTH, LAYERS, HEADS = 96, 32, 2, 4

TEXT = dict(
    vocab_size=VOCAB,
    hidden_size=WIDTH,
    num_hidden_layers=LAYERS,
    num_attention_heads=HEADS,
    intermediate_size=64,
    max_position_embeddings=64,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    tie_word_embeddings=False,
)
DECODER = TEXT | dict(num_key_value_heads=2, head_dim=8)
VISION = dict(
    image_size=32,
    patch_size=8,
    num_channels=3,
    hidden_size=WIDTH,
    num_hidden_layers=LAYERS,
    num_attention_heads=HEADS,
    intermediate_size=64,
)
BART = dict(
    vocab_size=VOCAB,
    d_model=WIDTH,
    encoder_layers=1,
    decoder_layers=1,
    encoder_attention_heads=HEADS,
    decoder_attention_heads=HEADS,
    encoder_ffn_dim=64,
    decoder_ffn_dim=64,
    max_position_embeddings=64,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)
T5 = dict(
    vocab_size=VOCAB,
    d_model=WIDTH,
    d_kv=8,
    d_ff=64,
    num_layers=1,
    num_heads=HEADS,
    relative_attention_num_buckets=8,
    relative_attention_max_distance=16,
)
DECODERS = {
    "arcee": ("ArceeForCausalLM", DECODER | dict(hidden_act="silu")),
    "bloom": ("BloomForCausalLM", dict(vocab_size=VOCAB, hidden_size=WIDTH, n_layer=LAYERS, n_head=HEADS)),
    "cohere": ("CohereForCausalLM", DECODER),
    "ernie4_5": ("Ernie4_5ForCausalLM", DECODER),
    "exaone4": ("Exaone4ForCausalLM", DECODER | dict(sliding_window=16, sliding_window_pattern=2)),
    "falcon": ("FalconForCausalLM", TEXT | dict(multi_query=True, new_decoder_architecture=False)),
    "gemma": ("GemmaForCausalLM", DECODER),
    "gemma2": ("Gemma2ForCausalLM", DECODER | dict(query_pre_attn_scalar=8, sliding_window=16)),
    "gemma3": ("Gemma3ForCausalLM", DECODER | dict(query_pre_attn_scalar=8, sliding_window=16)),
    "glm": ("GlmForCausalLM", DECODER),
    "gpt2": ("GPT2LMHeadModel", dict(vocab_size=VOCAB, n_positions=64, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS)),
    "gpt_neox": ("GPTNeoXForCausalLM", TEXT),
    "gpt_neo": (
        "GPTNeoForCausalLM",
        TEXT | dict(num_layers=LAYERS, num_heads=HEADS, attention_types=[[["global", "local"], 1]], window_size=8),
    ),
    "granite": ("GraniteForCausalLM", DECODER),
    "helium": ("HeliumForCausalLM", DECODER),
    "hunyuan": ("HunYuanDenseV1ForCausalLM", DECODER),
    "llama": ("LlamaForCausalLM", DECODER),
    "llama_tied": ("LlamaForCausalLM", DECODER | dict(tie_word_embeddings=True, num_key_value_heads=HEADS)),
    "mistral": ("MistralForCausalLM", DECODER | dict(sliding_window=16)),
    "nemotron": ("NemotronForCausalLM", DECODER),
    "olmo": ("OlmoForCausalLM", DECODER),
    "olmo2": ("Olmo2ForCausalLM", DECODER),
    "opt": ("OPTForCausalLM", TEXT | dict(ffn_dim=64, word_embed_proj_dim=WIDTH)),
    "phi": ("PhiForCausalLM", TEXT),
    "phi3": ("Phi3ForCausalLM", DECODER | dict(original_max_position_embeddings=64)),
    "qwen2": ("Qwen2ForCausalLM", DECODER),
    "qwen3": ("Qwen3ForCausalLM", DECODER),
    "smollm3": ("SmolLM3ForCausalLM", DECODER),
    "stablelm": ("StableLmForCausalLM", DECODER),
    "starcoder2": ("Starcoder2ForCausalLM", DECODER),
}
ENCODERS = {
    "albert": ("AlbertModel", TEXT | dict(embedding_size=WIDTH, num_hidden_layers=1)),
    "bert": ("BertModel", TEXT),
    "camembert": ("CamembertModel", TEXT),
    "deberta_v2": ("DebertaV2Model", TEXT | dict(relative_attention=True, pos_att_type=["p2c", "c2p"])),
    "distilbert": ("DistilBertModel", dict(vocab_size=VOCAB, dim=WIDTH, n_layers=LAYERS, n_heads=HEADS, hidden_dim=4 * WIDTH)),
    "electra": ("ElectraModel", TEXT | dict(embedding_size=WIDTH)),
    "modernbert": ("ModernBertModel", TEXT | dict(local_attention=8, cls_token_id=3, sep_token_id=4)),
    "mpnet": ("MPNetModel", TEXT),
    "roberta": ("RobertaModel", TEXT),
    "squeezebert": ("SqueezeBertModel", TEXT | dict(embedding_size=WIDTH)),
}
IMAGES = {
    "beit": ("BeitModel", VISION),
    "convnext": ("ConvNextModel", dict(hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], image_size=32)),
    "deit": ("DeiTModel", VISION),
    "dinov2": ("Dinov2Model", VISION | dict(intermediate_size=4 * WIDTH)),
    "mobilevit": (
        "MobileViTModel",
        dict(image_size=64, hidden_sizes=[16, 24, 32], neck_hidden_sizes=[8, 8, 8, 16, 16, 16, 32]),
    ),
    "segformer": (
        "SegformerModel",
        dict(hidden_sizes=[8, 16, 16, 32], depths=[1] * 4, num_attention_heads=[1, 2, 2, 4], decoder_hidden_size=16),
    ),
    "swin": (
        "SwinModel",
        dict(image_size=32, patch_size=2, embed_dim=16, depths=[1, 1], num_heads=[2, 4], window_size=4),
    ),
    "vit": ("ViTModel", VISION),
}
TRANSLATORS = {
    "bart": ("BartForConditionalGeneration", BART),
    "marian": ("MarianMTModel", BART | dict(decoder_start_token_id=0)),
    "t5": ("T5ForConditionalGeneration", T5),
    "t5_gated": ("T5ForConditionalGeneration", T5 | dict(feed_forward_proj="gated-gelu")),
}
NETWORKS: dict[str, tuple[str, dict[str, object]]] = DECODERS | ENCODERS | IMAGES | TRANSLATORS
"""Name to the class of Transformers and its configuration."""

ACTIVATIONS = {
    "GELUActivation": "gelu",
    "GELU": "gelu",
    "BloomGelu": "gelu",
    "NewGELUActivation": "gelu",
    "PytorchGELUTanh": "gelu",
    "GELUTanh": "gelu",
    "FastGELUActivation": "gelu",
    "SiLUActivation": "swish",
    "SiLU": "swish",
    "QuickGELUActivation": "swish",
    "Hardswish": "hardswish",
    "MishActivation": "mish",
}
T5_NORMALIZATION = "T5LayerNorm"
"""Is one by the root of the mean square, whatever it is called."""


def network(name: str) -> hf.PreTrainedModel:
    """A network by its name, with lively weights."""
    kind, options = NETWORKS[name]
    maker = getattr(hf, kind)
    config = maker.config_class(**options)
    config.architectures = [kind]
    model = maker(config).eval()
    liven(model)
    return model


def liven(model: nn.Module) -> None:
    """Draw all weights anew, gains and statistics about 1 and nothing at 0.

    The first of a shape is the same in all networks, and so is the second, and few bits are used: archives stay small.
    """
    seen: Counter[tuple[int, ...]] = Counter()
    statistics = [(n, b) for n, b in model.named_buffers() if n.endswith(("running_mean", "running_var"))]
    for name, tensor in [*model.named_parameters(), *statistics]:
        shape = tuple(tensor.shape)
        random = np.random.default_rng([seen[shape], *shape])
        seen[shape] += 1
        around_one = tensor.ndim == 1 and name.endswith(("weight", "running_var"))
        drawn = random.uniform(0.7, 1.3, shape) if around_one else random.standard_normal(shape) * 0.2
        with torch.no_grad():
            tensor.copy_(torch.from_numpy(np.round(drawn * 1024) / 1024))


def structure(model: nn.Module) -> Structure:
    """The modules of a network that can be one operator.

    An attention, or a layer normalization, is a module of that name with no other inside; in a network with rotary
    embeddings an attention has two.
    """
    found = Structure()
    rotated = any("RotaryEmbedding" in type(module).__name__ for module in model.modules())
    for module in model.modules():
        name = type(module).__name__
        inside = [type(part).__name__ for part in module.modules() if part is not module]
        if name.endswith("Attention") and not any(part.endswith("Attention") for part in inside):
            found.attentions += 1
            found.rotary += 2 * rotated
        elif name.endswith("RMSNorm") or name == T5_NORMALIZATION:
            found.normalizations["rms"] += 1
        elif name.endswith(("LayerNorm", "LayerNorm1P")) and not any(part.endswith("LayerNorm") for part in inside):
            found.normalizations["layer"] += 1
        elif name == "GroupNorm":
            found.normalizations["group"] += 1
        elif name in ACTIVATIONS:
            found.activations[ACTIVATIONS[name]] += 1
    return found
