"""``onnxrewrite explain``."""

import json
import re

import pytest

from onnxrewrite import io
from onnxrewrite.ir import text


def layer(n: int, half: float) -> str:
    return (
        f"d{n} = Div(x{n}, 1.41421356)  e{n} = Erf(d{n})  a{n} = Add(e{n}, 1.0)  m{n} = Mul(x{n}, a{n})"
        f"  x{n + 1} = Mul(m{n}, {half})"
    )


@pytest.fixture
def model(tmp_path):
    layers = "  ".join(layer(n, 0.5001 if n % 2 else 0.5) for n in range(4))
    io.save(io.load(text.parse(f"float[n,8] x0; {layers}", opset=17)), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_a_rule(cli, model):
    done = cli("explain", model, "gelu-erf")
    assert done.code == 0
    assert done.out.startswith(f"gelu-erf applies at 2 places in {model}\n")
    assert "2 ×           4 of 4 operators: expected constant 0.5, found 0.5001" in done.out
    assert "at            `Mul_3`, `Mul_7`" in done.out
    assert "without that  it would be wrong: output y0" in done.out


def test_a_rule_at_one_node_in_json(cli, model):
    done = cli("explain", model, "gelu-erf", "--at", "Mul_3", "--no-check", "--json", "-")
    data = json.loads(done.out)
    assert [p["node"] for g in data["groups"] for p in g["places"]] == ["Mul_3"]
    assert data["groups"][0]["places"][0]["otherwise"] == ""


def test_all_rules(cli, model):
    done = cli("explain", model, "--all")
    assert done.code == 0
    assert re.search(r"^  gelu-erf +2 +2  expected constant 0.5, found 0.5001 ", done.out, re.MULTILINE)


def test_a_node(cli, model):
    done = cli("explain", model, "--node", "Erf")
    assert done.code == 0
    assert done.out.startswith("Erf, Erf, is not in the result\n")
    assert "taken by  gelu-erf: Erf, Div, Add, Mul, Mul_1 became Gelu" in done.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gelu-erf", "--without", "gelu-erf"), "gelu-erf is asked about, and left out by --without"),
        (("gelu-erf", "--without", "nobody"), "no rule or rule set is called 'nobody'"),
        (("gelu-erf", "--all"), "give a RULE, or --all, or --node NAME"),
        (("--all", "--at", "Erf"), "--at goes with a RULE"),
        (("gelu-erf", "--profile"), "--profile with --all"),
        (("gelu",), "gelu is a set of 4 rules; explain one of them"),
        (("gelu-erff",), "no rule or rule set is called 'gelu-erff'"),
        (("gelu-erf", "--at", "nowhere"), "no node and no value is called 'nowhere'"),
        (("--node", "nowhere"), "no node and no value is called 'nowhere'"),
    ],
)
def test_bad_arguments(cli, model, arguments, message):
    done = cli("explain", model, *arguments)
    assert done.code == 2
    assert message in done.err
    assert done.err.count("\n") == 1


def test_a_bad_file(cli, tmp_path):
    done = cli("explain", tmp_path / "none.onnx", "gelu-erf")
    assert done.code == 2
    assert "no such file" in done.err


def test_an_overview_of_all_rules(cli, model):
    done = cli("explain", model)
    assert done.code == 0
    head, _, columns, *rows = done.out.splitlines()
    assert re.fullmatch(rf"{model}: \d+ rules apply, \d+ more come near", head)
    assert columns.split() == ["rule", "applied", "near", "at", "the", "nearest"]
    (line,) = [row for row in rows if row.startswith("  gelu-erf ")]
    assert re.search(r"2 +2  expected constant 0.5, found 0.5001", line)
    counts = [int(row.split()[1]) for row in rows if re.match(r"  [a-z-]+ +\d+ +\d+ ", row)]
    assert counts == sorted(counts, reverse=True), "one line a rule, the most frequent first"
    data = json.loads(cli("explain", model, "--json", "-").out)
    assert {"rule", "applied", "near", "reason"} <= data["rules"][0].keys()


def test_an_assumption_that_nobody_makes_is_offered(cli, tmp_path):
    path = tmp_path / "masked.onnx"
    graph = "float[b,s,8] q; float[b,8,s] k; float[b,s,8] v; bool[s,s] keep; s = MatMul(q, k)"
    end = "a = Where(keep, s, -10000.0)  p = Softmax(a)  y = MatMul(p, v)"
    io.save(io.load(text.parse(f"{graph} {end}", opset=17)), path)
    for asked in ((), ("attention",)):
        out = cli("explain", path, *asked).out
        assert re.search(r"--assume scores-above-10000 +that scores are far above -10000", out)
        assert "attention at 1 place more" in out
    data = json.loads(cli("explain", path, "--json", "-").out)
    assert [o["option"] for o in data["offers"]] == ["scores-above-10000"]
    asked = cli("explain", path, "attention", "--assume", "scores-above-10000").out
    assert "applies at 1 place" in asked
    assert "--assume" not in asked


@pytest.mark.slow
def test_without_another_rule(cli, model):
    names = [r["rule"] for r in json.loads(cli("explain", model, "--without", "gelu-erf", "--json", "-").out)["rules"]]
    assert "gelu-erf" not in names
    done = cli("explain", model, "gelu-erf", "--without", "gelu-lower")
    assert "2 ×  the whole pattern: Gelu needs opset 20, model has 17" in done.out
