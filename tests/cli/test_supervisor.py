"""What a command hears and says while native code is at work, and when that dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import onnx
import pytest
from small_models import write

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no supervisor without fork")

ENDLESS = """<ir_version: 8, opset_import: ["": 17]>
g (float[1] x) => (float[1] y) <int64 n = {1000000000}, bool c = {1}> {
  y = Loop<body = b (int64 i, bool go, float[1] a) => (bool on, float[1] s) { on = Identity(go)  s = Add(a, a) }>(n, c, x)
}"""

DEAF = """
    import ctypes, os, sys, time
    from pathlib import Path
    from onnxrewrite.system import temporary
    from onnxrewrite.rules import FLOATS, Rule, Stage, Var, op
    x = Var("x", dtype=FLOATS)
    def tell():
        sys.stderr.write("working\\n")
        sys.stderr.flush()
    def rewrite(m, build):
        {work}
    RULE = Rule(name="deaf", stage=Stage.CANONICALIZE, pattern=op.Relu(x), rewrite=rewrite)
"""


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "onnxrewrite", *map(str, arguments)]


def rule_that(folder: Path, work: str) -> Path:
    path = folder / "deaf.py"
    path.write_text(textwrap.dedent(DEAF).format(work=work))
    return path


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    path = tmp_path / "endless.onnx"
    onnx.save(onnx.parser.parse_model(ENDLESS), path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "number"),
    [
        pytest.param(name, number, marks=[] if number == quick else [pytest.mark.slow])
        for name, quick in (("apply", signal.SIGINT), ("check", signal.SIGTERM), ("bench", signal.SIGHUP))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    ],
)
def test_a_signal_is_heard_while_onnx_runtime_runs(name, number, endless, tmp_path):
    more = {"apply": ["-o", tmp_path / "out.onnx"], "check": [endless], "bench": []}[name]
    before = sorted(tmp_path.iterdir())
    process = subprocess.Popen(command(name, endless, *more), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    time.sleep(3)
    assert process.poll() is None
    start = time.monotonic()
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert time.monotonic() - start < 2
    assert process.returncode == 128 + number
    what = "interrupted" if number == signal.SIGINT else "terminated"
    assert (out, err) == ("", f"onnxrewrite: {what}; nothing was left half done\n")
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.slow
def test_a_signal_is_heard_while_native_code_holds_the_interpreter(relu, tmp_path):
    """The child cannot hear it, and is killed."""
    rules = rule_that(tmp_path, "tell(); ctypes.PyDLL(None).sleep(60)")
    line = command("apply", relu, "-o", tmp_path / "out.onnx", "--rules", rules)
    with subprocess.Popen(line, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "working\n"
        start = time.monotonic()
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)
    assert time.monotonic() - start < 2
    assert process.returncode == 128 + signal.SIGTERM
    assert err == "onnxrewrite: terminated; nothing was left half done\n"


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (
            signal.SIGSEGV,
            "native code died of SIGSEGV on what it was given, in the phase 'rewrite'; --debug shows its last words",
        ),
        (
            signal.SIGABRT,
            "native code died of SIGABRT on what it was given, in the phase 'rewrite'; --debug shows its last words",
        ),
        (signal.SIGKILL, "killed, most likely for lack of memory; --memory-limit makes it stop before"),
    ],
)
def test_native_code_that_dies_is_no_bug_of_ours(number, said, relu, tmp_path):
    """What it has begun to write is removed, too."""
    where = tmp_path / "results"
    where.mkdir()
    begun = f"file = temporary.beside(Path({str(where / 'out.onnx')!r})); print(file.__enter__().exists())"
    rules = rule_that(tmp_path, f"{begun}; sys.stdout.flush(); os.kill(os.getpid(), {int(number)})")
    done = subprocess.run(
        command("apply", relu, "-o", where / "out.onnx", "--rules", rules), capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "True\n", f"onnxrewrite: {said}\n")
    assert list(where.iterdir()) == []


def test_the_child_ends_with_its_parent(relu, tmp_path):
    rules = rule_that(tmp_path, 'open("pid", "w").write(str(os.getpid())); tell(); time.sleep(60)')
    line = command("apply", relu, "-o", tmp_path / "out.onnx", "--rules", rules)
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "working\n"
        process.kill()
    child = int((tmp_path / "pid").read_text())
    end = time.monotonic() + 10
    while Path(f"/proc/{child}").exists() and time.monotonic() < end:
        state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
        if state == "Z":  # whoever adopts it has not looked yet
            return
        time.sleep(0.05)
    assert not Path(f"/proc/{child}").exists()


@pytest.mark.slow
def test_what_runs_too_long_is_not_checked_and_that_is_said(endless, tmp_path):
    done = subprocess.run(
        command("apply", endless, "-o", tmp_path / "out.onnx", "--run-limit", "0.5"), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "the original cannot be run: it takes longer than 0.5 s; --run-limit sets this limit" in said


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--run-limit", "-1", "--run-limit -1: write a number of seconds, or 0 for none"),
        ("--run-limit", "nan", "--run-limit nan: write a number of seconds, or 0 for none"),
        ("--memory-limit", "1K", "--memory-limit 1K: write a size of 256M or more, as in 4G, or 0 for none"),
        ("--memory-limit", "lots", "--memory-limit lots: write a size of 256M or more, as in 4G, or 0 for none"),
    ],
)
def test_limits_that_are_none(option, value, said, refused, relu):
    assert refused("inspect", relu, option, value) == f"onnxrewrite: {said}\n"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the limit is the system's")
def test_too_little_memory_is_said_in_one_line(tmp_path):
    inputs = ", ".join(f"float[100000000] x{i}" for i in range(4))
    text = f'<ir_version: 8, opset_import: ["": 17]> g ({inputs}) => (float[n] y) {{ y = Sum(x0, x1, x2, x3) }}'
    path = write(tmp_path / "large.onnx", text)
    line = command("apply", path, "-o", tmp_path / "out.onnx", "--memory-limit", "1G")
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "the original cannot be run: memory does not suffice" in " ".join(done.stdout.split())
