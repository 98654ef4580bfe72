from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from onnxrewrite.ruletest.fuzz import many

GOOD = """
from onnxrewrite.rules import FLOATS, Rule, Stage, Var, op

x = Var("x", dtype=FLOATS)


def once(m, build):
    \"\"\"relu(relu(x)) ⟶ relu(x).\"\"\"
    return build.Relu(m[x])


ONCE = Rule("relu-once", Stage.CANONICALIZE, op.Relu(op.Relu(x)), once)
"""
FEW = ("--jobs", 1, "--count", 10)

WRONG = GOOD.replace("build.Relu(m[x])", "m[x]").replace("relu-once", "relu-never")


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def good(tmp_path):
    path = tmp_path / "good.py"
    path.write_text(GOOD, encoding="utf-8")
    return path


@pytest.fixture
def wrong(tmp_path):
    path = tmp_path / "wrong.py"
    path.write_text(WRONG, encoding="utf-8")
    return path


@pytest.fixture
def here(monkeypatch):
    """Rules are tried in this process: to start another takes longer, and what those are for is asked further down."""
    monkeypatch.setattr(many, "in_workers", lambda work, tasks, count: ((task, work(task)) for task in tasks))


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_a_file_of_rules(cli, good):
    done = cli("verify", good, "--jobs", 1)
    assert done.code == 0, done.err
    assert "relu-once  ring-checked" in done.out
    assert "Tried on" in done.out


@pytest.mark.usefixtures("here")
def test_a_wrong_rule(cli, wrong, tmp_path):
    done = cli("verify", wrong, "--jobs", 1, "--save", tmp_path / "found", "--json", tmp_path / "report.json")
    assert done.code == 1
    assert "relu-never  refuted" in done.out
    assert {p.name for p in (tmp_path / "found" / "relu-never").iterdir()} == {
        "model.onnx",
        "inputs.npz",
        "test_relu_never.py",
    }
    (verdict,) = json.loads((tmp_path / "report.json").read_text())["rules"]
    assert verdict["status"] == "refuted"
    assert verdict["counterexample"]["before"].count("= Relu(") == 2


@pytest.mark.usefixtures("here")
def test_a_verdict_is_remembered_until_the_rule_changes(cli, good):
    first = json.loads(cli("verify", good, *FEW, "--json", "-").out)
    again = json.loads(cli("verify", good, *FEW, "--json", "-").out)
    other = json.loads(cli("verify", good, *FEW, "--json", "-", "--seed", 1).out)
    assert [d["rules"][0]["cached"] for d in (first, again, other)] == [False, True, False]
    assert not json.loads(cli("verify", good, *FEW, "--json", "-", "--no-cache").out)["rules"][0]["cached"]


@pytest.mark.slow
def test_several_at_a_time_say_the_same(cli, tmp_path):
    names = ("gelu-erf", "swish", "identity")
    runs = [
        json.loads(cli("verify", *names, "--jobs", jobs, "--count", 10, "--no-cache", "--json", "-").out)["rules"]
        for jobs in (1, 2)
    ]
    for one, two in zip(*runs, strict=True):
        assert {**one, "seconds": 0} == {**two, "seconds": 0}


@pytest.mark.usefixtures("here")
def test_one_line(cli, good, wrong):
    assert cli("verify", good, "-q", *FEW).out == "1 rule: 1 ring-checked\n"
    assert cli("verify", wrong, "-q", *FEW).out == "1 rule: 1 refuted (relu-never)\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "give the names of rules"),
        (("gelu-erf", "--all"), "give the names of rules"),
        (("no-such-rule",), "no rule or rule set is called 'no-such-rule'"),
        (("missing.py",), "no such rule file"),
        (("gelu-erf", "--count", "0"), "count"),
    ],
)
def test_what_cannot_be_done(cli, arguments, says):
    done = cli("verify", *arguments)
    assert done.code == 2
    assert says in done.err
    assert done.err.count("\n") == 1


def test_a_file_in_the_way(cli, good, tmp_path):
    (tmp_path / "file").write_text("")
    for folder, says in (("file", "is not a folder"), ("file/below", "cannot be written to: Not a directory")):
        done = cli("verify", good, "--save", tmp_path / folder)
        assert (done.code, done.err.count("\n")) == (2, 1)
        assert says in done.err


# -- rules that are worse than wrong -------------------------------------------------------------------------

ODD = """
import os
import time
from pathlib import Path

from onnxrewrite.rules import FLOATS, AnyNode, Rewrites, Rule, Stage, Var, op

x = Var("x", dtype=FLOATS)


def raises(m, build):
    raise ZeroDivisionError("boom")


def tampers(m, build):
    m.anchor.producer().replace_input_with(0, m[x])
    return m[x]


def hangs(m, build):
    Path(__file__).with_name("hangs").touch()
    time.sleep(60)


def aborts_unguarded(m, build):
    m.require(m.rank(x) != 2, "it is a matrix")
    if m.rank(x) == 2:
        Path(__file__).with_name("aborted").touch()
        os.abort()
    return build.Floor(m[x])


def odd(name, operator, rewrite):
    pattern = operator(operator(x))  # with an example, or many graphs are grown of it
    (name_of,) = pattern.op_types
    example = f"float[3] x; a = {name_of}(x) y = {name_of}(a)"
    return Rule(name, Stage.CANONICALIZE, pattern, rewrite, (Rewrites(example, to=""),))


RULES = (
    odd("good", op.Relu, lambda m, b: b.Relu(m[x])),
    odd("raises", op.Neg, raises),
    odd("tampers", op.Abs, tampers),
    odd("aborts", op.Tanh, lambda m, b: os.abort()),
    odd("two-values", op.Exp, lambda m, b: [m[x], m[x]]),
    Rule("any-node", Stage.CANONICALIZE, AnyNode(), lambda m, b: m.anchor),
    odd("hangs", op.Sin, hangs),
    odd("aborts-unguarded", op.Floor, aborts_unguarded),
)
"""

FOUND = {
    "good": ("ring-checked", ""),
    "raises": ("not tried", "the rule raised ZeroDivisionError: boom at odd.py:12"),
    "tampers": ("refuted", "the rule itself changed the inputs of a node"),
    "aborts": ("not tried", "the process that tried it died of SIGABRT"),
    "two-values": ("not tried", "the rule must return 1 values, it returned 2"),
    "any-node": ("not tried", "no graph can be made of its pattern: any node may stand in it; write examples"),
}


@pytest.fixture
def odd(tmp_path):
    path = tmp_path / "odd.py"
    path.write_text(ODD, encoding="utf-8")
    return path


@pytest.mark.slow
def test_no_rule_costs_the_verdict_of_another(cli, odd, tmp_path):
    report = tmp_path / "report.json"
    done = cli("verify", *FOUND, "--rules", odd, "--count", 5, "--jobs", 2, "--json", report)
    slow = "onnxrewrite: (load|verify).*\\((\\d+ s)\\)\n"  # what is told of progress, every 10 seconds
    assert (done.code, re.sub(slow, "", done.err)) == (1, "")
    verdicts = json.loads(report.read_text())["rules"]
    assert {v["rule"]: v["status"] for v in verdicts} == {rule: status for rule, (status, _) in FOUND.items()}
    assert [v["rule"] for v in verdicts] == list(FOUND)
    for rule, (status, why) in FOUND.items():
        said = f"{rule}  {status}: {why}" if status == "refuted" else why
        assert said in done.out
    assert "boom" in cli("verify", "raises", "--rules", odd, "--count", 5).out


@pytest.mark.slow
def test_a_rule_that_is_right_within_its_guards_is_so_if_it_aborts_without_them(cli, odd, tmp_path):
    found = cli("verify", "aborts-unguarded", "--rules", odd, "--count", 60)
    assert (tmp_path / "aborted").exists()
    assert (found.code, "aborts-unguarded  tested" in found.out) == (0, True)
    assert "a process that tried it without its guards died of SIGABRT" in found.out


@pytest.mark.slow
def test_an_interrupt_ends_it_at_once(odd, tmp_path):
    command = [sys.executable, "-m", "onnxrewrite", "verify", "hangs", "--rules", str(odd)]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while not (tmp_path / "hangs").exists():
        assert running.poll() is None
        time.sleep(0.05)
    start = time.monotonic()
    os.killpg(running.pid, signal.SIGINT)
    assert running.communicate()[1] == "onnxrewrite: interrupted; nothing was left half done\n"
    assert running.returncode == 128 + signal.SIGINT
    assert time.monotonic() - start < 10
