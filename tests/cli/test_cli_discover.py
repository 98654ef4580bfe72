"""``onnxrewrite discover``."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from onnxrewrite import io
from onnxrewrite.ir import text

SCALED = "float[b,m,4] x; float[b,4,n] z;  p = MatMul(x, z)  y = Mul(p, 0.3)"

DYING = """
import multiprocessing, os
from onnxrewrite.rules import *

x = Var("x")
if multiprocessing.parent_process() is not None:
    os._exit(7)


@rule("identity-again", CANONICALIZE, op.Identity(x))
def to_nothing(m, build):
    \"\"\"Identity(x) ⟶ x.\"\"\"
    return m[x]
"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    io.save(io.load(text.parse(SCALED, opset=17)), tmp_path / "m.onnx")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "m.onnx"


@pytest.mark.slow
def test_what_is_known_is_told(cli, model):
    done = cli("discover", "m.onnx", "-o", "rules", "--nodes", 2, "--count", 8)
    assert done.code == 0, done.err
    assert "known" in done.out
    assert "3 of 1 model" in done.out
    assert not list(Path("rules").glob("*.py"))


@pytest.mark.slow
def test_a_page_tells_of_all(cli, model):
    assert cli("discover", "m.onnx", "-o", "rules", "--nodes", 2, "--count", 8, "-q").code == 0
    page = Path("rules/discover.html").read_text()
    assert "Known already: 1" in page
    assert "rules: 1 model: 1 known" in page


def test_an_executor_that_is_none_is_told(cli, model):
    asked = "discover", "m.onnx", "-o", "rules", "--executor"
    assert "write dask://HOST:PORT or dask://local" in cli(*asked, "ray://here").err
    assert "for the cluster dask://here:1 to say" in cli(*asked, "dask://here:1", "--jobs", 2).err
    assert not Path("rules").exists()


@pytest.mark.slow
def test_dask(cli, model):
    pytest.importorskip("distributed", reason="dask.distributed is not installed: pip install onnxrewrite[dask]")
    asked = "discover", "m.onnx", "--nodes", 2, "--count", 8, "--json", "-"
    here, there = (
        json.loads(cli(*asked, *more).out) for more in (("-o", "a"), ("-o", "b", "--executor", "dask://local"))
    )
    assert there["notes"] == []
    assert [f["key"] for f in there["findings"]] == [f["key"] for f in here["findings"]] != []


@pytest.mark.slow
def test_a_part_whose_process_dies_on_a_worker_is_told(cli, model):
    pytest.importorskip("distributed", reason="dask.distributed is not installed: pip install onnxrewrite[dask]")
    Path("dying.py").write_text(DYING)
    done = cli("discover", "m.onnx", "-o", "rules", "--rules", "dying.py", "--executor", "dask://local", "--nodes", 1)
    assert done.code == 1
    assert "ended with status 7" in done.out


def test_in_json(cli, model):
    done = cli("discover", "m.onnx", "-o", "rules", "--nodes", 2, "--count", 8, "--json", "-")
    data = json.loads(done.out)
    assert data["complete"]
    assert [f["status"] for f in data["findings"]] == ["known"]
    assert data["models"][0]["regions"] == 3


LAYERS = "float[b,s,8] x;" + "".join(
    f" a{n} = Add({'x' if n == 0 else f'y{n - 1}'}, float[8] {{{', '.join(f'0.{k}' for k in range(1, 9))}}})"
    f"  n{n} = LayerNormalization<axis=-1>(a{n}, float[8] {{1, 2, 3, 4, 5, 6, 7, 8}})  y{n} = Relu(n{n})"
    for n in range(4)
)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_was_stopped_goes_on(cli, model, number):
    """Two models at a time, stopped once the first one is searched, in the middle of the others."""
    for name in ("long", "longer"):
        io.save(io.load(text.parse(LAYERS, opset=17)), Path(f"{name}.onnx"))
    asked = [
        "discover",
        "m.onnx",
        "long.onnx",
        "longer.onnx",
        "-o",
        "rules",
        "--nodes",
        "3",
        "--count",
        "8",
        "--jobs",
        "2",
    ]
    line = [sys.executable, "-m", "onnxrewrite", *asked]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while not lines() and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number, said
    assert "Traceback" not in said
    kept = lines()
    done = cli(*asked, "--json", "-")
    data = json.loads(done.out)
    assert done.code == 0
    assert data["complete"]
    assert len(data["models"]) == 3
    assert kept <= lines(), "what was found is found anew"


def lines() -> set[str]:
    """What the journals hold."""
    return {
        line
        for path in Path("rules").rglob("*.jsonl")
        for line in path.read_text().splitlines(keepends=True)
        if line.endswith("\n")
    }


@pytest.mark.slow
def test_in_one_line(cli, model):
    done = cli("discover", "m.onnx", "-o", "rules", "--nodes", 2, "--count", 8, "--quiet")
    assert done.out == "1 model: 1 known\n"


def test_mistakes(cli, model):
    assert cli("discover", "absent.onnx", "-o", "rules").code == 2
    Path("file").write_text("")
    done = cli("discover", "m.onnx", "-o", "file")
    assert (done.code, done.err) == (2, "onnxrewrite: -o file: is not a folder\n")
    assert cli("discover", "m.onnx", "-o", "rules", "--without", "no-such-rule").code == 2


@pytest.mark.slow
def test_a_broken_model_is_told(cli, model):
    Path("broken.onnx").write_bytes(b"none")
    done = cli("discover", "broken.onnx", "-o", "rules", "--nodes", 1)
    assert done.code == 1
    assert "broken.onnx" in done.out


@pytest.mark.slow
def test_several_modes(cli, model):
    asked = "--by", "regions", "--by", "identities", "--nodes", 2, "--graphs", 8, "--count", 8
    done = cli("discover", "m.onnx", "-o", "rules", *asked, "--budget", 0)
    assert done.code == 0, done.err
    assert "Spellings   0 regions, 0 pairs of one fingerprint" in done.out
    assert "Identities  40 small graphs" in done.out
    assert "the time ran out" in done.out
    done = cli("discover", "-o", "rules", "--by", "identities", "--graphs", 8, "--budget", 0, "--quiet")
    assert (done.code, done.out) == (0, "identities: nothing found\n")


def test_identities_need_no_corpus(cli, model):
    done = cli("discover", "-o", "rules", "--by", "identities", "--by", "regions")
    assert (done.code, done.err) == (2, "onnxrewrite: CORPUS is missing: only --by identities needs no models\n")
