"""Where the command line prints: streams that are closed, full or go away, terminals of any width, hostile names."""

import os
import pty
import subprocess
import sys
import time

import onnx
import pytest
from onnx import TensorProto, helper

from onnxrewrite.cli import console

COMMAND = [sys.executable, "-m", "onnxrewrite"]
HOSTILE = "\x1b[31mred\x07\nonnxrewrite: all is well\x9b5m\u202etxt\u2028\x00\x7f"
"""Colours, a bell, a line of ours, another one, text from right to left, a separator of lines, nothing, a deletion."""


def shell(redirected: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """A run with streams as the shell makes them."""
    line = f'exec "$@" {redirected}'
    command = ["sh", "-c", line, "sh", *COMMAND, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})


APPLY = ("apply", "--lower", "fused", "--check", "off")

STREAMS = {
    ">/dev/full": 2,
    ">&-": 0,
    "2>&-": 0,
    "2>/dev/full": 0,
    "<&- >&- 2>&-": 0,
    ">/dev/null": 0,
}


FEW_STREAMS = (">/dev/full", "2>&-", "<&- >&- 2>&-")
"""A stream that is full, one that is closed, and none; the quick tests are content with these."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("redirected", "code"),
    [
        pytest.param(*each, id=each[0], marks=[] if each[0] in FEW_STREAMS else [pytest.mark.slow])
        for each in STREAMS.items()
    ],
)
def test_the_model_is_written_whatever_becomes_of_the_report(gelu, tmp_path, redirected, code):
    done = shell(redirected, *APPLY, gelu)
    assert done.returncode == code, done
    if redirected == ">/dev/full":
        assert done.stderr == "onnxrewrite: not all of the result could be printed: No space left on device\n"
    elif "2>" not in redirected:
        assert done.stderr == ""
    onnx.checker.check_model(tmp_path / "gelu.opt.onnx")
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "gelu.onnx",
        "gelu.opt.onnx",
        "gelu.opt.onnx.certificate.json",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("redirected", FEW_STREAMS)
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        pytest.param(("inspect", "no.onnx"), 2, id="2", marks=pytest.mark.slow),
        pytest.param(("check", "gelu.onnx", "relu.onnx"), 1, id="1"),
    ],
)
def test_a_status_is_what_it_is_wherever_it_is_told(gelu, relu, tmp_path, monkeypatch, redirected, arguments, code):
    monkeypatch.chdir(tmp_path)
    assert shell(redirected, *arguments).returncode == code


@pytest.mark.parametrize("arguments", [("inspect",), ("inspect", "--json", "-"), ("inspect", "--text")])
def test_a_full_disk_is_told_once(gelu, arguments):
    done = shell(">/dev/full", *arguments, gelu)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "No space left on device" in done.stderr


def test_the_first_line_is_enough(gelu):
    done = shell("| head -1", "inspect", gelu)
    assert (done.returncode, done.stdout.count("\n"), done.stderr) == (0, 1, "")


@pytest.mark.parametrize("columns", ["0", "-1", "1", "abc", "", "²", "9" * 30, "1000000000"])
def test_any_width(cli, gelu, columns, monkeypatch):
    """What is no sensible number of columns is none."""
    usual = cli("inspect", gelu).out
    with monkeypatch.context() as patch:  # pytest asks how wide it is, too
        patch.setenv("COLUMNS", columns)
        done = cli("inspect", gelu)
    assert (done.code, done.err) == (0, "")
    assert len(done.out) >= len(usual)
    assert max(map(len, done.out.splitlines())) <= 1000


# ------------------------------------------------------------------------------------------------------ names


def hostile_model(path):
    """Hostile names wherever a model has names."""
    name = "{}" + HOSTILE
    x = helper.make_tensor_value_info(name.format("x"), TensorProto.FLOAT, [name.format("dim"), 4])
    y = helper.make_tensor_value_info(name.format("y"), TensorProto.FLOAT, None)
    nodes = [
        helper.make_node("Erf", [name.format("x")], [name.format("a")], name=name.format("one")),
        helper.make_node("Neg", [name.format("a")], [name.format("b")], name=name.format("two")),
        helper.make_node("Neg", [name.format("b")], [name.format("c")], name=name.format("three")),
        helper.make_node("Add", [name.format("c"), name.format("w")], [name.format("d")], name=name.format("four")),
        helper.make_node(name.format("F"), [name.format("d")], [name.format("y")], domain=name.format("own")),
    ]
    weight = helper.make_tensor(name.format("w"), TensorProto.FLOAT, [4], [1.0] * 4)
    graph = helper.make_graph(nodes, name.format("g"), [x], [y], [weight], doc_string=name.format("doc"))
    body = [helper.make_node("Relu", ["p"], ["q"], name=name.format("inner"))]
    own = helper.make_opsetid("", 17)
    function = helper.make_function(name.format("own"), name.format("F"), ["p"], ["q"], body, [own])
    imports = [own, helper.make_opsetid(name.format("own"), 1)]
    model = helper.make_model(graph, opset_imports=imports, functions=[function], ir_version=8)
    model.producer_name, model.producer_version, model.domain = map(name.format, ("made", "by", "whom"))
    model.doc_string = name.format("doc")
    model.metadata_props.add(key=name.format("key"), value=name.format("value"))
    onnx.save(model, path)
    return path


COMMANDS = {
    "inspect": ("inspect", "M"),
    "inspect -v": ("inspect", "M", "-v"),
    "inspect --text": ("inspect", "M", "--text"),
    "inspect --json": ("inspect", "M", "--json", "-"),
    "apply -v": ("apply", "M", "--lower", "fused", "-v"),
    "apply --json": ("apply", "M", "--lower", "fused", "--check", "off", "--json", "-"),
    "check": ("check", "M", "M"),
    "check of another": ("check", "M", "gelu.onnx"),
    "explain --all": ("explain", "M", "--all", "-v"),
    "explain RULE": ("explain", "M", "gelu-erf"),
    "explain --node": ("explain", "M", "--node", f"two{HOSTILE}".replace("\x00", "")),
    "mine": ("mine", "M"),
    "capture": ("capture", "M", "--from", "x", "--to", "y", "-o", "-"),
    "no such file": ("inspect", f"M{HOSTILE}".replace("\x00", "")),
    "no such dimension": ("apply", "M", "--dim", "x=1"),
    "no such input": ("apply", "M", "--input", "x=M"),
}


def raw(text: str) -> set[str]:
    return {c for c in text if not c.isprintable() and c != "\n"}


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_no_name_reaches_a_terminal_raw(cli, gelu, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    hostile_model(tmp_path / "M")
    done = cli(*arguments)
    assert done.code in (0, 1, 2), done
    assert not raw(done.out + done.err)
    forged = [line for line in done.out.splitlines() if line.strip().startswith("onnxrewrite: all is well")]
    assert not forged
    assert done.err.count("\n") <= 1


def test_json_tells_names_as_they_are(cli, tmp_path):
    import json

    path = hostile_model(tmp_path / "m.onnx")
    for option in ("-", tmp_path / "r.json"):
        out = cli("inspect", path, "--json", option).out
        text = out if option == "-" else (tmp_path / "r.json").read_text()
        assert not raw(text)
        assert json.loads(text)["inputs"][0]["name"] == f"x{HOSTILE}"


def test_text_form_tells_names_as_they_are(cli, tmp_path):
    from onnxrewrite import io
    from onnxrewrite.ir.text import parse, print_model

    path = hostile_model(tmp_path / "m.onnx")
    text = cli("inspect", path, "--text").out
    assert print_model(parse(text)) == print_model(io.load(path))
    assert f"x{HOSTILE}" in [v.name for v in parse(text).graph.inputs]


def test_a_traceback_is_escaped_too(cli, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise ValueError(HOSTILE)

    monkeypatch.setattr("onnxrewrite.io.load", fail)
    done = cli("inspect", tmp_path / "m.onnx", "--debug")
    assert done.code == 3
    assert "Traceback" in done.err
    assert not raw(done.err)


def test_on_a_terminal(tmp_path):
    """Colours are ours; what is in a name is none."""
    path = hostile_model(tmp_path / "m.onnx")
    main, side = pty.openpty()
    process = subprocess.Popen([*COMMAND, "inspect", str(path)], stdin=side, stdout=side, stderr=side)
    os.close(side)
    seen = b""
    while True:
        try:
            chunk = os.read(main, 65536)
        except OSError:
            break
        seen += chunk
    os.close(main)
    assert process.wait() == 0
    assert b"\x1b[31m" not in seen
    assert b"\\u001b[31m" in seen
    assert not raw(
        seen.decode().replace("\r\n", "\n").replace("\x1b[1m", "").replace("\x1b[0m", "").replace("\x1b[2m", "")
    )


def test_where_there_is_no_terminal_lines_tell_of_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "_PAUSE", 0.02)
    with console.progress_bar(wanted=True) as progress:
        time.sleep(0.1)
        progress("check model", 3, 4)
        time.sleep(0.1)
        progress("write", 0, 0)
        time.sleep(0.1)
    lines = list(dict.fromkeys(capsys.readouterr().err.splitlines()))
    assert lines == [f"onnxrewrite: {what} (0 s)" for what in ("load", "check model, 3 of 7", "write")]
    with console.progress_bar(wanted=False) as progress:
        progress("write", 0, 0)
        time.sleep(0.1)
    assert capsys.readouterr().err == ""
