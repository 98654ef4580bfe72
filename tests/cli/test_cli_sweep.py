"""``onnxrewrite sweep`` as its user meets it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest
from small_models import GELU, RELU, write


@pytest.fixture
def zoo(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "zoo"
    (folder / "deep").mkdir(parents=True)
    write(folder / "gelu.onnx", GELU)
    write(folder / "deep" / "relu.onnx", RELU)
    return folder


@pytest.mark.slow
def test_a_zoo(cli, zoo, tmp_path):
    (zoo / "text.onnx").write_text("hello", encoding="utf-8")
    before = {p: p.read_bytes() for p in zoo.rglob("*") if p.is_file()}
    done = cli("sweep", "zoo", "--jobs", 2, "--dim", "batch=3", "--dim", "bacth=3", "--json", "all.json")
    assert done.code == 2, done
    assert done.err == ""
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert any(line.startswith("zoo/gelu.onnx done 5 → 1") for line in lines), done.out
    assert "Unusable zoo/text.onnx: is a text file, not a binary ONNX model" in lines
    assert "Note --dim bacth: the inputs have no such dimension" in lines
    assert lines[-1].startswith("3 models: 2 done, 1 unusable, in zoo.swept, ")
    assert {p: p.read_bytes() for p in zoo.rglob("*") if p.is_file()} == before
    written = {p.relative_to(tmp_path / "zoo.swept").as_posix() for p in (tmp_path / "zoo.swept").rglob("*.*")}
    assert written == {
        "gelu.onnx",
        "gelu.onnx.certificate.json",
        "deep/relu.onnx",
        "deep/relu.onnx.certificate.json",
        "sweep.html",
        "sweep.jsonl",
    }
    report = json.loads((tmp_path / "all.json").read_text())
    assert [row["status"] for row in report["models"]] == ["done", "unusable", "done"]
    assert set(report["models"][0]["files"]) == {"gelu.onnx", "gelu.onnx.certificate.json"}
    assert "what belongs to the output" in cli("sweep", "zoo", "--json", "zoo.swept/gelu.onnx.certificate.json").err
    assert "would overwrite a model, or another" in cli("sweep", "zoo", "--json", "zoo.swept/sweep.jsonl").err
    (zoo / "text.onnx").unlink()
    again = cli("sweep", "zoo", "--jobs", 2, "--dim", "batch=3", "--dim", "bacth=3", "-q")
    assert (again.code, again.err) == (0, "")
    assert again.out.startswith("2 models: 2 done (2 of them earlier), in zoo.swept, ")


def test_the_same_as_apply(cli, zoo, tmp_path):
    assert cli("apply", "zoo/gelu.onnx", "-o", "one.onnx", "-q").code == 0
    assert cli("sweep", "zoo/gelu.onnx", "-o", "out", "-q").code == 0
    assert (tmp_path / "out" / "gelu.onnx").read_bytes() == (tmp_path / "one.onnx").read_bytes()


CRASHING = """
import os

from onnxrewrite.rules import Rule, Stage, Var, op

x = Var("x")


def to_nothing(m, build):
    \"\"\"relu(x) ⟶ x.\"\"\"
    ACTION
    return m[x]


NOTHING = Rule("relu-nothing", Stage.CANONICALIZE, op.Relu(x), to_nothing)
"""


@pytest.mark.slow
def test_a_rule_that_crashes_or_is_wrong(cli, zoo):
    crash, wrong = zoo / "crash.py", zoo / "wrong.py"
    crash.write_text(CRASHING.replace("ACTION", "os._exit(7)"))
    done = cli("sweep", "zoo", "-o", "out", "--rules", crash)
    assert done.code == 1
    assert "Died  zoo/deep/relu.onnx: its process ended with status 7" in done.out
    assert "2 models: 1 done, 1 died, in out" in done.out
    wrong.write_text(CRASHING.replace("ACTION", "pass"))
    again = cli("sweep", "zoo", "-o", "out", "--rules", wrong, "-q")
    assert again.code == 0  # the rule was undone, and is told of in the certificate
    assert again.out.startswith("2 models: 2 done, in out")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["zoo", "--jobs", 2, "--lower", "fastest"], "models at a time would disturb each other"),
        (["zoo", "--jobs", 2, "--command", "optimize"], "models at a time would disturb each other"),
        (["zoo", "--data", "x"], "--data: is an option of optimize"),
        (["zoo", "--max-drop", 0.1], "--max-drop: is an option of optimize"),
        (["zoo", "--command", "optimize", "--check", "fast"], "--check: is an option of apply"),
        (["zoo", "--command", "optimize", "--config", "none.toml"], "none.toml: No such file"),
        (["zoo", "--executor", "ray://here"], "write dask://HOST:PORT or dask://local"),
        (["zoo", "--executor", "dask://here:1", "--jobs", 2], "for the cluster dask://here:1 to say"),
        (["zoo", "--jobs", 0], "greater than or equal to 1"),
        (["zoo", "--shard", "0/3"], "--shard 0/3: write K/N, such as 3/50"),
        (["zoo", "--shard", "4/3"], "--shard 4/3: write K/N, such as 3/50"),
        (["zoo", "--retry", "check=2"], "--retry check=2: write REASON=N, REASON being one of memory, crash"),
        (["zoo", "--retry", "crash"], "--retry crash: write REASON=N"),
        (["nothing-known://bucket/zoo", "-o", "out"], "nothing-known://bucket/zoo: Protocol not known"),
        (["zoo", "--only", "no-such-rule"], "no rule"),
        (["zoo", "--json", "zoo/gelu.onnx", "-o", "out"], "would overwrite a model"),
        (["zoo", "-o", "zoo"], "lies there and is to be read"),
        (["zoo", "-o", "zoo/gelu.onnx"], "is not a folder"),
        (["empty"], "no model in empty"),
        (["zoo/*.pb", "-o", "out"], "nothing matches zoo/*.pb"),
        (["nowhere"], "nowhere: no such file or folder"),
        (["zoo", "empty"], "give a folder to write to"),
        ([], "missing argument"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else "",
)
def test_what_cannot_be_done_is_told_at_once(refused, zoo, tmp_path, arguments, told):
    (tmp_path / "empty").mkdir()
    before = sorted(zoo.rglob("*"))
    assert told in refused("sweep", *arguments)
    assert sorted(zoo.rglob("*")) == before
    assert not (tmp_path / "zoo.swept" / "sweep.jsonl").exists()


def test_an_output_folder_that_is_write_protected(refused, zoo, tmp_path):
    protected = tmp_path / "protected"
    protected.mkdir(mode=0o500)
    if os.access(protected, os.W_OK):
        pytest.skip("this user may write everywhere")
    assert "cannot be written to" in refused("sweep", "zoo", "-o", protected)


def test_dask_that_is_not_installed_is_told(refused, zoo, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert "pip install onnxrewrite[dask]" in refused("sweep", "zoo", "--executor", "dask://local")


@pytest.mark.slow
def test_dask(cli, refused, zoo):
    pytest.importorskip("distributed", reason="dask.distributed is not installed: pip install onnxrewrite[dask]")
    (zoo / "crash.py").write_text(CRASHING.replace("ACTION", "os._exit(7)"))
    done = cli("sweep", "zoo", "--executor", "dask://local", "--jobs", 2, "--rules", zoo / "crash.py", "-q")
    assert done.code == 1
    assert done.out.startswith("2 models: 1 done, 1 died, in zoo.swept")
    assert "cannot be reached" in refused("sweep", "zoo", "--executor", "dask://127.0.0.1:1")


@pytest.mark.slow
def test_an_interrupt_of_a_cluster_leaves_a_table_and_no_other_word(zoo, tmp_path):
    pytest.importorskip("distributed", reason="dask.distributed is not installed: pip install onnxrewrite[dask]")
    for number in range(30):
        shutil.copy(zoo / "gelu.onnx", zoo / f"gelu{number}.onnx")
    words = [sys.executable, "-m", "onnxrewrite", "sweep", "zoo", "--executor", "dask://local", "--jobs", "2"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with socket.socket() as other:
        with contextlib.suppress(OSError):  # where it is taken already
            other.bind(("127.0.0.1", 8787))  # the port of another cluster
            other.listen()
        process = subprocess.Popen(words, cwd=tmp_path, text=True, start_new_session=True, **pipes)
        record = tmp_path / "zoo.swept" / "sweep.jsonl"
        end = time.monotonic() + 120
        while not (record.exists() and '"done"' in record.read_text()) and time.monotonic() < end:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: all processes of the group
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    told = [line for line in err.splitlines() if not re.search(r"\(\d+ s\)$", line)]  # of progress, on a busy machine
    assert told == ["onnxrewrite: interrupted; nothing was left half done"]
    last = out.splitlines()[-1]
    assert re.fullmatch(r"32 models: \d+ done, \d+ waiting, in zoo.swept; the same command goes on", last), out
    assert "not done yet: the same command goes on" in (tmp_path / "zoo.swept" / "sweep.html").read_text()


@pytest.mark.slow
def test_an_interrupt_leaves_a_record_to_go_on_from(zoo, tmp_path):
    shutil.move(zoo / "deep" / "relu.onnx", zoo / "relu.onnx")
    wait = "import time, pathlib\n    while pathlib.Path(os.environ['HOLD']).exists(): time.sleep(0.1)"
    (zoo / "slow.py").write_text(CRASHING.replace("ACTION", wait))
    hold = tmp_path / "hold"
    hold.touch()
    words = [sys.executable, "-m", "onnxrewrite", "sweep", "zoo", "--rules", "zoo/slow.py", "-q"]
    process = subprocess.Popen(
        words, cwd=tmp_path, env={**os.environ, "HOLD": str(hold)}, stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )
    record = tmp_path / "zoo.swept" / "sweep.jsonl"
    end = time.monotonic() + 120
    while not (record.exists() and '"done"' in record.read_text()) and time.monotonic() < end:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b"")
    assert err.decode() == "onnxrewrite: interrupted; nothing was left half done\n"
    hold.unlink()
    done = subprocess.run(
        words, cwd=tmp_path, env={**os.environ, "HOLD": str(hold)}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done
    assert done.stdout.startswith("2 models: 2 done (1 of them earlier)")
