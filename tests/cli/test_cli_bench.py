"""``onnxrewrite bench``: what it shows, and how it refuses."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from typing import get_args

import pytest
from small_models import GELU, write
from suite.decoders.decoder_models import GOLDEN

from onnxrewrite.cli.bench import Level
from onnxrewrite.runtime import settings
from onnxrewrite.suite.bench import peers

QUICK = ("--seconds", "0", "--no-memory", "--level", "all", "--threads", "1")
UNFIT = """<ir_version: 8, opset_import: ["": 17]>
g (float[2,3] x, float[4,5] w) => (y) { y = Concat <axis = 0> (x, w) }"""


def test_levels_are_those_of_the_library():
    assert [level.value for level in Level] == list(settings.LEVELS) == list(get_args(settings.Level))


def test_tables(cli, gelu, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    other = write(tmp_path / "other.onnx", GELU.replace("1.41421356", "1.4"))
    done = cli("bench", gelu, *QUICK, "--level", "disabled", "--with", other, "--batch", "1,8", "--dim", "batch=3")
    lines = done.out.splitlines()
    assert max(map(len, lines)) <= 100
    assert " ".join(done.out.split()).startswith(
        f"{gelu}: at batch=3, CPUExecutionProvider, 1 thread, 7 rounds variant"
    )
    first = next(n for n, line in enumerate(lines) if line.startswith("  variant "))
    assert [line.split("  ")[1] for line in lines[first + 1 : first + 5]] == [
        "original, disabled",
        "original, all",
        "ours",
        "other.onnx",
    ]
    assert " samples a second " in done.out
    assert "differs" in done.out
    assert "Differs  other.onnx: output y, " in done.out
    assert (done.code, done.err) == (0, "")


def test_json(cli, gelu, relu, tmp_path):
    done = cli("bench", gelu, relu, *QUICK, "--json", "-", "--only", "gelu-erf", "--seed", "7")
    data = json.loads(done.out)
    assert (done.code, data["seed"], data["seconds"]) == (0, 7, 0)
    assert [m["model"] for m in data["models"]] == [str(gelu), str(relu)]
    assert [v["name"] for v in data["models"][0]["variants"]] == ["original, all", "ours"]
    assert "onnxruntime" in data["versions"]


def test_ours_can_be_left_out_and_peers_added(cli, relu, monkeypatch):
    nobody = peers.Peer("nobody", "nobody", "nobody_has_this", lambda source, result: None)
    monkeypatch.setattr(peers, "PEERS", (nobody,))
    (model,) = json.loads(cli("bench", relu, *QUICK, "--no-ours", "--peers", "--json", "-").out)["models"]
    assert [v["name"] for v in model["variants"]] == ["original, all"]
    assert model["notes"] == ["not installed: nobody"]


def test_rules_are_used(cli, relu, wrong_rule):
    """A wrong one is undone: ours is the original."""
    done = cli("bench", relu, *QUICK, "--rules", wrong_rule, "--only", "relu-is-abs", "--json", "-")
    ours = json.loads(done.out)["models"][0]["variants"][1]
    assert (ours["nodes"], ours["error"]) == (1, {"largest": 0.0, "failure": ""})


def test_of_several_models_those_that_run_are_told(cli, relu, tmp_path):
    unfit = write(tmp_path / "unfit.onnx", UNFIT)
    done = cli("bench", unfit, relu, *QUICK, "--no-ours")
    assert done.code == 2
    assert done.out.startswith(f"{relu}: ")
    assert done.err.startswith(f"onnxrewrite: {unfit}: the model does not open in ONNX Runtime: ")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ((), "missing argument 'MODEL'"),
        (("missing.onnx",), "no such file"),
        (("{relu}", "--provider", "cuda"), "provider 'cuda' is CUDAExecutionProvider, which this build"),
        (("{relu}", "--provider", "gpu"), "unknown provider 'gpu'"),
        (("{relu}", "--batch", "1,0"), "--batch 1,0: write sizes of one or more"),
        (("{relu}", "--batch", ""), "--batch : write sizes"),
        (("{relu}", "--plot", "bench.txt"), "the name must end in .png, .svg, .pdf"),
        (("{relu}", "--dim", "width=3"), "--dim width: no such dimension; the inputs have batch"),
        (("{relu}", "{gelu}", "--with", "{relu}"), "--with is for one MODEL"),
        (("{relu}", "--with", "missing.onnx"), "missing.onnx: no such file"),
        (("{relu}", "--json", "{relu}"), "would overwrite a model"),
        (("{relu}", "--only", "nonsense"), "nonsense"),
        (("{relu}", "--level", "most"), "'most' is not one of"),
    ],
)
def test_errors_are_one_line(refused, relu, gelu, arguments, part, monkeypatch):
    from onnxrewrite.ir import target

    monkeypatch.setattr(target, "providers", lambda: ("CPUExecutionProvider",))
    assert part in refused("bench", *(a.format(relu=relu, gelu=gelu) for a in arguments))


def test_without_matplotlib_it_says_how_to_get_it(refused, relu, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    line = refused("bench", relu, "--plot", tmp_path / "bench.png")
    assert "--plot needs matplotlib; install it with pip install 'onnxrewrite[plot]'" in line


def test_plot(cli, relu, gelu, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "bench.png"
    assert cli("bench", relu, gelu, *QUICK, "--plot", path).code == 0
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_an_interrupt_leaves_nothing_behind(relu, tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "onnxrewrite", "bench", str(relu), "--seconds", "60"]
    running = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not any(tmp_path.glob("onnxrewrite-*")):
        time.sleep(0.05)
        assert running.poll() is None
    time.sleep(3)  # now it measures memory
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=30)
    assert (running.returncode, out, err) == (130, "", "onnxrewrite: interrupted; nothing was left half done\n")
    assert not any(tmp_path.glob("onnxrewrite-*"))


@pytest.mark.slow
def test_generation(cli, tmp_path):
    model = GOLDEN / "gpt2_past" / "model.onnx"
    arguments = ("--generate", "--prompt", 4, "--tokens", 2, "--seconds", 0, "--threads", 1, "--no-memory")
    done = cli("bench", model, *arguments)
    assert (done.code, done.err) == (0, "")
    assert "4 tokens, and 2 after them: CPUExecutionProvider, 1 thread" in done.out
    told = json.loads(cli("bench", model, *arguments, "--json", "-").out)
    assert [row["name"] for row in told["decoders"]] == ["model.onnx"]
    assert "onnxruntime" in told["versions"]


def test_what_is_not_for_generation(cli, relu):
    for option in (("--peers",), ("--level", "all"), ("--batch", "1,2"), ("--plot", "out.png")):
        done = cli("bench", relu, "--generate", *option)
        assert done.code == 2
        assert done.err == f"onnxrewrite: {option[0]} is not for --generate; leave it out\n"
    assert "no decoder" in cli("bench", relu, "--generate").err
