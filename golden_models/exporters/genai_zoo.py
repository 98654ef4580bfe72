"""Decoders by way of onnxruntime-genai's builder, in float32 for the CPU.

The builder loads a network from a folder, and a tokenizer, which plays no part in the graph.
"""

import tempfile
from pathlib import Path

import onnx
from onnxruntime_genai.models import builder
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from golden_models.exporters.structure import Structure
from golden_models.exporters.transformers_networks import DECODERS, VOCAB, network, structure

NETWORKS = tuple(DECODERS)


def export(name: str, path: Path) -> Structure:
    """Write a network to ``path``, its weights inside; what it has."""
    model = network(name)
    with tempfile.TemporaryDirectory() as folder:
        source, cache, out = (str(Path(folder, part)) for part in ("source", "cache", "out"))
        model.save_pretrained(source)
        tokenizer().save_pretrained(source)
        options = builder.parse_extra_options(name, source, out, "fp32", "cpu", cache, [])
        builder.create_model(name, source, out, "fp32", "cpu", cache, **options)
        onnx.save(onnx.load(Path(out, "model.onnx")), path)
    return structure(model)


def tokenizer() -> PreTrainedTokenizerFast:
    """Numbers as words."""
    words = WordLevel({str(number): number for number in range(VOCAB)}, unk_token="0")
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words), unk_token="0", bos_token="1", eos_token="2")
