"""Five networks, each in every spelling that the exporters have: one archive a network.

Exporter and opset, the implementation of attention, static or named axes: the weights are the same in all of them, and
so should be what a rewriter raises them to.  TorchScript reaches no further than opset 20, dynamo starts at 18.
"""

import itertools
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn
from transformers import T5Config, T5ForConditionalGeneration

from golden_models.archive import pack
from golden_models.bert import build as bert
from golden_models.export import Sample, check, export, lively, padding_mask
from golden_models.gpt2_past import build as gpt2
from golden_models.llama_past import build as llama
from golden_models.vit import build as vit

EXPORTS = [
    ("torchscript", 14),
    ("torchscript", 17),
    ("torchscript", 20),
    ("dynamo", 18),
    ("dynamo", 20),
    ("dynamo", 23),
]
ATTENTION = ("eager", "sdpa")
AXES = ("static", "dynamic")

UNSUPPORTED = {
    "t5": r"dynamo-\d+-sdpa",  # fails: "Cannot view a tensor with shape …", while it decomposes attention with a bias
    "llama_past": r"dynamo-23-\w+-dynamic",  # emits a RotaryEmbedding of which ONNX Runtime says that its shapes differ
}
"""Exports that do not work."""

VOCAB = 97


class T5(nn.Module):
    """T5 v1.1 whole, a layer each: the decoder attends to itself, with a relative bias, and to the encoder, without."""

    def __init__(self, attention: str):
        super().__init__()
        config = T5Config(
            vocab_size=VOCAB,
            d_model=32,
            d_kv=8,
            d_ff=64,
            num_layers=1,
            num_heads=4,
            relative_attention_num_buckets=8,
            relative_attention_max_distance=16,
            feed_forward_proj="gated-gelu",
            use_cache=False,
            attn_implementation=attention,
        )
        self.model = T5ForConditionalGeneration(config)

    def forward(self, input_ids, attention_mask, decoder_input_ids):
        out = self.model(input_ids=input_ids, attention_mask=attention_mask, decoder_input_ids=decoder_input_ids)
        return out.logits


def t5_sample(batch: int, seq: int, target: int):
    return {
        "input_ids": torch.randint(VOCAB, (batch, seq)),
        "attention_mask": padding_mask(batch, seq),
        "decoder_input_ids": torch.randint(VOCAB, (batch, target)),
    }


@dataclass(frozen=True)
class Architecture:
    """A network and how it is exported.

    Attributes:
        network: Makes it, given the implementation of attention.
        axes: The named axes of inputs and outputs, where they are dynamic.
        dims: Their sizes while tracing, and where they are static.
        other: Other sizes, for the check.
    """

    network: Callable[[str], nn.Module]
    sample: Sample
    outputs: Sequence[str]
    axes: Mapping[str, dict[int, str]]
    dims: Mapping[str, int]
    other: Mapping[str, int] = field(default_factory=dict)


DECODER = dict(dims=dict(batch=2, seq=5, past=3), other=dict(batch=3, seq=7, past=6))
ARCHITECTURES = {
    "bert": Architecture(
        bert.Bert,
        bert.sample,
        bert.OUTPUTS,
        bert.AXES | {"pooler_output": {0: "batch"}},
        dims=dict(batch=2, seq=8),
        other=dict(batch=3, seq=5),
    ),
    "gpt2_past": Architecture(gpt2.Gpt2, gpt2.sample, gpt2.OUTPUTS, gpt2.AXES, **DECODER),
    "llama_past": Architecture(llama.Llama, llama.sample, llama.OUTPUTS, llama.AXES, **DECODER),
    "t5": Architecture(
        T5,
        t5_sample,
        ["logits"],
        {
            "input_ids": {0: "batch", 1: "seq"},
            "attention_mask": {0: "batch", 1: "seq"},
            "decoder_input_ids": {0: "batch", 1: "target"},
            "logits": {0: "batch", 1: "target"},
        },
        dims=dict(batch=2, seq=8, target=5),
        other=dict(batch=3, seq=11, target=6),
    ),
    "vit": Architecture(vit.Vit, vit.sample, vit.OUTPUTS, vit.AXES, dims=dict(batch=2), other=dict(batch=3)),
}


def build(path: Path) -> None:
    """Write the archives beside `path`."""
    for name in ARCHITECTURES:
        pack(path.with_name(f"{name}.tar.xz"), dict(variants(name)))


def variants(name: str) -> Iterator[tuple[str, bytes]]:
    """Name and file of every export of a network, checked."""
    each = ARCHITECTURES[name]
    for (exporter, opset), attention, axes in itertools.product(EXPORTS, ATTENTION, AXES):
        spelling = f"{exporter}-{opset}-{attention}-{axes}"
        if re.match(UNSUPPORTED.get(name, "nothing"), spelling):
            continue
        named = each.axes if axes == "dynamic" else {}
        torch.manual_seed(0)
        network = lively(each.network(attention))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model.onnx")
            dynamo = exporter == "dynamo"
            export(network, path, each.sample, each.dims, named, each.outputs, opset=opset, dynamo=dynamo)
            check(network, path, each.sample, each.dims, *([each.other] if named else []))
            yield f"{spelling}.onnx", path.read_bytes()


if __name__ == "__main__":
    build(Path(__file__))
