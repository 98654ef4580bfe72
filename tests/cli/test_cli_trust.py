"""Certificates of strangers: what they name is not run unless it is trusted, and nothing is written where they say."""

import dataclasses
import importlib.util
import os
import py_compile
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from small_models import RELU, write

from onnxrewrite.certificate.record import Files, read
from onnxrewrite.io import external
from onnxrewrite.rewrite import source
from onnxrewrite.system.digests import sha256_of

CANARY = "TRUST_CANARY"
TWICE = RELU.replace("y = Relu(x)", "n = Neg(x) m = Neg(n) y = Relu(m)")
RULE = f'''import os
from onnxrewrite.rules import Rule, Stage, Var, op
{{import_}}
open(os.environ["{CANARY}"], "a").write(__file__ + " ")
x = Var("x")

def rewrite(m, build):
    """Neg(Neg(x)) ⟶ x"""
    {{late}}
    return m[x]

TWICE = Rule("my-double-negation", Stage.CANONICALIZE, op.Neg(op.Neg(x)), rewrite, benefit=999)
'''
HELPER = f'import os\nopen(os.environ["{CANARY}"], "a").write(__file__ + " ")\nLIMIT = 1\n'
BOTH = [("replay",), ("check", "--certificate")]


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    """Code says what it is in a file, and a rule file is loaded anew by each command."""
    monkeypatch.setenv(CANARY, str(tmp_path / "canary"))
    yield
    forget()


def forget():
    """As in another process."""
    for name in [n for n in sys.modules if n.startswith((source.LOOSE, "my_"))]:
        del sys.modules[name]
    importlib.invalidate_caches()


@pytest.fixture
def ran(tmp_path):
    """The files that were run since this was asked last."""
    path = tmp_path / "canary"

    def ask():
        found = sorted({Path(p).name for p in path.read_text().split()}) if path.exists() else []
        path.unlink(missing_ok=True)
        return found

    return ask


@pytest.fixture
def certified(cli, ran, tmp_path, monkeypatch):
    """A certificate of a run with rules, in a folder of its own; given files by name, and what ``--rules`` says."""

    def make(rules, files):
        folder = tmp_path / "there"
        folder.mkdir()
        for name, text in files.items():
            path = folder / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        model = write(folder / "model.onnx", TWICE)
        monkeypatch.syspath_prepend(folder)
        named = folder / rules if rules.endswith(".py") and ":" not in rules else rules
        done = cli("apply", model, "--rules", named, "--lower", "fused")
        assert done.code == 0, done
        forget()
        assert ran()
        return folder / "model.opt.onnx.certificate.json"

    return make


def rule(import_="", late=""):
    return RULE.format(import_=import_, late=late)


def forged(path, **changes):
    """The certificate with other contents, and the digest that fits them."""
    path.write_bytes(dataclasses.replace(read(path), **changes).to_bytes())


def with_rules(path, *rules):
    forged(path, options=dataclasses.replace(read(path).options, rules=list(rules)))


# ------------------------------------------------------------------------------------------------------------- code


@pytest.mark.parametrize("command", BOTH, ids=" ".join)
def test_a_rule_file_runs_if_it_is_trusted(cli, refused, ran, certified, command):
    path = certified("my_rule.py", {"my_rule": rule()})
    line = refused(*command, path)
    assert "my_rule.py" in line
    assert "--trust" in line
    assert ran() == []
    assert cli(*command, path, "--trust").code == 0
    assert ran() == ["my_rule.py"]


def test_no_rules_need_no_trust(cli, gelu, tmp_path):
    assert cli("apply", gelu).code == 0
    assert cli("replay", tmp_path / "gelu.opt.onnx.certificate.json").code == 0


def test_trust_is_for_a_certificate(refused, gelu):
    assert "--trust is for --certificate" in refused("check", gelu, gelu, "--trust")


def test_own_rules_need_no_trust(cli, refused, ran, certified, tmp_path):
    path = certified("my_rule.py", {"my_rule": rule()})
    own = tmp_path / "my_rule.py"
    own.write_text(rule())
    (path.parent / "my_rule.py").unlink()
    assert "no such rule file" in refused("replay", path, "--trust")
    assert cli("replay", path, "--rules", own).code == 0
    assert ran() == ["my_rule.py"]
    forget()
    own.write_text(rule() + "# edited\n")
    assert "my_rule.py is another file now" in refused("replay", path, "--rules", own, code=1)
    assert ran() == []


@pytest.mark.parametrize("command", BOTH, ids=" ".join)
@pytest.mark.parametrize("trust", [(), ("--trust",)], ids=["", "--trust"])
@pytest.mark.parametrize("spelled", ["evil.py", "../evil.py", "{outside}/evil.py", "link.py", "onnxscript:evil.py"])
def test_a_rule_file_that_is_not_listed_never_runs(refused, ran, certified, tmp_path, command, trust, spelled):
    path = certified("my_rule.py", {"my_rule": rule()})
    for folder in (path.parent, tmp_path):
        (folder / "evil.py").write_text(rule() + "# and more\n")
    (path.parent / "link.py").symlink_to("../evil.py")
    with_rules(path, spelled.format(outside=tmp_path))
    refused(*command, path, *trust)
    assert ran() == []


@pytest.mark.parametrize(
    "spelled", ["my_evil", "onnxscript:my_evil", "onnxscript:my_evil.run", "this", "antigravity", "onnxscript:pdb.main"]
)
@pytest.mark.parametrize("trust", [(), ("--trust",)], ids=["", "--trust"])
def test_a_package_that_is_not_listed_never_runs(refused, ran, certified, trust, spelled):
    path = certified("my_rule.py", {"my_rule": rule()})
    (path.parent / "my_evil.py").write_text(HELPER + "def run(): return []\n")
    with_rules(path, spelled)
    loaded = set(sys.modules)
    refused("replay", path, *trust)
    assert ran() == []
    assert not {"my_evil", "this", "antigravity"} & (set(sys.modules) - loaded)


LAYOUTS = {
    "a helper beside it": ("my_rule.py", {"my_rule": rule("import my_helper"), "my_helper": HELPER}),
    "a helper of a helper": (
        "my_rule.py",
        {"my_rule": rule("import my_first"), "my_first": "import my_helper\n", "my_helper": HELPER},
    ),
    "a helper that is imported late": ("my_rule.py", {"my_rule": rule(late="import my_helper"), "my_helper": HELPER}),
    "a package beside it": (
        "my_rule.py",
        {"my_rule": rule("import my_parts.helper"), "my_parts/__init__": "", "my_parts/helper": HELPER},
    ),
    "its own package": ("my_pack.rules", {"my_pack/__init__": HELPER, "my_pack/rules": rule()}),
    "a module of its package": (
        "my_pack.rules",
        {
            "my_pack/__init__": "",
            "my_pack/rules": rule("from .parts import helper"),
            "my_pack/parts/__init__": "",
            "my_pack/parts/helper": HELPER,
        },
    ),
}


@pytest.mark.parametrize(("rules", "files"), LAYOUTS.values(), ids=LAYOUTS)
def test_what_a_rule_imports_runs_only_as_it_was(cli, refused, ran, certified, rules, files):
    path = certified(rules, files)
    (helper,) = [path.parent / f"{name}.py" for name, text in files.items() if text == HELPER]
    assert cli("replay", path, "--trust").code == 0
    assert helper.name in ran()
    forget()
    helper.write_text(HELPER + "# edited\n")
    assert f"{helper} is another file now" in refused("replay", path, "--trust", code=1)
    assert helper.name not in ran()


def test_who_catches_the_refusal_gains_nothing(refused, ran, certified):
    swallowing = "try:\n    import my_helper\nexcept BaseException:\n    pass"
    path = certified("my_rule.py", {"my_rule": rule(swallowing), "my_helper": HELPER})
    (path.parent / "my_helper.py").write_text(HELPER + "# edited\n")
    assert "my_helper.py is another file now" in refused("replay", path, "--trust", code=1)
    assert "my_helper.py" not in ran()


def test_compiled_code_beside_a_rule_file_never_runs(cli, ran, certified):
    """Python takes a compiled file whose source has the size and the time that it says."""
    path = certified("my_rule.py", {"my_rule": rule()})
    file = path.parent / "my_rule.py"
    content, times = file.read_bytes(), file.stat()
    file.write_bytes(HELPER.encode().ljust(len(content), b"#"))
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    py_compile.compile(str(file), cfile=importlib.util.cache_from_source(str(file)))
    file.write_bytes(content)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert cli("replay", path, "--trust").code == 0
    assert ran() == ["my_rule.py"]


def test_what_is_hashed_is_what_runs(refused, ran, certified, monkeypatch):
    """A file that becomes another one after it was looked at."""
    path = certified("my_rule.py", {"my_rule": rule()})
    file = path.parent / "my_rule.py"
    real = source.files.read_bytes

    def swapped(where, *limit):
        content = real(where, *limit)
        if Path(where) == file:
            file.write_text(HELPER)
        return content

    monkeypatch.setattr(source.files, "read_bytes", swapped)
    from onnxrewrite.certificate.repetition import Original

    assert Original(path, trust=True).replay().now.output is not None
    assert ran() == ["my_rule.py"]
    assert file.read_text() == HELPER
    forget()
    refused("replay", path, "--trust", code=1)
    assert ran() == []


def test_two_rule_files_of_one_name(cli, tmp_path):
    model = write(tmp_path / "model.onnx", TWICE)
    files = []
    for folder, name in (("a", "my-double-negation"), ("b", "my-other")):
        (tmp_path / folder).mkdir()
        files.append(tmp_path / folder / "same.py")
        files[-1].write_text(rule().replace("my-double-negation", name))
    given = [part for file in files for part in ("--rules", file)]
    assert cli("apply", model, "--lower", "fused", *given).code == 0
    forget()
    assert cli("replay", tmp_path / "model.opt.onnx.certificate.json", "--trust").code == 0


def test_in_python_what_has_run_already_needs_no_trust(certified, ran):
    from onnxrewrite.certificate.repetition import Original
    from onnxrewrite.errors import UsageError
    from onnxrewrite.rewrite import registry

    path = certified("my_rule.py", {"my_rule": rule()})
    with pytest.raises(UsageError, match="--trust"):
        Original(path)
    registry.load([str(path.parent / "my_rule.py")])
    with pytest.raises(UsageError, match="--trust"):
        Original(path, trust=False)
    assert Original(path).replay().result.trace.counts()["my-double-negation"] == 1


# ------------------------------------------------------------------------------------------------------------ files


@pytest.fixture
def weighted(cli, tmp_path, monkeypatch):
    """A certificate of a model that is written with external data."""
    folder = tmp_path / "there"
    folder.mkdir()
    text = (
        '<ir_version: 8, opset_import: ["": 17]> g (float[n, 8] x) => (float[n, 8] y) { a = Neg(x) y = MatMul(a, w) }'
    )
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(8, dtype=np.float32), "w"))
    onnx.save(model, folder / "m.onnx")
    monkeypatch.setattr(external, "INLINE_LIMIT", 16)
    monkeypatch.setattr(external, "EXTERNAL_THRESHOLD", 16)
    assert cli("apply", folder / "m.onnx", "-o", folder / "o.onnx", "--lower", "fused").code == 0
    return folder / "o.onnx.certificate.json"


@pytest.mark.parametrize("command", BOTH, ids=" ".join)
@pytest.mark.parametrize(
    "name", ["{victim}", "../victim", "sub/../../victim", "link", "", ".", "..", "a\0b", "x" * 300]
)
@pytest.mark.parametrize("which", ["o.onnx.data", "o.onnx"])
def test_no_name_of_a_certificate_is_written_to(cli, weighted, tmp_path, monkeypatch, command, name, which):
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (weighted.parent / "link").symlink_to("../victim")
    then = read(weighted)
    digests = dict(then.output.sha256)
    digests[name.format(victim=victim)] = digests.pop(which)
    if which == "o.onnx.data":  # or the digest would not fit at all
        (weighted.parent / "o.onnx").unlink()
    forged(weighted, output=Files(then.output.path if which != "o.onnx" else name.format(victim=victim), digests))
    written = []
    real = os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: (written.append(str(b)), real(a, b)))
    done = cli(*command, weighted)
    is_new = name.startswith("x") and which == "o.onnx"  # the output may be called anything, if it is not there
    assert done.code in ((0, 2) if is_new else (1, 2)), done
    assert done.err.count("\n") == (done.code != 0)
    assert victim.read_bytes() == b"precious"
    assert not [path for path in written if not Path(path).name.startswith("model.onnx")]


ODD = ["/dev/zero", "fifo", "folder", "loop", "/dev/stdin", "to_zero"]


@pytest.fixture
def odd(tmp_path, monkeypatch):
    """What is no regular file."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo("fifo")
    os.mkdir("folder")
    os.symlink("loop", "loop")
    os.symlink("/dev/zero", "to_zero")


EVERY_FILE = {
    "replay": ("replay", "ODD"),
    "replay --input": ("replay", "gelu.opt.onnx.certificate.json", "--input", "ODD"),
    "check --certificate": ("check", "--certificate", "ODD"),
    "apply": ("apply", "ODD"),
    "apply --input": ("apply", "gelu.onnx", "--input", "x=ODD"),
    "apply --rules": ("apply", "gelu.onnx", "--rules", "ODD"),
    "apply --rules onnxscript": ("apply", "gelu.onnx", "--rules", "onnxscript:ODD"),
    "apply --custom-ops": ("apply", "gelu.onnx", "--custom-ops", "ODD"),
    "check": ("check", "gelu.onnx", "ODD"),
    "inspect": ("inspect", "ODD"),
    "explain": ("explain", "ODD", "--all"),
    "mine": ("mine", "ODD"),
    "capture": ("capture", "ODD", "--from", "x", "--to", "y"),
    "rules": ("rules", "--rules", "ODD"),
    "verify": ("verify", "--rules", "ODD", "gelu-erf"),
    "profile": ("profile", "ODD"),
    "bench": ("bench", "ODD"),
    "bench --with": ("bench", "gelu.onnx", "--with", "ODD", "--seconds", "0.1"),
    "half": ("half", "ODD"),
    "half --data": ("half", "gelu.onnx", "--data", "ODD"),
    "quantize": ("quantize", "ODD"),
    "quantize --data": ("quantize", "gelu.onnx", "--data", "ODD"),
    "quantize --metric": ("quantize", "gelu.onnx", "--metric", "ODD:f"),
    "sensitivity": ("sensitivity", "ODD"),
    "optimize": ("optimize", "ODD"),
    "optimize --config": ("optimize", "gelu.onnx", "--config", "ODD"),
    "sweep": ("sweep", "ODD", "-o", "swept"),
    "sweep --config": ("sweep", "gelu.onnx", "-o", "swept", "--command", "optimize", "--config", "ODD"),
}


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("arguments", EVERY_FILE.values(), ids=EVERY_FILE)
def test_nothing_but_a_regular_file_is_read(cli, gelu, odd, arguments, kind):
    """It would hang, or read for ever."""
    Path("gelu.opt.onnx.certificate.json").write_text("{}")
    before = sorted(p.name for p in Path().iterdir())
    done = cli(*[a.replace("ODD", kind) for a in arguments])
    assert done.code in (1, 2), done
    assert done.err.count("\n") == 1 or arguments[0] in ("sweep", "bench"), done
    assert sorted(p.name for p in Path().iterdir() if p.name not in ("swept", "gelu.deploy")) == before


@pytest.mark.parametrize("name", ["x" * 300, "a\0b", "\udcff", "folder/" * 1000])
@pytest.mark.parametrize("arguments", EVERY_FILE.values(), ids=EVERY_FILE)
def test_names_that_no_file_has(cli, gelu, odd, arguments, name):
    Path("gelu.opt.onnx.certificate.json").write_text("{}")
    done = cli(*[a.replace("ODD", name) for a in arguments])
    assert done.code in (1, 2), done


def test_a_model_with_weights_that_are_no_file(cli, refused, odd):
    for kind in ("fifo", "folder", "loop", "to_zero"):
        tensor = onnx.TensorProto(name="w", data_type=1, dims=[4], data_location=onnx.TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value=kind)
        model = onnx.parser.parse_model(RELU.replace("y = Relu(x)", "y = Relu(x) z = Identity(w)"))
        model.graph.initializer.append(tensor)
        Path("m.onnx").write_bytes(model.SerializeToString())
        assert "'w'" in refused("inspect", "m.onnx")


# ---------------------------------------------------------------------------------------------------------- forgeries


@pytest.mark.slow
def test_a_sample_of_forged_certificates():
    """All of them: ``python -m benchmarks.hostile --only certificates``."""
    command = [sys.executable, "-m", "benchmarks.hostile", "--only", "certificates", "--count", "24", "--seed", "7"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "met  harms done by certificates: 0" in done.stdout


@pytest.mark.slow
def test_forgeries_are_the_same_for_the_same_seed(tmp_path):
    listed = (
        "import sys; from pathlib import Path; from benchmarks.hostile.certificates import certificates\n"
        "for c in certificates(Path(sys.argv[1]), 3, 320): print(c.name, c.commands, file=sys.stderr)"
    )
    runs = []
    for folder in ("a", "b"):
        command = [sys.executable, "-c", listed, str(tmp_path / folder)]
        runs.append(subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2]).stderr)
    assert runs[0] == runs[1]
    assert runs[0].count("\n") == 320
    assert len(set(runs[0].splitlines())) == 320


def test_digests_of_what_runs_are_listed(certified):
    files = {"my_pack/__init__": HELPER, "my_pack/rules": rule("from my_pack import parts"), "my_pack/parts": ""}
    path = certified("my_pack.rules", files)
    listed = read(path).modules
    for name in ("__init__", "rules", "parts"):
        label = "my_pack" if name == "__init__" else f"my_pack.{name}"
        assert listed[label] == sha256_of([path.parent / "my_pack" / f"{name}.py"])[0]
