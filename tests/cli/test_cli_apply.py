"""``onnxrewrite apply`` as a user meets it."""

import errno
import json
import os
import re
import stat

import ml_dtypes
import numpy as np
import onnx
import pytest

import onnxrewrite
from onnxrewrite.errors import CheckError


def operators(path):
    return [n.op_type for n in onnx.load(path).graph.node]


def left_behind(folder):
    return sorted(p.name for p in folder.iterdir())


def test_default_output_is_beside_the_model(cli, gelu, tmp_path):
    done = cli("apply", gelu)
    assert done.code == 0
    assert done.err == ""
    assert operators(tmp_path / "gelu.opt.onnx") == ["Gelu"]
    assert left_behind(tmp_path) == ["gelu.onnx", "gelu.opt.onnx", "gelu.opt.onnx.certificate.json"]


def test_default_output_of_another_suffix(cli, gelu, tmp_path):
    model = gelu.rename(tmp_path / "gelu.v1.bin")
    assert cli("apply", model, "-q").out == f"{tmp_path}/gelu.v1.bin.opt.onnx\n"


def test_report(cli, gelu, tmp_path):
    done = cli("apply", gelu, "-o", tmp_path / "out.onnx")
    lines = done.out.splitlines()
    assert lines[0] == f"{gelu}: 2 rewrites, for onnxruntime-cpu, opset 17"
    table = [line.split() for line in lines]
    assert ["rule", "applied", "refused"] in [row[:3] for row in table]
    assert ["gelu-erf", "1", "-"] in table
    assert ["com.microsoft.Gelu", "-", "1", "+1"] in table
    assert ["nodes", "5", "1", "-4"] in table
    assert "  Checked  the whole model: 6 runs, at batch=" in done.out
    assert "each rewrite by itself: 2 run, 2 different" in done.out
    assert lines[-1].startswith(f"Wrote {tmp_path}/out.onnx (")
    assert "\x1b" not in done.out


def test_nothing_applied_is_done_too(cli, relu, tmp_path):
    done = cli("apply", relu)
    assert done.code == 0
    assert "no rule applied" in done.out
    assert "none: every output is bitwise equal" in done.out
    assert operators(tmp_path / "relu.opt.onnx") == ["Relu"]


def test_output_may_be_the_input(cli, gelu, tmp_path):
    assert cli("apply", gelu, "-o", gelu).code == 0
    assert operators(gelu) == ["Gelu"]
    assert left_behind(tmp_path) == ["gelu.onnx", "gelu.onnx.certificate.json"]


def test_no_certificate(cli, gelu, tmp_path):
    assert cli("apply", gelu, "--no-certificate").code == 0
    assert left_behind(tmp_path) == ["gelu.onnx", "gelu.opt.onnx"]


def test_dry_run_writes_no_model(cli, gelu, tmp_path):
    done = cli("apply", gelu, "--dry-run")
    assert done.code == 0
    assert "Nothing written (--dry-run)" in done.out
    assert left_behind(tmp_path) == ["gelu.onnx"]


def test_dry_run_into_a_folder_that_is_not_there(cli, gelu):
    assert cli("apply", gelu, "-o", "/no/such/folder/x.onnx", "--dry-run").code == 0


def test_quiet_prints_the_path(cli, gelu, tmp_path):
    done = cli("apply", gelu, "-q")
    assert (done.code, done.out, done.err) == (0, f"{tmp_path}/gelu.opt.onnx\n", "")
    assert cli("apply", gelu, "-q", "--dry-run").out == ""


def test_verbose_names_every_site(cli, gelu):
    out = cli("apply", gelu, "-v").out
    assert "  raise  gelu-erf  `y`: " in out
    assert " → Gelu\n" in out
    assert "  Seconds  " in out
    assert "  Allowed  nearer to the original than any reference could object to" in " ".join(out.split("\n"))


def test_verbose_names_conflicts(cli, gelu, tmp_path):
    rule = tmp_path / "my_gelu.py"
    rule.write_text(
        "from onnxrewrite.rules import Rule, Stage\nfrom onnxrewrite_patterns.gelu import GELU_ERF\n"
        'MINE = Rule("my-gelu", Stage.RAISE, GELU_ERF.pattern, lambda m, build: GELU_ERF.rewrite(m, build), benefit=7)\n'
        "RULES = (MINE,)\n"
    )
    done = cli("apply", gelu, "--rules", rule, "-v", "--json", tmp_path / "r.json")
    assert "\nConflicts\n  my-gelu was chosen over gelu-erf at 1 place (benefit 7 against 0)\n" in done.out
    (conflict,) = json.loads((tmp_path / "r.json").read_text())["conflicts"]
    assert conflict == {"winner": "my-gelu", "loser": "gelu-erf", "benefits": [7, 0], "places": 1}
    verbose = (tmp_path / "gelu.opt.onnx").read_bytes()
    assert "Conflicts" not in cli("apply", gelu, "--rules", rule).out
    assert (tmp_path / "gelu.opt.onnx").read_bytes() == verbose


def test_only_and_without(cli, gelu, tmp_path):
    assert cli("apply", gelu, "--without", "gelu").code == 0
    assert "Erf" in operators(tmp_path / "gelu.opt.onnx")
    assert cli("apply", gelu, "--only", "gelu").code == 0
    assert "Erf" not in operators(tmp_path / "gelu.opt.onnx")


def test_target_onnx_has_no_contrib_operators(cli, gelu, tmp_path):
    assert cli("apply", gelu, "--target", "onnx").code == 0
    assert "Erf" in operators(tmp_path / "gelu.opt.onnx")


def test_opset(cli, gelu, tmp_path):
    done = cli("apply", gelu, "--opset", 20)
    assert done.code == 0
    assert "opset 20" in done.out
    made = onnx.load(tmp_path / "gelu.opt.onnx")
    assert [(n.domain, n.op_type) for n in made.graph.node] == [("", "Gelu")]


@pytest.mark.parametrize("level", ["fast", "off"])
def test_check_levels(cli, gelu, level):
    done = cli("apply", gelu, "--check", level)
    assert done.code == 0
    assert ("2 runs" in done.out) == (level == "fast")
    assert ("numbers, as --check off asked for" in done.out) == (level == "off")


def test_dim_and_input(cli, gelu, tmp_path):
    np.save(tmp_path / "x.npy", np.ones((3, 8), np.float32))
    done = cli("apply", gelu, "--input", f"x={tmp_path}/x.npy", "--dim", "batch=3")
    assert done.code == 0
    assert "at batch=3" in done.out


def test_a_dimension_may_be_zero(cli, gelu):
    assert cli("apply", gelu, "--dim", "batch=0").code == 0


def test_narrow_floats_from_npy(cli, model_of, tmp_path):
    model = model_of(
        '<ir_version: 8, opset_import: ["": 17]> g (bfloat16[4] x) => (float[4] y) { y = Cast<to = 1>(x) }'
    )
    np.save(tmp_path / "x.npy", np.ones(4, ml_dtypes.bfloat16))
    assert cli("apply", model, "--input", f"x={tmp_path}/x.npy").code == 0


def test_undone_rewrites_are_reported_and_the_rest_is_done(cli, relu, wrong_rule, tmp_path):
    done = cli("apply", relu, "--rules", wrong_rule, "--json", tmp_path / "r.json")
    assert done.code == 0
    assert operators(tmp_path / "relu.opt.onnx") == ["Relu"]
    assert "  Undone   relu-is-abs at `y`: " in done.out
    assert ["relu-is-abs", "-", "-", "1"] in [line.split() for line in done.out.splitlines()]
    (undone,) = json.loads((tmp_path / "r.json").read_text())["undone"]
    assert (undone["rule"], undone["value"], undone["by"]) == ("relu-is-abs", "y", "site")


def test_a_rule_that_raises_is_noted(cli, relu, tmp_path):
    rule = tmp_path / "raises.py"
    rule.write_text(
        "from onnxrewrite.rules import Rule, Stage, Var, op\n"
        'x = Var("x")\n'
        "def f(m, build):\n"
        "    return 1 / 0\n"
        'R = Rule(name="boom", stage=Stage.CANONICALIZE, pattern=op.Relu(x), rewrite=f)\n'
    )
    done = cli("apply", relu, "--rules", rule)
    assert done.code == 0
    assert "boom" in done.out
    assert "ZeroDivisionError" in done.out
    assert "Traceback" not in done.err


# ------------------------------------------------------------------------------------------------------ JSON


def test_json(cli, gelu, tmp_path):
    assert cli("apply", gelu, "--json", tmp_path / "r.json").code == 0
    data = json.loads((tmp_path / "r.json").read_text())
    assert data["model"] == str(gelu)
    assert data["output"] == f"{tmp_path}/gelu.opt.onnx"
    assert data["target"] == "onnxruntime-cpu"
    erf = {"rule": "gelu-erf", "stage": "raise", "applied": 1, "refused": 0, "undone": 0, "asked": False, "reasons": {}}
    assert erf in data["rules"]
    assert data["operators"]["after"] == {"com.microsoft.Gelu": 1}
    assert data["nodes"] == {"before": 5, "after": 1}
    assert data["size"]["after"] == os.path.getsize(tmp_path / "gelu.opt.onnx")
    assert data["checks"]["model"]["ok"] is True
    assert data["checks"]["model"]["largest"]["name"] == "y"
    assert data["undone"] == []


def test_json_is_deterministic_but_for_seconds(cli, gelu, tmp_path):
    texts = []
    for name in ("a.json", "b.json"):
        assert cli("apply", gelu, "--json", tmp_path / name).code == 0
        data = json.loads((tmp_path / name).read_text())
        assert data.pop("seconds")["total"] > 0
        texts.append(json.dumps(data))
    assert texts[0] == texts[1]


def test_json_on_stdout_is_alone_there(cli, gelu):
    for more in ((), ("-q",)):
        done = cli("apply", gelu, "--json", "-", *more)
        assert json.loads(done.out)["nodes"] == {"before": 5, "after": 1}


def test_json_with_dry_run(cli, gelu, tmp_path):
    assert cli("apply", gelu, "--dry-run", "--json", tmp_path / "r.json").code == 0
    assert json.loads((tmp_path / "r.json").read_text())["output"] is None
    assert left_behind(tmp_path) == ["gelu.onnx", "r.json"]


# --------------------------------------------------------------------------------------------- a check fails


def test_failed_check(refused, gelu, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise CheckError("the result is not equal to the original and nothing was written: output y: 0.5")

    monkeypatch.setattr("onnxrewrite.api.application.apply", fail)
    line = refused("apply", gelu, "--json", tmp_path / "r.json", code=1)
    assert "nothing was written" in line
    assert json.loads((tmp_path / "r.json").read_text())["error"] in line
    assert left_behind(tmp_path) == ["gelu.onnx", "r.json"]


# --------------------------------------------------------------------------------------------- bad arguments


@pytest.fixture
def unloaded(monkeypatch):
    """Whatever is refused is refused before the model is read."""

    def load(*_, **__):
        raise AssertionError("the model was read")

    monkeypatch.setattr("onnxrewrite.io.load", load)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["-o", "{folder}"], ["-o", "is a folder"]),
        (["-o", "{folder}/no/x.onnx"], ["there is no folder"]),
        (["-o", "/dev/null"], ["not a regular file"]),
        (["-o", ""], ["is no file name"]),
        (["-o", "-"], ["is no file name"]),
        (["--json", "{folder}"], ["--json", "is a folder"]),
        (["--json", "{folder}/no/r.json"], ["--json", "there is no folder"]),
        (["--json", "{folder}/gelu.onnx"], ["would overwrite a model"]),
        (["-o", "{folder}/a.onnx", "--json", "{folder}/a.onnx"], ["would overwrite a model"]),
        (["--dim", "batch"], ["--dim batch", "NAME=SIZE"]),
        (["--dim", "batch=two"], ["NAME=SIZE"]),
        (["--dim", "batch=-1"], ["NAME=SIZE"]),
        (["--dim", "=2"], ["NAME=SIZE"]),
        (["--dim", "batch=2", "--dim", "batch=3"], ["given twice, as 2 and as 3"]),
        (["--input", "x"], ["NAME=FILE.npy"]),
        (["--input", "x={folder}/no.npy"], ["--input x", "no such file"]),
        (["--input", "x={folder}/gelu.onnx", "--input", "x={folder}/gelu.onnx"], ["given twice"]),
        (["-q", "-v"], ["--quiet and --verbose"]),
        (["--target", "tpu"], ["unknown target 'tpu'", "onnxruntime-cpu"]),
        (["--check", "some"], ["--check", "'some'"]),
        (["--opset", "x"], ["--opset"]),
        (["--opset", "0"], ["--opset"]),
        (["--frobnicate"], ["--frobnicate"]),
        (["more.onnx"], ["more.onnx"]),
    ],
)
def test_refused_before_any_work(refused, gelu, tmp_path, unloaded, options, parts):
    line = refused("apply", gelu, *(o.format(folder=tmp_path) for o in options))
    for part in parts:
        assert part in line
    assert left_behind(tmp_path) == ["gelu.onnx"]


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--dim", "seq=2"], ["--dim seq", "the inputs have batch"]),
        (["--input", "z={folder}/good.npy"], ["no such input", "it has x"]),
        (["--input", "x={folder}/float64.npy"], ["holds float64", "wants float32"]),
        (["--input", "x={folder}/rank.npy"], ["shape [8]", "wants [batch, 8]"]),
        (["--input", "x={folder}/shape.npy"], ["shape [2, 7]", "wants [batch, 8]"]),
        (["--input", "x={folder}/pickle.npy"], ["not a .npy file of numbers"]),
        (["--input", "x={folder}/gelu.onnx"], ["not a .npy file of numbers"]),
        (["--input", "x={folder}/several.npz"], ["several arrays"]),
        (["--input", "x={folder}/good.npy", "--dim", "batch=3"], ["batch=2", "batch=3"]),
        (["--only", "gelo"], ["no rule or rule set is called 'gelo'", "did you mean gelu"]),
        (["--without", "nonsense"], ["no rule or rule set is called 'nonsense'"]),
        (["--opset", "99"], ["opset 99", "must lie between"]),
        (["--rules", "{folder}/no.py"], ["no such rule file"]),
        (["--rules", "no_such_package"], ["no rule file or package is called 'no_such_package'"]),
    ],
)
@pytest.mark.parametrize("level", ["full", "off"])
def test_refused(refused, gelu, tmp_path, options, parts, level):
    np.save(tmp_path / "good.npy", np.ones((2, 8), np.float32))
    np.save(tmp_path / "float64.npy", np.ones((2, 8)))
    np.save(tmp_path / "rank.npy", np.ones(8, np.float32))
    np.save(tmp_path / "shape.npy", np.ones((2, 7), np.float32))
    np.save(tmp_path / "pickle.npy", np.array([{}]), allow_pickle=True)
    np.savez(tmp_path / "several.npz", a=np.ones(2), b=np.ones(2))
    line = refused("apply", gelu, "--check", level, *(o.format(folder=tmp_path) for o in options))
    for part in parts:
        assert part in line
    assert not list(tmp_path.glob("*.opt.onnx"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_folder_without_permission(refused, gelu, tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(stat.S_IRUSR | stat.S_IXUSR)
    assert "not writable" in refused("apply", gelu, "-o", closed / "x.onnx")


def test_output_must_not_be_the_weights_of_the_input(refused, gelu, tmp_path):
    model = onnx.load(gelu)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(2048, np.float32), "big"))
    onnx.save(model, gelu, save_as_external_data=True, location="weights.bin")
    before = (tmp_path / "weights.bin").read_bytes()
    for option in ("-o", "--json"):
        assert "weights of the model" in refused("apply", gelu, option, tmp_path / "weights.bin")
    assert (tmp_path / "weights.bin").read_bytes() == before


# ------------------------------------------------------------------------------------------- while it writes


def test_disk_full(refused, gelu, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert "No space left on device" in refused("apply", gelu)
    assert left_behind(tmp_path) == ["gelu.onnx"]


def test_interrupted_while_it_writes(refused, gelu, tmp_path, monkeypatch):
    before = gelu.read_bytes()

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    assert "interrupted" in refused("apply", gelu, "-o", gelu, code=130)
    assert left_behind(tmp_path) == ["gelu.onnx"]
    assert gelu.read_bytes() == before


# ---------------------------------------------------------------------------------------------- Python's API


@pytest.mark.parametrize("kind", ["path", "str", "proto", "ir"])
def test_apply_from_python(gelu, tmp_path, kind):
    import onnx_ir

    source = {
        "path": gelu,
        "str": str(gelu),
        "proto": onnx.load(gelu),
        "ir": onnx_ir.load(gelu),
    }[kind]
    result = onnxrewrite.apply(source)
    assert result.trace.counts()["gelu-erf"] == 1
    assert result.checks.model is not None
    assert result.checks.model.ok
    result.save(tmp_path / "out.onnx")
    assert operators(tmp_path / "out.onnx") == ["Gelu"]
    assert json.loads(json.dumps(result.to_json()))["nodes"] == {"before": 5, "after": 1}


STRANGE = """<ir_version: 8, opset_import: ["": 17, "my.own": 1]>
g (float[batch, 8] x) => (float[batch, 8] y) {{ {} }}"""


@pytest.mark.parametrize(
    ("nodes", "reached"),
    [
        ("n = Identity(x)  y = my.own.Op(n)", "sites only"),
        ("y = my.own.Op(x)", "structure only"),
        ("r = RandomNormalLike(x)  n = Identity(x)  y = Add(n, r)", "sites only"),
    ],
)
def test_checks_that_could_not_go_all_the_way(cli, model_of, nodes, reached):
    """An operator that cannot run here, or at random: one line says how far the checks went, and why."""
    path = model_of(STRANGE.format(nodes))
    done = cli("apply", path)
    assert done.code == 0
    (line,) = [each for each in done.out.splitlines() if each.startswith("  Degraded")]
    assert line.split()[1:3] == reached.replace(" only", " only:").split()
    assert ("structure, kernels" in done.out) == ("my.own" not in nodes)
    checks = json.loads(cli("apply", path, "--json", "-").out)["checks"]
    assert checks["reached"] == reached
    assert checks["why"]


def test_another_cost_than_the_clock_is_told(cli, gelu, tmp_path):
    done = cli("apply", gelu, "-o", tmp_path / "out.onnx", "--lower", "fastest", "--cost", "bytes")
    assert done.code == 0
    assert re.search(r"  Cost +0\.18 of the original.s, by bytes at ", done.out)
    assert "Speed" not in done.out
    record = json.loads((tmp_path / "out.onnx.certificate.json").read_text())
    assert record["options"]["cost"]["name"] == "bytes"


def test_a_cost_that_is_neither_a_name_nor_a_file_is_refused(cli, gelu, tmp_path):
    done = cli("apply", gelu, "-o", tmp_path / "out.onnx", "--cost", "byte")
    assert done.code == 2
    assert done.err.strip().endswith("cost byte: is neither clock, bytes nor operations, and there is no such file")
    assert left_behind(tmp_path) == ["gelu.onnx"]
