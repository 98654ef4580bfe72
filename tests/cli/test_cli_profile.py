"""``onnxrewrite profile``."""

import json

import pytest

from onnxrewrite.cli.profile import OrtLevel
from onnxrewrite.measure import peaks, profiling
from onnxrewrite.runtime.settings import LEVELS


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(peaks, "SECONDS", 0.02)
    monkeypatch.setitem(profiling.profile.__kwdefaults__, "seconds", 0.05)


def test_levels_are_those_of_the_library():
    assert [level.value for level in OrtLevel] == list(LEVELS)


def test_the_report_fits_its_columns_and_says_all_there_is(cli, gelu, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    done = cli("profile", gelu, "--threads", 1, "--level", "disabled", "--dim", "batch=4096")
    assert done.code == 0, done.err
    for words in ("operator", "rules saw", "Roofs", "at batch=4096; CPU, 1 thread, level disabled"):
        assert words in done.out
    assert "gelu-erf" in done.out
    assert max(map(len, done.out.splitlines()[1:])) <= 100
    assert done.err == ""


def test_json(cli, gelu, tmp_path):
    path = tmp_path / "p.json"
    assert cli("profile", gelu, "--threads", 1, "--only", "gelu", "--json", path).code == 0
    data = json.loads(path.read_text())
    assert data["model"] == str(gelu)
    assert [k["op_type"] for k in data["kernels"]] == ["Gelu"]
    assert data["kernels"][0]["rules"] == ["gelu-erf", "gelu-lower"]
    assert data["ratio"]["low"] <= data["ratio"]["median"] <= data["ratio"]["high"]
    assert any(o["kind"] == "rewrite" and "gelu-erf" in o["name"] for o in data["opportunities"])


def test_near_misses_say_why(cli, model_of):
    model = model_of("""<ir_version: 8, opset_import: ["": 17]>
        g (float[n,256] x) => (float[n,256] y, float[n,256] e)
        <float half = {0.5}, float one = {1.0}, float root = {1.41421356}> {
          d = Div(x, root)
          e = Erf(d)
          a = Add(e, one)
          m = Mul(x, a)
          y = Mul(m, half)
        }""")
    out = cli("profile", model, "--threads", 1, "--level", "disabled", "--dim", "n=512").out
    assert "Near misses" in out
    assert "graph output" in " ".join(out.split())
    assert "not gelu-erf" in out


def test_top_limits_the_tables(cli, gelu):
    out = cli("profile", gelu, "--threads", 1, "--level", "disabled", "--top", 1).out
    assert "4 more (--top)" in out


def test_a_model_without_inputs(cli, model_of):
    done = cli(
        "profile",
        model_of('<ir_version: 8, opset_import: ["": 17]> g () => (float[1] y) <float[1] c = {1.0}> { y = Relu(c) }'),
    )
    assert done.code == 0
    assert "nothing runs" in done.out


def test_what_cannot_be_profiled_is_said_in_one_line(refused, gelu, tmp_path):
    rubbish = tmp_path / "rubbish.onnx"
    rubbish.write_bytes(b"\x00\x01rubbish" * 9)
    assert str(rubbish) in refused("profile", rubbish)
    assert "no such file" in refused("profile", tmp_path / "none.onnx")
    assert "unknown provider 'gpu'" in refused("profile", gelu, "--provider", "gpu")
    assert "no such dimension" in refused("profile", gelu, "--dim", "sequence=3")
    assert "would overwrite a model" in refused("profile", gelu, "--json", gelu)
