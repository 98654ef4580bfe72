"""Whole reports as text, at 80 columns and in black and white."""

import io
import textwrap

import pytest
from rich.console import Console

from onnxrewrite.report.table import apply_report, check_report


def shown(what, width=80, **how):
    console = Console(width=width, file=io.StringIO(), highlight=False, **how)
    console.print(what)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def same(text, expected):
    assert text.strip("\n") == textwrap.dedent(expected).strip("\n")


def rule(name, applied=0, undone=0, stage="raise", **reasons):
    reasons = {k.replace("_", " "): v for k, v in reasons.items()}
    refused = sum(reasons.values())
    return {
        "rule": name,
        "stage": stage,
        "applied": applied,
        "refused": refused,
        "undone": undone,
        "asked": False,
        "reasons": reasons,
    }


OUTPUT = {
    "name": "logits",
    "ok": True,
    "equality": "",
    "error": 3.1e-7,
    "error_original": 4.2e-7,
    "allowed": 4.2e-6,
    "reference": "float64",
    "run": "sample 0",
    "reason": "",
}

MODEL_CHECK = {
    "ok": True,
    "skipped": None,
    "identical": False,
    "runs": 6,
    "segments": 0,
    "samples": 3,
    "bindings": [{"batch": 2, "seq": 7}, {"batch": 1, "seq": 16}],
    "reference": "float64",
    "tolerance": "float32: 10x the original's error",
    "largest": OUTPUT,
    "outputs": [OUTPUT],
    "failures": [],
    "notes": [],
}

SITE = {
    "rule": "gelu-erf",
    "stage": "raise",
    "value": "y",
    "scope": "main",
    "before": ["a", "b"],
    "after": ["Gelu"],
}

DATA = {
    "model": "bert.onnx",
    "output": "bert.opt.onnx",
    "graph": "main",
    "target": "onnxruntime-cpu",
    "opset": 17,
    "rules": [rule("gelu-erf", 6, is_not_constant=3, is_used_elsewhere=2, other=1), rule("attention", 12)],
    "operators": {
        "before": {"Add": 30, "Erf": 6, "MatMul": 72},
        "after": {"Add": 24, "Gelu": 6, "MatMul": 72},
    },
    "nodes": {"before": 108, "after": 102},
    "size": {"before": 11_966_174, "after": 11_000_000},
    "checks": {
        "reached": "whole model",
        "why": None,
        "level": "full",
        "structure": [],
        "sites": {"run": 18, "distinct": 2, "remembered": 0, "not_run": {}},
        "model": MODEL_CHECK,
    },
    "speed": {"lower": "fused", "skipped": "not asked for (--lower fused)"},
    "assumes": {},
    "undone": [],
    "sites": [SITE, {**SITE, "value": "z", "scope": "body", "before": ["c"], "after": []}],
    "refused": [{"rule": "gelu-erf", "value": "u", "reason": "`u` is used elsewhere"}],
    "conflicts": [],
    "notes": [],
    "seconds": {"rewrite": 1.0, "check model": 2.5},
}


def test_apply():
    same(
        shown(apply_report(DATA)),
        """
        bert.onnx: 18 rewrites, for onnxruntime-cpu, opset 17

          rule       applied  refused  why not
          gelu-erf         6        6  3× is not constant
                                       2× is used elsewhere
                                       1× for other reasons
          attention       12        -

          operator              before     after  change
          Add                       30        24      -6
          Erf                        6         -      -6
          Gelu                       -         6      +6
          1 other, unchanged        72        72
          nodes                    108       102      -6
          size                11.97 MB  11.00 MB   -8.1%

          Error    3.1e-07 against float64; the original's own is 4.2e-07, allowed is
                   4.2e-06 (output logits)
          Checked  the whole model: 6 runs, at batch=2 seq=7 and at batch=1 seq=16
                   each rewrite by itself: 18 run, 2 different
                   structure, kernels
        """,
    )


def test_apply_verbose():
    text = shown(apply_report(DATA, verbose=True))
    assert "  rule       stage  applied  refused  why not" in text
    assert "1× other" in text
    assert "Applied\n  raise  gelu-erf  `y`: a, b → Gelu\n  raise  gelu-erf  `z` in body: c → nothing new\n" in text
    assert "Refused\n  gelu-erf  `u`: `u` is used elsewhere\n" in text
    assert "  Allowed  float32: 10x the original's error\n" in text
    assert text.endswith("  Seconds  check model 2.50, rewrite 1.00")


SPEED = {
    "cost": "",
    "lower": "fastest",
    "skipped": "",
    "binding": {"batch": 1, "seq": 128},
    "threads": 0,
    "ratio": {"median": 0.71, "low": 0.69, "high": 0.734},
    "level": "basic",
    "level_ratio": {"median": 0.9, "low": 0.85, "high": 0.95},
    "weighed": [
        {
            "rule": "gelu-lower",
            "ratio": {"median": 1.5, "low": 1.4, "high": 1.6},
            "remembered": True,
            "places": 4,
            "taken": 1,
        }
    ],
    "raced": [{"rewrites": 1, "ratio": {"median": 0.8, "low": 0.7, "high": 0.9}, "taken": True, "greedy": True}],
    "assumed": {"it contains a subgraph": 2},
    "slower": {"my-rule": "with it the model takes 1.20 times as long as the original"},
}


def test_speed():
    text = shown(apply_report({**DATA, "speed": SPEED}))
    told = " ".join(text[text.index("Speed") : text.index("Error")].split())
    assert told == (
        "Speed 0.71 (0.69 to 0.73) of the original's time, both fully optimized by ORT at batch=1 seq=128"
        " 0.90 (0.85 to 0.95) of that time if opened with optimization level basic (onnxrewrite.session does that)"
        " Measured 1 different rewrite, 1 of them in earlier runs"
        " Unmeasured 2 rewrites: it contains a subgraph"
        " Left out my-rule: with it the model takes 1.20 times as long as the original"
    )
    text = " ".join(shown(apply_report({**DATA, "speed": SPEED}, verbose=True)).split())
    assert "gelu-lower: 1.50 (1.40 to 1.60) times the time, taken at 1 of 4 places" in text
    assert "Raced 0.80 (0.70 to 0.90) of the original's time with 1 rewrite, greedy, taken" in text


def test_a_cost_in_place_of_the_time():
    exact = {**SPEED, "cost": "bytes", "ratio": {"median": 0.71, "low": 0.71, "high": 0.71}}
    text = shown(apply_report({**DATA, "speed": exact}, verbose=True))
    told = " ".join(text[text.index("Cost") : text.index("Error")].split())
    assert told == (
        "Cost 0.71 of the original's, by bytes at batch=1 seq=128"
        " Uncosted 2 rewrites: it contains a subgraph"
        " Left out my-rule: with it the model takes 1.20 times as long as the original"
        " Costed gelu-lower: 1.50 (1.40 to 1.60) times the cost, taken at 1 of 4 places"
        " Compared 0.80 (0.70 to 0.90) of the original's cost with 1 rewrite, greedy, taken"
    )
    unknown = " ".join(shown(apply_report({**DATA, "speed": {**exact, "ratio": None}})).split())
    assert "Cost not known for the whole, by bytes at batch=1 seq=128" in unknown


def test_why_nothing_was_measured():
    skipped = {"lower": "fastest", "skipped": "nothing is run (--check off)"}
    assert "  Speed    not measured: nothing is run (--check off)" in shown(apply_report({**DATA, "speed": skipped}))
    assert "Speed" not in shown(apply_report(DATA))


def test_conflicts_are_a_detail():
    conflicts = [
        {"winner": "gelu-erf", "loser": "my-gelu", "benefits": [10, 0], "places": 12},
        {"winner": "a", "loser": "b", "benefits": [5, 5], "places": 1},
    ]
    data = {**DATA, "conflicts": conflicts}
    assert "Conflicts" not in shown(apply_report(DATA, verbose=True))
    assert "Conflicts" not in shown(apply_report(data))
    assert (
        "\nConflicts\n"
        "  gelu-erf was chosen over my-gelu at 12 places (benefit 10 against 0)\n"
        "  a was chosen over b at 1 place (by name, the benefit of both is 5)\n\n"
    ) in shown(apply_report(data, verbose=True))


def test_assumes():
    data = {**DATA, "assumes": {"inputs are finite": ["a", "b", "c", "d"], "no dimension is zero": ["a"]}}
    text = shown(apply_report(data))
    assert "  Assumes  inputs are finite (a, b, c and 1 more)\n           no dimension is zero (a)" in text
    assert "inputs are finite (a, b, c, d)\n" in shown(apply_report(data, verbose=True))
    assert "Assumes" not in shown(apply_report(DATA))


def test_undone():
    undone = [{"rule": "wrong", "value": v, "reason": "-Inf in 0, was in 38", "by": "site"} for v in ("a", "b", "c")]
    data = {**DATA, "rules": [rule("right", 1), rule("wrong", 2, undone=3)], "undone": undone}
    text = shown(apply_report(data), width=100)
    rows = [line.split() for line in text.splitlines()[2:5]]
    assert rows == [
        ["rule", "applied", "refused", "undone"],
        ["right", "1", "-", "-"],
        ["wrong", "2", "-", "3"],
    ]
    assert "  Undone   wrong at `a` and at 2 other places: -Inf in 0, was in 38" in text
    assert shown(apply_report(data, verbose=True), width=100).count("wrong at `") == 3


def test_what_did_nothing_comes_last():
    rules = [rule("idle", a_reason=3), rule("undone", undone=1), rule("busy", 2)]
    text = shown(apply_report({**DATA, "rules": rules}))
    assert [line.split()[0] for line in text.splitlines()[3:6]] == ["undone", "busy", "idle"]


def test_nothing_applied():
    data = {**DATA, "rules": [], "sites": [], "refused": []}
    operators = {"before": {"Add": 3}, "after": {"Add": 3}}
    data |= {"operators": operators, "nodes": {"before": 3, "after": 3}, "size": {"before": 90, "after": 90}}
    data["checks"] = {**DATA["checks"], "model": {**MODEL_CHECK, "largest": None, "identical": True}}
    same(
        shown(apply_report(data)),
        """
        bert.onnx: no rule applied, for onnxruntime-cpu, opset 17

          operator  before  after  change
          nodes          3      3
          size        90 B   90 B

          Error    none: every output is bitwise equal to the original's
          Checked  the whole model: 6 runs, at batch=2 seq=7 and at batch=1 seq=16
                   each rewrite by itself: 18 run, 2 different
                   structure, kernels
        """,
    )


def test_what_was_not_checked():
    model = {
        **MODEL_CHECK,
        "skipped": "no inputs found",
        "largest": None,
        "notes": ["did not run at batch=2"],
    }
    sites = {"run": 3, "distinct": 1, "remembered": 0, "not_run": {"it contains a subgraph": 2}}
    data = {
        **DATA,
        "checks": {**DATA["checks"], "model": model, "sites": sites, "reached": "sites only", "why": "no inputs found"},
        "notes": [f"note {n}" for n in range(9)],
    }
    text = shown(apply_report(data))
    assert "Error" not in text
    assert "  Degraded   sites only: no inputs found\n" in text
    assert "  2 rewrites by itself: it contains a subgraph\n" in text or "2 rewrites" in text
    assert "  Note       did not run at batch=2\n" in text
    assert "note 4" in text
    assert "4 more (-v lists them)" in text
    assert "note 5" not in text
    assert "note 8" in shown(apply_report(data, verbose=True))


def test_off():
    data = {**DATA, "checks": {**DATA["checks"], "level": "off", "model": None, "why": "as --check off asked for"}}
    text = shown(apply_report(data))
    assert "  Checked    structure\n  Unchecked  numbers, as --check off asked for" in text


def test_without_a_reference():
    largest = {**OUTPUT, "reference": "float32"}
    data = {**DATA, "checks": {**DATA["checks"], "model": {**MODEL_CHECK, "largest": largest}}}
    assert "3.1e-07 against the original; allowed is 4.2e-06" in shown(apply_report(data))


def test_many_operators_are_cut():
    before = {f"Op{n:02}": n + 1 for n in range(20)}
    data = {**DATA, "operators": {"before": before, "after": {}}}
    text = shown(apply_report(data))
    assert "Op19" in text
    assert "Op09" not in text
    assert "10 other, changed" in text
    assert "Op00" in shown(apply_report(data, verbose=True))


@pytest.mark.parametrize("width", [40, 80, 120])
def test_nothing_is_wider_than_the_screen(width):
    long = rule("a-rule-with-a-name", 1, **{"a_reason_" * 20: 3})
    text = shown(apply_report({**DATA, "model": "m", "rules": [long]}), width=width)
    assert max(map(len, text.splitlines())) <= max(width, 53)


def test_colour_says_nothing_that_words_do_not():
    plain, coloured = (shown(apply_report(DATA), **how) for how in ({}, {"force_terminal": True, "color_system": None}))
    assert plain == coloured.replace("\x1b[0m", "").replace("\x1b[1m", "").replace("\x1b[2m", "")


def test_check():
    bad = {**OUTPUT, "name": "bad", "ok": False, "error": None, "error_original": 0.0, "allowed": 0.0}
    equal = {**OUTPUT, "name": "equal", "error": 0.0, "equality": "bitwise equal"}
    exact = {**OUTPUT, "name": "exact", "error": 0.0}
    data = {
        **MODEL_CHECK,
        "ok": False,
        "outputs": [equal, exact, OUTPUT, bad],
        "failures": ["output bad, sample 0: NaN"],
    }
    same(
        shown(check_report(data, "a.onnx", "b.onnx")),
        """
        a.onnx against b.onnx

          output       error  original's own  allowed  against
          bad     not finite               0        0
          logits     3.1e-07         4.2e-07  4.2e-06  float64
          equal            0                           bitwise equal
          exact            0         4.2e-07  4.2e-06  float64

          Compared  6 runs, at batch=2 seq=7 and at batch=1 seq=16
          Allowed   float32: 10x the original's error
          Differs   output bad, sample 0: NaN
          Result    not equal
        """,
    )
