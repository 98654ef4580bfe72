"""The benchmarks run and say what they are to say; how fast anything is, is not asked here."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import pytest

from benchmarks import (
    checking,
    choice,
    coverage,
    effects,
    graphs,
    interop,
    matching,
    motifs,
    ort_suite,
    pace,
    recall,
    report,
    rules,
    sabotage,
    scaling,
    sensitivity,
    why_not,
)
from benchmarks import models as model_benchmark
from benchmarks.forks import forked
from benchmarks.spellings import compose
from onnxrewrite.ir import text


def written(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("kind", graphs.KINDS)
def test_graphs_are_valid_have_no_dead_nodes_and_depend_on_the_seed_only(kind: str):
    make = graphs.KINDS[kind]
    model = make(200, 1)
    assert 180 <= len(model.graph) <= 280
    assert all(o.uses() or o.is_graph_output() for node in model.graph for o in node.outputs)
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    assert proto == ir.to_proto(make(200, 1))


def test_rules_are_different_and_the_same_for_both(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rules, "_SAMPLE", 200)
    ours, theirs = rules.synthetic_rules(40), rules.peer_rules(40)
    assert len({repr(r.pattern) for r in ours}) == 40
    assert [r.name for r in ours] == [r.name for r in theirs]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """One kind of graph, and few of everything."""
    monkeypatch.setattr(graphs, "KINDS", {"cnn": graphs.cnn})
    monkeypatch.setattr(rules, "_SAMPLE", 100)
    monkeypatch.setattr(matching, "MANY", 12)
    monkeypatch.setattr(matching, "SOME", 6)
    monkeypatch.setattr(matching, "FEW", 2)
    monkeypatch.setattr(scaling, "HELD", 6)


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_matching(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    code = matching.main(["--nodes", "40", "--rounds", "0", "--cap", "1", "--json", str(tmp_path / "m.json")])
    found = written(tmp_path / "m.json")
    assert code == int(not all(g["met"] for g in found["goals"]))
    assert len(found["goals"]) == 4
    assert all(row["graph"] == "cnn" for table in found["tables"].values() for row in table)
    assert "12 rules against 2" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_scaling(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    command = ["--sizes", "40", "80", "--rounds", "0", "--megabytes", "4", "--json", str(tmp_path / "s.json")]
    code = scaling.main(command)
    found = written(tmp_path / "s.json")
    assert code == int(not all(g["met"] for g in found["goals"]))
    assert len(found["tables"]) == 4
    assert "cost of a rewrite at 80 nodes" in capsys.readouterr().out


def test_what_takes_too_long_is_stopped_even_where_exceptions_are_caught():
    def stubborn() -> None:
        while True:
            try:
                sum(range(1000))
            except Exception:
                continue

    timing = report.timed(stubborn, cap=0.05)
    assert timing.at_least
    assert str(timing).startswith("> ")


@pytest.mark.parametrize(("value", "least", "code"), [(1.9, False, 0), (2.1, False, 1), (2.1, True, 0), (1.9, True, 1)])
def test_a_missed_goal_is_the_exit_code(value: float, least: bool, code: int):
    tell = report.Report("test")
    tell.goal("something", value, 2, least=least)
    assert tell.finish(None) == code


def test_a_goal_that_was_stopped_is_missed():
    tell = report.Report("test")
    tell.goal("something", 1, 2, stopped=True)
    assert tell.finish(None) == 1


@pytest.mark.slow
def test_what_a_fork_does_is_told_also_where_it_fails_dies_or_takes_too_long():
    def work(task: str) -> str:
        match task:
            case "fails":
                raise ValueError("no")
            case "dies":
                os._exit(3)
            case "sleeps":
                time.sleep(60)
            case "works":
                time.sleep(0.5)  # which takes nothing of the processor
            case "spins":
                while True:
                    pass
        return task.upper()

    outcomes = {o.task: o for o in forked(["works", "fails", "dies", "sleeps", "spins"], work, limit=0.2)}
    assert outcomes["works"].result == "WORKS"
    assert "ValueError: no" in outcomes["fails"].failure
    assert outcomes["dies"].failure == "the process died"
    assert outcomes["sleeps"].failure == "it took too long"
    assert outcomes["spins"].failure == "it took too long"


@pytest.mark.slow
def test_mutants_are_the_same_each_time_and_are_refuted(tmp_path: Path):
    root, found = Path(__file__).parents[1], []
    for run in ("a.json", "b.json"):
        command = [
            sys.executable,
            "-m",
            "benchmarks.verification",
            "--only",
            "mutants",
            "--rules",
            "transpose-transpose",
        ]
        command += ["--most", "2", "--count", "12", "--json", str(tmp_path / run)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "patterns")])}
        subprocess.run(command, cwd=root, env=environment, check=False)
        found.append(written(tmp_path / run)["tables"])
    assert found[0] == found[1]
    (row,) = found[0]["Mutants by rule"][:-1]
    assert row["made"] == 2
    assert row["refuted"]
    assert not row["survived"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "kind"),
    [
        pytest.param("resnet", sabotage.HIDDEN, marks=pytest.mark.slow),
        pytest.param("resnet", sabotage.ONE_SITE, marks=pytest.mark.slow),
        ("resnet", sabotage.ONE_SIZE),
        ("whisper_encoder", sabotage.EVERYWHERE),
        pytest.param("whisper_encoder", sabotage.HIDDEN, marks=pytest.mark.slow),
    ],
)
def test_sabotage(model: str, kind: str):
    """A wrong rule is undone, and it alone; here on two models, by the command on eight."""
    found = sabotage.case(model, kind)
    assert found["undone at sites"] or found["in the model"]
    assert sabotage.passes([found]), found


def test_sabotage_that_was_not_found_does_not_pass():
    good = dict.fromkeys(sabotage.GOALS, True)
    assert sabotage.passes([good])
    assert not sabotage.passes([])
    assert not any(sabotage.passes([good, {**good, goal: False}]) for goal in sabotage.GOALS)


@pytest.mark.slow
def test_checking(tmp_path: Path):
    golden = Path(__file__).resolve().parents[1] / "golden_models" / "resnet" / "model.onnx"
    code = checking.main([str(golden), "--rounds", "0", "--json", str(tmp_path / "c.json")])
    found = written(tmp_path / "c.json")
    (row,) = next(iter(found["tables"].values()))
    assert code == int(not found["goals"][0]["met"])
    assert row["runs"] >= 12, "the original and the result, at three samples of two bindings"
    assert 0 < row["own (s)"] < row["with checks (s)"]


@pytest.mark.slow
def test_pace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    golden = Path(__file__).resolve().parents[1] / "golden_models" / "mobilenet_hardswish" / "model.onnx"
    broken = tmp_path / "folder" / "broken.onnx"
    broken.parent.mkdir()
    broken.write_bytes(b"no model")
    monkeypatch.setattr(pace, "SIZES", (100, 200, 400))
    code = pace.main([str(golden), str(broken), "--quick", "--json", str(tmp_path / "p.json")])
    found = written(tmp_path / "p.json")
    small, (row, failed) = found["tables"].values()
    assert [each["nodes"] >= size for each, size in zip(small, (100, 200), strict=True)] == [True, True]
    assert all(each["per node (s)"] > 0 for each in small)
    assert row["cold (s)"] > 0 < row["warm (s)"]
    assert failed["cold (s)"] is None is failed["warm (s)"]
    assert {g["goal"]: g["value"] for g in found["goals"]}["models that failed"] == 1
    assert code == 1


@pytest.mark.slow
def test_choice(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    code = choice.main(["--quick", "--json", str(tmp_path / "c.json")])
    found = written(tmp_path / "c.json")
    (rows,) = found["tables"].values()
    assert {row["rule"] for row in rows} >= {"add-before-norm", "gelu-lower", "swish-lower"}
    assert all(row["at once"] > 0 and row["longer"] > 0 for row in rows)
    assert code == int(not all(g["met"] for g in found["goals"]))
    assert "choices that are right" in capsys.readouterr().out


@pytest.mark.slow
def test_why_not(tmp_path: Path):
    why_not.main(["--rules", "gelu-erf", "swish", "--count", "13", "--json", str(tmp_path / "w.json")])
    own, others = written(tmp_path / "w.json")["tables"].values()
    found = {row["broken"]: row for row in (*own, *others)}
    assert list(found) == list(why_not.KINDS)
    assert sum(row["breaks"] for row in own) == 26
    assert sum(row["breaks"] for row in others) == 26
    assert not any(row["silent"] for row in found.values())
    for kind in ("extra use", "graph output", "body", "lower opset"):
        assert found[kind]["named"] == found[kind]["breaks"] > 0


@pytest.mark.slow
def test_effects(tmp_path: Path):
    path = Path(__file__).parents[1] / "golden_models" / "mobilenet_hardswish" / "model.onnx"
    assert effects.main([str(path), "--seconds", "0.2", "--json", str(tmp_path / "e.json")]) == 0
    (rows,) = written(tmp_path / "e.json")["tables"].values()
    found = {row["rule"]: row for row in rows}
    assert found["batchnorm-into-layer"]["models"] == 1
    assert all(row["lowest"] <= row["factor"] <= row["highest"] for row in rows)


@pytest.mark.slow
def test_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = Path(__file__).parents[1] / "golden_models" / "bert" / "model.onnx"
    command = [str(path), "--threads", "1", "--seconds", "0.2", "--no-peers", "--json", str(tmp_path / "m.json")]
    code = model_benchmark.main(command)
    found = written(tmp_path / "m.json")
    ((row,),) = found["tables"].values()
    assert (row["group"], row["peer"]) == ("attention", "")
    assert 0 < row["low"] <= row["against ORT"] < 1.5
    assert 1 < row["floor"] < 3
    assert 0 < row["greedy"] < 1.5
    assert code == int(not all(g["met"] for g in found["goals"]))
    assert "geometric mean, attention" in capsys.readouterr().out


def test_attention_is_told_from_other_softmaxes():
    golden = Path(__file__).parents[1] / "golden_models"
    assert model_benchmark.has_attention(golden / "vit" / "model.onnx")
    assert not model_benchmark.has_attention(golden / "resnet" / "model.onnx")


@pytest.mark.slow
def test_coverage(tmp_path: Path):
    golden = Path(__file__).parents[1] / "golden_models" / "resnet" / "model.onnx"
    command = [str(golden), "--only", "raised", "nodes", "equal", "--no-peers", "--json", str(tmp_path / "c.json")]
    code = coverage.main(command)
    found = written(tmp_path / "c.json")
    (nodes,), (errors,) = found["tables"]["Nodes that are left"], found["tables"]["Errors against float64"]
    assert 0 < nodes["ours"] < nodes["original"]
    assert errors["ours"] <= errors["allowed"] or errors["against"] == "bitwise equal"
    assert code == int(not all(g["met"] for g in found["goals"]))


def test_motifs_are_counted_by_structure():
    spelled = ir.from_onnx_text(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[2,4] x, float[4,4] w) => (float[2,4] y) {
            c = Constant<value_float = 2.0>()  e = Constant<value_float = 0.00001>()  one = Constant<value_float = 1.0>()
            p = Pow(x, c)  m = ReduceMean<axes = [-1]>(p)  a = Add(m, e)  r = Sqrt(a)  n = Div(x, r)
            q = MatMul(n, w)  f = Softmax(q)  v = MatMul(f, w)
            s = Sigmoid(v)  t = Mul(s, v)  u = Sigmoid(x)  z = Mul(u, t)
            i, j = Split<axis = 1>(z)  k = Neg(j)  y = Concat<axis = 1>(k, i)
        }"""
    )
    assert motifs.total(spelled) == {"attention": 1, "norm": 1, "activation": 1, "rotary": 1}
    assert not motifs.found(spelled).total()


def test_a_table_of_integers_is_an_activation_and_no_other_is() -> None:
    table = f"{{{', '.join(map(str, range(256)))}}}"
    looks_up = "uint8[n] q; i = Cast<to=6>(q)  y = GatherElements({}[256] {}, i)"
    assert motifs.found(text.parse(looks_up.format("uint8", table), opset=17))["activation"] == 1
    assert motifs.found(text.parse(looks_up.format("int32", table), opset=17))["activation"] == 0


def a_case(graph: str = "float x; y = Relu(x)", **told: Any) -> ort_suite.Case:
    case = ort_suite.Case("case", {"runnable": True, "negative": False, "ops_before": {}, **told})
    vars(case)["model"] = ir.to_proto(text.parse(graph, opset=17))
    return case


def test_a_case_is_reached_by_what_does_the_same():
    gelu = a_case(expected_fused_op="com.microsoft.Gelu+LayerNormalization")
    assert gelu.kind == ort_suite.POSITIVE
    assert gelu.missing({"Gelu": 1, "LayerNormalization": 1}) == []
    assert gelu.missing({"com.microsoft.Gelu": 1}) == ["LayerNormalization"]
    fewer = a_case(expected_fused_op="eliminate:Cast", ops_before={"Cast": 2})
    assert fewer.missing({"Cast": 1}) == []
    assert fewer.missing({"Cast": 2}) == ["Cast: 2 left instead of 1"]
    assert a_case(expected_fused_op="com.microsoft.BiasSoftmax").kind == ort_suite.EXCUSABLE


def test_a_case_is_reached_by_as_many_as_onnx_runtime_makes():
    both = a_case(expected_fused_op="Gelu", ort_all={"Gelu": 1}, transformers={"Gelu": 2})
    assert both.missing({"Gelu": 1, "com.microsoft.BiasGelu": 1}) == []
    assert both.missing({"Gelu": 1}) == ["Gelu: 1 instead of 2"]


@pytest.mark.parametrize(
    ("graph", "expected", "reason"),
    [
        ("float16[1,1,4,4] x; float16[1,1,1,1] w; c = Conv(x, w)  y = Relu(c)", "eliminate:Relu", "float16"),
        ("float[1,1,4,4] x; float[1,1,1,1] w; c = Conv(x, w)  y = Relu(c)", "eliminate:Relu", ""),
        ("float[n] x; y = com.microsoft.Gelu(x)", "com.microsoft.FastGelu", "another formula"),
        ("float[n] x; t = Tanh(x)  y = Mul(x, t)", "com.microsoft.FastGelu", ""),
        ("float[n] x; y = Add(x, 0.0)", "eliminate:Add", "-0.0"),
        ("int32[n] x; y = Add(x, 0)", "eliminate:Add", ""),
        ("float[n] x; y = RandomNormalLike(x)", "Gelu", "random"),
    ],
)
def test_a_case_is_excused_for_what_its_model_is(graph: str, expected: str, reason: str):
    found = a_case(graph, expected_fused_op=expected).excuse
    assert reason in found
    assert bool(reason) == bool(found)


def test_a_value_that_is_defined_twice_is_an_excuse():
    case = a_case("float[n] x; a = Relu(x)  y = Relu(a)", expected_fused_op="Gelu")
    case.model.graph.node[0].output[0] = "y"
    assert "defined twice" in case.excuse


def test_casts_are_optional_only_where_they_cross_what_computes():
    across = "float16[2,2] x; c = Cast<to=1>(x)  y = MatMul(c, c)"
    assert a_case(across, expected_fused_op="eliminate:Cast", ops_before={"Cast": 1}).kind == ort_suite.OPTIONAL
    for free in ("float16[n] x; c = Cast<to=1>(x)  y = Shape(c)", "int32[n] x; c = Cast<to=1>(x)  y = Relu(c)"):
        assert a_case(free, expected_fused_op="eliminate:Cast", ops_before={"Cast": 1}).kind == ort_suite.POSITIVE


def test_a_sum_may_be_fused_whose_other_readers_are_dead():
    told = {"expected_fused_op": "LayerNormalization", "must_not_contain": ["com.microsoft.SkipLayerNormalization"]}
    made = {"com.microsoft.SkipLayerNormalization": 1}
    graph = "float[n] x; s = Add(x, x)  d = Neg(s)  y = Relu(s)"
    assert a_case(graph, **told).unwanted(made) == ["com.microsoft.SkipLayerNormalization"]
    case = a_case(graph, **told)
    dead = next(o for o in case.model.graph.output if o.name == "d")
    case.model.graph.output.remove(dead)
    assert case.unwanted(made) == []


def test_what_is_fused_in_a_negative_case_is_unwanted():
    kept = a_case(negative=True, negative_kind="must_not_fuse", ops_before={"MatMul": 1, "Mul": 1})
    assert kept.unwanted({"com.microsoft.FusedMatMul": 1}) == ["com.microsoft.FusedMatMul"]
    assert kept.unwanted({"MatMul": 1}) == []


def test_interop(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    names = ("Clip(Clip), ranges that do not meet", "Clip(Clip), the other way round", "1 that callers may override")
    monkeypatch.setattr(interop, "TRAPS", {name: interop.TRAPS[name] for name in names})
    path = tmp_path / "clips.onnx"
    onnx.save(ir.to_proto(text.parse(interop.TRAPS[names[0]])), path)
    code = interop.main([str(path), "--json", str(tmp_path / "i.json")])
    found = written(tmp_path / "i.json")
    assert [(r["applied"], r["refuted"], r["result"]) for r in found["tables"]["Models"]] == [
        (0, 1, "equal"),
        (0, 0, "equal"),
    ]
    assert [(r["applied"], r["refuted"], r["here"]) for r in found["tables"]["Traps"]] == [
        (0, 1, "equal"),
        (1, 0, "equal"),
        (0, 0, "equal"),
    ]
    assert code == 1, "three traps are fewer than the five that onnxscript is to get wrong"
    assert sum(g["met"] for g in found["goals"]) == 3
    assert "onnxscript/fuse-successive-clip" in capsys.readouterr().out


@pytest.mark.slow
def test_sensitivity(tmp_path: Path):
    golden = Path(__file__).resolve().parents[1] / "golden_models" / "vit" / "model.onnx"
    code = sensitivity.main([str(golden), "--quick", "--method", "local", "--json", str(tmp_path / "s.json")])
    found = written(tmp_path / "s.json")
    assert code == int(not all(g["met"] for g in found["goals"]))
    assert len(found["tables"]["Curves"]) == 3 * (1 + 1 + 2), (
        "three points of the ranking, both ends, two random orders"
    )
    assert {row["order"] for row in found["tables"]["Recovered by each order"]} >= {"local", "first and last"}


def test_both_ends():
    assert sensitivity.from_both_ends("abcde") == ["a", "e", "b", "d", "c"]


@pytest.mark.slow
def test_measurements_of_another_machine_hold(tmp_path: Path):
    """Of two models; which of them are tried again, and so who is found out, is for all twenty."""
    from benchmarks import tuning

    code = tuning.main(["--quick", "--json", str(tmp_path / "report.json")])
    goals = {goal["goal"]: goal["met"] for goal in written(tmp_path / "report.json")["goals"]}
    assert code == int(not all(goals.values()))
    assert all(met for name, met in goals.items() if "does not measure" not in name)


def test_the_page_of_the_kernel_horizon_is_of_the_installed_versions():
    from benchmarks import horizon

    found = horizon.page(list(horizon.rows()))
    kept = horizon.PAGE.read_text(encoding="utf-8")
    versions = [line for line in kept.splitlines() if "onnx " in line and "ONNX Runtime" in line]
    if not any(line in found for line in versions):
        pytest.skip("the page was made with other versions of onnx or ONNX Runtime")
    assert found == kept


@pytest.mark.slow
def test_what_other_optimizers_wrote_comes_out_like_the_original(tmp_path: Path):
    pytest.importorskip("onnxslim")
    from benchmarks import peer_inputs

    model = Path(__file__).parents[1] / "golden_models" / "vit" / "model.onnx"
    assert peer_inputs.main([str(model), "--nodes", "--json", str(tmp_path / "report.json")]) == 0


def test_recall(tmp_path: Path):
    code = recall.main(["--models", "qdq_cnn", "--count", "2", "--json", str(tmp_path / "r.json")])
    found = written(tmp_path / "r.json")
    (row,) = found["tables"]["models"]
    assert row["spellings"] + row["wrong spellings"] == 2
    assert code == int(not all(g["met"] for g in found["goals"]))


@pytest.fixture(scope="module")
def vit() -> recall.Subject:
    return recall.Subject("vit")


@pytest.mark.parametrize("family", [f for f in recall.families() if f not in ("clips", "masks", "quotients")])
def test_spellings_are_drawn_from_the_seed_compute_the_same_and_can_be_left_out(vit: recall.Subject, family: str):
    base = vit.bases["named"]
    steps = compose.draw(base.model, random.Random(family), [family])
    assert steps == compose.draw(base.model, random.Random(family), [family])
    for some in (steps, steps[::2]):
        made = compose.spelled(base.model, some)
        assert onnx.checker.check_model(ir.to_proto(made)) is None
        assert vit.fault(made) is None


def test_what_computes_something_else_is_no_spelling(vit: recall.Subject):
    made = vit.bases["named"].model.clone()
    gelu = next(n for n in made.graph if n.op_type == "Erf")
    gelu.op_type = "Tanh"
    assert "differs in" in str(vit.fault(made))


def test_the_fewest_steps_that_cause_a_miss():
    steps = [compose.Step("swapped", str(n), 0, n) for n in range(20)]
    found = compose.smallest(steps, lambda some: {steps[3], steps[11]} <= {*some})
    assert found == [steps[3], steps[11]]
