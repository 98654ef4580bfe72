"""``onnxrewrite replay`` and ``onnxrewrite check --certificate``: the same again, or one line that says what differs."""

import dataclasses
import importlib
import json
import sys

import numpy as np
import onnx
import pytest
from small_models import GELU, RELU, write

from onnxrewrite.certificate.record import read
from onnxrewrite.checks.rewrites import SiteChecker
from onnxrewrite.checks.site_record import CheckRecord
from onnxrewrite.io import external
from onnxrewrite.system.versions import versions

RULE = '''from onnxrewrite.rules import Rule, Stage, Var, op
{import_}
x = Var("x")


def rewrite(m, build):
    """Neg(Neg(x)) ⟶ x, and no more than that."""
    return m[x]


TWICE = Rule("my-double-negation", Stage.CANONICALIZE, op.Neg(op.Neg(x)), rewrite, benefit=999)
'''
TWICE = RELU.replace("y = Relu(x)", "n = Neg(x) m = Neg(n) y = Relu(m)")
WEIGHTED = '<ir_version: 8, opset_import: ["": 17]> g (float[n, 4] x) => (float[n, 4] y) { a = Neg(x) b = Neg(a) y = Mul(b, w) }'


@pytest.fixture(autouse=True)
def fresh_rules():
    """A rule file is loaded anew by each command, as it is by each process."""
    yield
    forget()


def forget():
    for name in [n for n in sys.modules if n.startswith(("onnxrewrite_rules_", "my_plugin"))]:
        del sys.modules[name]
    importlib.invalidate_caches()


@pytest.fixture
def done(cli, gelu, tmp_path):
    """A certificate."""
    assert cli("apply", gelu).code == 0
    return tmp_path / "gelu.opt.onnx.certificate.json"


@pytest.fixture
def with_rule(cli, tmp_path):
    """Applies a loose rule file to a model of its own; the certificate."""

    def run(rule, text=TWICE):
        model = write(tmp_path / "model.onnx", text)
        result = cli("apply", model, "--rules", rule)
        assert result.code == 0, result
        forget()
        return tmp_path / "model.opt.onnx.certificate.json"

    return run


def flip(path, at=-5):
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def forged(path, **changes):
    """The certificate with other contents, and the digest that fits them."""
    path.write_bytes(dataclasses.replace(read(path), **changes).to_bytes())


# ------------------------------------------------------------------------------------------------- it is the same


@pytest.mark.parametrize("level", ["full", "fast", "off"])
def test_the_same_bytes(cli, gelu, tmp_path, level):
    assert cli("apply", gelu, "--check", level, "-o", tmp_path / "o.onnx").code == 0
    before = sorted(p.name for p in tmp_path.iterdir())
    again = cli("replay", tmp_path / "o.onnx.certificate.json")
    assert (again.code, again.err) == (0, "")
    assert "o.onnx.certificate.json: the same bytes after 2 rewrites" in again.out
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_quiet(cli, done):
    again = cli("replay", done, "-q")
    assert (again.code, again.out, again.err) == (0, "", "")


def test_the_same_call_gives_the_same_certificate(cli, gelu, done):
    first = done.read_bytes()
    assert cli("apply", gelu).code == 0
    assert done.read_bytes() == first


def test_the_result_can_be_kept(cli, done, tmp_path):
    assert cli("replay", done, "-o", tmp_path / "again.onnx").code == 0
    assert (tmp_path / "again.onnx").read_bytes() == (tmp_path / "gelu.opt.onnx").read_bytes()


def test_all_may_move_together(cli, gelu, tmp_path):
    (tmp_path / "a" / "out").mkdir(parents=True)
    moved = gelu.rename(tmp_path / "a" / "gelu.onnx")
    assert cli("apply", moved, "-o", tmp_path / "a" / "out" / "o.onnx").code == 0
    (tmp_path / "a").rename(tmp_path / "b")
    assert cli("replay", tmp_path / "b" / "out" / "o.onnx.certificate.json").code == 0


def test_the_input_may_be_elsewhere(cli, refused, gelu, done, tmp_path):
    moved = gelu.rename(tmp_path / "elsewhere.onnx")
    assert "gelu.onnx: cannot be read" in refused("replay", done)
    assert cli("replay", done, "--input", moved).code == 0


def test_the_output_may_be_gone(cli, refused, done, tmp_path):
    (tmp_path / "gelu.opt.onnx").unlink()
    assert cli("replay", done).code == 0
    assert "gelu.opt.onnx: no such file" in refused("check", "--certificate", done)


def test_an_input_that_was_overwritten(cli, refused, gelu, tmp_path):
    kept = tmp_path / "kept.onnx"
    kept.write_bytes(gelu.read_bytes())
    assert cli("apply", gelu, "-o", gelu).code == 0
    assert "the output has overwritten it" in refused("replay", f"{gelu}.certificate.json", code=1)
    assert cli("replay", f"{gelu}.certificate.json", "--input", kept).code == 0


def test_options_are_recorded(cli, gelu, tmp_path):
    options = (
        "--opset",
        20,
        "--target",
        "onnx",
        "--seed",
        7,
        "--only",
        "gelu",
        "--without",
        "gelu-tanh",
        "--dim",
        "batch=3",
    )
    assert cli("apply", gelu, *options).code == 0
    record = read(tmp_path / "gelu.opt.onnx.certificate.json")
    assert (record.options.opset, record.options.target, record.options.seed) == (20, "onnx", 7)
    assert record.options.dims == {"batch": 3}
    assert "gelu-erf" in record.rules
    assert "gelu-tanh" not in record.rules
    assert cli("replay", tmp_path / "gelu.opt.onnx.certificate.json").code == 0
    assert cli("check", "--certificate", tmp_path / "gelu.opt.onnx.certificate.json").code == 0


def test_what_a_site_check_undid(cli, wrong_rule, with_rule):
    path = with_rule(wrong_rule, RELU)
    (undone,) = read(path).undone
    assert (undone.rule, undone.value, undone.by) == ("relu-is-abs", "y", "site")
    assert read(path).sites[undone.site].check.status == "failed"
    assert cli("replay", path, "--trust").code == 0
    forget()
    assert cli("check", "--certificate", path, "--trust").code == 0


def test_what_the_check_of_the_model_undid(cli, wrong_rule, with_rule, monkeypatch):
    monkeypatch.setattr(SiteChecker, "__call__", lambda self, site: None)
    path = with_rule(wrong_rule, RELU)
    (undone,) = read(path).undone
    assert (undone.rule, undone.by, undone.site) == ("relu-is-abs", "model", None)
    assert cli("replay", path, "--trust").code == 0
    forget()
    assert cli("check", "--certificate", path, "--trust").code == 0


def test_other_versions_are_told(cli, done, monkeypatch):
    now = {**versions(), "numpy": "9.9"}
    monkeypatch.setattr("onnxrewrite.certificate.writing.versions", lambda: now)
    again = cli("replay", done)
    assert again.code == 0
    assert again.err.startswith("onnxrewrite: versions have changed, the result has not: numpy ")
    assert " → 9.9\n" in again.err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "yolo"])
def test_golden_models(cli, tmp_path, name):
    path = tmp_path / "o.onnx"
    assert cli("apply", f"golden_models/{name}/model.onnx", "-o", path, "--check", "fast").code == 0
    assert cli("replay", f"{path}.certificate.json").code == 0
    record = read(f"{path}.certificate.json")
    assert (tmp_path / "o.onnx.certificate.json").stat().st_size < 1024 * len(record.rewrites)


# ------------------------------------------------------------------------------------------------ something differs

BOTH = [("replay",), ("check", "--certificate")]


@pytest.mark.parametrize("command", BOTH, ids=" ".join)
@pytest.mark.parametrize(
    ("name", "part"), [("gelu.onnx", "the input has changed"), ("gelu.opt.onnx", "the output has changed")]
)
def test_a_byte_of_a_model(refused, done, tmp_path, command, name, part):
    flip(tmp_path / name)
    line = refused(*command, done, code=1)
    assert part in line
    assert f"{name} is another file now" in line


@pytest.mark.parametrize("command", BOTH, ids=" ".join)
def test_a_byte_of_the_certificate(refused, done, command):
    content = done.read_bytes()
    for at in range(0, len(content), len(content) // 50):
        done.write_bytes(content)
        flip(done, at)
        assert str(done) in refused(*command, done)


@pytest.mark.parametrize("command", BOTH, ids=" ".join)
def test_a_rule_file_that_changed_is_not_run(refused, with_rule, tmp_path, command):
    rule = tmp_path / "my_rule.py"
    rule.write_text(RULE.format(import_=""))
    path = with_rule(rule)
    rule.write_text(rule.read_text() + "\nraise SystemExit(99)\n")
    line = refused(*command, path, "--trust", code=1)
    assert "rule my-double-negation changed" in line
    assert "my_rule.py is another file now" in line


def test_a_helper_that_changed(cli, refused, with_rule, tmp_path, monkeypatch):
    (tmp_path / "my_plugin").mkdir()
    (tmp_path / "my_plugin" / "__init__.py").write_text("")
    (tmp_path / "my_plugin" / "numbers.py").write_text("LIMIT = 1\n")
    (tmp_path / "my_plugin" / "rules.py").write_text(RULE.format(import_="from my_plugin.numbers import LIMIT"))
    monkeypatch.syspath_prepend(tmp_path)
    path = with_rule("my_plugin.rules")
    assert cli("replay", path, "--trust").code == 0
    forget()
    (tmp_path / "my_plugin" / "numbers.py").write_text("LIMIT = 22\n")
    assert "rule my-double-negation changed in my_plugin.numbers" in refused("replay", path, "--trust", code=1)


def test_a_rule_that_is_gone(cli, refused, with_rule, tmp_path):
    rule = tmp_path / "my_rule.py"
    rule.write_text(RULE.format(import_=""))
    path = with_rule(rule)
    rule.rename(tmp_path / "moved.py")
    assert "no such rule file" in refused("replay", path, "--trust")
    forget()
    (tmp_path / "my_rule.py").write_text(rule_file := (tmp_path / "moved.py").read_text())
    assert cli("replay", path, "--rules", tmp_path / "my_rule.py").code == 0
    forget()
    (tmp_path / "other.py").write_text(rule_file.replace("my-double", "other-double"))
    assert "rule my-double-negation is gone" in refused("replay", path, "--rules", tmp_path / "other.py", code=1)


@pytest.fixture
def weighted(cli, tmp_path, monkeypatch):
    """A model with external data, and an output with external data."""
    model = onnx.parser.parse_model(WEIGHTED)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.tile(np.arange(4, dtype=np.float32), (400, 1)), "w"))
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 400
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 400
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    monkeypatch.setattr(external, "INLINE_LIMIT", 16)
    assert cli("apply", tmp_path / "m.onnx", "-o", tmp_path / "o.onnx").code == 0
    return tmp_path / "o.onnx.certificate.json"


@pytest.mark.parametrize(("name", "part"), [("w.bin", "the input"), ("o.onnx.data", "the output")])
def test_a_byte_of_external_data(cli, refused, weighted, tmp_path, name, part):
    assert cli("replay", weighted).code == 0
    flip(tmp_path / name)
    line = refused("replay", weighted, code=1)
    assert f"{part} has changed" in line
    assert f"{name} is another file now" in line


def test_another_name_of_the_external_data(cli, weighted, tmp_path):
    """Where the input's data had the name that the output's would have, these got another, which the model holds."""
    assert cli("apply", tmp_path / "o.onnx", "-o", tmp_path / "sub.onnx").code == 0
    (tmp_path / "w.bin").unlink()
    (tmp_path / "o.onnx").rename(tmp_path / "p.onnx")
    assert cli("apply", tmp_path / "p.onnx", "-o", tmp_path / "o.onnx").code == 0
    assert (tmp_path / "o.onnx.1.data").exists()
    assert cli("replay", tmp_path / "o.onnx.certificate.json").code == 0


def test_another_result(refused, done):
    """The rules and the files are what they were, and yet the certificate tells of other rewrites."""
    record = read(done)
    forged(done, rewrites=record.rewrites[:1])
    assert "rewrite 2 was none, is now " in refused("replay", done, code=1)
    forged(
        done, output=dataclasses.replace(record.output, sha256={"gelu.opt.onnx": "0" * 64}), rewrites=record.rewrites
    )
    assert "the output has changed" in refused("replay", done, code=1)
    (done.parent / "gelu.opt.onnx").unlink()
    assert "the output differs: gelu.opt.onnx, although every rewrite is the same" in refused("replay", done, code=1)


# ------------------------------------------------------------------------------------------------- the checks again


def test_the_checks_hold(cli, done, tmp_path):
    again = cli("check", "--certificate", done, "--json", tmp_path / "r.json")
    assert (again.code, again.err) == (0, "")
    assert "Result    equal, as far as rounding goes" in again.out
    assert again.out.endswith("certificate.json: holds; 2 rewrites, 2 run by themselves again\n")
    data = json.loads((tmp_path / "r.json").read_text())
    assert data["certificate"]["differences"] == []
    assert data["ok"] is True
    assert cli("check", "--certificate", done, "-q").out == f"{done}: holds; 2 rewrites, 2 run by themselves again\n"


@pytest.mark.parametrize(("factor", "code"), [(1.0, 0), (3.0, 0), (1 / 3, 0), (5000.0, 1)])
def test_another_error_of_the_model(cli, done, factor, code):
    record = read(done)
    outputs = [dataclasses.replace(o, error=o.error * factor) for o in record.model.outputs]
    forged(done, model=dataclasses.replace(record.model, outputs=outputs))
    again = cli("check", "--certificate", done)
    assert again.code == code
    assert ("the checks say otherwise now: output y: the error was" in again.err) == bool(code)
    assert cli("replay", done).code == 0, "replay is not about checks"


def test_another_verdict_of_a_site(refused, done):
    record = read(done)
    sites = {
        i: dataclasses.replace(s, check=CheckRecord("not run", "", "", 0.0, 0.0, 0.0, 0))
        for i, s in record.sites.items()
    }
    forged(done, sites=sites)
    line = refused("check", "--certificate", done, "-q", code=1)
    assert "the check said not run, says ok, and 1 more" in line


def test_arrays_are_those_that_were_given(cli, refused, gelu, done, tmp_path):
    np.save(tmp_path / "x.npy", np.ones((3, 8), np.float32))
    assert cli("apply", gelu, "--input", f"x={tmp_path}/x.npy").code == 0
    assert read(done).options.inputs["x"].path == "x.npy"
    assert cli("check", "--certificate", done).code == 0
    np.save(tmp_path / "x.npy", np.zeros((3, 8), np.float32))
    assert "the array for input x is not the one that was used" in refused("check", "--certificate", done, code=1)
    assert cli("replay", done).code == 0


def test_nothing_was_checked(cli, refused, gelu, done):
    assert cli("apply", gelu, "--check", "off").code == 0
    assert "nothing was checked (--check off)" in refused("check", "--certificate", done)


# ------------------------------------------------------------------------------------------------------- what cannot be


def test_bad_arguments(refused, gelu, done, tmp_path):
    assert "leave them out" in refused("check", "--certificate", done, "--seed", 3)
    assert "--rules is for --certificate" in refused("check", gelu, gelu, "--rules", "x.py")
    assert "missing argument 'A'" in refused("check")
    assert "no such certificate" in refused("replay", tmp_path / "nothing.json")
    assert "is not JSON" in refused("replay", gelu)
    assert "there is no folder" in refused("replay", done, "-o", "/no/such/folder/x.onnx")
    assert "would overwrite a model" in refused("apply", gelu, "--json", done)


def test_nothing_is_written_where_the_certificate_cannot_be(refused, gelu, done, tmp_path):
    (tmp_path / "o.onnx.certificate.json").mkdir()
    assert "is a folder" in refused("apply", gelu, "-o", tmp_path / "o.onnx")
    assert not (tmp_path / "o.onnx").exists()


def test_a_model_that_came_from_no_file(refused, tmp_path):
    import onnxrewrite as rw

    result = rw.apply(onnx.parser.parse_model(GELU), check="off")
    assert result.certificate.input is None
    result.save(tmp_path / "o.onnx", certificate=True)
    assert "give it with --input" in refused("replay", tmp_path / "o.onnx.certificate.json")
