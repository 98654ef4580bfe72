"""``onnxrewrite capture``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onnxrewrite import io
from onnxrewrite.ir import text

LAYER = (
    "p# = Mul(x#, x#)  v# = ReduceMean<axes=[-1]>(p#)  a# = Add(v#, ?)  r# = Sqrt(a#)  n# = Div(x#, r#)  x@ = Tanh(n#)"
)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    layers = (LAYER.replace("#", str(n)).replace("@", str(n + 1)).replace("?", f"1e-{n + 5}") for n in range(3))
    io.save(io.load(text.parse(f"float[b,s,16] x0; {'  '.join(layers)}", opset=17)), tmp_path / "m.onnx")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "m.onnx"


def test_it_writes_a_rule_and_its_test(cli, model):
    done = cli("capture", model, "--from", "x0", "--to", "n0", "--name", "my-norm")
    assert done.code == 0, done.err
    assert " ".join(done.out.split()).startswith(f"my-norm matches 5 operators at 3 places of {model} ")
    assert "  epsilon  Scalar  " in done.out
    assert done.out.endswith("Wrote my_norm.py and test_my_norm.py\n")
    folder = model.parent
    assert '"my-norm",' in (folder / "my_norm.py").read_text(encoding="utf-8")
    assert 'MODEL = HERE / "m.onnx"' in (folder / "test_my_norm.py").read_text(encoding="utf-8")
    listed = cli("rules", "my-norm", "--rules", "my_norm.py")
    assert listed.code == 0
    assert "fill in the rewrite" in listed.out
    applied = cli("apply", model, "--rules", "my_norm.py", "--only", "my-norm", "--dry-run", "--check", "off")
    assert applied.code == 0
    assert "3× fill in the rewrite of my-norm" in applied.out


def test_the_model_is_named_as_the_test_sees_it(cli, model):
    (model.parent / "rules").mkdir()
    assert cli("capture", "m.onnx", "--from", "x0", "--to", "n0", "-o", "rules/mine.py").code == 0
    assert 'HERE / "../m.onnx"' in (model.parent / "rules" / "test_mine.py").read_text(encoding="utf-8")
    assert 'HERE / "mine.py"' in (model.parent / "rules" / "test_mine.py").read_text(encoding="utf-8")


def test_to_stdout(cli, model):
    done = cli("capture", model, "--from", "x0", "--to", "n0", "-o", "-")
    assert done.out.startswith('"""')
    assert "def to_my_fusion(" in done.out
    assert not list(model.parent.glob("*.py"))


def test_in_json(cli, model):
    done = cli("capture", model, "--from", "x0", "--to", "n0", "--json", "-")
    data = json.loads(done.out)
    assert data["places"] == ["n0", "n1", "n2"]
    assert {c["name"]: c["differs"] for c in data["captures"]} == {"x": True, "epsilon": True}
    assert data["files"] == ["my_fusion.py", "test_my_fusion.py"]


def test_files_are_kept_unless_forced(cli, refused, model):
    given = ("capture", model, "--from", "x0", "--to", "n0")
    assert cli(*given).code == 0
    (model.parent / "my_fusion.py").write_text("mine", encoding="utf-8")
    assert "is there already; give another name, or --force" in refused(*given)
    assert (model.parent / "my_fusion.py").read_text(encoding="utf-8") == "mine"
    assert cli(*given, "--force").code == 0
    assert (model.parent / "my_fusion.py").read_text(encoding="utf-8") != "mine"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--to", "n0"), "--from"),
        (("--from", "x0"), "--to"),
        (("--from", "nowhere", "--to", "n0"), "--from nowhere: no value and no node is called so"),
        (("--from", "n0", "--to", "x0"), "--to x0: is not computed from it"),
        (("--from", "x0", "--to", "n0", "--name", "My Norm"), "a rule's name is lower case, with hyphens"),
        (("--from", "x0", "--to", "n0", "--name", "gelu-erf"), "is called so already"),
        (("--from", "x0", "--to", "n0", "-o", "rule.txt"), "a rule file ends in .py"),
        (("--from", "x0", "--to", "n0", "-o", "no/where.py"), "there is no folder no"),
        (("--from", "x0", "--to", "n0", "--json", "m.onnx"), "would overwrite a model"),
    ],
)
def test_what_cannot_be_used_is_told(refused, model, arguments, message):
    assert message in refused("capture", "m.onnx", *arguments)


def test_a_file_that_is_no_model_is_told(refused, tmp_path):
    assert "no such file" in refused("capture", tmp_path / "none.onnx", "--from", "a", "--to", "b", "-o", "-")
    (tmp_path / "odd.onnx").write_bytes(b"\xff\xfe\x00odd")
    assert "not an ONNX model" in refused("capture", tmp_path / "odd.onnx", "--from", "a", "--to", "b", "-o", "-")


def test_mine_shows_what_recurs_and_how_to_capture_it(cli, tmp_path):
    one = "a# = Sin(x#)  b# = Mul(a#, x#)  x@ = Cos(b#)"
    layers = "  ".join(one.replace("#", str(n)).replace("@", str(n + 1)) for n in range(3))
    model = tmp_path / "m.onnx"
    io.save(io.load(text.parse(f"float[b,16] x0; {layers}", opset=17)), model)
    done = cli("mine", model)
    assert done.code == 0, done.err
    assert f"1: onnxrewrite capture {model} --from x0 --to x1 --name my-sin-cos\n" in done.out
    data = json.loads(cli("mine", model, "--json", "-", "--top", "1").out)
    (first,) = data["subgraphs"]
    assert (first["places"], first["operators"]) == (3, ["Sin", "Mul", "Cos"])


def test_mine_finds_nothing(cli, relu):
    assert cli("mine", relu).out == "Nothing recurs that no rule takes in.\n"
