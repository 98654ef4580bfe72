"""Weights in 4 bits, blocks of 32, beside those of onnxruntime-genai's builder: divergence, and the time of a step.

    python -m benchmarks.builder_bits [--rounds N] [--json FILE]

The decoder that speaks (``golden_models/speaking``) goes to the builder as a network of Transformers with the same
weights, and to ``genai --weights int4``: to the nearest step, and fitted by GPTQ on one half of the tokens that were
held out of training.  The other half tells the divergence from the floats (nats a token) and the greedy tokens that
stay.  Time is of one token after 256, of the processor with one thread, by turns.

Goals: the best of ours diverges no more than the builder's, and takes 0.95 of its time.  Needs torch, transformers and
onnxruntime-genai.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

from benchmarks import decoders
from benchmarks.report import Report, Row, interleaved, parser
from golden_models.speaking import run as speaking
from onnxrewrite.suite.decoders.decoder_weights import WeightSettings
from onnxrewrite.suite.decoders.genai_config import Special
from onnxrewrite.suite.decoders.genai_conversion import GenaiSettings, genai
from onnxrewrite.suite.quantization.quantize_settings import Algorithm, QuantizeSettings

BLOCK, PAST, HEAD, CONTEXT = 32, 256, 32, 512
OURS: tuple[Algorithm, ...] = ("nearest", "gptq")
FASTER = 0.95
_OPTIONS = [f"int4_block_size={BLOCK}", "int4_accuracy_level=4"]


def network() -> Any:
    """The decoder that speaks as a network of Transformers."""
    torch, transformers = (importlib.import_module(name) for name in ("torch", "transformers"))
    graph = onnx.load(speaking.MODEL).graph
    arrays = {i.name: numpy_helper.to_array(i).astype(np.float32) for i in graph.initializer}
    halves = {node.output[0]: arrays[node.input[0]] for node in graph.node if node.input and node.input[0] in arrays}
    weights = {name: array for name, array in {**halves, **arrays}.items() if name.endswith((".weight", "weight.half"))}
    state = {name.removeprefix("model.").removesuffix(".half"): array for name, array in weights.items()}
    for node in graph.node:
        if node.op_type == "MatMul" and (node.input[1] in arrays or node.input[1] in halves):
            layer = node.name.strip("/").removesuffix("/MatMul").replace("/", ".").removeprefix("model.")
            state[f"{layer}.weight"] = {**halves, **arrays}[node.input[1]].T
    made = transformers.LlamaForCausalLM(importlib.import_module("golden_models.speaking.train").CONFIG).eval()
    known = made.state_dict()
    made.load_state_dict({n: torch.from_numpy(np.ascontiguousarray(a)) for n, a in state.items() if n in known})
    return made


def built(folder: Path) -> Path:
    """The builder's model."""
    zoo = importlib.import_module("golden_models.exporters.genai_zoo")
    source, out, cache = (str(folder / name) for name in ("source", "built", "cache"))
    network().save_pretrained(source)
    zoo.tokenizer().save_pretrained(source)
    options = zoo.builder.parse_extra_options("llama", source, out, "int4", "cpu", cache, _OPTIONS)
    zoo.builder.create_model("llama", source, out, "int4", "cpu", cache, **options)
    return Path(out, "model.onnx")


def ours(folder: Path, algorithm: Algorithm, texts: np.ndarray) -> Path:
    """Ours, fitted on texts [texts, tokens]."""
    settings = QuantizeSettings(mode="weights", weights="int4", block_size=BLOCK, algorithm=algorithm, rows=1)
    weights = WeightSettings(quantize=settings, data=[speaking.feeds(text) for text in texts], gate=None, threads=1)
    special = Special(context=CONTEXT, eos=(0,))
    genai(speaking.MODEL, folder / algorithm, GenaiSettings(special=special, weights=weights, all_logits=True))
    return folder / algorithm / "model.onnx"


def logarithms(session: ort.InferenceSession, text: np.ndarray) -> np.ndarray:
    """Those of the probabilities of the next token, [tokens, words]."""
    names = {given.name for given in session.get_inputs()}
    feeds = {name: array for name, array in speaking.feeds(text).items() if name in names}
    scores = session.run(["logits"], feeds)[0][0].astype(np.float64)
    scores -= scores.max(-1, keepdims=True)
    found: np.ndarray = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    return found


def judged(sessions: Mapping[str, ort.InferenceSession], texts: Iterable[np.ndarray]) -> dict[str, tuple[float, float]]:
    """The divergence of each from the floats, and the share of greedy tokens that stay."""
    floats = decoders.opened(speaking.MODEL)
    exact = [logarithms(floats, text) for text in texts]
    found = {}
    for name, session in sessions.items():
        pairs = [(a, logarithms(session, text)) for a, text in zip(exact, texts, strict=True)]
        apart = np.mean([(np.exp(a) * (a - b)).sum(-1).mean() for a, b in pairs])
        found[name] = float(apart), float(np.mean([(a.argmax(-1) == b.argmax(-1)).mean() for a, b in pairs]))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit code."""
    given = parser(__doc__).parse_args(arguments)
    texts = np.stack(speaking.pieces(speaking.held_out()))
    half = len(texts) // 2 if not given.quick else 4
    with tempfile.TemporaryDirectory(prefix="onnxrewrite-") as place:
        paths = {"builder": built(Path(place))}
        paths |= {algorithm: ours(Path(place), algorithm, texts[:half]) for algorithm in OURS}
        sessions = {name: decoders.opened(path) for name, path in paths.items()}
        close = judged(sessions, texts[half : 2 * half])
        steps = {name: decoders.decode_step(each, PAST, head=HEAD, shared=True) for name, each in sessions.items()}
        times = interleaved(
            {name: decoders.timed(step, 20) for name, step in steps.items()}, given.rounds or (3 if given.quick else 40)
        )
    rows: list[Row] = [
        {
            "weights": n,
            "divergence": round(close[n][0], 6),
            "tokens kept": round(close[n][1], 4),
            "of the builder's time": t,
        }
        for n, t in ((n, round(times[n] / times["builder"], 3)) for n in paths)
    ]
    report = Report("builder_bits")
    report.table(
        f"The decoder that speaks, 4 bits, blocks of {BLOCK}", rows, note=f"one token after {PAST}, one thread"
    )
    best = min(OURS, key=lambda name: close[name][0])
    report.goal("divergence, to the builder's", close[best][0] / close["builder"][0], 1.0, unit="×")
    report.goal("a step, of the builder's time", times[best] / times["builder"], FASTER)
    return report.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
