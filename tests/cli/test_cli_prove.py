"""``onnxrewrite verify --prove``: the word, the script, and one line without z3."""

from __future__ import annotations

import json

import pytest

from onnxrewrite import proof
from onnxrewrite.ruletest.fuzz import many

RULE = """
from onnxrewrite.rules import FLOATS, Rule, Stage, Var, op

x = Var("x", dtype=FLOATS)


def once(m, build):
    \"\"\"relu(relu(x)) ⟶ relu(x).\"\"\"
    return build.Relu(m[x])


RULE = Rule("NAME", Stage.CANONICALIZE, op.INNER, once)
"""


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(many, "in_workers", lambda work, tasks, count: ((task, work(task)) for task in tasks))


@pytest.fixture
def good(tmp_path):
    path = tmp_path / "good.py"
    path.write_text(RULE.replace("NAME", "relu-once").replace("op.INNER", "op.Relu(op.Relu(x))"), encoding="utf-8")
    return path


def test_a_proved_rule_says_so_and_leaves_its_script(cli, good, tmp_path):
    pytest.importorskip("z3")
    from onnxrewrite.proof.replaying import failing

    done = cli("verify", good, "--jobs", 1, "--count", 10, "--scripts", tmp_path / "proofs", "--json", "-")
    assert done.code == 0
    (verdict,) = json.loads(done.out)["rules"]
    assert verdict["status"] == "proved"
    assert "to the bit" in verdict["proof"] or "signs of zeros" in verdict["proof"]
    script = (tmp_path / "proofs" / "relu-once.smt2").read_text(encoding="utf-8")
    assert failing(script, verdict["script"]) == ""


def test_without_being_asked_for_a_rule_is_tested(cli, good):
    done = cli("verify", good, "--jobs", 1, "--count", 10, "--json", "-")
    (verdict,) = json.loads(done.out)["rules"]
    assert verdict["status"] != "proved"
    assert verdict["proof"] == ""


def test_without_z3_it_is_one_line(cli, good, monkeypatch):
    monkeypatch.setattr(proof, "has_prover", lambda: False)
    done = cli("verify", good, "--prove")
    assert done.code == 2
    assert "pip install 'onnxrewrite[prove]'" in done.err
    assert len(done.err.strip().splitlines()) == 1
