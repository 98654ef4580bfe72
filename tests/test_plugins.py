"""Rules from loose files and packages: what works, and what is said when it does not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import onnx
import pytest

from onnxrewrite.cli import main
from onnxrewrite.errors import RuleError
from onnxrewrite.rewrite import registry

Install = Callable[..., None]

TWELVE_LINES = '''"""Log(Softmax(x)) in one operator."""
from onnxrewrite.rules import FLOATS, Attr, Rule, Stage, Var, op

x, axis = Var("x", dtype=FLOATS), Attr[int]("axis")


def to_log_softmax(m, build):
    """log(softmax(x)) ⟶ LogSoftmax(x)."""
    return build.LogSoftmax(m[x], axis=m[axis])


LOG = Rule("my-log-softmax", Stage.CANONICALIZE, op.Log(op.Softmax(x, axis=axis)), to_log_softmax, benefit=5)
'''

MODEL = """<ir_version: 8, opset_import: ["": 17]>
g (float[n, 8] x) => (float[n, 8] y) { s = Softmax(x)  y = Log(s) }"""


@pytest.fixture(autouse=True)
def fresh_imports() -> Iterator[None]:
    """Modules that a test imported are forgotten, and so are the signal handlers of ``main``."""
    import signal

    before = set(sys.modules)
    handlers = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    yield
    for name in set(sys.modules) - before:
        if name.startswith(("onnxrewrite_rules_", "my_")):
            del sys.modules[name]
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), str(path))
    return path


def operators(path: Path) -> list[str]:
    return [n.op_type for n in onnx.load(path).graph.node]


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main([str(a) for a in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("onnxrewrite: ")
    assert err.count("\n") == 1, err
    return err


# ------------------------------------------------------------------------------------------------- they work


def test_a_rule_is_twelve_lines() -> None:
    assert len(TWELVE_LINES.splitlines()) == 12


def test_loose_file(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = written(tmp_path / "my_rule.py", TWELVE_LINES)
    assert main(["apply", str(model), "--rules", str(rules), "-o", str(tmp_path / "out.onnx")]) == 0
    assert operators(tmp_path / "out.onnx") == ["LogSoftmax"]
    assert "my-log-softmax" in capsys.readouterr().out
    assert main(["apply", str(model), "--rules", str(rules), "--without", "my-rule", "--dry-run"]) == 0
    assert "my-log-softmax" not in capsys.readouterr().out


@pytest.mark.slow
def test_loose_file_by_relative_path_from_the_shell(model: Path, tmp_path: Path) -> None:
    written(tmp_path / "my_rule.py", TWELVE_LINES)
    command = [sys.executable, "-m", "onnxrewrite", "apply", "model.onnx", "--rules", "./my_rule.py", "-q"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "model.opt.onnx\n", "")
    assert operators(tmp_path / "model.opt.onnx") == ["LogSoftmax"]


def test_package_by_name(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "my_package" / "__init__.py", "")
    written(tmp_path / "my_package" / "rules.py", TWELVE_LINES)
    monkeypatch.syspath_prepend(str(tmp_path))
    out = tmp_path / "out.onnx"
    assert main(["apply", str(model), "--rules", "my_package.rules", "-o", str(out)]) == 0
    assert operators(out) == ["LogSoftmax"]


def test_from_python(model: Path, tmp_path: Path) -> None:
    import onnxrewrite as rw

    rules = written(tmp_path / "my_rule.py", TWELVE_LINES)
    assert rw.apply(model, rules=[str(rules)]).trace.counts()["my-log-softmax"] == 1
    (rule,) = registry.rules_of(registry.load_module(str(rules)))
    assert rw.apply(model, rules=[rule]).trace.counts()["my-log-softmax"] == 1
    mine = rw.rules.RuleSet("mine", [rule])
    for chosen in ({}, {"only": ["mine"]}, {"only": ["my-log-softmax"]}):
        assert rw.apply(model, rules=[mine], **chosen).trace.counts()["my-log-softmax"] == 1
    assert rw.apply(model, rules=[mine], without=["mine"]).trace.counts()["my-log-softmax"] == 0
    with pytest.raises(RuleError, match="holds 3, which is no Rule"):
        rw.apply(model, rules=[3])


def test_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    rules = written(tmp_path / "my_rule.py", TWELVE_LINES)
    assert main(["rules", "--rules", str(rules)]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("my-log-softmax")]
    assert "log(softmax(x)) ⟶ LogSoftmax(x)" in line
    assert line.endswith("my_rule.py")
    assert main(["rules", "my-log-softmax", "--rules", str(rules)]) == 0
    out = capsys.readouterr().out
    assert "Pattern  Log(Softmax(x, axis=axis))" in out
    assert str(rules) in out.replace("\n           ", "")


def test_the_same_file_twice_is_one(model: Path, tmp_path: Path) -> None:
    rules = written(tmp_path / "my_rule.py", TWELVE_LINES)
    (tmp_path / "link.py").symlink_to(rules)
    library = registry.load([str(rules), str(tmp_path / "link.py"), str(tmp_path / "." / "my_rule.py")])
    assert [r.name for r in library].count("my-log-softmax") == 1


def test_a_file_of_the_library_by_path() -> None:
    import onnxrewrite_patterns.gelu

    assert len(registry.load([str(onnxrewrite_patterns.gelu.__file__)])) == len(registry.load())


# ------------------------------------------------------------------------------------------ they do not work


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("def broken(:\n", ["SyntaxError", "my_rule.py, line 1"]),
        ("import no_such_module\n", ["ModuleNotFoundError", "no_such_module", "line 1"]),
        ("\n\n1 / 0\n", ["ZeroDivisionError", "my_rule.py, line 3"]),
        ("x = 1\n", ["my_rule.py", "defines no Rule"]),
        ("", ["my_rule.py", "defines no Rule"]),
        ("RULES = 5\n", ["RULES must be a sequence"]),
        ("RULES = [[]]\n", ["my_rule.py", "holds [], which is no Rule"]),
        ("RULES = []\n", ["defines no Rule"]),
        ("raise SystemExit(0)\n", ["my_rule.py", "SystemExit"]),
        (
            'from onnxrewrite.rules import Rule, Stage\nR = Rule("a", Stage.RAISE, 5, print)\n',
            ["my_rule.py", "rule a: the pattern must be a term"],
        ),
        (
            'from onnxrewrite.rules import Rule, Var\nR = Rule("a", "raise", Var("x"), print)\n',
            ["my_rule.py", "rule a: stage must be a Stage"],
        ),
        ("from onnxrewrite import Nonsense\n", ["ImportError", "Nonsense"]),
        ("\0", ["my_rule.py"]),
    ],
)
def test_broken_file(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, parts: list[str]
) -> None:
    rules = written(tmp_path / "my_rule.py", text)
    line = refused(capsys, "apply", model, "--rules", rules)
    for part in parts:
        assert part in line
    assert not (tmp_path / "model.opt.onnx").exists()


@pytest.mark.parametrize(
    "name", ["no.py", "no/such/rule.py", "no_such_package", "no_such.package", "./no", "", ".", "x y"]
)
def test_missing(model: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert name in refused(capsys, "apply", model, "--rules", name)


def test_other_files(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "must end in .py" in refused(capsys, "apply", model, "--rules", model)
    (tmp_path / "folder.py").mkdir()
    assert "no such rule file" in refused(capsys, "apply", model, "--rules", tmp_path / "folder.py")
    assert "is a folder" in refused(capsys, "apply", model, "--rules", tmp_path)


def test_binary_file(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = tmp_path / "my_rule.py"
    rules.write_bytes(bytes(range(128, 256)))
    assert "my_rule.py" in refused(capsys, "apply", model, "--rules", rules)


def test_a_package_that_lacks_something_is_not_called_missing(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path / "my_package.py", "import my_missing_dependency\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    line = refused(capsys, "apply", model, "--rules", "my_package")
    assert "No module named 'my_missing_dependency'" in line


def test_two_rules_of_one_name(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (written(tmp_path / f"my_{n}.py", TWELVE_LINES) for n in ("first", "second"))
    line = refused(capsys, "apply", model, "--rules", first, "--rules", second)
    for part in ("two rules are called 'my-log-softmax'", str(first), str(second)):
        assert part in line


def test_the_name_of_a_built_in_rule(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = written(tmp_path / "my_gelu.py", TWELVE_LINES.replace("my-log-softmax", "gelu-erf"))
    line = refused(capsys, "apply", model, "--rules", rules)
    assert str(rules) in line
    assert "gelu.py" in line


# ----------------------------------------------------------------------------------------- installed plugins


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Pretends that packages with these modules are installed; ``test_packaging`` really installs one."""

    def install(**modules: str) -> None:
        for name, text in modules.items():
            written(tmp_path / "site" / f"{name}.py", text)
        monkeypatch.syspath_prepend(str(tmp_path / "site"))
        points = [EntryPoint(name, name, registry.GROUP) for name in modules]
        monkeypatch.setattr(registry, "entry_points", lambda group: points if group == registry.GROUP else [])

    return install


def test_a_broken_plugin_takes_nobody_down(
    installed, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    installed(my_broken="import no_such_module", my_exit="exit()", my_empty="", my_good=TWELVE_LINES)
    library = registry.load()
    assert "my-log-softmax" in {r.name for r in library}
    assert "gelu-erf" in {r.name for r in library}
    assert [line.split()[1] for line in library.broken] == ["my_broken", "my_empty", "my_exit"]
    assert main(["apply", str(model)]) == 0
    out = capsys.readouterr().out
    assert "plugin my_broken (my_broken) cannot be used: ModuleNotFoundError" in " ".join(out.split())
    assert operators(tmp_path / "model.opt.onnx") == ["LogSoftmax"]
    assert main(["rules"]) == 0
    assert "plugin my_exit (my_exit) cannot be used" in capsys.readouterr().err


def test_a_plugin_with_a_name_that_is_taken(installed, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    installed(my_first=TWELVE_LINES, my_second=TWELVE_LINES)
    line = refused(capsys, "apply", model)
    assert "my_first.py" in line
    assert "my_second.py" in line
    with pytest.raises(RuleError, match="two rules are called"):
        registry.load()


def test_what_is_installed_while_we_run_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    written(site / "my_late.py", TWELVE_LINES)
    monkeypatch.syspath_prepend(str(site))
    assert "my-log-softmax" not in {r.name for r in registry.load()}
    written(site / "my_late-1.0.dist-info" / "METADATA", "Metadata-Version: 2.1\nName: my-late\nVersion: 1.0\n")
    written(site / "my_late-1.0.dist-info" / "entry_points.txt", f"[{registry.GROUP}]\nlate = my_late\n")
    assert "my-log-softmax" in {r.name for r in registry.load()}


@pytest.mark.parametrize("target", ["my_good", "my_good:RULE", "my_good:rules", "my_good:both", "my_good:named"])
def test_what_an_entry_point_may_name(installed: Install, monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    more = "\nRULE = LOG\nboth = (LOG,)\ndef rules():\n    return [LOG]\n"
    more += "from onnxrewrite.rules import RuleSet\nnamed = RuleSet('my-set', both)\n"
    installed(my_good=TWELVE_LINES + more)
    points = [EntryPoint("good", target, registry.GROUP)]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)
    library = registry.load()
    assert library.broken == []
    assert "my-log-softmax" in {r.name for r in library}
    assert "my-log-softmax" in library.sets["my-good"]
    assert ("my-set" in library.sets) == (target in ("my_good", "my_good:named"))
