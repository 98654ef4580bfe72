"""A decoder of Transformers becomes a folder in one call; a stand-in has what the library's classes have."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from onnxrewrite.deploy import GenaiSettings, Special, export  # noqa: E402
from onnxrewrite.errors import UsageError  # noqa: E402

WORDS, SIZE, HEADS = 50, 32, 2
SETTINGS = GenaiSettings(tokens=4)


class Kept:
    """What is kept in a file, as Transformers keeps it."""

    def __init__(self, file: str, **entries: object) -> None:
        self.file, self.entries = file, entries

    def save_pretrained(self, folder: Path) -> None:
        Path(folder, self.file).write_text(json.dumps(self.entries), encoding="utf-8")


class Decoder(torch.nn.Module):  # type: ignore[name-defined, misc]
    """One layer of attention."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.config = Kept("config.json", eos_token_id=1, max_position_embeddings=40, num_hidden_layers=1)
        self.generation_config = None
        self.words, self.places = torch.nn.Embedding(WORDS, SIZE), torch.nn.Embedding(40, SIZE)
        self.qkv, self.out = torch.nn.Linear(SIZE, 3 * SIZE), torch.nn.Linear(SIZE, WORDS)

    def generate(self) -> None:
        raise NotImplementedError

    def forward(self, input_ids: Any, attention_mask: Any, use_cache: bool) -> SimpleNamespace:
        assert not use_cache
        batch, length = input_ids.shape
        places = torch.arange(length, device=input_ids.device)
        x = self.words(input_ids) + self.places(places)
        q, k, v = (t.view(batch, length, HEADS, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        seen = (places[None, :] <= places[:, None])[None, None] & attention_mask.bool()[:, None, None, :]
        scores = (q @ k.transpose(-1, -2) / 4).masked_fill(~seen, torch.finfo(q.dtype).min)
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, SIZE)
        return SimpleNamespace(logits=self.out(x + mixed))


def test_a_decoder_becomes_a_folder(tmp_path: Path) -> None:
    tokenizer = Kept("tokenizer.json", words="a b")
    ids = torch.randint(0, WORDS, (1, 5))
    made = export(Decoder().eval(), ids, tmp_path / "out", optimize=SETTINGS, tokenizer=tokenizer)
    assert made.path == tmp_path / "out" / "model.onnx"
    assert made.path.exists()
    assert made.folder is not None
    assert made.folder.attentions == {"GroupQueryAttention": 1}
    assert made.comparison is not None
    assert made.comparison.ok
    assert not any("training mode" in note for note in made.notes)
    config = json.loads((tmp_path / "out" / "genai_config.json").read_text(encoding="utf-8"))["model"]
    assert (config["context_length"], config["eos_token_id"]) == (40, 1)
    assert (tmp_path / "out" / "tokenizer.json").exists()
    assert made.to_json()["folder"] is not None


@pytest.mark.parametrize(
    ("module", "example", "arguments", "said"),
    [
        (torch.nn.Linear(2, 2), torch.ones(1, 2), {}, "Linear is no decoder of Transformers"),
        (Decoder(), torch.ones(1, 5), {}, "must be its input_ids"),
        (Decoder(), torch.ones(5, dtype=torch.int64), {}, "must be its input_ids"),
        (Decoder(), {"input_ids": torch.ones(1, 5, dtype=torch.int64)}, {"tokenizer": 3}, "tokenizer is a int"),
        (Decoder(), torch.ones(1, 5, dtype=torch.int64), {"lower": "fused"}, "lower is not for a decoder"),
        (Decoder(), torch.ones(1, 5, dtype=torch.int64), {"input_names": ["x"]}, "input_names is not for a decoder"),
    ],
)
def test_bad_arguments(module: Any, example: Any, arguments: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        export(module, example, tmp_path / "out", optimize=SETTINGS, **arguments)
    assert not list(tmp_path.iterdir())


def test_a_decoder_needs_a_folder(tmp_path: Path) -> None:
    ids = torch.ones(1, 5, dtype=torch.int64)
    with pytest.raises(UsageError, match="say which with path"):
        export(Decoder(), ids, optimize=SETTINGS)
    (tmp_path / "mine").write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match="is not empty"):
        export(Decoder(), ids, tmp_path, optimize=SETTINGS)
    with pytest.raises(UsageError, match="tokenizer is for a decoder"):
        export(torch.nn.Linear(2, 2), torch.ones(1, 2), tmp_path / "out.onnx", tokenizer="words")


def test_what_the_config_does_not_say_is_asked_for(tmp_path: Path) -> None:
    module, ids = Decoder(), torch.randint(0, WORDS, (1, 5))
    module.config.entries.pop("eos_token_id")
    with pytest.raises(UsageError, match="--eos"):
        export(module, ids, tmp_path / "out", optimize=SETTINGS, exporter="torchscript")
    special = GenaiSettings(tokens=4, special=Special(eos=(1,)))
    made = export(module, ids, tmp_path / "out", optimize=special, exporter="torchscript", check=False)
    assert made.exporter == "torchscript"
