"""Installed from a wheel or a source distribution, editable, run from a checkout: everywhere the same rules, each once.

Every environment here is new and empty, but that it sees the packages of the one that runs the tests.  The
network is not needed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass, field
from pathlib import Path

import onnx
import pytest

pytest.importorskip("hatchling", reason="the build backend is not installed: pip install hatchling")
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("packaging")]  # wheels and environments are made once

ROOT = Path(__file__).resolve().parents[1]
PIP = ("--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--quiet")

MODEL = """<ir_version: 8, opset_import: ["": 17]>
g (float[n, 8] x) => (float[n, 8] y) { s = Softmax(x)  t = Log(s)  y = Abs(t) }"""

RULE = '''"""A rule of somebody else."""
from onnxrewrite.rules import Rule, Stage, Var, op

x = Var("x")


def to_log_softmax(m, build):
    """log(softmax(x)) ⟶ LogSoftmax(x)."""
    return build.LogSoftmax(m[x])


LOG = Rule("their-log-softmax", Stage.CANONICALIZE, op.Log(op.Softmax(x)), to_log_softmax, benefit=9)
'''

LOADED = """
import collections, sys
import onnxrewrite
from onnxrewrite.rewrite import registry

library = registry.load()
print(*(rule.name for rule in library))
files = collections.Counter(getattr(m, "__file__", None) for m in sys.modules.values())
print(*(f for f, n in files.items() if n > 1 and f and "onnxrewrite" in f))
print(onnxrewrite.__file__)
print(sys.modules["onnxrewrite_patterns"].__file__)
print(*library.broken)
"""


@dataclass
class Place:
    """An environment, and how Python is run in it."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def run(self, *command: object) -> subprocess.CompletedProcess[str]:
        """Runs a command in a folder that has nothing to do with the repository."""
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir(exist_ok=True)
        clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "COLUMNS")}
        return subprocess.run(
            [str(c) for c in command],
            cwd=elsewhere,
            env={**clean, **self.variables},
            capture_output=True,
            text=True,
        )

    def done(self, *command: object) -> str:
        """What a command that must succeed prints."""
        result = self.run(*command)
        assert result.returncode == 0, result.stderr or result.stdout
        return result.stdout

    def install(self, *what: object) -> None:
        command = [
            sys.executable,
            "-m",
            "pip",
            "--python",
            self.python,
            "install",
            "--ignore-installed",
            *PIP,
            *what,
        ]
        self.done(*command)


def place(folder: Path) -> Place:
    """A new environment that sees the packages of this one; ``.pth`` files of this one do not count there."""
    venv.create(folder, with_pip=False, symlinks=True)
    own = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    (own / "zz_outer.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    return Place(folder)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", *PIP, "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (made,) = folder.glob("onnxrewrite-*.whl")
    return made


@pytest.fixture(scope="module")
def from_wheel(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    made = place(tmp_path_factory.mktemp("from_wheel") / "env")
    made.install(wheel)
    return made


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", str(folder)]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    (made,) = folder.glob("onnxrewrite-*.tar.gz")
    return made


@pytest.fixture(scope="module")
def from_sdist(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    made = place(tmp_path_factory.mktemp("from_sdist") / "env")
    made.install(sdist)
    return made


@pytest.fixture(scope="module")
def editable(tmp_path_factory: pytest.TempPathFactory) -> Place:
    pytest.importorskip("editables", reason="hatchling needs it for editable installs: pip install editables")
    made = place(tmp_path_factory.mktemp("editable") / "env")
    made.install("--editable", ROOT)
    return made


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Place:
    made = place(tmp_path_factory.mktemp("checkout") / "env")
    made.variables["PYTHONPATH"] = str(ROOT)
    return made


@pytest.fixture(params=["from_wheel", "from_sdist", "editable", "checkout"])
def anywhere(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), str(path))
    return path


def built_in() -> list[str]:
    from onnxrewrite.rewrite import registry

    return [rule.name for rule in registry.load(plugins=False)]


def operators(path: Path) -> list[str]:
    return [n.op_type for n in onnx.load(path).graph.node]


# ------------------------------------------------------------------------------------------------ three ways


def test_every_rule_once(anywhere: Place) -> None:
    names, twice, package, patterns, broken = anywhere.done(anywhere.python, "-c", LOADED).splitlines()
    assert names.split() == built_in()
    assert len(set(names.split())) == len(names.split())
    assert (twice, broken) == ("", "")
    is_installed = "from_wheel" in str(anywhere.folder) or "from_sdist" in str(anywhere.folder)
    for file in (package, patterns):
        assert Path(file).is_relative_to(anywhere.folder if is_installed else ROOT)


def test_rules(anywhere: Place) -> None:
    out = anywhere.done(anywhere.python, "-m", "onnxrewrite", "rules")
    first = [line.split(" ")[0] for line in out.splitlines()]
    assert [first.count(name) for name in built_in()] == [1] * len(built_in())


def test_apply(anywhere: Place, model: Path) -> None:
    anywhere.done(anywhere.python, "-m", "onnxrewrite", "apply", model, "--only", "fold-constants")
    assert model.with_suffix(".opt.onnx").is_file()


def test_report(anywhere: Place, model: Path) -> None:
    page = model.with_suffix(".html")
    anywhere.done(anywhere.python, "-m", "onnxrewrite", "apply", model, "--only", "fold-constants", "--report", page)
    assert page.read_text(encoding="utf-8").count("<script>") == 4


def test_the_command_itself(from_wheel: Place, editable: Place) -> None:
    for there in (from_wheel, editable):
        assert "Usage: onnxrewrite" in there.done(there.folder / "bin" / "onnxrewrite", "--help")


def test_a_checkout_beside_an_installation_uses_its_own_rules(from_wheel: Place) -> None:
    both = Place(from_wheel.folder, {"PYTHONPATH": str(ROOT)})
    *_, package, patterns, _ = both.done(both.python, "-c", LOADED).splitlines()
    assert Path(package).is_relative_to(ROOT)
    assert Path(patterns).is_relative_to(ROOT)


def test_contents_of_the_wheel(wheel: Path) -> None:
    import zipfile

    names = zipfile.ZipFile(wheel).namelist()
    assert {n.split("/")[0] for n in names if ".dist-info" not in n} == {
        "onnxrewrite",
        "onnxrewrite_patterns",
    }
    assert "onnxrewrite/py.typed" in names
    assert "onnxrewrite/__main__.py" in names
    assert any(n.endswith("LICENSE") for n in names)
    page = {
        "frame.html",
        "apply.html",
        "page.css",
        "graph.css",
        "graph.js",
        "theme.js",
        "apply.js",
        "vendor/dagre.min.js",
        "vendor/LICENSE.dagre",
    }
    assert {f"onnxrewrite/report/html/{name}" for name in page} <= set(names)
    assert any(".dist-info/" in n and n.endswith("LICENSE.dagre") for n in names)


def test_a_source_distribution_holds_what_its_tests_need(sdist: Path) -> None:
    import tarfile

    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "CONTRIBUTING.md", "tests/conftest.py"} <= names
    assert not [name for name in names if name.endswith(".onnx") or name.startswith((".venv", "build/"))]


def test_missing_rules_are_a_broken_installation(wheel: Path, tmp_path: Path, model: Path) -> None:
    import shutil

    there = place(tmp_path / "env")
    there.install(wheel)
    (patterns,) = there.folder.rglob("onnxrewrite_patterns")
    shutil.rmtree(patterns)
    result = there.run(there.python, "-m", "onnxrewrite", "rules")
    assert result.returncode == 2
    assert result.stderr == (
        "onnxrewrite: the built-in rule library onnxrewrite_patterns is missing: reinstall onnxrewrite\n"
    )


# ------------------------------------------------------------------------------------------- somebody else's


def package(folder: Path, name: str, text: str) -> Path:
    """The source of a package with rules."""
    (folder / name / name).mkdir(parents=True)
    (folder / name / name / "__init__.py").write_text(text, encoding="utf-8")
    (folder / name / "pyproject.toml").write_text(
        f"""
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "{name}"
version = "1.0"
[project.entry-points."onnxrewrite.rules"]
{name} = "{name}"
""",
        encoding="utf-8",
    )
    return folder / name


@pytest.fixture
def there(wheel: Path, tmp_path: Path) -> Place:
    made = place(tmp_path / "env")
    made.install(wheel)
    return made


def test_a_package_with_rules(there: Place, tmp_path: Path, model: Path) -> None:
    there.install(package(tmp_path, "their_rules", RULE), package(tmp_path, "broken_rules", "import no_such_module"))
    listed = there.run(there.python, "-m", "onnxrewrite", "rules")
    assert listed.returncode == 0
    (line,) = [line for line in listed.stdout.splitlines() if line.startswith("their-log-softmax")]
    assert line.endswith("their_rules")
    assert listed.stderr.startswith("onnxrewrite: plugin broken_rules (broken_rules) cannot be used: ")
    assert "no_such_module" in listed.stderr
    assert listed.stderr.count("\n") == 1
    out = there.done(there.python, "-m", "onnxrewrite", "apply", model)
    assert operators(model.with_suffix(".opt.onnx")) == ["LogSoftmax", "Abs"]
    assert "their-log-softmax" in out
    assert "plugin broken_rules" in out


def test_two_packages_with_one_name(there: Place, tmp_path: Path, model: Path) -> None:
    there.install(*(package(tmp_path, name, RULE) for name in ("first_rules", "second_rules")))
    result = there.run(there.python, "-m", "onnxrewrite", "apply", model)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    for part in (
        "two rules are called 'their-log-softmax'",
        "first_rules/__init__.py",
        "second_rules/__init__.py",
    ):
        assert part in result.stderr
    assert not model.with_suffix(".opt.onnx").exists()


def test_a_name_of_the_library(there: Place, tmp_path: Path, model: Path) -> None:
    there.install(package(tmp_path, "their_rules", RULE.replace("their-log-softmax", "gelu-erf")))
    result = there.run(there.python, "-m", "onnxrewrite", "apply", model)
    assert result.returncode == 2
    for part in (
        "two rules are called 'gelu-erf'",
        "onnxrewrite_patterns/gelu.py",
        "their_rules/__init__.py",
    ):
        assert part in result.stderr
