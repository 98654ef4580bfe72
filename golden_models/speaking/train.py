"""Train the decoder that speaks, and export it.

    python -m golden_models.speaking.train [--steps N] [--folder FOLDER]

It needs PyTorch, Transformers and tokenizers.  A Llama of 2.6 million parameters (6 layers of 192, 6 heads on 2 heads of
keys and values, 1,024 byte-level tokens, tied embeddings) reads 1,600 batches of 4 × 256 tokens in half an hour on two cores.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from golden_models.speaking.text import documents, is_held_out

END, VOCABULARY = "<end>", 1024
BATCH, LENGTH = 4, 256
RATE, WARMING, DECAY = 3e-3, 100, 0.05
KEPT = 16_384
"""Tokens that are held out."""

CONFIG = LlamaConfig(
    vocab_size=VOCABULARY,
    hidden_size=192,
    intermediate_size=512,
    num_hidden_layers=6,
    num_attention_heads=6,
    num_key_value_heads=2,
    max_position_embeddings=2048,
    tie_word_embeddings=True,
    bos_token_id=0,
    eos_token_id=0,
    attn_implementation="eager",
)


def tokenizer(texts: list[str]) -> Tokenizer:
    """A byte-level tokenizer of these texts."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(texts, trainer)
    return made


def tokens(made: Tokenizer, texts: list[str]) -> np.ndarray:
    """The tokens (uint16) of texts one after the other, an end before each."""
    return np.concatenate([np.array([0, *each.ids], dtype=np.uint16) for each in made.encode_batch(texts)])


def trained(read: np.ndarray, held: np.ndarray, steps: int) -> LlamaForCausalLM:
    """The decoder after so many batches."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    model = LlamaForCausalLM(CONFIG)
    model.train()
    matrices = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.95))

    def rate(step: int) -> float:
        return min(1.0, (step + 1) / WARMING) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * step / steps)))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    start = time.monotonic()
    for step in range(steps):
        begins = rng.integers(0, len(read) - LENGTH, BATCH)
        batch = torch.from_numpy(np.stack([read[b : b + LENGTH] for b in begins]).astype(np.int64))
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 20 == 0 or step == steps - 1:
            print(f"{step} of {steps}  loss {loss.item():.3f}  {time.monotonic() - start:.0f} s", flush=True)
    print(f"perplexity of {len(held):,} tokens held out: {perplexity(model, held):.2f}")
    return model


def perplexity(model: LlamaForCausalLM, held: np.ndarray) -> float:
    """That of the tokens held out, in pieces of ``LENGTH``."""
    model.eval()
    pieces = torch.from_numpy(held[: len(held) // LENGTH * LENGTH].reshape(-1, LENGTH).astype(np.int64))
    with torch.no_grad():
        losses = [model(input_ids=piece[None], labels=piece[None]).loss.item() for piece in pieces]
    return math.exp(sum(losses) / len(losses))


class Step(torch.nn.Module):
    """The decoder with its cache as tensors: keys and values [batch, 2, past, 32] of each layer."""

    def __init__(self, model: LlamaForCausalLM):
        super().__init__()
        self.model = model

    def forward(
        self, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, *past: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Logits [batch, sequence, 1024], and the cache after it."""
        cache = DynamicCache()
        for layer in range(CONFIG.num_hidden_layers):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        places = torch.arange(mask.shape[1])
        seen = places <= places[past[0].shape[2] :, None]
        seen = seen & mask[:, None, None, :].bool()  # Transformers makes it by vmap, which TorchScript does not have
        penalty = torch.where(seen, 0.0, torch.finfo(torch.float32).min)
        found = self.model(
            input_ids=ids, attention_mask=penalty, position_ids=positions, past_key_values=cache, use_cache=True
        )
        present = [t for k, v in found.past_key_values.to_legacy_cache() for t in (k, v)]
        return (found.logits, *present)


def export(model: LlamaForCausalLM, file: Path) -> None:
    """Write the decoder with past, opset 17, weights in float16."""
    layers = range(CONFIG.num_hidden_layers)
    past = [f"past_key_values.{i}.{kind}" for i in layers for kind in ("key", "value")]
    present = [f"present.{i}.{kind}" for i in layers for kind in ("key", "value")]
    names = ["input_ids", "attention_mask", "position_ids", *past]
    axes = {"input_ids": {0: "batch", 1: "sequence"}, "attention_mask": {0: "batch", 1: "total"}}
    axes |= {"position_ids": axes["input_ids"], "logits": axes["input_ids"]}
    axes |= {name: {0: "batch", 2: "past"} for name in past} | {name: {0: "batch", 2: "total"} for name in present}
    cache = [torch.zeros(2, 2, 5, 32) for _ in past]
    given = (torch.ones(2, 3, dtype=torch.int64), torch.ones(2, 8, dtype=torch.int64), torch.arange(5, 8).repeat(2, 1))
    torch.onnx.export(
        Step(model.eval()),
        (*given, *cache),
        str(file),
        input_names=names,
        output_names=["logits", *present],
        dynamic_axes=axes,
        opset_version=17,
        dynamo=False,
    )
    halve(file)


def halve(file: Path) -> None:
    """Store the weights of a file in float16, and compute them in float32 by a Cast each."""
    model = onnx.load(file)
    casts = []
    for weight in model.graph.initializer:
        array = onnx.numpy_helper.to_array(weight)
        if array.dtype == np.float32 and array.size >= 1024:
            name = weight.name
            weight.CopyFrom(onnx.numpy_helper.from_array(array.astype(np.float16), f"{name}.half"))
            casts.append(onnx.helper.make_node("Cast", [f"{name}.half"], [name], to=onnx.TensorProto.FLOAT))
    nodes = [*casts, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, file)


def main() -> None:
    """Train, and write the three files."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--steps", type=int, default=1600)
    options.add_argument("--folder", type=Path, default=Path(__file__).parent)
    given = options.parse_args()
    texts = documents()
    read = [text for name, text in texts.items() if not is_held_out(name)]
    held = [text for name, text in texts.items() if is_held_out(name)]
    made = tokenizer(read)
    kept = tokens(made, held)[:KEPT]
    print(f"{len(read):,} documents, {len(held):,} held out", flush=True)
    model = trained(tokens(made, read), kept, given.steps)
    torch.save(model.state_dict(), given.folder / "weights.pt")
    made.save(str(given.folder / "tokenizer.json"))
    np.save(given.folder / "held_out.npy", kept)
    export(model, given.folder / "decoder.onnx")


if __name__ == "__main__":
    main()
