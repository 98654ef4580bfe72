"""``onnxrewrite profile``."""

import importlib.util
import json

import pytest

from onnxrewrite.cli.profile import OrtLevel
from onnxrewrite.measure import peaks, profiling
from onnxrewrite.report import profile_plot
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


def test_without_matplotlib_it_says_how_to_get_it(refused, gelu, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    line = refused("profile", gelu, "--plot", tmp_path / "p.svg")
    assert "--plot needs matplotlib; install it with pip install 'onnxrewrite[plot]'" in line
    assert "the name must end in .png, .svg, .pdf" in refused("profile", gelu, "--plot", tmp_path / "p.txt")
    assert "would overwrite" in refused(
        "profile", gelu, "--plot", gelu.with_suffix(".svg"), "--json", gelu.with_suffix(".svg")
    )


def test_plot(cli, gelu, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "p.svg"
    assert cli("profile", gelu, "--threads", 1, "--plot", path).code == 0
    text = path.read_text()
    assert "<svg" in text
    assert path.stat().st_size > 5000


def entry(name, seconds, attainable, flops=None, size=100.0):
    return {
        "op_type": name,
        "seconds": seconds,
        "attainable": attainable,
        "share": seconds,
        "flops": flops,
        "bytes": size,
    }


def test_what_is_drawn():
    rows = [entry(f"Op{n}", 1.0 - n / 100, 0.25) for n in range(14)]
    data = {"operators": rows, "outside": 0.5, "kernels": [entry("Gemm", 0.5, 0.1, 1000.0), entry("Relu", 0.5, 0.1)]}
    bars = profile_plot.bars(data)
    assert [bar[0] for bar in bars] == [*(f"Op{n}" for n in range(12)), "2 other", "in no kernel"]
    assert bars[0] == ("Op0", 250.0, 750.0)
    assert bars[12][1:] == (500.0, pytest.approx(1250.0))
    assert bars[13][1:] == (0.0, 500.0)
    assert profile_plot.bars({"operators": [entry("Fast", 0.1, 0.2)], "outside": 0.0}) == [("Fast", 100.0, 0.0)]
    assert profile_plot.points(data) == [(10.0, 2000.0, 0.5, "Gemm")]
    assert profile_plot.roof({"flops": 100.0, "bandwidth": 10.0}, [1.0, 10.0, 50.0]) == [10.0, 100.0, 100.0]
