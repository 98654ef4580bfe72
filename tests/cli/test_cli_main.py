"""The command line as a whole: help, speed, pipes, signals, errors nobody expected."""

import os
import pty
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from onnxrewrite import __version__, cli
from onnxrewrite.cli.rewriting import Level

HEAVY = ("numpy", "onnx", "onnx_ir", "onnxruntime", "onnxscript", "sympy", "networkx", "rich")
COMMANDS = ("apply", "bench", "check", "inspect", "profile", "rules")


def run(*arguments, **how):
    command = [sys.executable, "-m", "onnxrewrite", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, **how)


# ------------------------------------------------------------------------------------------------------ help


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help(cli, arguments):
    done = cli(*arguments)
    assert done.code == 0
    for command in COMMANDS:
        assert f"\n  {command} " in done.out
    for words in (
        "0 done, also when no rule applied",
        "1 a check failed",
        "2 bad arguments",
        "3 an internal error",
    ):
        assert words in " ".join(done.out.split())


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command(cli, command):
    done = cli(command, "--help")
    assert done.code == 0
    assert done.out.startswith(f"Usage: onnxrewrite {command} ")
    assert max(map(len, done.out.splitlines())) <= 80


def test_help_names_every_option_of_apply(cli):
    out = cli("apply", "--help").out
    options = "-o --rules --only --without --target --opset --dim --input --check --json --dry-run -q -v"
    for option in options.split():
        assert f"{option} " in out or f"{option}," in out


def test_version(cli):
    assert cli("--version").out.startswith(f"onnxrewrite {__version__} (onnx ")


def test_help_imports_nothing_heavy():
    code = "import sys; from onnxrewrite.cli import main; main(['apply', '--help']); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split()
    assert "onnxrewrite.cli" in loaded
    assert [name for name in HEAVY if name in loaded] == []


def test_help_is_quick():
    """In processor time, for other work on the machine is not our fault, and as a multiple of what its library takes,
    for a slow machine is neither; 3.4 to 4.7 were measured."""
    ours, library = [], []
    for _ in range(3):
        ours.append(seconds_of("-m", "onnxrewrite", "--help"))
        library.append(seconds_of("-c", "import typer"))
    assert min(ours) < 6 * min(library)


def seconds_of(*arguments):
    """What an interpreter takes of the processor."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_choices_are_those_of_the_library():
    from typing import get_args

    from onnxrewrite.compiler.request import CheckLevel

    assert [level.value for level in Level] == list(get_args(CheckLevel))


# ---------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["appli"], ["appli", "apply"]),
        (["--nonsense"], ["--nonsense"]),
        (["apply"], ["missing argument 'MODEL'", "see onnxrewrite apply --help"]),
        (["check", "one.onnx"], ["missing argument 'B'", "see onnxrewrite check --help"]),
        (["inspect", "a", "--samples", "2"], ["--samples"]),
    ],
)
def test_usage_errors_are_one_line(refused, arguments, parts):
    line = refused(*arguments)
    for part in parts:
        assert part in line


@pytest.fixture
def broken(monkeypatch):
    def fail(*_, **__):
        raise ValueError("a bug\nof ours")

    monkeypatch.setattr("onnxrewrite.api.application.apply", fail)


def test_a_bug_is_one_line(refused, broken, gelu):
    line = refused("apply", gelu, code=3)
    assert "internal error: ValueError: a bug of ours" in line
    assert "--debug" in line


def test_debug_shows_the_traceback(cli, broken, gelu, monkeypatch):
    assert "Traceback" in cli("apply", gelu, "--debug").err
    assert "Traceback" not in cli("apply", gelu).err
    monkeypatch.setenv("ONNXREWRITE_DEBUG", "1")
    assert "Traceback" in cli("apply", gelu).err


def test_out_of_memory(refused, gelu, monkeypatch):
    def fail(*_, **__):
        raise MemoryError

    monkeypatch.setattr("onnxrewrite.api.application.apply", fail)
    assert "out of memory" in refused("apply", gelu)


def test_nothing_on_stderr_where_no_cache_can_be_written(gelu):
    environment = {k: v for k, v in os.environ.items() if k != "ORT_DISABLE_TELEMETRY"}
    done = run("apply", gelu, "--dry-run", env=environment | {"XDG_CACHE_HOME": "/proc/none", "HOME": "/proc/none"})
    assert (done.returncode, done.stderr) == (0, "")


# -------------------------------------------------------------------------------------------- pipes, signals


@pytest.mark.slow
def test_no_colour_and_no_bar_in_a_pipe(gelu):
    done = run("apply", gelu, env={**os.environ, "TERM": "xterm-256color"})
    assert done.returncode == 0
    assert done.stderr == ""
    assert "\x1b" not in done.stdout


def on_terminal(*arguments) -> tuple[int, str]:
    """Exit status and output of a run on a terminal of 80 columns."""
    main, side = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS")}
    process = subprocess.Popen(
        [sys.executable, "-m", "onnxrewrite", *map(str, arguments)],
        stdin=side, stdout=side, stderr=side, env={**environment, "TERM": "xterm-256color"},
    )  # fmt: skip
    os.close(side)
    seen = b""
    while True:
        try:
            chunk = os.read(main, 65536)
        except OSError:  # the other side is closed
            break
        if not chunk:
            break
        seen += chunk
    os.close(main)
    return process.wait(), seen.decode()


def test_colour_and_bar_on_a_terminal(gelu):
    code, out = on_terminal("apply", gelu)
    assert code == 0
    assert "\x1b[1m" in out
    assert "check model" in out
    assert "gelu-erf" in out


@pytest.mark.slow
def test_quiet_on_a_terminal_has_no_bar(gelu, tmp_path):
    assert on_terminal("apply", gelu, "-q") == (0, f"{tmp_path}/gelu.opt.onnx\r\n")


@pytest.mark.slow
def test_the_reader_goes_away(gelu, tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "onnxrewrite", "apply", str(gelu)]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "gelu.opt.onnx").exists()


@pytest.mark.slow
def test_a_terminal_without_unicode(gelu):
    done = run("rules", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert "gelu-erf" in done.stdout


SIGNALS = """
import os, signal
from onnxrewrite.rules import Rule, Stage, Var, op

x = Var("x")

def stop(m, build):
    os.kill(os.getpid(), signal.{name})

RULE = Rule(name="stop", stage=Stage.RAISE, pattern=op.Erf(x), rewrite=stop)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "said"), [("SIGINT", "interrupted"), ("SIGTERM", "terminated")])
def test_stopped_in_the_middle(gelu, tmp_path, name, said):
    rule = tmp_path / "stop.py"
    rule.write_text(SIGNALS.format(name=name))
    before = gelu.read_bytes()
    done = run("apply", gelu, "-o", gelu, "--rules", rule, "--only", "stop", "--json", tmp_path / "r.json")
    assert done.returncode == 128 + getattr(signal, name)
    assert done.stderr == f"onnxrewrite: {said}; nothing was left half done\n"
    assert done.stdout == ""
    assert gelu.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != "__pycache__") == ["gelu.onnx", "stop.py"]


def test_modules_of_the_command_line_are_thin():
    folder = Path(cli.__file__).parent
    for command in COMMANDS:
        assert len((folder / f"{command}.py").read_text().splitlines()) < 200


def test_the_end_of_a_file_is_no_interruption(refused, monkeypatch):
    def ended() -> None:
        raise EOFError("nothing is left to read")

    monkeypatch.setattr("onnxrewrite.runtime.machine.machine", ended)
    assert "internal error: RuntimeError: a file ended: nothing is left to read" in refused("doctor", code=3)
