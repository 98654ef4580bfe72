"""``onnxrewrite apply --report`` as a user meets it."""

import errno
import os
from pathlib import Path

import onnx
import pytest

from onnxrewrite.errors import CheckError


def left_behind(folder):
    return sorted(p.name for p in folder.iterdir())


def test_report(cli, gelu, tmp_path):
    done = cli("apply", gelu, "--report", tmp_path / "out.html", "--no-certificate")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[-1] == f"The report is {tmp_path}/out.html"
    assert left_behind(tmp_path) == ["gelu.onnx", "gelu.opt.onnx", "out.html"]
    page = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "<h1>gelu.onnx</h1>" in page
    assert f"written to {tmp_path}/gelu.opt.onnx" in page


def test_same_bytes(cli, gelu, tmp_path):
    pages = []
    for _ in range(2):
        assert cli("apply", gelu, "--report", tmp_path / "out.html", "-q").out == f"{tmp_path}/gelu.opt.onnx\n"
        pages.append((tmp_path / "out.html").read_bytes())
    assert pages[0] == pages[1]


def test_dry_run_and_json(cli, gelu, tmp_path):
    done = cli("apply", gelu, "--report", tmp_path / "out.html", "--dry-run", "--json", "-")
    assert done.out.startswith("{")
    assert done.out.endswith("}\n")
    assert left_behind(tmp_path) == ["gelu.onnx", "out.html"]
    assert "written to" not in (tmp_path / "out.html").read_text(encoding="utf-8")


def test_nothing_applied(cli, relu, tmp_path):
    assert cli("apply", relu, "--report", tmp_path / "out.html").code == 0
    assert "No rule applied" in (tmp_path / "out.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--report", "{folder}/gelu.onnx"], "--report {folder}/gelu.onnx: would overwrite a model"),
        (["--report", "{folder}/gelu.opt.onnx"], "would overwrite a model"),
        (["-o", "{folder}/a.onnx", "--report", "{folder}/../{name}/a.onnx"], "would overwrite a model"),
        (["--report", "{folder}/gelu.opt.onnx.certificate.json"], "would overwrite a model"),
        (["--report", "{folder}/a", "--json", "{folder}/a"], "--json {folder}/a: would overwrite a model"),
        (["--report", "-"], "--report: '-' is no file name"),
        (["--report", ""], "--report: '' is no file name"),
        (["--report", "{folder}"], "is a folder"),
        (["--report", "{folder}/no/out.html"], "there is no folder"),
    ],
)
def test_refused_before_any_work(refused, gelu, tmp_path, monkeypatch, arguments, words):
    monkeypatch.setattr("onnxrewrite.api.application.apply", lambda *a, **k: pytest.fail("work began"))
    given = [a.format(folder=tmp_path, name=tmp_path.name) for a in arguments]
    assert words.format(folder=tmp_path) in refused("apply", gelu, *given)
    assert left_behind(tmp_path) == ["gelu.onnx"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_unwritable_folder(refused, gelu, tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    assert "is not writable" in refused("apply", gelu, "--report", tmp_path / "locked" / "out.html")


def test_a_full_disk_leaves_the_old_report(cli, gelu, tmp_path, monkeypatch):
    (tmp_path / "out.html").write_text("old", encoding="utf-8")
    real = Path.write_text

    def full(path, *arguments, **options):
        if "out.html" in path.name:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(path, *arguments, **options)

    monkeypatch.setattr(Path, "write_text", full)
    done = cli("apply", gelu, "--report", tmp_path / "out.html")
    assert done.code == 2
    reason = f"--report {tmp_path}/out.html: cannot be written: No space left on device"
    assert done.err == f"onnxrewrite: {reason}; {tmp_path}/gelu.opt.onnx was written\n"
    assert "Wrote " in done.out
    assert (tmp_path / "out.html").read_text(encoding="utf-8") == "old"


def test_a_failed_check_writes_none(cli, gelu, tmp_path, monkeypatch):
    def fail(*arguments, **options):
        raise CheckError("the result is not equal to the original")

    monkeypatch.setattr("onnxrewrite.api.application.apply", fail)
    assert cli("apply", gelu, "--report", tmp_path / "out.html").code == 1
    assert left_behind(tmp_path) == ["gelu.onnx"]


def test_nothing_of_it_is_loaded_without_it(cli, gelu, monkeypatch):
    import builtins

    real = builtins.__import__

    def watched(name, *arguments, **options):
        assert not name.startswith("onnxrewrite.report.html"), "--report was not asked for"
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", watched)
    assert cli("apply", gelu).code == 0


def test_the_weights_are_not_overwritten(refused, gelu, tmp_path):
    model = onnx.load(gelu)
    for each in model.graph.initializer:
        each.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(each), each.name))
    onnx.save(model, gelu, save_as_external_data=True, location="weights.bin", size_threshold=0)
    before = (tmp_path / "weights.bin").read_bytes()
    told = refused("apply", gelu, "--report", tmp_path / "weights.bin", "-o", tmp_path / "out.onnx")
    assert told == f"onnxrewrite: --report {tmp_path}/weights.bin: the weights of the model lie there\n"
    assert (tmp_path / "weights.bin").read_bytes() == before
