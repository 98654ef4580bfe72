"""Decoders from any export to onnxruntime-genai: are the tokens PyTorch's, is every attention one operator, how fast.

    python -m benchmarks.decoders [--quick] [--only NAME ...] [--json FILE]

1. Decoders of Transformers with random weights, of two layers each, are exported by both exporters of PyTorch
   (TorchScript by way of optimum, and torch.export), with past and without; ``onnxrewrite genai`` makes a folder of
   each, and onnxruntime-genai writes 128 tokens after a prompt.  Goals: all are PyTorch's, ties aside; all attentions
   are GroupQueryAttention.
2. A step of a larger Llama, one token after 1000, of the export, of the folder's model, and of those that
   onnxruntime-genai's builder and mobius make of the same weights, by turns in one process, on one thread.  Goals: at
   most 0.55 of the export's time, and 0.97 of the faster of the builders'.

Needs torch, transformers and onnxruntime-genai, and for TorchScript optimum-onnx, which wants Transformers 4; the
builders want Transformers 5.  Without optimum-onnx, the larger Llama is exported by torch.export.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from benchmarks.report import Report, Row, clock, interleaved, parser
from onnxrewrite.errors import OnnxRewriteError
from onnxrewrite.suite.decoders.genai_config import Special
from onnxrewrite.suite.decoders.genai_conversion import GenaiFolder, GenaiSettings, genai
from onnxrewrite.suite.decoders.genai_run import continued

TOKENS, CONTEXT, PAST, HEAD = 128, 256, 1000, 64
TIE = 1e-5
"""Two tokens whose logits differ by less than this part of the range of logits are tied."""


def _exports() -> Any:
    """The exporters, which import PyTorch and Transformers."""
    return importlib.import_module("golden_models.exporters.decoder_exports")


def _pytorch(model: Any, prompt: list[int], tokens: list[int]) -> tuple[int, int]:
    """The tokens after a prompt that PyTorch writes too, each after those before it, counted; and those that tie."""
    torch = importlib.import_module("torch")
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[*prompt, *tokens]])).logits[0].double().numpy()
    equal = ties = 0
    for place, token in enumerate(tokens):
        scores = logits[len(prompt) - 1 + place]
        best = int(scores.argmax())
        gap = float(scores[best] - scores[token]) / float(np.ptp(scores))
        equal += gap <= TIE
        ties += best != token and gap <= TIE
    return equal, ties


def _row(exports: Any, name: str, exporter: str, past: bool, folder: Path) -> Row:
    """One decoder by one exporter, with its past or without."""
    model = exports.decoder(name)
    model.config.eos_token_id = None
    row: Row = {"decoder": name, "exporter": exporter, "past": "yes" if past else "no"}
    path, out = folder / "model.onnx", folder / "genai"
    try:
        exports.export(model, path, exporter, positioned=name not in exports.UNPOSITIONED, past=past)
    except Exception as error:  # whatever an exporter raises
        return row | {"failed": f"export: {type(error).__name__}"}
    settings = GenaiSettings(special=Special(context=CONTEXT, eos=(exports.VOCAB - 1,)))
    try:
        made = genai(path, out, settings)
        prompt = np.random.default_rng(1).integers(3, exports.VOCAB - 1, 9).tolist()
        tokens = continued(out, prompt, TOKENS)
    except OnnxRewriteError as error:
        return row | {"failed": str(error)[:60]}
    equal, ties = _pytorch(model, prompt, tokens)
    return row | _figures(made, equal, ties, len(tokens))


def _figures(made: GenaiFolder, equal: int, ties: int, count: int) -> Row:
    return {
        "layers": len(made.caches),
        "one operator": made.attentions.get("GroupQueryAttention", 0),
        "shared": "yes" if made.shared else "no",
        "nodes": f"{made.nodes[0]} → {made.nodes[1]}",
        "tokens": count,
        "PyTorch's": equal,
        "ties": ties,
        "failed": "",
    }


_COLUMNS: Row = dict.fromkeys(
    (
        "decoder",
        "exporter",
        "past",
        "layers",
        "one operator",
        "shared",
        "nodes",
        "tokens",
        "PyTorch's",
        "ties",
        "failed",
    ),
    "",
)


def coverage(report: Report, only: list[str]) -> None:
    """All decoders by both exporters, with past and without."""
    exports, rows = _exports(), list[Row]()
    for name, exporter, past in itertools.product(only or exports.NAMES, exports.EXPORTERS, (True, False)):
        with tempfile.TemporaryDirectory() as folder:
            rows.append(_COLUMNS | _row(exports, name, exporter, past, Path(folder)))
        print(*(cell for cell in rows[-1].values() if cell not in ("", None)), flush=True)
    report.table("decoders", rows)
    ready = [row for row in rows if not row["failed"]]
    counts = {
        key: sum(int(row[key] or 0) for row in ready) for key in ("layers", "one operator", "tokens", "PyTorch's")
    }
    names = {row["decoder"] for row in ready}
    report.goal(
        "architectures ready for onnxruntime-genai",
        len(names),
        min(14, len(only or exports.NAMES)),
        unit="",
        least=True,
    )
    report.goal("exports that are not ready", len(rows) - len(ready), 0, unit="")
    report.goal("tokens that are not PyTorch's", counts["tokens"] - counts["PyTorch's"], 0, unit="")
    report.goal("attentions that are not one operator", counts["layers"] - counts["one operator"], 0, unit="")


# -- speed ---------------------------------------------------------------------------------------------------


def opened(path: Path) -> ort.InferenceSession:
    """A session of one thread."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 4
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def decode_step(session: ort.InferenceSession, past: int, *, shared: bool, head: int = HEAD) -> Callable[[], None]:
    """A step of one token after ``past`` others; keys and values lie in one buffer of one more, or are made anew."""
    binding, rng = session.io_binding(), np.random.default_rng(0)
    feeds = {
        "input_ids": np.ones((1, 1), np.int64),
        "attention_mask": np.ones((1, past + 1), np.int64),
        "position_ids": np.full((1, 1), past, np.int64),
    }
    for given in session.get_inputs():
        if given.name in feeds:
            binding.bind_ortvalue_input(given.name, ort.OrtValue.ortvalue_from_numpy(feeds[given.name]))
            continue
        numbers = rng.standard_normal((1, given.shape[1], past + shared, head), np.float32)
        value = ort.OrtValue.ortvalue_from_numpy(numbers)
        binding.bind_ortvalue_input(given.name, value)
        if shared:
            binding.bind_ortvalue_output(given.name.replace("past_key_values", "present"), value)
    for made in session.get_outputs():
        if not shared or made.name == "logits":
            binding.bind_output(made.name)

    def step() -> None:
        session.run_with_iobinding(binding)

    return step


def timed(step: Callable[[], None], runs: int) -> Callable[[], float]:
    """Takes the seconds of a step, as the mean of some runs."""

    def taken() -> float:
        start = clock()
        for _ in range(runs):
            step()
        return (clock() - start) / runs

    return taken


def _sides(folder: Path, size: dict[str, int]) -> Iterator[tuple[str, Callable[[], None]]]:
    """The export, the same without shared buffers, and with them."""
    exports = _exports()
    model, path, out = exports.decoder("llama", **size), folder / "model.onnx", folder / "genai"
    exports.export(model, path, "torchscript" if exports.can_trace() else "dynamo")
    made = genai(path, out, GenaiSettings(special=Special(context=2048, eos=(2,)), check="fast"))
    assert made.shared
    yield "export", decode_step(opened(path), PAST, shared=False)
    session = opened(out / "model.onnx")
    yield "genai, past and present apart", decode_step(session, PAST, shared=False)
    yield "genai, shared buffers", decode_step(session, PAST, shared=True)
    for name, make, together in (("builder, shared buffers", _built, True), ("mobius", _by_mobius, False)):
        try:
            peer = make(model, folder)
        except ImportError as error:  # each wants a version of Transformers
            print(f"{name}: {error}", flush=True)
            continue
        yield name, decode_step(opened(peer), PAST, shared=together)


def _by_mobius(model: Any, folder: Path) -> Path:
    """The model that mobius makes of a network."""
    zoo, path = importlib.import_module("golden_models.exporters.mobius_zoo"), folder / "mobius.onnx"
    importlib.import_module("onnx_ir").save(zoo.built(model), path)
    return path


def _built(model: Any, folder: Path) -> Path:
    """The model that onnxruntime-genai's builder makes of a network."""
    zoo = importlib.import_module("golden_models.exporters.genai_zoo")
    source, out, cache = (str(folder / name) for name in ("source", "built", "cache"))
    model.save_pretrained(source)
    zoo.tokenizer().save_pretrained(source)
    options = zoo.builder.parse_extra_options("llama", source, out, "fp32", "cpu", cache, [])
    zoo.builder.create_model("llama", source, out, "fp32", "cpu", cache, **options)
    return Path(out, "model.onnx")


def speed(report: Report, quick: bool, rounds: int) -> None:
    """A decode step, before and after."""
    size = {"hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": HEAD}
    size |= {"intermediate_size": 2816, "num_hidden_layers": 2 if quick else 8}
    size |= {"max_position_embeddings": 2048}
    with tempfile.TemporaryDirectory() as folder:
        steps = dict(_sides(Path(folder), size))
        for step in steps.values():
            step()
        times = interleaved({name: timed(step, 5) for name, step in steps.items()}, rounds)
    base = times["export"]
    rows: list[Row] = [
        {"model": name, "step (s)": seconds, "of the export": seconds / base} for name, seconds in times.items()
    ]
    report.table(
        f"one token after {PAST}, one thread",
        rows,
        note=f"Llama, {size['num_hidden_layers']} layers of {size['hidden_size']}",
    )
    ours, others = (
        times["genai, shared buffers"],
        [times[name] for name in times if "builder" in name or name == "mobius"],
    )
    report.goal("a step with shared buffers, of the export's", ours / base, 0.55)
    if others:
        report.goal("the same, of the faster of the builders'", ours / min(others), 0.97)


def main() -> int:
    """Run it; the exit code."""
    options: argparse.ArgumentParser = parser(__doc__)
    options.add_argument("--only", nargs="+", default=[], metavar="NAME", help="decoders (default: all)")
    options.add_argument("--part", choices=["tokens", "speed"], help="one of both (default: both)")
    given = options.parse_args()
    report = Report("decoders")
    if given.part != "speed":
        coverage(report, given.only or (["llama", "gpt2"] if given.quick else []))
    if given.part != "tokens":
        speed(report, given.quick, given.rounds or (5 if given.quick else 15))
    return report.finish(given.json)


if __name__ == "__main__":
    raise SystemExit(main())
